"""Writes the report as text: counts, advice, and each compile.

``dynamo-dap report`` prints the report on a program; the editor shows it for one function or the whole program. The
module reads the user's source files, and has no side effects but printing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dynamo_dap.protocol.texts import counted
from dynamo_dap.records.advice.cuda_graph_items import cuda_graph_text
from dynamo_dap.records.advice.gathering import what_to_do
from dynamo_dap.records.advice.items import Item, Kind, at, caller_of, not_tried, users_line
from dynamo_dap.records.advice.raced_compiles import failed_guard_text
from dynamo_dap.records.events import Record
from dynamo_dap.records.model import TRACING, Compile, CompiledFunction, Counts, Graph, Place, counts_of, shares_of
from dynamo_dap.records.report.size_texts import are_explained, short_size_line, size_lines
from dynamo_dap.records.texts import recorded_line, sharding_text

_COMPILES = 15
_ITEMS = 12
_ADVICE = 4
_COLORS = {
    Kind.FAILED: "red",
    Kind.LIMIT: "red",
    Kind.BREAK: "yellow",
    Kind.CHANGE: "cyan",
    Kind.SPECIALIZED: "magenta",
    Kind.CUDA_GRAPH: "green",
}


def print_report(record: Record, console: Console, only: CompiledFunction | None = None) -> None:
    """Print the report on a program, or on one of its functions."""
    functions = record.functions if only is None else [only]
    items = what_to_do(record, only)
    lines = sum(item.kind is Kind.BREAK for item in items)
    _print_head(record, console, record.counts() if only is None else counts_of(only.compiles), lines)
    if functions:
        console.print(_table_of_functions(functions))
    console.print("[bold]What to do[/bold]" + ("" if items else ": nothing, no graph breaks and no recompiles"))
    shown = items if only is not None else items[:_ITEMS]
    for number, item in enumerate(shown, 1):
        _print_item(record, item, number, console)
    if len(items) > len(shown):
        console.print(f" {len(items) - len(shown)} more of lower priority: dynamo-dap report --html lists them all")
    if (text := not_tried(record, items)) is not None:
        console.print(f" {text}")
    _print_compiles(functions, console, everything=only is not None)
    _print_files(record, functions, console, is_program=only is None)
    for skipped in record.skipped if only is None else ():
        where = "" if skipped.place is None else f" at {skipped.place.path}:{skipped.place.line}"
        console.print(f"[yellow]Skipped[/yellow] {escape(f'{skipped.name}{where}: {_first_line(skipped.reason)}')}")


def _first_line(reason: str) -> str:
    """Return the first line of torch's message: the report has its own lines for hints and links."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    return lines[0] if lines else reason


def _print_head(record: Record, console: Console, counts: Counts, lines: int) -> None:
    """Print the counts; ``lines`` is the number of lines with graph breaks, which ``check`` limits."""
    started = record.started
    program = (" ".join(started.program) if started else "") or "?"
    log = None if started is None else started.log
    if started is not None and log is not None:
        version = f", torch {started.torch}" if started.torch else ""
        console.print(f"[bold]{escape(program)}[/bold]  ({escape(f'from {log}{version}')})")
    else:
        console.print(f"[bold]{escape(program)}[/bold]" + ("" if record.ended else "  (still running, or it crashed)"))
    if record.unreadable_lines:
        of = "record" if log is None else "log"
        console.print(f"[red]{record.unreadable_lines} lines of the {of} cannot be read and are left out[/red]")
    console.print(f"Graph count: {counts.graphs}")
    where = f" at {counted(lines, 'line')}" if counts.breaks else ""
    console.print(f"Graph break count: {counts.breaks}{where} ({counts.breaks_with_graph} after operations of a graph)")
    console.print(f"Op count: {counts.operations}")
    console.print(f"Recompiles: {counts.recompiles}")
    console.print(f"Guards: {counts.guards}")
    console.print(f"Compile time: {counts.seconds:.2f} s in {counts.compiles} compiles")
    if record.is_truncated:
        console.print("The record reached its size limit: details of later compiles are left out")


def _table_of_functions(functions: list[CompiledFunction]) -> Table:
    table = Table("function")
    for name in ("compiles", "graphs", "ops", "breaks", "again", "guards", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for function in functions:
        one = counts_of(function.compiles)
        numbers = (one.compiles, one.graphs, one.operations, one.breaks, one.recompiles, one.guards)
        place = "?" if function.place is None else at(function.place)
        table.add_row(escape(f"{function.name} ({place})"), *map(str, numbers), f"{one.seconds:.2f} s")
    return table


# -- what to do ----------------------------------------------------------------------------------------------------


def _print_item(record: Record, item: Item, number: int, console: Console) -> None:
    cost = [counted(len(item.compiles), "compile"), f"{item.seconds:.1f} s"] if item.kind is Kind.CHANGE else []
    cost = cost or ([counted(len(item.compiles), "compile")] if len(item.compiles) > 1 else [])
    reported = f" ({', '.join(cost)})" if cost else ""
    color = _COLORS[item.kind]
    console.print(f" {number}. [{color}]{escape(item.title)}[/{color}]{escape(reported)}")
    word = "guarded" if item.kind is Kind.CHANGE else "at"
    place = users_line(record, item)
    where = [] if item.place is None else [f"{word} {_place(record, item.place)}"]
    if place is not None and place != item.place:
        where = [f"at {_place(record, place)}", *(f"in the library, {line}" for line in where)]
    callers = [f"called {_place(record, caller)}" for caller in item.callers if caller != place]
    for line in [*where, *item.facts, *callers]:
        console.print(_indented(line))
    for line in item.advice[:_ADVICE]:
        console.print("    [green]Do:[/green] " + _indented(line).lstrip())
    if item.link is not None:
        console.print(f"    See: {escape(item.link)}")


def _place(record: Record, place: Place) -> str:
    """Return a place that a terminal can open, with the line's text if the file has not changed since the run."""
    line = recorded_line(record.sources, place)
    return f"{place.path}:{place.line}" + (f"  {line}" if line else "")


def _indented(text: str) -> str:
    return "    " + escape(text).replace("\n", "\n    ")


# -- compiles ------------------------------------------------------------------------------------------------------


def _print_compiles(functions: list[CompiledFunction], console: Console, *, everything: bool) -> None:
    compiles = [(function, one) for function in functions for one in function.compiles]
    shown = compiles if everything else sorted(compiles, key=lambda one: -(one[1].seconds or 0.0))[:_COMPILES]
    if compiles:
        console.print("[bold]Compiles[/bold]" + ("" if everything else ", the longest first"))
    for function, compiled in shown:
        _print_compile(function, compiled, console, everything=everything)
    if len(compiles) > len(shown):
        known = {id(one) for _, one in shown}
        rest = sum(one.seconds or 0.0 for _, one in compiles if id(one) not in known)
        console.print(f" {len(compiles) - len(shown)} more, {rest:.2f} s")


def _print_compile(function: CompiledFunction, compiled: Compile, console: Console, *, everything: bool) -> None:
    console.print(f" [bold]{escape(f'{compiled.name} [{compiled.id}]')}[/bold] {escape(', '.join(_facts(compiled)))}")
    caller = caller_of(function, compiled)
    if caller is not None:
        console.print(_indented(f"called at {caller.path}:{caller.line}"))
    for failure in compiled.failures:
        where = f" at {failure.place.path}:{failure.place.line}" if failure.place is not None else ""
        line = f"{failed_guard_text(failure)}{where}"
        console.print(f"    [cyan]Recompile[/cyan]: {escape(line)}")
    for found in compiled.breaks:
        where = f" at {found.place.path}:{found.place.line}" if found.place is not None else ""
        identifier = f" [{found.id}]" if found.id else ""
        console.print(f"    [yellow]Graph break[/yellow]{escape(f'{where}: {found.reason}{identifier}')}")
    if compiled.sharding is not None:
        console.print(f"    [blue]FSDP[/blue]: {escape(sharding_text(compiled.sharding))}")
    for graph in compiled.graphs:
        _print_buckets(graph, console)
    lines = list(size_lines(compiled.sizes)) if everything else [short_size_line(compiled.sizes)]
    for line in filter(None, lines if are_explained(compiled) else ()):
        console.print(f"    [magenta]Size[/magenta] {escape(line)}")
    for size in compiled.specializations if not compiled.sizes else ():
        where = f" at {size.place.path}:{size.place.line}" if size.place is not None else ""
        console.print(f"    [magenta]Specialized[/magenta] {escape(f'{size.expression}{where}')}")
    for event in compiled.cuda_graphs:
        where = f" at {event.place.path}:{event.place.line}" if event.place is not None else ""
        console.print(f"    [green]CUDA graph[/green] {escape(f'{cuda_graph_text(compiled, event)}{where}')}")
    if compiled.state in ("skipped", "failed"):
        console.print(
            f"    [red]{compiled.state.capitalize()}[/red] {escape(_first_line(compiled.problem or ''))}".rstrip()
        )


def _print_buckets(graph: Graph, console: Console) -> None:
    if not graph.buckets:
        return
    how = "is one bucket" if len(graph.buckets) == 1 else f"is cut into {len(graph.buckets)} buckets"
    console.print(f"    [blue]DDP[/blue]: {escape(graph.name)} {how}; the gradients of each are all-reduced together")
    for number, bucket in enumerate(graph.buckets, 1):
        parameters = ", ".join(bucket.parameters[:_COMPILES])
        more = f" and {len(bucket.parameters) - _COMPILES} more" if len(bucket.parameters) > _COMPILES else ""
        line = f"{number}. {bucket.size / 2**20:.1f} MiB: {parameters or 'no parameters'}{more}"
        console.print(_indented(f"  {line}  {_ranges(bucket.places)}".rstrip()))


def _ranges(places: list[Place]) -> str:
    """Return places by file, as ``model.py:12-14, 17``."""
    texts = []
    for path in dict.fromkeys(place.path for place in places):
        lines = sorted({place.line for place in places if place.path == path})
        runs = [[lines[0], lines[0]]]
        for line in lines[1:]:
            if line == runs[-1][1] + 1:
                runs[-1][1] = line
            else:
                runs.append([line, line])
        ranges = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
        texts.append(f"{PurePath(path).name}:{ranges}")
    return "; ".join(texts)


def _facts(compiled: Compile) -> Iterator[str]:
    if compiled.seconds is not None:
        shares = ", ".join(f"{name} {seconds:.2f}" for name, seconds in shares_of(compiled).items())
        yield f"{compiled.seconds:.2f} s" + (f" ({shares})" if shares else "")
    elif compiled.state == TRACING:
        yield "not finished"
    operations = sum(graph.operation_count for graph in compiled.graphs)
    yield f"{operations} ops" if compiled.graphs else "no graph"
    if compiled.guard_count:
        yield f"{compiled.guard_count} guards"
    if compiled.symbols:
        yield f"any {', '.join(symbol.source for symbol in compiled.symbols[:_ADVICE])}"
    yield from (cache for cache in compiled.caches if not cache.endswith(" miss"))


def _print_files(record: Record, functions: list[CompiledFunction], console: Console, *, is_program: bool) -> None:
    files = [
        (f"{one.name} [{one.id}]", path, one.kernels)
        for function in functions
        for one in function.compiles
        for path in one.artifacts
    ]
    files += [("backward passes", path, record.kernels) for path in record.files] if is_program else []
    if files:
        console.print("[bold]Files that the backend wrote[/bold]")
    reported: set[int] = set()
    for name, path, kernels in files:
        console.print(f" {escape(f'{name}: {path}')}")
        if kernels and id(kernels) not in reported:
            reported.add(id(kernels))
            console.print(_indented(_list_of_kernels(kernels)))


def _list_of_kernels(kernels: list[str]) -> str:
    more = f" and {len(kernels) - _COMPILES} more" if len(kernels) > _COMPILES else ""
    return f"{counted(len(kernels), 'kernel')}: {', '.join(kernels[:_COMPILES])}{more}"
