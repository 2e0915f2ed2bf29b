"""Agents that misbehave: each is reported in words, within the given time, and nothing is left.

The agents here are scripts that pose as an interpreter, since the real agent does not misbehave.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dynamo_dap.protocol.requests.contract import ProcessInformation
from dynamo_dap.server.programs.debuggee import version_warning
from tests.client import Session
from tests.client.session import launch_configuration
from tests.server.programs import write

AGENT = """\
#!{python}
import json, os, sys, time
from dynamo_dap.protocol.wire.local_sockets import connect_locally
job = json.loads(os.environ["DYNAMO_DAP_LAUNCH"])
host, port = job["address"].split(":")
server = connect_locally(host, int(port), None)
received = b""
def send(**message):
    body = json.dumps({{"seq": 1, **message}}).encode()
    server.sendall(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
def read():
    global received
    while b"\\r\\n\\r\\n" not in received: received += server.recv(9999) or sys.exit(8)
    length = int(received.split(b"\\r\\n")[0].split(b":")[1])
    received = received.split(b"\\r\\n\\r\\n", 1)[1]
    while len(received) < length: received += server.recv(9999)
    body, received = received[:length], received[length:]
    return json.loads(body)
def answer(request, **more):
    send(type="response", request_seq=request["seq"], command=request["command"], **more)
def authorize(**information):
    send(type="request", command="dynamoAuthorize", arguments={{"token": job["token"], **information}})
    return read()
{behaviour}
time.sleep(600)
"""

AUTHORIZES = "authorize(processId=os.getpid(), torchVersion='2.13.0')\nanswer(read(), success=True)\n"


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        ("", "did not connect to the debugger within 1 s"),
        ("authorize(processId='one')", "did not connect to the debugger within 1 s"),
        ("authorize()", "did not answer 'initialize' within 1 s"),
        (AUTHORIZES, "did not answer 'attach' within 1 s"),
        (AUTHORIZES + "answer(read(), success=True)", "was not ready within 1 s"),
        (AUTHORIZES + "answer(read(), success=False, message='busy')", "refused: busy"),
        (AUTHORIZES + "answer(read(), success=True); server.close()", "closed its connection"),
        (AUTHORIZES + "server.close()", "agent is gone"),
        (AUTHORIZES + "server.sendall(b'garbage'); server.close()", "agent is gone"),
        (AUTHORIZES + "sys.stderr.write('the reason'); sys.exit(12)", "exited with code 12"),
        (AUTHORIZES + "os.kill(os.getpid(), 9)", "died of SIGKILL (signal 9)"),
        ("sys.stderr.write('first\\n\\ndynamo-dap: lacks a package\\n'); sys.exit(3)", "lacks a package"),
        ("sys.exit(0)", "wrote nothing to stderr"),
    ],
    ids=[
        "says nothing",
        "wrong information",
        "no answer to initialize",
        "no answer to attach",
        "never initialized",
        "refuses",
        "leaves before initialized",
        "leaves",
        "garbage",
        "exits",
        "is killed",
        "cannot run",
        "exits without a word",
    ],
)
def test_an_agent_that_misbehaves_is_reported(session: Session, tmp_path: Path, behaviour: str, expected: str) -> None:
    python = write(tmp_path, AGENT.format(python=sys.executable, behaviour=behaviour), "python")
    python.chmod(0o755)
    session.initialize()
    text = session.refusal("launch", launch_configuration("plain", python=str(python), launchTimeout=1.0))
    assert expected in text
    assert "initialized" not in [event["event"] for event in session.timeline.events]
    session.launch("plain")
    assert session.wait_for_exit() == 0


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (None, "has no torch"),
        ("1.13.1+cu117", "has no torch.compile"),
        ("2.0.0", "older than the oldest supported version (2.12)"),
        ("2.11.1", "features may be unavailable"),
        ("2.12.0", None),
        ("2.13.0+cpu", None),
        ("3.0.0.dev1", None),
        ("a build of ours", None),
    ],
)
def test_a_torch_that_is_not_supported_is_reported(version: str | None, expected: str | None) -> None:
    warning = version_warning(ProcessInformation(executable="/env/python", torch_version=version))
    assert (warning is None) == (expected is None)
    if expected is not None:
        assert warning is not None
        assert expected in warning
        assert "/env/python" in warning
