"""Advises on the problems that ``torch.export.draft_export`` reports. It has no side effects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dynamo_dap.records.advice.items import Item, Kind
from dynamo_dap.records.model import ExportProblem

_NOT_PYTHON = re.compile(r"\b[A-Z]\w*\(|\b(?:zuf|[sufz])\d+\b")
"""A function of sympy, or a symbol whose name in the program is unknown."""


def export_items(problems: Iterable[ExportProblem]) -> Iterator[Item]:
    """Yield an item for each problem."""
    for problem in dict.fromkeys(problems):
        title, advice = _texts(problem)
        yield Item(Kind.FAILED, title, [problem.reason] if problem.reason else [], [advice], place=problem.place)


def _texts(problem: ExportProblem) -> tuple[str, str]:
    operator = "::".join(problem.subject.split(".")[:2])
    match problem.kind:
        case "missing_fake_kernel":
            return (
                f"{operator} has no fake kernel: the export ran it to learn the sizes of its result",
                f'register one: torch.library.register_fake("{operator}")',
            )
        case "mismatched_fake_kernel":
            return (
                f"{operator} does not return what its fake kernel declares",
                f"correct the fake kernel of {operator}; torch.library.opcheck compares it with the real one",
            )
        case "guard_added":
            return (
                f"The exported program refuses inputs unless {problem.subject}",
                "declare this in dynamic_shapes (Dim.AUTO lets torch choose), or change the line",
            )
    return (
        f"The export assumed that {problem.subject}, which depends on data: with other data the program fails",
        "say so in the program with torch._check"
        if _NOT_PYTHON.search(problem.subject)
        else f"say so in the program: torch._check({problem.subject})",
    )
