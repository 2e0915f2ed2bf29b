"""Checks the order of events about threads.

The server announces no thread while it is stopped: VS Code takes the event as the end of the stop, and then shows the
stack, but no variables and no way to continue. The server reports no stop before it has answered the request that
resumed the thread: a client would take the answer as the end of that stop.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.client.timeline import Entry

_RESUMING = ("continue", "next", "stepIn", "stepOut", "restart")


def problems_of(entries: Iterable[Entry]) -> list[str]:
    """Return one line for each event in a wrong order."""
    stopped: set[int] = set()
    unanswered: dict[int, int] = {}
    found = []
    for entry in entries:
        message = entry.message
        body = message.get("body") or {}
        if entry.sent:
            if message.get("command") in _RESUMING:
                # One request may resume several threads. A refused request only makes the check weaker.
                stopped.clear()
                # Tests also send arguments of wrong types.
                arguments = message.get("arguments")
                thread_id = arguments.get("threadId") if isinstance(arguments, dict) else None
                if isinstance(thread_id, int):
                    unanswered[message["seq"]] = thread_id
        elif message.get("type") == "response":
            unanswered.pop(message.get("request_seq", -1), None)
        elif message.get("event") == "stopped":
            if body.get("threadId") in unanswered.values():
                found.append(f"a stop came before the answer to what let its thread continue: {entry}")
            stopped.add(body["threadId"])
        elif message.get("event") == "continued":
            stopped.clear()
        elif message.get("event") == "thread" and body["reason"] == "started" and body["threadId"] in stopped:
            found.append(f"thread {body['threadId']} was announced while it was stopped: {entry}")
    return found
