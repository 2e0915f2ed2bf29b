"""Ends debugging just before gevent or eventlet replaces Python's threads.

The debugger's own threads would wait on locks that switch between green threads, and the program would hang at its end.
Nothing is imported; the hooks are installed when the program imports either package. Runs on the thread that patches.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.torch_api.import_hooks import when_imported
from dynamo_dap.protocol.requests.contract import ENDING_EVENT

_BREAKING = frozenset({"threading", "_thread", "thread", "socket", "queue", "select", "time"})
"""Modules whose original functions the debugger's threads need."""


def watch_for_green_threads(agent: Agent) -> None:
    """Make ``agent`` leave its client once the program patches the standard library."""
    when_imported("gevent.events", functools.partial(_watch_gevent, agent))
    when_imported("eventlet.patcher", functools.partial(_watch_eventlet, agent))


def _watch_gevent(agent: Agent) -> None:
    events = sys.modules["gevent.events"]

    def on_event(event: Any) -> None:
        # Detach before a full patch: otherwise debugpy warns on the program's stderr.
        kind = type(event)
        is_all = kind is getattr(events, "GeventWillPatchAllEvent", None)
        is_module = kind is getattr(events, "GeventWillPatchModuleEvent", None)
        if is_all or (is_module and event.module_name in _BREAKING):
            _leave(agent, "gevent.monkey")

    events.subscribers.append(on_event)


def _watch_eventlet(agent: Agent) -> None:
    patcher: Any = sys.modules["eventlet.patcher"]
    patch: Callable[..., object] = patcher.monkey_patch

    @functools.wraps(patch)
    def monkey_patch(*arguments: object, **named: object) -> object:
        _leave(agent, "eventlet.monkey_patch")
        return patch(*arguments, **named)

    patcher.monkey_patch = monkey_patch


def _leave(agent: Agent, what: str) -> None:
    """End the session as if the program had ended, and let the program run on."""
    if agent.client is None:
        return
    try:
        agent.print(
            f"dynamo-dap: {what} replaces Python's threads, on which the debugger depends: the program runs on "
            "without it\n",
            "important",
        )
        is_debugged = agent.eager_debugger.is_active
        agent.send_event(ENDING_EVENT)
        agent.detach_client()
        if is_debugged:
            importlib.import_module("pydevd").stoptrace()
    except Exception:  # noqa: BLE001  (the program must not suffer from us)
        log_exception("leaving a program with green threads")
