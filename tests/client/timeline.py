"""The messages that a session sent and received, in order, and functions that wait for further ones.

The connection's reader and every sending thread write it, and the test waits on it. A wait ends with the expected
message or with an ``ExpectationError``; the report on the failure has the transcript.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

DEADLINE = 240.0
"""Seconds that a wait may take: the import of torch on a busy machine takes longest."""


class ExpectationError(AssertionError):
    """The message for which a test waited did not come."""


@dataclass(frozen=True)
class Entry:
    """One message."""

    at: float
    """Seconds since the session began."""
    sent: bool
    message: dict[str, Any]

    @property
    def is_event(self) -> bool:
        """Whether the message is an event of the server."""
        return self.message.get("type") == "event"

    def __str__(self) -> str:
        shown = {name: value for name, value in self.message.items() if name not in ("seq", "type")}
        text = json.dumps(shown, ensure_ascii=False)
        text = text if len(text) <= 500 else text[:499] + "…"
        kind = self.message.get("type", "?")
        return f"{self.at:8.3f} {'-->' if self.sent else '<--'} {kind:8} {text}"


def _folded(entries: list[Entry]) -> list[Entry]:
    """Return the entries, with consecutive pieces of output joined."""
    folded: list[Entry] = []
    for entry in entries:
        before = folded[-1].message if folded else {}
        body, body_before = entry.message.get("body") or {}, before.get("body") or {}
        if (
            entry.message.get("event") == before.get("event") == "output"
            and body.get("category") == body_before.get("category")
            and len(body_before["output"]) < 400
        ):
            together = {**body, "output": body_before["output"] + body["output"]}
            folded[-1] = Entry(folded[-1].at, False, {**before, "body": together})
        else:
            folded.append(entry)
    return folded


class Timeline:
    """The messages of a session. Events are expected in order: each wait starts after the last event found."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._changed = threading.Condition()
        self.entries: list[Entry] = []
        self._consumed = 0
        self.problems: list[str] = []
        """Messages that violate the schema, and lines that are not messages."""
        self.ended = False

    def record(self, sent: bool, message: dict[str, Any]) -> None:
        """Add a message."""
        with self._changed:
            self.entries.append(Entry(time.monotonic() - self._started, sent, message))
            self._changed.notify_all()

    def end(self) -> None:
        """Note that the connection has ended, and no message will follow."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def forget(self) -> None:
        """Drop the messages before the last event found: a session with many stops would fill the memory."""
        with self._changed:
            del self.entries[: max(self._consumed - 1, 0)]
            self._consumed = min(self._consumed, 1)

    def pass_by(self) -> None:
        """Let later waits ignore the events so far."""
        with self._changed:
            self._consumed = len(self.entries)

    @property
    def events(self) -> list[dict[str, Any]]:
        """Return all events so far."""
        return [entry.message for entry in self.entries if entry.is_event]

    def expect_event(
        self,
        name: str,
        predicate: Callable[[dict[str, Any]], bool] = lambda body: True,
        *,
        deadline: float = DEADLINE,
        unless: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """Wait for the next event ``name`` whose body satisfies ``predicate``, and return the body.

        The search starts after the last event found. The wait fails if an event with a name in ``unless`` comes first.
        """
        return self._expect((name,), predicate, deadline, unless)[1]

    def expect_first(self, *names: str, deadline: float = DEADLINE) -> tuple[str, dict[str, Any]]:
        """Wait for the next event of one of the ``names``, and return its name and body."""
        return self._expect(names, lambda body: True, deadline, ())

    def _expect(
        self,
        names: tuple[str, ...],
        predicate: Callable[[dict[str, Any]], bool],
        deadline: float,
        unless: tuple[str, ...],
    ) -> tuple[str, dict[str, Any]]:
        awaited = " or ".join(f"'{name}'" for name in names)
        until = time.monotonic() + deadline
        with self._changed:
            position = self._consumed
            while True:
                while position < len(self.entries):
                    entry = self.entries[position]
                    position += 1
                    if not entry.is_event:
                        continue
                    name, body = entry.message["event"], entry.message.get("body") or {}
                    if name in names and predicate(body):
                        self._consumed = position
                        return name, body
                    if name in unless:
                        raise ExpectationError(f"waited for {awaited}, but '{name}' came: {body}")
                left = until - time.monotonic()
                if self.ended:
                    raise ExpectationError(f"waited for {awaited}, but the connection has ended")
                if left <= 0 or not self._changed.wait(left):
                    raise ExpectationError(f"no {awaited} event as expected within {deadline:g} s")

    def wait_until(self, condition: Callable[[], bool], what: str, *, deadline: float = DEADLINE) -> None:
        """Wait until ``condition`` is true, checked after every message; ``what`` describes it in a failure."""
        until = time.monotonic() + deadline
        with self._changed:
            while not condition():
                left = until - time.monotonic()
                if self.ended or left <= 0 or not self._changed.wait(left):
                    if condition():
                        return
                    ending = "before the connection ended" if self.ended else f"within {deadline:g} s"
                    raise ExpectationError(f"no {what} {ending}")

    def wait_for_end(self, *, deadline: float = DEADLINE) -> None:
        """Wait until the server has closed the connection."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.ended, deadline):
                raise ExpectationError(f"the server did not close the connection within {deadline:g} s")

    def transcript(self, last: int = 80) -> str:
        """Return the last messages as text."""
        entries = _folded(self.entries)
        omitted = max(len(entries) - last, 0)
        lines = [f"... {omitted} messages before"] if omitted else []
        return "\n".join([*lines, *(str(entry) for entry in entries[omitted:])])
