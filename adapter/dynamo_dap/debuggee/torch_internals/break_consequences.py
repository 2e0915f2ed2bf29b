"""What will become of a function whose trace has just met something that Dynamo cannot trace.

Read off the Python frames of the interpreter, from where torch made the exception outwards, by the rules of
torch/_dynamo/symbolic_convert.py ("graph break handling"). Nothing is changed by asking. Tracing thread.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.code_analysis.handlers import HAS_EXCEPTION_TABLE, names_caught_at
from dynamo_dap.debuggee.torch_internals.features import Feature
from dynamo_dap.debuggee.torch_internals.translator import Translator, frames_of_trace, outermost

_PARTIAL = "torch._dynamo.symbolic_convert:InstructionTranslatorBase.should_compile_partial_graph"
_BACKEDGE = "torch._dynamo.symbolic_convert:InstructionTranslatorBase.maybe_has_backedge"

CONSEQUENCES = Feature("telling where a function resumes after a graph break", _PARTIAL, _BACKEDGE)

_RETHROWERS = frozenset(
    {
        "unimplemented",
        "unimplemented_with_warning",
        "raise_jump_graph_break",
        "raise_loop_graph_break",
        "wrapper",
        "jump_graph_break",
        "inline_call_",
        "inline_call",
        "step",
        "run",
        "speculate_subgraph",
        "log_graph_break",
        "wrap_fx_proxy",
        "get_fake_value",
        "trace_frame",
        "_compile",
        "_compile_inner",
        "__init__",
    }
)
"""Functions of Dynamo that handle its exception and let the graph break. Any other that names it may go another way."""


@dataclass(frozen=True, slots=True)
class Consequence:
    """What becomes of the function."""

    text: str
    line: int | None = None
    """Where it resumes, or up to where it is compiled."""
    is_error: bool = False
    """Graph breaks are errors: ``fullgraph=True``, or ``error_on_graph_break``."""


def is_certain(top: types.FrameType) -> bool:
    """Whether no function between ``top`` and the interpreter may yet handle the exception in another way."""
    for frame in frames_of_trace(top):
        code = frame.f_code
        if "Unsupported" not in code.co_names or code.co_name in _RETHROWERS:
            continue
        if not HAS_EXCEPTION_TABLE or "Unsupported" in names_caught_at(code, frame.f_lasti):
            return False
    return True


def consequence(translator: Translator, top: types.FrameType, *, skip_frame: bool) -> Consequence:
    """Tell what becomes of the frame being compiled; ``skip_frame`` as the exception says."""
    root = outermost(translator)
    if root.one_graph or translator.error_on_graph_break:
        return Consequence(
            "graph breaks are errors here (fullgraph=True): the program gets an exception", is_error=True
        )
    if CONSEQUENCES.problem is None:
        for handler, one in _handlers(top):
            if skip_frame and one is not root:
                # It concerns the inlined function alone.
                skip_frame = False
                continue
            found = None if skip_frame else _at(handler, one)
            if found is not None:
                return found
    return Consequence("the function cannot resume from here and is skipped: it runs eagerly as a whole")


def _handlers(top: types.FrameType) -> Iterator[tuple[str, Any]]:
    for frame in frames_of_trace(top):
        name = frame.f_code.co_name
        if name in ("wrapper", "jump_graph_break", "step") and frame.f_code.co_filename.endswith("symbolic_convert.py"):
            translator = frame.f_locals.get("self")
            if translator is not None:
                yield name, translator


def _at(handler: str, translator: Any) -> Consequence | None:
    if handler == "step":
        speculation = translator.current_speculation
        if speculation is None:
            return None
        line = int(speculation.lineno)
        return Consequence(f"compiled up to line {line}; from there on the function runs eagerly", line)
    if getattr(translator, "active_generic_context_managers", None) or not translator.should_compile_partial_graph():
        return None
    if translator.maybe_has_backedge():
        return Consequence("a graph break in a loop: the function is skipped and runs eagerly as a whole")
    line = _line_after(translator)
    return Consequence(f"the rest is compiled by itself: it resumes at line {line}", line)


def _line_after(translator: Any) -> int:
    """Return the line of the instruction that a resume function begins with."""
    index = translator.instruction_pointer
    following = translator.instructions[index] if index < len(translator.instructions) else None
    positions = getattr(following, "positions", None)
    line = getattr(positions, "lineno", None) or getattr(following, "starts_line", None)
    return int(line or translator.lineno)
