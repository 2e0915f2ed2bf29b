"""Prints a comparison for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Console

from dynamo_dap.diff.model import Difference, JsonCaches, JsonDiff, KeyPart, NotCached
from dynamo_dap.diff.sides import Run
from dynamo_dap.protocol.texts import counted
from dynamo_dap.records.advice.items import at
from dynamo_dap.records.model import Place
from dynamo_dap.records.texts import recorded_line

_LINES = 40
_MORE = 20
_VALUE = 100
_TRIED = {None: "tried, then it is not compiled", True: "tried, it is a hit", False: "tried, it is still a miss"}
_COUNTS = ("compiles", "graphs", "operations", "breaks", "recompiles", "guards")


def print_caches(found: JsonCaches, run: Run, console: Console, names: tuple[str, str] = ("A", "B")) -> None:
    """Print each compile that missed the caches, then seconds by phase for both runs (``names``)."""
    total = counted(found.hits + len(found.not_cached), "compile")
    seconds = sum(each.seconds for each in found.not_cached)
    if found.hits or found.not_cached:
        console.print(f"Of {total} in {names[1]}, {found.hits} hit the caches that {names[0]} filled.")
    else:
        console.print(
            f"Nothing was compiled in {names[1]}: {counted(found.a.numbers.compiles, 'compile')} in {names[0]}."
        )
    if found.not_cached:
        console.print(f"Missed: {len(found.not_cached)}, {seconds:.2f} s of {found.b.numbers.seconds:.2f} s.")
    for each in found.not_cached[:_MORE]:
        code = code_at(each.place, run) if each.place is not None else ""
        where = "" if each.place is None else f"  {at(each.place)}{f'  {code}' if code else ''}"
        console.print(f"\n[{each.compile}] {each.function}{where}", markup=False)
        console.print(f"  {', '.join(each.results)}, {each.seconds:.2f} s", markup=False)
        lines = [f"Reason: {' '.join(reason.split())}" for reason in each.reasons]
        lines += [part_text(part, names) for part in _folded(each.parts)]
        lines += [each.text] if each.text else []
        lines += [f"  {line}" for line in each.diff[:_LINES]]
        for line in [*lines, *(f"Do ({_trial_text(each)}): {advice}" for advice in each.advice), *_edit(each)]:
            console.print(f"  {line}", markup=False)
    if len(found.not_cached) > _MORE:
        console.print(f"\nand {counted(len(found.not_cached) - _MORE, 'other')}: --json")
    for name, side in zip(names, (found.a, found.b), strict=True):
        if side.exit_status:
            console.print(f"\nThe exit status of {name} is {side.exit_status}.")
    _print_numbers(found, console, names)


def _folded(parts: Sequence[KeyPart]) -> Iterator[KeyPart]:
    """Yield the parts, and inputs that differ in the same way as one part: ``example_inputs[2] … [13]``."""
    for values, group in groupby(parts, key=lambda part: (part.name.partition("[")[0], part.in_a, part.in_b)):
        first, *others = (part.name for part in group)
        if first.startswith("example_inputs[") and others:
            yield KeyPart(f"{first} … [{others[-1].partition('[')[2]}, {len(others) + 1} inputs", *values[1:])
        else:
            yield from (KeyPart(name, *values[1:]) for name in (first, *others))


def _trial_text(missed: NotCached) -> str:
    return "not tried" if missed.tried is None else _TRIED[missed.served_when_tried]


def _edit(missed: NotCached) -> Iterator[str]:
    """Yield the edit that was tried, and what the program with it prints."""
    if missed.edit:
        prints = "the same" if missed.prints_the_same else "something else, or exits with another status"
        yield f"Tried: {missed.tried}. The program prints {prints}."
        yield from (f"  {line}" for line in missed.edit)


def part_text(part: KeyPart, names: tuple[str, str] = ("A", "B")) -> str:
    """Return a setting or a part of a key with its two values."""
    if part.in_a == part.in_b:
        return f"{part.name} differs"
    return f"{part.name}: {_short(part.in_a)} in {names[0]}, {_short(part.in_b)} in {names[1]}"


def _short(value: str | None) -> str:
    return "not there" if value is None else " ".join(value.split())[:_VALUE]


def print_diff(diff: JsonDiff, runs: tuple[Run, Run], console: Console) -> None:
    """Print the first difference in full, the others in one line each, then counts and seconds."""
    if diff.differences:
        first, *others = diff.differences
        console.print(f"First difference: {first.text}", markup=False)
        _print_places(first, runs, console)
        for line in first.diff[:_LINES]:
            style = {"-": "red", "+": "green"}.get(line[:1], "")
            console.print(f"    {line}", markup=False, style=style)
        if len(first.diff) > _LINES:
            console.print(f"    ... {len(first.diff) - _LINES} more lines: --json")
        if others:
            console.print("\nAlso:")
        for other in others[:_MORE]:
            place = other.place or other.place_in_b
            where = f"  {at(place)}" if place is not None else ""
            console.print(f"  {other.kind}: {other.text}{where}", markup=False)
        if len(others) > _MORE:
            console.print(f"  and {counted(len(others) - _MORE, 'other')}: --json")
    else:
        console.print("No difference")
    if diff.settings:
        console.print("\nSettings that differ at the first compile:")
    for setting in diff.settings[:_MORE]:
        console.print(f"  {part_text(setting)}", markup=False)
    if len(diff.settings) > _MORE:
        console.print(f"  and {counted(len(diff.settings) - _MORE, 'other')}: --json")
    _print_numbers(diff, console)
    if diff.not_compared:
        console.print("\nNot compared:")
    for text in diff.not_compared:
        console.print(f"  {text}", markup=False)


def _print_places(difference: Difference, runs: tuple[Run, Run], console: Console) -> None:
    for name, place, run in zip("AB", (difference.place, difference.place_in_b), runs, strict=True):
        if place is not None:
            code = code_at(place, run)
            console.print(f"  {name}: {at(place)}{f'  {code}' if code else ''}", markup=False)


def code_at(place: Place, run: Run) -> str:
    """Return the text of a line; empty if the file has changed since the run."""
    return next((code for record in run.records if (code := recorded_line(record.sources, place))), "")


def _print_numbers(diff: JsonDiff | JsonCaches, console: Console, names: tuple[str, str] = ("A", "B")) -> None:
    console.print(f"\n{'':<18}" + "".join(f"{name.removeprefix('the '):>10}" for name in names))
    for name, one, other in numbers_of(diff):
        console.print(f"{name:<18}{one:>10}  {other:>8}", markup=False)


def numbers_of(diff: JsonDiff | JsonCaches) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of a table of both runs: the versions of torch if they differ, counts and seconds."""
    one, other = diff.a.numbers, diff.b.numbers
    if diff.a.torch != diff.b.torch:
        yield "torch", diff.a.torch or "?", diff.b.torch or "?"
    for name in _COUNTS:
        yield name, str(getattr(one, name)), str(getattr(other, name))
    yield "compile time", f"{one.seconds:.2f} s", f"{other.seconds:.2f} s"
    for name in dict.fromkeys([*one.phases, *other.phases]):
        yield f"  {name}", f"{one.phases.get(name, 0.0):.2f} s", f"{other.phases.get(name, 0.0):.2f} s"
