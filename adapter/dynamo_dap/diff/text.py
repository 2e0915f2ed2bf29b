"""Prints a comparison for a terminal."""

from __future__ import annotations

from rich.console import Console

from dynamo_dap.diff.model import Difference, JsonCaches, JsonDiff, KeyPart
from dynamo_dap.diff.sides import Run
from dynamo_dap.records.items import at
from dynamo_dap.records.model import Place
from dynamo_dap.records.texts import counted, recorded_line

_LINES = 40
_MORE = 20
_VALUE = 100
_TRIED = {None: "not tried", True: "tried, it is a hit", False: "tried, it is still a miss"}
_COUNTS = ("compiles", "graphs", "operations", "breaks", "recompiles", "guards")


def print_caches(found: JsonCaches, run: Run, console: Console, names: tuple[str, str] = ("A", "B")) -> None:
    """Print each compile that missed the caches, then seconds by phase for both runs (``names``)."""
    total = counted(found.hits + len(found.not_cached), "compile")
    seconds = sum(each.seconds for each in found.not_cached)
    console.print(f"Of {total} in {names[1]}, {found.hits} hit the caches that {names[0]} filled.")
    if found.not_cached:
        console.print(f"Missed: {len(found.not_cached)}, {seconds:.2f} s of {found.b.numbers.seconds:.2f} s.")
    for each in found.not_cached[:_MORE]:
        code = _code(each.place, run) if each.place is not None else ""
        where = "" if each.place is None else f"  {at(each.place)}{f'  {code}' if code else ''}"
        console.print(f"\n[{each.compile}] {each.function}{where}", markup=False)
        console.print(f"  {', '.join(each.results)}, {each.seconds:.2f} s", markup=False)
        lines = [f"Bypassed: {' '.join(reason.split())}" for reason in each.reasons]
        lines += [_part_text(part, names) for part in each.parts]
        lines += [each.text] if each.text else []
        lines += [f"  {line}" for line in each.diff[:_LINES]]
        for line in [*lines, *(f"Do ({_TRIED[each.served_when_tried]}): {advice}" for advice in each.advice)]:
            console.print(f"  {line}", markup=False)
    if len(found.not_cached) > _MORE:
        console.print(f"\nand {counted(len(found.not_cached) - _MORE, 'other')}: --json")
    for name, side in zip(names, (found.a, found.b), strict=True):
        if side.exit_status:
            console.print(f"\nThe exit status of {name} is {side.exit_status}.")
    _print_numbers(found, console, names)


def _part_text(part: KeyPart, names: tuple[str, str]) -> str:
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
        console.print(f"  {setting.name}: {_short(setting.in_a)} in A, {_short(setting.in_b)} in B", markup=False)
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
            code = _code(place, run)
            console.print(f"  {name}: {at(place)}{f'  {code}' if code else ''}", markup=False)


def _code(place: Place, run: Run) -> str:
    return next((code for record in run.records if (code := recorded_line(record.sources, place))), "")


def _print_numbers(diff: JsonDiff | JsonCaches, console: Console, names: tuple[str, str] = ("A", "B")) -> None:
    one, other = diff.a.numbers, diff.b.numbers
    console.print(f"\n{'':<18}" + "".join(f"{name.removeprefix('the '):>10}" for name in names))
    if diff.a.torch != diff.b.torch:
        console.print(f"{'torch':<18}{diff.a.torch or '?':>10}  {diff.b.torch or '?'}", markup=False)
    for name in _COUNTS:
        console.print(f"{name:<18}{getattr(one, name):>10}{getattr(other, name):>10}")
    console.print(f"{'compile time':<18}{one.seconds:>8.2f} s{other.seconds:>8.2f} s")
    for name in dict.fromkeys([*one.phases, *other.phases]):
        first, second = one.phases.get(name, 0.0), other.phases.get(name, 0.0)
        console.print(f"  {name:<16}{first:>8.2f} s{second:>8.2f} s", markup=False)
