"""Run-time mode as an IDE sees it: with a real server, a real program and the protocol."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.client import Session, Stop
from tests.client.fixtures import Fixture
from tests.run_time.pythons import FIRST_LINE

FIXTURE = Fixture("generated_code")
CALLERS = ["main", "<module>"]


def _enter(session: Session, fixture: str = "generated_code", **options: Any) -> Stop:
    session.launch(fixture, **{"stopOnGeneratedCode": True, **options})
    return session.wait_for_stop("entry")


def _enter_instructions(session: Session) -> Stop:
    """Stop on entry to generated code, with the listing in which each instruction has a line."""
    return _enter(session, listing="instructions")


def _listing(session: Session, stop: Stop) -> list[str]:
    reference = stop.frame.data.source.source_reference
    body = session.request("source", {"source": {"sourceReference": reference}, "sourceReference": reference})
    assert body["mimeType"]
    return body["content"].splitlines()


def test_a_generated_frame_with_its_listing_and_its_callers(session: Session) -> None:
    stop = _enter_instructions(session)
    assert [frame.name for frame in stop.frames] == ["replay (generated #0)", "replay", *CALLERS]
    assert [frame.marker for frame in stop.frames[2:3]] == ["call_replay"]
    lines = _listing(session, stop)
    assert stop.frame.line == FIRST_LINE
    assert lines[stop.frame.line - 1].split()[0] == str(FIRST_LINE - 1)
    assert any(f"apply line {FIXTURE.line('append')}: log[:] =" in line for line in lines)
    assert stop.frame.data.instruction_pointer_reference
    assert stop.frame["Locals"].texts()["log"] == "[1]"
    assert stop.frames[2]["Locals"].texts()["log"] == "[1]"
    assert stop.frame.evaluate("x.shape[0] + len(__stack__)").text == "3"


def test_stepping_by_instruction_and_by_group_of_instructions(session: Session) -> None:
    stop = _enter_instructions(session)
    lines = _listing(session, stop)
    assert session.next("instruction").frame.line == FIRST_LINE + 1
    assert session.step_in("instruction").frame.line == FIRST_LINE + 2
    titles = []
    for _ in range(40):
        stop = session.next("statement")
        title = lines[stop.frame.line - 1]
        assert re.search("[┌╶]", title), f"a statement begins at {title!r}"
        titles.append(title)
        if "apply line" in title and "log[:]" in title:
            break
    assert "┌ call compiled graph" in "\n".join(titles)
    assert stop.frames[1].marker == "append"
    stack = stop.frame["Value Stack"].texts()
    assert list(stack.values())[-3:-1] == ["[1, 3]", "[1]"]
    temporaries = {name for name in stop.frame["Locals"].children if name.startswith(("graph_out_", "tmp_"))}
    assert temporaries, "what a compiler's engineer reads is at the top"
    user = stop.frames[1]["Locals"]
    assert temporaries <= set(user["of Dynamo"].children), "and folded where the user's lines are shown"
    assert not temporaries & set(user.children)


def test_statements_and_instructions_of_the_same_code(session: Session) -> None:
    stop = _enter(session)
    statements = _listing(session, stop)
    source = stop.frame.data.source
    assert source.name == "replay #0.py"
    assert statements[1].startswith("def replay(x, d, log, state):")
    while "d.update(" not in statements[stop.frame.line - 1]:
        stop = session.next()
    assert stop.frames[1].marker in ("store_item", "note")
    reported = stop.frame.evaluate(f"__listing__[{stop.frame.line}]", "hover")
    assert reported.text == f"apply: {reported['whole'].text}"
    assert reported["whole"].text.startswith("d.update({'result': graph_out_0[1]")
    assert reported[f"generated_code.py:{FIXTURE.line('store_item')}"].text == 'd["result"] = y'
    assert _linked(session, reported[f"generated_code.py:{FIXTURE.line('note')}"])["line"] == FIXTURE.line("note")
    assert "CALL" in reported["1"].text + reported["2"].text
    assert "shows no instruction" in stop.frame.refusal("__listing__[1]")
    assert stop.frame.evaluate("result").text.startswith("(Tensor f32[3]"), "a name that only the statements have"

    session.request("dynamoListing", {"form": "instructions"})
    changed = session.timeline.expect_event("invalidated")
    assert changed["areas"] == ["stacks"]
    again = Stop(session, stop.body)
    assert again.frame.data.source.name == "replay #0.dynamo"
    lines = _listing(session, again)
    assert "apply lines" in lines[again.frame.line - 1]
    reported = again.frame.evaluate(f"__listing__[{again.frame.line}]", "hover")
    assert reported.text.startswith("apply: d.update(")
    assert "not a form of a listing" in session.refusal("dynamoListing", {"form": "letters"})
    session.disconnect()


def test_values_are_set(session: Session) -> None:
    stop = _enter(session)
    locals_reference = next(
        scope.variables_reference for scope in session.client.scopes(stop.frame.data.id) if scope.name == "Locals"
    )
    answer = session.request(
        "setVariable", {"variablesReference": locals_reference, "name": "log", "value": "[7, *log]"}
    )
    assert answer["value"] == "[7, 1]"
    answer = session.request(
        "setExpression", {"frameId": stop.frame.data.id, "expression": "state.steps", "value": "5"}
    )
    assert answer["value"] == "5"
    for scope in ("Locals", "Value Stack"):
        for one in stop.frame[scope].children.values():
            hint = one.variable.presentation_hint
            settable = hint is None or "readOnly" not in (hint.attributes or ())
            assert settable == (one.name != "(empty)"), f"{scope}: {one.name}"
    refusal = session.refusal("setVariable", {"variablesReference": locals_reference, "name": "none", "value": "1"})
    assert "is not a local variable" in refusal
    stop = session.next("instruction")
    assert stop.frame["Locals"].texts()["log"] == "[7, 1]"
    assert stop.frame.evaluate("state.steps").text == "5"


def test_breakpoints_on_instructions_and_lines_of_the_listing(session: Session) -> None:
    stop = _enter_instructions(session)
    lines = _listing(session, stop)
    number = next(number for number, text in enumerate(lines, 1) if "STORE_SUBSCR" in text)
    source = {"sourceReference": stop.frame.data.source.source_reference, "name": stop.frame.data.source.name}
    (bound,) = session.request("setBreakpoints", {"source": source, "breakpoints": [{"line": number}]})["breakpoints"]
    assert (bound["verified"], bound["line"]) == (True, number)
    session.resume()
    at_line = session.wait_for_stop("breakpoint")
    assert at_line.frame.line == number
    assert at_line.body["hitBreakpointIds"] == [bound["id"]]
    here = at_line.frame.data.instruction_pointer_reference
    around = {"memoryReference": here, "instructionOffset": -2, "instructionCount": 6}
    rows = session.request("disassemble", around)["instructions"]
    assert rows[2]["instruction"] == "STORE_SUBSCR"
    wanted = rows[4]["address"]
    wanted_breakpoints = {"breakpoints": [{"instructionReference": wanted}]}
    (made,) = session.request("setInstructionBreakpoints", wanted_breakpoints)["breakpoints"]
    assert made["verified"]
    session.resume()
    at_instruction = session.wait_for_stop("breakpoint")
    assert at_instruction.frame.data.instruction_pointer_reference == wanted
    assert "is not the address" in session.refusal("disassemble", {"memoryReference": "0x12", "instructionCount": 1})


def test_a_line_of_the_users_at_every_call(session: Session) -> None:
    with session.launching("generated_code"):
        (made,) = session.set_breakpoints(FIXTURE, "append", mode="run-time")
    assert made.verified
    for _ in range(2):
        stop = session.wait_for_stop("breakpoint")
        assert stop.frames[1].marker == "append"
        session.resume()
    assert session.wait_for_exit() == 0


def test_the_end_of_the_program_after_stepping(session: Session) -> None:
    _enter(session)
    session.set_breakpoints(FIXTURE)
    for _ in range(5):
        session.next("statement")
    for _ in range(5):
        session.resume()
        session.wait_for_stop("entry")
    assert session.run_to_end() == 0
    assert "['first', 'second']" in session.output("stdout")


def test_exceptions_in_generated_code(session: Session) -> None:
    session.expects_program_traceback = True
    with session.launching("generated_failure"):
        session.request("setExceptionBreakpoints", {"filters": ["generated-code"]})
    stop = session.wait_for_stop("exception")
    assert stop.frames[1].marker == "fails"
    assert stop.frame["Value Stack"].texts()
    information = session.request("exceptionInfo", {"threadId": stop.thread_id})
    assert information["exceptionId"] == "KeyError"
    assert "absent" in information["description"]
    session.resume()
    assert session.wait_for_exit() == 1


def test_the_filter_is_offered(session: Session) -> None:
    capabilities = session.initialize()
    assert "generated-code" in [one.filter for one in capabilities.exception_breakpoint_filters or []]
    assert capabilities.supports_disassemble_request
    assert capabilities.supports_instruction_breakpoints
    assert capabilities.supports_stepping_granularity
    assert "run-time" in [one.mode for one in capabilities.breakpoint_modes or []]


def test_pause_in_what_generated_code_calls(session: Session) -> None:
    session.launch("generated_loop", eager=False)  # debugpy pauses it there, and shows its own frames
    session.wait_for_output("looping")
    session.request("pause", {"threadId": 1})
    stop = session.wait_for_stop("pause")
    assert [frame.name for frame in stop.frames] == ["wait", "turn (generated #0)", *CALLERS]
    caller = stop.frame_called("turn (generated #0)")
    assert "more are being used by CALL" in caller["Value Stack"].texts()["(in use)"]


# -- both modes --------------------------------------------------------------------------------------------------------


def test_stepping_in_from_the_last_traced_line_lands_in_the_code_made_for_it(session: Session) -> None:
    session.launch("generated_code", "return_replayed")
    stop = session.wait_for_stop("breakpoint", at="return_replayed")
    assert "generated" not in stop.frame.name
    names = []
    for _ in range(12):
        session.resume("stepIn")
        stop = session.wait_for_stop("step")
        names.append(stop.frame.name)
        if "generated" in stop.frame.name:
            break
    assert names[-1] == "replay (generated #0)"
    assert _listing(session, stop)[stop.frame.line - 2].startswith("    global "), "at the first statement"
    assert [frame.name for frame in stop.frames[1:]] == ["replay", *CALLERS]


@pytest.mark.parametrize(("option", "expected"), [("replay", [False]), ("generated", [False, True])])
def test_a_line_stops_once_a_call_and_in_generated_code_if_asked_for(
    session: Session, option: str, expected: list[bool]
) -> None:
    """``replay`` is the default. The second call has other values, and is replayed as well."""
    session.launch("generated_code", "append", cachedCalls=option)
    kinds = []
    for _ in range(2 * len(expected)):
        stop = session.wait_for_stop("breakpoint")
        kinds.append("generated" in stop.frame.name)
        session.resume()
    assert kinds == expected * 2
    assert session.wait_for_exit() == 0


def test_a_trace_shows_the_generated_frame_that_led_to_it(session: Session) -> None:
    """Dynamo traces a resume function while the generated code that calls it is running."""
    session.launch("generated_code", "after_break")
    stop = session.wait_for_stop("breakpoint", at="after_break")
    names = [frame.name for frame in stop.frames]
    assert "generated" not in names[0]
    (caller,) = (frame for frame in stop.frames if frame.name.startswith("broken (generated #"))
    assert caller.data.source.source_reference
    assert "more are being used by" in " ".join(caller["Value Stack"].texts().values())


def test_the_marker_in_a_session_of_either_mode(session: Session) -> None:
    session.launch("generated_marker", mode="compile-time")  # it stops although run-time stops are off
    stop = session.wait_for_stop("breakpoint")
    assert stop.body["text"] == "Paused on torch._dynamo.bytecode_debugger.breakpoint()"
    assert session.run_to_end() == 0


def _linked(session: Session, variable: Any) -> Any:
    """The target of the link on a variable's value."""
    assert variable.variable.value_location_reference, f"{variable.name} has no link"
    return session.request("locations", {"locationReference": variable.variable.value_location_reference})


def test_each_mode_leads_to_the_other(session: Session) -> None:
    """Links lead from a trace to the generated code, and from generated code to the compile that made it.

    With the option a line stops in both.
    """
    session.launch("generated_code", "append", cachedCalls="generated")
    traced = session.wait_for_stop("breakpoint", at="append")
    assert traced.frame["Compile"].texts()["generated code"].startswith("none yet")
    session.resume()
    running = session.wait_for_stop("breakpoint")
    made_by = running.frame["Compiled Graph"]["compiled by"]
    assert made_by.text == "[0/0] of replay"
    place = _linked(session, made_by)
    assert place["source"]["path"] == str(FIXTURE.path)
    assert "def replay" in FIXTURE.path.read_text().splitlines()[place["line"] - 1]
    listing = _listing(session, running)
    session.resume()
    traced_again = session.wait_for_stop("breakpoint", at="append")
    (entry,) = traced_again.frame["Compile"]["generated code"].children.values()
    assert (entry.name, entry.text) == ("[0/0]", "replay #0")
    reference = _linked(session, entry)["source"]["sourceReference"]
    body = session.request("source", {"source": {"sourceReference": reference}, "sourceReference": reference})
    assert body["content"].splitlines() == listing


@pytest.mark.parametrize("granularity", ["statement", "instruction"])
def test_threads_step_each_for_itself(session: Session, granularity: str) -> None:
    session.launch("generated_threads", stopOnGeneratedCode=True)
    first = session.wait_for_stop("entry")
    second = session.wait_for_stop("entry")
    assert first.thread_id != second.thread_id
    session.resume("next", thread_id=first.thread_id, granularity=granularity)
    stop = session.wait_for_stop("step")
    assert stop.thread_id == first.thread_id
    session.resume("next", thread_id=second.thread_id, granularity=granularity)
    stop = session.wait_for_stop("step")
    assert stop.thread_id == second.thread_id
    session.resume(thread_id=first.thread_id)
    session.resume(thread_id=second.thread_id)
    assert session.wait_for_exit() == 0


def test_breakpoints_that_cannot_be(session: Session) -> None:
    with session.launching("generated_code", mode="compile-time"):  # this test is about the mode
        (made,) = session.set_breakpoints(FIXTURE, SourceBreakpoint(line=FIXTURE.line("append"), mode="run-time"))
    assert not made.verified
    assert "does not stop at run-time" in (made.message or "")
    assert session.wait_for_exit() == 0


def test_debugpy_has_nothing_to_say_of_the_tracing(session: Session) -> None:
    _enter(session, "side_effects")
    assert session.run_to_end() == 0
    assert "PYDEV" not in session.output()


def test_a_breakpoint_in_a_listing_as_vs_code_sets_it(session: Session) -> None:
    stop = _enter(session, "side_effects")
    source = stop.frame.data.source
    line = next(number for number, text in enumerate(_listing(session, stop), 1) if "d.update(" in text)
    asked = {
        "source": {"name": source.name, "sourceReference": source.source_reference},
        "breakpoints": [{"line": line}],
    }
    (answer,) = session.request("setBreakpoints", asked)["breakpoints"]
    assert answer["verified"]
    assert "source" not in answer, "VS Code would show the breakpoint elsewhere, that is, nowhere"
    stop = session.continue_to_stop()
    assert (stop.reason, stop.frame.line) == ("breakpoint", line)
    session.request("setBreakpoints", {**asked, "breakpoints": []})
    assert session.run_to_end() == 0


def test_what_is_counted_is_what_is_shown(session: Session) -> None:
    """Scopes announce counts before a client requests values. Check it at each instruction, in both frames."""
    stop = _enter_instructions(session)
    counted = 0
    for _ in range(40):
        for frame in stop.frames[:2]:
            for scope in session.request("scopes", {"frameId": frame.data.id})["scopes"]:
                asked = {"variablesReference": scope["variablesReference"]}
                variables = session.request("variables", asked)["variables"]
                if not scope["expensive"]:
                    assert scope["namedVariables"] == len(variables), (stop.frame.line, scope, variables)
                for variable in variables:
                    if "namedVariables" in variable:
                        asked = {"variablesReference": variable["variablesReference"], "filter": "named"}
                        below = session.request("variables", asked)["variables"]
                        assert variable["namedVariables"] == len(below), (variable, below)
                        counted += 1
        stop = session.next("instruction")
    assert counted > 0
    session.disconnect()
