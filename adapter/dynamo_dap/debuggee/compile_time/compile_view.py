"""The ``Compile`` scope: which compile this is, why it was restarted, with what options, how far. Tracing thread."""

from __future__ import annotations

import sys
from typing import Any

from dynamo_dap.debuggee.torch_internals.compilation import (
    backend_name,
    cache_entries,
    compile_identifier,
    dynamic_option,
    elapsed_seconds,
    is_full_graph,
)
from dynamo_dap.debuggee.torch_internals.graph import graphs_of, nodes_of
from dynamo_dap.debuggee.torch_internals.translator import compile_identity, restart_reasons, user_function_name
from dynamo_dap.debuggee.values.callables import location_of_code
from dynamo_dap.debuggee.values.model import Children, Deferred, Fixed, Value, Variable, bounded_text


def compile_children(tx: Any) -> Children:
    """Return the facts of the compile as children."""
    return Deferred(lambda: _facts(tx))


def _facts(tx: Any) -> list[Variable]:
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
    return [*facts[:2], *_restarts(), frame, *facts[2:], _entries(root)]


def _restarts() -> list[Variable]:
    reasons = restart_reasons(sys._getframe())
    if not reasons:
        return []
    lines = tuple(Variable(str(number), Value(bounded_text(reason))) for number, reason in enumerate(reasons))
    return [Variable("restarted because", Value(bounded_text(reasons[-1]), children=Fixed(lines)))]


def _entries(code: Any) -> Variable:
    entries = cache_entries(code)
    below = tuple(Variable(str(number), Value(f"compile {entry.compile_id}")) for number, entry in enumerate(entries))
    text = f"{len(entries)} so far" if entries else "none yet: this is the first compile of this code"
    return Variable("cache entries", Value(text, children=Fixed(below) if below else None))
