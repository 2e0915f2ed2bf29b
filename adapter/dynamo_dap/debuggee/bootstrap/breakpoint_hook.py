"""``breakpoint()`` and ``comptime.breakpoint()`` stop in the IDE, not in pdb.

``sys.breakpointhook`` is replaced once, for the life of the process. Runs on whichever thread calls ``breakpoint()``.
Without a client it does nothing: a program must not hang in a prompt that nobody sees.
"""

from __future__ import annotations

import os
import sys
import types

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.stepping import Stop

EAGER = "eager"


def install_breakpoint_hook(agent: Agent) -> None:
    """Have ``breakpoint()`` stop in the client of ``agent``, unless ``PYTHONBREAKPOINT`` chooses another debugger."""
    if os.environ.get("PYTHONBREAKPOINT") in (None, ""):
        sys.breakpointhook = lambda *args, **kwargs: stop_at(agent, sys._getframe(1))


def stop_at(agent: Agent, frame: types.FrameType) -> None:
    """Stop where ``frame`` called ``breakpoint()``."""
    if agent.client is None or agent.is_holding:
        return
    if any(engine.stop_for_breakpoint_call(frame) for engine in agent.engines):
        return
    if agent.eager_debugger.is_active:
        agent.eager_debugger.stop_at(frame)
        return
    agent.hold(
        Stop(
            engine=EAGER,
            reason="breakpoint",
            description="Paused on breakpoint()",
            frames=lambda: agent.python_stack(frame),
        )
    )
