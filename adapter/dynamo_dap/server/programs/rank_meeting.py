"""Stops and steps the ranks of a distributed job together (``"stopRanks": "together"``).

The meeting is in the server process of the session that started the job, or attached to the job's first rank. Each
rank's session connects to the meeting, perhaps from another server process. The session reports its stops and its
user's commands, and the meeting makes the other ranks follow. Only the meeting decides, in the order of the reports.
Runs on the event loop; lives as long as the run of the program. When it closes, the ranks stop and step independently.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

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
from dynamo_dap.protocol.wire.messages import Event, ProtocolError, Request, decode
from dynamo_dap.server.client.loop_connection import LoopConnection
from dynamo_dap.server.launching.listeners import AgentListener

_log = logging.getLogger(__name__)

_PATIENCE = 2.0
"""Seconds from the first rank's arrival until ranks that have not finished the step are reported."""


class RankMeeting:
    """The ranks of one job that are debugged."""

    def __init__(self) -> None:
        self._listener = AgentListener()
        self._token = self._listener.expect(self._on_accepted, repeatedly=True)
        self._members: list[_Member] = []
        self._step: _Step | None = None
        self._late: set[_Member] = set()
        """Ranks that have not finished an earlier step."""

    @property
    def target(self) -> ConnectTarget:
        """The address that the ranks' sessions connect to."""
        host, _, port = self._listener.address.rpartition(":")
        return ConnectTarget(host=host, port=int(port), access_token=self._token)

    def close(self) -> None:
        """End the meeting; the ranks then stop and step independently."""
        self._listener.close()
        self._end_step()
        for member in self._members:
            member.connection.close()

    def _on_accepted(self, connection: LoopConnection, arguments: msgspec.Raw) -> None:
        name = decode(arguments, Newcomer, "a session that joins the ranks").name
        self._members.append(_Member(self, name, connection))

    # -- reports ---------------------------------------------------------------------------------------------

    def runs(self, member: _Member) -> None:
        """Pause ``member``, which has begun or resumed, if other ranks are held, about to pause, or stepping."""
        others = [other for other in self._members if other is not member]
        if any(other.is_held or other.is_asked for other in others) or (self._step is not None and self._step.waiting):
            member.pause()

    def stopped(self, member: _Member, stop: RankStoppedBody) -> None:
        """Note that ``member`` has stopped. Unless that ends its step, pause the other ranks."""
        if stop.reason == "pause" and not member.is_asked:
            # The user resumed the others, which withdrew this pause, before the rank stopped.
            member.send_request(RankRequestBody("continue"))
            return
        member.place, member.is_asked = stop.place, False
        step = self._step
        if step is not None and member in step.waiting:
            self._arrived(step, member, stop)
            return
        if member in self._late:
            self._late.discard(member)
            if step is not None:
                step.leader.report(f"{member.name} has reached {stop.place}.")
        self._pause_running()

    def requested(self, leader: _Member, request: RankRequestBody) -> None:
        """Make the other ranks follow ``leader``, which the user resumes or pauses."""
        if request.command == "pause":
            leader.is_asked = True
            self._pause_running()
            return
        place, leader.place, leader.is_asked = leader.place, None, False
        if request.command == "continue":
            self._continue(leader)
        else:
            self._begin_step(leader, place, request)

    def left(self, member: _Member) -> None:
        """Drop ``member``, whose session has ended, usually with its program."""
        if member not in self._members:
            return
        self._members.remove(member)
        self._late.discard(member)
        for other in self._members:
            if other.is_held:
                other.report(f"{member.name} has ended, or is no longer debugged.")
        step = self._step
        if step is not None and member in step.waiting | step.arrived.keys():
            step.waiting.discard(member)
            step.arrived.pop(member, None)
            self._report_arrivals(step)

    # -- decisions -------------------------------------------------------------------------------------------

    def _pause_running(self) -> None:
        """Pause every running rank, except ranks that have not finished the present step."""
        stepping = self._step.waiting if self._step is not None else frozenset[_Member]()
        for member in self._members:
            if not member.is_held and not member.is_asked and member not in stepping:
                member.pause()

    def _continue(self, leader: _Member) -> None:
        self._end_step()
        self._late.clear()
        for member in self._members:
            member.reported_divergence = None
            if member is leader:
                continue
            if member.is_held:
                member.send_request(RankRequestBody("continue"))
            else:
                member.withdraw_pause()

    def _begin_step(self, leader: _Member, place: Place | None, request: RankRequestBody) -> None:
        before = self._step
        if before is not None:
            self._late |= before.waiting - {leader}
        self._end_step()
        together = [one for one in self._members if one is not leader and one.is_held and one.place == place]
        self._step = _Step(leader, {leader, *together})
        for member in self._members:
            if member in together:
                member.reported_divergence = None
                member.send_request(request)
            elif member is not leader:
                self._report_divergence(member, leader)

    def _report_divergence(self, member: _Member, leader: _Member) -> None:
        """Report that ``member`` takes no part in a step of ``leader``; report it again after a change."""
        if member.is_held:
            text = f"{member.name} did not step with {leader.name}: it is stopped at {member.place}."
        elif member in self._late:
            text = f"{member.name} did not step with {leader.name}: its last step has not ended."
        elif member.is_asked:
            text = f"{member.name} has not reached a line since the pause; it may be waiting for other ranks."
        else:
            text = f"{member.name} did not step with {leader.name}: it is running."
        if member.reported_divergence != text:
            member.reported_divergence = text
            leader.report(text)

    def _arrived(self, step: _Step, member: _Member, stop: RankStoppedBody) -> None:
        step.waiting.discard(member)
        step.arrived[member] = stop.place
        step.is_interrupted = step.is_interrupted or stop.reason != "step"
        if step.waiting and step.timer is None:
            step.timer = asyncio.get_running_loop().call_later(_PATIENCE, self._report_arrivals, step)
        elif not step.waiting or step.is_overdue:
            self._report_arrivals(step)

    def _report_arrivals(self, step: _Step) -> None:
        """Report ranks that diverged or have not arrived: all others have, or the time is up."""
        if step is not self._step:
            return
        step.is_overdue = bool(step.waiting)
        reference, place = next(
            ((one, step.arrived[one]) for one in (step.leader, *step.arrived) if one in step.arrived), (None, None)
        )
        for member, at in step.arrived.items():
            if at != place and member not in step.reported and reference is not None:
                step.reported.add(member)
                text = f"{member.name} has diverged: it is at {at}, and {reference.name} at {place}."
                for listener in {step.leader, member}:
                    listener.report(text)
        for member in step.waiting - step.reported_waiting:
            step.reported_waiting.add(member)
            for listener in {step.leader, *step.arrived}:
                listener.report(f"{member.name} has not reached a line yet, unlike {_names(step.arrived)}.")
        if step.is_interrupted and step.waiting:
            # Another rank has hit a breakpoint: these ranks must not continue while the user inspects it.
            self._late |= step.waiting
            step.waiting.clear()
            self._pause_running()

    def _end_step(self) -> None:
        step, self._step = self._step, None
        if step is not None and step.timer is not None:
            step.timer.cancel()


def _names(members: dict[_Member, Place]) -> str:
    return " and ".join(one.name for one in members)


class _Step:
    """A step that several ranks do together."""

    def __init__(self, leader: _Member, waiting: set[_Member]) -> None:
        """Step with ``leader``, which the user steps; ``waiting`` are the ranks that have not arrived."""
        self.leader = leader
        self.waiting = waiting
        self.arrived: dict[_Member, Place] = {}
        self.timer: asyncio.TimerHandle | None = None
        self.is_overdue = False
        """Whether the time to arrive is up."""
        self.is_interrupted = False
        """Whether a rank has stopped for something other than the step."""
        self.reported: set[_Member] = set()
        self.reported_waiting: set[_Member] = set()


class _Member:
    """The session of one rank."""

    def __init__(self, meeting: RankMeeting, name: str, connection: LoopConnection) -> None:
        self.name = name
        self.connection = connection
        self.place: Place | None = None
        """Where it is held; None while it runs."""
        self.is_asked = False
        """Whether a requested pause is still pending."""
        self.reported_divergence: str | None = None
        """The last reported reason why it does not step with the others."""
        self._meeting = meeting
        connection.receiver = self

    @property
    def is_held(self) -> bool:
        return self.place is not None

    def pause(self) -> None:
        self.is_asked = True
        self.connection.send_event(PAUSE_RANK)

    def withdraw_pause(self) -> None:
        self.is_asked = False
        self.connection.send_event(WITHDRAW_RANK_PAUSE)

    def send_request(self, request: RankRequestBody) -> None:
        self.place, self.is_asked = None, False
        self.connection.send_event(RANK_REQUEST, request)

    def report(self, text: str) -> None:
        self.connection.send_event(PRINT_AT_RANK, PrintAtRankBody(text))

    def on_event(self, event: Event) -> None:
        try:
            if event.event == RANK_RUNS:
                self._meeting.runs(self)
            elif event.event == RANK_REQUEST:
                self._meeting.requested(self, decode(event.body, RankRequestBody, RANK_REQUEST))
        except ProtocolError as error:
            self.on_invalid_message(str(error))

    def on_request(self, request: Request) -> None:
        try:
            stop = decode(request.arguments, RankStoppedBody, RANK_STOPPED)
        except ProtocolError as error:
            self.on_invalid_message(str(error))
            return
        # Answer first: the session then reports the stop before it carries out what the stop leads to.
        self.connection.respond(request)
        self._meeting.stopped(self, stop)

    def on_invalid_message(self, problem: str) -> None:
        _log.error("the session of %s sent an invalid message: %s", self.name, problem)

    def on_closed(self, problem: str | None) -> None:
        self.connection.close()
        self._meeting.left(self)
