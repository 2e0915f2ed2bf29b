"""Runs the user's program in a process that a server started, or in a child of it: under the agent, or only recorded.

Runs on the main thread of the debugged process. The agent connects back to the server, authenticates with its token,
and waits until the client has set its breakpoints.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
import time
from pathlib import Path

import msgspec

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.binding import add_program_file
from dynamo_dap.debuggee.agent.log import log_exception, log_problem, start_log
from dynamo_dap.debuggee.agent.own_rank import be_spawned_as, own_rank
from dynamo_dap.debuggee.agent.serving import AgentReceiver
from dynamo_dap.debuggee.eager.debugpy_debugger import DebugpyDebugger
from dynamo_dap.debuggee.launch.children.child_processes import offer_session
from dynamo_dap.debuggee.launch.children.listening import process_information
from dynamo_dap.debuggee.launch.children.recorded_run import begin_run, join_run, own_path, run_in_argument
from dynamo_dap.debuggee.launch.runs.bisecting import run_bisected
from dynamo_dap.debuggee.launch.runs.minifying import run_minifying
from dynamo_dap.debuggee.launch.runs.profiling import begin_profile
from dynamo_dap.debuggee.launch.runs.program import Program, run
from dynamo_dap.debuggee.launch.runs.trial import Results, try_settings, use_copies
from dynamo_dap.debuggee.launch.starting.connecting import connect_from_environment
from dynamo_dap.debuggee.launch.starting.eager import start_eager
from dynamo_dap.debuggee.launch.starting.process_agent import process_agent
from dynamo_dap.debuggee.launch.starting.stops import pass_breakpoint_calls, stop_on_entry
from dynamo_dap.debuggee.saved_calls.saving_run import begin_recording_call
from dynamo_dap.debuggee.torch_api.import_hooks import (
    is_dynamo_imported,
    when_dynamo_is_imported,
    while_torch_is_imported,
)
from dynamo_dap.explore.file import SUFFIX as STAGES_SUFFIX
from dynamo_dap.profile.files import BEGUN
from dynamo_dap.protocol.connection import Connection
from dynamo_dap.protocol.requests.contract import (
    AUTHORIZE,
    ENDING_EVENT,
    IMPORTING_EVENT,
    LAUNCH_VARIABLE,
    ImportingEventBody,
    LaunchDescription,
    introduction,
)
from dynamo_dap.protocol.requests.forecasts import ForecastRun
from dynamo_dap.protocol.requests.hashed_calls import SUFFIX as HASHED_SUFFIX
from dynamo_dap.protocol.requests.ranks import read_invitation_text
from dynamo_dap.protocol.wire.local_sockets import connect_locally
from dynamo_dap.protocol.wire.streams import SocketStream

_CONNECT_SECONDS = 20.0


def launch() -> None:
    """Connect to the server, wait for its configuration, and run the program."""
    description = msgspec.json.decode(os.environ.pop(LAUNCH_VARIABLE), type=LaunchDescription)
    _hide_from_children(description)
    program = Program(description.program, description.module, description.code, description.args)
    if program.program is not None:
        add_program_file(os.path.abspath(program.program))
    _begin_trial(description)
    if description.bisection is not None:
        run_bisected(program, description.bisection)
        return
    if description.minifying is not None:
        run_minifying(program, description.minifying)
        return
    if description.recording is not None:
        begin_recording_call(description.recording)
        run(program, before=lambda filename: None)
        return
    if description.connects:
        _run_as_child(program, is_debugged=connect_from_environment())
        return
    if description.address is None:
        if description.profile is not None:
            begin_profile(description.profile, description.began)
        if description.with_children:
            begin_run(description)
        _record_only(description)
        _run_alone(program, description)
        return
    agent = process_agent()
    agent.breakpoints.precedes_program = True
    _connect(agent, description, description.address)
    while_torch_is_imported(lambda name, is_done: agent.send_event(IMPORTING_EVENT, ImportingEventBody(name, is_done)))
    atexit.register(_detach_client, agent)
    if description.profile is not None:
        begin_profile(description.profile, description.began, agent.running_clock, agent.print)
    if description.debugpy_address is None:
        agent.configured.wait()
        run(program, before=lambda filename: _before(agent, filename))
        return
    _run_with_debugpy(agent, program, description, description.debugpy_address)


def _begin_trial(description: LaunchDescription) -> None:
    if description.copies:
        use_copies(description.copies)
    if description.settings or description.added:
        when_dynamo_is_imported(functools.partial(try_settings, description.settings, description.added))


def _run_alone(program: Program, description: LaunchDescription) -> None:
    noted = None
    if description.results is not None:
        noted = Results()
        noted.begin()
    try:
        run(program, before=lambda filename: None)
    finally:
        # At any end of the program, since sys.exit() is an ordinary end.
        if noted is not None and description.results is not None:
            noted.write(description.results)
        if description.forecast is not None and is_dynamo_imported():
            _write_forecast(description.forecast)


def _record_only(description: LaunchDescription) -> None:
    """Record from the import of Dynamo on, or compare calls of compiled functions, or explore stages."""
    start_log()
    if description.explore is not None:
        when_dynamo_is_imported(functools.partial(_begin_exploring, description.explore))
    elif description.comparisons is not None:
        when_dynamo_is_imported(functools.partial(_begin_comparing, description.comparisons, description.compare_every))
    elif description.entries is not None:
        when_dynamo_is_imported(functools.partial(_begin_entries, description.entries, description.function))
    elif description.forecast is not None:
        when_dynamo_is_imported(functools.partial(_begin_forecast, description.forecast))
    else:
        when_dynamo_is_imported(functools.partial(_begin_recording, description))
        if description.hashed_calls is not None:
            when_dynamo_is_imported(functools.partial(_begin_hashing, description.hashed_calls))


def _begin_exploring(path: str) -> None:
    # Imported only now: see below.
    try:
        from dynamo_dap.debuggee.launch.runs.recording import make_explorer

        make_explorer(
            lambda: None, lambda: True, _print_problem, lambda: Path(own_path(path, STAGES_SUFFIX))
        ).update_hooks()
    except Exception as error:  # noqa: BLE001  (the program runs also without our feature)
        log_exception("beginning to explore")
        _print_problem(f"dynamo-dap: cannot explore with this torch: {type(error).__name__}: {error}\n")


def _begin_comparing(path: str, every: int) -> None:
    # Imported only now: see below.
    try:
        from dynamo_dap.debuggee.numerics.comparing.comparing_run import ComparingRun

        ComparingRun(path, every, _print_problem).begin()
    except Exception as error:  # noqa: BLE001  (the program runs also without our feature)
        log_exception("beginning to compare")
        _print_problem(f"dynamo-dap: cannot compare with this torch: {type(error).__name__}: {error}\n")


def _begin_hashing(path: str) -> None:
    # Imported only now: see below.
    try:
        from dynamo_dap.debuggee.numerics.comparing.hashing_run import HashingRun

        HashingRun(functools.partial(_hashed_calls_of_process, path)).begin()
    except Exception as error:  # noqa: BLE001  (the program runs also without our feature)
        log_exception("beginning to hash values")
        _print_problem(f"dynamo-dap: cannot hash values with this torch: {type(error).__name__}: {error}\n")


def _hashed_calls_of_process(path: str) -> Path:
    """Return this process's file. A rank's file has the same name in each run."""
    rank = own_rank()
    if rank is not None:
        return Path(f"{path.removesuffix(HASHED_SUFFIX)}.rank-{rank.number}{HASHED_SUFFIX}")
    return Path(own_path(path, HASHED_SUFFIX))


def _begin_recording(description: LaunchDescription) -> None:
    # Imported only now: a program without Dynamo pays nothing.
    try:
        from dynamo_dap.debuggee.launch.runs.recording import record_process

        record_process(_print_problem, with_cache_keys=description.cache_keys, with_settings=description.torch_settings)
    except Exception as error:  # noqa: BLE001  (this runs inside the program's own import of torch)
        log_exception("beginning the record")
        _print_problem(f"dynamo-dap: cannot record this torch: {type(error).__name__}: {error}\n")


def _begin_entries(path: str, function: str | None) -> None:
    # Imported only now: see above.
    try:
        from dynamo_dap.debuggee.launch.runs.cache_report import write_entries_at_end

        write_entries_at_end(path, function)
    except Exception as error:  # noqa: BLE001  (the program runs also without our feature)
        log_exception("beginning to note cache entries")
        _print_problem(f"dynamo-dap: cannot read the cache of this torch: {type(error).__name__}: {error}\n")


def _begin_forecast(asked: ForecastRun) -> None:
    # Imported only now: see above.
    try:
        from dynamo_dap.debuggee.launch.forecasts.forecaster import begin_forecast

        begin_forecast(asked)
    except Exception as error:  # noqa: BLE001  (the program runs also without our feature)
        log_exception("beginning to forecast")
        _print_problem(f"dynamo-dap: cannot forecast with this torch: {type(error).__name__}: {error}\n")


def _write_forecast(asked: ForecastRun) -> None:
    try:
        from dynamo_dap.debuggee.launch.forecasts.forecaster import write_forecast

        write_forecast(asked)
    except Exception as error:  # noqa: BLE001  (the program ends as it does without our feature)
        log_exception("forecasting")
        _print_problem(f"dynamo-dap: cannot forecast with this torch: {type(error).__name__}: {error}\n")


def _print_problem(text: str) -> None:
    sys.stderr.write(text)


def _hide_from_children(description: LaunchDescription) -> None:
    """Hide the server's settings for this interpreter from the program's child processes."""
    for name in description.own_variables:
        os.environ.pop(name, None)
    if description.is_thawed:
        sys._xoptions.pop("frozen_modules", None)


def _detach_client(agent: Agent) -> None:
    """Detach the client before the program ends, which can take a while."""
    send_ending = functools.partial(agent.send_event, ENDING_EVENT)
    steps = (agent.compiling_settings.report_unused, agent.report_missed_breakpoints, send_ending, agent.detach_client)
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001  (the program may have replaced what the step uses)
            # To the log: stderr belongs to the program.
            with contextlib.suppress(Exception):
                log_problem(f"a part of the end of the program was not reported: {error}")


def _before(agent: Agent, filename: str) -> None:
    if agent.options.stop_on_entry:
        stop_on_entry(agent, filename)


def _run_with_debugpy(agent: Agent, program: Program, description: LaunchDescription, address: str) -> None:
    debugger = start_eager(agent, address, description.debugpy_token)
    if debugger is None:
        agent.configured.wait()
        agent.breakpoints.precedes_program = False
        run(program, before=lambda filename: _before(agent, filename))
        return
    debugger.pause_until_program_runs()
    agent.configured.wait()
    debugger.wait_until_configured()
    agent.breakpoints.precedes_program = False
    while_torch_is_imported(debugger.torch_is_imported)
    run(program, before=lambda filename: debugger.trace_program(), on_end=_report_uncaught)


def _report_uncaught(error: BaseException) -> None:
    # A forked process has a debugger of its own by now.
    process_agent().eager_debugger.report_uncaught(error)


def _connect(agent: Agent, description: LaunchDescription, address: str) -> None:
    host, _, port = address.rpartition(":")
    stream = SocketStream(connect_locally(host, int(port), _CONNECT_SECONDS))
    connection = Connection(stream, "server")
    agent.attach_client(connection)
    connection.start(_LaunchedReceiver(connection, agent))
    arguments = introduction(description.token, process_information())
    connection.request(AUTHORIZE, arguments, timeout=_CONNECT_SECONDS)


class _LaunchedReceiver(AgentReceiver):
    """Receives for a launched program, which ends with its server. Runs on the reader thread."""

    def on_closed(self, problem: str | None) -> None:
        """End the program, unless the server detached from it."""
        if self._agent.client is None:
            # Detached on purpose: the program runs on, or is ending.
            self._agent.configured.set()
            return
        if self._connection.is_closed_by_program:
            # The program has closed all descriptors. The server reports that.
            self._agent.detach_client()
            return
        if not self._agent.configured.is_set() and threading.main_thread().is_alive():
            with contextlib.suppress(OSError):  # stderr may have been a pipe to the server
                sys.stderr.write("dynamo-dap: the debug server ended before the program could start\n")
            os._exit(1)
        self._agent.process.terminate()


def join(invitation: str) -> bool:
    """Request a session for this process, or record it in its run; return whether it may be debugged."""
    recorded = run_in_argument(invitation)
    if recorded is None:
        file, rank = read_invitation_text(invitation)
        be_spawned_as(rank)
        if offer_session(process_agent, file):
            return True
        pass_breakpoint_calls()
        return False
    join_run(recorded)
    if recorded.profile is not None:
        stem = own_path(recorded.profile)
        begin_profile(stem, time.time(), is_child=True)
        # Processes without torch have nothing to report.
        when_dynamo_is_imported(Path(stem + BEGUN).touch)
    _record_only(
        LaunchDescription(
            explore=recorded.explore,
            comparisons=recorded.comparisons,
            compare_every=recorded.compare_every,
            hashed_calls=recorded.hashed_calls,
            cache_keys=recorded.cache_keys,
            torch_settings=recorded.torch_settings,
        )
    )
    return False


def run_child(arguments: list[str]) -> None:
    """Run the program of a child process. ``arguments`` are the invitation, then Python's own arguments."""
    invitation, kind, *rest = arguments
    target, rest = (rest[0], rest[1:]) if kind in ("-c", "-m") else (kind, rest)
    if kind not in ("-c", "-m"):
        add_program_file(os.path.abspath(target))
    is_debugged = join(invitation)
    program = Program(
        program=None if kind in ("-c", "-m") else target,
        module=target if kind == "-m" else None,
        code=target if kind == "-c" else None,
        args=rest,
    )
    _run_as_child(program, is_debugged=is_debugged)


def _run_as_child(program: Program, *, is_debugged: bool) -> None:
    """Run the program of a child process, which has requested a session."""
    if is_debugged:
        debugger = process_agent().eager_debugger
        if isinstance(debugger, DebugpyDebugger):
            while_torch_is_imported(debugger.torch_is_imported)
        run(program, before=lambda filename: None, on_end=_report_uncaught)
    else:
        run(program, before=lambda filename: None)
