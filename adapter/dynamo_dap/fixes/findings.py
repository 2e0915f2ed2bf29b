"""Finds what a record reports about lines: graph breaks, recompiles, slow compiles, skipped functions, untraced lines.

Line numbers are those of the recorded files. It has no side effects.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import PurePath

import msgspec

from dynamo_dap.fixes.document import real_path
from dynamo_dap.records.advice.changes import causes_of, changes_of
from dynamo_dap.records.advice.changing_lines import lines_that_change
from dynamo_dap.records.advice.cuda_graph_items import cuda_graph_items
from dynamo_dap.records.advice.raced_compiles import accepts_now, failed_guard_text, failure_text, raced_items
from dynamo_dap.records.events import Record
from dynamo_dap.records.model import (
    TRACING,
    Compile,
    CompiledFunction,
    GraphBreak,
    GuardFailure,
    Place,
    StackLine,
    shares_of,
)

NOT_TRIED = " (not tried)"
"""Follows the first word of each hint and advice, before the colon."""


class Kind(Enum):
    """The kinds of findings; the value is the diagnostic's code if torch has no id."""

    GRAPH_BREAK = "graph-break"
    RECOMPILE = "recompile"
    LIMIT = "recompile-limit"
    SKIPPED = "skipped"
    FAILED = "compile-failed"
    SPECIALIZED = "specialized"
    CUDA_GRAPH = "cuda-graph"
    SLOW = "slow-compile"
    NEVER_TRACED = "never-traced"


@dataclass(frozen=True)
class Related:
    """Additional information about a finding."""

    place: Place
    text: str


@dataclass(frozen=True)
class Changed:
    """A guarded value that changed between calls, and the lines that may set it."""

    name: str
    places: tuple[Place, ...]


@dataclass
class Finding:
    """A finding at a user's line."""

    kind: Kind
    place: Place
    message: str
    last_line: int
    function: CompiledFunction
    is_about_function: bool = False
    """Whether ``place`` is the beginning of a function."""
    related: list[Related] = field(default_factory=list)
    code: str | None = None
    link: str | None = None
    compiles: list[Compile] = field(default_factory=list)
    graph_break: GraphBreak | None = None
    failure: GuardFailure | None = None
    changed: Changed | None = None
    is_of_library: bool = False
    """Whether it happened in a library: ``place`` is the user's line that called it."""
    stack: list[StackLine] = field(default_factory=list)
    """The longest of the user's stacks inside the compiled function, outermost first."""

    @property
    def text(self) -> str:
        """The message, with its compiles."""
        names = list(dict.fromkeys(f"{one.name} [{one.id}]" for one in self.compiles))
        shown = ", ".join(names[:_NAMES]) + (f" and {len(names) - _NAMES} more" if len(names) > _NAMES else "")
        return f"{self.message}\nIn {shown}" if names else self.message


_NAMES = 5
_SLOW_SECONDS = 10.0
"""A compile that takes at least as long is a finding."""
_STAGES_TOLERANCE = 1.05


def findings_of(record: Record, *, is_of_several: bool = False) -> dict[str, list[Finding]]:
    """Return the findings, by the real path of the file.

    ``is_of_several``: other processes ran the same code, and may have traced what this one has not.
    """
    found: dict[tuple[object, ...], Finding] = {}
    # Many recompiles have the same subject.
    changes = functools.cache(lambda subject: Changed(subject, tuple(lines_that_change(subject, record.sources))))
    for function, compiled in record.compiles():
        for finding in _of_compile(record, function, compiled, changes):
            _merge(found, finding)
    by_path: dict[str, list[Finding]] = {}
    never_traced = [] if is_of_several else _never_traced(record)
    for finding in [*found.values(), *_slow(record), *_skipped(record), *never_traced]:
        by_path.setdefault(real_path(finding.place.path), []).append(finding)
    return by_path


def _merge(found: dict[tuple[object, ...], Finding], finding: Finding) -> None:
    """Merge a finding into an equal one: every recompile, and every function that inlines the line, repeats it."""
    key = finding.kind, finding.place.path, finding.place.line, finding.message.split("\n", 1)[0]
    known = found.setdefault(key, finding)
    if known is finding:
        return
    known.compiles += finding.compiles
    if len(finding.stack) > len(known.stack):
        known.stack, known.related = finding.stack, finding.related


def _of_compile(
    record: Record, function: CompiledFunction, compiled: Compile, changes: Callable[[str], Changed]
) -> Iterator[Finding]:
    """Yield a compile's findings; repeat those in a library at the user's line that called it."""
    for finding in _where_it_is(record, function, compiled, changes):
        yield finding
        yield from _where_called(record, function, compiled, finding)


def _where_called(record: Record, function: CompiledFunction, compiled: Compile, finding: Finding) -> Iterator[Finding]:
    """Yield a library's finding at the user's line that called it, if it is known."""
    if finding.place.path in record.libraries:
        caller = compiled.caller or next((one.caller for one in function.compiles if one.caller is not None), None)
        if caller is not None:
            yield _at_caller(finding, caller)


def _at_caller(finding: Finding, caller: Place) -> Finding:
    """Return a library's finding at the user's calling line, with the calls in between."""
    first, *others = finding.message.split("\n")
    name = finding.function.name
    where = f"{PurePath(finding.place.path).name}:{finding.place.line}"
    way = [Related(one.place, f"through {one.function}") for one in finding.stack if one.place != finding.place]
    return replace(
        finding,
        place=caller,
        last_line=caller.line,
        message="\n".join([f"{first} (in {name}, called here, at {where})", *others]),
        is_about_function=False,
        is_of_library=True,
        related=[*way, Related(finding.place, first), *finding.related],
        compiles=list(finding.compiles),
    )


def _where_it_is(
    record: Record, function: CompiledFunction, compiled: Compile, changes: Callable[[str], Changed]
) -> Iterator[Finding]:
    for graph_break in compiled.breaks:
        places = dict.fromkeys([_users_place(record, graph_break), graph_break.place])
        yield from (_broken(function, compiled, graph_break, place) for place in places if place is not None)
    if compiled.limit is not None:
        yield _limited(function, compiled, compiled.limit)
    else:
        for failure in compiled.failures:
            yield _recompiled(function, compiled, failure, changes)
    for size in compiled.specializations:
        if size.place is not None:
            message = f"Specialized: {size.expression}"
            yield Finding(Kind.SPECIALIZED, size.place, message, size.place.line, function, compiles=[compiled])
    for item in cuda_graph_items([CompiledFunction(function.name, function.place, [compiled])]):
        if item.place is not None:
            related = [Related(place, "called here") for place in item.callers]
            related += [Related(item.place, f"Advice{NOT_TRIED}: {advice}") for advice in item.advice]
            is_about_function = item.place == function.place
            yield Finding(
                Kind.CUDA_GRAPH,
                item.place,
                item.title,
                item.place.line,
                function,
                is_about_function,
                related,
                link=item.link,
                compiles=[compiled],
            )
    place = compiled.problem_place or function.place
    if compiled.state == "failed" and not compiled.breaks and place is not None:
        message = f"Compile failed: {compiled.problem or 'torch reports no reason'}"
        is_about_function = compiled.problem_place is None
        yield Finding(Kind.FAILED, place, message, place.line, function, is_about_function, compiles=[compiled])


def _users_place(record: Record, graph_break: GraphBreak) -> Place | None:
    """Return the innermost line of the user's own code: the break may be in a library that Dynamo traces."""
    users = record.sources.keys() - record.libraries
    places = [line.place for line in graph_break.stack if line.place.path in users]
    return places[-1] if places else graph_break.place


def _broken(function: CompiledFunction, compiled: Compile, graph_break: GraphBreak, place: Place) -> Finding:
    lines = [f"Graph break: {graph_break.reason}"]
    lines += [text for text in (graph_break.explanation,) if text]
    lines += [f"Then: {graph_break.effect}"] if graph_break.effect else []
    stack = graph_break.stack
    inside = next((number for number, one in enumerate(stack) if one.place == place), len(stack) - 1)
    callers = [Related(one.place, f"called here, in {one.function}") for one in stack[inside - 1 :: -1] if inside > 0]
    if graph_break.place is not None and graph_break.place != place:
        lines.append(f"At {graph_break.place.path}:{graph_break.place.line}, called from here")
    return Finding(
        Kind.GRAPH_BREAK,
        place,
        "\n".join(lines),
        place.line,
        function,
        related=[*(Related(place, f"Hint{NOT_TRIED}: {hint}") for hint in graph_break.hints), *callers],
        code=graph_break.id,
        link=graph_break.link,
        compiles=[compiled],
        graph_break=graph_break,
        stack=list(graph_break.stack),
    )


def _recompiled(
    function: CompiledFunction, compiled: Compile, failure: GuardFailure, changes: Callable[[str], Changed]
) -> Finding:
    at = failure.place or function.place or Place("", 1)
    values = f" (then {failure.value_then}, now {failure.value_now})" if failure.value_now is not None else ""
    alone = CompiledFunction(function.name, function.place, [msgspec.structs.replace(compiled, failures=[failure])])
    # A value that a later compile accepts did not cause this one: advice about it would not help.
    items = list(raced_items([alone]))
    items += changes_of(alone) if failure in causes_of(compiled, function) else []
    advice = dict.fromkeys(text for item in items for text in item.advice)
    changed = next((one for item in items if (one := changes(item.subject)).places), None)
    related = [Related(compiled.caller, "this call was compiled again")] if compiled.caller else []
    related += [] if changed is None else [Related(place, f"may set {changed.name}") for place in changed.places]
    return Finding(
        Kind.RECOMPILE,
        at,
        "\n".join(
            [
                f"Recompiled: {failure_text(failure)}",
                *([] if accepts_now(failure.expression) else [f"A guard of [{failure.compile_id}] failed{values}"]),
                *(f"Advice{NOT_TRIED}: {text}" for text in advice),
            ]
        ),
        at.line,
        function,
        is_about_function=failure.place is None,
        related=related,
        compiles=[compiled],
        failure=failure,
        changed=changed,
    )


def _limited(function: CompiledFunction, compiled: Compile, limit: str) -> Finding:
    at = function.place or Place("", 1)
    reasons = [Related(failure.place or at, failed_guard_text(failure)) for failure in compiled.failures]
    then = "the call fails, because of fullgraph=True" if compiled.state == "failed" else "runs eagerly from here on"
    message = f"Recompile limit: {function.name} was compiled too often ({limit}) and {then}"
    return Finding(
        Kind.LIMIT, at, message, at.line, function, is_about_function=True, related=reasons, compiles=[compiled]
    )


def _slow(record: Record) -> Iterator[Finding]:
    """Yield a finding for each function with slow compiles. It names the slowest one's stages."""
    for function in record.functions:
        slow = [one for one in function.compiles if (one.seconds or 0.0) >= _SLOW_SECONDS]
        if function.place is None or not slow:
            continue
        slowest = max(slow, key=lambda one: one.seconds or 0.0)
        seconds = slowest.seconds or 0.0
        shares = shares_of(slowest)
        # The stages include a debugger's stops, which the duration leaves out.
        known = shares if sum(shares.values()) <= seconds * _STAGES_TOLERANCE else {}
        lines = [f"Slow compile: {function.name} took {seconds:.1f} s"]
        lines += [", ".join(f"{stage} {share:.1f} s" for stage, share in known.items())] if known else []
        lines.append("Find out what takes the time: dynamo-dap profile")
        at = function.place
        found = Finding(Kind.SLOW, at, "\n".join(lines), at.line, function, is_about_function=True, compiles=slow)
        yield found
        yield from _where_called(record, function, slowest, found)


def _skipped(record: Record) -> Iterator[Finding]:
    """Yield skipped functions, unless they were compiled or another finding reports why not."""
    known = {(one.name, one.place): one for one in record.functions}
    for skipped in record.skipped:
        function = known.get((skipped.name, skipped.place)) or CompiledFunction(skipped.name, skipped.place)
        is_explained = any(one.state != "skipped" or one.breaks or one.limit for one in function.compiles)
        if skipped.place is not None and not is_explained:
            reason = skipped.reason.split("\n", 1)[0]
            message = f"Skipped: {skipped.name} runs eagerly: {reason}"
            yield Finding(Kind.SKIPPED, skipped.place, message, skipped.place.line, function, is_about_function=True)


def _never_traced(record: Record) -> Iterator[Finding]:
    """Yield untraced lines of functions that were compiled at least once; other findings explain other functions."""
    lines: dict[tuple[str, Place], set[int]] = {}
    traced: dict[tuple[str, Place], set[int]] = {}
    functions: dict[tuple[str, Place], CompiledFunction] = {}
    for function, compiled in record.compiles():
        for one in compiled.traced:
            key = one.name, one.place
            traced.setdefault(key, set()).update(one.traced)
            if compiled.state == "compiled":
                functions.setdefault(key, function)
                lines.setdefault(key, set()).update(one.lines)
    for (name, place), all_lines in lines.items():
        if _may_continue(record, functions[name, place]):
            continue
        # The function's first line is its ``def`` or decorator, which Dynamo does not trace.
        for first, last in _runs(sorted(all_lines - {place.line}), traced[name, place]):
            message = f"Dynamo never traced this line of {name}"
            yield Finding(Kind.NEVER_TRACED, Place(place.path, first), message, last, functions[name, place])


def _may_continue(record: Record, function: CompiledFunction) -> bool:
    """Return whether more lines of ``function`` may be traced soon: in the present compile, or in a resume function."""
    is_running = record.ended is None
    return is_running and (
        any(compiled.state == TRACING for compiled in function.compiles) or bool(function.compiles[-1].resumes)
    )


def _runs(lines: Iterable[int], leaving_out: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last line of each run of consecutive lines, without any in ``leaving_out``."""
    run: list[int] = []
    for line in lines:
        if line not in leaving_out:
            run.append(line)
        elif run:
            yield run[0], run[-1]
            run = []
    if run:
        yield run[0], run[-1]
