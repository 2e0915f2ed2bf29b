"""Compares two runs. It reads the generated code of runs that this command made, and has no side effects."""

from __future__ import annotations

import difflib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from math import inf
from operator import itemgetter
from pathlib import Path

from dynamo_dap.diff.model import Difference, JsonDiff, KeyPart, Numbers, Side
from dynamo_dap.diff.normal import (
    code_lines,
    graph_lines,
    guard_of_any_torch,
    line_identity,
    normal_guard,
    normal_name,
    normal_output,
    normal_path,
    normal_text,
)
from dynamo_dap.diff.sides import CannotCompare, Run
from dynamo_dap.diff.values import differing_values
from dynamo_dap.protocol.texts import counted
from dynamo_dap.records.advice.raced_compiles import failure_text, is_raced
from dynamo_dap.records.events import Record
from dynamo_dap.records.model import Compile, CompiledFunction, Graph, Guard, counts_of
from dynamo_dap.records.texts import is_readable_source

_CONTEXT = 3
_MOST_LINES = 200
"""The most lines of one diff that are kept."""
_LISTED = 20
_DEVICE = re.compile(r"(?<=cuda:)\d+|(?<=device=)\d+|(?<=index=)\d+")
"""The number of a device: it differs between ranks."""


def compare_runs(one: Run, other: Run) -> JsonDiff:
    """Return the differences between two runs, the earliest first.

    Raises:
        CannotCompare: neither run compiled anything.
    """
    if not any(list(record.compiles()) for run in (one, other) for record in run.records):
        raise CannotCompare("neither run compiled anything")
    comparison = _Comparison(one, other)
    differences = list(comparison.differences())
    sides = side_of_run(one), side_of_run(other)
    settings = differing_settings(one, other)
    return JsonDiff(bool(differences), *sides, differences, settings, list(comparison.not_compared))


def differing_settings(one: Run, other: Run) -> list[KeyPart]:
    """Return the settings of torch that both versions have and that differ, without private ones and paths."""
    of_a, of_b = (run.records[0].torch_settings if run.records else {} for run in (one, other))
    return [
        KeyPart(name, value, of_b[name])
        for name, value in of_a.items()
        if of_b.get(name, value) != value
        and not name.removeprefix("torch._").rpartition(".")[2].startswith("_")
        and not any(text.startswith('"/') for text in (value, of_b[name]))
    ]


def side_of_run(run: Run) -> Side:
    """Count what a run compiled."""
    compiles = [compiled for record in run.records for _, compiled in record.compiles()]
    counts = counts_of(compiles)
    phases: dict[str, float] = defaultdict(float)
    for compiled in compiles:
        for name, seconds in compiled.phases.items():
            phases[name] += seconds
    numbers = Numbers(
        counts.compiles,
        counts.graphs,
        counts.operations,
        counts.breaks,
        counts.recompiles,
        counts.guards,
        round(counts.seconds, 3),
        {name: round(seconds, 3) for name, seconds in phases.items()},
    )
    started = run.records[0].started if run.records else None
    return Side(run.given, numbers, started.torch if started is not None else None, run.status)


class _Comparison:
    """One comparison. Runs on one thread."""

    def __init__(self, one: Run, other: Run) -> None:
        self._runs = one, other
        self.not_compared: dict[str, None] = {}
        """Texts that say what is not compared and why, without repetition."""

    def differences(self) -> Iterator[Difference]:
        """Yield differences: processes and compiles in the order of A, then the programs' output."""
        one, other = self._runs
        for record_a, record_b in zip_longest(one.records, other.records):
            # A process that never compiled has no record.
            yield from _Records(record_a or Record(), record_b or Record(), self).differences()
        yield from self._of_values()
        yield from self._of_programs()
        for name, run in zip("AB", self._runs, strict=True):
            if any(record.is_truncated for record in run.records):
                self.leave_out(f"nodes and guards of later compiles: the record of {name} has none, it was too large")
            if any(record.unreadable_lines for record in run.records):
                self.leave_out(f"lines of {name} that cannot be read")

    def leave_out(self, text: str) -> None:
        """Remember what is not compared."""
        self.not_compared[text] = None

    @property
    def may_read_code(self) -> bool:
        """Return whether this command ran both sides. Otherwise no code file that a record names is read."""
        return all(run.is_own for run in self._runs)

    def _of_values(self) -> Iterator[Difference]:
        one, other = self._runs
        if one.calls is not None and other.calls is not None:
            yield from differing_values(one.calls, other.calls, self.leave_out)

    def _of_programs(self) -> Iterator[Difference]:
        one, other = self._runs
        if one.output is None or other.output is None:
            self.leave_out("values and output: a record has neither")
            return
        if one.status != other.status:
            yield Difference("exit status", f"the program's exit status is {one.status} in A and {other.status} in B")
        if one.output != other.output:
            self.leave_out("times, addresses and temporary paths that the program prints")
        printed = zip_longest(map(normal_output, one.output), map(normal_output, other.output))
        for number, (line_a, line_b) in enumerate(printed):
            if line_a != line_b:
                diff = unified(one.output[number : number + 1], other.output[number : number + 1])
                yield Difference("output", f"line {number + 1} that the program prints differs", diff=diff)
                break
        if one.calls is None or other.calls is None:
            self.leave_out("values that the program does not print: --values")


class _Records:
    """The records of one process in each run."""

    def __init__(self, one: Record, other: Record, comparison: _Comparison) -> None:
        self._a, self._b = one, other
        self._comparison = comparison
        started = [record.started for record in (one, other) if record.started is not None]
        self._is_one_torch = len({each.torch for each in started}) < 2
        self._are_alike = len({each.log is not None for each in started}) < 2
        # A trace log may lack the callers of its only compile, and so the program.
        self._know_programs = len(started) == 2 and all(each.program for each in started)
        self._are_ranks = len({each.rank.number for each in started if each.rank is not None}) > 1
        if self._are_ranks:
            comparison.leave_out("the numbers of devices: each rank has its own")
        if not self._are_alike:
            comparison.leave_out("guards and skipped functions: a record and a trace log word them differently")

    def differences(self) -> Iterator[Difference]:
        # A function that another one calls is compiled before the rest of its caller.
        yield from (difference for _, difference in sorted(self._of_functions(), key=itemgetter(0)))
        if self._are_alike:
            yield from self._skipped()

    def _of_functions(self) -> Iterator[tuple[float, Difference]]:
        """Yield each difference with the start of its compile in A; if only B has it, of the compile before."""
        functions_a, functions_b = self._by_name(self._a), self._by_name(self._b)
        for key, function in functions_a.items():
            match = functions_b.get(key)
            if match is None:
                text = f"only A compiles {function.name}"
                yield _time(function.compiles, 0.0), Difference("function", text, function.name, place=function.place)
            else:
                yield from self._of_function(function, match)
        for key, function in functions_b.items():
            if key not in functions_a:
                text = f"only B compiles {function.name}"
                yield inf, Difference("function", text, function.name, place_in_b=function.place)

    def _by_name(self, record: Record) -> dict[tuple[str, str, int], CompiledFunction]:
        """Return the functions by name, file and their number among those that share both."""
        seen: Counter[tuple[str, str]] = Counter()
        functions = {}
        for function in record.functions:
            key = function.name, "" if function.place is None else self._path(record, function.place.path)
            functions[key[0], key[1], seen[key]] = function
            seen[key] += 1
        return functions

    def _path(self, record: Record, path: str) -> str:
        return normal_path(record, path, is_program_known=self._know_programs)

    def _skipped(self) -> Iterator[Difference]:
        first, second = (
            {(frame.name, normal_text(frame.reason)): frame for frame in record.skipped}
            for record in (self._a, self._b)
        )
        for key, frame in first.items():
            if key not in second:
                yield Difference("skip", f"only A skips {frame.name}: {frame.reason}", frame.name, place=frame.place)
        for key, frame in second.items():
            if key not in first:
                text = f"only B skips {frame.name}: {frame.reason}"
                yield Difference("skip", text, frame.name, place_in_b=frame.place)

    def _of_function(self, one: CompiledFunction, other: CompiledFunction) -> Iterator[tuple[float, Difference]]:
        time = _time(one.compiles, 0.0)
        parts_a, parts_b = _parts(one), _parts(other)
        if any(map(is_raced, [*one.compiles, *other.compiles])):
            self._comparison.leave_out(
                "compiles of calls that an earlier compile accepts: with threads, their number varies from run to run"
            )
        for key in [*parts_a, *(key for key in parts_b if key not in parts_a)]:
            for compiled, match in zip_longest(parts_a.get(key, []), parts_b.get(key, [])):
                time = _time([compiled] if compiled is not None else [], time)
                if compiled is not None and match is not None:
                    yield from ((time, each) for each in self._of_compile(one, other, compiled, match))
                else:
                    yield time, self._alone(one, compiled, match)

    def _alone(self, function: CompiledFunction, one: Compile | None, other: Compile | None) -> Difference:
        compiled = one or other
        assert compiled is not None
        why = compiled.recompiled or [failure_text(failure) for failure in compiled.failures]
        reason = f": {why[0]}" if why else ""
        return Difference(
            "recompile" if why else "function",
            f"only {'A' if one is not None else 'B'} compiles {compiled.name} {'again' if why else 'here'}{reason}",
            function.name,
            place=one.place if one is not None else None,
            place_in_b=other.place if other is not None else None,
        )

    def _of_compile(
        self, function: CompiledFunction, there: CompiledFunction, one: Compile, other: Compile
    ) -> Iterator[Difference]:
        ids = [one.id, other.id]
        if (one.state, one.backend) != (other.state, other.backend):
            text = f"{one.name} is {_state_text(one)} in A and {_state_text(other)} in B"
            places = (one.problem_place or one.place, other.problem_place or other.place)
            yield Difference("function", text, function.name, ids, *places)
        elif one.problem is not None and normal_text(one.problem) != normal_text(other.problem or ""):
            text, diff = f"{one.name} is {one.state} for another reason", unified([one.problem], [other.problem or ""])
            yield Difference("function", text, function.name, ids, one.problem_place, other.problem_place, diff)
        # A break ends the trace, so guards and graphs differ after it: the break is the first difference.
        yield from self._breaks(function, one, other)
        if one.is_shortened or other.is_shortened:
            self._comparison.leave_out("nodes and guards of compiles that a record keeps shortened")
        elif self._are_alike:
            yield from self._guards(function, one, other)
        for graph, match in zip_longest(one.graphs, other.graphs):
            yield from self._graphs(function, one, other, graph, match)
        yield from self._code(function, one, other)
        yield from self._reasons(function, one, other)

    def _guards(self, function: CompiledFunction, one: Compile, other: Compile) -> Iterator[Difference]:
        if any(guard.expression.endswith("\u2026") for guard in [*one.guards, *other.guards]):
            self._comparison.leave_out("the ends of guards that the record cuts off (global state)")
        if any(len(compiled.guards) < compiled.guard_count for compiled in (one, other)):
            self._comparison.leave_out("guards beyond those that a record keeps of a compile")
        of_a, of_b = (self._comparable_texts(compiled.guards) for compiled in (one, other))
        left_a, left_b = Counter(of_a.values()), Counter(of_b.values())
        only_a = _guards_with(one.guards, of_a, left_a - left_b)
        only_b = _guards_with(other.guards, of_b, left_b - left_a)
        if not only_a and not only_b:
            return
        diff = [*(f"-{_worded(guard)}" for guard in only_a), *(f"+{_worded(guard)}" for guard in only_b)]
        yield Difference(
            "guard",
            f"guards of {one.name}: {len(only_a)} only in A, {len(only_b)} only in B",
            function.name,
            [one.id, other.id],
            next((guard.place for guard in only_a if guard.place is not None), one.place),
            next((guard.place for guard in only_b if guard.place is not None), other.place),
            diff[:_MOST_LINES],
        )

    def _comparable_texts(self, guards: Sequence[Guard]) -> dict[int, str]:
        """Return the comparable part of each guard, by the guard's number."""
        if self._is_one_torch:
            return {number: self._of_any_rank(normal_guard(guard)) for number, guard in enumerate(guards)}
        self._comparison.leave_out(
            "guards on torch's global state and on its own marks of tensors (_dynamo_...), and the types of objects in "
            "guards: two torch versions word them differently"
        )
        worded = enumerate(map(guard_of_any_torch, guards))
        return {number: text for number, text in worded if text is not None}

    def _of_any_rank(self, text: str) -> str:
        return _DEVICE.sub("…", text) if self._are_ranks else text

    def _graphs(
        self, function: CompiledFunction, one: Compile, other: Compile, graph: Graph | None, match: Graph | None
    ) -> Iterator[Difference]:
        ids = [one.id, other.id]
        if graph is None or match is None:
            which, only = ("B", match) if graph is None else ("A", graph)
            operations = only.operation_count if only is not None else 0
            text = f"only {which} has this graph of {one.name}, of {counted(operations, 'operation')}"
            yield Difference("graph", text, function.name, ids, one.place, other.place)
            return
        lines, lines_there = graph_lines(graph), graph_lines(match)
        texts, texts_there = ([self._of_any_rank(text) for text, _ in each] for each in (lines, lines_there))
        if len(lines) < graph.node_count or len(lines_there) < match.node_count:
            self._comparison.leave_out("nodes beyond those that a record keeps of a large graph")
            if graph.node_count != match.node_count and texts == texts_there:
                text = f"the graph of {one.name} has {graph.node_count} nodes in A and {match.node_count} in B"
                yield Difference("graph", text, function.name, ids, one.place, other.place)
                return
        first = next((at for at, (a, b) in enumerate(zip_longest(texts, texts_there)) if a != b), None)
        if first is None:
            return
        yield Difference(
            "graph",
            f"the graph of {one.name} differs",
            function.name,
            ids,
            (lines[first][1].place if first < len(lines) else None) or one.place,
            (lines_there[first][1].place if first < len(lines_there) else None) or other.place,
            unified(texts, texts_there),
        )

    def _code(self, function: CompiledFunction, one: Compile, other: Compile) -> Iterator[Difference]:
        ids = [one.id, other.id]
        # Inductor names a file by the digest of its content.
        files, files_there = ([Path(name).name for name in compiled.artifacts] for compiled in (one, other))
        if (one.kernels, files) == (other.kernels, files_there):
            return
        if (
            one.caches != other.caches
            and _begins_alike(one.kernels, other.kernels)
            and _begins_alike(files, files_there)
        ):
            # A cached entry includes the backward graph, which torch otherwise compiles in the backward pass.
            self._comparison.leave_out("the code of backward passes, where the compile was a cache hit in one run only")
            return
        if one.kernels != other.kernels:
            text = f"the kernels of {one.name} differ"
            diff = unified(one.kernels, other.kernels)
            yield Difference("kernel", text, function.name, ids, one.place, other.place, diff)
            return
        texts = [_code_of(compiled) if self._comparison.may_read_code else None for compiled in (one, other)]
        if texts[0] is None or texts[1] is None:
            self._comparison.leave_out("generated code: the records have the names of its files only")
        elif texts[0] != texts[1]:
            text = f"the code that the backend generated for {one.name} differs"
            yield Difference("kernel", text, function.name, ids, one.place, other.place, unified(texts[0], texts[1]))

    def _breaks(self, function: CompiledFunction, one: Compile, other: Compile) -> Iterator[Difference]:
        def identities(record: Record, compiled: Compile) -> list[tuple[object, ...]]:
            return [
                (
                    found.reason,
                    line_identity(record, found.place),
                    None if found.place is None else self._path(record, found.place.path),
                )
                for found in compiled.breaks
            ]

        there = zip_longest(
            one.breaks, other.breaks, identities(self._a, one), identities(self._b, other), fillvalue=None
        )
        for found, match, identity, identity_there in there:
            if _is_same_break(identity, identity_there):
                continue
            worded = [f"{'-+'[at]}{each.reason}" for at, each in enumerate((found, match)) if each is not None]
            only = "only in A" if match is None else "only in B" if found is None else "differ"
            yield Difference(
                "break",
                f"graph breaks of {one.name}: {only}",
                function.name,
                [one.id, other.id],
                found.place if found is not None else None,
                match.place if match is not None else None,
                worded,
            )
            return

    def _reasons(self, function: CompiledFunction, one: Compile, other: Compile) -> Iterator[Difference]:
        of_a, of_b = ([failure_text(failure) for failure in compiled.failures] for compiled in (one, other))
        if self._are_alike and list(map(normal_text, of_a)) != list(map(normal_text, of_b)):
            text = f"{one.name} is compiled again for other reasons"
            diff = unified(of_a, of_b)
            yield Difference("recompile", text, function.name, [one.id, other.id], one.place, other.place, diff)


def _is_same_break(one: tuple[object, ...] | None, other: tuple[object, ...] | None) -> bool:
    if one is None or other is None:
        return one is other
    # Lines without recorded text (from a trace log without sources) cannot be compared.
    is_known = one[1] is not None and other[1] is not None
    return one[0] == other[0] and one[2] == other[2] and (not is_known or one[1] == other[1])


def _parts(function: CompiledFunction) -> dict[str, list[Compile]]:
    """Return the compiles of a function and its resume functions by name, without needless ones by racing threads."""
    parts: dict[str, list[Compile]] = {}
    for compiled in function.compiles:
        if is_raced(compiled):
            continue
        parts.setdefault(normal_name(compiled), []).append(compiled)
    return parts


def _state_text(compiled: Compile) -> str:
    return f"{compiled.state} (backend {compiled.backend})" if compiled.backend else compiled.state


def _begins_alike(one: Sequence[str], other: Sequence[str]) -> bool:
    return all(name == match for name, match in zip(one, other, strict=False))


def _guards_with(guards: Sequence[Guard], texts: Mapping[int, str], wanted: Counter[str]) -> list[Guard]:
    left, found = wanted.copy(), []
    for number, text in texts.items():
        if left[text] > 0:
            left[text] -= 1
            found.append(guards[number])
    return found


def _worded(guard: Guard) -> str:
    return guard.text or normal_guard(guard)


def _code_of(compiled: Compile) -> list[str] | None:
    lines: list[str] = []
    for name in compiled.artifacts:
        if not is_readable_source(name):
            return None
        try:
            lines += code_lines(Path(name).read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return None
    return lines


def _time(compiles: Sequence[Compile], unknown: float) -> float:
    """Return the first known start of the compiles, since a log that was cut off lacks some."""
    return next((compiled.began for compiled in compiles if compiled.began), unknown)


def unified(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """Return the lines that differ, ``-`` for A and ``+`` for B, with some context."""
    lines = list(difflib.unified_diff(one, other, lineterm="", n=_CONTEXT))[2:]
    shown = [line for line in lines if not line.startswith("@@")] if len(lines) < _LISTED else lines
    return shown[:_MOST_LINES]
