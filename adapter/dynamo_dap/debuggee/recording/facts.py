"""Converts torch's objects into data of the record: bounded, and without references to those objects.

Runs on the compiling thread.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import tokenize
from collections.abc import Callable, Sequence
from typing import Any

from dynamo_dap.debuggee.agent.user_code import is_torch_file, is_user_file
from dynamo_dap.debuggee.bytecode.constants import without_addresses
from dynamo_dap.debuggee.recording.guard_texts import guard_text, plain_name
from dynamo_dap.debuggee.recording.object_numbers import ObjectNumbers
from dynamo_dap.debuggee.torch_api.cache.cache_lookups import CacheLookupFacts
from dynamo_dap.debuggee.torch_api.cache.guards import BuiltGuard, GuardFacts, ShapeGuardFacts
from dynamo_dap.debuggee.torch_api.cache.recompiles import NOT_KNOWN, Failure, refused_object, remember_places
from dynamo_dap.debuggee.torch_api.compiles.compile_hooks import FrameCompile
from dynamo_dap.debuggee.torch_api.compiles.constraint_violations import place_of_violation
from dynamo_dap.debuggee.torch_api.compiles.graph_breaks import (
    facts_of_break,
    frame_of_break,
    place_of_break,
    stack_of_break,
)
from dynamo_dap.debuggee.torch_api.devices.cuda_graph_texts import CudaGraphFacts
from dynamo_dap.debuggee.torch_api.devices.ddp_buckets import GraphBucket
from dynamo_dap.debuggee.torch_api.devices.sharded_modules import sharding_of
from dynamo_dap.debuggee.torch_api.graphs.graph import nodes_of, target_name, user_places
from dynamo_dap.debuggee.torch_api.objects import Node as FxNode
from dynamo_dap.debuggee.torch_api.traced.data_dependence import (
    PENDING_HINTS,
    PENDING_TEXT,
    DataDependence,
    DataSymbol,
    data_dependence_of,
    explained,
    pending_symbols_of,
)
from dynamo_dap.debuggee.torch_api.traced.size_reasons import SizeFacts
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place as TorchPlace
from dynamo_dap.debuggee.values.graph_texts import GraphTexts, result_text
from dynamo_dap.debuggee.values.model import bounded_text
from dynamo_dap.debuggee.values.python_values import expected_and_actual_texts
from dynamo_dap.protocol.requests.sizes import SPECIALIZATION
from dynamo_dap.protocol.texts import in_user_terms
from dynamo_dap.records.model import (
    Bucket,
    CacheLookup,
    CudaGraph,
    Graph,
    GraphBreak,
    Guard,
    GuardFailure,
    Node,
    Place,
    Sharding,
    Size,
    SizeReason,
    Specialization,
    StackLine,
)
from dynamo_dap.records.model import DataSymbol as RecordedSymbol
from dynamo_dap.records.texts import digest_of_line

MAXIMUM_NODES = 2000
MAXIMUM_GUARDS = 2000
_MAXIMUM_LENGTH = 300
_LENGTHS = frozenset({"SEQUENCE_LENGTH", "DICT_KEYS_MATCH", "MAPPING_KEYS_CHECK", "SET_CONTAINS"})
_MESSAGE = 4000
_PART = 500
"""Maximum characters of a part of a cache's key."""
_PARTS = 4000
_DISTRIBUTED = "/distributed/"

GuardTexts = Callable[[TracedFrame], Sequence[tuple[str, GuardFacts | ShapeGuardFacts]]]
"""Returns a trace's guards so far: the expression and the facts of each."""


def text_of(text: str, maximum: int) -> str:
    """Return torch's text, bounded and without addresses."""
    return bounded_text(without_addresses(text), maximum)


def place(found: TorchPlace | None) -> Place | None:
    """Convert a place from torch's form to the record's."""
    return None if found is None else Place(found.path, found.line, found.column)


def module_of(compiling: FrameCompile) -> object | None:
    """Return the ``torch.nn.Module`` whose method is compiled; None for any other function."""
    code = compiling.code
    frame_locals = getattr(compiling.frame, "f_locals", None) or {}
    receiver = frame_locals.get(code.co_varnames[0]) if code.co_argcount else None
    # Read the class by type(): an attribute of the object could run code of the program.
    is_module = any((one.__module__, one.__name__) == _MODULE for one in type(receiver).__mro__)
    return receiver if is_module else None


_MODULE = ("torch.nn.modules.module", "Module")


def data_dependence(exception: Any, handler: TracedFrame | None = None) -> DataDependence | None:
    """Return the data-dependent condition that raised ``exception``; ``handler`` is the function that handles it.

    The result keeps no node of the graph alive.
    """
    frame = frame_of_break(exception) or handler
    found = None if frame is None else data_dependence_of(exception, frame)
    if found is None:
        return None
    return found._replace(symbols=tuple(symbol._replace(node=None) for symbol in found.symbols))


def graph_break(exception: object, effect: str | None, dependence: DataDependence | None) -> GraphBreak:
    """Return a graph break, with the condition that caused it if it depends on data."""
    facts = explained(facts_of_break(exception), dependence)
    return GraphBreak(
        reason=facts.kind,
        place=place(place_of_break(exception)),
        explanation=facts.explanation and text_of(facts.explanation, _MESSAGE),
        hints=[text_of(hint, _MESSAGE) for hint in facts.hints],
        context=facts.context and text_of(facts.context, _MESSAGE),
        id=facts.identifier,
        link=facts.link,
        effect=effect,
        stack=[StackLine(Place(at.path, at.line, at.column), name) for at, name in stack_of_break(exception)],
        message=text_of(facts.message, _MESSAGE),
        at_fsdp_hook=facts.at_fsdp_hook,
        condition=None if dependence is None or dependence.is_number else dependence.user_condition,
        data=[] if dependence is None else list(map(_data_symbol, dependence.symbols)),
    )


def _data_symbol(symbol: DataSymbol) -> RecordedSymbol:
    return RecordedSymbol(symbol.name, symbol.user_name, symbol.operation, place(symbol.place), symbol.range)


def cache_lookup(event: CacheLookupFacts) -> CacheLookup:
    """Return the answer of a cache of compiled graphs."""
    parts = [text_of(part, _PART) for part in event.parts[:_PARTS]]
    reason = None if event.reason is None else text_of(event.reason.strip(), _MESSAGE)
    return CacheLookup(event.cache, event.result, event.key, reason, parts)


def cuda_graph(event: CudaGraphFacts) -> CudaGraph:
    """Return an event of a CUDA graph."""
    return CudaGraph(
        outcome=event.outcome,
        cause=event.cause,
        text=text_of(event.text, _MAXIMUM_LENGTH),
        place=place(event.place),
        caller=place(event.caller),
        is_backward=event.is_backward,
    )


def place_of_problem(problem: BaseException) -> Place | None:
    """Return the user's innermost traced line when ``problem`` was raised, or None."""
    frame = frame_of_break(problem)
    chain = [] if frame is None else frame.with_callers()
    found = next((one for one in chain if is_user_file(one.path)), None)
    return place(place_of_violation(problem)) if found is None else Place(found.path, max(1, found.line))


def pending_text(exception: BaseException, frame: TracedFrame) -> str | None:
    """Describe numbers that an operation made and did not return, with each one's line; None for other problems."""
    symbols = pending_symbols_of(exception, frame)
    lines = [PENDING_TEXT, *(f"{symbol.text}." for symbol in symbols), *(f"To do: {hint}." for hint in PENDING_HINTS)]
    return "\n".join([*lines, f"The program gets {type(exception).__name__}."]) if symbols else None


def graph(index: int, name: str, fx_graph: Any) -> Graph:
    """Return a graph."""
    nodes = nodes_of(fx_graph)
    operations = sum(node.op.startswith("call_") for node in nodes)
    texts = GraphTexts(fx_graph)
    shown = [_node(node, texts) for node in nodes[:MAXIMUM_NODES]]
    return Graph(index, name, len(nodes), operations, shown)


def _place_of(node: FxNode) -> TorchPlace | None:
    """Return the user's innermost line; for a collective, skip the traced functions of torch that make the node."""
    places = [place for place, _ in user_places(node)]
    if places and is_torch_file(places[-1].path) and _DISTRIBUTED in places[-1].path:
        places = [place for place in places if not is_torch_file(place.path)] or places
    return places[-1] if places else None


def place_of_node(node: FxNode) -> Place | None:
    """Return the line that made a node."""
    found = _place_of(node)
    return None if found is None else Place(found.path, found.line)


def _node(node: FxNode, texts: GraphTexts) -> Node:
    return Node(
        name=str(node.name),
        operation=str(node.op),
        target=text_of(target_name(node), _MAXIMUM_LENGTH),
        value=result_text(node) or None,
        place=place_of_node(node),
        expression=text_of(texts.call(node), _MAXIMUM_LENGTH),
        user_name=texts.names.get(node),
    )


def buckets(graph: Graph, cut: list[GraphBucket]) -> list[Bucket]:
    """Return a graph's buckets, with the names that the user wrote."""
    nodes = {node.name: node for node in graph.nodes}
    names = {known: node.user_name or node.name for node in graph.nodes for known in (node.name, node.target)}
    return [
        Bucket(
            each.size,
            [names.get(name, name) for name in each.parameters[:MAXIMUM_NODES]],
            list(dict.fromkeys(node.place for name in each.nodes if (node := nodes.get(name)) and node.place)),
        )
        for each in cut
    ]


def sharding(compiling: FrameCompile) -> Sharding | None:
    """Return FSDP's settings for the module whose method is compiled."""
    found = sharding_of(getattr(compiling.frame, "f_locals", None) or {}, compiling.code)
    return None if found is None else Sharding(**dataclasses.asdict(found))


def guard_failure(failure: Failure, frame: object, objects: ObjectNumbers | None = None) -> GuardFailure:
    """Return the failed guard of an earlier compile, for the call that ``frame`` is about to run.

    ``objects`` numbers the objects that failed guards on identity or type.
    """
    then, now = expected_and_actual_texts(failure, frame) if frame is not None else (None, None)
    refused = NOT_KNOWN if frame is None or objects is None else refused_object(failure, frame)
    return GuardFailure(
        compile_id=failure.compile_id,
        expression=text_of(failure.expression, _MESSAGE),
        reason=text_of(failure.reason, _MESSAGE),
        place=place(failure.place),
        value_then=then,
        value_now=now,
        text=_plain_text(failure.expression),
        hint=failure.hint and text_of(failure.hint, _MESSAGE),
        object_now=None if refused is NOT_KNOWN or objects is None else objects.of(refused),
    )


def guards(compiling: FrameCompile, built: Sequence[BuiltGuard]) -> tuple[int, list[Guard]]:
    """Return the number of guards, and those to keep; remember their lines for later failures."""
    count = 0
    places: dict[str, TorchPlace] = {}
    found: list[Guard] = []
    for one in built:
        at = place(one.place)
        if one.source and one.place and (one.check == "TENSOR_MATCH" or one.source not in places):
            places[one.source] = one.place
        if one.source and one.place and one.check in _LENGTHS:
            places.setdefault(f"len({one.source})", one.place)
        for expression in one.expressions:
            count += 1
            if count <= MAXIMUM_GUARDS:
                found.append(_guard(expression, one.check, at, one.source))
    remember_places(compiling.code, compiling.compile_id, places)
    return count, found


@functools.lru_cache(maxsize=1024)
def _guard(expression: str, check: str, at: Place | None, source: str | None = None) -> Guard:
    """Return one guard. Most are shared with the compile before, such as torch's global state."""
    return Guard(text_of(expression, _MAXIMUM_LENGTH), check, at, source, _plain_text(expression))


def sizes(found: Sequence[SizeFacts], specializations: Sequence[Specialization]) -> list[Size]:
    """Return why sizes are static or dynamic. ``specializations`` has lines that were noted during the trace."""
    lines = {plain_name(one.expression.rpartition(" == ")[0]): one.place for one in specializations}
    explained = []
    for one in found[:_MAXIMUM_SIZES]:
        source = plain_name(one.source)
        reasons = [
            SizeReason(
                reason.kind,
                text_of(reason.text, _MAXIMUM_LENGTH),
                (lines.get(source) if reason.kind == SPECIALIZATION else None) or place(reason.place),
            )
            for reason in one.reasons[:_MAXIMUM_REASONS]
        ]
        explained.append(Size(text_of(source, _MAXIMUM_LENGTH), one.state, one.symbol, one.value, reasons))
    return explained


_MAXIMUM_SIZES = 500
_MAXIMUM_REASONS = 20


def guards_so_far(frame: TracedFrame, texts: GuardTexts) -> tuple[int, list[Guard]]:
    """Return how many guards a trace has installed so far, and those to keep."""
    asked_for = texts(frame)
    return len(asked_for), [_guard_so_far(*one) for one in asked_for[:MAXIMUM_GUARDS]]


def _guard_so_far(expression: str, known: GuardFacts | ShapeGuardFacts) -> Guard:
    at = place(known.place)
    if isinstance(known, ShapeGuardFacts):
        return _guard(expression, "SHAPE_ENV", at)
    return _guard(expression, known.check, at, in_user_terms(known.name) if known.name else None)


def _plain_text(expression: str) -> str | None:
    text = text_of(guard_text(expression), _MAXIMUM_LENGTH)
    return None if text == expression else text


_MAXIMUM_BYTES = 4 * 1024 * 1024


def digests_of(path: str, not_after: float) -> str:
    """Return the digests of all lines in sequence; empty if it is not a file, or has changed.

    ``not_after`` is in seconds since the epoch: a file changed later does not match the program.
    """
    try:
        facts = os.stat(path)
        if facts.st_mtime > not_after or facts.st_size > _MAXIMUM_BYTES:
            return ""
        with tokenize.open(path) as file:
            return "".join(map(digest_of_line, file.read().split("\n")))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return ""
