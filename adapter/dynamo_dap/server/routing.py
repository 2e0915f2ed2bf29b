"""Which backend gets a request, and which requests are on their way there.

Used on the loop, one per session. Answers are passed on in plain callbacks, never through a task that first has to be
woken: so a response leaves before the events that followed it, and costs no turn of the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from dynamo_dap.protocol.messages import Request, Response
from dynamo_dap.server.backend import Backend
from dynamo_dap.server.client import Client
from dynamo_dap.server.errors import ErrorId, RequestRefused
from dynamo_dap.server.handling import Merge

_log = logging.getLogger(__name__)


class Router:
    """The session's backends, and the requests they have not answered."""

    def __init__(self, client: Client, backends: Callable[[], list[Backend]]) -> None:
        """``backends`` returns those that are there now."""
        self._client = client
        self._backends = backends
        self._in_flight: dict[int, list[tuple[Backend, int]]] = {}
        """By the client's ``seq``: who has the request, under which ``seq``."""

    def forward(self, request: Request) -> None:
        """Have the owner of ``request`` answer it, arguments and body unread."""
        backend = self._owner(request)

        def answered(response: Response) -> None:
            self._in_flight.pop(request.seq, None)
            self._client.forward_response(request, response)

        seq = backend.send(request.command, request.arguments, answered)
        self._in_flight[request.seq] = [(backend, seq)]

    def broadcast(self, request: Request, merge: Merge) -> None:
        """Send ``request`` to every backend and answer it with their answers merged.

        Backends that fail are left out; when all fail, the first failure is the answer.
        """
        backends = self._backends()
        collector = _Collector(len(backends), lambda answers: self._answer_merged(request, merge, answers))
        self._in_flight[request.seq] = [
            (backend, backend.send(request.command, request.arguments, collector.taker(backend)))
            for backend in backends
        ]
        if not backends:
            self._answer_merged(request, merge, [])

    def cancel(self, request_id: int) -> bool:
        """Ask whoever has the client's request ``request_id`` to give it up. False when nobody has it."""
        holders = self._in_flight.get(request_id, [])
        for backend, seq in holders:
            backend.send("cancel", {"requestId": seq}, _ignore)
        return bool(holders)

    def cancel_progress(self, progress_id: str) -> None:
        """Ask every backend to give up the operation that it reports progress of under ``progress_id``."""
        for backend in self._backends():
            backend.send("cancel", {"progressId": progress_id}, _ignore)

    def _owner(self, request: Request) -> Backend:
        """With one backend, whoever is there; with two, the owner follows from the thread or the id in ``request``."""
        backends = self._backends()
        if not backends:
            raise RequestRefused(ErrorId.AGENT_GONE, "the program runs without debugging")
        return backends[0]

    def _answer_merged(self, request: Request, merge: Merge, answers: list[tuple[Backend, Response]]) -> None:
        self._in_flight.pop(request.seq, None)
        successes = [(backend, response.body) for backend, response in answers if response.success]
        if answers and not successes:
            self._client.forward_response(request, answers[0][1])
            return
        try:
            body = merge(successes)
        except Exception:  # noqa: BLE001 - turned into the response
            _log.exception("merging the answers to '%s' failed", request.command)
            text = f"internal error in '{request.command}'; see log"
            self._client.refuse(request, RequestRefused(ErrorId.INTERNAL, text))
            return
        self._client.respond(request, body)


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


def _ignore(response: Response) -> None:
    """Nothing depends on this answer."""
