"""The ``Compile`` scope: which compile this is, why it was restarted, with what options, how far. Tracing thread."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

from dynamo_dap.debuggee.torch_internals.compilation import (
    backend_name,
    cache_entries,
    compile_identifier,
    dynamic_option,
    elapsed_seconds,
    is_full_graph,
)
from dynamo_dap.debuggee.torch_internals.dynamo_names import user_function_name
from dynamo_dap.debuggee.torch_internals.graph import graphs_of, nodes_of
from dynamo_dap.debuggee.torch_internals.translator import compile_identity, restart_reasons
from dynamo_dap.debuggee.values.callables import location_of_code
from dynamo_dap.debuggee.values.model import (
    Children,
    Deferred,
    Fixed,
    Location,
    Value,
    Variable,
    VirtualSource,
    bounded_text,
)

ListingOf = Callable[[CodeType], VirtualSource | None]


def compile_children(tx: Any, listing_of: ListingOf) -> Children:
    """Return the facts of the compile as children; ``listing_of`` shows code that Dynamo generated."""
    return Deferred(lambda: _facts(tx, listing_of))


def _facts(tx: Any, listing_of: ListingOf) -> list[Variable]:
    output = tx.output
    root = output.root_tx.f_code
    identity = compile_identity()
    seconds = elapsed_seconds()
    nodes = sum(len(nodes_of(graph)) for graph in graphs_of(tx))
    texts = [
        ("compile id", compile_identifier(tx)),
        ("attempt", str(identity.attempt + 1)),
        ("backend", backend_name(tx)),
        ("fullgraph", str(is_full_graph(tx))),
        ("dynamic", dynamic_option()),
        ("elapsed", "unknown" if seconds is None else f"{seconds:.1f} s, pauses included"),
        ("inline depth", str(tx.inline_depth)),
        ("graph nodes", str(nodes)),
        ("guards", str(len(output.guards))),
    ]
    facts = [Variable(name, Value(text)) for name, text in texts]
    frame = Variable("frame", Value(user_function_name(root), location=location_of_code(root)))
    return [*facts[:2], *_restarts(), frame, *facts[2:], _generated(root, listing_of)]


def _restarts() -> list[Variable]:
    reasons = restart_reasons(sys._getframe())
    if not reasons:
        return []
    lines = tuple(Variable(str(number), Value(bounded_text(reason))) for number, reason in enumerate(reasons))
    return [Variable("restarted because", Value(bounded_text(reasons[-1]), children=Fixed(lines)))]


def _generated(code: CodeType, listing_of: ListingOf) -> Variable:
    """Code that earlier compiles generated, each with its listing; this compile generates its own at its end."""
    entries = cache_entries(code)
    below = tuple(Variable(f"[{entry.compile_id}]", _listing(listing_of(entry.code))) for entry in entries)
    text = f"{len(entries)} from earlier compiles" if entries else "none yet: this is the first compile of this code"
    return Variable("generated code", Value(text, children=Fixed(below) if below else None))


def _listing(listing: VirtualSource | None) -> Value:
    if listing is None:
        return Value("without a listing: this session does not show generated code")
    return Value(listing.name.removesuffix(".dynamo"), location=Location(listing, 1))
