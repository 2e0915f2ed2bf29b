"""What the meeting of ranks that stop together decides, by the order in which it hears of things.

The members are connections of the test's own, so that the order is the test's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from dynamo_dap.protocol.requests.contract import AUTHORIZE, ErrorId, introduction
from dynamo_dap.protocol.requests.ranks import (
    PAUSE_RANK,
    PRINT_AT_RANK,
    RANK_REQUEST,
    RANK_RUNS,
    RANK_STOPPED,
    WITHDRAW_RANK_PAUSE,
    Newcomer,
    Place,
    RankRequestBody,
    RankStoppedBody,
)
from dynamo_dap.protocol.wire.local_sockets import connect_locally
from dynamo_dap.protocol.wire.messages import Event, Request, Response, encode_body, to_builtins
from dynamo_dap.protocol.wire.streams import SocketStream
from dynamo_dap.server.backends.backend import DEBUGPY
from dynamo_dap.server.backends.backend_events import StoppedThreads
from dynamo_dap.server.client.errors import RequestRefused
from dynamo_dap.server.client.loop_connection import HandshakeReceiver, LoopConnection
from dynamo_dap.server.programs.rank_meeting import RankMeeting
from dynamo_dap.server.sessions.rank_member import RankMember
from tests.client.timeline import DEADLINE

CONTINUE = RankRequestBody("continue")


class Meeting(RankMeeting):
    """One that says when it has heard something: what comes on two connections comes in no order."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: asyncio.Queue[None] = asyncio.Queue()
        self.stops: list[RankStoppedBody] = []

    def runs(self, member: Any) -> None:
        """As in the class."""
        super().runs(member)
        self.heard.put_nowait(None)

    def stopped(self, member: Any, stop: RankStoppedBody) -> None:
        """As in the class."""
        super().stopped(member, stop)
        self.stops.append(stop)
        self.heard.put_nowait(None)

    def requested(self, leader: Any, request: RankRequestBody) -> None:
        """As in the class."""
        super().requested(leader, request)
        self.heard.put_nowait(None)


class Member(HandshakeReceiver):
    """The session of a rank, as the meeting sees it."""

    def __init__(self, name: str, meeting: Meeting) -> None:
        super().__init__(name)
        self._meeting = meeting
        self._heard: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        target = meeting.target
        connected = connect_locally(target.host, target.port, None)
        self._connection = LoopConnection(SocketStream(connected), name, self)
        self._connecting = introduction(target.access_token or "", Newcomer(name))

    async def arrive(self) -> None:
        """Be a member, whose program runs."""
        await self._connection.request(AUTHORIZE, self._connecting, timeout=DEADLINE)
        await self.report(RANK_RUNS)

    async def report(self, event: str, body: object = None) -> None:
        """Tell the meeting, and wait until it has heard that."""
        self._connection.send_event(event, body)
        await asyncio.wait_for(self._meeting.heard.get(), DEADLINE)

    async def stops(self, reason: str, line: int) -> None:
        """Tell of a stop, and wait until the meeting has heard that."""
        stop = RankStoppedBody(reason, Place("program.py", line))
        await self._connection.request(RANK_STOPPED, stop, timeout=DEADLINE)
        await asyncio.wait_for(self._meeting.heard.get(), DEADLINE)

    def on_event(self, event: Event) -> None:
        """Keep what the meeting has decided."""
        self._heard.put_nowait((event.event, to_builtins(event.body)))

    async def hears(self, event: str, **body: str) -> None:
        """Wait for what the meeting reports next; it must be this."""
        reported, given = await asyncio.wait_for(self._heard.get(), DEADLINE)
        assert (reported, given) == (event, body)

    def close(self) -> None:
        """Leave."""
        self._connection.close()


def with_two(scenario: Callable[[Member, Member], Awaitable[None]]) -> None:
    """Run what two members of one meeting do."""

    async def run() -> None:
        meeting = Meeting()
        first, second = Member("rank 0", meeting), Member("rank 1", meeting)
        try:
            await first.arrive()
            await second.arrive()
            await scenario(first, second)
        finally:
            meeting.close()
            first.close()
            second.close()

    asyncio.run(run())


async def stop_and_continue(first: Member, second: Member) -> None:
    """The first stops and is continued, before the second has reached a line."""
    await first.stops("breakpoint", 1)
    await second.hears(PAUSE_RANK)
    await first.report(RANK_REQUEST, CONTINUE)
    await second.hears(WITHDRAW_RANK_PAUSE)


def test_a_rank_that_paused_while_its_pause_was_taken_back_continues() -> None:
    async def scenario(first: Member, second: Member) -> None:
        await stop_and_continue(first, second)
        # It was on its way.
        await second.stops("pause", 1)
        await second.hears(RANK_REQUEST, command="continue")
        # It counts as running, and the first was not paused for it: that one hears nothing before it is, for this.
        await second.stops("breakpoint", 2)
        await first.hears(PAUSE_RANK)
        await first.stops("pause", 2)
        await second.report(RANK_REQUEST, CONTINUE)
        await first.hears(RANK_REQUEST, command="continue")

    with_two(scenario)


def test_what_it_stops_for_by_itself_is_a_stop_for_all() -> None:
    async def scenario(first: Member, second: Member) -> None:
        await stop_and_continue(first, second)
        await second.stops("breakpoint", 1)
        await first.hears(PAUSE_RANK)

    with_two(scenario)


def test_a_pause_that_is_asked_for_again_is_one() -> None:
    async def scenario(first: Member, second: Member) -> None:
        await stop_and_continue(first, second)
        await first.stops("breakpoint", 2)
        await second.hears(PAUSE_RANK)
        await second.stops("pause", 1)
        # Both are held, and not at the same line.
        await first.report(RANK_REQUEST, RankRequestBody("next"))
        await first.hears(PRINT_AT_RANK, text="rank 1 did not step with rank 0: it is stopped at program.py:1.")

    with_two(scenario)


def test_a_pause_that_a_user_asks_for_pauses_all() -> None:
    async def scenario(first: Member, second: Member) -> None:
        await second.report(RANK_REQUEST, RankRequestBody("pause"))
        await first.hears(PAUSE_RANK)
        await second.stops("pause", 1)
        await first.stops("pause", 1)
        await second.report(RANK_REQUEST, CONTINUE)
        await first.hears(RANK_REQUEST, command="continue")

    with_two(scenario)


class RefusingRouter:
    """Refuses what the meeting asks for first, as at a program that cannot answer yet."""

    def __init__(self, refused: set[str]) -> None:
        self.refused = refused
        self.threads = StoppedThreads()
        self.silent: set[str] = set()
        """Requests that get no answer."""
        self.asked: asyncio.Queue[str] = asyncio.Queue()

    def forward(self, request: Request, answer: Callable[[Response], None]) -> None:
        self.asked.put_nowait(request.command)
        if request.command in self.refused:
            self.refused.discard(request.command)
            raise RequestRefused(ErrorId.AGENT_GONE, "the program cannot answer yet")
        if request.command in self.silent:
            return
        bodies: dict[str, object] = {"threads": {"threads": [{"id": 1, "name": "MainThread"}]}}
        body = bodies.get(request.command, {"stackFrames": []})
        answer(Response(request.seq, request.command, success=True, body=encode_body(body)))


def with_refusals(
    refused: set[str], held: set[int], scenario: Callable[..., Awaitable[None]], patience: float = DEADLINE
) -> None:
    """Run the scenario with a meeting's only member, what it is asked through, and the meeting."""

    async def run() -> None:
        meeting, router = Meeting(), RefusingRouter(refused)
        for thread_id in held:
            router.threads.stopped(thread_id, DEBUGPY)
        member = RankMember(cast(Any, None), cast(Any, router), lambda: router.threads, "rank 0", patience)
        try:
            await member.join(meeting.target)
            await scenario(member, router, meeting)
        finally:
            member.close()
            meeting.close()

    asyncio.run(run())


def test_a_rank_whose_threads_are_not_known_yet_is_paused_later() -> None:
    async def scenario(member: RankMember, router: RefusingRouter, _meeting: Meeting) -> None:
        member.on_event(Event(PAUSE_RANK, encode_body(None)))
        for command in ("threads", "threads", "pause"):
            assert await asyncio.wait_for(router.asked.get(), DEADLINE) == command

    with_refusals({"threads"}, set(), scenario)


def test_a_stop_whose_place_is_unknown_is_a_stop() -> None:
    async def scenario(member: RankMember, _router: RefusingRouter, meeting: Meeting) -> None:
        member.stopped(1, "breakpoint")
        await asyncio.wait_for(meeting.heard.get(), DEADLINE)
        assert meeting.stops == [RankStoppedBody("breakpoint", Place("", 0))]

    with_refusals({"stackTrace"}, {1}, scenario)


@pytest.mark.parametrize("answers", [True, False])
def test_a_stop_is_reported_when_the_meeting_knows_it_or_after_a_while(answers: bool) -> None:
    async def scenario(member: RankMember, router: RefusingRouter, meeting: Meeting) -> None:
        if not answers:
            router.silent.add("stackTrace")
        reported: asyncio.Queue[int] = asyncio.Queue()
        member.stopped(1, "breakpoint")
        router.threads.when_reportable(1, lambda: reported.put_nowait(len(meeting.stops)))
        assert reported.empty()
        assert await asyncio.wait_for(reported.get(), DEADLINE) == answers

    with_refusals(set(), {1}, scenario, DEADLINE if answers else 0.0)
