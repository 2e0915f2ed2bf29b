"""Collects the facts about a compiled call that raised, for the record. Runs on the thread that makes the call."""

from __future__ import annotations

import sys

from dynamo_dap.debuggee.agent.user_code import is_user_file
from dynamo_dap.debuggee.recording import facts
from dynamo_dap.debuggee.torch_api.compiles import raised_calls
from dynamo_dap.debuggee.torch_api.traced.translator import frame_below_trace
from dynamo_dap.records.model import Compile, Place, RaisedCall

_LENGTH = 2000


def facts_of(raised: raised_calls.RaisedCall, compiled: Compile) -> RaisedCall:
    """Return the facts about a call of ``compiled``."""
    text = str(raised.problem).strip()
    name = type(raised.problem).__name__
    return RaisedCall(
        facts.text_of(f"{name}: {text}" if text else name, _LENGTH),
        raised.operator,
        _places(raised, compiled),
        next((Place(path, line) for path, line in reversed(raised.frames) if is_user_file(path)), None),
        _caller(),
        raised.is_backward,
    )


def _places(raised: raised_calls.RaisedCall, compiled: Compile) -> list[Place]:
    """Return the lines of the operation, or of all operations in the failing kernel."""
    if raised.node is not None:
        found = facts.place_of_node(raised.node)
        return [] if found is None else [found]
    if raised.is_backward:
        places = (facts.place_of_node(node) for node in raised.backward_nodes)
        return list(dict.fromkeys(place for place in places if place is not None))
    nodes = [node for graph in compiled.graphs for node in graph.nodes if node.name in raised.nodes]
    names = (raised.operator or "").split(".")[:2]
    own = [node for node in nodes if len(names) == 2 and ".".join(names) in node.target]
    return list(dict.fromkeys(node.place for node in own or nodes if node.place is not None))


def _caller() -> Place | None:
    frame = frame_below_trace(sys._getframe())
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    return None if frame is None else Place(frame.f_code.co_filename, frame.f_lineno or 1)
