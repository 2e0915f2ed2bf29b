"""IDE, server or agent is gone before the others: this is reported, and the session ends with nothing left."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.client import Session
from tests.client.timeline import DEADLINE
from tests.server.programs import PAUSING, RUNNING_ON, write

CLOSES_AGENT = """\
import os, socket, time
print("running", flush=True)
for descriptor in range(3, 64):
    try:
        if socket.socket(fileno=os.dup(descriptor)).getpeername():
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
    except OSError:
        pass
while True: time.sleep(0.05)
"""


def test_a_program_that_becomes_another_ends_properly(session: Session, tmp_path: Path) -> None:
    """``exec`` closes the agent's connection in a living process."""
    session.launch(
        write(
            tmp_path,
            "import os, sys\n"
            "print('first', flush=True)\n"
            "os.execv(sys.executable, [sys.executable, '-c', 'import sys; print(\"second\"); sys.exit(6)'])\n",
        )
    )
    assert session.wait_for_exit() == 6
    assert session.output("stdout") == "first\nsecond\n"


def test_an_agent_that_is_gone_is_reported(session: Session, tmp_path: Path) -> None:
    session.launch(
        write(
            tmp_path,
            "import os, sys\n"
            "print('first', flush=True)\n"
            "os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(600)'])\n",
        )
    )
    session.wait_for_output("runs on, without debugging")
    assert session.request("threads") == {"threads": []}
    assert "without debugging" in session.refusal("pause", {"threadId": 1})
    session.request("terminate")
    assert session.wait_for_exit() == -signal.SIGTERM


def test_the_program_ends_with_a_client_that_is_gone(session: Session, tmp_path: Path) -> None:
    session.launch(write(tmp_path, PAUSING))
    session.wait_for_stop("breakpoint")
    session.client.close()
    assert session._server.wait(DEADLINE) == 0
    session.close()
    assert session.processes_left == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_program_ends_with_a_server_that_is_asked_to_end(
    session: Session, tmp_path: Path, number: signal.Signals
) -> None:
    session.launch(write(tmp_path, "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + RUNNING_ON))
    session.wait_for_output("running")
    os.kill(session.server_process_id, number)
    session.timeline.wait_for_end()
    session.close()
    assert session.processes_left == []


def test_the_program_ends_with_a_server_that_is_killed(session: Session, tmp_path: Path) -> None:
    session.launch(write(tmp_path, RUNNING_ON))
    session.wait_for_output("running")
    os.kill(session.server_process_id, signal.SIGKILL)
    session.close()
    assert session.processes_left == []


def test_garbage_gives_status_one_and_ends_the_program(session: Session, tmp_path: Path) -> None:
    session.launch(write(tmp_path, RUNNING_ON))
    session.wait_for_output("running")
    session.stream.write_unchecked(b"garbage\r\n")
    session.timeline.expect_event("terminated")
    assert session._server.wait(DEADLINE) == 1
    assert "other than the Debug Adapter Protocol" in session.output("important")
    session.close()
    assert session.processes_left == []


def test_a_client_that_says_goodbye_and_leaves_at_once_is_obeyed(session: Session, tmp_path: Path) -> None:
    session.launch(write(tmp_path, RUNNING_ON))
    session.wait_for_output("running")
    process_id = next(e["body"]["systemProcessId"] for e in session.timeline.events if e["event"] == "process")
    session.client.send("disconnect", {"terminateDebuggee": False})
    session.client.close()
    assert session._server.wait(DEADLINE) == 0
    os.kill(process_id, 0)
    os.kill(process_id, signal.SIGKILL)


def test_a_held_program_is_terminated(session: Session, tmp_path: Path) -> None:
    session.launch(write(tmp_path, PAUSING))
    session.wait_for_stop("breakpoint")
    session.request("terminate")
    assert session.wait_for_exit() == -signal.SIGTERM, "it was killed, and not asked"
    assert "SIGTERM" not in session.output(), "what the user asked for is not news"


def test_another_process_cannot_pose_as_the_agent(session: Session, tmp_path: Path) -> None:
    """The socket of the agent is open to every program of this machine; the token is not."""
    python = write(
        tmp_path,
        f"#!{sys.executable}\n"
        "import json, os, sys\n"
        "from dynamo_dap.protocol.wire.local_sockets import connect_locally\n"
        "host, port = json.loads(os.environ['DYNAMO_DAP_LAUNCH'])['address'].split(':')\n"
        'for body in (b\'{"seq":1,"type":"request","command":"dynamoAuthorize",'
        '"arguments":{"token":"guessed"}}\', b\'{"seq":1,"type":"request","command":"initialize"}\', b\'[]\'):\n'
        "    peer = connect_locally(host, int(port), None)\n"
        "    peer.sendall(b'Content-Length: %d\\r\\n\\r\\n' % len(body) + body)\n"
        "    answer = b''\n"
        "    while data := peer.recv(1000): answer += data\n"
        "    print(answer, file=sys.stderr)\n"
        "sys.exit(4)\n",
        "python",
    )
    python.chmod(0o755)
    session.initialize()
    text = session.refusal("launch", {"program": str(write(tmp_path, PAUSING)), "python": str(python)})
    assert "exited with code 4" in text
    assert text.count('"success":false') == 2
    assert "initialize" not in [entry.message.get("event") for entry in session.timeline.entries]
