"""Prints which lines of the extension ran in VS Code, from what its process wrote: ``make coverage-vscode``.

``python -m tests.coverage.extension FOLDER`` reads the reports of V8 in ``FOLDER``. They count the code that runs in
the extension host, not that of the pages in the browser.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from tests.coverage.tables import Counted, tables

BUNDLE = Path(__file__).resolve().parents[2] / "vscode-extension" / "out" / "extension.cjs"
_SOURCES = "/src/"
_DIGITS = {
    digit: value for value, digit in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
}


def main() -> None:
    """Print the tables."""
    text = BUNDLE.read_text(encoding="utf-8")
    executed = bytearray(len(text))
    for file in Path(sys.argv[1]).glob("coverage-*.json"):
        for script in json.loads(file.read_bytes())["result"]:
            if script["url"].endswith(f"/out/{BUNDLE.name}"):
                _add(executed, script["functions"])
    if not any(executed):
        sys.exit(f"{sys.argv[1]} has no report of the extension")
    lines = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
    mapped = json.loads(BUNDLE.with_suffix(".cjs.map").read_bytes())
    for line in tables(dict(_counted(executed, lines, mapped))):
        sys.stdout.write(line + "\n")


def _add(executed: bytearray, functions: list[dict[str, Any]]) -> None:
    """Add what one report counts: an inner range says more than the ranges around it."""
    here = bytearray(len(executed))
    for function in functions:
        for part in function["ranges"]:
            start, end = part["startOffset"], min(part["endOffset"], len(here))
            here[start:end] = bytes([part["count"] > 0]) * (end - start)
    united = int.from_bytes(executed, "little") | int.from_bytes(here, "little")
    executed[:] = united.to_bytes(len(executed), "little")


def _counted(executed: bytearray, lines: list[int], mapped: dict[str, Any]) -> Iterator[tuple[str, Counted]]:
    """Yield the counts of each source: a line ran if any of its code did."""
    ran: list[dict[int, bool]] = [{} for _ in mapped["sources"]]
    for line, column, source, source_line in _segments(mapped["mappings"]):
        offset = lines[line] + column
        did_run = offset < len(executed) and bool(executed[offset])
        ran[source][source_line] = ran[source].get(source_line, False) or did_run
    for url, found in zip(mapped["sources"], ran, strict=True):
        _, separator, path = url.rpartition(_SOURCES)
        if separator and "/node_modules/" not in url:
            yield path, Counted(len(found), sum(found.values()))


def _segments(mappings: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield the line, column, source and line in the source of each part of a source map."""
    source = source_line = 0
    for line, text in enumerate(mappings.split(";")):
        column = 0
        for each in filter(None, text.split(",")):
            numbers = list(_numbers(each))
            column += numbers[0]
            if len(numbers) > 1:
                source += numbers[1]
                source_line += numbers[2]
                yield line, column, source, source_line


def _numbers(text: str) -> Iterator[int]:
    """Yield the numbers of a segment, in base 64 with the sign last."""
    value = shift = 0
    for digit in map(_DIGITS.__getitem__, text):
        value |= (digit & 31) << shift
        shift += 5
        if not digit & 32:
            yield -(value >> 1) if value & 1 else value >> 1
            value = shift = 0


if __name__ == "__main__":
    main()
