"""Without breakpoints there is no cost: hooks are installed only while something is set, and leave torch unchanged.

The tests check this inside the program, which stops in ordinary Python by ``breakpoint()`` and needs no hook for that.
The record also listens to lines, so these sessions have no record; ``test_the_record...`` checks the record's hooks.
"""

from __future__ import annotations

from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.client import Session, Stop
from tests.client.fixtures import Fixture

HOOKS = {
    "line": "hasattr(torch._dynamo.symbolic_convert.InstructionTranslatorBase.starts_line, '__wrapped__')",
    "step": "hasattr(torch._dynamo.symbolic_convert.InstructionTranslatorBase.step, '__wrapped__')",
    "generated code": "torch._C._dynamo.eval_frame.get_bytecode_debugger_callback()",
    "trace function": "__import__('sys').gettrace()",
    "profile function": "__import__('sys').getprofile()",
}
UNTOUCHED = {
    "line": "False",
    "step": "False",
    "generated code": "None",
    "trace function": "None",
    "profile function": "None",
}


def _hooks(stop: Stop) -> dict[str, str]:
    return {name: stop.frame.evaluate(expression).text for name, expression in HOOKS.items()}


def test_a_session_without_breakpoints_hooks_nothing(session: Session) -> None:
    session.launch("eager_breakpoint", record=False, eager=False)  # each hooks something of its own
    before = session.wait_for_stop("breakpoint", at="before")
    before.frame.evaluate("__import__('torch._dynamo.convert_frame')")
    assert _hooks(before) == UNTOUCHED
    after = session.continue_to_stop(at="after")
    assert _hooks(after) == UNTOUCHED
    assert session.run_to_end() == 0


def test_hooks_come_with_a_breakpoint_and_go_with_it(session: Session) -> None:
    fixture = Fixture("eager_breakpoint")
    session.launch("eager_breakpoint", record=False, eager=False)  # each hooks something of its own
    stop = session.wait_for_stop("breakpoint", at="before")
    stop.frame.evaluate("__import__('torch._dynamo.convert_frame')")
    session.client.set_breakpoints(fixture.path, [SourceBreakpoint(line=fixture.line("traced"))])
    set_lines = _hooks(stop)
    assert set_lines["line"] != UNTOUCHED["line"]
    # Steps back by instruction need this hook: only it sees instructions without a line.
    assert set_lines["step"] != UNTOUCHED["step"]
    session.client.set_breakpoints(fixture.path, [])
    assert _hooks(stop) == UNTOUCHED
    session.continue_to_stop(at="after")
    assert session.run_to_end() == 0


def test_a_step_takes_its_hooks_out_when_it_ends(session: Session) -> None:
    session.launch("eager_breakpoint", record=False, eager=False)  # each hooks something of its own
    session.wait_for_stop("breakpoint", at="before")
    session.step_in(at="traced")
    after = session.continue_to_stop(at="after")
    assert _hooks(after) == UNTOUCHED
    assert session.run_to_end() == 0


def test_the_record_hooks_nothing_that_runs_when_nothing_is_compiled(session: Session) -> None:
    session.launch("eager_breakpoint", eager=False)  # as above
    before = session.wait_for_stop("breakpoint", at="before")
    before.frame.evaluate("__import__('torch._dynamo.convert_frame')")
    hooks = _hooks(before)
    assert hooks.pop("line") != UNTOUCHED["line"]
    assert hooks == {name: value for name, value in UNTOUCHED.items() if name != "line"}
    session.continue_to_stop(at="after")
    assert session.run_to_end() == 0
