"""Makes this process's agent when it is first needed, and adds engines when the program imports torch.

Runs on any thread; the agent lives as long as the process.
"""

from __future__ import annotations

import os
import signal
import sys
import sysconfig
import threading

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.engine import EntryReader
from dynamo_dap.debuggee.agent.log import log_exception, start_log
from dynamo_dap.debuggee.agent.own_rank import find_group_by
from dynamo_dap.debuggee.launch.runs.profiling import is_profiling
from dynamo_dap.debuggee.launch.starting.green_threads import watch_for_green_threads
from dynamo_dap.debuggee.launch.starting.stops import install_breakpoint_hook, pause_eager
from dynamo_dap.debuggee.launch.starting.torch_options import TorchOptions
from dynamo_dap.debuggee.torch_api.devices.process_groups import rank_in_group
from dynamo_dap.debuggee.torch_api.import_hooks import when_dynamo_is_imported, when_imported
from dynamo_dap.debuggee.torch_api.own_threads import is_torchs_own
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.debuggee.wrapping.patches import reporters
from dynamo_dap.protocol.access.authorization import NamedServer, show_token
from dynamo_dap.protocol.requests.contract import CRASH_CELL_VARIABLE
from dynamo_dap.protocol.requests.options import INTERPRET, AgentOptions

_TRITON = "triton"

_lock = lock("agent of the process", Level.PROCESS)
_agent: Agent | None = None
_arrived_at: NamedServer | None = None
"""The server that this process has connected to by itself for its present session."""


def process_agent() -> Agent:
    """Return the agent of this process."""
    global _agent
    with _lock:
        if _agent is None:
            start_log()
            _agent = agent = Agent()
            agent.process = _ThisProcess(agent)
            agent.compiling_settings = TorchOptions(agent.send_event, agent.print)
            find_group_by(rank_in_group)
            install_breakpoint_hook(agent)
            reporters.append(lambda line: agent.print(f"{line}\n", "important"))
            os.register_at_fork(after_in_child=agent.forget_session)
            # Hide the variable from the program and its children.
            crash_folder = os.environ.pop(CRASH_CELL_VARIABLE, None)
            when_dynamo_is_imported(lambda: _add_engines(agent, crash_folder))
            watch_for_green_threads(agent)
    return _agent


def known_agent() -> Agent | None:
    """Return this process's agent; None if nothing has needed it yet."""
    return _agent


def report_failed_test(error: BaseException) -> None:
    """Stop at the exception that fails a test, if the filter for uncaught exceptions is on: pytest catches it.

    Runs on the test's thread.
    """
    if _agent is not None:
        try:
            _agent.eager_debugger.report_uncaught(error)
        except Exception:  # noqa: BLE001  (the test run continues)
            log_exception("reporting a failed test")


def note_server(server: NamedServer) -> None:
    """Note the ``server`` of this process, to which debugpy connects, too."""
    global _arrived_at
    _arrived_at = server


def session_entries() -> EntryReader | None:
    """Return the present session's reader of cache entries; None without a session."""
    return _agent.cache_entries if _agent is not None and _agent.client is not None else None


class _ThisProcess:
    """The agent's interface to its process."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def is_hidden(self, thread: threading.Thread) -> bool:
        """Hide the threads that torch started for itself."""
        return is_torchs_own(thread)

    def terminate(self) -> None:
        """End the program by SIGTERM, which it may handle."""
        # Send the signal first: a resumed thread would run on before the program gets it.
        os.kill(os.getpid(), signal.SIGTERM)
        self._agent.detach_client()

    def pause_eager(self, ident: int) -> bool:
        """Pause the main thread."""
        return pause_eager(self._agent, ident)

    def start_eager(self, options: AgentOptions) -> None:
        """Start debugpy, or use a running one."""
        # Imported only now: a program that is not debugged pays nothing.
        from dynamo_dap.debuggee.launch.starting.eager import adopt_eager, start_eager

        if options.eager_adopts:
            adopt_eager(self._agent)
        elif options.eager_address:
            start_eager(self._agent, options.eager_address, options.eager_token or "")
        elif options.eager_address is not None and _arrived_at is not None:
            token = options.eager_token or ""
            start_eager(self._agent, _arrived_at.address, token, lambda connected: show_token(connected, token))

    def invite_children(self, options: AgentOptions) -> None:
        """Start child processes under the debugger, and make this process wait for other ranks."""
        # Imported only now: see above.
        if options.stretch_timeouts:
            from dynamo_dap.debuggee.launch.children.waiting_ranks import wait_for_held_ranks

            agent, client = self._agent, self._agent.client
            wait_for_held_ranks(lambda: client is not None and agent.client is client, agent.print)
        if options.children_file is not None or options.eager_adopts:
            from dynamo_dap.debuggee.launch.children.child_processes import invite_children

            invite_children(self._agent, options)

    def interpret_kernels(self, options: AgentOptions) -> None:
        """Interpret Triton kernels."""
        # Imported only now: see above.
        if options.triton == INTERPRET:
            from dynamo_dap.debuggee.launch.starting.triton_kernels import interpret_kernels

            interpret_kernels(self._agent)
        else:
            when_imported(_TRITON, self._watch_launches)

    def _watch_launches(self) -> None:
        try:
            from dynamo_dap.debuggee.launch.starting.triton_kernels import watch_launches

            watch_launches(self._agent)
        except Exception as error:  # noqa: BLE001  (this runs inside the program's own import of Triton)
            log_exception("hooking into Triton")
            text = f"dynamo-dap: cannot debug kernels of this Triton: {type(error).__name__}: {error}\n"
            self._agent.print(text, "important")


def unsupported_build() -> str | None:
    """Return the limits of this build of Python, as readable text; None for an ordinary build."""
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    version = "{}.{}t".format(*sys.version_info[:2])
    return (
        f"Python {version} is a free-threaded build, on which stops in compiled functions, real values and what-if are "
        "not supported. Use the ordinary build."
    )


def _add_engines(agent: Agent, crash_folder: str | None) -> None:
    if (problem := unsupported_build()) is not None:
        agent.print(f"dynamo-dap: warning: {problem}\n", "important")
    # Imported only now: a program without Dynamo pays nothing for the engines.
    try:
        import dis

        from dynamo_dap.debuggee.composition.compile_time_engine import CompileTimeEngine
        from dynamo_dap.debuggee.eager.watching.attribute_watch import AttributeWatch
        from dynamo_dap.debuggee.generated.engine import RunTimeEngine
        from dynamo_dap.debuggee.launch.runs.cache_report import CountedEntries, facts_of
        from dynamo_dap.debuggee.launch.runs.recording import make_explorer, make_recorder
        from dynamo_dap.debuggee.patching.requests import Patcher
        from dynamo_dap.debuggee.recording.compile_progress import CompileProgress
        from dynamo_dap.debuggee.saved_calls.saving_run import HeldCalls
        from dynamo_dap.debuggee.torch_api.skipping import (
            never_compile,
            never_compile_below,
            never_compile_own_functions,
        )

        # Compiled code may call functions of these modules: at breakpoint(), at a pause, at the start of a process.
        own = os.path.dirname(os.path.dirname(__file__))
        never_compile_below(own, os.path.join(os.path.dirname(own), "agent"))
        # debugpy calls it for each function with a breakpoint. Dynamo would skip this generator, but count it.
        never_compile(dis.findlinestarts)
        # Add the recorder before the engines: an event must be in the record before a thread stops for it.
        recorder = make_recorder(
            agent.compiles_changed,
            lambda: agent.options.record,
            agent.print,
            agent.running_clock,
            # Do not note each line's variables while times are measured.
            notes_traces=lambda: agent.options.record and not is_profiling(),
        )
        agent.add_recorder(recorder)
        agent.add_progress(CompileProgress(agent.compiling, lambda: agent.shows_progress))
        agent.add_explorer(make_explorer(agent.compiles_changed, lambda: agent.options.explore, agent.print))
        compile_time = CompileTimeEngine(agent)
        agent.add_engine(compile_time)
        run_time = RunTimeEngine(agent, crash_folder, compile_time.cached_calls, compile_time.backward_passes)
        agent.add_engine(run_time)
        agent.add_engine(AttributeWatch(agent))
        agent.cache_entries = CountedEntries(run_time.codes, facts_of(recorder.record), run_time)
        agent.call_saver = HeldCalls()
        agent.patcher = Patcher(run_time.codes)
        never_compile_own_functions()
    except Exception as error:  # noqa: BLE001  (this runs inside the program's own import of torch)
        log_exception("hooking into Dynamo")
        agent.print(f"dynamo-dap: cannot debug this torch: {type(error).__name__}: {error}\n", "important")
