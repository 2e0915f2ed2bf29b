"""Offers the terminal's debugger as tools. Each tool returns what the debugger prints.

Tools run on the event loop of the MCP server, the debugger on one worker thread at a time. The DAP server is a separate
process. A session lives until it is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from io import StringIO
from typing import Annotated, Any, Literal

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, ToolAnnotations
from pydantic import BaseModel, Field

from dynamo_dap.assistants.answers import answer, console, last_of
from dynamo_dap.assistants.editor import NotShown, connected_editor, editor_address
from dynamo_dap.assistants.questions import READS, RUNS, WAIT, Arguments, File, Folder, Input, Module, Seconds
from dynamo_dap.assistants.runs import Runs
from dynamo_dap.assistants.shared_session import SharedSession
from dynamo_dap.assistants.workspace import Roots, Workspace
from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.requests.contract import BREAKPOINT_MODES, EXCEPTION_FILTERS
from dynamo_dap.protocol.wire.types import StoppedEventBody
from dynamo_dap.terminal.breakpoints import BreakpointRequest, Quit, UsageError
from dynamo_dap.terminal.client import Server, ServerProcess
from dynamo_dap.terminal.commands import execute
from dynamo_dap.terminal.debugger import Debugger, State, StillRunning
from dynamo_dap.terminal.screen import Screen

_MOST_PRINTED = 4000
"""The most characters of the program's output in an answer."""
_HINT = "ask for less: a deeper path, another page of a value, x[0, 5:9] of a tensor"


class Stop(BaseModel):
    """The place to stop at."""

    file: str | None = Field(None, description="The file of a line breakpoint.")
    line: int | None = Field(None, ge=1, description="Its line, counted from 1.")
    function: str | None = Field(None, description="Instead of a line: stop where a function of this name begins.")
    mode: str | None = Field(
        None,
        description=f"When to stop: {', '.join(BREAKPOINT_MODES)}. Without a mode: wherever the line is next executed, "
        "in a trace, a replayed call, or ordinary Python.",
    )
    condition: str | None = Field(None, description="Stop only where this Python expression is true.")
    hit: str | None = Field(None, description="Stop only at these hits: `3`, `>= 3`, `% 2`.")
    log: str | None = Field(None, description="Do not stop, but log this text, with values in braces.")


Filters = Annotated[
    tuple[str, ...],
    Field(description=f"Stop at these events: {', '.join(EXCEPTION_FILTERS)}, raised, uncaught."),
]
Direction = Literal["continue", "over", "in", "out", "back", "reverse", "over-instruction", "in-instruction"]
_COMMANDS: dict[str, tuple[str, str | None]] = {
    "continue": ("continue", None),
    "over": ("next", None),
    "in": ("stepIn", None),
    "out": ("stepOut", None),
    "back": ("stepBack", None),
    "reverse": ("reverseContinue", None),
    "over-instruction": ("next", "instruction"),
    "in-instruction": ("stepIn", "instruction"),
}
_CONTROLS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)
_NOT_FOR_ASSISTANTS = ("quit", "q", "exit", "restart", "run")


class Debugging:
    """The debug session of one client, and the tools for it."""

    def __init__(self, workspace: Workspace, runs: Runs) -> None:
        self._workspace = workspace
        self._runs = runs
        self._debugger: Debugger | None = None
        self._printed = StringIO()
        self._inputs = contextlib.ExitStack()
        """Holds the programs' input files until the client is gone."""
        self._turn = asyncio.Lock()
        self._reported: StoppedEventBody | None = None
        """The stop that was reported to the assistant."""

    def register(self, server: MCPServer) -> None:
        """Offer the tools."""
        for tool, kind in (
            (self.debug_launch, RUNS),
            (self.debug_attach, RUNS),
            (self.debug_breakpoint, _CONTROLS),
            (self.debug_go, RUNS),
            (self.debug_pause, _CONTROLS),
            (self.debug_where, READS),
            (self.debug_variables, READS),
            (self.debug_evaluate, RUNS),
            (self.debug_command, RUNS),
            (self.wait, _CONTROLS),
            (self.end, RUNS),
        ):
            server.add_tool(tool, annotations=kind)

    # -- a session ---------------------------------------------------------------------------------------------------

    async def debug_launch(
        self,
        roots: Roots,
        program: File = None,
        module: Module = None,
        arguments: Arguments = (),
        folder: Folder = None,
        breakpoints: Annotated[tuple[Stop, ...], Field(description="Where to stop.")] = (),
        stop_at: Filters = (),
        stop_on_entry: Annotated[bool, Field(description="Stop at the first line.")] = False,
        all_code: Annotated[bool, Field(description="Stop in installed packages, too, and show their frames.")] = False,
        standard_input: Input = None,
        seconds: Seconds = WAIT,
    ) -> CallToolResult:
        """Debug a program that uses torch.compile: run it to the first stop, and report where and why it stopped.

        It can stop at lines of compiled functions while Dynamo traces them, in cached calls, and in generated code.
        """
        self._workspace.take(roots)
        given = self._workspace.program(program, module, arguments, folder)
        configuration: dict[str, object] = {
            "args": list(given.arguments),
            "cwd": str(given.folder),
            "console": "internalConsole",
            "python": [self._workspace.python],
            "justMyCode": not all_code,
            "stopOnEntry": stop_on_entry,
        }
        if standard_input is not None:
            configuration["inputFile"] = self._inputs.enter_context(_file_of(standard_input))
        configuration |= {"program": str(given.file)} if given.module is None else {"module": given.module}
        name = given.file.name if given.module is None else given.module
        return await self._begin("launch", name, configuration, breakpoints, stop_at, seconds)

    async def debug_attach(
        self,
        roots: Roots,
        port: Annotated[int, Field(gt=0, lt=65536, description="The port of the program's dynamo_dap.listen().")],
        access_token: Annotated[
            str | None, Field(description="The token of dynamo_dap.listen(), if it has one.")
        ] = None,
        breakpoints: Annotated[tuple[Stop, ...], Field(description="Where to stop.")] = (),
        stop_at: Filters = (),
        seconds: Seconds = WAIT,
    ) -> CallToolResult:
        """Attach to a program of this machine that called dynamo_dap.listen(), and wait for the first stop."""
        self._workspace.take(roots)
        token = {} if access_token is None else {"accessToken": access_token}
        configuration = {"connect": {"host": "127.0.0.1", "port": port, **token}}
        return await self._begin("attach", f"port {port}", configuration, breakpoints, stop_at, seconds)

    async def _begin(
        self,
        request: str,
        name: str,
        configuration: dict[str, Any],
        breakpoints: tuple[Stop, ...],
        stop_at: tuple[str, ...],
        seconds: float,
    ) -> CallToolResult:
        if self._debugger is not None and self._debugger.state is not State.ENDED:
            raise ToolError("a program is being debugged already: end it first, with the tool end")
        places = [self._place(stop) for stop in breakpoints]
        text, self._printed = console()
        screen = Screen(text, marks_program=True)
        server = partial(_server, screen, request, name)
        debugger = self._debugger = Debugger(screen, request, configuration, start_server=server)
        self._reported = None

        def begin() -> None:
            for place in places:
                debugger.breakpoints.add(place)
            debugger.begin()
            if stop_at:
                execute(debugger, f"catch {' '.join(stop_at)}")
            if places:
                debugger.screen.breakpoints(debugger.breakpoints.all)
            debugger.resume("continue")

        return await self._do(begin, seconds, keeps_end=True)

    # -- breakpoints and continuing ------------------------------------------------------------------------------------

    async def debug_breakpoint(
        self,
        roots: Roots,
        stop: Annotated[Stop | None, Field(description="A breakpoint to set.")] = None,
        remove: Annotated[int | None, Field(description="The number of a breakpoint to remove.")] = None,
        stop_at: Annotated[list[str] | None, Field(description="Replace the events to stop at by these.")] = None,
    ) -> CallToolResult:
        """Set or remove a breakpoint, or choose the events to stop at; lists all breakpoints with their state."""
        self._workspace.take(roots)
        debugger = self._session()
        place = None if stop is None else self._place(stop)

        def change() -> None:
            if place is not None:
                debugger.breakpoints.send_for(debugger.client, debugger.breakpoints.add(place).place)
            if remove is not None:
                execute(debugger, f"delete {remove}")
            if stop_at is not None:
                debugger.filters.names = stop_at
                debugger.filters.send(debugger.client)
            debugger.screen.breakpoints(debugger.breakpoints.all)

        return await self._do(change, WAIT)

    async def debug_go(
        self,
        how: Annotated[
            Direction,
            Field(
                description="continue: to the next stop; over, in, out: steps; back, reverse: to the line or the "
                "breakpoint before, in a trace; over-instruction, in-instruction: by bytecode."
            ),
        ] = "continue",
        seconds: Seconds = WAIT,
    ) -> CallToolResult:
        """Let the stopped program continue, by a step or to the next stop, and report where it stopped."""
        debugger = self._session()
        command, granularity = _COMMANDS[how]
        return await self._do(lambda: debugger.resume(command, granularity), seconds, keeps_end=True)

    async def debug_pause(self, seconds: Seconds = WAIT) -> CallToolResult:
        """Stop the running program where it is."""
        debugger = self._session()
        if self._turn.locked():
            await asyncio.to_thread(debugger.pause)
            return answer("The program was asked to stop; the call that waits for it reports where it stops.")

        def pause() -> None:
            if debugger.state is State.RUNNING:
                debugger.pause()
                debugger.wait()

        return await self._do(pause, seconds, keeps_end=True)

    # -- reading -----------------------------------------------------------------------------------------------------

    async def debug_where(self) -> CallToolResult:
        """Report where the program is stopped and why, with the source around it and the call stack."""
        debugger = self._session()

        def show() -> None:
            debugger.stopped_thread()
            debugger.show_stop()
            execute(debugger, "where")

        return await self._do(show, WAIT)

    async def debug_variables(
        self,
        path: Annotated[
            str,
            Field(
                description="A scope (locals, value_stack, globals, graph, guards, side_effects, compile), a variable "
                "or an expression, and names of children with / between: locals, self/config, guards."
            ),
        ] = "locals",
        depth: Annotated[int, Field(ge=1, le=6, description="How many levels to show.")] = 1,
        frame: Annotated[int, Field(ge=0, description="The frame, counted from the innermost: 0.")] = 0,
    ) -> CallToolResult:
        """Show variables of a frame, to a depth. Looking adds no guard and no node, and changes no value."""
        debugger = self._session()
        return await self._do(lambda: _in_frame(debugger, frame, f"expand {path} {depth}"), WAIT)

    async def debug_evaluate(
        self,
        expression: Annotated[str, Field(description="Python, in the frame; `! STATEMENT` runs a statement.")],
        frame: Annotated[int, Field(ge=0, description="The frame, counted from the innermost: 0.")] = 0,
        seconds: Seconds = WAIT,
    ) -> CallToolResult:
        """Evaluate an expression at the stop. In a trace it may use the call's real values: `float(x.sum())`."""
        debugger = self._session()
        return await self._do(lambda: _in_frame(debugger, frame, f"print {expression}"), seconds)

    async def debug_command(
        self,
        command: Annotated[
            str,
            Field(
                description="One command of `dynamo-dap debug`: help lists them; for instance show x (a tensor), "
                "timeline, origin x nan, graph, guards, compare, entries, listing statements, assign n = 5, whatif."
            ),
        ],
        seconds: Seconds = WAIT,
    ) -> CallToolResult:
        """Run any other command of the terminal's debugger."""
        if command.split(maxsplit=1)[:1] and command.split(maxsplit=1)[0] in _NOT_FOR_ASSISTANTS:
            raise ToolError("use the tools end and debug_launch")
        debugger = self._session()
        return await self._do(lambda: execute(debugger, command), seconds)

    # -- waiting and ending ------------------------------------------------------------------------------------------

    async def wait(
        self,
        run: Annotated[int | None, Field(description="The run to wait for; without it: the debugged program.")] = None,
        seconds: Seconds = WAIT,
    ) -> CallToolResult:
        """Wait further for a run that was reported as running, or for the next stop of the debugged program."""
        if run is not None:
            return await self._runs.wait(run, seconds)
        debugger = self._session()
        return await self._do(
            lambda: debugger.wait() if debugger.state is State.RUNNING else None, seconds, keeps_end=True
        )

    async def end(
        self,
        run: Annotated[int | None, Field(description="The run to end; without it: the debugged program.")] = None,
    ) -> CallToolResult:
        """End a run or the debugged program; from a program that was attached to, only detach."""
        if run is not None:
            return answer(f"Ended: {await self._runs.end(run)}")
        debugger = self._session()
        debugger.cancel_wait()
        return await self._do(debugger.end, WAIT)

    async def close(self) -> None:
        """End the session: the client is gone."""
        self._inputs.close()
        if self._debugger is not None:
            self._debugger.cancel_wait()
            with anyio.CancelScope(shield=True):
                await asyncio.to_thread(self._debugger.end)

    # -- running actions -----------------------------------------------------------------------------------------------

    def _session(self) -> Debugger:
        if self._debugger is None or self._debugger.state is State.ENDED:
            ended = "" if self._debugger is None else ", the last program has ended"
            raise ToolError(f"nothing is being debugged{ended}: begin with debug_launch or debug_attach")
        return self._debugger

    def _place(self, stop: Stop) -> BreakpointRequest:
        if stop.function is not None:
            return BreakpointRequest(None, 0, stop.function, stop.condition, stop.hit, stop.log)
        if stop.file is None or stop.line is None:
            raise ToolError("a breakpoint needs a file and a line, or a function")
        if stop.mode is not None and stop.mode not in BREAKPOINT_MODES:
            raise ToolError(f"unknown mode {stop.mode!r}; known: {', '.join(BREAKPOINT_MODES)}")
        path = str(self._workspace.source(stop.file))
        return BreakpointRequest(path, stop.line, None, stop.condition, stop.hit, stop.log, stop.mode)

    async def _do(self, work: Callable[[], object], seconds: float, *, keeps_end: bool = False) -> CallToolResult:
        """Run an action of the debugger; return its output, with the program's output as data."""
        debugger = self._debugger
        assert debugger is not None
        async with self._turn:
            self._printed.seek(0)
            self._printed.truncate()
            debugger.patience = seconds
            thread = asyncio.ensure_future(asyncio.to_thread(self._run_action, debugger, work))
            try:
                problem = await asyncio.shield(thread)
            except asyncio.CancelledError:
                # The program continues to run, but the worker thread ends its wait at once.
                debugger.cancel_wait()
                with anyio.CancelScope(shield=True), contextlib.suppress(Exception):
                    await thread
                raise
            text, printed = self._printed.getvalue(), "".join(debugger.screen.printed)
            debugger.screen.printed.clear()
            if problem is not None:
                raise ToolError(f"{text}\n{problem}".strip())
            data = await asyncio.to_thread(_state, debugger)
            if printed:
                data["programPrinted"] = last_of(printed, _MOST_PRINTED)
            self._reported = _stop_of(debugger)
        if debugger.state is State.RUNNING:
            text += f"\nThe program is still running after {seconds:g} s. "
            text += "Call `wait` to wait longer or `debug_pause` to stop it."
        elif debugger.state is State.ENDED and not text.strip():
            text = "The session is over."
        return answer(text or "Done.", data, hint=_HINT, keeps_end=keeps_end)

    def _run_action(self, debugger: Debugger, work: Callable[[], object]) -> str | None:
        """Run the action on a worker thread; return the error, if any."""
        try:
            debugger.drain()
            if debugger.state is State.STOPPED and _stop_of(debugger) is not self._reported:
                # The program stopped after the last answer: the user stepped, or the answer came before the stop.
                debugger.show_stop()
            work()
        except (StillRunning, Quit):
            return None
        except (UsageError, RequestFailed, TimeoutError, OSError) as problem:
            return str(problem)
        return None


@contextlib.contextmanager
def _file_of(text: str) -> Iterator[str]:
    with tempfile.NamedTemporaryFile("w", prefix="dynamo-dap-", suffix=".input", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        yield file.name


def _server(screen: Screen, request: str, name: str) -> Server:
    """Start a server; share the session with an editor, if there is one."""
    address = editor_address()
    if address is not None:
        try:
            return SharedSession(connected_editor(address, request, f"{name} (assistant)"))
        except NotShown as problem:
            screen.note(f"the user does not see this session: {problem}")
    return ServerProcess()


def _stop_of(debugger: Debugger) -> StoppedEventBody | None:
    return None if debugger.thread_id is None else debugger.stops.get(debugger.thread_id)


def _in_frame(debugger: Debugger, number: int, command: str) -> None:
    debugger.stopped_thread()
    if debugger.selected != number:
        frames = debugger.frames()
        if number >= len(frames):
            raise UsageError(f"unknown frame {number}: the stack has {len(frames)}")
        debugger.selected = number
    execute(debugger, command)


def _state(debugger: Debugger) -> dict[str, object]:
    """Return the state as data, with the line if the program is stopped."""
    data: dict[str, object] = {"state": debugger.state.name.lower(), "exitCode": debugger.exit_code}
    if debugger.state is State.STOPPED and debugger.thread_id is not None:
        with contextlib.suppress(UsageError, RequestFailed, TimeoutError):
            frame = debugger.frame()
            stop = debugger.stops[debugger.thread_id]
            path = None if frame.source is None else frame.source.path or frame.source.name
            data |= {"reason": stop.reason, "text": stop.text or stop.description}
            data |= {"function": frame.name, "file": path, "line": frame.line}
    return data
