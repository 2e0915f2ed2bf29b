"""After any bad input, the user gets one clear message, and the session continues or ends properly."""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.wire.framing import frame
from dynamo_dap.protocol.wire.types import InitializeRequestArguments
from tests.client import FIXTURES, Fixture, Session
from tests.client.environments import VirtualEnvironment
from tests.client.session import launch_configuration
from tests.conftest import NewSession


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x00\x01\x02\x03",
        b"Content-Length: many\r\n\r\n{}",
        b"x" * 20000,
    ],
    ids=["http", "binary", "no number", "no header"],
)
def test_garbage_ends_the_connection_with_a_message(session: Session, garbage: bytes) -> None:
    session.initialize()
    session.stream.write_unchecked(garbage)
    session.timeline.wait_for_end()
    assert "Content-Length" in session.output() or "header" in session.output()


def test_a_truncated_message_ends_the_session(session: Session) -> None:
    session.initialize()
    session.stream.write_unchecked(b'Content-Length: 100\r\n\r\n{"seq": 2, ')
    session.client.close()
    session.close()
    assert session.processes_left == []


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"[1, 2]",
        b'{"seq": "one", "type": "request", "command": "threads"}',
        b'{"seq": 2, "type": "riddle"}',
        b"\xff\xfe",
    ],
    ids=["no JSON", "no object", "wrong type of seq", "unknown type", "no UTF-8"],
)
def test_a_message_that_is_no_dap_is_reported_and_the_session_continues(session: Session, body: bytes) -> None:
    session.initialize()
    session.stream.write_unchecked(frame(body))
    session.timeline.wait_until(
        lambda: bool(session.output()) or _failures(session) != [], "message about the bad input"
    )
    session.launch("plain")
    assert session.wait_for_exit() == 0


def test_refused_before_and_around_a_start(session: Session) -> None:
    session.stream.allow_bad_requests()
    assert "initialize" in session.refusal("launch", {"program": str(FIXTURES / "plain.py")})
    session.initialize()
    assert "initialize" in session.refusal("initialize", {"adapterID": "dynamo"})
    assert "dance" in session.refusal("dance")
    for command in ("threads", "continue", "stackTrace", "configurationDone"):
        session.refusal(command, {"threadId": 1})
    session.launch("endings/runs_on")
    session.wait_for_output("running")
    assert "already" in session.refusal("launch", launch_configuration("plain"))


def test_wrong_arguments_are_named(session: Session) -> None:
    session.stream.allow_bad_requests()
    session.initialize()
    assert "stopOnEntry" in _launch_refusal(session, stopOnEntry="yes")
    assert "mode" in _launch_refusal(session, mode="sometimes")
    assert "console" in _launch_refusal(session, console="somewhere")
    assert "args" in _launch_refusal(session, args=5)
    assert "cwd" in _launch_refusal(session, cwd=str(FIXTURES / "nowhere"))
    assert "python" in _launch_refusal(session, python="/no/such/python")
    assert "port" in session.refusal("attach", {"connect": {"host": "127.0.0.1", "port": "many"}})
    assert "port" in session.refusal("attach", {})


def test_requests_with_stale_or_wrong_references(session: Session) -> None:
    session.stream.allow_bad_requests()
    session.launch("basic", "first")
    stop = session.wait_for_stop("breakpoint", at="first")
    locals_reference = stop.frame["Locals"].variable.variables_reference
    frame_id, thread = stop.frame.data.id, stop.thread_id
    next_stop = session.next(at="branch")
    for command, arguments in (
        ("variables", {"variablesReference": locals_reference}),
        ("scopes", {"frameId": frame_id}),
        ("evaluate", {"expression": "x", "frameId": frame_id}),
        ("variables", {"variablesReference": 123456789}),
        ("scopes", {"frameId": 123456789}),
        ("stackTrace", {"threadId": 123456789}),
        ("continue", {"threadId": 123456789}),
        ("source", {"sourceReference": 123456789}),
        ("variables", {"variablesReference": "one"}),
        ("variables", {}),
        ("stackTrace", {"threadId": None}),
        ("setBreakpoints", {"source": {"path": "/no/such/file.py"}, "breakpoints": [{"line": "one"}]}),
        ("next", {"threadId": thread, "granularity": "leap"}),
    ):
        session.refusal(command, arguments)
    assert next_stop.frame["Locals"]["z"].text.startswith("Tensor")
    assert session.finish() == 0


def test_requests_that_need_a_stop_while_running(session: Session) -> None:
    session.launch("endings/runs_on")
    session.wait_for_output("running")
    thread = session.client.threads()[0].id
    for command in ("stackTrace", "next", "stepIn", "stepOut", "continue"):
        with pytest.raises(RequestFailed) as failed:
            session.request(command, {"threadId": thread})
        assert failed.value.response.message == "notStopped", f"{command}: {failed.value.response}"


def test_a_program_that_does_not_exist(session: Session) -> None:
    session.initialize()
    text = session.refusal("launch", launch_configuration(FIXTURES / "nowhere.py"))
    assert "nowhere.py" in text
    assert "does not exist" in text
    # The client can correct the mistake in the same session.
    session.launch("plain")
    assert session.wait_for_exit() == 0


@pytest.mark.parametrize("given", [{}, {"program": "a.py", "module": "a"}], ids=["nothing", "two things"])
def test_it_must_be_clear_what_to_launch(session: Session, given: dict[str, Any]) -> None:
    session.initialize()
    text = session.refusal("launch", given)
    assert "program" in text
    assert "module" in text


def test_a_module_that_does_not_exist(session: Session) -> None:
    configuration = launch_configuration("plain", module="no_such_module_anywhere")
    del configuration["program"]
    with session.configuring("launch", configuration):
        pass
    assert session.wait_for_exit() == 1
    assert "no_such_module_anywhere" in session.output("stderr")


def test_a_program_that_does_not_parse(session: Session) -> None:
    session.launch("broken/does_not_parse")
    assert session.wait_for_exit() == 1
    text = session.output("stderr")
    assert "SyntaxError" in text
    assert "does_not_parse.py" in text
    assert "dynamo_dap" not in text


def test_a_python_without_torch(session: Session, tmp_path: Path) -> None:
    """The user gets a message, and the program's own ``ImportError`` without any of our frames."""
    session.expects_program_traceback = True
    environment = VirtualEnvironment(tmp_path / "environment", "msgspec", "bytecode")
    session.launch("basic", "first", python=str(environment.python))
    assert session.wait_for_exit() == 1
    text = session.output("stderr")
    assert "No module named 'torch'" in text
    assert "dynamo_dap" not in text
    assert "torch" in session.output("important")


def test_a_torch_that_is_too_old(session: Session, tmp_path: Path) -> None:
    """The program runs, and the user gets a message about features that cannot work."""
    environment = VirtualEnvironment(tmp_path / "environment", "msgspec", "bytecode")
    environment.add_package("torch", "1.13.1", "__version__ = '1.13.1'\n")
    program = tmp_path / "program.py"
    program.write_text("import torch\nprint('torch', torch.__version__)\n")
    session.launch(program, python=str(environment.python))
    assert session.wait_for_exit() == 0
    assert "torch 1.13.1" in session.output("stdout")
    assert "1.13.1" in session.output("important")


def test_an_interpreter_that_is_none(session: Session, tmp_path: Path) -> None:
    impostor = tmp_path / "python"
    impostor.write_text("#!/bin/sh\necho I am no Python\nexit 7\n")
    impostor.chmod(impostor.stat().st_mode | stat.S_IXUSR)
    session.initialize()
    text = _launch_refusal(session, python=str(impostor))
    assert text.startswith(f"{impostor} exited with code 7 ")


def test_attach_where_nobody_listens(session: Session) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    session.initialize()
    text = session.refusal("attach", {"connect": {"host": "127.0.0.1", "port": port}})
    assert str(port) in text


def test_attach_where_something_else_listens(session: Session) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        session.initialize()
        arguments = {"connect": {"host": "127.0.0.1", "port": listener.getsockname()[1]}, "launchTimeout": 1.0}
        assert f"127.0.0.1:{listener.getsockname()[1]}" in session.refusal("attach", arguments)


def test_a_client_that_leaves_without_a_word_leaves_no_program_behind(new_session: NewSession) -> None:
    session = new_session()
    session.launch("endings/runs_on", args=["--ignore-interrupt"])
    session.wait_for_output("running")
    session.client.close()
    session.close()
    assert session.processes_left == []


def test_a_path_that_is_no_text_is_no_trouble(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "prográm with spaces 😀.py"
    program.write_text("print('ran')\n")
    session.launch(program)
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == "ran\n"


@pytest.mark.parametrize("path", ["no\0file.py", "\0", "x" * 5000, "a pipe"])
def test_a_path_that_no_file_can_have_is_refused(session: Session, tmp_path: Path, path: str) -> None:
    if path == "a pipe":
        path = str(tmp_path / path)
        os.mkfifo(path)
    session.initialize()
    assert '"program"' in session.refusal("launch", {"program": path}) or len(path) > 1000
    session.launch("plain", eager=True, stopOnEntry=True)
    session.wait_for_stop("entry")
    arguments = {"source": {"path": path}, "line": 1}
    assert "cannot read" in session.refusal("breakpointLocations", arguments)
    wanted = {"source": {"path": path}, "breakpoints": [{"line": 1}]}
    reported = session.request("setBreakpoints", wanted)
    assert [one["verified"] for one in reported["breakpoints"]] == [False]
    assert reported["breakpoints"][0]["message"]
    session.resume()
    assert session.wait_for_exit() == 0


def test_columns_and_lines_that_count_from_zero(session: Session) -> None:
    session.initialize(
        InitializeRequestArguments(
            adapter_id="dynamo", lines_start_at1=False, columns_start_at1=False, path_format="path"
        )
    )
    with session.launching("basic"):
        line = Fixture("basic").line("first")
        answer = session.request(
            "setBreakpoints",
            {"source": {"path": str(FIXTURES / "basic.py")}, "breakpoints": [{"line": line - 1}]},
        )
        assert answer["breakpoints"][0]["line"] == line - 1
    stop = session.wait_for_stop("breakpoint")
    assert stop.frame.line == line - 1
    session.request("setBreakpoints", {"source": {"path": str(FIXTURES / "basic.py")}, "breakpoints": []})
    assert session.run_to_end() == 0


def _launch_refusal(session: Session, **options: Any) -> str:
    return session.refusal("launch", launch_configuration("plain", **options))


def _failures(session: Session) -> list[str]:
    messages = [entry.message for entry in session.timeline.entries if not entry.sent]
    return [json.dumps(message) for message in messages if message.get("success") is False]
