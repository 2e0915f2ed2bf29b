"""No text for users contains a memory address, which says nothing and differs in each run."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.protocol.connection import RequestFailed
from tests.client import Fixture, Session
from tests.client.session import Stop, Tree
from tests.client.timeline import DEADLINE

PROGRAM = Fixture("eager/addresses")
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_ADDRESSES = frozenset({"address", "instructionPointerReference", "instructionReference", "memoryReference"})
"""Fields that contain an address by the protocol; clients return it and do not show it."""
_MOST = 400
"""The most variables that are opened at one stop."""
EXPRESSIONS = ("PLAIN", "TABLE", "ALLOWED", "halve", "[PLAIN, halve]", "PARTIAL", "Backend()", "DISABLED")
OTHERS = (
    "closures",
    "containers",
    "control_flow",
    "generated_code",
    "model",
    "recompiles",
    "side_effects",
)
MOST_STOPS = 20


def test_nothing_shown_has_an_address(session: Session, tmp_path: Path) -> None:
    with session.launching(PROGRAM, eager=True, mode="both"):
        session.set_breakpoints(PROGRAM, "call", "allowed", "rest")
        session.client.request("setExceptionBreakpoints", {"filters": ["graph-break", "recompile"]})
    kinds = set()
    for _ in range(9):
        stop = session.wait_for_stop()
        kinds.add(open_everything(session, stop, EXPRESSIONS))
        session.resume()
    session.wait_for_stop()
    session.set_breakpoints(PROGRAM)
    session.client.request("setExceptionBreakpoints", {"filters": []})
    session.set_breakpoints(PROGRAM, "call")
    session.continue_to_stop(at="call")
    session.resume("stepIn")
    stop = session.wait_for_stop("step")
    while "generated" not in stop.frame.name:
        session.resume("stepIn")
        stop = session.wait_for_stop("step")
    kinds.add(open_everything(session, stop, EXPRESSIONS))
    session.resume("next", granularity="instruction")
    kinds.add(open_everything(session, session.wait_for_stop("step"), EXPRESSIONS))
    session.set_breakpoints(PROGRAM)
    assert session.run_to_end() == 0
    assert kinds == {"eager", "trace", "generated"}
    found = shown_texts(session)
    assert len(found) > 5000
    assert "CompileCounter" in found
    assert not [text for text in found if _ADDRESS.search(text)]
    look_at_records(tmp_path, "step")


@pytest.mark.parametrize("name", OTHERS)
def test_nor_has_anything_of_other_programs(session: Session, tmp_path: Path, name: str) -> None:
    """Check programs of other tests, with the default backend: at all their places, at breaks and recompiles."""
    program = Fixture(name)
    with session.launching(program):
        session.set_breakpoints(program, *program.markers)
        session.client.request("setExceptionBreakpoints", {"filters": ["graph-break", "recompile", "raised"]})
    kinds = set()
    for _ in range(MOST_STOPS):
        event, body = session.timeline.expect_first("stopped", "terminated")
        if event == "terminated":
            break
        stop = Stop(session, body)
        local = list(stop.frame["Locals"].children)[:5]
        kinds.add(open_everything(session, stop, [*local, f"[{', '.join(local)}]"]))
        session.resume(thread_id=stop.thread_id)
    assert {"eager", "trace"} <= kinds
    found = shown_texts(session)
    assert len(found) > 500
    assert not [text for text in found if _ADDRESS.search(text)]
    session.disconnect()
    look_at_records(tmp_path, "")


def shown_texts(session: Session) -> list[str]:
    """Return every text that the server has sent."""
    return [text for entry in session.timeline.entries if not entry.sent for text in texts_in(entry.message)]


def look_at_records(folder: Path, name: str) -> None:
    """Check the records and the reports on them, which must contain the function ``name``."""
    records = [path for path in folder.rglob("*") if path.is_file() and "records" in path.parts]
    assert records
    for record in records:
        assert not [line for line in record.read_text("utf-8").splitlines() if _ADDRESS.search(line)]
        command = [sys.executable, "-m", "dynamo_dap", "report", str(record)]
        report = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True).stdout
        assert name in report
        assert not _ADDRESS.search(report)


def open_everything(session: Session, stop: Stop, expressions: Iterable[str]) -> str:
    """Open everything at a stop, and the compiles so far; return the kind of the stop."""
    left = _MOST
    for frame in stop.frames[:6]:
        for scope in frame.scopes.values():
            left = open_tree(scope, left, depth=4)
    frame = stop.frame
    read_sources(session, stop)
    for expression in expressions:
        for context in ("watch", "hover", "repl", "clipboard", "variables"):
            for frame_id in (frame.data.id, None):
                with contextlib.suppress(RequestFailed):  # a local variable is not in the globals
                    session.client.evaluate(expression, frame_id, context)
    if stop.reason in ("exception", "graph break", "graph-break"):
        session.client.exception_info(stop.thread_id)
    for function in session.request("dynamoCompiles")["functions"]:
        for compiled in function["compiles"]:
            session.request("dynamoGuards", {"compileId": compiled["id"]})
            for index in range(len(compiled["graphs"])):
                answer = session.request("dynamoGraph", {"compileId": compiled["id"], "index": index})
                read(session, answer["source"])
    names = set(frame.scopes)
    if "Guards" not in names:
        return "eager"
    return "generated" if "Compiled Graph" in names else "trace"


def open_tree(tree: Tree, left: int, depth: int) -> int:
    """Open a value; return how many more values may be opened."""
    for child in tree.children.values() if depth and left > 0 else ():
        left = open_tree(child, left - 1, depth - 1)
    return left


def read_sources(session: Session, stop: Stop) -> None:
    """Read the documents behind the innermost frame: its code, its scopes, its instructions."""
    frame = stop.frame
    read(session, session.request("stackTrace", {"threadId": stop.thread_id})["stackFrames"][0].get("source"))
    for scope in session.request("scopes", {"frameId": frame.data.id})["scopes"]:
        read(session, scope.get("source"))
    if frame.data.instruction_pointer_reference:
        asked = {"memoryReference": frame.data.instruction_pointer_reference, "instructionCount": 200}
        session.request("disassemble", asked)


def read(session: Session, source: dict[str, Any] | None) -> None:
    """Read a document that only the debugger has."""
    if source and source.get("sourceReference"):
        reference = source["sourceReference"]
        session.request("source", {"source": source, "sourceReference": reference})


def texts_in(message: Any) -> Iterator[str]:
    """Yield every text of a message, without fields that contain an address by the protocol."""
    if isinstance(message, str):
        yield message
    elif isinstance(message, dict):
        for name, value in message.items():
            if name not in _ADDRESSES:
                yield from texts_in(value)
    elif isinstance(message, list):
        for each in message:
            yield from texts_in(each)
