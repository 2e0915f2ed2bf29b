"""The server gets the scopes of ordinary frames together with their local variables, in one request to debugpy.

These variables must never be outdated when the client requests them, and must run no code of the program unasked.
"""

from __future__ import annotations

import threading
from pathlib import Path

from tests.client import Session
from tests.client.timeline import DEADLINE

DEFAULT = {"eager": True, "mode": "both"}
"""The defaults of ``launch``; the client of the tests has other options."""

PROGRAM = """
import sys

opened = []
sys.addaudithook(lambda event, given: event == "open" and opened.append(str(given[0])))
import _pydevd_bundle.pydevd_comm as served
import _pydevd_bundle.pydevd_api as api

looks = []
own = api.internal_get_variable_json

def counted(py_db, request):
    looks.append(request.arguments.variablesReference)
    own(py_db, request)

api.internal_get_variable_json = counted

class Counting:
    shown = 0

    def __repr__(self):
        Counting.shown += 1
        return f"shown {Counting.shown} times"

def plain(n):
    items = [n]
    text = "a"  #@plain
    items.append(2)
    return items  #@later

def speaking():
    counting = Counting()
    number = 1
    return counting  #@speaking

for n in range(3):
    plain(n)
speaking()
"""


class Looking:
    """A session that counts the server's requests to debugpy."""

    def __init__(self, session: Session, folder: Path, *lines: str) -> None:
        self.program = folder / "program.py"
        self.program.write_text(PROGRAM, encoding="utf-8")
        self._session = session
        self._places = {
            line.rpartition("#@")[2]: number for number, line in enumerate(PROGRAM.splitlines(), 1) if "#@" in line
        }
        with session.launching(self.program, **DEFAULT):
            self.set_breakpoints(*lines)

    def set_breakpoints(self, *lines: str) -> None:
        """Set breakpoints, and no others."""
        wanted = [{"line": self._places[line]} for line in lines]
        asked = {"source": {"path": str(self.program)}, "breakpoints": wanted}
        self._session.request("setBreakpoints", asked)

    def stop(self) -> None:
        """Wait for a stop."""
        thread = self._session.wait_for_stop().thread_id
        self.thread = thread
        self.frame = self._session.request("stackTrace", {"threadId": thread})["stackFrames"][0]["id"]

    def scopes(self) -> int:
        """Request the scopes; return the reference of the local variables."""
        return int(self._session.request("scopes", {"frameId": self.frame})["scopes"][0]["variablesReference"])

    def variables(self, reference: int, **page: object) -> dict[str, str]:
        """Request variables."""
        body = self._session.request("variables", {"variablesReference": reference, **page})
        return {one["name"]: one["value"] for one in body["variables"]}

    def evaluate(self, expression: str) -> str:
        """Evaluate in the frame."""
        asked = {"expression": expression, "frameId": self.frame, "context": "repl"}
        return str(self._session.request("evaluate", asked)["result"])

    def continue_to_stop(self, command: str = "next") -> None:
        """Continue to the next stop."""
        self._session.request(command, {"threadId": self.thread})
        self.stop()

    def served(self) -> int:
        """How many requests for variables debugpy got since the last call."""
        return int(self.evaluate("[len(looks), looks.clear()][0]"))


def test_scopes_come_with_the_local_variables_on_every_call(session: Session, tmp_path: Path) -> None:
    looking = Looking(session, tmp_path, "plain")
    asked_again = []
    for call in range(3):
        looking.stop()
        looking.served()
        assert looking.variables(looking.scopes()) == {"items": f"[{call}]", "n": str(call)}
        asked_again.append(looking.served())
        looking.continue_to_stop()
        reference = looking.scopes()
        session.request("threads")
        assert looking.variables(reference) == {"items": f"[{call}]", "n": str(call), "text": "'a'"}
        asked_again.append(looking.served())
        # A request for a page goes to debugpy, and the fetched variables are used only once.
        reference = looking.scopes()
        assert looking.variables(reference, start=1, count=1) == {"n": str(call)}
        assert looking.served() == 1
        reference = looking.scopes()
        assert looking.variables(reference) == looking.variables(reference)
        assert looking.served() >= 1
        session.request("continue", {"threadId": looking.thread})
    # On a busy machine, a request may come too late to use the fetched variables.
    assert 0 in asked_again, asked_again
    assert session.wait_for_exit() == 0


def test_what_came_along_is_never_older_than_what_was_done_since(session: Session, tmp_path: Path) -> None:
    looking = Looking(session, tmp_path, "plain")
    looking.stop()
    reference = looking.scopes()
    session.request("setVariable", {"variablesReference": reference, "name": "n", "value": "7"})
    assert looking.variables(reference)["n"] == "7"
    reference = looking.scopes()
    looking.evaluate("items.append(5)")
    assert looking.variables(reference)["items"] == "[0, 5]"
    # An expression is running when the scopes are requested, and ends before the variables are requested.
    ended = threading.Event()
    asked = {"frameId": looking.frame, "context": "repl", "expression": "__import__('time').sleep(0.2) or items.pop()"}
    session.client.connection.send_request("evaluate", asked, lambda response: ended.set())
    reference = looking.scopes()
    assert ended.wait(DEADLINE)
    assert looking.variables(reference)["items"] == "[0]"
    reference = looking.scopes()
    looking.continue_to_stop()
    assert looking.variables(looking.scopes())["text"] == "'a'"
    looking.continue_to_stop()
    assert looking.variables(looking.scopes())["items"] == "[0, 2]"
    session.disconnect()


def test_no_code_of_the_program_runs_for_what_nobody_has_asked_for(session: Session, tmp_path: Path) -> None:
    looking = Looking(session, tmp_path, "speaking")
    looking.stop()
    reference = looking.scopes()
    assert looking.evaluate("Counting.shown") == "0"
    assert looking.variables(reference) == {"counting": "shown 1 times", "number": "1"}
    assert looking.variables(looking.scopes())["counting"] == "shown 2 times"
    session.disconnect()


def test_no_file_is_read_at_a_stop_that_was_read_before(session: Session, tmp_path: Path) -> None:
    looking = Looking(session, tmp_path, "plain")
    looking.stop()
    for _ in range(3):
        looking.set_breakpoints("plain", "later")
        for scope in session.request("scopes", {"frameId": looking.frame})["scopes"]:
            looking.variables(scope["variablesReference"])
        looking.continue_to_stop()
    opened = looking.evaluate(f"opened.count({str(looking.program)!r})")
    assert opened == "0", "the file was read for the first breakpoint in it"
    session.disconnect()
