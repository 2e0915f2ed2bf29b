"""Answers each request to a stopped thread in time, even if the thread has resumed meanwhile.

pydevd queues such a request for the thread. If the thread resumes first, the request would wait for the thread's next
stop. Some requests about frames that no longer exist are never answered by pydevd. pydevd's functions are wrapped once
per process. Its reader thread receives requests; the threads that it has stopped serve them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from dynamo_dap.debuggee.agent.conditions import Conditions
from dynamo_dap.debuggee.agent.interruption import Interruptible
from dynamo_dap.debuggee.eager import slow_rows
from dynamo_dap.debuggee.values.model import Interrupted, text_of_raised
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.debuggee.wrapping.patches import Patches


class Raised(Exception):
    """An expression raised an exception that pydevd does not catch; the text names it."""


_CANCELLED = "cancelled"
"""DAP's message of a response to a cancelled request."""


def refuse(py_db: object, request_seq: int, command: str, text: str, message: str = "") -> None:
    """Answer a request with a failure; ``message`` is DAP's short form of the error, if it has one."""
    body = {"error": {"id": 1, "format": "{text}", "variables": {"text": text}}}
    _answer(py_db, request_seq, command, {"success": False, "message": message or text, "body": body})


def _answer(py_db: Any, request_seq: int, command: str, answered: dict[str, object]) -> None:
    answer = {"type": "response", "request_seq": request_seq, "command": command, **answered}
    comm = importlib.import_module("_pydevd_bundle.pydevd_comm")
    py_db.writer.add_command(comm.NetCommand(comm.CMD_RETURN, 0, answer, is_json=True))


_lock = lock("requests to pydevd", Level.DATA)
_stops: dict[str, int] = {}
"""The number of nested stops of each stopped thread, by pydevd's id of the thread."""
_stuck: dict[str, str] = {}
"""For each stopped thread that is stuck in a request, the text with which to refuse others."""
_waiting: dict[str, dict[int, Any]] = {}
"""The requests that wait for each thread, by ``seq``."""
_served: dict[int, _Served] = {}
"""The requests that threads serve now, by ``seq``."""
_reader = threading.local()
"""``request``: the request that the reader thread is passing to pydevd."""
_ANY_THREAD = "*"
_ROWS_AT_MOST = 2
"""The maximum number of rows of one request that may take the whole time limit."""
_RESUMED = "the thread has resumed since"
_NOT_STOPPED = "notStopped"
_seconds: Callable[[], float]
_WAKING = Patches("waking threads that debugpy resumes")


def install(seconds: Callable[[], float]) -> None:
    """Wrap pydevd's functions. ``seconds`` returns the time limit of a request."""
    global _seconds
    _seconds = seconds
    comm, debugger = importlib.import_module("_pydevd_bundle.pydevd_comm"), sys.modules["pydevd"].PyDB
    do, post = comm.InternalThreadCommand.do_it, debugger.post_internal_command

    @functools.wraps(do)
    def do_it(self: Any, dbg: object) -> None:
        request = _request_of(self)
        if request is None:
            do(self, dbg)
            return
        served = _Served(dbg, self.thread_id, request)
        with _lock:
            is_answered = _waiting.get(self.thread_id, {}).pop(request.seq, None) is None
            if not is_answered:
                _served[request.seq] = served
        if not is_answered:
            served.run(lambda: do(self, dbg))

    @functools.wraps(post)
    def post_internal_command(self: Any, int_cmd: object, thread_id: str) -> None:
        request = _request_of(int_cmd)
        busy, has_gone_on = None, False
        if request is not None:
            with _lock:
                busy, has_gone_on = _stuck.get(thread_id), thread_id not in _stops and thread_id != _ANY_THREAD
                if busy is None and not has_gone_on:
                    _waiting.setdefault(thread_id, {})[request.seq] = request
        if has_gone_on:
            refuse(self, request.seq, request.command, _RESUMED, _NOT_STOPPED)
        elif busy is not None:
            refuse(self, request.seq, request.command, busy)
        else:
            post(self, int_cmd, thread_id)

    os.register_at_fork(after_in_child=_forget_id)
    comm.InternalThreadCommand.do_it = do_it
    debugger.post_internal_command = post_internal_command
    _note_answers(comm.WriterThread)
    _serve_before_resuming(debugger)
    _wake_resumed_threads(comm)
    _refuse_bad_conditions()


def _forget_id() -> None:
    """Let pydevd give a fork's thread another id at once.

    Otherwise one of pydevd's own threads does that later, when the fork's thread may already be stopped under the id
    that it had in the parent.
    """
    vars(threading.current_thread()).pop("__pydevd_id__", None)


def _wake_resumed_threads(comm: Any) -> None:
    """Wake the thread that a step or a continue resumes.

    pydevd wakes any one of the program's threads. If that is another one, the resumed thread waits for 0.2 s.
    """
    lifecycle = importlib.import_module("_pydevd_bundle.pydevd_thread_lifecycle")
    id_of = importlib.import_module("_pydevd_bundle.pydevd_constants").get_thread_id

    def wake(debugger: Any, thread_id: str) -> None:
        if debugger is not None:
            debugger.get_internal_queue_and_event(thread_id)[1].set()

    def after_command(_result: object, command: Any, debugger: object) -> None:
        wake(debugger, command.thread_id)

    def after_resuming(_result: object, thread: object, *_rest: object, **_named: object) -> None:
        wake(sys.modules["pydevd"].get_global_debugger(), id_of(thread))

    _WAKING.after(comm.InternalThreadCommand, "do_it", after_command)
    _WAKING.after(lifecycle, "internal_run_thread", after_resuming)


def _note_answers(writer: Any) -> None:
    add = writer.add_command

    @functools.wraps(add)
    def add_command(self: object, command: Any) -> None:
        message = command.as_dict
        if message is not None and message.get("type") == "response":
            served = _served.get(message.get("request_seq"))
            if served is not None:
                served.is_answered = True
        add(self, command)

    writer.add_command = add_command


def _serve_before_resuming(debugger: Any) -> None:
    """Make a thread serve its waiting requests before it resumes, and refuse later ones."""
    wait, wait_once = debugger.do_wait_suspend, debugger._do_wait_suspend
    id_of = importlib.import_module("_pydevd_bundle.pydevd_constants").get_current_thread_id

    @functools.wraps(wait_once)
    def _do_wait_suspend(self: Any, thread: object, *rest: object) -> object:
        try:
            return wait_once(self, thread, *rest)
        finally:
            # Serve the requests here: pydevd knows the thread's frames until the caller returns.
            queue, _event = self.get_internal_queue_and_event(id_of(thread))
            for _ in range(queue.qsize()):
                command = queue.get()
                if _request_of(command) is not None:
                    command.do_it(self)
                else:
                    queue.put(command)

    @functools.wraps(wait)
    def do_wait_suspend(self: object, thread: object, *rest: object, **options: object) -> object:
        thread_id = id_of(thread)
        with _lock:
            _stops[thread_id] = _stops.get(thread_id, 0) + 1
        try:
            return wait(self, thread, *rest, **options)
        finally:
            late: dict[int, Any] = {}
            with _lock:
                _stops[thread_id] -= 1
                if not _stops[thread_id]:
                    del _stops[thread_id]
                    late = _waiting.pop(thread_id, {})
            for request in late.values():
                refuse(self, request.seq, request.command, _RESUMED, _NOT_STOPPED)

    debugger._do_wait_suspend, debugger.do_wait_suspend = _do_wait_suspend, do_wait_suspend


@contextlib.contextmanager
def reading(request: dict[str, object]) -> Iterator[None]:
    """Return a context in which the calling thread passes ``request`` to pydevd."""
    _reader.request = SimpleNamespace(seq=request["seq"], command=request["command"], arguments=None)
    try:
        yield
    finally:
        del _reader.request


def _request_of(command: Any) -> Any:
    """Return the DAP request that an internal command serves, or None."""
    arguments = getattr(command, "args", None) or ()
    found = next((one for one in arguments if getattr(one, "type", None) == "request"), None)
    if found is not None or getattr(command, "method", None) is not _completing():
        return found
    # The command for completions lacks the request. Take the one that the reader thread is passing on.
    if not hasattr(command, "request_of_client"):
        command.request_of_client = getattr(_reader, "request", None)
    return command.request_of_client


@functools.cache
def _completing() -> object:
    return getattr(importlib.import_module("_pydevd_bundle.pydevd_comm"), "internal_get_completions", object())


def cancel(py_db: object, asked: dict[str, Any]) -> None:
    """Cancel a request that has not been answered yet. Runs on pydevd's reader thread."""
    seq = asked["arguments"].get("requestId")
    with _lock:
        served = _served.get(seq)
        waiting = next((requests.pop(seq) for requests in _waiting.values() if seq in requests), None)
    if served is not None:
        served.cancel()
    if waiting is not None:
        refuse(py_db, seq, waiting.command, _CANCELLED)
    _answer(py_db, asked["seq"], "cancel", {"success": True})


class _Served:
    """A request that a stopped thread serves now."""

    def __init__(self, py_db: Any, thread_id: str, request: Any) -> None:
        self._py_db = py_db
        self._thread_id = thread_id
        self._request = request
        # Allow each of some rows the time of a whole request.
        seconds = _seconds() * (_ROWS_AT_MOST + 1 if self._has_rows else 1)
        self._work = Interruptible(seconds, self._answer_stuck)
        self.is_answered = False
        self._is_over = False
        self._was_stuck = False

    def cancel(self) -> None:
        """Interrupt the request. Runs on any thread."""
        self._work.interrupt()

    def run(self, serve: Callable[[], None]) -> None:
        """Serve the request by ``serve``, and always answer in time. The server ignores a second answer."""
        try:
            with self._work.running(), self._limit_of_rows():
                serve()
            if not self.is_answered:
                self._refuse(f"debugpy cannot answer '{self._request.command}' here")
        except Interrupted:
            text = f"'{self._request.command}' took longer than {_seconds():g} s and was interrupted"
            self._refuse(text if self._work.timed_out else _CANCELLED)
        except Raised as error:
            self._refuse(str(error))
        except BaseException as error:  # noqa: BLE001  (the program's own code was run)
            self._refuse(text_of_raised(error))
        finally:
            with _lock:
                self._is_over = True
                _stuck.pop(self._thread_id, None)
                _served.pop(self._request.seq, None)
        if self._was_stuck:
            text = f"dynamo-dap: {self._name} has ended; its thread can be inspected again\n"
            comm = importlib.import_module("_pydevd_bundle.pydevd_comm")
            event = {"type": "event", "event": "output", "body": {"category": "important", "output": text}}
            self._py_db.writer.add_command(comm.NetCommand(comm.CMD_WRITE_TO_CONSOLE, 0, event, is_json=True))

    def _limit_of_rows(self) -> contextlib.AbstractContextManager[None]:
        # Give the text of an evaluated value less time than the evaluation, so that the text is interrupted first.
        return slow_rows.limit(_seconds(), _ROWS_AT_MOST) if self._has_rows else slow_rows.limit(_seconds() * 0.8, 1)

    @property
    def _has_rows(self) -> bool:
        return bool(self._request.command == "variables")

    @property
    def _name(self) -> str:
        return f"'{getattr(self._request.arguments, 'expression', None) or self._request.command}'"

    def _refuse(self, text: str) -> None:
        refuse(self._py_db, self._request.seq, self._request.command, text)

    def _answer_stuck(self) -> None:
        """Answer that the time is up, though the work continues, and refuse waiting requests.

        Runs on the watchdog's thread.
        """
        text = (
            f"{self._name} still runs in this thread, in a call that cannot be interrupted; try again when it has ended"
        )
        with _lock:
            if self._is_over:
                return
            self._was_stuck = True
            waiting: dict[int, Any] = {}
            if self._thread_id != _ANY_THREAD:  # other threads can still answer requests to any thread
                _stuck[self._thread_id] = text
                waiting = _waiting.pop(self._thread_id, {})
        self._refuse(f"no answer within {_seconds():g} s: {text}")
        for request in waiting.values():
            refuse(self._py_db, request.seq, request.command, text)


# -- breakpoints with invalid conditions -----------------------------------------------------------------------------


def _refuse_bad_conditions() -> None:
    """Refuse breakpoints with invalid conditions. pydevd would notice these only when a breakpoint is hit."""
    processor = importlib.import_module("_pydevd_bundle.pydevd_process_net_command_json").PyDevJsonCommandProcessor
    for name in ("on_setbreakpoints_request", "on_setfunctionbreakpoints_request"):
        setattr(processor, name, _without_bad_conditions(getattr(processor, name)))


def _without_bad_conditions(handle: Callable[..., Any]) -> Callable[..., object]:
    @functools.wraps(handle)
    def on_request(self: Any, py_db: object, request: Any) -> object:
        asked = request.arguments.breakpoints or []
        problems = [_problem_of(one, self._get_hit_condition_expression) for one in asked]
        if not any(problems):
            return handle(self, py_db, request)
        request.arguments.breakpoints = [one for one, problem in zip(asked, problems, strict=True) if problem is None]
        made = handle(self, py_db, request)
        answer = made.as_dict
        for index, problem in enumerate(problems):
            if problem is not None and answer["success"]:
                refused = {"verified": False, "message": problem, "line": asked[index].get("line")}
                answer["body"]["breakpoints"].insert(index, refused)
        return type(made)(made.id, 0, answer, is_json=True)

    return on_request


def _problem_of(asked: dict[str, Any], hits: Callable[[str | None], str | None]) -> str | None:
    problem = Conditions.parse(asked.get("condition"), None, asked.get("logMessage")).problem
    if problem is None and (text := asked.get("hitCondition")):
        # Check the hit condition as an expression: debugpy accepts any.
        problem = Conditions.parse((hits(text) or "").replace("@HIT@", "1"), None, None).problem
        problem = problem and f"hit condition: {problem}"
    return problem
