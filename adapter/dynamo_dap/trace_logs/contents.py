"""Lists and extracts a trace log's content for each compile: graphs, guards, code, artifacts, chromium events.

Streams the log, and decodes only the requested payload. Runs on one thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from dynamo_dap.protocol.output_files import GENERATOR
from dynamo_dap.records.file import UnreadableRecord
from dynamo_dap.trace_logs.compiles import UNWANTED
from dynamo_dap.trace_logs.entries import Context, Entry, LogReader

_WITHOUT = UNWANTED | {"str", "dynamo_start"}


@dataclass(frozen=True)
class Content:
    """One piece of a log that can be extracted."""

    compile_id: str
    """``-`` for content without a compile."""
    attempt: int
    name: str
    """``dynamo_output_graph``, ``fx_graph_cache_miss``; the second one of a compile is ``...#2``."""
    size: int
    """Bytes."""
    is_whole: bool
    """Whether the payload matches torch's digest, so nothing is missing."""
    entry: Entry


def contents_of(log: Path) -> Iterator[Content]:
    """Yield every piece that has a text, in the log's order.

    Raises:
        UnreadableRecord: the log cannot be read.
    """
    counts: Counter[tuple[str, str]] = Counter()
    try:
        for entry in LogReader(log, _WITHOUT):
            try:
                context = msgspec.json.decode(entry.metadata, type=Context)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                continue
            name = entry.name or entry.kind
            identifier = context.compile_id or "-"
            counts[identifier, name] += 1
            number = counts[identifier, name]
            size = len(entry.content) or len(entry.metadata)
            yield Content(
                identifier,
                context.attempt,
                name if number == 1 else f"{name}#{number}",
                size,
                entry.is_whole(context.has_payload),
                entry,
            )
    except OSError as error:
        raise UnreadableRecord(f"cannot read {log}: {error.strerror or error}") from None


def text_of(log: Path, compile_id: str, name: str) -> str:
    """Return the text of one piece: its payload, or else the entry's JSON.

    Raises:
        UnreadableRecord: the log has no piece of that name.
    """
    for content in contents_of(log):
        if content.compile_id == compile_id and content.name == name:
            entry = content.entry
            return entry.payload if entry.content else msgspec.json.format(entry.metadata, indent=2).decode()
    raise UnreadableRecord(f"{log} has no {name} of compile {compile_id}: see dynamo-dap report --contents")


def write_chromium_events(log: Path, output: BinaryIO) -> int:
    """Write torch's timeline as a trace that ui.perfetto.dev opens; return the number of events.

    Raises:
        UnreadableRecord: the log cannot be read.
    """
    written = 0
    # The generator marks the file as ours, so that it may be written again.
    output.write(b'{"generator": "%s", "traceEvents": [' % GENERATOR.encode())
    try:
        for entry in LogReader(log):
            if entry.kind != "chromium_event":
                continue
            try:
                event = msgspec.json.encode(msgspec.json.decode(entry.payload.encode()))
            except (msgspec.DecodeError, RecursionError):
                continue
            output.write((b",\n" if written else b"\n") + event)
            written += 1
    except OSError as error:
        raise UnreadableRecord(f"cannot read {log}: {error.strerror or error}") from None
    output.write(b"\n]}\n")
    return written
