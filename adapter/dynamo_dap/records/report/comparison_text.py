"""Prints how a compiled call differs from Dynamo's graph, for commands, the terminal and assistants. Has no state."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dynamo_dap.protocol.requests.bisection import SETTING, STAGES
from dynamo_dap.protocol.requests.comparisons import (
    NOTHING_DIFFERS,
    ComparedLine,
    ComparisonBody,
    Deviation,
)

_JUDGED = {True: "right", False: "wrong", None: "not run"}
_TEXT = 44
"""The width of the column with the source line."""


def print_problems(found: Sequence[ComparisonBody], console: Console) -> None:
    """Print what was not compared, each reason once with the number of its calls: the calls of a function share it."""
    for problem, count in Counter(each.problem for each in found if each.problem is not None).items():
        calls = f" ({count} calls)" if count > 1 else ""
        console.print(f"[dim]{escape(problem)}{calls}[/dim]")


def print_comparison(
    body: ComparisonBody, console: Console, *, with_lines: bool = True, with_problem: bool = True
) -> None:
    """Print one call: the result, then each line. ``with_problem`` adds why a part was not compared."""
    head = f"call {body.call} of {body.function} [{body.compile_id}], backend {body.backend}"
    console.print(f"[bold]{escape(head)}[/bold]")
    _print_result(body, console)
    lines = body.lines if with_lines else []
    for path in dict.fromkeys(line.path for line in lines):
        console.print(f"[dim]{escape(os.path.relpath(path))}[/dim]")
        table = Table(box=None, pad_edge=False, show_header=path == lines[0].path)
        for name, width in (("line", 7), ("", _TEXT), ("operations", 16)):
            table.add_column(name, width=width, no_wrap=True)
        for name in ("graph", "compiled", "RMSE"):
            table.add_column(name, width=9, justify="right")
        table.add_column("", width=12)
        for line in lines:
            if line.path == path:
                table.add_row(*_row(line, is_first=(line.path, line.line) == (body.path, body.line)))
        console.print(table)
    if lines:
        what = "gradients" if body.is_backward else "results"
        console.print(
            f"[dim]Columns show the largest difference in each line's {what}. graph: Dynamo's graph against ordinary "
            "Python. compiled: the compiled graph against Dynamo's graph.[/dim]"
        )
    if body.not_compared:
        console.print(f"[dim]not compared: {escape(', '.join(body.not_compared))}[/dim]")
    if with_problem:
        print_problems([body], console)
    if with_lines:
        console.print()


def _print_result(body: ComparisonBody, console: Console) -> None:
    if not body.compared:
        console.print(f"[yellow]Not compared[/yellow]: {escape(body.verdict)}")
    elif body.same and body.path is not None:
        console.print(f"[green]The same[/green]. Cause of the exception: {escape(body.verdict)}")
        _print_place(body, console)
    elif body.same:
        but = f". But {body.verdict}" if body.verdict != NOTHING_DIFFERS else ""
        result = "The same" if body.outputs.rounding is None else "Within rounding"
        result += " below Dynamo" if body.below_dynamo else ""
        console.print(f"[green]{result}[/green]: {_numbers(body.outputs)}{escape(but)}")
    else:
        _print_difference(body, console)


def _print_place(body: ComparisonBody, console: Console) -> None:
    operation = "" if body.operation is None else f"{escape(body.operation)} "
    console.print(f"  {operation}at {escape(os.path.relpath(body.path or ''))}:{body.line}")


def _print_difference(body: ComparisonBody, console: Console) -> None:
    """Print what differs, the stages that were tried, and the wrong operation with both errors."""
    # A difference in shape, dtype or aliasing has no number. The verdict names it.
    numbers = f": {_numbers(body.outputs)}" if body.lines and body.outputs.largest != 0.0 else ""
    console.print(f"[red]Differs[/red]{numbers}. Cause: {escape(body.verdict)}")
    if body.path is not None and not body.lines:
        _print_place(body, console)
    if body.stages:
        judged = ", ".join(f"{_stage(each.name)} {_JUDGED[each.right]}" for each in body.stages)
        part = "" if body.part is None else f", {_relation(body.part)} {escape(body.part)}"
        console.print(f"  stages: {escape(judged)}{part}")
    if body.operation is not None and body.of_operation is not None:
        place = "" if body.path is None else f" at {os.path.relpath(body.path)}:{body.line}"
        what = "gradient of " if body.is_backward else ""
        console.print(f"  first difference: {escape(what + body.operation + place)}: {_numbers(body.of_operation)}")


def _relation(part: str) -> str:
    return "right with" if part.startswith(SETTING) else "in"


def _stage(name: str) -> str:
    meaning = STAGES.get(name, name)
    return name if meaning.lower() == name else f"{name} ({meaning})"


def _row(line: ComparedLine, *, is_first: bool) -> list[str]:
    operations = ", ".join(dict.fromkeys(each.rpartition(".")[2] for each in line.operations))
    of, python = line.compiled or line.gradient, line.dynamo
    known = [each for each in (of, python) if each is not None]
    verdict = "not compared" if not known else "same" if all(each.same for each in known) else "differs"
    style = {"same": "green", "differs": "red"}.get(verdict, "dim")
    numbers = [
        "" if python is None else _number(python.largest),
        *(["", ""] if of is None else [_number(of.largest), _number(of.rmse)]),
    ]
    marked = f"▶ {line.line}" if is_first else f"  {line.line}"
    return [marked, escape(line.text), f"[dim]{escape(operations)}[/dim]", *numbers, f"[{style}]{verdict}[/{style}]"]


def _numbers(of: Deviation) -> str:
    text = f"largest difference {_number(of.largest)}, RMSE {_number(of.rmse)}"
    if of.rounding is not None:
        text += f", {of.rounding}"
    if of.error is None and of.reference_error is None:
        return text
    return f"{text}, error against float64 {_number(of.error)} compiled, {_number(of.reference_error)} in eager"


def _number(value: float | None) -> str:
    return "Inf" if value is None or math.isinf(value) else f"{value:.3g}"
