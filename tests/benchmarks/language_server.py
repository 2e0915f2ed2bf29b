"""What the language server costs on a record of 47 MB: the first diagnostics, a hover and hints after each keystroke.

    python -m tests.benchmarks.language_server

The records are made here, with events as the recorder writes them, of a file of 2000 lines. In one, values and nodes
take the room, in the other the guards of large models, with what is not ASCII in them.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE
from dynamo_dap.records.events import (
    VERSION,
    BreakFound,
    CompileBegan,
    CompileEnded,
    Ended,
    GraphMade,
    GuardsMade,
    SourceRead,
    Started,
    Traced,
)
from dynamo_dap.records.file import RecordWriter
from dynamo_dap.records.folders import records_folder
from dynamo_dap.records.model import Graph, GraphBreak, Guard, Node, Place, TracedFunction, TracedValue
from dynamo_dap.records.texts import digest_of_line
from tests.language_server.editor import Editor

_LINES = 200
_FUNCTIONS = 10
_KEYSTROKES = 60
_BOUND = 1 << 30
_SIZE = 47e6


def _make(folder: Path, guards_of_compile: int, values_of_compile: int) -> Path:
    """Write a module of many functions and a record of it; return the module."""
    path = folder / "model.py"
    lines: list[str] = []
    for function in range(_FUNCTIONS):
        lines += [
            f"def fn{function}(x):",
            *(f"    v{number} = x + {number}" for number in range(1, _LINES)),
            "    return x",
        ]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    record = records_folder(folder) / "20260101-000000-000000000-1.jsonl"
    writer = RecordWriter(record, details_bound=_BOUND, bound=_BOUND)
    writer.write(Started(VERSION, 1.0, 1, [str(path)], str(folder), "3.13"))
    writer.write(SourceRead(str(path), "".join(map(digest_of_line, lines))))
    number = 0
    while record.stat().st_size < _SIZE:
        _write_compile(writer, path, number, guards_of_compile, values_of_compile)
        number += 1
    writer.write(Ended(1000.0))
    sys.stdout.write(f"{record.stat().st_size / 1e6:.0f} MB in {number} compiles\n")
    return path


def _write_compile(writer: RecordWriter, path: Path, number: int, guard_count: int, value_count: int) -> None:
    identifier, name = f"{number % _FUNCTIONS}/{number // _FUNCTIONS}", f"fn{number % _FUNCTIONS}"
    begin = number % _FUNCTIONS * (_LINES + 1) + 1
    place = Place(str(path), begin)
    keys = "DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, AutogradCPU…"
    text = f"check_tensor(L['x'], Tensor, {keys}), torch.float32, size=[3, 4], stride=[4, 1])"
    guards = [
        Guard(text, "TENSOR_MATCH", Place(str(path), begin + 1 + one % 190), f"v{1 + one % 199}.weight", text[:60])
        for one in range(guard_count)
    ]
    nodes = [
        Node(f"add_{one}", "call_function", "operator.add", "f32[3, 4] cpu", Place(str(path), begin + 1), "x + 1")
        for one in range(150)
    ]
    every = list(range(begin, begin + _LINES))
    values = [
        TracedValue(f"v{1 + one % 199}", "f32[3, 4]", Place(str(path), begin + 1 + one % 199, 5), None, True)
        for one in range(value_count)
    ]
    writer.write(CompileBegan(identifier, name, name, place, place, 1.0 + number, caller=place))
    writer.write(BreakFound(identifier, GraphBreak("a break", Place(str(path), begin + 1 + number % 100), stack=[])))
    writer.write(GraphMade(identifier, Graph(0, "graph", len(nodes), len(nodes), nodes)))
    writer.write(GuardsMade(identifier, len(guards), guards))
    writer.write(Traced(identifier, [TracedFunction(name, place, every, every)], values))
    writer.write(CompileEnded(identifier, "compiled", 0.5))


def _measure(folder: Path, path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    started = time.perf_counter()
    with Editor(folder, folder / "records") as editor:
        began = time.perf_counter()
        editor.open(path)
        editor.wait("the first diagnostics", lambda: bool(editor.diagnostics.get(path)))
        now = time.perf_counter()
        sys.stdout.write(f"  first diagnostics {now - began:.2f} s after the file is opened; ")
        sys.stdout.write(f"with the start of the server {now - started:.2f} s\n")
        _type(editor, path, text, "hover", lambda: editor.hover(path, 5, 5))
        _type(editor, path, text, "hints of 60 lines", lambda: editor.hints(path, 60))


def _type(editor: Editor, path: Path, text: str, what: str, ask: Callable[[], object]) -> None:
    spent = []
    for number in range(_KEYSTROKES):
        editor.change(path, f"{text}# {number}\n")
        began = time.perf_counter()
        assert ask()
        spent.append((time.perf_counter() - began) * 1000)
        # As a user types, and longer than the server waits for more: it publishes in between.
        time.sleep(0.05 + 0.15 * (number % 2))
    worst = f"worst {max(spent):.1f} ms, the first {spent[0]:.1f} ms"
    sys.stdout.write(f"  keystroke to {what}: median {statistics.median(spent):.1f} ms, {worst}\n")


def main() -> None:
    """Print the figures."""
    for guards, values in ((250, 199), (1500, 20)):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name).resolve()
            os.environ[RECORDS_VARIABLE] = str(folder / "records")
            sys.stdout.write(f"{guards} guards and {values} values a compile: ")
            _measure(folder, _make(folder, guards, values))


if __name__ == "__main__":
    main()
