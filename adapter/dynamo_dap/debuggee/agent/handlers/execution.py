"""Handles requests about the session, and requests that resume and stop threads.

Runs on the agent's reader thread. Requests for a held trace's history run on the held thread.
"""

from __future__ import annotations

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.engine import RequestError
from dynamo_dap.debuggee.agent.handlers.frames_and_values import changed_trace
from dynamo_dap.debuggee.agent.pause import Pause
from dynamo_dap.debuggee.agent.requests import AfterResponse, AnsweredLater, NoArguments, handles, handles_while_held
from dynamo_dap.debuggee.agent.stepping import History, Jump, Step, StepKind
from dynamo_dap.protocol.requests.contract import (
    GO_TO,
    RUN_BACK,
    TERMINAL,
    TIMELINE,
    VS_CODE,
    WITHDRAW_PAUSE,
    ErrorId,
    GoToSnapshotArguments,
    RunBackArguments,
    TimelineArguments,
    TimelineBody,
)
from dynamo_dap.protocol.requests.options import AgentOptions
from dynamo_dap.protocol.wire.types import (
    CancelArguments,
    ContinueArguments,
    ContinuedEventBody,
    ContinueResponseBody,
    DisconnectArguments,
    GotoArguments,
    GotoTarget,
    GotoTargetsArguments,
    GotoTargetsResponseBody,
    InitializeRequestArguments,
    NextArguments,
    PauseArguments,
    RestartFrameArguments,
    ReverseContinueArguments,
    StepBackArguments,
    StepInArguments,
    StepOutArguments,
    TerminateArguments,
    ThreadsResponseBody,
)


@handles("initialize", InitializeRequestArguments)
def initialize(agent: Agent, arguments: InitializeRequestArguments) -> None:
    """Note facts about the client. The answer is empty: the server knows the agent's capabilities."""
    agent.is_for_vs_code = arguments.client_id == VS_CODE
    agent.shows_missed = arguments.client_id in (VS_CODE, TERMINAL)
    agent.shows_progress = bool(arguments.supports_progress_reporting)


@handles("attach", AgentOptions)
def attach(agent: Agent, options: AgentOptions) -> AfterResponse:
    """Apply the session's options, then send ``initialized``."""
    agent.options = options
    agent.breakpoints.bind_again(options)
    agent.compiling_settings.begin(options)
    # Engines that were added earlier have hooks for the options of the previous session.
    agent.update_hooks()
    return AfterResponse(lambda: _begin(agent, options))


def _begin(agent: Agent, options: AgentOptions) -> None:
    if options.eager_address is not None or options.eager_adopts:
        agent.process.start_eager(options)
    agent.process.invite_children(options)
    agent.process.interpret_kernels(options)
    agent.send_event("initialized")


@handles("configurationDone", NoArguments)
def configuration_done(agent: Agent, arguments: NoArguments) -> AfterResponse:
    """Let the program run: its breakpoints are set."""
    return AfterResponse(agent.configured.set)


@handles("disconnect", DisconnectArguments)
def disconnect(agent: Agent, arguments: DisconnectArguments) -> AfterResponse:
    """Resume every thread and detach the client; end the program only if the client asks for that."""
    return AfterResponse(agent.process.terminate if arguments.terminate_debuggee else agent.detach_client)


@handles("terminate", TerminateArguments)
def terminate(agent: Agent, arguments: TerminateArguments) -> AfterResponse:
    """Resume every thread, then end the program."""
    return AfterResponse(agent.process.terminate)


@handles("cancel", CancelArguments)
def cancel(agent: Agent, arguments: CancelArguments) -> None:
    """Cancel a request to a held thread, whether it has begun or waits."""
    if arguments.request_id is not None:
        for pause in agent.threads.pauses():
            pause.cancel(arguments.request_id)


_GRANULARITIES = ("statement", "line", "instruction")


@handles("threads", NoArguments)
def threads(agent: Agent, arguments: NoArguments) -> ThreadsResponseBody:
    """Return the program's threads."""
    return ThreadsResponseBody(agent.threads.alive())


@handles("continue", ContinueArguments)
def continue_(agent: Agent, arguments: ContinueArguments) -> AfterResponse:
    """Resume one thread. Threads stop and continue one by one."""
    pause = agent.threads.pause_of(arguments.thread_id)
    return _resume(pause, None, ContinueResponseBody(all_threads_continued=False))


@handles("next", NextArguments)
def next_(agent: Agent, arguments: NextArguments) -> AfterResponse:
    """Step over the next statement, line or instruction."""
    return _step(agent, arguments.thread_id, StepKind.OVER, arguments.granularity)


@handles("stepIn", StepInArguments)
def step_in(agent: Agent, arguments: StepInArguments) -> AfterResponse:
    """Step into a call."""
    return _step(agent, arguments.thread_id, StepKind.IN, arguments.granularity)


@handles("stepOut", StepOutArguments)
def step_out(agent: Agent, arguments: StepOutArguments) -> AfterResponse:
    """Step out of the present function."""
    return _step(agent, arguments.thread_id, StepKind.OUT, arguments.granularity)


@handles("stepBack", StepBackArguments)
def step_back(agent: Agent, arguments: StepBackArguments) -> AfterResponse:
    """Go back in a trace by one step, over called functions."""
    return _step(agent, arguments.thread_id, StepKind.BACK, arguments.granularity)


@handles("reverseContinue", ReverseContinueArguments)
def reverse_continue(agent: Agent, arguments: ReverseContinueArguments) -> AfterResponse:
    """Go back in a trace to the previous breakpoint."""
    return _step(agent, arguments.thread_id, StepKind.BACK_TO_BREAKPOINT, None)


def _pause_of_thread(agent: Agent, arguments: TimelineArguments | GoToSnapshotArguments | GotoArguments) -> Pause:
    return agent.threads.pause_of(arguments.thread_id)


def _pause_of_frame(agent: Agent, arguments: RestartFrameArguments | RunBackArguments) -> Pause:
    return agent.references.frame(arguments.frame_id)[1]


@handles_while_held("restartFrame", RestartFrameArguments, _pause_of_frame)
def restart_frame(agent: Agent, pause: Pause, arguments: RestartFrameArguments) -> None:
    """Go back in a trace to the beginning of a function."""
    frame, _ = agent.references.frame(arguments.frame_id)
    _history_of(pause)
    depth = next(at for at, each in enumerate(pause.frames) if each is frame)
    _travel(agent, pause, StepKind.RESTART_FRAME, depth)


@handles_while_held(TIMELINE, TimelineArguments, _pause_of_thread, is_bounded=False)
def timeline(agent: Agent, pause: Pause, arguments: TimelineArguments) -> TimelineBody:
    """Return the statements that a held trace has visited."""
    return _history_of(pause).timeline(arguments.start, arguments.count)


@handles_while_held(GO_TO, GoToSnapshotArguments, _pause_of_thread)
def go_to_snapshot(agent: Agent, pause: Pause, arguments: GoToSnapshotArguments) -> None:
    """Go to a snapshot of a held trace."""
    _history_of(pause)
    _travel(agent, pause, StepKind.TO_SNAPSHOT, arguments.snapshot)


@handles_while_held(RUN_BACK, RunBackArguments, _pause_of_frame)
def run_back(agent: Agent, pause: Pause, arguments: RunBackArguments) -> None:
    """Go back to the origin of a value."""
    frame, _ = agent.references.frame(arguments.frame_id)
    depth = next(at for at, each in enumerate(pause.frames) if each is frame)
    snapshot = _history_of(pause).origin(depth, arguments.name, arguments.to)
    _travel(agent, pause, StepKind.TO_SNAPSHOT, snapshot)


def _travel(agent: Agent, pause: Pause, kind: StepKind, target: int) -> None:
    # VS Code assumes that a step resumes the thread, but not that these requests do. Without this event, it would keep
    # showing the previous stop.
    agent.send_event("continued", ContinuedEventBody(thread_id=pause.thread_id, all_threads_continued=False))
    pause.release(_new_step(pause, kind, "statement", target))


def _pause_to_jump_in(agent: Agent, arguments: GotoTargetsArguments) -> Pause | None:
    """Return the newest pause: the request names no thread."""
    return next(iter(reversed(agent.threads.pauses())), None)


@handles_while_held("gotoTargets", GotoTargetsArguments, _pause_to_jump_in)
def goto_targets(agent: Agent, pause: Pause | None, arguments: GotoTargetsArguments) -> GotoTargetsResponseBody:
    """Return the requested line as a target, if the held trace can jump there."""
    frame = pause.frames[0] if pause is not None and pause.frames else None
    jump = None if frame is None else frame.jump_to(arguments.source.path or "", arguments.line)
    if jump is None:
        return GotoTargetsResponseBody([])
    target = GotoTarget(agent.references.number_of(jump, pause), f"line {jump.line}", jump.line)
    return GotoTargetsResponseBody([target])


@handles_while_held("goto", GotoArguments, _pause_of_thread)
def goto(agent: Agent, pause: Pause, arguments: GotoArguments) -> AnsweredLater:
    """Jump to another line, in a separate trace."""
    found = agent.references.find(arguments.target_id, "target")
    if not isinstance(found.target, Jump) or found.pause is not pause:
        raise RequestError(f"{arguments.target_id} is not a target in this thread", error_id=ErrorId.UNKNOWN_REFERENCE)
    return changed_trace(agent, pause, found.target, lambda value: None)


@handles("pause", PauseArguments)
def pause_threads(agent: Agent, arguments: PauseArguments) -> None:
    """Ask a thread to pause as soon as it can; 0 means every thread."""
    agent.request_pause(arguments.thread_id)


@handles(WITHDRAW_PAUSE, NoArguments)
def withdraw_pause(agent: Agent, arguments: NoArguments) -> None:
    """Withdraw the pause requests that no thread has answered yet."""
    agent.steps.withdraw_pauses()
    agent.eager_debugger.withdraw_pauses()


def _step(agent: Agent, thread_id: int, kind: StepKind, granularity: str | None) -> AfterResponse:
    if granularity is not None and granularity not in _GRANULARITIES:
        raise RequestError(f"unknown stepping granularity '{granularity}'", error_id=ErrorId.UNKNOWN_GRANULARITY)
    held = agent.threads.pause_of(thread_id)
    if kind.goes_back:
        _history_of(held)
    step = _new_step(held, kind, granularity or "statement")
    return _resume(held, step)


def _resume(held: Pause, step: Step | None, body: object = None) -> AfterResponse:
    """Resume a thread once the response is sent. From now on it can be asked to pause again."""
    held.is_leaving = True
    return AfterResponse(lambda: held.release(step), body)


def _new_step(held: Pause, kind: StepKind, granularity: str, target: int = 0) -> Step:
    return Step(kind, granularity, held.stop.engine, held.stop.origin, target)


def _history_of(held: Pause) -> History:
    history = held.stop.history
    if history is None:
        raise RequestError(
            held.stop.no_history,
            error_id=ErrorId.NO_PAST,
            message="noPast",
        )
    return history
