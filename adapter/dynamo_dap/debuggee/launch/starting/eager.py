"""Starts debugpy in a session that debugs ordinary Python, and reports the result to the server.

Runs on the main thread of a launched program before the program, else on the agent's reader thread. If debugpy cannot
be started, the session continues with the agent alone.
"""

from __future__ import annotations

import importlib
import socket
import sys
from collections.abc import Callable

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.eager.debugpy_debugger import DebugpyDebugger
from dynamo_dap.debuggee.eager.pydevd_internals import DebugpyMissing, has_breakpoint_hook
from dynamo_dap.debuggee.launch.starting.stops import install_breakpoint_hook
from dynamo_dap.debuggee.torch_api.import_hooks import when_dynamo_is_imported
from dynamo_dap.protocol.requests.contract import EAGER_EVENT, EagerEventBody

_KERNELS = "dynamo_dap.debuggee.launch.starting.triton_kernels"


def adopt_eager(agent: Agent) -> None:
    """Use the debugpy that debugs this process already."""
    debugger = DebugpyDebugger(agent)
    try:
        debugger.adopt()
    except DebugpyMissing as missing:
        agent.print(f"dynamo-dap: {missing}\n", "important")
    else:
        _install_hooks(agent, debugger)


def start_eager(
    agent: Agent, address: str, token: str, greet: Callable[[socket.socket], None] | None = None
) -> DebugpyDebugger | None:
    """Start debugpy, which connects to the server at ``address``; return None if that is impossible.

    ``greet`` begins the connection, if programs other than debugpy connect to that address.
    """
    debugger = DebugpyDebugger(agent)
    problem: str | None = None
    try:
        debugger.start(address, token, greet)
    except DebugpyMissing as missing:
        problem = str(missing)
    except Exception as error:  # noqa: BLE001  (whatever is wrong with it, the program must run)
        log_exception("starting debugpy")
        problem = f"debugpy could not be started: {type(error).__name__}: {error}"
    agent.send_event(EAGER_EVENT, EagerEventBody(problem))
    if problem is not None:
        return None
    _install_hooks(agent, debugger)
    return debugger


def _install_hooks(agent: Agent, debugger: DebugpyDebugger) -> None:
    if has_breakpoint_hook():
        # Our hook handles traces and generated code, and passes the rest on to debugpy.
        install_breakpoint_hook(agent)
    when_dynamo_is_imported(debugger.watch_compiles)
    # Imported only for kernels: other programs pay nothing. If another thread is importing it, wait for that.
    if _KERNELS in sys.modules:
        importlib.import_module(_KERNELS).debugpy_has_started()
