"""Parses torch's report of a graph break, and describes the effect on the function. Runs on the compiling thread.

``torch._dynamo.exc.format_graph_break_message`` makes the text: the kind of break, then ``Explanation:``, ``Hint:`` and
``Developer debug context:``, then a link with the id in torch's registry of graph breaks. If Dynamo breaks again while
it handles a break, the message has both texts in that order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.bytecode.constants import without_addresses
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import readable_function_name
from dynamo_dap.debuggee.torch_api.devices import sharded_modules
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.translator import translator_of_traceback, with_callers
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place, users_frame

_NEXT_BREAK = "\n\n*** While handling this graph break, another graph break occurred: ***\n\n"
_CONTEXT = "\n  Developer debug context: "
_EXPLANATION = re.compile(
    r"^  Explanation: (.*?)(?=^  Hint: |^  Developer debug context: |\Z)", re.MULTILINE | re.DOTALL
)
_HINT = re.compile(r"^  Hint: (.*?)(?=^  Hint: |^\s*$|\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"please visit: (?P<link>https://\S*/gb(?P<number>\d+)\.html)")


@dataclass(frozen=True, slots=True)
class BreakFacts:
    """One graph break."""

    kind: str
    """Torch's name of the kind: ``Data-dependent branching``."""
    explanation: str | None
    hints: tuple[str, ...]
    context: str | None
    identifier: str | None
    """``GB0059``"""
    link: str | None
    message: str
    consequence: str | None
    """The kind of the break that this one caused: ``graph break in loop``."""
    at_fsdp_hook: bool
    """Whether the graph broke at one of FSDP's hooks, which Dynamo may not trace."""


def facts_of_break(exception: object) -> BreakFacts:
    """Parse the exception of a graph break."""
    message = without_addresses(str(getattr(exception, "msg", None) or exception).strip())
    first, *others = message.split(_NEXT_BREAK)
    body, _, rest = first.partition(_CONTEXT)
    kind = body.split("\n", 1)[0].strip() or type(exception).__name__
    explanation = _EXPLANATION.search(body)
    link = _LINK.search(rest) or _LINK.search(body)
    explained = _unindented(explanation[1]) if explanation else None
    hints = tuple(_unindented(hint) for hint in _HINT.findall(body))
    at_fsdp_hook = sharded_modules.is_at_hook(getattr(exception, "real_stack", None) or (), first)
    if at_fsdp_hook:
        explained, hints = sharded_modules.EXPLANATION, sharded_modules.HINTS
    return BreakFacts(
        kind=kind,
        explanation=explained,
        hints=hints,
        context=_unindented(rest.split("\n\n For more details about", 1)[0]) or None,
        identifier=f"GB{link['number']}" if link else None,
        link=link["link"] if link else None,
        message=message,
        consequence=others[-1].split("\n", 1)[0].strip() if others else None,
        at_fsdp_hook=at_fsdp_hook,
    )


def _unindented(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


def stack_of_break(exception: object) -> list[tuple[Place, str]]:
    """Return the user's stack inside the compiled function, outermost first."""
    stack = getattr(exception, "real_stack", None) or ()
    return [(_place(frame), readable_function_name(str(frame.name))) for frame in stack]


def _place(frame: Any) -> Place:
    return Place(frame.filename, frame.lineno or 1, (getattr(frame, "colno", None) or 0) + 1)


def place_of_break(exception: object) -> Place | None:
    """Return the user's line: the innermost outside torch."""
    stack = getattr(exception, "real_stack", None)
    return users_frame(stack)[0] if stack else None


_BREAKS = frozenset({"Unsupported", "UserError", "StepUnsupported"})


def is_graph_break(problem: object) -> bool:
    """Return whether an exception is one that torch raises for untraceable code, judged by its class name."""
    kinds = type.__dict__["__mro__"].__get__(type(problem))
    return any(kind.__name__ in _BREAKS and kind.__module__.startswith("torch.") for kind in kinds)


def was_logged(problem: object) -> bool:
    """Return whether torch has logged this graph break: Dynamo handles a break once in each inlined function."""
    return bool(getattr(problem, "logged", False))


def is_control_flow(problem: BaseException) -> bool:
    """Return whether Dynamo raises the exception to restart, or to skip the function."""
    return any(
        kind.__name__ in ("RestartAnalysis", "SkipFrame", "SkipCodeRecursiveException")
        for kind in type(problem).__mro__
    )


def frame_of_break(exception: BaseException) -> TracedFrame | None:
    """Return the innermost traced function at the first exception; None if no exception passed a traced function.

    The first exception is the context of the break that it caused.
    """
    translator = translator_of_traceback(exception.__traceback__)
    while (earlier := _earlier_exception(exception)) is not None:
        exception = earlier
        translator = translator_of_traceback(exception.__traceback__) or translator
    return None if translator is None else TracedFrame(translator)


def _earlier_exception(exception: BaseException) -> BaseException | None:
    """Return the earlier exception that became this one, or None."""
    if exception.__cause__ is not None:
        return exception.__cause__
    earlier, text = exception.__context__, str(getattr(exception, "msg", ""))
    became_this = is_graph_break(earlier) and text.startswith(str(getattr(earlier, "msg", "\0")))
    return earlier if became_this else None


def is_error(frame: TracedFrame) -> bool:
    """Return whether graph breaks are errors in a function's trace: ``fullgraph=True``, or ``error_on_graph_break``."""
    *_, outermost = with_callers(frame.translator)
    return bool(outermost.one_graph or frame.translator.error_on_graph_break)


SKIPPED_EFFECT = "the function is skipped: it runs eagerly as a whole"
ERROR_EFFECT = "graph breaks are errors here (fullgraph=True): the program gets an exception"


def effect_of_break(frame: TracedFrame, reason: str, facts: BreakFacts) -> str:
    """Describe how a function runs after a graph break; ``reason`` is the text that torch logged."""
    if reason.startswith("Failed to handle graph break gracefully"):
        if _LOOP in (facts.kind, facts.consequence):
            return "a graph break in a loop: the function is skipped and runs eagerly as a whole"
        return "the function cannot resume from here and is skipped: it runs eagerly as a whole"
    speculation = getattr(frame.translator, "current_speculation", None)
    if reason.startswith("Encountered graph break that we cannot resume from") and speculation is not None:
        return f"compiled up to line {int(speculation.lineno)}; from there on the function runs eagerly"
    line, broken = _line_after(frame.translator), int(frame.translator.lineno or 0)
    where = f"the rest of line {line}" if line == broken else f"line {line}"
    return f"the rest is compiled separately: it resumes at {where}"


_LOOP = "graph break in loop"


def _line_after(translator: Any) -> int:
    """Return the line at which a resume function begins to compute, after it has dropped the statement's result."""
    rest = translator.instructions[translator.instruction_pointer :]
    following = next((each for each in rest if each.opname not in ("POP_TOP", "NOP")), None)
    positions = getattr(following, "positions", None)
    line = getattr(positions, "lineno", None) or getattr(following, "starts_line", None)
    return int(line or translator.lineno)
