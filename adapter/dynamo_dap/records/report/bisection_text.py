"""Describes the result of a bisection as text, for commands and assistants. Has no state."""

from __future__ import annotations

from dataclasses import dataclass, field

from dynamo_dap.protocol.requests.bisection import (
    KINDS,
    PARTS,
    STAGES,
    BisectedItem,
)

PROGRAM_MEANING = "the program as it is, with its own backend"
BY_EXIT, BY_OUTPUT = "exit", "output"
"""How a run is judged, unless by an expression."""


@dataclass
class Verdict:
    """The result of a bisection."""

    stage: str
    problem: str
    """What the stage did wrong."""
    part: str | None = None
    number: int | None = None
    """The item in its part, counted from 1."""
    item: BisectedItem | None = None
    settings: dict[str, bool] = field(default_factory=dict)
    """The torch setting that avoids the problem, with its value."""
    text: str = ""
    """The whole result as readable text."""


def text_without_fault(check: str) -> str:
    """Return the text for a program with no wrong stage."""
    if check == BY_EXIT:
        return (
            "Every stage ends with exit status 0. The results were not compared: --check output compares what the "
            "program prints, 'dynamo-dap compare' compares each line.\n"
        )
    if check == BY_OUTPUT:
        return "Every stage prints what the uncompiled program prints.\n"
    return f"In every stage this is true at the end: {check}\n"


def verdict_text(found: Verdict) -> str:
    """Return the result as text."""
    meaning = STAGES.get(found.stage, PROGRAM_MEANING)
    lines = [f"Wrong: {found.stage} ({meaning}): {found.problem}"]
    item = found.item
    if found.part is not None:
        name = item.name if item is not None else "?"
        lines.append(f"  in {KINDS[found.part]} {name}, number {found.number} of its kind")
    if item is not None and (item.gone or item.made):
        lines.append(f"  it replaced {', '.join(item.gone) or 'nothing'} by {', '.join(item.made) or 'nothing'}")
    if item is not None:
        lines += [f"  at {place.path}:{place.line} in {place.function}" for place in item.places]
    lines += [f"  it is right with {name} = {value}" for name, value in found.settings.items()]
    if found.part is None and not found.settings and found.stage in PARTS:
        lines.append("  no single pass, decomposition or lowering causes it")
    return "\n".join(lines) + "\n"
