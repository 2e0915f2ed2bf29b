"""A debugger runs code, so only its owner may reach it: no socket is on the network, and each requires a token."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from dynamo_dap.protocol.connection import Connection, RequestFailed
from dynamo_dap.protocol.wire.local_sockets import connect_locally
from dynamo_dap.protocol.wire.streams import SocketStream
from tests.client import FIXTURES, Session
from tests.client.free_program import FreeProgram
from tests.client.processes import marked_with
from tests.client.timeline import DEADLINE
from tests.conftest import NewSession
from tests.eager.test_child_processes import Family, NoReceiver

FORKS = """
import os, time
if os.fork() == 0:
    os._exit(0)
os.wait()
"""


@pytest.fixture
def family(new_session: NewSession) -> Family:
    return Family(new_session)


def ports(mark: str) -> list[Any]:
    """The ports on which the processes of a session listen."""
    found = [each for process in marked_with(mark) for each in process.net_connections("inet")]
    return [each.laddr for each in found if each.status == psutil.CONN_LISTEN]


def names(mark: str) -> set[str]:
    """The abstract sockets on which these processes listen."""
    found = [each.laddr for process in marked_with(mark) for each in process.net_connections("unix")]
    return {name for name in found if name.startswith("@dynamo-dap-")}


def show_token(address: tuple[str, int], token: str) -> None:
    """Connect with a token. Raises ``RequestFailed`` if it is refused."""
    connection = Connection(SocketStream(connect_locally(*address, DEADLINE)), "peer")
    connection.start(NoReceiver())
    try:
        connection.request("dynamoAuthorize", {"token": token}, timeout=DEADLINE)
    finally:
        connection.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has abstract sockets")
def test_a_session_takes_no_port(family: Family, tmp_path: Path) -> None:
    """A remote window of VS Code offers each port for forwarding."""
    program = tmp_path / "program.py"
    program.write_text(FORKS)
    with family.parent.launching(program):
        # At this time the processes listen for debugpy and for children.
        found = names(family.parent.mark)
        assert ports(family.parent.mark) == []
    family.wait_until_asked()
    found |= names(family.parent.mark)
    assert len(found) >= 3, "the sockets for debugpy, for children, and the child's own were there"
    assert ports(family.parent.mark) == []
    with family.child():
        pass
    assert family.parent.wait_for_exit() == 0


def test_a_child_process_that_listens_wants_its_token_and_keeps_waiting_for_it(family: Family, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(FORKS)
    with family.parent.launching(program):
        pass
    connect = family.wait_until_asked()["configuration"]["connect"]
    for wrong in ("", "guessed", connect["accessToken"][:-1]):
        with pytest.raises(RequestFailed, match="token"):
            show_token((connect["host"], connect["port"]), wrong)
    with family.child() as child:
        pass
    child.timeline.expect_event("terminated")
    assert family.parent.wait_for_exit() == 0


POSES_AS_DEBUGPY = """#!{python}
import json, os, sys
from dynamo_dap.protocol.wire.local_sockets import connect_locally
job = json.loads(os.environ["DYNAMO_DAP_LAUNCH"])
host, port = job["debugpyAddress"].split(":")
for shown in ("null", '"guessed"', '"' + job["token"] + '"'):
    peer = connect_locally(host, int(port), None)
    received = b""
    while b"pydevdAuthorize" not in received:
        received += peer.recv(1000)
    seq = json.loads(received[received.index(b"{{"):])["seq"]
    body = ('{{"seq":1,"type":"response","request_seq":%d,"success":true,"command":"pydevdAuthorize",'
            '"body":{{"clientAccessToken":%s}}}}' % (seq, shown)).encode()
    peer.sendall(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
    rest = b""
    while data := peer.recv(1000):
        rest += data
    print("cut off" if not rest else "heard " + repr(rest), file=sys.stderr)
os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""


def test_nobody_can_pose_as_debugpy_and_the_real_one_still_comes(session: Session, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(POSES_AS_DEBUGPY.format(python=sys.executable))
    python.chmod(0o755)
    program = tmp_path / "program.py"
    program.write_text("value = 1\nprint(value)  #@here\n")
    with session.launching(program, python=[str(python)]):
        session.set_breakpoints(program, "here")
    stop = session.wait_for_stop("breakpoint", at="here")
    assert stop.frame["Locals"]["value"].text == "1"
    assert session.run_to_end() == 0
    assert session.output("stderr").count("cut off") == 3


def test_a_program_that_listens_turns_wrong_tokens_away_and_loses_nothing(new_session: NewSession) -> None:
    program = FreeProgram(FIXTURES / "listening.py")
    try:
        address = program.address()
        with pytest.raises(RequestFailed, match="token"):
            show_token(address, "guessed")
        session = new_session()
        session.attach(*address, "listening", "again")
        session.wait_for_stop("breakpoint", at="again")
        # A wrong token does not disturb a running session either.
        with pytest.raises(RequestFailed, match="token"):
            show_token(address, "guessed")
        session.continue_to_stop(at="again")
        session.disconnect()
    finally:
        program.end()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_a_program_does_not_listen_beyond_this_machine_without_a_token(host: str) -> None:
    code = (
        f"import dynamo_dap\ntry:\n    dynamo_dap.listen(({host!r}, 0))\nexcept ValueError as error:\n    print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE, check=True)
    assert "give listen() an access_token" in ran.stdout


def test_the_tokens_are_on_no_command_line(family: Family, tmp_path: Path) -> None:
    """Every user of the machine can read command lines."""
    program = tmp_path / "program.py"
    program.write_text(
        "import subprocess, sys, time\n"
        "subprocess.run([sys.executable, __file__, 'child']) if len(sys.argv) == 1 else time.sleep(0.5)\n"
    )
    with family.parent.launching(program):
        pass
    configuration: dict[str, Any] = family.wait_until_asked()["configuration"]
    # The test's folder contains the test's name, which has the word "tokens".
    lines = [" ".join(process.cmdline()).replace(str(tmp_path), "") for process in marked_with(family.parent.mark)]
    assert any("--child" in line for line in lines)
    token = configuration["connect"]["accessToken"]
    assert len(token) >= 32
    assert not any(token in line or "token" in line.lower() for line in lines), lines
    with family.child():
        pass
    assert family.parent.wait_for_exit() == 0
