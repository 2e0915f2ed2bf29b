"""Prints explored compiles in a terminal: the stages, the kernels of each line, a stage with its changes.

Runs on the command's main thread.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table

from dynamo_dap.explore.model import Document, Explored, Links, Part
from dynamo_dap.protocol.texts import counted, short_paths
from dynamo_dap.records.texts import source_line

_LOST = 8
"""The most operations without a line that are named."""
_REASONS = 4
"""The most reasons that are named for one line."""


def print_overview(compiled: Explored, console: Console) -> None:
    """Print the stages of a compile, then its lines with the kernels that compute them."""
    _head(compiled, console)
    table = Table(box=None, pad_edge=False, show_header=False)
    for document in compiled.documents:
        table.add_row(f"  [cyan]{document.id}[/cyan]", escape(document.title), _summary(document))
    console.print(table)
    for text in _peaks(compiled):
        console.print(f"  {escape(text)}")
    _print_lines(compiled, console)
    console.print("[dim]--stage NAME shows a stage, --line FILE:LINE a line at each stage, --html FILE all of it[/dim]")
    console.print()


def _head(compiled: Explored, console: Console) -> None:
    place = f"{os.path.relpath(compiled.place.path)}:{compiled.place.line}"
    console.print(
        f"[bold]{escape(compiled.name)}[/bold] [{compiled.id}] [dim]{escape(place)}[/dim]".replace("[0", "\\[0")
    )


def _summary(document: Document) -> str:
    parts = [counted(document.operations, "operation")] if document.operations else []
    if document.before is not None:
        changed = sum(line[:1] in "+-" for line in _difference(document))
        parts.append(f"{counted(changed, 'line')} changed" if changed else "nothing changed")
    if document.lost:
        more = " …" if len(document.lost) > _LOST else ""
        parts.append(f"[yellow]without a known line: {escape(', '.join(document.lost[:_LOST]))}{more}[/yellow]")
    return ", ".join(parts)


def _peaks(compiled: Explored) -> list[str]:
    """Return the memory peak of each pass, with its lines; of several kernels at the peak, the first."""
    links = Links(compiled.documents)
    found = []
    for document in compiled.documents:
        part = next((each for each in document.parts if each.is_peak), None)
        if document.id.endswith("-kernels") and part is not None:
            places = [line.place for line in links.lines_of(f"{document.id}:{part.name}")]
            names = short_paths(place.path for place in places)
            lines = ", ".join(f"{names[place.path]}:{place.line}" for place in places)
            direction = document.id.partition("-")[0]
            text = f"peak of the {direction} pass: {_size(part.memory or 0)} in use"
            found.append(f"{text}{f' at {lines}' if lines else ''}, in {part.name}")
    return found


def kernels_by_line(compiled: Explored) -> dict[tuple[str, int], dict[str, list[str]]]:
    """Return the kernels that compute each user's line: names by document."""
    found: dict[tuple[str, int], dict[str, list[str]]] = {}
    for document in compiled.documents:
        if document.id.endswith("-kernels"):
            for part in document.parts:
                for each in part.lines:
                    at = document.places[each].place
                    found.setdefault((at.path, at.line), {}).setdefault(document.id, []).append(part.name)
    return dict(sorted(found.items()))


def costs(part: Part) -> str:
    """Return the cost of a part: ``reads 160 B, writes 96 B, 384 FLOPs``; empty if unknown."""
    texts = [
        part.read is not None and f"reads {_size(part.read)}",
        part.written is not None and f"writes {_size(part.written)}",
        part.flops is not None and f"{part.flops:,} FLOPs",
        part.memory is not None and f"{_size(part.memory)} in use" + (", the peak of its pass" if part.is_peak else ""),
        part.saved is not None and f"{_size(part.saved)} saved for the backward pass",
        part.recomputed is not None and f"{_size(part.recomputed)} computed again in the backward pass",
    ]
    return ", ".join(each for each in texts if each)


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def _print_lines(compiled: Explored, console: Console) -> None:
    lines = kernels_by_line(compiled)
    names = short_paths(path for path, _ in lines)
    links = Links(compiled.documents)
    for path in dict.fromkeys(path for path, _ in lines):
        console.print(f"\n  [dim]{escape(names[path])}[/dim]")
        for (of, line), kernels in lines.items():
            if of == path:
                console.print(f"  [dim]{line:5}[/dim]  {escape(source_line(path, line))}")
                for document, found in kernels.items():
                    direction = document.partition("-")[0]
                    for name in dict.fromkeys(found):
                        text = costs(links.parts[f"{document}:{name}"])
                        console.print(f"         [dim]{direction}:[/dim] {escape(name)} [dim]{escape(text)}[/dim]")
                for text in _facts(links, path, line):
                    console.print(f"         [dim]{escape(text)}[/dim]")


def _facts(links: Links, path: str, line: int) -> list[str]:
    """Return further facts about a line: values saved for the backward pass, reasons against fusion."""
    became = links.became(links.of_line(path, line, with_callers=False))
    found = [
        f"{part.name}: {costs(part)}"
        for document in ("forward", "backward")
        for part in links.in_document(became, document)
        if part.saved or part.recomputed
    ]
    # A kernel has the reasons of all its lines: show those of this line.
    reasons = {
        f"{part.name}: {each}": None
        for name in sorted(became)
        if not name.partition(":")[0].endswith(("-kernels", "-ir"))
        for part in [links.parts[name]]
        for each in part.why
    }
    more = len(reasons) - _REASONS
    return sorted(found) + list(reasons)[:_REASONS] + ([f"and {counted(more, 'more reason')}"] if more > 0 else [])


def print_stage(compiled: Explored, console: Console) -> None:
    """Print the documents of a compile: in full, or only the changes of passes."""
    _head(compiled, console)
    for document in compiled.documents:
        console.print(f"[bold cyan]{document.id}[/bold cyan]: {escape(document.title)}", _summary(document))
        if document.before is None:
            _print_code(document.text, document.language, console)
        else:
            changes = _difference(document)
            _print_code(document.text if not changes else "\n".join(changes), "diff" if changes else "python", console)
        console.print()


def _difference(document: Document) -> list[str]:
    before = (document.before or "").splitlines()
    found = difflib.unified_diff(before, document.text.splitlines(), "before", "after", lineterm="", n=3)
    return list(found)[2:]


def _print_code(text: str, language: str, console: Console) -> None:
    if console.is_terminal:
        console.print(Syntax(text, language, theme="ansi_dark", background_color="default", word_wrap=True))
    else:
        console.file.write(text.rstrip("\n") + "\n")


def print_counterparts(compiled: Explored, place: str, console: Console) -> None:
    """Print the parts of each stage that compute a user line."""
    file, _, line = place.rpartition(":")
    links = Links(compiled.documents)
    names = {
        name
        for path in _paths(compiled.documents)
        if not file or path == str(Path(file).absolute()) or path.endswith(f"/{file}")
        for name in (links.of_line(path, int(line)) if line.isdigit() else ())
    }
    if not names:
        return
    _head(compiled, console)
    everything = links.became(names)
    for document in compiled.documents:
        parts = sorted(links.in_document(everything, document.id), key=lambda part: part.first)
        if parts:
            console.print(f"[cyan]{document.id}[/cyan]")
            lines = document.text.splitlines()
            for part in parts:
                text = lines[part.first - 1].strip() if part.last == part.first else part.name
                console.print(f"  [dim]{part.first:5}[/dim] {escape(text)} [dim]{escape(costs(part))}[/dim]")
                for each in [*part.lowerings, *part.why]:
                    console.print(f"          [dim]{escape(each)}[/dim]")
    console.print()


def _paths(documents: Iterable[Document]) -> list[str]:
    return list(dict.fromkeys(line.place.path for document in documents for line in document.places))
