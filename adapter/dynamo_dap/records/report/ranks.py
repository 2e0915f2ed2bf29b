"""Compares the compiles of a distributed job's ranks, and finds where a rank diverges.

Ranks that compile different graphs, or different collectives in them, are the usual cause of a hanging job. The module
reads record files, and has no side effects. Runs in any process.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from msgspec import Struct

from dynamo_dap.records.advice.raced_compiles import failure_text
from dynamo_dap.records.events import Record, Started
from dynamo_dap.records.file import UnreadableRecord, program_of, read_record
from dynamo_dap.records.folders import SUFFIX
from dynamo_dap.records.input_names import user_name
from dynamo_dap.records.model import Compile, Place, Sharding

_COLLECTIVE = re.compile(r"(?:_c10d_functional|_dtensor|c10d)\w*[.:]+(\w+)")
_NO_COLLECTIVES = frozenset({"wait_tensor"})
_OF_THE_PROCESS = re.compile(r"0x[0-9a-f]+|\b\d{7,}\b|(?<=cuda:)\d+")
"""Addresses and devices, which differ between processes."""


class Collective(Struct, rename="camel", omit_defaults=True, frozen=True):
    """A collective operation in a graph."""

    name: str
    value: str | None = None
    """Its result: ``f32[4]``."""
    place: Place | None = None


class RankCompile(Struct, rename="camel", omit_defaults=True, frozen=True):
    """One compile in one rank."""

    rank: int
    id: str
    state: str
    graphs: int
    operations: int
    breaks: int
    guards: int
    seconds: float | None
    recompiled: str | None = None
    """Why it was compiled again."""
    collectives: list[Collective] = []
    """The collectives of its graphs, in order."""
    sharding: Sharding | None = None
    """FSDP's settings for its module."""
    breaks_at_fsdp: int = 0
    """The number of breaks at FSDP's hooks."""


class Divergence(Struct, rename="camel", omit_defaults=True, frozen=True):
    """The place where a rank diverges from most others."""

    rank: int
    text: str
    place: Place | None = None
    guards_only: bool = False
    """Whether only the guards differ, not the code."""


class ComparedCompile(Struct, rename="camel", omit_defaults=True, frozen=True):
    """One compile in all ranks."""

    function: str
    number: int
    """The number of the function's compile, from 1."""
    ranks: list[RankCompile]
    place: Place | None = None
    partings: list[Divergence] = []


class JsonRanks(Struct, rename="camel", omit_defaults=True, frozen=True):
    """The output of ``report --ranks --json``."""

    ranks: list[int]
    """Ranks with a record."""
    missing: list[int]
    """Ranks without a record: they compiled nothing, or were not recorded."""
    compiles: list[ComparedCompile]
    """The compiles, in each rank's order."""


# -- the records of a job ----------------------------------------------------------------------------------------------


def records_of_ranks(file: Path) -> dict[int, Record]:
    """Return the newest record of each rank of the job that ``file`` belongs to.

    Raises:
        UnreadableRecord: the file is not the record of a rank.
    """
    return {number: read_record(path) for number, path in sorted(files_of_ranks(file).items())}


def files_of_ranks(file: Path) -> dict[int, Path]:
    """Return the newest record file of each rank of the job that ``file`` belongs to.

    Raises:
        UnreadableRecord: the file is not the record of a rank.
    """
    one = program_of(file)
    if one.rank is None:
        raise UnreadableRecord(f"{file} is not the record of a rank of a distributed job")
    files: dict[int, Path] = {}
    for path in sorted(file.parent.glob(f"*{SUFFIX}")):
        rank = _rank_in(path, one)
        if rank is not None:
            files[rank] = path
    files[one.rank.number] = file
    return files


def _rank_in(path: Path, other: Started) -> int | None:
    try:
        started = program_of(path)
    except UnreadableRecord:
        return None
    return started.rank.number if started.rank is not None and started.job == other.job else None


# -- comparing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Step:
    """A step of a compile, without addresses and devices, so that equal steps of all ranks compare equal."""

    text: str
    line: tuple[str, int] | None = None

    @property
    def place(self) -> Place | None:
        return None if self.line is None else Place(*self.line)


_Key = tuple[str, Place | None, str, int]


def compare_ranks(records: Mapping[int, Record]) -> JsonRanks:
    """Return the compiles of the ranks, side by side."""
    by_key: dict[_Key, dict[int, Compile]] = {}
    order: list[_Key] = []
    for rank, record in sorted(records.items()):
        position = 0
        for key, compiled in sorted(_keyed(record), key=lambda one: one[1].began or 0.0):
            by_key.setdefault(key, {})[rank] = compiled
            if key not in order:
                order.insert(position, key)
            position = order.index(key) + 1
    worlds = {record.started.rank.of for record in records.values() if record.started and record.started.rank}
    world = max((of for of in worlds if of is not None), default=0)
    compiles = [_compared(key, by_key[key], sorted(records)) for key in order]
    return JsonRanks(sorted(records), [number for number in range(world) if number not in records], compiles)


def _keyed(record: Record) -> Iterator[tuple[_Key, Compile]]:
    counts: Counter[tuple[str, Place | None, str]] = Counter()
    for function, compiled in record.compiles():
        name = (function.name, function.place, compiled.name)
        counts[name] += 1
        yield (*name, counts[name]), compiled


def _compared(key: _Key, compiles: dict[int, Compile], ranks: list[int]) -> ComparedCompile:
    _, place, name, number = key
    steps = {rank: tuple(_steps(compiled)) for rank, compiled in sorted(compiles.items())}
    most, _ = Counter(steps.values()).most_common(1)[0]
    model = next(rank for rank in steps if steps[rank] == most)
    partings = [_divergence(rank, steps[rank], model, most) for rank in steps if steps[rank] != most]
    partings += [
        parting
        for rank in steps
        if steps[rank] == most and (parting := _other_guards(rank, compiles[rank], model, compiles[model]))
    ]
    absent = [rank for rank in ranks if rank not in compiles]
    if absent and len(compiles) <= len(absent):
        others = "alone" if len(compiles) == 1 else f"and not {_numbers(absent)}"
        partings += [_alone(rank, compiled, others) for rank, compiled in sorted(compiles.items())]
    else:
        partings += [Divergence(rank, "has not compiled it", place) for rank in absent]
    made = [_of_rank(rank, compiled) for rank, compiled in sorted(compiles.items())]
    return ComparedCompile(name, number, made, place, sorted(partings, key=lambda one: (one.guards_only, one.rank)))


def _numbers(ranks: list[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}"


def _steps(compiled: Compile) -> Iterator[_Step]:
    for graph in compiled.graphs:
        for node in graph.nodes:
            if node.operation == "placeholder":
                # Graphs have torch's name for a reassigned variable; torch's name of an input leads to the user's name.
                text = f"takes {node.user_name or user_name(node.name) or node.name}: {node.value}"
            else:
                text = f"{node.expression or node.target}" + (f" → {node.value}" if node.value else "")
            yield _step(text, node.place)
        yield _step(f"a graph of {graph.operation_count} operations", None)
    for found in compiled.breaks:
        yield _step(f"graph break: {found.reason}", found.place)
    if compiled.problem:
        yield _step(compiled.problem.partition("\n")[0], compiled.problem_place)
    yield _step(f"is {compiled.state}", compiled.place)


def _step(text: str, place: Place | None) -> _Step:
    return _Step(_OF_THE_PROCESS.sub("…", text), None if place is None else (place.path, place.line))


def _divergence(rank: int, own: tuple[_Step, ...], model: int, most: tuple[_Step, ...]) -> Divergence:
    here, there = next((one, other) for one, other in zip_longest(own, most) if one != other)
    place = (here.place if here is not None else None) or (there.place if there is not None else None)
    text = f"{'nothing' if here is None else here.text!r}, where rank {model} has "
    return Divergence(rank, text + ("nothing" if there is None else repr(there.text)), place)


def _other_guards(rank: int, own: Compile, model: int, most: Compile) -> Divergence | None:
    conditions = {_OF_THE_PROCESS.sub("…", guard.expression) for guard in most.guards}
    other = next((one for one in own.guards if _OF_THE_PROCESS.sub("…", one.expression) not in conditions), None)
    if other is None:
        return None
    return Divergence(rank, f"guards {other.text or other.expression!r}, but rank {model} does not", other.place, True)


def _alone(rank: int, compiled: Compile, others: str) -> Divergence:
    why = next(iter(compiled.failures), None)
    if why is None:
        return Divergence(rank, f"has compiled it {others}", compiled.caller or compiled.place)
    return Divergence(rank, f"has compiled it again {others}: {failure_text(why)}", why.place or compiled.caller)


def _of_rank(rank: int, compiled: Compile) -> RankCompile:
    why = next(iter(compiled.failures), None)
    return RankCompile(
        rank,
        compiled.id,
        compiled.state,
        len(compiled.graphs),
        sum(graph.operation_count for graph in compiled.graphs),
        len(compiled.breaks),
        compiled.guard_count,
        compiled.seconds,
        None if why is None else failure_text(why),
        [
            Collective(match[1], node.value, node.place)
            for graph in compiled.graphs
            for node in graph.nodes
            if (match := _COLLECTIVE.search(node.target)) and match[1] not in _NO_COLLECTIVES
        ],
        compiled.sharding,
        sum(found.at_fsdp_hook for found in compiled.breaks),
    )
