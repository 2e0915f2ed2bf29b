"""``stopOnEntry``: stops before the first line of the program.

The main thread is traced only until that line is reached.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.stepping import Stop
from dynamo_dap.debuggee.bootstrap.breakpoint_hook import EAGER


def stop_on_entry(agent: Agent, filename: str) -> None:
    """Arrange that the calling thread stops at the first line that runs of the module code of ``filename``."""

    def trace_call(frame: types.FrameType, _event: str, _argument: Any) -> Any:
        if frame.f_code.co_filename == filename and frame.f_code.co_name == "<module>":
            return trace_line
        return None

    def trace_line(frame: types.FrameType, _event: str, _argument: Any) -> Any:
        sys.settrace(None)
        frame.f_trace = None
        agent.hold(
            Stop(
                engine=EAGER,
                reason="entry",
                description="Paused on entry",
                frames=lambda: agent.python_stack(frame),
            )
        )
        return None

    sys.settrace(trace_call)
