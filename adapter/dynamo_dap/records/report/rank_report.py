"""Prints the compiles of a job's ranks: a table with a column per rank, then the first divergence.

``dynamo-dap report --ranks`` and the HTML report on one rank use it. It reads the user's source files, and has no side
effects but printing.
"""

from __future__ import annotations

import io
from collections.abc import Mapping

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.terminal_theme import TerminalTheme

from dynamo_dap.protocol.texts import counted
from dynamo_dap.records.advice.items import at
from dynamo_dap.records.events import Record
from dynamo_dap.records.model import Place
from dynamo_dap.records.report.ranks import Collective, ComparedCompile, Divergence, JsonRanks, RankCompile
from dynamo_dap.records.texts import recorded_line

_COLUMNS = 8
"""Up to this number each rank has its own column. Of more ranks, those with the same compiles share a column."""
_COLUMN_WIDTH = 44
"""Width of a column on an HTML page, in characters."""
_RED, _YELLOW = (218, 54, 51), (178, 123, 0)
_THEME = TerminalTheme((255, 255, 255), (0, 0, 0), [(0, 0, 0), _RED, (0, 128, 0), _YELLOW, *[(110, 118, 129)] * 4])
"""The only colours used; they are readable on a light page and on a dark one."""


def print_ranks(compared: JsonRanks, records: Mapping[int, Record], console: Console) -> None:
    """Print a comparison; ``records`` are the compared records by rank."""
    columns = _columns(compared)
    console.print(_table(compared, columns))
    if compared.missing:
        console.print(f"Without a record, or nothing was compiled: {_named(compared.missing)}")
    different = [one for one in compared.compiles if any(not parting.guards_only for parting in one.partings)]
    for one in compared.compiles:
        for parting in one.partings:
            _print_divergence(one, parting, records, console)
    if not different:
        console.print("All ranks compiled the same" if len(compared.ranks) > 1 else "There is only one rank")
    for one in compared.compiles:
        _print_collectives(one, console)


def ranks_as_html(compared: JsonRanks, records: Mapping[int, Record]) -> str:
    """Return the output of ``print_ranks`` as a part of a page, with the records' texts escaped."""
    columns = min(len(compared.ranks), _COLUMNS) + 1
    console = Console(file=io.StringIO(), record=True, highlight=False, width=columns * _COLUMN_WIDTH)
    print_ranks(compared, records, console)
    return console.export_html(theme=_THEME, inline_styles=True, code_format="<pre class='ranks'>{code}</pre>")


def _columns(compared: JsonRanks) -> list[list[int]]:
    if len(compared.ranks) <= _COLUMNS:
        return [[rank] for rank in compared.ranks]
    alike: dict[tuple[object, ...], list[int]] = {}
    for rank in compared.ranks:
        alike.setdefault(tuple(_cell(one, rank) for one in compared.compiles), []).append(rank)
    return list(alike.values())


def _named(ranks: list[int]) -> str:
    """Return ``rank 0``, ``ranks 0-3, 7``."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(texts)}"


def _table(compared: JsonRanks, columns: list[list[int]]) -> Table:
    table = Table("compile")
    for ranks in columns:
        table.add_column(_named(ranks))
    for one in compared.compiles:
        marked = {parting.rank: "yellow" if parting.guards_only else "red" for parting in one.partings}
        cells = []
        for ranks in columns:
            color = marked.get(ranks[0])
            text = escape(_cell(one, ranks[0]))
            cells.append(f"[{color}]● {text}[/{color}]" if color else text)
        table.add_row(escape(_title(one)), *cells)
    return table


def _title(one: ComparedCompile) -> str:
    place = "" if one.place is None else f" ({at(one.place)})"
    return f"{one.function}{place}" + (f", compile {one.number}" if one.number > 1 else "")


def _cell(one: ComparedCompile, rank: int) -> str:
    found = next((each for each in one.ranks if each.rank == rank), None)
    return "-" if found is None else "\n".join(_facts(found))


def _facts(one: RankCompile) -> list[str]:
    facts = [f"{counted(one.graphs, 'graph')}, {one.operations} ops", counted(one.guards, "guard")]
    if one.sharding is not None:
        gathered = "gathered" if one.sharding.is_gathered else "sharded"
        facts.append(f"FSDP: {one.sharding.name or 'the model'} {gathered}, 1/{one.sharding.ranks} here")
    if one.breaks:
        at_fsdp = f", {one.breaks_at_fsdp} at FSDP's hooks" if one.breaks_at_fsdp else ""
        facts.append(counted(one.breaks, "break") + at_fsdp)
    if one.recompiled is not None:
        facts.append(f"again: {one.recompiled}")
    return facts if one.state == "compiled" else [*facts, one.state]


def _print_divergence(
    one: ComparedCompile, parting: Divergence, records: Mapping[int, Record], console: Console
) -> None:
    color = "yellow" if parting.guards_only else "red"
    where = "" if parting.place is None else f" at {_line(records[parting.rank], parting.place)}"
    verb = "differs" if parting.guards_only else "diverges"
    title = escape(f"Rank {parting.rank} {verb} in {_title(one)}{where}")
    console.print(f"[{color}]●[/{color}] [bold]{title}[/bold]\n    {escape(parting.text)}")


def _line(record: Record, place: Place) -> str:
    line = recorded_line(record.sources, place)
    return f"{place.path}:{place.line}" + (f"  {line}" if line else "")


def _print_collectives(one: ComparedCompile, console: Console) -> None:
    by_rank = {each.rank: tuple(map(_collective, each.collectives)) for each in one.ranks}
    alike: dict[tuple[str, ...], list[int]] = {}
    for rank, collectives in by_rank.items():
        alike.setdefault(collectives, []).append(rank)
    if not any(alike):
        return
    console.print(f"[bold]Collectives in {escape(_title(one))}[/bold]")
    for collectives, ranks in alike.items():
        who = "all ranks" if len(alike) == 1 else f"[red]{_named(ranks)}[/red]"
        steps = "  →  ".join(collectives) if collectives else "none"
        console.print(f"  {who}: {escape(steps)}")


def _collective(one: Collective) -> str:
    value = "" if one.value is None else f" {one.value}"
    return f"{one.name}{value}" + ("" if one.place is None else f" ({at(one.place)})")
