"""``dynamo-dap report``: shows the working directory's newest record as a summary, as JSON, as a page or in tlparse.

Runs on the command's main thread.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import webbrowser
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Protocol

import msgspec
from rich.console import Console

from dynamo_dap.protocol.output_files import check_output, write_output
from dynamo_dap.records.events import Ended, Record, Started
from dynamo_dap.records.file import RecordScan, UnreadableRecord, read_record
from dynamo_dap.records.folders import records_folder, records_in, records_of_others
from dynamo_dap.records.model import Compile, CompiledFunction, Counts, SkippedFrame
from dynamo_dap.records.report.html_report import html_report
from dynamo_dap.records.report.rank_report import print_ranks, ranks_as_html
from dynamo_dap.records.report.ranks import compare_ranks, records_of_ranks
from dynamo_dap.records.report.stack_tree import print_stacks
from dynamo_dap.records.report.text_report import print_report

_TLPARSE_SECONDS = 120
_WIDTH = 120
_NO_FUNCTIONS = b'"functions": []'
"""The empty list of functions in a record's JSON. It occurs only once, since quotes inside texts are escaped."""
_OTHERS = 8
"""The most records of child processes that are listed."""


class Reading(Protocol):
    """A large file of which a part has been read."""

    record: Record
    """The record as far as it has been read."""

    def progress(self) -> str:
        """Return which part has been read: ``43% of 2.1 GB``."""


@dataclass(frozen=True)
class Source:
    """Functions that read records from our own files, or from those of another program."""

    read: Callable[[Path, Callable[[Reading], None]], Record] = lambda path, _: read_record(path)
    """Reads a file. For a large file, calls the given function once the beginning has been read."""
    ranks: Callable[[Path], dict[int, Record]] = records_of_ranks
    others: Callable[[Path], list[Path]] = records_of_others
    """Returns the other files of the same run."""


def main(reader: argparse.ArgumentParser, options: argparse.Namespace, source: Source | None = None) -> int:
    """Print a report; return the exit status: 1 if there is nothing to report."""
    source = source or Source()
    if options.ranks and (options.html or options.tlparse):
        reader.error("--ranks cannot be combined with --html, whose page of a rank includes it, or --tlparse")
    if options.try_all and (options.html or options.tlparse or options.json or options.ranks):
        reader.error("--try cannot be combined with --html, --json, --tlparse or --ranks")
    if options.stacks and (options.html or options.tlparse or options.json or options.ranks):
        reader.error("--stacks cannot be combined with --html, whose page has the stacks, --json, --tlparse or --ranks")
    try:
        file = chosen_record(options.record)
        if options.ranks:
            return _compare_ranks(source.ranks(file), as_json=options.json)
        beginning = _Beginning(options, file)
        with beginning:
            record = source.read(file, beginning.show)
        if options.html:
            page = write_page(record, file, source)
            return 0 if beginning.page == page else _shown(page, show=not options.no_browser)
        if options.tlparse:
            return _shown(_tlparse(record, file), show=not options.no_browser)
    except UnreadableRecord as problem:
        print(f"dynamo-dap: {problem}", file=sys.stderr)  # noqa: T201 - the user of a terminal reads it
        return 1
    if options.json:
        sys.stdout.writelines(map(bytes.decode, json_parts(record)))
        sys.stdout.write("\n")
    else:
        console = report_console()
        print_report(record, console)
        _report_others(record, file, source.others(file), console)
        if options.stacks:
            print_stacks(record, console)
    return 0


class _Beginning:
    """Shows a report on the beginning of a large log while the rest is being read."""

    def __init__(self, options: argparse.Namespace, file: Path) -> None:
        self.page: Path | None = None
        """The page of the beginning, if it was shown."""
        self._options = options
        self._file = file
        self._reading: Reading | None = None

    def show(self, reading: Reading) -> None:
        """Print the report in a terminal, or open it as a page, which reloads until the complete page replaces it."""
        self._reading, console = reading, report_console()
        if self._options.html:
            self.page = write_beginning(reading, self._file)
            _shown(self.page, show=not self._options.no_browser)
        elif console.is_terminal and not self._options.json:
            print_report(reading.record, console)
            beginning = f"This is the beginning: {reading.progress()}. Below is the report on all of it."
            console.print(f"[bold]{beginning}[/bold]\n")

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is not None and self._reading is not None and self.page is not None:
            write_stopped(self._reading, self._file)


def report_console() -> Console:
    """Return the console for reports."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _WIDTH
    return console


def _compare_ranks(records: dict[int, Record], *, as_json: bool) -> int:
    compared = compare_ranks(records)
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(compared), indent=2).decode() + "\n")
    else:
        print_ranks(compared, records, report_console())
    return 0


def _report_others(record: Record, file: Path, others: list[Path], console: Console) -> None:
    started = record.started
    is_log = started is not None and started.log is not None
    if started is not None and started.rank is not None and ((started.rank.of or 0) > 1 or (is_log and others)):
        command = f"dynamo-dap report --ranks {shlex.quote(str(file))}"
        console.print(f"\nThis is {started.rank}; to compare all ranks: {command}", markup=False)
    if others:
        whose = (
            "other processes wrote logs in that folder:"
            if is_log
            else "of its child processes also compiled something:"
        )
        console.print(f"\n{len(others)} {whose}")
    for other in others[:_OTHERS]:
        console.print(f"  dynamo-dap report {shlex.quote(str(other))}", markup=False)
    if len(others) > _OTHERS:
        console.print(f"  and {len(others) - _OTHERS} more there", markup=False)


def chosen_record(given: Path | None, directory: Path | None = None) -> Path:
    """Return the given record; otherwise the newest one of ``directory`` with a finished compile, or else the newest.

    Without ``directory``, use the working directory.

    Raises:
        UnreadableRecord: no record was given, and the directory has none.
    """
    if given is not None:
        return given
    folder = records_folder(directory or Path.cwd())
    found = records_in(folder)
    if not found:
        raise UnreadableRecord(f"no program has been recorded in this directory (looked in {folder})")
    finished = next((path for path in reversed(found) if RecordScan(path).has_finished()), None)
    if finished is not None and finished != found[-1]:
        print(f"dynamo-dap: no compile was finished in {found[-1].name}; this is the run before", file=sys.stderr)  # noqa: T201 - the user of a terminal reads it
    return finished or found[-1]


class JsonRecord(msgspec.Struct):
    """The output of ``--json``: the whole record."""

    started: Started | None
    ended: Ended | None
    truncated: bool
    """Whether the record reached its size limit."""
    counts: Counts
    functions: list[CompiledFunction]
    skipped: list[SkippedFrame]


def as_json(record: Record) -> bytes:
    """Return a whole record as the JSON of ``JsonRecord``."""
    return b"".join(json_parts(record))


def json_parts(record: Record) -> Iterator[bytes]:
    """Yield the JSON of ``JsonRecord``, one function at a time: that of a large trace log may have 100 MB."""
    body = JsonRecord(record.started, record.ended, record.is_truncated, record.counts(), [], record.skipped)
    head, mark, tail = msgspec.json.format(msgspec.json.encode(body), indent=2).partition(_NO_FUNCTIONS)
    if not record.functions:
        yield head + mark + tail
        return
    yield head + _NO_FUNCTIONS[:-1]
    for number, function in enumerate(record.functions):
        text = msgspec.json.format(msgspec.json.encode(function), indent=2)
        # This only indents: a string in JSON contains no line feed.
        yield (b",\n    " if number else b"\n    ") + text.replace(b"\n", b"\n    ")
    yield b"\n  ]" + tail


def _trace_of(record: Record, file: Path) -> Path | None:
    """Return the folder of torch's own trace.

    Raises:
        UnreadableRecord: the folder is not beside the record. Such a record may come from anybody and name any folder.
    """
    if record.started is None or record.started.trace is None:
        return None
    trace = Path(record.started.trace)
    if not Path(os.path.realpath(trace)).is_relative_to(os.path.realpath(file.parent)):
        raise UnreadableRecord(f"the record's trace is outside of its folder: read it with: tlparse {trace}")
    return trace


def _ranks_beside(record: Record, file: Path, source: Source) -> str:
    """Return the comparison of the job's ranks as a part of a page; empty if there are no other ranks."""
    rank = None if record.started is None else record.started.rank
    is_log = record.started is not None and record.started.log is not None
    if rank is None or ((rank.of or 0) < 2 and not (is_log and source.others(file))):
        return ""
    try:
        records = source.ranks(file)
        return ranks_as_html(compare_ranks(records), records)
    except UnreadableRecord as problem:
        return f"<p class='note'>{escape(str(problem))}</p>"


def write_page(
    record: Record, file: Path, source: Source | None = None, *, part: str = "", reloads: bool = False
) -> Path:
    """Write the report as a page beside the record, and return its path.

    For ``part`` and ``reloads`` see ``html_report``.

    Raises:
        UnreadableRecord: the page cannot be written.
    """
    if file.name in ("", ".."):
        file = file.resolve()
    page = file.with_name(f"{file.name}.html") if file.is_dir() else file.with_suffix(".html")
    try:
        trace: Path | None = _tlparse(record, file)
    except UnreadableRecord:
        # Our own page needs neither a trace nor tlparse.
        trace = None
    parts = html_report(
        record,
        _links_to(trace),
        lambda compiled: _page_of(compiled, trace),
        _ranks_beside(record, file, source or Source()) if not part else "",
        part=part,
        reloads=reloads,
    )
    # A browser may reload the page that this one replaces.
    written = page.with_name(f".{page.name}.part")
    try:
        check_output(page)
        write_output(written, parts, is_private=True)
        written.replace(page.resolve())
    except OSError as error:
        raise UnreadableRecord(f"cannot write {page}: {error.strerror or error}") from None
    return page


def write_beginning(reading: Reading, file: Path) -> Path:
    """Write the page on the part that has been read, which reloads until another page replaces it; return its path.

    Raises:
        UnreadableRecord: the page cannot be written.
    """
    part = f"This page is about {reading.progress()} so far. It reloads until the whole log has been read."
    return write_page(reading.record, file, part=part, reloads=True)


def write_stopped(reading: Reading, file: Path) -> None:
    """Replace the page of ``write_beginning`` after reading was stopped: that page would reload forever.

    Raises:
        UnreadableRecord: the page cannot be written.
    """
    part = f"This page is about {reading.progress()}: then the reading was stopped."
    write_page(reading.record, file, part=part)


def _links_to(trace: Path | None) -> dict[str, str]:
    """Return links to tlparse's index page and its chromium trace, by title."""
    if trace is None:
        return {}
    links = {"Torch's own trace, by tlparse": trace.as_uri()}
    events = trace.with_name("chromium_events.json")
    return {**links, "Chromium trace, for ui.perfetto.dev": events.as_uri()} if events.exists() else links


def _page_of(compiled: Compile, trace: Path | None) -> str | None:
    """Return the address of tlparse's page on the last attempt of a compile."""
    if trace is None or not _COMPILE_ID.fullmatch(compiled.id):
        return None
    pages = trace.parent.glob(f"-_{compiled.id.replace('/', '_')}_*/compilation_metrics_*.html")
    last = max(pages, key=lambda page: int(page.parent.name.rpartition("_")[2]), default=None)
    return None if last is None else last.as_uri()


_COMPILE_ID = re.compile(r"\d+/\d+")


def _shown(page: Path, *, show: bool) -> int:
    print(page)  # noqa: T201 - the user of a terminal reads it
    if show:
        webbrowser.open(page.absolute().as_uri())
    return 0


def _tlparse(record: Record, file: Path) -> Path:
    """Run tlparse on torch's own trace, and return its index page.

    Raises:
        UnreadableRecord: the trace or tlparse is missing, or tlparse failed.
    """
    trace = _trace_of(record, file)
    if trace is None or not trace.is_dir() or not any(trace.iterdir()):
        raise UnreadableRecord('no trace was taken: launch with "trace": true, or use dynamo-dap run --trace')
    tlparse = shutil.which("tlparse", path=str(Path(sys.executable).parent)) or shutil.which("tlparse")
    if tlparse is None:
        raise UnreadableRecord("tlparse is not installed; run: pip install tlparse")
    logs = sorted(trace.glob("*.log"), key=lambda path: path.stat().st_size)
    if not logs:
        raise UnreadableRecord(f"{trace} has no log")
    output = trace / "tlparse"
    command = [tlparse, str(logs[-1]), "-o", str(output), "--overwrite", "--no-browser"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TLPARSE_SECONDS, check=False)
    page = output / "index.html"
    if done.returncode != 0 or not page.exists():
        raise UnreadableRecord(f"tlparse failed: {(done.stderr or done.stdout).strip()[-1000:]}")
    return page
