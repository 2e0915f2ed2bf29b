"""What torch says of a graph break: its exceptions taken apart. Compiling thread.

The text is made by ``torch._dynamo.exc.format_graph_break_message``: the kind of break, then ``Explanation:``,
``Hint:`` and ``Developer debug context:``, then a link that holds the id in torch's registry of graph breaks. A break
that happened while another one was handled has both texts, the first one first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.torch_internals.variable_trackers import Place, users_frame

_ANOTHER = "\n\n*** While handling this graph break, another graph break occurred: ***\n\n"
_CONTEXT = "\n  Developer debug context: "
_EXPLANATION = re.compile(
    r"^  Explanation: (.*?)(?=^  Hint: |^  Developer debug context: |\Z)", re.MULTILINE | re.DOTALL
)
_HINT = re.compile(r"^  Hint: (.*?)(?=^  Hint: |^\s*$|\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"please visit: (?P<link>\S*/gb(?P<number>\d+)\.html)")


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
    """The kind of the break that this one led to: ``graph break in loop``."""


def facts_of_break(exception: Any) -> BreakFacts:
    """Take the exception of a graph break apart."""
    message = str(getattr(exception, "msg", None) or exception).strip()
    first, *others = message.split(_ANOTHER)
    body, _, rest = first.partition(_CONTEXT)
    kind = body.split("\n", 1)[0].strip() or type(exception).__name__
    explanation = _EXPLANATION.search(body)
    link = _LINK.search(rest) or _LINK.search(body)
    return BreakFacts(
        kind=kind,
        explanation=_unindented(explanation[1]) if explanation else None,
        hints=tuple(_unindented(hint) for hint in _HINT.findall(body)),
        context=_unindented(rest.split("\n\n For more details about", 1)[0]) or None,
        identifier=f"GB{link['number']}" if link else None,
        link=link["link"] if link else None,
        message=message,
        consequence=others[-1].split("\n", 1)[0].strip() if others else None,
    )


def _unindented(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


def stack_of_break(exception: Any) -> list[tuple[Place, str]]:
    """Return the user's stack inside the compiled function, outermost first."""
    stack = getattr(exception, "real_stack", None) or ()
    return [(_place(frame), str(frame.name)) for frame in stack]


def _place(frame: Any) -> Place:
    return Place(frame.filename, frame.lineno or 1, (getattr(frame, "colno", None) or 0) + 1)


def place_of_break(exception: Any) -> Place | None:
    """Return the user's line: the innermost that is not torch's."""
    stack = getattr(exception, "real_stack", None)
    return users_frame(stack)[0] if stack else None


_BREAKS = frozenset({"Unsupported", "UserError", "StepUnsupported"})


def is_graph_break(problem: object) -> bool:
    """Whether an exception is torch's for something it cannot trace, told by name."""
    kinds = type.__dict__["__mro__"].__get__(type(problem))
    return any(kind.__name__ in _BREAKS and kind.__module__.startswith("torch.") for kind in kinds)
