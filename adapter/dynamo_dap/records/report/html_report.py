"""Writes the report as one self-contained page: advice, timeline, callers, and each compile.

The page loads nothing: it contains our own script, and no other script may run. Every text of
the record is escaped. The module reads the user's sources and the files in ``page/``, and has no side effects.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape

from dynamo_dap.protocol.texts import counted
from dynamo_dap.records.advice.cuda_graph_items import cuda_graph_text
from dynamo_dap.records.advice.gathering import what_to_do
from dynamo_dap.records.advice.items import Item, Kind, at, caller_of, not_tried, users_line
from dynamo_dap.records.advice.raced_compiles import failed_guard_text, failure_text
from dynamo_dap.records.events import Record
from dynamo_dap.records.model import STAGES, Compile, CompiledFunction, Graph, Place, StackLine, counts_of, shares_of
from dynamo_dap.records.report.html_shell import html_shell, page_file
from dynamo_dap.records.report.size_texts import size_lines
from dynamo_dap.records.texts import digest_of_line, readable_graph, recorded_line, sharding_text, source_lines

_GUARDS = 500
_STAGE_COLORS = ("#218bff", "#8250df", "#2da44e", "#bf8700")
_REST = "rest"
_REST_COLOR = "#8c959f"
"""The color of time outside torch's stages."""
_HOW_TO_TRACE = (
    "<p class='note'>Torch's own trace has the graphs between stages, side effects, and each graph as a program. To "
    "link each compile to it, run the program with <code>dynamo-dap run --trace</code>.</p>"
)
LinkOf = Callable[[Compile], str | None]


def html_report(
    record: Record, links: Mapping[str, str], link_of: LinkOf, ranks: str = "", *, part: str = "", reloads: bool = False
) -> Iterator[str]:
    """Yield the page in parts: the whole page on a large trace log might not fit into memory beside the record.

    ``links`` lead to torch's own reports, and ``link_of`` returns a compile's address there. If the record belongs to a
    job, ``ranks`` is the markup about all its ranks. If only a part of a trace log was read, ``part`` says which. A
    page that ``reloads`` does so until another page replaces it.
    """
    program = " ".join(record.started.program) if record.started else "?"
    body = itertools.chain(
        [f"<p class='note part'>{escape(part)}</p>"] if part else [],
        _head(record, program, {"All ranks": "#ranks"} if ranks else {}, links),
        [f"<h2 id='ranks'>All ranks</h2>{ranks}"] if ranks else [],
        ["<h2 id='to-do'>What to do</h2>"],
        _to_do(record),
        ["<h2 id='time'>Where the time went</h2>"],
        _timeline(record),
        ["<h2 id='who'>Who compiled what</h2>"],
        _tree(record),
        ["<h2 id='functions'>Functions</h2>"],
        *(_function(record, function, link_of) for function in record.functions),
        _written_later(record),
        _skipped(record),
        [] if links else [_HOW_TO_TRACE],
    )
    title = f"{program}: torch.compile"
    return html_shell(title, page_file("records", "page.css"), body, [page_file("records", "page.js")], reloads=reloads)


# -- head ----------------------------------------------------------------------------------------------------------


def _head(record: Record, program: str, first: Mapping[str, str], links: Mapping[str, str]) -> Iterator[str]:
    started = record.started
    yield f"<h1>What torch.compile did in {escape(program)}</h1>"
    if started is not None:
        versions = f"torch {started.torch}, " if started.torch else ""
        python = f"Python {started.python}, in {started.cwd}" if started.log is None else f"from {started.log}"
        yield f"<p class='note'>{escape(f'{versions}{python}')}</p>"
    if record.ended is None and (started is None or started.log is None):
        yield "<p class='note'>The program still runs, or it crashed.</p>"
    if record.unreadable_lines:
        yield f"<p class='note'>{record.unreadable_lines} lines of the record cannot be read and are left out.</p>"
    if record.is_truncated:
        yield "<p class='note'>The record reached its size limit: details of later compiles are left out.</p>"
    counts = record.counts()
    figures = {
        "compiles": counts.compiles,
        "seconds": f"{counts.seconds:.1f}",
        "graphs": counts.graphs,
        "operations": counts.operations,
        "graph breaks": counts.breaks,
        "recompiles": counts.recompiles,
        "guards": counts.guards,
    }
    shown = "".join(f"<div><b>{figure}</b><span>{name}</span></div>" for name, figure in figures.items())
    yield f"<div class='figures'>{shown}</div>"
    own = {"What to do": "#to-do", "Time": "#time", "Who compiled what": "#who", "Functions": "#functions"}
    all_links = {**first, **own, **links}
    shown = "".join(f"<a href='{escape(to, quote=True)}'>{escape(name)}</a>" for name, to in all_links.items())
    yield f"<nav>{shown}</nav>"
    if not links:
        reported = (
            "dynamo-dap run --trace writes torch's own trace too: its graphs of every stage, and a chromium trace"
        )
        yield f"<p class='note'>{escape(reported)}</p>"


# -- what to do ----------------------------------------------------------------------------------------------------


def _to_do(record: Record) -> Iterator[str]:
    items = what_to_do(record)
    if not items:
        yield "<p>Nothing: no graph breaks, no recompiles.</p>"
    anchors = {one.id: _anchor(one) for _, one in record.compiles()}
    yield from (_item(record, item, anchors) for item in items)
    if (text := not_tried(record, items)) is not None:
        yield f"<p class='note'>{_with_code(text)}</p>"


def _item(record: Record, item: Item, anchors: dict[str, str]) -> str:
    count = counted(len(item.compiles), "compile")
    cost = f"{count}, {item.seconds:.1f} s" if item.kind is Kind.CHANGE else count
    parts = [f"<h3>{escape(item.title)} <span>{cost}</span></h3>"]
    word = "guarded" if item.kind is Kind.CHANGE else "at"
    place = users_line(record, item)
    if place is not None and place != item.place:
        parts.append(_line(record, "At", place))
        word = f"in the library, {word}"
    parts += [_line(record, word.capitalize(), item.place)] if item.place is not None else []
    parts += [_line(record, "Called at", caller) for caller in item.callers if caller != place]
    facts = [fact for fact in item.facts if "\n" not in fact]
    parts += [f"<ul>{''.join(f'<li>{_with_code(one)}</li>' for one in facts)}</ul>"] if facts else []
    parts += [f"<pre>{escape(one)}</pre>" for one in item.facts if "\n" in one]
    parts += [f"<p class='do'><b>Do</b> {_with_code(one)}</p>" for one in item.advice]
    links = [f"<a href='{escape(item.link, quote=True)}'>Torch's page about it</a>"] if item.link else []
    links += [f"<a href='#{anchors[one]}'>[{escape(one)}]</a>" for one in item.compiles[:12] if one in anchors]
    parts += [f"<p>{' '.join(links)}</p>"] if links else []
    return f"<div class='item {item.kind.value.split()[0]}'>{''.join(parts)}</div>"


def _with_code(text: str) -> str:
    """Return a text as markup; backticks in it enclose code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _line(record: Record, word: str, place: Place) -> str:
    text = recorded_line(record.sources, place)
    code = f" <code>{escape(text)}</code>" if text else ""
    where = f"<span title='{escape(place.path, quote=True)}:{place.line}'>{escape(at(place))}</span>"
    return f"<p class='place'>{word} {where}{code}</p>"


def _at(word: str, place: Place | None) -> str:
    return "" if place is None else f"{word} {escape(at(place))}"


# -- time ----------------------------------------------------------------------------------------------------------


def _timeline(record: Record) -> Iterator[str]:
    compiles = [(function, one) for function, one in record.compiles() if one.began is not None and one.seconds]
    if not compiles:
        yield "<p>No compile was finished.</p>"
        return
    yield "<div class='chart' id='timeline' role='group' aria-label='Timeline of the compiles'></div>"
    reported = "Drag over the chart to zoom in, or turn the wheel with Ctrl; click a bar to go to its compile."
    order = "Stages are drawn one after the other: torch reports how long each took, not when it ran."
    yield f"<p class='note'>{reported} {order} <button id='forget' type='button' hidden>Show all of it</button></p>"
    yield "<script type='application/json' id='compiles'>"
    yield from _chart(compiles)
    yield "</script>"
    yield _table_of_times(compiles)


def _chart(compiles: list[tuple[CompiledFunction, Compile]]) -> Iterator[str]:
    """Yield the chart's data as JSON, bar by bar."""
    labels: dict[int, str] = {}
    for function, _ in compiles:
        if id(function) not in labels:
            text = function.name + ("" if function.place is None else f" ({at(function.place)})")
            # Two functions with the same text need different labels.
            labels[id(function)] = text if text not in labels.values() else f"{text} #{len(labels)}"
    rows = {key: number for number, key in enumerate(labels)}
    first = min(one.began or 0.0 for _, one in compiles)
    last = max((one.began or 0.0) + (one.seconds or 0.0) for _, one in compiles) - first
    stages = [{"name": name, "color": color} for name, color in zip(STAGES, _STAGE_COLORS, strict=True)]
    head = {
        "functions": list(labels.values()),
        "stages": [*stages, {"name": _REST, "color": _REST_COLOR}],
        "seconds": last,
    }
    yield _json(head).removesuffix("}") + ', "bars": ['
    bars = (bar for function, one in compiles for bar in _bars(one, rows[id(function)], first))
    for number, bar in enumerate(bars):
        yield ("," if number else "") + _json(bar)
    yield "]}"


def _bars(compiled: Compile, row: int, first: float) -> Iterator[dict[str, object]]:
    start = (compiled.began or 0.0) - first
    end = start + (compiled.seconds or 0.0)
    shares = shares_of(compiled)
    reasons = [failure_text(failure) for failure in compiled.failures]
    lines = [f"{compiled.seconds:.2f} s in all", *(f"again: {reason}"[:90] for reason in reasons[:3])]
    title = f"{compiled.name} [{compiled.id}]"
    common = {"function": row, "title": title, "lines": lines, "anchor": _anchor(compiled)}
    for number, name in enumerate([*STAGES, _REST]):
        length = min(shares.get(name, 0.0), end - start) if name != _REST else end - start
        if length > 0:
            yield {**common, "stage": number, "from": round(start, 6), "to": round(start + length, 6)}
            start += length


def _json(value: object) -> str:
    return json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _table_of_times(compiles: list[tuple[CompiledFunction, Compile]]) -> str:
    longest = sorted(compiles, key=lambda one: -(one[1].seconds or 0.0))[:20]
    stages = [name for name in STAGES if any(name in shares_of(one) for _, one in longest)]
    has_caches = any(one.caches for _, one in longest)
    names = ("compile", "seconds", *stages, *(["cache"] if has_caches else []), "called at")
    numeric = ("seconds", *stages)
    head = "".join(f"<th{' class=number' * (name in numeric)}>{name}</th>" for name in names)
    rows = [f"<tr>{head}</tr>"]
    for function, one in longest:
        shares = shares_of(one)
        numbers = [one.seconds, *(shares.get(name) for name in stages)]
        cells = "".join(f"<td class=number>{'' if number is None else f'{number:.2f}'}</td>" for number in numbers)
        caller = caller_of(function, one)
        where = "" if caller is None else escape(at(caller))
        title = f"<a href='#{_anchor(one)}'>{escape(f'{one.name} [{one.id}]')}</a>"
        cache = f"<td>{escape(_caches(one))}</td>" if has_caches else ""
        rows.append(f"<tr class=row><td>{title}</td>{cells}{cache}<td>{where}</td></tr>")
    more = (
        f"<p class='note'>and {len(compiles) - len(longest)} shorter ones</p>" if len(compiles) > len(longest) else ""
    )
    return f"<div class='wide'><table>{''.join(rows)}</table></div>{more}"


def _caches(compiled: Compile) -> str:
    events = list(dict.fromkeys(name.rpartition(" ")[2] for name in compiled.caches))
    return ", ".join(events)


# -- callers of compiles ---------------------------------------------------------------------------------------------


class _Branch:
    """A line of the program, the lines that it called, and its compiles."""

    def __init__(self) -> None:
        self.below: dict[StackLine, _Branch] = {}
        self.compiles: list[Compile] = []


def _tree(record: Record) -> Iterator[str]:
    root = _Branch()
    for _, compiled in record.compiles():
        branch = root
        for line in compiled.stack:
            branch = branch.below.setdefault(line, _Branch())
        branch.compiles.append(compiled)
    if not root.below:
        yield "<p>Not recorded.</p>"
        return
    yield "<div class='tree'>"
    yield from _branches(record, root)
    yield "</div>"


def _branches(record: Record, branch: _Branch) -> Iterator[str]:
    yield "<ul>"
    for line, below in branch.below.items():
        text = recorded_line(record.sources, line.place)
        code = f" <code>{escape(text)}</code>" if text else ""
        where = f"<span title='{escape(line.place.path, quote=True)}'>{escape(at(line.place))}</span>"
        yield f"<li>{where} <span class=note>in {escape(line.function)}</span>{code}"
        yield from _branches(record, below)
        yield "</li>"
    for compiled in branch.compiles:
        title = escape(f"{compiled.name} [{compiled.id}]")
        reported = f"{compiled.seconds:.2f} s" if compiled.seconds is not None else "not finished"
        yield (
            f"<li>&rarr; <a href='#{_anchor(compiled)}'>{title}</a> "
            f"<span class=ids>{escape(compiled.state)}, {reported}</span></li>"
        )
    yield "</ul>"


# -- functions -----------------------------------------------------------------------------------------------------


def _function(record: Record, function: CompiledFunction, link_of: LinkOf) -> Iterator[str]:
    counts = counts_of(function.compiles)
    reported = [
        counted(counts.compiles, "compile"),
        f"{counts.seconds:.2f} s",
        f"{counted(counts.graphs, 'graph')} of {counted(counts.operations, 'operation')}",
        counted(counts.breaks, "break"),
        counted(counts.recompiles, "recompile"),
        counted(counts.guards, "guard"),
    ]
    where = (
        ""
        if function.place is None
        else f" <span class=note>{escape(f'{function.place.path}:{function.place.line}')}</span>"
    )
    yield f"<div class='function'><h3>{escape(function.name)}{where}</h3><p class='note'>{', '.join(reported)}</p>"
    source = _source(record, function)
    if source:
        yield _folded(
            "Source, with what Dynamo traced: the rest is pale, lines that break are marked", f"<pre>{source}</pre>"
        )
    yield from (_compile(record, function, compiled, link_of) for compiled in function.compiles)
    yield "</div>"


def _source(record: Record, function: CompiledFunction) -> str:
    """Return a function's source if it has not changed since the run; lines that were never traced are pale."""
    place = function.place
    known = [one for compiled in function.compiles for one in compiled.traced if one.place == place]
    if place is None or not known:
        return ""
    lines, digests = source_lines(place.path), record.sources.get(place.path, [])
    all_lines = {line for one in known for line in one.lines}
    traced = {line for one in known for line in one.traced}
    broken = {
        graph_break.place.line
        for compiled in function.compiles
        for graph_break in compiled.breaks
        if graph_break.place is not None
    }
    shown = []
    for number in range(min(all_lines), max(all_lines) + 1):
        text = lines[number - 1] if number <= len(lines) else ""
        if number > len(digests) or number > len(lines) or digest_of_line(text) != digests[number - 1]:
            return ""
        kind = "broken" if number in broken else "never" if number in all_lines - traced else ""
        shown.append(f"<span class='{kind}'>{number:5}  {escape(text)}</span>")
    return "\n".join(shown)


def _anchor(compiled: Compile) -> str:
    return "compile-" + "".join(one if one.isalnum() else "-" for one in compiled.id)


def _compile(record: Record, function: CompiledFunction, compiled: Compile, link_of: LinkOf) -> str:
    caller = caller_of(function, compiled)
    parts = [_line(record, "Called at", caller)] if caller is not None else []
    parts += [] if compiled.sharding is None else [f"<p>FSDP: {escape(sharding_text(compiled.sharding))}</p>"]
    parts += [
        f"<p>Recompile: {escape(failed_guard_text(failure))}{_at(', guarded at', failure.place)}</p>"
        for failure in compiled.failures
    ]
    parts += [
        f"<p>Graph break{_at(' at', graph_break.place)}: {escape(graph_break.reason)}</p>"
        for graph_break in compiled.breaks
    ]
    parts += [
        f"<p>Specialized: {escape(specialization.expression)}{_at(' at', specialization.place)}</p>"
        for specialization in compiled.specializations
    ]
    parts += [
        f"<p>CUDA graph {escape(cuda_graph_text(compiled, event))}{_at(' at', event.place)}</p>"
        for event in compiled.cuda_graphs
    ]
    parts += [
        f"<p>Attempt {attempt.number} started again: {escape(attempt.restarted.splitlines()[0])}</p>"
        for attempt in compiled.attempts
        if attempt.restarted
    ]
    parts += [f"<pre>{escape(compiled.problem)}</pre>"] if compiled.problem else []
    parts += [_graph(graph, compiled) for graph in compiled.graphs]
    parts += [_sizes(compiled), _guards(compiled)]
    if compiled.generated:
        parts.append(_folded("Generated bytecode", f"<pre>{escape(compiled.generated)}</pre>"))
    parts += _files(compiled.artifacts, compiled.kernels)
    link = link_of(compiled)
    parts += [f"<p><a href='{escape(link, quote=True)}'>This compile in torch's own trace</a></p>"] if link else []
    return (
        f"<details id='{_anchor(compiled)}'><summary>{_title(compiled)}</summary><div>{''.join(parts)}</div></details>"
    )


def _title(compiled: Compile) -> str:
    shares = shares_of(compiled)
    reported = [] if compiled.seconds is None else [f"{compiled.seconds:.2f} s"]
    stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in shares.items())
    facts = [compiled.state, *reported, *([f"backend {compiled.backend}"] if compiled.backend else [])]
    return f"<b>{escape(f'{compiled.name} [{compiled.id}]')}</b> <span class=note>{escape(', '.join(facts))}" + (
        f" ({stages})</span>" if stages else "</span>"
    )


def _graph(graph: Graph, compiled: Compile) -> str:
    title = f"{graph.name}: {graph.operation_count} operations"
    return _folded(title, f"<pre>{escape(readable_graph(graph, compiled.name))}</pre>")


def _sizes(compiled: Compile) -> str:
    """Return the compile's dynamic sizes, and the conditions on sizes with the lines that caused them."""
    conditions = [guard for guard in compiled.guards if guard.type == "SHAPE_ENV" and guard.expression != "SHAPE_ENV"]
    rows = [
        f"<tr class=row><td class=code>{escape(symbol.name)}</td><td class=code>{escape(symbol.source)}</td>"
        f"<td class=number>{escape(symbol.value or '')}</td><td>{escape(symbol.range or '')}</td></tr>"
        for symbol in compiled.symbols
    ]
    head = "<tr><th>symbol</th><th>stands for</th><th class=number>here</th><th>may be</th></tr>"
    table = f"<table>{head}{''.join(rows)}</table>" if rows else ""
    reported = [
        f"<li><code>{escape(condition.text or condition.expression)}</code>{_at(' from', condition.place)}</li>"
        for condition in conditions
    ]
    listed = f"<ul>{''.join(reported)}</ul>" if reported else ""
    why = "".join(f"<li>{escape(line)}</li>" for line in size_lines(compiled.sizes))
    reasons = f"<p>Why each size is static or dynamic:</p><ul>{why}</ul>" if why else ""
    varying = f"{counted(len(rows), 'size')} that may vary" if rows else ""
    limits = f"{counted(len(reported), 'condition')} on sizes" if reported else ""
    title = ", ".join(filter(None, (varying, limits))) or "sizes"
    return _folded(title, table + listed + reasons) if rows or reported or why else ""


def _guards(compiled: Compile) -> str:
    rows = [
        f"<tr><td>{escape(guard.text or guard.expression)}</td>"
        f"<td class=note>{escape(guard.type)}{_at(' at', guard.place)}</td></tr>"
        for guard in compiled.guards[:_GUARDS]
    ]
    more = compiled.guard_count - len(rows)
    rest = f"<p class='note'>{more} more</p>" if more > 0 else ""
    table = f"<div class='wide'><table>{''.join(rows)}</table></div>"
    return _folded(f"{compiled.guard_count} guards", f"{table}{rest}") if rows else ""


def _files(files: Iterable[str], kernels: Iterable[str]) -> Iterator[str]:
    yield from (f"<p>The backend wrote <code>{escape(path)}</code></p>" for path in files)
    names = list(kernels)
    if names:
        yield _folded(
            f"{len(names)} kernels", f"<ul>{''.join(f'<li class=code>{escape(name)}</li>' for name in names)}</ul>"
        )


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{text}</details>"


def _written_later(record: Record) -> Iterator[str]:
    if record.files:
        yield "<h2>Written when backward passes first ran</h2>"
        yield from _files(record.files, record.kernels)


def _skipped(record: Record) -> Iterator[str]:
    if record.skipped:
        yield "<h2>Skipped</h2>"
    for one in record.skipped:
        yield f"<p>{escape(one.name)}{_at(' at', one.place)}: {escape(one.reason)}</p>"
