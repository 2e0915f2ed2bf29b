"""Puts the recorder together: how nodes of graphs are written, and who hears of what was recorded.

``make_recorder`` is called once per process, when the program imports Dynamo.
"""

from __future__ import annotations

from typing import Any

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.compile_time.graph_texts import call_text, result_text
from dynamo_dap.debuggee.recording.recorder import Recorder
from dynamo_dap.record.events import Event, GuardsMade
from dynamo_dap.record.session import Session

COMPILES_CHANGED = "dynamoCompilesChanged"


def make_recorder(agent: Agent) -> Recorder:
    """Return a recorder that tells the agent's client of changes."""

    def tell(event: Event) -> None:
        # Guards come right before the end of a compile, which is told as well.
        if not isinstance(event, GuardsMade):
            agent.send_event(COMPILES_CHANGED)

    return Recorder(Session(), _node_texts, tell)


def _node_texts(node: Any) -> tuple[str, str]:
    return call_text(node), result_text(node)
