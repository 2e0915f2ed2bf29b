"""Each child process has its own session, which debugs eager code, traces and generated code in it."""

from __future__ import annotations

import json
import queue
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dynamo_dap.protocol.connection import Connection, RequestFailed
from dynamo_dap.protocol.wire.local_sockets import connect_locally
from dynamo_dap.protocol.wire.messages import Event, Request
from dynamo_dap.protocol.wire.streams import SocketStream
from tests.client import Fixture, Session
from tests.client.session import INITIALIZE
from tests.conftest import NewSession

PROGRAM = Fixture("eager/child_processes")
WITH_CHILDREN = msgspec.structs.replace(INITIALIZE, supports_start_debugging_request=True)
DEADLINE = 240.0


class Family:
    """A session, and the sessions of the child processes that its server requested."""

    def __init__(self, new_session: NewSession) -> None:
        self._new_session = new_session
        self._asked: queue.Queue[dict[str, Any]] = queue.Queue()
        self._next: dict[str, Any] | None = None
        """The next request for a child session, if a test has already read it."""
        self.answers = threading.Event()
        """Set while the client answers requests at once."""
        self.answers.set()
        self.parent = self._session()

    def _session(self) -> Session:
        session = self._new_session(reverse_requests={"startDebugging": self._start_debugging})
        session.initialize(WITH_CHILDREN)
        return session

    def _start_debugging(self, request: Request) -> None:
        self._asked.put(msgspec.json.decode(bytes(request.arguments)))
        assert self.answers.wait(DEADLINE)

    @contextmanager
    def child(self) -> Iterator[Session]:
        """The next child's session; breakpoints are set in the body, after which the child runs."""
        asked, self._next = self.wait_until_asked(), None
        assert asked["request"] == "attach"
        session = self._session()
        with session.configuring("attach", asked["configuration"]):
            yield session

    def wait_until_asked(self) -> dict[str, Any]:
        """Wait until the server has requested a session, and return its configuration. ``child`` still gets it."""
        self._next = self._next or self._asked.get(timeout=DEADLINE)
        return self._next

    @property
    def has_asked_for_more(self) -> bool:
        return self._next is not None or not self._asked.empty()


@pytest.fixture
def family(new_session: NewSession) -> Family:
    return Family(new_session)


def look_at_child(child: Session) -> None:
    """Step through the child's eager line, into the trace, and back."""
    stop = child.wait_for_stop("breakpoint", at="eager")
    assert stop.frame["Locals"]["n"].text in ("0", "1")
    stop = child.continue_to_stop(at="traced")
    assert stop.frame["Locals"]["x"].text.startswith("Tensor f32[")
    assert "work" in [frame.name for frame in stop.frames]
    stop = child.continue_to_stop(at="computed")
    assert stop.frame["Locals"]["result"].text.startswith("Tensor ")
    child.set_breakpoints(PROGRAM)
    child.resume()


RESULTS = {
    "spawn": "[8.0]",
    "forkserver": "[8.0]",
    "command": "0",
    "fork": "[8.0]",
    "fork_by_hand": "5",
    "data_loader": "[4.0, 8.0]",
}


@pytest.mark.parametrize("ways", [("fork", "fork_by_hand", "data_loader"), ("spawn", "command"), ("forkserver",)])
def test_a_child_process_is_debugged_in_a_session_of_its_own(family: Family, ways: tuple[str, ...]) -> None:
    with family.parent.launching(PROGRAM, args=list(ways)):
        pass
    for _ in ways:
        with family.child() as child:
            child.set_breakpoints(PROGRAM, "eager", "traced", "computed")
        look_at_child(child)
        child.timeline.expect_event("terminated", unless=("stopped",))
    assert family.parent.wait_for_exit() == 0
    printed = family.parent.output("stdout")
    assert all(f"{way} {RESULTS[way]}\n" in printed for way in ways), printed
    assert not family.has_asked_for_more


def launch(session: Session, tmp_path: Path, text: str, **options: Any) -> Fixture:
    program = Fixture(tmp_path / "program.py")
    program.path.write_text(text)
    with session.launching(program, **options):
        pass
    return program


RUNS_ITSELF = """
import os, subprocess, sys
if len(sys.argv) > 1:
    number = int(sys.argv[1]) - 1  #@child
    if number:
        subprocess.run([sys.executable, "-O", __file__, str(number)], check=True)
    print("ended", sys.argv[1:], sys.flags.optimize, flush=True)
else:
    subprocess.run(["echo", "not Python"])
    subprocess.run([sys.executable, "-O", __file__, "2"], check=True)
"""


FORKS = """
import os, threading

def known_id():
    return vars(threading.current_thread()).get("__pydevd_id__")

def begin():
    print("known" if known_id() == of_parent else "forgotten", flush=True)

of_parent = known_id()
print(of_parent is not None, flush=True)
os.register_at_fork(after_in_child=begin)
child = os.fork()
if not child:
    os._exit(0)
os.waitpid(child, 0)
"""


def test_the_thread_of_a_fork_has_its_own_id_at_once(session: Session, tmp_path: Path) -> None:
    """If pydevd gave it the id while the thread stopped, requests to it were refused: it had resumed, they said.

    The child needs no session for that.
    """
    launch(session, tmp_path, FORKS, subProcess=False)
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == "True\nforgotten\n"


def test_a_child_of_a_child(family: Family, tmp_path: Path) -> None:
    program = launch(family.parent, tmp_path, RUNS_ITSELF)
    for number in ("'2'", "'1'"):
        with family.child() as child:
            child.set_breakpoints(program, "child")
        stop = child.wait_for_stop("breakpoint", at="child")
        assert stop.frame.evaluate("sys.argv[1]").text == number
        child.resume()
    assert family.parent.wait_for_exit() == 0
    assert "ended ['1'] 1\nended ['2'] 1\n" in family.parent.output("stdout")


def test_a_program_that_replaces_itself_continues_in_a_child_session(family: Family, tmp_path: Path) -> None:
    text = "import os, sys\nif len(sys.argv) == 1:\n    os.execv(sys.executable, [sys.executable, __file__, 'again'])\n"
    program = launch(family.parent, tmp_path, text + "print('replaced')  #@replaced\n")
    with family.child() as child:
        child.set_breakpoints(program, "replaced")
    child.wait_for_stop("breakpoint", at="replaced")
    assert family.parent.timeline.expect_event("process")["systemProcessId"] is not None
    child.resume()
    assert family.parent.wait_for_exit() == 0
    assert "replaced" in family.parent.output("stdout")
    assert "broke" not in family.parent.output("important")


def test_a_child_waits_for_a_client_that_is_slow_to_answer(family: Family, tmp_path: Path) -> None:
    family.answers.clear()
    text = "import subprocess, sys\nif len(sys.argv) == 1:\n    subprocess.run([sys.executable, __file__, 'again'])\n"
    program = launch(family.parent, tmp_path, text + "print('reached')  #@reached\n")
    family.wait_until_asked()
    time.sleep(10)  # longer than a child waits for a client that has answered
    with family.child() as child:
        child.set_breakpoints(program, "reached")
    family.answers.set()
    child.wait_for_stop("breakpoint", at="reached")
    child.resume()
    assert family.parent.wait_for_exit() == 0
    assert "without debugging" not in family.parent.output("important")


def test_a_child_whose_python_lacks_our_packages_runs_undebugged(family: Family, tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    child.write_text("import sys; print(sys.argv[1:])")
    start = f"subprocess.run([sys.executable, '-IS', {str(child)!r}, 'x'])\n"
    launch(family.parent, tmp_path, "import subprocess, sys\n" + start + start)
    assert family.parent.wait_for_exit() == 0
    message = family.parent.output("stderr")
    assert message.count("is not debugged: No module named '") == 1, "once, not for each"
    assert family.parent.output("stdout") == "['x']\n['x']\n"
    assert not family.has_asked_for_more


def test_a_client_that_refuses_the_session_leaves_the_child_running(new_session: NewSession, tmp_path: Path) -> None:
    def refuse(request: Request) -> None:
        raise ValueError(f"no more windows for '{request.command}'")

    session = new_session(reverse_requests={"startDebugging": refuse})
    session.initialize(WITH_CHILDREN)
    launch(session, tmp_path, RUNS_ITSELF)
    assert session.wait_for_exit() == 0
    assert "runs without debugging" in session.output("important")
    assert "ended ['2'] 1" in session.output("stdout")


def test_children_are_left_alone_where_the_client_cannot_have_sessions(session: Session, tmp_path: Path) -> None:
    launch(session, tmp_path, RUNS_ITSELF, subProcess=True)
    assert session.wait_for_exit() == 0
    assert "starts no sessions" in session.output("important")
    assert "ended ['2'] 1" in session.output("stdout")


def test_children_are_left_alone_when_that_is_wanted(family: Family, tmp_path: Path) -> None:
    launch(family.parent, tmp_path, RUNS_ITSELF, subProcess=False)
    assert family.parent.wait_for_exit() == 0
    assert not family.has_asked_for_more


def test_the_end_of_the_session_lets_waiting_children_run(family: Family, tmp_path: Path) -> None:
    marker = tmp_path / "ended"
    text = f"""
import os, pathlib
if os.fork() == 0:
    pathlib.Path({str(marker)!r}).touch()
    os._exit(0)
os.wait()
"""
    launch(family.parent, tmp_path, text)
    family.wait_until_asked()
    assert not marker.exists()
    family.parent.disconnect(terminateDebuggee=False)
    until = time.monotonic() + DEADLINE
    while not marker.exists():
        assert time.monotonic() < until, "the child still waits for a session that nobody starts"
        time.sleep(0.02)


def test_a_wrong_token_offers_no_session(family: Family, tmp_path: Path) -> None:
    """The server accepts a child only with the token of its invitation, which only this user can read."""
    launch(family.parent, tmp_path, "import os\nif os.fork() == 0:\n    os._exit(0)\nos.wait()\n")
    family.wait_until_asked()
    files = list(Path(tempfile.gettempdir()).glob(f"dynamo-dap-{family.parent.server_process_id}-*/children.json"))
    assert len(files) == 1
    assert files[0].stat().st_mode & 0o077 == 0
    assert files[0].parent.stat().st_mode & 0o077 == 0
    host, _, port = json.loads(files[0].read_text())["address"].rpartition(":")
    connection = Connection(SocketStream(connect_locally(host, int(port), DEADLINE)), "server")
    connection.start(NoReceiver())
    offer = {"token": "guessed", "processId": 1, "host": "127.0.0.1", "port": 1, "accessToken": "x"}
    with pytest.raises(RequestFailed, match="token"):
        connection.request("dynamoAuthorize", offer, timeout=DEADLINE)
    connection.close()
    with family.child() as child:
        pass
    child.timeline.expect_event("terminated")
    assert family.parent.wait_for_exit() == 0
    assert not family.has_asked_for_more
    family.parent.close()
    assert not files[0].exists()


class NoReceiver:
    """Ignores all messages."""

    def on_request(self, request: Request) -> None: ...

    def on_event(self, event: Event) -> None: ...

    def on_invalid_message(self, problem: str) -> None: ...

    def on_closed(self, problem: str | None) -> None: ...
