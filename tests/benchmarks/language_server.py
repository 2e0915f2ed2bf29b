"""What the language server costs on a record of 47 MB: the first diagnostics, and a hover after each keystroke.

    python -m tests.benchmarks.language_server

The record is made here, with events as the recorder writes them: 400 compiles with values, guards and graphs.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from dynamo_dap.protocol.contract import RECORDS_VARIABLE
from dynamo_dap.record.events import (
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
from dynamo_dap.record.file import RecordWriter
from dynamo_dap.record.folders import records_folder
from dynamo_dap.record.model import Graph, GraphBreak, Guard, Node, Place, TracedFunction, Value
from dynamo_dap.record.texts import digest_of_line
from tests.language_server.editor import Editor

_COMPILES = 400
_LINES = 200
_HOVERS = 60
_BOUND = 1 << 30


def make(folder: Path) -> Path:
    """Write a module of many lines and a record of it; return the module."""
    path = folder / "model.py"
    lines = ["def fn(x):", *(f"    v{number} = x + {number}" for number in range(1, _LINES)), "    return x", ""]
    path.write_text("\n".join(lines), encoding="utf-8")
    record = records_folder(folder) / "20260101-000000-000000000-1.jsonl"
    writer = RecordWriter(record, details_bound=_BOUND, bound=_BOUND)
    writer.write(Started(VERSION, 1.0, 1, [str(path)], str(folder), "3.13"))
    writer.write(SourceRead(str(path), "".join(map(digest_of_line, lines))))
    begin = Place(str(path), 1)
    values = [Value(f"v{one}", "f32[3, 4]", Place(str(path), one + 1, 5), None, True) for one in range(1, _LINES)]
    text = "check_tensor(L['x'], Tensor, DispatchKeySet(CPU, BackendSelect), torch.float32, size=[3, 4], stride=[4, 1])"
    guards = [Guard(text, "TENSOR_MATCH", Place(str(path), 2), f"v{one}.weight", text[:60]) for one in range(250)]
    node = "call_function"
    nodes = [Node(f"add_{one}", node, "operator.add", "f32[3, 4] cpu", begin, "x + 1") for one in range(150)]
    for number in range(_COMPILES):
        identifier = f"0/{number}"
        writer.write(CompileBegan(identifier, "fn", "fn", begin, begin, 1.0 + number, caller=begin))
        found = GraphBreak("a break", Place(str(path), 2 + number % 100), stack=[])
        writer.write(BreakFound(identifier, found))
        writer.write(GraphMade(identifier, Graph(0, "graph", len(nodes), len(nodes), nodes)))
        writer.write(GuardsMade(identifier, len(guards), guards))
        every = list(range(1, _LINES))
        writer.write(Traced(identifier, [TracedFunction("fn", begin, every, every)], values))
        writer.write(CompileEnded(identifier, "compiled", 0.5))
    writer.write(Ended(1000.0))
    sys.stdout.write(f"record of {record.stat().st_size / 1e6:.0f} MB\n")
    return path


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        os.environ[RECORDS_VARIABLE] = str(folder / "records")
        path = make(folder)
        text = path.read_text(encoding="utf-8")
        with Editor(folder, folder / "records") as editor:
            began = time.perf_counter()
            editor.open(path)
            editor.wait("the first diagnostics", lambda: bool(editor.diagnostics.get(path)))
            sys.stdout.write(f"first diagnostics after {time.perf_counter() - began:.2f} s\n")
            spent = []
            for number in range(_HOVERS):
                editor.change(path, f"{text}# {number}\n")
                began = time.perf_counter()
                assert editor.hover(path, 5, 5)
                spent.append((time.perf_counter() - began) * 1000)
        sys.stdout.write(f"keystroke to hover: median {statistics.median(spent):.1f} ms, worst {max(spent):.1f} ms\n")


if __name__ == "__main__":
    main()
