"""Decides which backend gets a request, and tracks requests without an answer.

Runs on the event loop, one router per session. Plain callbacks, not tasks, pass answers on. So an answer reaches the
client before the events that follow the answer.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from dynamo_dap.protocol.requests.contract import CUSTOM_PREFIX, GO_TO, TENSOR, TIMELINE, WITHDRAW_PAUSE, ErrorId
from dynamo_dap.protocol.wire.messages import Request, Response, decode, encode_body
from dynamo_dap.protocol.wire.types import ExceptionInfoResponseBody
from dynamo_dap.server.backends.backend import AGENT, DEBUGPY, Backend
from dynamo_dap.server.backends.backend_events import StoppedThreads
from dynamo_dap.server.backends.debugpy_side import (
    answer_about_tensor,
    ask_whether_watched,
    request_for_tensor,
    whether_watched,
)
from dynamo_dap.server.backends.early_variables import EarlyVariables
from dynamo_dap.server.backends.ids import References
from dynamo_dap.server.backends.suspension import POLL_SECONDS, Suspension
from dynamo_dap.server.client.capabilities import EAGER_REQUESTS
from dynamo_dap.server.client.errors import RequestRefused
from dynamo_dap.server.client.ide import Client

_log = logging.getLogger(__name__)


_HISTORY_REQUESTS = frozenset({"restartFrame", "reverseContinue", "stepBack", GO_TO, TIMELINE})
_RESUMING = frozenset({"continue", "next", "stepIn", "stepOut", "goto", "reverseContinue", "stepBack"})
_BEFORE_PAUSE = _RESUMING | {WITHDRAW_PAUSE}
"""A later ``pause`` waits for the answers to these requests."""
_OF_STOPPED_THREADS = _RESUMING | {"stackTrace"}
_AGENT_ONLY = frozenset({"breakpointLocations", "disassemble", "locations"})
_EVALUATING = frozenset({"completions", "evaluate", "setExpression", TENSOR})
_NOTHING = msgspec.Raw(b"{}")
_ONE_CONTINUED = msgspec.Raw(b'{"allThreadsContinued": false}')


Answers = Sequence[tuple[Backend, msgspec.Raw]]
Merge = Callable[[Answers], object]
"""Merges the backends' bodies into the IDE's; there are none if a program runs without debugging."""

Answer = Callable[[Response], None]

Share = Callable[[Backend, msgspec.Raw], "msgspec.Raw | None"]
"""Returns a backend's part of the arguments; None if the request does not concern it."""


def _everything(_backend: Backend, arguments: msgspec.Raw) -> msgspec.Raw:
    return arguments


@dataclass(frozen=True)
class Sharing:
    """How to split a request for every backend, and how to merge the answers."""

    merge: Merge
    share: Share = _everything
    meanwhile: Callable[[str], object] | None = None
    """Makes the answer while the program is suspended, from a text with the reason; None refuses the request."""
    report_late: Callable[[Any], None] = lambda body: None
    """Gets the merged answer when the program has resumed, if the client already has the one of ``meanwhile``."""


class Router:
    """The session's backends, and the requests they have not answered."""

    def __init__(
        self,
        client: Client,
        backends: Callable[[], list[Backend]],
        stopped_threads: Callable[[], StoppedThreads],
        suspension: Suspension,
    ) -> None:
        """Route to the present ``backends``; ``stopped_threads`` knows the backend that stopped a thread."""
        self._client = client
        self._backends = backends
        self._stopped_threads = stopped_threads
        self._in_flight: dict[int, list[tuple[Backend, int]]] = {}
        """By the client's ``seq``: the backend that has the request, and its ``seq`` there."""
        self._asked: dict[int, Request] = {}
        """The requests whose answer the client waits for."""
        self._order = _Order()
        self._shared: dict[int, Sharing] = {}
        """How to answer requests that went to every backend."""
        self._suspension = suspension
        self._next_check: asyncio.TimerHandle | None = None
        self._locals = EarlyVariables()

    def forward(self, request: Request, answer: Answer | None = None) -> None:
        """Send ``request`` to the backend that owns it. The client gets the answer, or ``answer`` if it is given."""
        references = decode(request.arguments, References, f"{request.command} arguments")
        backend = self._owner(request, references)
        self._refuse_in_python(request, backend, references)
        if self._answers_itself(request, backend):
            return
        self._locals.drop_if_changed_by(request.command)
        changes = self._locals.changes

        threads, resuming = self._stopped_threads(), None
        if request.command in _RESUMING:
            resuming = references.thread_id
        owner = None if resuming is None else threads.begin_resuming(resuming)

        def answered(response: Response) -> None:
            self._in_flight.pop(request.seq, None)
            self._order.answered(request)
            is_late = answer is None and self._asked.pop(request.seq, None) is None
            self._locals.drop_if_changed_by(request.command)
            response = _as_the_clients(request.command, backend, response)
            if response.success and request.command == "scopes":
                response = self._locals.keep(response, changes)
            if answer is not None:
                answer(response)
            elif not is_late:
                self._pass_on(request, response)
            if resuming is not None:
                threads.end_resuming(resuming, None if response.success else owner)

        command, arguments = _as_backends(request, backend, resuming)
        if command == "scopes" and backend.name == DEBUGPY:
            arguments = self._locals.arguments(arguments)
        if answer is None:
            self._expect(request)

        def send() -> None:
            self._in_flight[request.seq] = [(backend, backend.forward(command, arguments, answered))]

        self._order.send(request, send)

    def _answers_itself(self, request: Request, backend: Backend) -> bool:
        """Answer the client if ``backend`` is not needed or the program is suspended; return whether that happened."""
        known = self._known(request, backend)
        if known is None:
            return self._answers_while_suspended(request)
        if request.command == "variables":
            self._suspension.keep(request, encode_body(known))
        self._client.respond(request, known)
        return True

    def _refuse_in_python(self, request: Request, backend: Backend, references: References) -> None:
        if backend.name == DEBUGPY and _is_agents(request.command) and request.command != TENSOR:
            message = f"'{request.command}' works at stops in a trace or in generated code, not in ordinary Python"
            raise RequestRefused(ErrorId.AGENT_GONE, message)
        in_python = backend.name == DEBUGPY or references.thread_id in self._stopped_threads().of(DEBUGPY)
        if request.command in _HISTORY_REQUESTS and in_python:
            text = "stepping back works in a trace only: ordinary Python has no history"
            raise RequestRefused(ErrorId.NO_PAST, text)

    def _known(self, request: Request, backend: Backend) -> object | None:
        """Return the body of the answer if ``backend`` is not needed for it; else None."""
        if request.command in EAGER_REQUESTS and backend.name != DEBUGPY:
            return EAGER_REQUESTS[request.command]
        if request.command == "variables" and backend.name == DEBUGPY:
            return self._locals.take(request.arguments)
        return None

    def forward_to_agent(self, request: Request, command: str, arguments: msgspec.Raw) -> None:
        """Send the agent another request, ``command``, and answer ``request`` with the agent's answer."""
        agent = next((backend for backend in self._backends() if backend.name == AGENT), None)
        if agent is None:
            raise RequestRefused(ErrorId.AGENT_GONE, "the program runs without debugging")
        if self._answers_while_suspended(request):
            return
        self._locals.drop_if_changed_by(command)

        def answered(response: Response) -> None:
            self._in_flight.pop(request.seq, None)
            self._locals.drop_if_changed_by(command)
            if self._asked.pop(request.seq, None) is not None:
                self._pass_on(request, response)

        self._expect(request)
        self._in_flight[request.seq] = [(agent, agent.forward(command, arguments, answered))]

    def broadcast(self, request: Request, sharing: Sharing) -> None:
        """Send every backend its part of ``request`` and merge their answers.

        Backends that fail are left out; if all fail, the first failure is the answer.
        """
        if request.command == "threads" and self._answers_while_suspended(request):
            return
        self._expect(request)
        self._shared[request.seq] = sharing
        shares = [(backend, sharing.share(backend, request.arguments)) for backend in self._backends()]
        wanted = [(backend, arguments) for backend, arguments in shares if arguments is not None]
        self._locals.drop_if_changed_by(request.command)
        collector = _Collector(len(wanted), lambda answers: self._answer_merged(request, sharing, answers))
        self._in_flight[request.seq] = [
            (backend, backend.forward(request.command, arguments, collector.taker(backend)))
            for backend, arguments in wanted
        ]
        if not wanted:
            self._answer_merged(request, sharing, [])

    # -- a program that a signal has suspended -------------------------------------------------------------------------

    def _pass_on(self, request: Request, response: Response) -> None:
        if response.success:
            self._suspension.keep(request, response.body)
        self._client.forward_response(request, response)

    def _answers_while_suspended(self, request: Request) -> bool:
        """Answer from known facts if the program is suspended; return whether that happened.

        Raises:
            RequestRefused: the program is suspended, and the answer is unknown.
        """
        if not self._suspension.is_seen_at_once():
            return False
        known = self._suspension.known(request)
        if known is None:
            raise self._suspension.refusal(request.command, was_sent=False)
        self._client.respond(request, known)
        return True

    def _expect(self, request: Request) -> None:
        """Note that the client waits for an answer to ``request``; if none comes, check whether the program can run."""
        self._asked[request.seq] = request
        if self._next_check is None:
            self._next_check = asyncio.get_running_loop().call_later(POLL_SECONDS, self._check_unanswered)

    def _check_unanswered(self) -> None:
        self._next_check = None
        if self._asked and self._backends() and self._suspension.is_suspended():
            for request in list(self._asked.values()):
                self._answer_for_program(request)
        if self._asked:
            self._next_check = asyncio.get_running_loop().call_later(POLL_SECONDS, self._check_unanswered)

    def _answer_for_program(self, request: Request) -> None:
        """Answer a request that was sent to the suspended program; the program's own answer is dropped later."""
        del self._asked[request.seq]
        known = self._suspension.known(request)
        if request.command in _RESUMING:
            # The thread resumes as soon as the program does.
            self._client.respond(request, _ONE_CONTINUED if request.command == "continue" else _NOTHING)
        elif known is not None:
            self._client.respond(request, known)
        else:
            refusal = self._suspension.refusal(request.command, was_sent=True)
            sharing = self._shared.get(request.seq)
            if sharing is not None and sharing.meanwhile is not None:
                self._client.respond(request, sharing.meanwhile(str(refusal)))
            else:
                self._client.refuse(request, refusal)

    def cancel(self, request_id: int) -> bool:
        """Ask the backend that serves request ``request_id`` to cancel it. Return False if none serves it."""
        holders = self._in_flight.get(request_id, [])
        for backend, seq in holders:
            if backend.takes_cancel:
                backend.send("cancel", {"requestId": seq}, _ignore)
        return bool(holders)

    def cancel_progress(self, progress_id: str) -> None:
        """Ask every backend to cancel the operation that has ``progress_id``."""
        for backend in self._backends():
            if backend.takes_cancel:
                backend.send("cancel", {"progressId": progress_id}, _ignore)

    def _owner(self, request: Request, references: References) -> Backend:
        """Return the only backend; with two, find the owner by the thread or the id in ``request``."""
        backends = self._backends()
        if not backends:
            raise RequestRefused(ErrorId.AGENT_GONE, "the program runs without debugging")
        if references.owned is not None:
            owner = next((backend for backend in backends if backend.ids.owns(references.owned)), None)
            if owner is None:
                raise RequestRefused(ErrorId.AGENT_GONE, "this belongs to debugpy, whose connection has ended")
            return owner
        if len(backends) == 1:
            return backends[0]
        agent, debugpy = backends
        if _is_agents(request.command) and request.command != TENSOR:
            return agent
        if request.command in _EVALUATING:  # in the program's globals, on a thread that a backend has stopped
            threads = self._stopped_threads()
            return debugpy if threads.of(DEBUGPY) and not threads.of(AGENT) else agent
        if references.thread_id is None:
            is_traced = request.command == "gotoTargets" and self._stopped_threads().of(AGENT)
            return agent if is_traced else debugpy
        if request.command in _OF_STOPPED_THREADS and references.thread_id not in self._stopped_threads().held:
            return agent  # the agent refuses it as DAP says; debugpy would report success
        return agent if self._stopped_threads().is_agents(references.thread_id) else debugpy

    def _answer_merged(self, request: Request, sharing: Sharing, answers: list[tuple[Backend, Response]]) -> None:
        self._in_flight.pop(request.seq, None)
        self._shared.pop(request.seq, None)
        is_late = self._asked.pop(request.seq, None) is None
        successes = [(backend, response.body) for backend, response in answers if response.success]
        if answers and not successes:
            if not is_late:
                self._client.forward_response(request, answers[0][1])
            return
        for backend, response in answers:
            if not response.success:
                _log.error("%s refused its part of '%s': %s", backend.name, request.command, response.message)
        try:
            body = sharing.merge(successes)
        except Exception:  # noqa: BLE001 - turned into the response
            _log.exception("merging the answers to '%s' failed", request.command)
            text = f"internal error in '{request.command}'; see log"
            if not is_late:
                self._client.refuse(request, RequestRefused(ErrorId.INTERNAL, text))
            return
        if is_late:
            sharing.report_late(body)
        else:
            if request.command == "threads":
                self._suspension.keep(request, encode_body(body))
            self._client.respond(request, body)


class _Order:
    """Delays a pause until the requests in ``_BEFORE_PAUSE`` that came before it are answered.

    Otherwise a backend could get the pause while the thread is still held, and ignore the pause.
    """

    def __init__(self) -> None:
        self._before_pause: set[int] = set()
        """The requests without an answer that pauses wait for."""
        self._pauses: list[Callable[[], None]] = []

    def send(self, request: Request, send: Callable[[], None]) -> None:
        """Call ``send``, which sends ``request``, as soon as the order allows it."""
        if request.command in _BEFORE_PAUSE:
            self._before_pause.add(request.seq)
        if request.command == "pause" and self._before_pause:
            self._pauses.append(send)
        else:
            send()

    def answered(self, request: Request) -> None:
        """Send the pauses that waited for the answer to ``request``."""
        self._before_pause.discard(request.seq)
        if not self._before_pause:
            waiting, self._pauses = self._pauses, []
            for send in waiting:
                send()


class _Collector:
    """Waits for the answers of all backends to one request."""

    def __init__(self, expected: int, on_complete: Callable[[list[tuple[Backend, Response]]], None]) -> None:
        self._expected = expected
        self._on_complete = on_complete
        self._answers: list[tuple[Backend, Response]] = []

    def taker(self, backend: Backend) -> Callable[[Response], None]:
        def take(response: Response) -> None:
            self._answers.append((backend, response))
            if len(self._answers) == self._expected:
                self._on_complete(self._answers)

        return take


def _is_agents(command: str) -> bool:
    """Return whether only the agent knows ``command``: debugpy would never answer."""
    return command in _AGENT_ONLY or command.startswith(CUSTOM_PREFIX)


def _as_backends(request: Request, backend: Backend, resuming: int | None) -> tuple[str, msgspec.Raw]:
    """Return command and arguments in the backend's form."""
    if backend.name == DEBUGPY and request.command == "continue":
        return request.command, encode_body({"threadId": resuming, "singleThread": True})
    if backend.name == DEBUGPY and request.command == TENSOR:
        return request_for_tensor(request.arguments)
    if backend.name == DEBUGPY and request.command == "dataBreakpointInfo":
        return ask_whether_watched(request.arguments)
    return request.command, request.arguments


def _as_the_clients(command: str, backend: Backend, response: Response) -> Response:
    """Return a backend's answer in the client's form."""
    if not response.success:
        if command in _RESUMING and response.message == "disconnected":
            # The thread resumed, and the program ended before the answer.
            nothing = _ONE_CONTINUED if command == "continue" else _NOTHING
            return msgspec.structs.replace(response, success=True, message=None, body=nothing)
        return response
    if command == "continue":
        return msgspec.structs.replace(response, body=_ONE_CONTINUED)
    if backend.name == DEBUGPY and command == "stackTrace":
        return msgspec.structs.replace(response, body=_label(response.body))
    if backend.name == DEBUGPY and command == TENSOR:
        return answer_about_tensor(response)
    if backend.name == DEBUGPY and command == "dataBreakpointInfo" and response.success:
        return whether_watched(response)
    if backend.name == DEBUGPY and command == "exceptionInfo":
        # Leave out the field that debugpy adds and DAP does not know.
        body = decode(response.body, ExceptionInfoResponseBody, "body of 'exceptionInfo'")
        return msgspec.structs.replace(response, body=encode_body(_shortest_first(body)))
    return response


_MOST_LINES = 6


def _shortest_first(body: ExceptionInfoResponseBody) -> ExceptionInfoResponseBody:
    """Keep only the first lines of a long description, such as torch's text of a failed compile.

    debugpy's stack trace ends with the whole description, and VS Code shows the stack trace below.
    """
    lines = [line for line in (body.description or "").splitlines() if line.strip()]
    if len(lines) <= _MOST_LINES:
        return body
    shown = lines[: _MOST_LINES - 1]
    text = "\n".join([*shown, f"… {len(lines) - len(shown)} more lines below"])
    return msgspec.structs.replace(body, description=text)


def _ignore(response: Response) -> None:
    """Ignore this answer."""


_NAME = re.compile(r"<generated \d+: ([^>]*)>$")
_MARK = b"<generated "


def _label(stack: msgspec.Raw) -> msgspec.Raw:
    """Label frames of code that Dynamo generated in debugpy's answer to ``stackTrace``; return the body.

    The agent gave such code a recognizable file name (``debuggee.torch_api.code_objects.generated_names``).
    """
    if _MARK not in bytes(stack):
        return stack
    body = msgspec.json.decode(bytes(stack))
    for frame in body.get("stackFrames") or ():
        source = frame.get("source") or {}
        found = _NAME.search(source.get("path") or "")
        if found is not None:
            name = frame["name"]
            frame["name"] = f"{name[:-1]}, generated)" if name.endswith(")") else f"{name} (generated)"
            frame["presentationHint"] = "subtle"
            source["name"] = f"{found[1]} (generated by Dynamo)"
            source["presentationHint"] = "deemphasize"
    return msgspec.Raw(msgspec.json.encode(body))
