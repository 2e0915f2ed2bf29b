"""Checks that no thread is announced while it is stopped.

VS Code takes a thread's event as the end of its stop: it shows the stack then, but no variables and no way to go on.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.client.timeline import Entry

_RESUMING = ("continue", "next", "stepIn", "stepOut", "restart")


def problems_of(entries: Iterable[Entry]) -> list[str]:
    """One line for each announcement that came too late."""
    stopped: set[int] = set()
    found = []
    for entry in entries:
        message = entry.message
        body = message.get("body") or {}
        if entry.sent:
            if message.get("command") in _RESUMING:
                # One request may resume several threads, and a refused one leaves the check with less to look at.
                stopped.clear()
        elif message.get("event") == "stopped":
            stopped.add(body.get("threadId"))
        elif message.get("event") == "continued":
            stopped.clear()
        elif message.get("event") == "thread" and body["reason"] == "started" and body["threadId"] in stopped:
            found.append(f"thread {body['threadId']} was announced while it was stopped: {entry}")
    return found
