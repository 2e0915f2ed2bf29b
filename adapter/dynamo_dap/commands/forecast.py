"""``dynamo-dap forecast``: runs a program, and reports which sizes would hit torch's cache afterwards.

Runs on the command's main thread.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import msgspec

from dynamo_dap.commands.forecast_verification import BREAKS, compiles, one_entry, verdict, verify
from dynamo_dap.protocol.requests.contract import LaunchDescription
from dynamo_dap.protocol.requests.forecasts import (
    DeclaredFunction,
    ForecastBody,
    ForecastRun,
    ForecastTrial,
    FunctionForecast,
    InputForecast,
    ServedRange,
    VariedSize,
    WarmUp,
)
from dynamo_dap.records.program import add_program, given_program, read_options, run_program, run_silently
from dynamo_dap.records.repeated_input import RepeatedInput

_SIZE = re.compile(r"(?P<names>[^=]+)=(?P<first>\d+):(?P<last>\d+)")
_MOST = 100_000
"""The largest range, in sizes."""
_RANGES = 8
"""The most ranges to list one by one; more are merged by entry."""
_NAMED = 2
_PROGRESSION = 3
"""The shortest progression that is shown as ``4, 6 … 40``."""


def main(arguments: list[str]) -> int:
    """Run a program and print the forecast; return its exit status."""
    parser = _parser()
    options = read_options(parser, arguments)
    program = given_program(parser, options)
    with tempfile.TemporaryDirectory(prefix="dynamo-dap-") as folder:
        file = Path(folder) / "forecast.json"
        asked = ForecastRun(
            str(file),
            options.function,
            options.vary,
            options.range[0],
            options.range[1],
            options.calls,
            options.inputs,
            options.warm_up,
        )
        description, given = msgspec.structs.replace(program, forecast=asked), RepeatedInput()
        with given.for_a_run(is_shown=True) as stdin:
            status = run_program(options.python, description, prints_for_others=True, stdin=stdin)
        text = file.read_bytes() if file.exists() else None
        body = ForecastBody() if text is None else msgspec.json.decode(text, type=ForecastBody)
        if options.verify:
            verify(body, lambda declared: _run_declared(options.python, program, declared, file, given))
    if text is None and status < 0:
        sys.stderr.write("dynamo-dap: the program died before its cache could be read\n")
        return 128 - status
    body.text = "\n".join(_lines(body))
    sys.stdout.write(msgspec.json.encode(body).decode() if options.json else body.text)
    sys.stdout.write("\n")
    return status


def _run_declared(
    python: str, program: LaunchDescription, declared: list[DeclaredFunction], file: Path, given: RepeatedInput
) -> ForecastBody | str:
    """Run the program with these declarations in a new process; return a text if there is no forecast."""
    file.unlink(missing_ok=True)
    asked = ForecastRun(str(file), declared=declared)
    with given.for_a_run() as stdin:
        status = run_silently(python, msgspec.structs.replace(program, forecast=asked), stdin)
    if status:
        return f"the program ended with status {status}"
    return msgspec.json.decode(file.read_bytes(), type=ForecastBody) if file.exists() else "torch was not imported"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dynamo-dap forecast",
        description="Run a program, and report which sizes of its inputs match a cache entry at the end, and which "
        "would compile. For sizes that would compile, it tries mark_dynamic, dynamic=True and shapes_spec in further "
        "calls of the function, until one entry serves all. To verify the declaration, it runs the program again in a "
        "new process. The exit status is the first run's.",
    )
    parser.add_argument("--function", metavar="NAME", help="only functions of this name: fn, Model.forward")
    parser.add_argument(
        "--vary",
        metavar="SIZE=FIRST:LAST",
        type=_varied,
        action="append",
        default=[],
        help="which size to change: x.shape[0]=1:512; several change together: x.shape[0],y.shape[0]=1:64",
    )
    parser.add_argument(
        "--range",
        metavar="FIRST:LAST",
        type=_range,
        default=(0, 128),
        help="without --vary: the range to try for each size that varied in the program; default: 0:128",
    )
    parser.add_argument(
        "--calls",
        metavar="SIZES",
        type=_sizes,
        default=[],
        help="call the function with these sizes in order, and count the compiles: 3,5,7",
    )
    parser.add_argument(
        "--input",
        metavar="INPUT",
        type=_input,
        action="append",
        default=[],
        dest="inputs",
        help="report which entry serves this input: 'x=(3,4), n=7'; if repeated, also count the compiles of the list",
    )
    parser.add_argument(
        "--warm-up",
        action="store_true",
        help="find the shortest list of calls after which no size of the range compiles",
    )
    parser.add_argument(
        "--no-verify",
        action="store_false",
        dest="verify",
        help="do not run the program again to verify the declaration with which one entry serves all sizes",
    )
    parser.add_argument("--json", action="store_true", help="print JSON: one object")
    add_program(parser)
    return parser


def _varied(text: str) -> VariedSize:
    found = _SIZE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"give SIZE=FIRST:LAST, as in x.shape[0]=1:64, not {text!r}")
    first, last = _range(f"{found['first']}:{found['last']}")
    return VariedSize(tuple(name.strip() for name in found["names"].split(",")), first, last)


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition(":")
    if not (first.isdigit() and last.isdigit()) or not 0 <= int(last) - int(first) < _MOST:
        raise argparse.ArgumentTypeError(f"give FIRST:LAST, as in 0:128, with at most {_MOST} sizes, not {text!r}")
    return int(first), int(last)


def _sizes(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"give sizes as in 3,5,7, not {text!r}")
    return [int(part) for part in parts]


def _input(text: str) -> dict[str, int]:
    """Return sizes and integers by name: ``x=(3,4), n=7, y.shape[0]=2``."""
    values: dict[str, int] = {}
    parts = [part for part in re.split(r",\s*(?![^(]*\))", text) if part.strip()]
    for part in parts:
        name, _, given = (piece.strip() for piece in part.partition("="))
        sizes = [size.strip() for size in given.strip("()").split(",") if size.strip()]
        if not name or not all(size.isdigit() for size in sizes) or not (given.startswith("(") or len(sizes) == 1):
            raise argparse.ArgumentTypeError(f"give sizes and integers as in 'x=(3,4), n=7', not {text!r}")
        if given.startswith("("):
            values.update({f"{name}.shape[{number}]": int(size) for number, size in enumerate(sizes)})
        else:
            values[name] = int(sizes[0])
    return values


# -- text ----------------------------------------------------------------------------------------------------------


def _lines(body: ForecastBody) -> Iterator[str]:
    if not body.functions:
        yield "No function has cache entries."
    for function in body.functions:
        yield from _of_function(function)


def _of_function(function: FunctionForecast) -> Iterator[str]:
    count = len(function.entries)
    entries = f"{count} cache {'entry' if count == 1 else 'entries'}: {', '.join(function.entries)}"
    yield f"{function.name} ({Path(function.path).name}:{function.line}), {entries}"
    if function.problem is not None:
        yield f"  {function.problem}"
    elif not function.sizes and not function.inputs:
        yield "  no tensor among its inputs: nothing to vary"
    yield from _of_inputs(function.inputs)
    for size in function.sizes:
        seen = f", compiled with {', '.join(map(str, size.seen))}" if size.seen else ""
        yield f"  {_shortened(size.names, ' = ')}{seen}"
        yield from _of_ranges(size.served, "    ")
        if size.warm_up is not None:
            yield from _of_warm_up(size.warm_up)
        for trial in size.trials:
            yield from _of_trial(trial)


def _of_inputs(inputs: Sequence[InputForecast]) -> Iterator[str]:
    total = 0
    for one in inputs:
        sizes = ", ".join(f"{name}={size}" for name, size in one.values.items())
        served = "compiles" if one.entry is None else f"served by {one.entry}"
        yield f"  {sizes}: {served}"
        if one.problem is not None:
            yield f"    its call raises {one.problem}"
        total += one.compiled or 0
    if inputs and all(one.compiled is not None for one in inputs):
        yield f"  called in this order: {compiles(total)}"


def _of_ranges(served: list[ServedRange], indentation: str) -> Iterator[str]:
    if len(served) <= _RANGES:
        lines = [(_range_text(one.first, one.last), one.entry) for one in served]
    else:
        by_entry: dict[str | None, list[int]] = {}
        for one in served:
            by_entry.setdefault(one.entry, []).extend(range(one.first, one.last + 1))
        lines = [(_progression(sizes), entry) for entry, sizes in by_entry.items()]
    for sizes, entry in lines:
        what = "compiles" if entry is None else f"served by {entry}"
        yield f"{indentation}{sizes:<13} {what}"


def _range_text(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _progression(sizes: list[int]) -> str:
    """Return sizes in parts with equal steps: ``0 to 2, 4, 6 … 40``."""
    parts = []
    at = 0
    while at < len(sizes):
        step = sizes[at + 1] - sizes[at] if at + 1 < len(sizes) else 1
        end = at
        while end + 1 < len(sizes) and sizes[end + 1] - sizes[end] == step:
            end += 1
        if step == 1:
            parts.append(_range_text(sizes[at], sizes[end]))
        elif end - at < _PROGRESSION:
            end = at
            parts.append(str(sizes[at]))
        else:
            parts.append(f"{sizes[at]}, {sizes[at + 1]} … {sizes[end]}")
        at = end + 1
    more = f" and {len(parts) - _RANGES} more" if len(parts) > _RANGES else ""
    return ", ".join(parts[:_RANGES]) + more


def _of_warm_up(found: WarmUp) -> Iterator[str]:
    if found.problem is not None:
        yield f"    no warm-up found: {found.problem}"
        return
    reason = f"{_listed(found.apart)} each need their own entry" if len(found.apart) > 1 else ""
    if found.first_is_static:
        reason = "; ".join(filter(None, [reason, "the first compile is static, so its entry serves one size"]))
    bound = f"at least {found.least} {'call is' if found.least == 1 else 'calls are'} needed"
    if not found.sizes:
        yield f"    no warm-up found: {bound}{f' ({reason})' if reason else ''}"
    else:
        is_least = len(found.sizes) == found.least
        shorter = f"no shorter list does that{f': {reason}' if reason else ''}" if is_least else bound
        yield f"    warm up with {_listed(found.sizes)}: then no size compiles; {shorter}"
    for size, problem in found.failing.items():
        yield f"    a call with {size} raises {problem}"
    yield from _of_ranges(found.served, "        ")


def _shortened(texts: Sequence[str], between: str) -> str:
    """Join the texts, but only the first ones of many: a key-value cache has one name per layer for the same size."""
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return between.join(texts[:_NAMED]) + more


def _listed(sizes: Iterable[int]) -> str:
    return ", ".join(map(str, sizes))


def _of_trial(trial: ForecastTrial) -> Iterator[str]:
    alike = groupby(zip(trial.sizes, trial.compiled, strict=True), key=lambda each: each[1])
    calls = "; ".join(f"with {', '.join(str(size) for size, _ in group)}: {compiles(count)}" for count, group in alike)
    yield f"    tried: {_shortened(trial.title.split('; '), '; ')}"
    if calls:
        yield f"      calls {calls}"
    if trial.problem is not None:
        yield f"      it fails: {trial.problem}"
    elif trial.breaks:
        yield f"      {BREAKS}"
    elif one := one_entry(trial):
        yield f"      {one}"
        if trial.way is not None:
            yield f"      {verdict(trial)}"
    else:
        yield f"      {_entries_text(trial.served)}"


def _entries_text(served: list[ServedRange]) -> str:
    entries = {one.entry for one in served} - {None}
    all_sizes = sum(one.last - one.first + 1 for one in served)
    sizes = sum(one.last - one.first + 1 for one in served if one.entry is not None)
    return (
        f"then {len(entries)} {'entry serves' if len(entries) == 1 else 'entries serve'} {sizes} of {all_sizes} sizes"
    )
