"""Passes a backend's events on to the client, and tracks which backend has stopped which thread.

Runs on the event loop; one per run of the debugged program. The server reads only events about its own state:
breakpoint ids, stopped threads, the end of the program. It passes all others on unread. Exactly one backend owns a
stopped thread: the one that reported it stopped. Threads stop and resume individually. The other backend may stop a
resumed thread before the first one has answered the resuming request: events about such a thread wait for that answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from dynamo_dap.protocol.requests.contract import EAGER_EVENT, EagerEventBody
from dynamo_dap.protocol.wire.messages import Event, ProtocolError, decode
from dynamo_dap.protocol.wire.types import CapabilitiesEventBody, ContinuedEventBody, StoppedEventBody, ThreadEventBody
from dynamo_dap.server.backends.backend import AGENT, DEBUGPY, Backend
from dynamo_dap.server.backends.breakpoints import BreakpointMemory
from dynamo_dap.server.client.ide import Client


class StoppedThreads:
    """Stopped threads, by DAP id."""

    def __init__(self) -> None:
        self._ever: set[int] = set()
        self._owners: dict[int, str] = {}
        self._unanswered: dict[int, list[Callable[[], None]]] = {}
        """By thread: actions that wait for the answer to a resuming request."""
        self._delayed: dict[int, list[Callable[[], None]]] = {}
        """By thread: actions that wait for the end of a delay."""
        self.changes = 0
        """How many stops and resumes there were."""

    def stopped(self, thread_id: int, backend: str) -> None:
        """Note that ``backend`` has stopped the thread."""
        self.changes += 1
        self._ever.add(thread_id)
        self._owners[thread_id] = backend

    def resumed(self, thread_id: int) -> None:
        """Note that the thread has resumed."""
        self.end_delay(thread_id)
        self.changes += 1
        self._owners.pop(thread_id, None)

    def begin_resuming(self, thread_id: int) -> str | None:
        """Begin a request that resumes the thread. Return the backend that holds it, or None."""
        self.end_delay(thread_id)
        self.changes += 1
        self._unanswered.setdefault(thread_id, [])
        return self._owners.pop(thread_id, None)

    def end_resuming(self, thread_id: int, owner: str | None) -> None:
        """End what ``begin_resuming`` began. ``owner`` is the backend if it still holds the thread, or None."""
        if owner is not None:
            self._owners.setdefault(thread_id, owner)
        for action in self._unanswered.pop(thread_id, ()):
            action()

    def delay_report(self, thread_id: int) -> None:
        """Delay the report of the thread's stop until ``end_delay``, or until the thread runs again."""
        self._delayed.setdefault(thread_id, [])

    def end_delay(self, thread_id: int) -> None:
        """Report the stop that ``delay_report`` delayed, if there is one."""
        for action in self._delayed.pop(thread_id, ()):
            action()

    def when_reportable(self, thread_id: int, action: Callable[[], None]) -> None:
        """Do ``action`` once every resuming request of the thread has an answer and no delay is left: now or later."""
        if thread_id in self._unanswered:
            self._unanswered[thread_id].append(lambda: self.when_reportable(thread_id, action))
        elif thread_id in self._delayed:
            self._delayed[thread_id].append(action)
        else:
            action()

    def exited(self, thread_id: int) -> None:
        """Forget a thread that has ended."""
        self.end_delay(thread_id)
        self._ever.discard(thread_id)
        self._owners.pop(thread_id, None)

    def resumed_by(self, backend: str) -> None:
        """Note that all threads of ``backend`` have resumed."""
        self.changes += 1
        for thread_id in self.of(backend):
            self.end_delay(thread_id)
            del self._owners[thread_id]

    def of(self, backend: str) -> list[int]:
        """Return the threads that ``backend`` holds."""
        return sorted(thread_id for thread_id, owner in self._owners.items() if owner == backend)

    def is_agents(self, thread_id: int) -> bool:
        """Return whether the agent holds the thread."""
        return self._owners.get(thread_id) == AGENT

    @property
    def held(self) -> list[int]:
        """Threads that are stopped now."""
        return sorted(self._owners)

    @property
    def ever_stopped(self) -> list[int]:
        """Threads that were stopped at any time, and have not exited."""
        return sorted(self._ever)


_log = logging.getLogger(__name__)


class BackendEvents:
    """Passes events on to the client."""

    def __init__(
        self,
        client: Client,
        breakpoints: BreakpointMemory,
        *,
        owns_end: bool,
        flush_output: Callable[[bool], None],
        followers: Mapping[str, Callable[[Event], None]],
    ) -> None:
        """With ``owns_end``, the server reports the end of the program after all its output.

        ``flush_output`` passes on the program's output so far; with True only whole lines. ``followers`` take the
        events, by their name, that only the server reads.
        """
        self._client = client
        self._breakpoints = breakpoints
        self._owns_end = owns_end
        self._flush_output = flush_output
        self._followers = followers
        self.is_silent = False
        """Whether to send the client nothing more: a restart replaces the program."""
        self.initialized = {name: asyncio.Event() for name in (AGENT, DEBUGPY)}
        """By the name of a backend: set when it accepts breakpoints."""
        self.eager_problem: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        """Why debugpy will not connect, as the agent said; None if it will."""
        self.terminated_was_sent = False
        self.count = 0
        """How many events have arrived."""
        self.stopped_threads = StoppedThreads()
        self._agent_steps_back = True
        """Whether the agent's stopped thread can step back, as the agent says before the stop."""
        self.on_stopped: Callable[[int, str], None] = lambda thread_id, reason: None
        """Called at each stop, before its report. It may delay the report."""
        self._early_stops: list[object] | None = None if owns_end else []
        """Stops before ``configurationDone`` in an attached program, which VS Code would not show."""
        self._readers: dict[str, Callable[[Backend, Event], object]] = {
            "initialized": self._initialized,
            "capabilities": self._capabilities,
            "stopped": self._stopped,
            "breakpoint": self._breakpoint,
            "thread": self._thread,
            "exited": self._exited,
            "terminated": self._terminated,
            "continued": self._continued,
            "process": self._process,
            EAGER_EVENT: self._eager,
        }

    def take(self, backend: Backend, event: Event) -> None:
        """Pass ``event`` on, keep it, or give it to its follower; output that was printed before a stop goes first."""
        if (follow := self._followers.get(event.event)) is not None:
            follow(event)
            return
        self.count += 1
        self._flush_output(event.event == "output")
        read = self._readers.get(event.event)
        event = Event(event.event, backend.ids.to_client(event.body))
        try:
            body = event.body if read is None else read(backend, event)
        except ProtocolError as error:
            _log.error("%s sent a broken event: %s", backend.name, error)
            return
        if event.event == "stopped" and self._early_stops is not None:
            self._early_stops.append(body)
        elif event.event == "stopped":
            self._report_stop(_thread_of(event), body)
        elif body is not None:
            self._report(event.event, body)

    def _report(self, event: str, body: object) -> None:
        if not self.is_silent:
            self._client.event(event, body)

    def _report_stop(self, thread_id: int | None, body: object) -> None:
        """Report a stop, after the answer to the thread's resuming request, and after a delay that was asked for."""
        if thread_id is None:
            self._report("stopped", body)
        else:
            self.stopped_threads.when_reportable(thread_id, lambda: self._report_delayed_stop(body))

    def _report_delayed_stop(self, body: object) -> None:
        if not self.terminated_was_sent:
            self._report("stopped", body)

    def report_early_stops(self) -> None:
        """Report the stops so far, and from now on each stop at once: the client is configured."""
        stops, self._early_stops = self._early_stops or (), None
        for body in stops:
            self._report("stopped", body)

    def _initialized(self, backend: Backend, event: Event) -> None:
        """Note that ``backend`` takes requests. The session itself reports ``initialized`` to the client, once."""
        backend.is_ready = True
        self.initialized[backend.name].set()

    def _capabilities(self, backend: Backend, event: Event) -> object:
        """Note whether the agent's next stop can step back; the session itself reports capabilities to the client."""
        capabilities = decode(event.body, CapabilitiesEventBody, "capabilities event").capabilities
        if backend.name == AGENT and capabilities.supports_step_back is not None:
            self._agent_steps_back = capabilities.supports_step_back
        return None

    def _stopped(self, backend: Backend, event: Event) -> object:
        stop = decode(event.body, StoppedEventBody, "stopped event")
        if stop.thread_id is not None:
            self.stopped_threads.stopped(stop.thread_id, backend.name)
            self.on_stopped(stop.thread_id, stop.reason)
        if not self.is_silent:
            self._client.stops(steps_back=backend.name == AGENT and self._agent_steps_back)
        if stop.reason == "pause" and stop.preserve_focus_hint:
            # Remove the hint. With it, VS Code selects no frame at debugpy's pause, shows no variables and cannot
            # continue.
            stop.preserve_focus_hint = None
            return stop
        return self._breakpoints.translate_stop(backend, event.body)

    def _breakpoint(self, backend: Backend, event: Event) -> object:
        return self._breakpoints.translate_event(backend, event.body)

    def _thread(self, backend: Backend, event: Event) -> object:
        body = decode(event.body, ThreadEventBody, "thread event")
        if body.reason == "exited":
            self.stopped_threads.exited(body.thread_id)
            return event.body
        # Send no thread event: the stop names the thread. VS Code would take the event for the end of the stop, and
        # show no variables.
        return None if body.thread_id in self.stopped_threads.held else event.body

    def _exited(self, backend: Backend, event: Event) -> object:
        return None if self._owns_end or backend.name == DEBUGPY else event.body

    def _terminated(self, backend: Backend, event: Event) -> object:
        if self._owns_end or self.terminated_was_sent or backend.name == DEBUGPY:
            return None
        self.terminated_was_sent = True
        return event.body

    def _continued(self, backend: Backend, event: Event) -> object:
        body = decode(event.body, ContinuedEventBody, "continued event")
        if backend.name == DEBUGPY and self.stopped_threads.is_agents(body.thread_id):
            # The thread resumed before the agent stopped it. The agent's event came first, on another connection.
            return None
        if body.all_threads_continued:
            self.stopped_threads.resumed_by(backend.name)
        self.stopped_threads.resumed(body.thread_id)
        return event.body

    def _process(self, backend: Backend, event: Event) -> object:
        """Drop the event: the server reports the process itself."""
        return None

    def _eager(self, backend: Backend, event: Event) -> object:
        if not self.eager_problem.done():
            self.eager_problem.set_result(decode(event.body, EagerEventBody, "eager event").problem)
        return None


def _thread_of(event: Event) -> int | None:
    return decode(event.body, StoppedEventBody, "stopped event").thread_id
