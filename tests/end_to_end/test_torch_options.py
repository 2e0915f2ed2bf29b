"""The options for torch: set at launch, changed while the program is stopped, and with wrong values."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.protocol.requests.contract import SET_OPTION
from tests.client import FIXTURES, Session
from tests.conftest import NewSession


def _console(session: Session, line: str) -> str:
    """Return the debug console's answer to a line."""
    return str(session.request("evaluate", {"expression": line, "context": "repl"})["result"])


def _recorded(session: Session) -> dict[str, list[dict[str, Any]]]:
    """Return the compiles of each function."""
    functions = session.request("dynamoCompiles")["functions"]
    return {function["name"]: function["compiles"] for function in functions}


def test_only_the_chosen_functions_are_compiled(session: Session) -> None:
    """This holds for every call; if the choice changes, functions compiled before run as Python."""
    session.launch("settings", "call", "end", compileOnly=["scaled"])
    session.wait_for_stop("breakpoint", at="call")
    session.continue_to_stop(at="call")
    assert list(_recorded(session)) == ["scaled"]
    assert _console(session, "%compileOnly shifted") == 'compileOnly: ["shifted"]'
    session.continue_to_stop(at="end")
    assert {name: len(compiles) for name, compiles in _recorded(session).items()} == {"scaled": 1, "shifted": 1}
    assert session.run_to_end() == 0
    assert "scaled 2.0\nshifted 2.0\nscaled 3.0\nshifted 2.0\n" in session.output("stdout")


@pytest.mark.parametrize("written", ["settings.py", str(FIXTURES / "settings.py")])
def test_functions_are_chosen_by_their_file(session: Session, written: str) -> None:
    session.launch("settings", "end", compileOnly=[written])
    session.wait_for_stop("breakpoint", at="end")
    assert sorted(_recorded(session)) == ["scaled", "shifted"]
    assert _console(session, "%compileOnly") == f'compileOnly: ["{written}"]'
    assert session.run_to_end() == 0


def test_a_recompile_fails_and_the_first_compile_does_not(session: Session) -> None:
    session.expects_program_traceback = True
    session.launch("settings", stance="fail_on_recompile")
    assert session.wait_for_exit() == 1
    assert session.output("stdout") == "scaled 2.0\nshifted 2.0\n"
    assert '"stance" is "fail_on_recompile"' in session.output("stderr")
    assert "factor == 2" in session.output("stderr")


def test_a_call_runs_as_python_instead_of_being_recompiled(session: Session) -> None:
    session.launch("settings", "end", stance="eager_on_recompile")
    session.wait_for_stop("breakpoint", at="end")
    assert {name: len(compiles) for name, compiles in _recorded(session).items()} == {"scaled": 1, "shifted": 1}
    assert session.run_to_end() == 0
    assert "scaled 3.0" in session.output("stdout")


def test_a_stance_changes_while_the_program_is_stopped(session: Session) -> None:
    """It changes from running everything as Python to compiling, in ordinary Python, and by a client's request."""
    session.launch("settings", "call", "end", stance="force_eager")
    session.wait_for_stop("breakpoint", at="call")
    session.continue_to_stop(at="call")
    assert _recorded(session) == {}
    assert session.request(SET_OPTION, {"text": "stance null"})["result"] == "stance: the program's own"
    session.continue_to_stop(at="end")
    assert sorted(_recorded(session)) == ["scaled", "shifted"]
    assert session.run_to_end() == 0


def test_a_backend_is_used_in_place_of_the_programs(session: Session) -> None:
    session.launch("settings", "call", "end", backend="aot_eager")
    session.wait_for_stop("breakpoint", at="call")
    session.continue_to_stop(at="call")
    assert _console(session, "%backend null") == "backend: the program's own"
    session.continue_to_stop(at="end")
    backends = {name: [one["backend"] for one in compiles] for name, compiles in _recorded(session).items()}
    assert backends == {"scaled": ["aot_eager", "eager"], "shifted": ["aot_eager"]}
    assert session.run_to_end() == 0


def test_torchs_logs_come_to_the_console_with_the_users_line(session: Session) -> None:
    session.launch("settings", "end", torchLogs="recompiles,+dynamo")
    session.wait_for_stop("breakpoint", at="end")
    events = [event["body"] for event in session.timeline.events if event["event"] == "output"]
    reported = [body for body in events if body.get("category") == "console"]
    (recompile,) = [body for body in reported if "Recompiling function scaled" in body["output"]]
    assert recompile["source"]["path"] == str(FIXTURES / "settings.py")
    assert all(body.get("source", {}).get("path") and body.get("line") for body in reported if "[__" in body["output"])
    assert "Recompiling" not in session.output("stderr")
    _console(session, "%torchLogs null")
    assert session.run_to_end() == 0


def test_what_is_given_at_launch_is_in_force_when_the_program_imports_torch(session: Session) -> None:
    """The process has not imported torch before, as when users start it."""
    session.launch(
        "settings",
        "end",
        python=[sys.executable],
        compileOnly=["scaled"],
        backend="aot_eager",
        stance="eager_on_recompile",
        torchLogs="graph_code",
        torchConfig={"_dynamo.recompile_limit": 5},
    )
    session.wait_for_stop("breakpoint", at="end")
    compiles = {name: [one["backend"] for one in found] for name, found in _recorded(session).items()}
    assert compiles == {"scaled": ["aot_eager"]}
    assert "program says" not in _console(session, "%torchLogs")
    assert "TRACED GRAPH" in session.output("console")
    assert session.run_to_end() == 0
    assert "limit 5" in session.output("stdout")


def test_a_wrong_setting_is_reported_when_the_program_imports_torch(session: Session) -> None:
    wrong = {"torchConfig": {"_dynamo.recompil_limit": 16}, "backend": "inducter"}
    session.launch("settings", python=[sys.executable], **wrong)
    assert session.wait_for_exit() == 0
    assert "did you mean inductor" in session.output("important")
    assert "did you mean _dynamo.recompile_limit" in session.output("important")


def test_settings_of_torch_hold_in_every_thread_and_over_the_programs(session: Session) -> None:
    session.launch("settings", "call", "end", torchConfig={"_dynamo.recompile_limit": 16})
    session.wait_for_stop("breakpoint", at="call")
    stop = session.continue_to_stop(at="call")
    assert stop.frame.evaluate("torch._dynamo.config.recompile_limit").text == "16"
    stop.frame.evaluate("setattr(torch._dynamo.config, 'recompile_limit', 3)", "repl")
    assert stop.frame.evaluate("torch._dynamo.config.recompile_limit").text == "16"
    assert _console(session, "%torchConfig _dynamo.recompile_limit=1") == 'torchConfig: {"_dynamo.recompile_limit":1}'
    session.continue_to_stop(at="end")
    assert len(_recorded(session)["scaled"]) == 2
    assert _recorded(session)["scaled"][1]["limit"] == "recompile_limit"
    assert session.run_to_end() == 0
    assert "limit 1" in session.output("stdout")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"torchConfig": {"_dynamo.recompil_limit": 16}},
            'torch has no setting "_dynamo.recompil_limit"; did you mean _dynamo.recompile_limit',
        ),
        ({"torchConfig": {"recompile_limit": 16}}, "did you mean _dynamo.recompile_limit"),
        ({"torchConfig": {"_dynamo.recompile_limit": "many"}}, "is a whole number (8 now), not 'many'"),
        ({"torchConfig": {"_inductor.triton.cudagraph": True}}, "did you mean _inductor.triton.cudagraphs"),
        ({"torchLogs": "recompile"}, 'torch has no log "recompile"; did you mean recompiles'),
        ({"backend": "inducter"}, 'torch has no backend "inducter"; did you mean inductor'),
    ],
)
def test_what_torch_does_not_know_is_reported_with_what_it_may_have_meant(
    session: Session, options: dict[str, Any], expected: str
) -> None:
    """The program continues; the names are checked when it imports torch."""
    session.launch("settings", **options)
    assert session.wait_for_exit() == 0
    assert expected in session.output("important")


def test_a_function_that_is_never_met_is_reported_at_the_end(session: Session) -> None:
    session.launch("settings", compileOnly=["scaledd", "shifted"])
    assert session.wait_for_exit() == 0
    expected = session.output("important")
    assert "did you mean scaled?" in expected
    assert '"shifted"' not in expected


def test_without_debugging_options_for_torch_have_no_effect_and_that_is_said(session: Session) -> None:
    session.launch("settings", noDebug=True, backend="aot_eager", stance="force_eager")
    assert session.wait_for_exit() == 0
    assert '"stance", "backend": no effect without debugging' in session.output("important")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"stance": "fail_on_recompiles"}, '"stance" is "fail_on_recompiles"; it must be one of "default"'),
        ({"cache": "old"}, '"cache" is "old"; it must be one of "fresh"'),
        ({"compileOnly": "scaled"}, "$.compileOnly"),
        ({"torchConfig": {"_dynamo.recompile_limit": [1]}}, "$.torchConfig"),
    ],
)
def test_a_launch_with_a_wrong_value_is_refused(session: Session, options: dict[str, Any], expected: str) -> None:
    session.initialize()
    assert expected in session.refusal("launch", {"program": str(FIXTURES / "settings.py"), **options})


def test_a_wrong_value_in_the_console_changes_nothing(session: Session) -> None:
    session.launch("settings", "end", stance="eager_on_recompile")
    session.wait_for_stop("breakpoint", at="end")
    for line, expected in {
        "%stances x": "is not an option that can be changed here; did you mean stance",
        "%stance never": '"stance" is "never"; it must be one of "default"',
        "%torchConfig _dynamo.recompil_limit=3": "did you mean _dynamo.recompile_limit",
        "%backend inducter": "did you mean inductor",
    }.items():
        assert expected in session.refusal("evaluate", {"expression": line, "context": "repl"})
    assert 'stance: "eager_on_recompile"' in _console(session, "%")
    assert session.run_to_end() == 0


def test_a_fresh_cache_is_used_and_removed(new_session: NewSession, tmp_path: Path) -> None:
    """Compiled code is written to a new folder; the user's cache is neither read nor written."""
    folder = tmp_path / "cache"
    session = new_session(environment={"TORCHINDUCTOR_CACHE_DIR": str(folder)})
    session.launch("settings", "end", cache="fresh", backend="inductor")
    stop = session.wait_for_stop("breakpoint", at="end")
    used = stop.frame.evaluate("__import__('os').environ['TORCHINDUCTOR_CACHE_DIR']").text.strip("'")
    assert used != str(folder)
    assert any(Path(used).rglob("*.py"))
    assert not folder.exists()
    assert session.run_to_end() == 0
    assert not Path(used).exists()


def test_options_that_are_not_given_leave_torch_alone(session: Session) -> None:
    session.launch("settings", "end")
    stop = session.wait_for_stop("breakpoint", at="end")
    names = ("convert_frame.CatchErrorsWrapper.__call__", "output_graph.OutputGraph.__init__")
    for name in names:
        module = stop.frame.evaluate(f"torch._dynamo.{name}.__module__").text
        assert module.strip("'").startswith("torch._dynamo")
    assert session.run_to_end() == 0


EXPORTED = """
import torch

class Scale(torch.nn.Module):
    def forward(self, x):
        return x.sin() * 2

exported = torch.export.export(Scale(), (torch.ones(3),), strict=True)
print("exported", len(exported.graph.nodes))
torch.compile(Scale(), backend="eager")(torch.ones(3))
print("end")  #@end
"""


def test_a_strict_export_keeps_its_own_backend(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "exported.py"
    program.write_text(EXPORTED, encoding="utf-8")
    session.launch(program, "end", backend="aot_eager")
    session.wait_for_stop("breakpoint", at="end")
    assert "exported" in session.output("stdout")
    assert "aot_eager" in [one["backend"] for compiles in _recorded(session).values() for one in compiles]
    assert session.run_to_end() == 0
