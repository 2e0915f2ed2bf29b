"""Starts the debugged program in a terminal and reports its end to the server. ``python supervisor.py JOB``.

Runs as its own process, with the server's Python, in the terminal that the IDE opened. ``JOB`` is a JSON file that only
its owner can read; it is removed once read. The main thread waits for the program; the connection's reader thread
serves the server's requests. When the server dies, the program is killed, unless it was detached. The program is the
terminal's foreground process group, so that Ctrl-C reaches it alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynamo_dap.protocol.connection import Connection
    from dynamo_dap.protocol.wire.messages import Event, Request

_TERMINAL = 0
_IGNORED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTTOU)
"""Keyboard signals, which are for the program, and SIGTTOU, which a background process gets at terminal changes."""
_PASSED_ON = (signal.SIGHUP, signal.SIGTERM)
"""Signals at the end of the terminal or the session. The program gets them, and its end is still reported."""
_ANSWER_TIMEOUT = 10.0


def main() -> int:
    """Run the job's program and return its exit code, as a shell would."""
    if len(sys.argv) != 2:
        print("usage: supervisor.py JOB (the debug server runs this)", file=sys.stderr)  # noqa: T201  (the terminal is the only place for it)
        return 2
    file = Path(sys.argv[1])
    job = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    sys.path[:] = job["path"]
    program, problem = _start(job)
    orders = _Orders(program)
    try:
        connection = _connect(job, orders, {"processId": program.pid} if program else {"problem": problem})
    except Exception as error:  # noqa: BLE001 - whatever it is, the program must not be left behind
        orders.kill()
        print(f"dynamo-dap: the debug server does not answer: {error}", file=sys.stderr)  # noqa: T201  (the terminal is the only place for it)
        return 1
    if program is None:
        print(f"dynamo-dap: {problem}", file=sys.stderr)  # noqa: T201  (the terminal is the only place for it)
        connection.close()
        return 1
    exit_code = _wait(program)
    orders.has_ended.set()
    connection.send_event("exited", {"exitCode": exit_code})
    connection.close()
    return exit_code if exit_code >= 0 else 128 - exit_code


def _start(job: dict[str, Any]) -> tuple[subprocess.Popen[bytes] | None, str]:
    environment = {name: value for name, value in os.environ.items() if name not in job["environment"]}
    environment.update({name: value for name, value in job["environment"].items() if value is not None})
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    try:
        program = subprocess.Popen(
            job["command"],
            cwd=job["cwd"],
            env=environment,
            preexec_fn=_become_foreground,  # noqa: PLW1509 - no other thread has been started yet
        )
    except (OSError, subprocess.SubprocessError) as error:
        return None, f"cannot start {job['command'][0]}: {getattr(error, 'strerror', None) or error}"
    for number in _PASSED_ON:
        signal.signal(number, lambda received, _: os.killpg(program.pid, received))
    return program, ""


def _become_foreground() -> None:
    """Run in the child, before the program: make a process group and give it the terminal, if there is one."""
    os.setpgid(0, 0)
    with contextlib.suppress(OSError):
        os.tcsetpgrp(_TERMINAL, os.getpgrp())
    for number in _IGNORED:
        signal.signal(number, signal.SIG_DFL)


def _wait(program: subprocess.Popen[bytes]) -> int:
    """Wait for the program's end, and take the terminal back."""
    while True:
        _, status = os.waitpid(program.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            # No shell could resume the program in the foreground after Ctrl-Z, so resume it here.
            if os.WSTOPSIG(status) == signal.SIGTSTP:
                os.killpg(program.pid, signal.SIGCONT)
            continue
        with contextlib.suppress(OSError):
            os.tcsetpgrp(_TERMINAL, os.getpgrp())
        return os.waitstatus_to_exitcode(status)


def _connect(job: dict[str, Any], orders: _Orders, introduced: dict[str, object]) -> Connection:
    from dynamo_dap.protocol.connection import Connection
    from dynamo_dap.protocol.requests.contract import AUTHORIZE
    from dynamo_dap.protocol.wire.local_sockets import connect_locally
    from dynamo_dap.protocol.wire.streams import SocketStream

    host, _, port = job["address"].rpartition(":")
    connected = connect_locally(host, int(port), _ANSWER_TIMEOUT)
    connection = Connection(SocketStream(connected), "server")
    orders.connection = connection
    connection.start(orders)
    connection.request(AUTHORIZE, {"token": job["token"], **introduced}, timeout=_ANSWER_TIMEOUT)
    return connection


class _Orders:
    """Carries out the server's requests, on the connection's reader thread."""

    def __init__(self, program: subprocess.Popen[bytes] | None) -> None:
        self.connection: Connection | None = None
        self.has_ended = threading.Event()
        self._program = program
        self._is_detached = False

    def on_request(self, request: Request) -> None:
        assert self.connection is not None
        if request.command == "terminate":
            self._signal(signal.SIGTERM)
        elif request.command == "disconnect":
            arguments = json.loads(bytes(request.arguments))
            self._is_detached = not arguments.get("terminateDebuggee", True)
            if not self._is_detached:
                self.kill()
        self.connection.respond(request)

    def on_event(self, event: Event) -> None:
        pass

    def on_invalid_message(self, problem: str) -> None:
        pass

    def on_closed(self, problem: str | None) -> None:
        if not self._is_detached:
            self.kill()

    def kill(self) -> None:
        """End the program and its group."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._program is not None and not self.has_ended.is_set():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._program.pid, number)


if __name__ == "__main__":
    sys.exit(main())
