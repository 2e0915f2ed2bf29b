"""Patches of generated code: they run from the next call on, are shown, refused if invalid, and reverted."""

from __future__ import annotations

import sys

import pytest

from dynamo_dap.protocol.requests.contract import PATCH, UNPATCH
from tests.client import Session, Stop
from tests.client.fixtures import Fixture
from tests.client.free_program import FreeProgram
from tests.client.session import Tree

FIXTURE = Fixture("patched_code")


def _at_constant(session: Session) -> Stop:
    """Stop in the generated code of the first call, before it loads the constant that it appends."""
    session.launch("patched_code", stopOnGeneratedCode=True)
    return _step_to_constant(session)


def _step_to_constant(session: Session) -> Stop:
    stop = session.wait_for_stop("entry")
    for _ in range(80):
        if _instruction(stop)["instruction"].text == "LOAD_CONST 3":
            return stop
        stop = session.next("instruction")
    pytest.fail("the constant is not come to")


def _instruction(stop: Stop) -> Tree:
    return stop.frame["Instruction"]


def _set(session: Session, stop: Stop, name: str, value: str) -> str:
    arguments = {"variablesReference": _instruction(stop).variable.variables_reference, "name": name, "value": value}
    text: str = session.request("setVariable", arguments)["value"]
    return text


def _again(session: Session, stop: Stop) -> Stop:
    """The same stop, with everything requested again."""
    return Stop(session, stop.body)


def _listing(session: Session, stop: Stop) -> str:
    reference = stop.frame.data.source.source_reference
    body = session.request("source", {"source": {"sourceReference": reference}, "sourceReference": reference})
    text: str = body["content"]
    return text


def test_an_operand_is_patched_and_taken_back(session: Session) -> None:
    stop = _at_constant(session)
    assert stop.frame.name == "record (generated #0)"
    assert _instruction(stop).texts() == {"instruction": "LOAD_CONST 3", "argument": "3"}
    assert _set(session, stop, "argument", "30") == "30"
    shown = _instruction(_again(session, stop))
    assert shown.texts() == {
        "instruction": "LOAD_CONST 30",
        "argument": "30",
        "running now": "LOAD_CONST 3",
        "patches": "1 of record (generated #0)",
    }
    assert list(shown["patches"].texts().values()) == ["LOAD_CONST 30, was LOAD_CONST 3"]

    stop = session.continue_to_stop()
    assert stop.frame.name == "record (generated #1: #0 patched)"
    assert stop.frame.evaluate("state.last").text == "3", "the call in which it was patched ended as it began"
    assert "[patched, was LOAD_CONST 3]" in _listing(session, stop)
    assert "30" in _listing(session, stop)
    session.request("dynamoListing", {"form": "instructions"})
    (line,) = [line for line in _listing(session, _again(session, stop)).splitlines() if "[patched" in line]
    assert "LOAD_CONST         30 " in line
    assert stop.frame["Guards"].texts(), "the entry's guards hold as before"

    stop = session.continue_to_stop()
    assert stop.frame.evaluate("state.last").text == "30"
    assert _set(session, stop, "patches", "0") == "0"
    stop = session.continue_to_stop()
    assert stop.frame.name == "record (generated #0)"
    assert "patches" not in _instruction(stop)
    assert "[patched" not in _listing(session, stop)
    assert session.run_to_end() == 0
    assert "stored [3, 30, 30, 3]" in session.output("stdout")


def test_requests_patch_by_address_and_take_everything_back(session: Session) -> None:
    stop = _at_constant(session)
    address = stop.frame.data.instruction_pointer_reference
    body = session.request(PATCH, {"instructionReference": address, "instruction": "LOAD_CONST 'x'"})
    assert body == {
        "name": "record (generated #1: #0 patched)",
        "instruction": "LOAD_CONST 'x'",
        "was": "LOAD_CONST 3",
    }
    assert session.timeline.expect_event("invalidated")["areas"] == ["stacks", "variables"]
    stop = session.continue_to_stop()
    rows = session.request(
        "disassemble",
        {"memoryReference": stop.frame.data.instruction_pointer_reference, "instructionCount": 80},
    )["instructions"]
    assert any(row["instruction"] == "LOAD_CONST 'x'   [patched, was LOAD_CONST 3]" for row in rows)
    # A patched instruction can be patched again, also back to Dynamo's own instruction.
    patched = next(row["address"] for row in rows if "[patched" in row["instruction"])
    session.request(PATCH, {"instructionReference": patched, "instruction": "LOAD_CONST 5"})
    stop = session.continue_to_stop()
    assert stop.frame.name == "record (generated #2: #0 patched)"
    assert session.request(UNPATCH, {"instructionReference": patched}) == {"count": 1}
    assert session.request(UNPATCH) == {"count": 0}
    assert session.continue_to_stop().frame.name == "record (generated #0)"
    assert session.run_to_end() == 0
    assert "stored [3, 'x', 5, 3]" in session.output("stdout")


def test_a_patched_call_still_stops_at_the_users_lines(session: Session) -> None:
    session.launch("patched_code", "store", stopOnGeneratedCode=True)
    session.wait_for_stop("breakpoint", at="store")
    session.resume()
    stop = _step_to_constant(session)
    assert _set(session, stop, "argument", "30") == "30"
    for _ in range(3):
        stop = session.continue_to_stop(at="store")
        assert stop.frame["Locals"]["y"].text.startswith("Tensor"), "the call is traced once more"
        assert session.continue_to_stop().frame.name == "record (generated #1: #0 patched)"
    assert session.finish() == 0
    assert "stored [3, 30, 30, 30]" in session.output("stdout")


def test_any_instruction_of_the_code_is_patched_by_its_number(session: Session) -> None:
    stop = _at_constant(session)
    session.request("dynamoListing", {"form": "instructions"})
    number = _again(session, stop).frame.line - 1
    stop = session.next("instruction")
    assert _set(session, stop, "instruction", f"{number}: LOAD_CONST 31") == "LOAD_CONST 31"
    address = stop.frame.data.instruction_pointer_reference
    refused = {"instructionReference": address, "instruction": "999: NOP"}
    assert "last instruction of record (generated #0) is" in session.refusal(PATCH, refused)
    if sys.version_info >= (3, 11):  # older versions have no instructions before a function's own
        refused = {"instructionReference": address, "instruction": "0: NOP"}
        assert "set up the frame" in session.refusal(PATCH, refused)
    for _ in range(3):
        session.continue_to_stop()
    assert session.run_to_end() == 0
    assert "stored [3, 31, 31, 31]" in session.output("stdout")


def test_what_cannot_run_is_refused_and_nothing_changes(session: Session) -> None:
    stop = _at_constant(session)
    address = stop.frame.data.instruction_pointer_reference
    refusals = {
        "NOP": "the stack would ",
        "LOAD_CONST 3 4": "is not a literal",
        "LOAD_FAST nothing": "'nothing' is not a local variable of this code: it has x, state",
        "JUMP_FORWARD to 99999": "is not where an instruction begins",
        "MAKE_FUNCTION 0": "can be checked",
        "FLY": "'FLY' is not an instruction of this Python",
    }
    for instruction, why in refusals.items():
        assert why in session.refusal(PATCH, {"instructionReference": address, "instruction": instruction})
    reference = _instruction(stop).variable.variables_reference
    write = {"variablesReference": reference, "name": "instruction", "value": "POP_TOP"}
    assert "the stack would " in session.refusal("setVariable", write)
    assert "is not the address" in session.refusal(PATCH, {"instructionReference": "0x1", "instruction": "NOP"})
    stop = session.continue_to_stop()
    assert stop.frame.name == "record (generated #0)"
    assert "[patched" not in _listing(session, stop)
    session.client.request("disconnect", {"terminateDebuggee": True})


def test_a_breakpoint_on_an_instruction_stays_with_a_patch(session: Session) -> None:
    stop = _at_constant(session)
    address = stop.frame.data.instruction_pointer_reference
    session.request("setInstructionBreakpoints", {"breakpoints": [{"instructionReference": address}]})
    assert _set(session, stop, "instruction", "LOAD_CONST 4") == "LOAD_CONST 4"
    assert session.continue_to_stop().reason == "entry"
    stop = session.continue_to_stop()
    assert stop.reason == "breakpoint"
    assert _instruction(stop)["instruction"].text == "LOAD_CONST 4"
    session.client.request("disconnect", {"terminateDebuggee": True})


def test_the_end_of_the_session_takes_patches_back(session: Session) -> None:
    program = FreeProgram(FIXTURE.path, "--listen")
    try:
        session.attach(*program.address(), stopOnGeneratedCode=True)
        stop = _step_to_constant(session)
        assert _set(session, stop, "argument", "30") == "30"
        assert session.continue_to_stop().frame.name == "record (generated #1: #0 patched)"
        session.disconnect()
        assert program.wait_for_line("stored") == "stored [3, 30, 3, 3]"
    finally:
        program.end()
