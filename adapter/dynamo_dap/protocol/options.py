"""The options of ``launch`` and ``attach``, each defined once: name, type, bounds, default, description for users.

The server decodes them and passes on what the agent needs; ``make generate`` writes the extension's schema and the
table in ``docs/options.md`` from them. An option without a description is internal: users do not write it. Structs; any
thread.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from msgspec import DecodeError, Meta, Raw, Struct, json

from dynamo_dap.protocol.contract import COMPILE_TIME, INSTRUCTIONS, RUN_TIME, STATEMENTS

Seconds = Annotated[float, Meta(gt=0)]
Port = Annotated[int, Meta(ge=1, le=65535)]

BOTH = "both"
MODES = {
    BOTH: "Stop while Dynamo traces and in the bytecode that it generates.",
    COMPILE_TIME: "Stop only while Dynamo traces a function: symbolic values, the graph and the guards so far.",
    RUN_TIME: "Stop only in the bytecode that Dynamo generated: real tensors and Python's value stack.",
}
LISTINGS = {
    STATEMENTS: "As Python: each group of instructions as the statement that it is.",
    INSTRUCTIONS: "As bytecode: each instruction, with what it is for.",
}
REPLAY = "replay"
AS_PYTHON = "eager"
GENERATED = "generated"
CACHED_CALLS = {
    REPLAY: "Trace the call once more, for looking only: its lines are stopped at with real values.",
    AS_PYTHON: "Run the function as ordinary Python, uncompiled, while it has breakpoints.",
    GENERATED: "Stop in the generated code alone: at breakpoints of mode run-time, and when stepping in.",
}
DEFAULT_STANCE, FAIL_ON_RECOMPILE, EAGER_ON_RECOMPILE, FORCE_EAGER = (
    "default",
    "fail_on_recompile",
    "eager_on_recompile",
    "force_eager",
)
STANCES = {
    DEFAULT_STANCE: "It is compiled.",
    FAIL_ON_RECOMPILE: "If its function was compiled before, it raises an exception.",
    EAGER_ON_RECOMPILE: "If its function was compiled before, it runs as Python.",
    FORCE_EAGER: "It runs as Python, as does what is compiled already.",
}
FRESH = "fresh"
INTERPRET = "interpret"
TRITON = {
    INTERPRET: "In Triton's interpreter, on the CPU and without a GPU: their lines are stepped as Python, slowly."
}
CACHES = {FRESH: "In a new folder, that is removed when the program ends: everything is compiled."}
ALONE, TOGETHER = "alone", "together"
STOP_RANKS = {
    ALONE: "One rank by itself.",
    TOGETHER: "All ranks that are debugged: when one stops the others pause, and continuing one continues all. A step "
    "of one is done by those that are held at the same line, too; the console says which rank parts from them.",
}
PREFIXED, OWN_CONSOLE, OWN_TERMINAL, PLAIN = "prefixed", "own", "terminal", "plain"
RANK_OUTPUT = {
    PREFIXED: "Together, each line with its rank: [rank 1].",
    OWN_CONSOLE: "In the debug console of each rank's own session; what ranks print that are not debugged, as above.",
    OWN_TERMINAL: "As with own, and in VS Code in a terminal for each rank, too.",
    PLAIN: "Together, as the ranks write it.",
}
CONSOLES = {
    "internalConsole": "Output goes to the Debug Console; the program has no input.",
    "integratedTerminal": "The program runs in a terminal in the editor.",
    "externalTerminal": "The program runs in a terminal window of its own.",
}


def _described(text: str, *, editor: object = None) -> Meta:
    """``editor`` is the default in VS Code, where that is another one."""
    return Meta(description=text, extra={} if editor is None else {"editor": editor})


def _one_of(text: str, choices: dict[str, str]) -> Meta:
    """``choices`` are the values and what each means."""
    return Meta(description=text, extra={"choices": choices})


class RealValues(Struct, rename="camel", frozen=True, kw_only=True):
    """What computing the real values of a trace may cost."""

    memory_limit: Annotated[
        float, Meta(gt=0, description="MiB of results held for one trace; beyond it values are computed one at a time.")
    ] = 4096.0
    time_limit: Annotated[
        float, Meta(gt=0, description="Seconds per request; what was computed is kept, and the next request continues.")
    ] = 10.0


class CompilingOptions(Struct, rename="camel", frozen=True, kw_only=True):
    """What torch is told, over what the program says; without one of these the program compiles as it does."""

    compile_only: Annotated[
        list[str],
        _described(
            "Compile only these functions, and what they call: names (fn, Model.forward) or files (model.py). The rest "
            "of what the program compiles runs as Python."
        ),
    ] = []
    stance: Annotated[str | None, _one_of("What becomes of a call that would be compiled.", STANCES)] = None
    backend: Annotated[
        str | None,
        _described(
            "Compile by this backend (eager, aot_eager, inductor), whichever the program names. What is compiled "
            "already stays."
        ),
    ] = None
    torch_logs: Annotated[
        str | None,
        _described(
            "Log what TORCH_LOGS would (recompiles,graph_breaks or +dynamo), in the console: each message with a link "
            "to the line that it is about."
        ),
    ] = None
    torch_config: Annotated[
        dict[str, bool | int | float | str | None],
        _described('Settings of torch, whatever the program sets them to: {"_dynamo.recompile_limit": 16}.'),
    ] = {}
    cache: Annotated[str | None, _one_of("Where compiled kernels and graphs are kept, and taken from.", CACHES)] = None


COMPILING_OPTIONS = {
    encoded: field
    for field, encoded in zip(
        CompilingOptions.__struct_fields__, CompilingOptions.__struct_encode_fields__, strict=True
    )
}
"""The attribute of each, by the name that users write."""
CONSOLE_PREFIX = "%"
"""What a line of the debug console begins with that shows or changes an option: ``%stance force_eager``."""


def option_in_text(text: str) -> tuple[str, Raw | None]:
    """Return the option that a line of the debug console names, and its new value as JSON; None if it gives none.

    A value may be written as in launch.json, or plainly: words for a list, ``key=value`` for an object.
    """
    name, _, rest = text.strip().removeprefix(CONSOLE_PREFIX).strip().partition(" ")
    rest = rest.strip()
    if not rest:
        return name, None
    value = _json_in(rest)
    if name == "torchConfig" and not isinstance(value, dict):
        pairs = [pair.partition("=") for pair in re.split(r"[,\s]+", rest) if pair]
        value = {key: _json_in(written) for key, _, written in pairs}
    elif name == "compileOnly" and isinstance(value, str):
        value = [word for word in re.split(r"[,\s]+", value) if word]
    elif not isinstance(value, str | list | dict | None):
        value = rest
    return name, Raw(json.encode(value))


def _json_in(text: str) -> Any:
    try:
        return json.decode(text)
    except DecodeError:
        return {"True": True, "False": False, "None": None, "none": None}.get(text, text)


class SetOptionArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``SET_OPTION``."""

    text: str = ""
    """A name and a value, ``stance force_eager``; with the name alone to ask, with nothing to ask for all.

    The value is as in launch.json, or plain: words for a list, ``key=value`` for an object; null for the program's own.
    """


class SetOptionBody(Struct, rename="camel"):
    """Body of the response to ``SET_OPTION``, which can answer ``evaluate`` as well."""

    result: str
    """The option as it is now, for a person."""
    variables_reference: int = 0


class DebuggingOptions(CompilingOptions, rename="camel", frozen=True, kw_only=True):
    """What is debugged and how: options that the server passes on to the agent."""

    mode: Annotated[
        str,
        _one_of(
            "What of a compiled function is debugged: Dynamo's tracing, the code that it generates, or both.", MODES
        ),
    ] = BOTH
    just_my_code: Annotated[
        bool, _described("Leave out frames and breakpoints in installed packages and in the standard library.")
    ] = True
    stop_on_entry: Annotated[bool, _described("Stop at the first line that is debugged.")] = False
    pause_on_restart: Annotated[
        bool,
        _described(
            "Hit a breakpoint again when Dynamo restarts its analysis of the same function (after a graph break, for "
            "instance)."
        ),
    ] = False
    stop_on_generated_code: Annotated[bool, _described("Stop on entry of every function that Dynamo generated.")] = (
        False
    )
    cached_calls: Annotated[
        str, _one_of("Where a call stops that the cache serves, which Dynamo does not trace any more.", CACHED_CALLS)
    ] = REPLAY
    listing: Annotated[str, _one_of("How code that Dynamo generated is shown.", LISTINGS)] = STATEMENTS
    trace_instructions: Annotated[
        bool,
        _described(
            "Record every instruction of generated code as it runs, so that a crash of the process (SIGSEGV) can be "
            "located. Slow."
        ),
    ] = False
    record: Annotated[
        bool, _described('Write what is compiled to a record file, for the command "dynamo-dap report".')
    ] = True
    explore: Annotated[
        bool,
        _described(
            "Keep the stages of each compile, from Dynamo's graph to the kernels, as documents and for "
            '"dynamo-dap explore". Compiles take longer, and take nothing from caches of compiled graphs.'
        ),
    ] = False
    real_values: Annotated[
        RealValues | Literal["off"],
        _described(
            "Real values of tensors while Dynamo traces, computed when they are looked at by running the graph so far: "
            "limits of memory and time, or off."
        ),
    ] = RealValues()
    triton: Annotated[str | None, _one_of("Where kernels of Triton's run, if not compiled on a GPU.", TRITON)] = None
    triton_program: Annotated[
        list[Annotated[int, Meta(ge=0)]],
        Meta(max_length=3),
        _described(
            "The program of a kernel's launches in which breakpoints without a condition stop: [3, 0, 0]. Default: the "
            "first."
        ),
    ] = []
    compare_every: Annotated[
        int,
        Meta(ge=1),
        _described('With the exception filter "mismatch": compare each N-th call of a compiled graph, not every one.'),
    ] = 1
    stretch_timeouts: Annotated[
        bool,
        _described(
            "In a distributed job, have ranks wait up to a day for one that is held, whatever timeouts the program "
            "gives its process groups."
        ),
    ] = True
    evaluation_timeout: Annotated[
        Seconds,
        _described(
            "Seconds after which an evaluation is interrupted; one that is stuck in C code is reported instead."
        ),
    ] = 5.0


class AgentOptions(DebuggingOptions, rename="camel", frozen=True, kw_only=True):
    """Arguments of the agent's own ``attach`` request."""

    eager: bool = False
    """Whether ordinary Python is debugged in this session, by another backend."""
    eager_address: str | None = None
    """``HOST:PORT`` where the server waits for debugpy, when it is to be started by this request.

    Empty for where this program has connected to itself.
    """
    eager_token: str | None = None
    """What debugpy has to show there."""
    eager_adopts: bool = False
    """Whether debugpy debugs this process already, in the same session."""
    children_file: str | None = None
    """Where child processes find an ``Invitation`` to sessions of their own; None when nobody wants them."""

    @property
    def compile_time(self) -> bool:
        """Whether tracing is debugged."""
        return self.mode in (COMPILE_TIME, BOTH)

    @property
    def run_time(self) -> bool:
        """Whether generated code is debugged."""
        return self.mode in (RUN_TIME, BOTH)


class SessionOptions(DebuggingOptions, rename="camel", frozen=True, kw_only=True):
    """The options that ``launch`` and ``attach`` share."""

    eager: Annotated[bool, _described("Debug ordinary Python in the same session, with debugpy.")] = True
    sub_process: Annotated[
        bool | None,
        _described(
            "Debug child processes, each in a session of its own, where ordinary Python is debugged and the editor "
            "can start sessions.",
            editor=True,
        ),
    ] = None
    ranks: Annotated[
        list[Annotated[int, Meta(ge=0)]] | None,
        _described(
            "Of a distributed job (torchrun, torch.multiprocessing.spawn), debug only these ranks; the others run at "
            "full speed. When attaching: of those that come to listen; or those that listen, each at the port of "
            "connect plus its number."
        ),
    ] = None
    stop_ranks: Annotated[str, _one_of("What stops, steps and continues in a distributed job.", STOP_RANKS)] = ALONE
    rank_output: Annotated[
        str, _one_of("Where ranks print that torchrun or torch.multiprocessing.spawn starts.", RANK_OUTPUT)
    ] = PREFIXED
    launch_timeout: Annotated[
        Seconds, _described("Seconds for the program to start, to connect to the debugger and to answer it.")
    ] = 60.0
    access_token: str | None = None
    """For clients of ``dynamo-dap --listen``, which read no launch.json."""


class LaunchArguments(SessionOptions, rename="camel", frozen=True, kw_only=True):
    """Arguments of ``launch``."""

    program: Annotated[
        str | None,
        _described("The Python file to run. Give one of program, module and code.", editor="${file}"),
    ] = None
    module: Annotated[
        str | None, _described("The module to run, as with python -m. Give one of program, module and code.")
    ] = None
    code: Annotated[
        str | list[str] | None,
        _described(
            "Python code to run, as with python -c: text, or a list of lines. Give one of program, module and code."
        ),
    ] = None
    args: Annotated[
        str | list[str],
        _described("Command-line arguments of the program: a list, or one text that is split as a shell would."),
    ] = []
    cwd: Annotated[str | None, _described("The working directory of the program.", editor="${workspaceFolder}")] = None
    env: Annotated[
        dict[str, str | None], _described("Environment variables to add for the program; null removes one.")
    ] = {}
    env_file: Annotated[
        str | None,
        _described("A file of lines NAME=value to add to the program's environment. What env says comes after it."),
    ] = None
    python: Annotated[
        str | list[str] | None,
        _described(
            "The Python interpreter to run the program with, or its command as a list. Default: the server's own; in "
            "VS Code the one chosen in the Python extension, else the setting dynamo.python, else python3 on the PATH."
        ),
    ] = None
    console: Annotated[
        str,
        _one_of("Where the program's input and output are.", CONSOLES),
    ] = "internalConsole"
    profile: Annotated[
        bool,
        _described(
            'Write where compile time goes when the program ends, as "dynamo-dap profile" does: PROGRAM.cpuprofile in '
            "the working directory, which VS Code opens. Time at stops in compiled functions is left out."
        ),
    ] = False
    trace: Annotated[
        bool,
        _described('Have torch write its own trace as well, for "dynamo-dap report --tlparse".'),
    ] = False
    no_debug: bool = False
    """An IDE's own: Run Without Debugging."""


class ConnectTarget(Struct, rename="camel", frozen=True, kw_only=True):
    """Where a program listens."""

    host: Annotated[str, _described("Host name or address.")] = "127.0.0.1"
    port: Annotated[Port, _described("Port number.")]
    access_token: Annotated[str | None, _described("The access token that the program requires.")] = None


class ListenTarget(Struct, rename="camel", frozen=True, kw_only=True):
    """Where a program is waited for."""

    host: Annotated[
        str, _described("Host name or address; one that other machines can reach needs an access token.")
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535), _described("Port number; 0 is any free one.")]
    access_token: Annotated[
        str | None,
        _described("The access token that the program has to present; if not given, a random one is told."),
    ] = None
    access_token_variable: Annotated[
        str | None, _described("The environment variable that holds the access token, instead of accessToken.")
    ] = None
    timeout: Annotated[Seconds, _described("Seconds to wait for the first program.")] = 3600.0


class ArrivalTarget(Struct, rename="camel", frozen=True, kw_only=True):
    """Where another server process has a program's connection, which came to it, for the session with that."""

    path: str
    """A socket in a folder that only its user can enter."""
    access_token: str
    is_local: bool = True
    """Whether the program came by way of the loopback interface."""


class AttachArguments(SessionOptions, rename="camel", frozen=True, kw_only=True):
    """Arguments of ``attach``."""

    connect: Annotated[
        ConnectTarget | None,
        _described(
            "Where the program listens: the address given to dynamo_dap.listen() or debugpy.listen().",
            editor={"host": "127.0.0.1", "port": 5678},
        ),
    ] = None
    listen: Annotated[
        ListenTarget | None,
        _described(
            "Wait here for a program that calls dynamo_dap.connect(), or for the ranks of a job, on any machine, "
            'instead of "connect".'
        ),
    ] = None
    arrival: ArrivalTarget | None = None
    """Of the session with a rank that came to another one, which has said ``listen``."""
    meeting: ConnectTarget | None = None
    """Where the ranks of a job meet that stop together: from the session that starts those of the ranks."""
    host: str | None = None
    """As debugpy takes it, too; users write ``connect``."""
    port: Port | None = None
    """See ``host``."""
