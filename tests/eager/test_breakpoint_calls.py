"""``breakpoint()`` in ordinary Python, while Dynamo traces, and in code that Dynamo generated.

Uses the default launch options and the default backend, and also attaches to a program that listens.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.client import Session
from tests.client.free_program import FreeProgram

PROGRAM = '''\
"""Calls breakpoint() in every way."""
{prologue}
import torch
from torch._dynamo.comptime import comptime


def look(context):
    breakpoint()


@torch.compile
def by_comptime(x):
    y = x + 1
    comptime.breakpoint()  #@by_comptime
    return y * 2


@torch.compile
def by_a_lambda(x):
    y = x + 1
    comptime(lambda ctx: breakpoint())  #@by_a_lambda
    return y * 2


def inner(x):
    y = x + 1
    comptime(look)  #@by_a_function
    return y


@torch.compile
def by_a_function(x):
    return inner(x) * 2


@torch.compile
def plain(x):
    y = x + 1
    breakpoint()  #@plain
    return y * 2


@torch.compile
def marked(x):
    y = x + 1
    torch._dynamo.bytecode_debugger.breakpoint()
    return y * 2


def main():
    breakpoint()  #@eager
    for function in (by_comptime, by_a_lambda, by_a_function, plain, marked):  #@after
        for _ in range(2):
            print(function.__name__, function(torch.ones(2)).tolist())


if __name__ == "__main__":
    main()
'''


def write(folder: Path, prologue: str = "") -> Path:
    """Write the program; ``prologue`` comes before torch is imported."""
    path = folder / "program.py"
    path.write_text(PROGRAM.format(prologue=prologue), encoding="utf-8")
    return path


def expect_every_stop(session: Session) -> None:
    """Expect one stop for each call: traced code is traced once, generated code runs twice."""
    stop = session.wait_for_stop("breakpoint")
    assert stop.marker in ("eager", "after")
    for name in ("by_comptime", "by_a_lambda", "by_a_function"):
        stop = session.continue_to_stop(at=name)
        assert stop.reason == "breakpoint"
        assert stop.description.startswith("Tracing by_")
        assert stop.frame["Locals"]["y"].text.startswith("Tensor f32[2]")
    for _ in range(2):
        stop = session.continue_to_stop(at="plain")
        assert stop.reason == "breakpoint"
        assert stop.frame.evaluate("x.tolist()").text == "[1.0, 1.0]"
    for _ in range(2):
        session.resume()
        stop = session.wait_for_stop("breakpoint")
        assert [frame.name for frame in stop.frames[1:]] == ["marked", "main", "<module>"]


def test_every_call_of_breakpoint_stops(session: Session, tmp_path: Path) -> None:
    with session.configuring("launch", {"program": str(write(tmp_path)), "python": [sys.executable]}):
        pass
    expect_every_stop(session)
    assert session.run_to_end() == 0


def test_every_call_of_breakpoint_stops_where_debugpy_was_imported_first(session: Session, tmp_path: Path) -> None:
    listen = (
        "import dynamo_dap\n"
        "host, port = dynamo_dap.listen(0)\n"
        "import debugpy  # which takes breakpoint() for itself\n"
        "print(f'listening on {host}:{port}', flush=True)\n"
        "dynamo_dap.wait_for_client()\n"
    )
    program = FreeProgram(write(tmp_path, listen))
    try:
        host, port = program.address()
        session.attach(host, port)
        expect_every_stop(session)
        session.resume()
        session.timeline.expect_event("terminated")
        assert program.wait_for_line("marked [4.0, 4.0]")
    finally:
        program.end()
