"""Shows what torch.compile made, as a list for a terminal and as tables for a notebook.

Every text is escaped: functions may have any names, and torch's messages may quote the program's values. The module
asks IPython for the names of cells, and has no side effects.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from dynamo_dap.checking.recorded import AtLine, Compile, Recorded
from dynamo_dap.protocol.texts import counted

_ROWS = 100
_LONGEST = 500


def as_line(recorded: Recorded) -> str:
    """Return a summary in one line."""
    counts = [
        counted(sum(len(one.graphs) for one in recorded.compiles), "graph"),
        counted(len(recorded.breaks), "graph break"),
        counted(len(recorded.recompiles), "recompile"),
        *([counted(len(recorded.skips), "skipped function")] if recorded.skips else []),
    ]
    seconds = sum(one.seconds or 0.0 for one in recorded.compiles)
    return f"{', '.join(counts)}; {counted(len(recorded.compiles), 'compile')} in {seconds:.2f} s"


def as_text(recorded: Recorded, problem: str | None) -> str:
    """Return a list for a terminal: what to fix, with the lines, then each compile."""
    lines = [as_line(recorded), *([problem] if problem else [])]
    findings = list(_findings(recorded))
    for place, source, what, why, hints in findings[:_ROWS]:
        lines.append(f"{place}  {what}: {why}" if why else f"{place}  {what}")
        lines += [f"    {source}"] if source else []
        lines += [f"    hint (not tried): {hint}" for hint in hints]
    lines += [f"{len(findings) - _ROWS} more"] if len(findings) > _ROWS else []
    rows = [_COMPILES, *(_of_compile(one) for one in recorded.compiles[:_ROWS])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if recorded.compiles:
        lines += [
            "  ".join(map(_padded, row, widths, [False, False, False, True, True, True, False])).rstrip()
            for row in rows
        ]
    lines += [f"{len(recorded.compiles) - _ROWS} more"] if len(recorded.compiles) > _ROWS else []
    return "\n".join(lines)


def _padded(text: str, width: int, is_number: bool) -> str:
    return text.rjust(width) if is_number else text.ljust(width)


def as_html(recorded: Recorded, problem: str | None) -> str:
    """Return tables, styled by the notebook."""
    parts = [f"<p><b>torch.compile</b>: {escape(as_line(recorded))}</p>"]
    parts += [f"<p>{escape(problem)}</p>"] if problem else []
    findings = [
        [
            escape(what),
            escape(place),
            _code(source),
            escape(_bounded(why)),
            "<br>".join(escape(_bounded(one)) for one in hints),
        ]
        for place, source, what, why, hints in _findings(recorded)
    ]
    if findings:
        parts.append(_table(("", "at", "line", "why", "what to do (not tried)"), findings))
    if recorded.compiles:
        rows = [[escape(_bounded(text)) for text in _of_compile(one)] for one in recorded.compiles]
        parts.append(_table(_COMPILES, rows))
    return "".join(parts)


_LEFT = ' style="text-align: left"'


def _code(source: str) -> str:
    return f"<code>{escape(_bounded(source))}</code>" if source else ""


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th{_LEFT}>{escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td{_LEFT}>{cell}</td>' for cell in row)}</tr>" for row in rows[:_ROWS])
    more = f"<p>{len(rows) - _ROWS} more</p>" if len(rows) > _ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _bounded(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def _findings(recorded: Recorded) -> Iterator[tuple[str, str, str, str, Iterable[str]]]:
    """Yield place, source line, kind, reason and hints."""
    for failed in recorded.compiles:
        if failed.state == "failed":
            problem = (failed.problem or "").strip().partition("\n")[0]
            yield _at(failed), failed.source, f"{failed.name} could not be compiled", problem, ()
    for one in recorded.breaks:
        yield _at(one), one.source, f"graph break in {one.function}", one.reason, one.hints
    for again in recorded.recompiles:
        why = "; ".join(dict.fromkeys(failed.text for failed in again.failed))
        # The line that caused the guard says more than the function's.
        line = next((failed for failed in again.failed if failed.path is not None), again)
        yield _at(line), line.source, f"recompile of {again.function}", why, ()
    for skip in recorded.skips:
        yield _at(skip), skip.source, f"{skip.function} is not compiled", skip.reason, ()


_COMPILES = ("compile", "function", "at", "graphs", "operations", "seconds", "")


def _of_compile(one: Compile) -> tuple[str, ...]:
    operations = sum(graph.operations for graph in one.graphs)
    seconds = "" if one.seconds is None else f"{one.seconds:.2f}"
    state = "" if one.state == "compiled" else one.state
    return one.id, one.name, _at(one), str(len(one.graphs)), str(operations), seconds, state


def _at(one: AtLine) -> str:
    if one.path is None:
        return "?"
    return f"{_name_of_cell(one.path) or Path(one.path).name}:{one.line}"


def _name_of_cell(path: str) -> str | None:
    """Return the notebook's name ``In[3]`` for IPython's file name of a cell."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    # In IPython 8 and newer.
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)
    named = None if name_of is None or Path(path).exists() else name_of(path)
    return None if named is None else str(named[1])
