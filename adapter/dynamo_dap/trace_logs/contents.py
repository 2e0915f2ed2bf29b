"""Lists and extracts what a trace log holds for each compile: graphs, guards, code, artifacts, chromium events.

Reads the log as a stream, and decodes the payload of what is asked for only. One thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from dynamo_dap.records.file import UnreadableRecord
from dynamo_dap.trace_logs.compiles import UNWANTED
from dynamo_dap.trace_logs.entries import Context, Entry, LogReader

_WITHOUT = UNWANTED | {"str", "dynamo_start"}


@dataclass(frozen=True)
class Content:
    """One piece of a log that can be extracted."""

    compile_id: str
    """``-`` for what belongs to no compile."""
    attempt: int
    name: str
    """``dynamo_output_graph``, ``fx_graph_cache_miss``; a further one of the compile has a number: ``...#2``."""
    size: int
    """Bytes."""
    is_whole: bool
    """Whether the payload has the digest that torch wrote."""
    entry: Entry


def contents_of(log: Path) -> Iterator[Content]:
    """Yield every piece with a text of its own, in the order of the log.

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
    """Return the text of one piece: its payload, or the entry's JSON where it has none.

    Raises:
        UnreadableRecord: there is none of that name.
    """
    for content in contents_of(log):
        if content.compile_id == compile_id and content.name == name:
            entry = content.entry
            return entry.payload if entry.content else msgspec.json.format(entry.metadata, indent=2).decode()
    raise UnreadableRecord(f"there is no {name} of compile {compile_id} in {log}: see dynamo-dap report --contents")


def write_chromium_events(log: Path, output: BinaryIO) -> int:
    """Write torch's timeline as a trace that ui.perfetto.dev opens; return how many events there are.

    Raises:
        UnreadableRecord: the log cannot be read.
    """
    written = 0
    output.write(b"[")
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
    output.write(b"\n]\n")
    return written
