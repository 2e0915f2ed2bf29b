"""The report as one page that holds all it shows: what to do, a timeline of the compiles, sources, graphs, guards.

Nothing in it runs and nothing is loaded: the timeline is a drawing made here, what is long is folded, and every text of
the record is escaped. Pure, but for reading the user's sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from pathlib import PurePath

from dynamo_dap.record.advice import changes_of
from dynamo_dap.record.model import Compile, CompiledFunction, Graph, Place
from dynamo_dap.record.readable_graph import readable_graph
from dynamo_dap.record.session import Session
from dynamo_dap.record.summary import Counts, counts_of_function, counts_of_session
from dynamo_dap.record.texts import digest_of_line, source_lines

_GUARDS = 300
_WIDTH, _ROW, _LABEL = 1000, 22, 300
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1100px; padding: 0 1em; color: #1f2328;
  background: #fff; }
h1 { font-size: 1.5em; } h2 { font-size: 1.2em; margin-top: 2em; border-bottom: 1px solid #d0d7de; }
h3 { font-size: 1em; margin-bottom: .3em; }
table { border-collapse: collapse; } td, th { padding: .2em .8em .2em 0; text-align: left; vertical-align: top; }
td.number, th.number { text-align: right; }
pre, code { font: 13px/1.45 ui-monospace, monospace; }
pre { background: #f6f8fa; padding: .8em; overflow-x: auto; }
.card { border-left: 4px solid #bf8700; padding: .1em 1em; margin: 1em 0; background: #fffbea; }
.card.change { border-color: #0969da; background: #eef6ff; }
.card.failed { border-color: #cf222e; background: #fff0ee; }
.never { color: #8c959f; } .broken { background: #fff3c4; } .note { color: #59636e; }
svg { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
.bar { fill: #54aeff; } .bar.again { fill: #d4a72c; } .bar.failed { fill: #ff8182; } .backend { fill: #0969da; }
@media (prefers-color-scheme: dark) {
  body { color: #e6edf3; background: #0d1117; } pre { background: #161b22; }
  .card { background: #272115; } .card.change { background: #121d2f; } .card.failed { background: #25171c; }
  .broken { background: #3a2f0b; } h2 { border-color: #30363d; } a { color: #4493f8; }
}
"""


def html_report(session: Session, tlparse: str | None = None) -> str:
    """Return the page; ``tlparse`` is the address of torch's own report, if there is one."""
    program = " ".join(session.started.program) if session.started else "?"
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        "<meta name='viewport' content='width=device-width'>",
        f"<title>{escape(program)}: torch.compile</title><style>{_STYLE}</style></head><body>",
        f"<h1>What torch.compile did in {escape(program)}</h1>",
        *_head(session, tlparse),
        "<h2>What to do</h2>",
        *(_to_do(session) or ["<p>Nothing: no graph breaks, no recompiles.</p>"]),
        "<h2>Timeline of the compiles</h2>",
        _timeline(session),
        "<h2>Functions</h2>",
        *(part for function in session.functions for part in _function(session, function)),
        *_skipped(session),
        "</body></html>",
    ]
    return "\n".join(parts)


# -- head ----------------------------------------------------------------------------------------------------------


def _head(session: Session, tlparse: str | None) -> Iterator[str]:
    started = session.started
    if started is not None:
        versions = f"torch {started.torch}, " if started.torch else ""
        yield f"<p class='note'>{escape(f'{versions}Python {started.python}, in {started.cwd}')}</p>"
    if session.ended is None:
        yield "<p class='note'>The program still runs, or it crashed.</p>"
    if session.unreadable_lines:
        yield f"<p class='note'>{session.unreadable_lines} lines of the record cannot be read and are left out.</p>"
    counts = counts_of_session(session)
    names = ("Compiles", "Graphs", "Operations", "Graph breaks", "Recompiles", "Guards", "Seconds")
    yield f"<table><tr>{''.join(f'<th class=number>{name}</th>' for name in names)}</tr>{_row(counts)}</table>"
    if tlparse is not None:
        yield f"<p><a href='{escape(tlparse, quote=True)}'>Torch's own trace, by tlparse</a></p>"


def _row(counts: Counts, title: str = "") -> str:
    numbers = (counts.compiles, counts.graphs, counts.operations, counts.breaks, counts.recompiles, counts.guards)
    cells = [*map(str, numbers), f"{counts.seconds:.2f}"]
    return f"<tr>{title}{''.join(f'<td class=number>{cell}</td>' for cell in cells)}</tr>"


# -- what to do ----------------------------------------------------------------------------------------------------


def _to_do(session: Session) -> list[str]:
    found: dict[tuple[object, ...], str] = {}
    for function in session.functions:
        for change in changes_of(function):
            text = f"{change.function}: {change.subject}" + (
                f": {', '.join(change.values[:8])}" if change.values else ""
            )
            called = f"{len(change.compiles)} recompiles{_at(', called', change.caller)}"
            lines = [
                f"<h3>Changed from call to call: {escape(text)}</h3>",
                f"<p>{called}. {escape(change.advice)}. <a href='{change.link}'>Torch's page</a></p>",
            ]
            found[function.name, change.subject] = f"<div class='card change'>{''.join(lines)}</div>"
        for compiled in function.compiles:
            for one in compiled.breaks:
                card = _break_card(compiled, function, one.reason, one.place, one.explanation, one.hints, one.link)
                found.setdefault((one.reason, one.place), card)
            if compiled.limit:
                text = f"{function.name} was compiled too often ({compiled.limit}), and runs eagerly from there on"
                found[function.name, compiled.limit] = f"<div class='card failed'><h3>{escape(text)}</h3></div>"
            if compiled.state == "failed" and not compiled.breaks:
                text = f"{compiled.name} [{compiled.id}] failed"
                card = f"<h3>{escape(text)}</h3><pre>{escape(compiled.problem or 'torch does not say why')}</pre>"
                found[compiled.id, "failed"] = f"<div class='card failed'>{card}</div>"
    return list(found.values())


def _break_card(
    compiled: Compile,
    function: CompiledFunction,
    reason: str,
    place: Place | None,
    explanation: str | None,
    hints: Iterable[str],
    link: str | None,
) -> str:
    caller = compiled.caller or next((one.caller for one in function.compiles if one.caller is not None), None)
    parts = [f"<h3>Graph break{_at('', place)}: {escape(reason)}</h3>"]
    parts.append(f"<p class='note'>In {escape(f'{compiled.name} [{compiled.id}]')}{_at(', called', caller)}</p>")
    parts += [f"<p>{escape(explanation)}</p>"] if explanation else []
    parts.append("<ul>" + "".join(f"<li>{escape(hint)}</li>" for hint in hints) + "</ul>")
    if link is not None and link.startswith("https://"):
        parts.append(f"<p><a href='{escape(link, quote=True)}'>Torch's page about it</a></p>")
    return f"<div class='card'>{''.join(parts)}</div>"


def _at(word: str, place: Place | None) -> str:
    return "" if place is None else escape(f"{word} at {PurePath(place.path).name}:{place.line}")


# -- timeline ------------------------------------------------------------------------------------------------------


def _timeline(session: Session) -> str:
    compiles = [one for _, one in session.compiles() if one.began is not None and one.seconds]
    if not compiles:
        return "<p>No compile was finished.</p>"
    first = min(one.began or 0.0 for one in compiles)
    last = max((one.began or 0.0) + (one.seconds or 0.0) for one in compiles)
    scale = (_WIDTH - _LABEL - 80) / max(last - first, 1e-6)
    rows = []
    for number, one in enumerate(compiles):
        start, top = _LABEL + ((one.began or 0.0) - first) * scale, number * _ROW + 4
        width = max((one.seconds or 0.0) * scale, 1.0)
        kind = "failed" if one.state == "failed" else "again" if one.failures else ""
        backend = min(one.phases.get("backend", 0.0) * scale, width)
        phases = ", ".join(f"{name} {spent:.3f} s" for name, spent in one.phases.items())
        tip = escape(f"{one.name} [{one.id}]: {one.seconds:.3f} s; {phases}")
        rows.append(
            f"<g><title>{tip}</title><text x='0' y='{top + 12}'>{escape(f'{one.name} [{one.id}]'[:44])}</text>"
            f"<rect class='bar {kind}' x='{start:.1f}' y='{top}' width='{width:.1f}' height='14'/>"
            f"<rect class='backend' x='{start + width - backend:.1f}' y='{top}' width='{backend:.1f}' height='14'/>"
            f"<text x='{start + width + 4:.1f}' y='{top + 12}'>{one.seconds:.2f} s</text></g>"
        )
    height = len(compiles) * _ROW + 8
    note = "Light: Dynamo; dark: the backend; yellow: compiled again; red: failed. Each bar tells more when pointed at."
    drawing = f"<svg viewBox='0 0 {_WIDTH} {height}' role='img'>{''.join(rows)}</svg>"
    return f"{drawing}<p class='note'>{note} {last - first:.1f} s from the first to the last.</p>"


# -- functions -----------------------------------------------------------------------------------------------------


def _function(session: Session, function: CompiledFunction) -> Iterator[str]:
    yield f"<h3>{escape(function.name)}{_at('', function.place)}</h3>"
    names = ("compiles", "graphs", "operations", "breaks", "recompiles", "guards", "seconds")
    yield f"<table><tr>{''.join(f'<th class=number>{name}</th>' for name in names)}</tr>"
    yield f"{_row(counts_of_function(function))}</table>"
    source = _source(session, function)
    if source:
        yield f"<details><summary>Source, with what Dynamo traced</summary><pre>{source}</pre></details>"
    for compiled in function.compiles:
        yield _compile(compiled)


def _source(session: Session, function: CompiledFunction) -> str:
    """Return the source of a function, if it is what the program ran: lines that were never traced are pale."""
    place = function.place
    known = [one for compiled in function.compiles for one in compiled.traced if one.place == place]
    if place is None or not known:
        return ""
    lines, digests = source_lines(place.path), session.sources.get(place.path, [])
    all_lines = {line for one in known for line in one.lines}
    traced = {line for one in known for line in one.traced}
    broken = {one.place.line for compiled in function.compiles for one in compiled.breaks if one.place is not None}
    shown = []
    for number in range(min(all_lines), max(all_lines) + 1):
        text = lines[number - 1] if number <= len(lines) else ""
        if number > len(digests) or number > len(lines) or digest_of_line(text) != digests[number - 1]:
            return ""
        kind = "broken" if number in broken else "never" if number in all_lines - traced else ""
        shown.append(f"<span class='{kind}'>{number:5}  {escape(text)}</span>")
    return "\n".join(shown)


def _compile(compiled: Compile) -> str:
    phases = ", ".join(f"{name} {spent:.2f} s" for name, spent in compiled.phases.items())
    facts = [compiled.state, f"{compiled.seconds:.2f} s" if compiled.seconds is not None else "", phases]
    facts += [f"backend {compiled.backend}" if compiled.backend else ""]
    title = f"{compiled.name} [{compiled.id}]: {', '.join(one for one in facts if one)}"
    parts = [f"<p>{_at('Called', compiled.caller)}</p>" if compiled.caller else ""]
    parts += [
        f"<p>[{escape(one.compile_id)}] did not serve: {escape(one.text or one.expression)}{_at('', one.place)}</p>"
        for one in compiled.failures
    ]
    parts += [f"<p>Specialized: {escape(one.expression)}{_at('', one.place)}</p>" for one in compiled.specializations]
    parts += [
        f"<p>Attempt {one.number} started again: {escape(one.restarted.splitlines()[0])}</p>"
        for one in compiled.attempts
        if one.restarted
    ]
    parts += [_graph(graph, compiled) for graph in compiled.graphs]
    parts.append(_guards(compiled))
    if compiled.generated:
        parts.append(_folded("Generated bytecode", f"<pre>{escape(compiled.generated)}</pre>"))
    parts += [f"<p>The backend wrote <code>{escape(path)}</code></p>" for path in compiled.artifacts]
    return _folded(title, "".join(parts))


def _graph(graph: Graph, compiled: Compile) -> str:
    title = f"{graph.name}: {graph.operation_count} operations"
    return _folded(title, f"<pre>{escape(readable_graph(graph, compiled.name))}</pre>")


def _guards(compiled: Compile) -> str:
    rows = [
        f"<tr><td>{escape(one.text or one.expression)}</td><td>{escape(one.type)}{_at('', one.place)}</td></tr>"
        for one in compiled.guards[:_GUARDS]
    ]
    more = compiled.guard_count - len(rows)
    rest = f"<p class='note'>{more} more</p>" if more > 0 else ""
    return _folded(f"{compiled.guard_count} guards", f"<table>{''.join(rows)}</table>{rest}") if rows else ""


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{text}</details>"


def _skipped(session: Session) -> Iterator[str]:
    if session.skipped:
        yield "<h2>Skipped</h2>"
    for one in session.skipped:
        yield f"<p>{escape(one.name)}{_at('', one.place)}: {escape(one.reason)}</p>"
