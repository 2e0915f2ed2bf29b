"""Cells of a notebook: the kernel is a listening program, and only the kernel has the texts of the cells."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client import Fixture, Session
from tests.client.session import Stop
from tests.client.timeline import DEADLINE

CELL = """\
import torch

def helper(x):
    return x * 2

@torch.compile(backend="eager")
def f(x):
    y = helper(x)
    return y + 1

print(f(torch.ones(2)).tolist())
"""


class Kernel:
    """A real kernel of Jupyter, as a notebook has it."""

    def __init__(self) -> None:
        from jupyter_client.manager import KernelManager

        self._manager = KernelManager()
        self._manager.kernel_spec.argv[0] = sys.executable
        self._manager.start_kernel()
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=DEADLINE)

    def run(self, cell: str) -> str:
        """Run a cell to its end and return its output, or its error."""
        return self.shown(cell)[0]

    def shown(self, cell: str) -> tuple[str, dict[str, str]]:
        """Run a cell; return its output, and its value in each form that a notebook shows, by MIME type."""
        asked = self._client.execute(cell)
        lines, shown = [], dict[str, str]()
        while True:
            message: dict[str, Any] = self._client.get_iopub_msg(timeout=DEADLINE)
            if message["parent_header"].get("msg_id") != asked:
                continue
            content = message["content"]
            lines.append(content.get("text", "") + "\n".join(content.get("traceback", [])))
            shown |= content.get("data", {})
            if content.get("execution_state") == "idle":
                return "".join(lines), shown

    def begin(self, cell: str) -> tuple[threading.Thread, list[str]]:
        """Run a cell that will stop; the list receives its output."""
        printed: list[str] = []
        thread = threading.Thread(target=lambda: printed.append(self.run(cell)), daemon=True)
        thread.start()
        return thread, printed

    def end(self) -> None:
        """Kill the kernel."""
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    """Start a kernel."""
    pytest.importorskip("ipykernel", reason="kernels are Jupyter's: pip install ipykernel")
    kernel = Kernel()
    yield kernel
    kernel.end()


def _attached(session: Session, kernel: Kernel) -> None:
    port = kernel.run("import dynamo_dap; print(dynamo_dap.listen(('127.0.0.1', 0))[1])")
    session.attach("127.0.0.1", int(port))


def _text_of(session: Session, stop: Stop) -> str:
    source = stop.frame.data.source
    assert source is not None
    assert source.source_reference
    return str(session.request("source", {"sourceReference": source.source_reference})["content"])


def test_a_compiled_function_of_a_cell_is_debugged(session: Session, kernel: Kernel) -> None:
    _attached(session, kernel)
    for _ in range(2):  # Running a cell again makes a new function.
        session.request("setFunctionBreakpoints", {"breakpoints": [{"name": "f"}]})
        thread, printed = kernel.begin(CELL)
        stop = session.wait_for_stop()
        assert stop.frame.line == 8
        assert stop.frame["Locals"]["x"].text.startswith("Tensor f32[2] cpu")
        assert _text_of(session, stop) == CELL
        assert session.step_in().frame.name == "helper"
        assert session.step_out().frame.line == 8
        session.request("setFunctionBreakpoints", {"breakpoints": []})
        session.resume()
        thread.join(DEADLINE)
        assert printed == ["[3.0, 3.0]\n"]


def test_a_line_breakpoint_in_the_document_that_shows_a_cell_stops(session: Session, kernel: Kernel) -> None:
    _attached(session, kernel)
    session.request("setFunctionBreakpoints", {"breakpoints": [{"name": "f"}]})
    thread, printed = kernel.begin(CELL)
    shown = session.wait_for_stop().frame.data.source
    session.request("setFunctionBreakpoints", {"breakpoints": []})
    asked = {"source": shown, "breakpoints": [{"line": 9}, {"line": 11}]}
    traced, other = session.request("setBreakpoints", asked)["breakpoints"]
    assert traced["verified"]
    assert "module-level code" in other["message"]
    assert session.continue_to_stop().frame.line == 9
    session.resume()
    thread.join(DEADLINE)
    # The same cell has the same name again.
    thread, printed = kernel.begin(CELL)
    assert session.wait_for_stop().frame.line == 9
    session.resume()
    thread.join(DEADLINE)
    assert printed == ["[3.0, 3.0]\n"]


def test_a_module_that_a_cell_imports_is_debugged(session: Session, kernel: Kernel, tmp_path: Path) -> None:
    module = Fixture(tmp_path / "imported.py")
    module.path.write_text("def double(n):\n    return n * 2  #@line\n", encoding="utf-8")
    _attached(session, kernel)
    session.set_breakpoints(module, "line")
    thread, printed = kernel.begin(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport imported\nprint(imported.double(2))"
    )
    stop = session.wait_for_stop(at="line")
    assert stop.frame["Locals"]["n"].text == "2"
    session.resume()
    thread.join(DEADLINE)
    assert printed == ["4\n"]


def test_breakpoint_stops_in_a_cell(session: Session, kernel: Kernel) -> None:
    _attached(session, kernel)
    thread, printed = kernel.begin(CELL.replace("    y = helper(x)\n", "    breakpoint()\n    y = helper(x)\n"))
    stop = session.wait_for_stop()
    assert stop.frame.name == "f"
    session.resume()
    thread.join(DEADLINE)
    assert printed == ["[3.0, 3.0]\n"]


def test_what_a_cell_compiles_is_shown_as_a_table(kernel: Kernel) -> None:
    cell = (
        "import torch, dynamo_dap\n"
        "@torch.compile(backend='eager')\n"
        "def f(x):\n"
        "    torch._dynamo.graph_break()  # <b>here</b>\n"
        "    return x + 1\n"
        "with dynamo_dap.record() as made:\n"
        "    f(torch.ones(2)); f(torch.ones(3))\n"
        "made"
    )
    for number in (1, 2):  # the cell gets another name when it is run again
        printed, shown = kernel.shown(cell)
        assert not printed
        html, text = shown["text/html"], shown["text/plain"]
        assert "<code>torch._dynamo.graph_break()  # &lt;b&gt;here&lt;/b&gt;</code>" in html
        assert f'<td style="text-align: left">In[{number}]:4</td>' in html
        # The second time torch knows that the size varies.
        assert ("size 0 of x was 2 and is 3" in html) == (number == 1)
        again = {
            1: "2 graphs, 1 graph break, 1 recompile; 3 compiles",
            2: "1 graph, 1 graph break, 0 recompiles; 2 compiles",
        }
        assert text.startswith(f"<dynamo_dap.record: {again[number]} in ")
    assert kernel.run("print(made.problem)") == "None\n"
