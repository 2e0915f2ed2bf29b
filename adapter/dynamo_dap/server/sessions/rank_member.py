"""Connects a rank's session to the meeting of ranks that stop together (``rank_meeting``).

Reports the session's stops to the meeting, and carries out the meeting's decisions. Runs on the event loop; lives as
long as the session's program. The meeting's requests use the session's router, like the client's; the client gets an
event for each thread that resumes.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable

import msgspec

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.requests.contract import AUTHORIZE, WITHDRAW_PAUSE, introduction
from dynamo_dap.protocol.requests.options import ConnectTarget
from dynamo_dap.protocol.requests.ranks import (
    PAUSE_RANK,
    PRINT_AT_RANK,
    RANK_REQUEST,
    RANK_RUNS,
    RANK_STOPPED,
    WITHDRAW_RANK_PAUSE,
    Newcomer,
    Place,
    PrintAtRankBody,
    RankRequestBody,
    RankStoppedBody,
)
from dynamo_dap.protocol.wire.messages import Event, ProtocolError, Request, Response, decode, encode_body
from dynamo_dap.protocol.wire.streams import SocketStream
from dynamo_dap.protocol.wire.types import (
    ContinuedEventBody,
    StackTraceResponseBody,
    ThreadsResponseBody,
)
from dynamo_dap.server.backends.backend_events import StoppedThreads
from dynamo_dap.server.backends.routing import Router
from dynamo_dap.server.client.errors import RequestRefused
from dynamo_dap.server.client.ide import Client
from dynamo_dap.server.client.loop_connection import HandshakeReceiver, LoopConnection
from dynamo_dap.server.client.outgoing import connect_to

_log = logging.getLogger(__name__)

_TIMEOUT = 5.0
_ASK_AGAIN_SECONDS = 0.2
_STEPS = frozenset({"next", "stepIn", "stepOut"})
_MAIN_THREAD = "MainThread"

OnStopped = Callable[[int, str], None]


class RankMember:
    """Takes part in the meeting for one session."""

    def __init__(
        self,
        client: Client,
        router: Router,
        threads: Callable[[], StoppedThreads],
        name: str,
        patience: float = 15.0,
    ) -> None:
        """Take ``threads``, which returns the stopped threads, and the rank's ``name``.

        The client sees a stop when the meeting knows it, or after ``patience`` seconds.
        """
        self._client = client
        self._router = router
        self._threads = threads
        self._name = name
        self._patience = patience
        self._connection: LoopConnection | None = None
        self._numbers = itertools.count(1)
        self._last: int | None = None
        """The thread that stopped last."""
        self._wants_pause = False
        """Whether the program should pause, because of a request that was not withdrawn."""
        self._was_withdrawn = False
        """Whether a pause request was withdrawn since the last stop."""
        self._asking = 0
        """How many pause requests have no answer yet."""

    async def join(self, target: ConnectTarget) -> None:
        """Join the meeting at ``target``; warn the user if it cannot be reached."""
        try:
            connected = await asyncio.wait_for(connect_to(target), _TIMEOUT)
            connection = LoopConnection(SocketStream(connected), "ranks", HandshakeReceiver("the meeting of the ranks"))
            connection.receiver = self
            self._connection = connection
            newcomer = introduction(target.access_token or "", Newcomer(self._name))
            await connection.request(AUTHORIZE, newcomer, timeout=_TIMEOUT)
        except (OSError, asyncio.TimeoutError, TimeoutError, RequestFailed) as error:
            self.close()
            self._client.output(
                f'"stopRanks": {self._name} stops and steps alone: {error or "no answer"}.', "important"
            )

    def close(self) -> None:
        """Leave the meeting."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- what happens here -----------------------------------------------------------------------------------------

    def runs(self) -> None:
        """Report to the meeting that the client is configured."""
        self._report(RANK_RUNS)

    def stopped(self, thread_id: int, reason: str) -> None:
        """Report to the meeting where a thread has stopped."""
        if self._connection is None:
            return
        was_withdrawn, self._was_withdrawn = self._was_withdrawn, False
        if reason == "pause" and was_withdrawn and not self._wants_pause:
            # The thread paused before the withdrawal reached the program.
            asyncio.get_running_loop().call_soon(self._resume, thread_id, "continue", None)
            return
        self._last = thread_id
        # The user must not act on a stop that the meeting does not know: ranks at one place would not step together.
        threads = self._threads()
        threads.delay_report(thread_id)
        timer = asyncio.get_running_loop().call_later(self._patience, threads.end_delay, thread_id)

        def known() -> None:
            timer.cancel()
            threads.end_delay(thread_id)

        self._ask(
            "stackTrace",
            {"threadId": thread_id, "startFrame": 0, "levels": 1},
            lambda reported: self._at(reported, reason, known),
        )

    def _at(self, reported: Response, reason: str, known: Callable[[], None]) -> None:
        if self._last not in self._threads().held or self._connection is None:
            known()
            return
        frames = (
            decode(reported.body, StackTraceResponseBody, "body of 'stackTrace'").stack_frames
            if reported.success
            else []
        )
        place = Place("", 0)
        if frames:
            source = frames[0].source
            place = Place((source and (source.path or source.name)) or frames[0].name, frames[0].line)
        self._connection.send_request(RANK_STOPPED, RankStoppedBody(reason, place), lambda answer: known())

    def holds(self, thread_id: int | None) -> bool:
        """Return whether a thread is held."""
        return thread_id in self._threads().held

    def requested(self, command: str, granularity: str | None) -> None:
        """Report that the user resumed a held thread by ``command``, or asked to ``pause``."""
        if command == "pause":
            self._wants_pause = True
        elif command == "continue" or command in _STEPS:
            self._withdraw_pause()
        else:
            return
        self._report(RANK_REQUEST, RankRequestBody(command, granularity))

    def _report(self, event: str, body: object = None) -> None:
        if self._connection is not None and not self._connection.is_closed:
            self._connection.send_event(event, body)

    # -- what the meeting decides ----------------------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        """Carry out a decision of the meeting."""
        try:
            if event.event == PAUSE_RANK:
                self._pause()
            elif event.event == WITHDRAW_RANK_PAUSE:
                self._withdraw_pause()
            elif event.event == RANK_REQUEST:
                self._carry_out(decode(event.body, RankRequestBody, RANK_REQUEST))
            elif event.event == PRINT_AT_RANK:
                self._client.output(decode(event.body, PrintAtRankBody, PRINT_AT_RANK).text)
        except ProtocolError as error:
            self.on_invalid_message(str(error))

    def on_request(self, request: Request) -> None:
        """Ignore the request: the meeting sends none."""

    def on_invalid_message(self, problem: str) -> None:
        """Log the problem."""
        _log.error("the meeting of the ranks sent an invalid message: %s", problem)

    def on_closed(self, problem: str | None) -> None:
        """Leave the meeting, which has closed with the session that started it."""
        self.close()

    def _pause(self) -> None:
        if self._threads().held:
            return
        self._wants_pause = True
        self._asking += 1
        self._ask("threads", {}, self._pause_main_thread)

    def _pause_if_wanted(self) -> None:
        if self._wants_pause and self._connection is not None:
            self._pause()

    def _pause_main_thread(self, reported: Response) -> None:
        threads = decode(reported.body, ThreadsResponseBody, "body of 'threads'").threads if reported.success else []
        main = next((one for one in threads if one.name == _MAIN_THREAD), threads[0] if threads else None)
        if main is None or not self._wants_pause or self._threads().held:
            self._asking -= 1
            if main is None and self._wants_pause and self._connection is not None:
                # The program cannot answer yet. The meeting asks once only.
                asyncio.get_running_loop().call_later(_ASK_AGAIN_SECONDS, self._pause_if_wanted)
            return
        self._ask("pause", {"threadId": main.id}, self._asked_to_pause)

    def _asked_to_pause(self, reported: Response) -> None:
        self._asking -= 1
        if not self._wants_pause:
            self._ask(WITHDRAW_PAUSE, {})

    def _withdraw_pause(self) -> None:
        was_wanted, self._wants_pause = self._wants_pause, False
        self._was_withdrawn = self._was_withdrawn or was_wanted
        if was_wanted and not self._asking:
            self._ask(WITHDRAW_PAUSE, {})

    def _carry_out(self, request: RankRequestBody) -> None:
        self._withdraw_pause()
        held = self._threads().held
        for thread_id in held if request.command == "continue" else [one for one in held if one == self._last]:
            self._resume(thread_id, request.command, request.granularity)

    def _resume(self, thread_id: int, command: str, granularity: str | None) -> None:
        arguments: dict[str, object] = {"threadId": thread_id}
        if granularity is not None and command in _STEPS:
            arguments["granularity"] = granularity
        self._ask(command, arguments, lambda reported: self._report_continued(reported, thread_id))

    def _report_continued(self, reported: Response, thread_id: int) -> None:
        if reported.success:
            self._client.event("continued", ContinuedEventBody(thread_id=thread_id, all_threads_continued=False))

    def _ask(
        self, command: str, arguments: dict[str, object], answer: Callable[[Response], None] = lambda reported: None
    ) -> None:
        """Make the program's debuggers answer a request from the meeting."""
        request = Request(-next(self._numbers), command, encode_body(arguments))
        try:
            self._router.forward(request, answer)
        except RequestRefused as refusal:
            _log.info("'%s' for all ranks is refused here: %s", command, refusal)
            answer(Response(request.seq, command, success=False, body=msgspec.Raw(b"null")))
