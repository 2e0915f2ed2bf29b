"""Defines each option of ``launch`` and ``attach`` once: name, type, bounds, default, description for users.

The server decodes them and passes on what the agent needs. ``make generate`` writes the extension's schema and the
table in ``docs/options.md`` from them. An option without a description is internal: users do not write it. Any
thread may use the structs.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from msgspec import DecodeError, Meta, Raw, Struct, json

from dynamo_dap.protocol.requests.contract import COMPILE_TIME, INSTRUCTIONS, RUN_TIME, STATEMENTS

Seconds = Annotated[float, Meta(gt=0)]
Port = Annotated[int, Meta(ge=1, le=65535)]

BOTH = "both"
MODES = {
    BOTH: "Stop while Dynamo traces, and in the bytecode that it generates.",
    COMPILE_TIME: "Stop only while Dynamo traces a function: symbolic values, the graph and the guards so far.",
    RUN_TIME: "Stop only in the bytecode that Dynamo generated: real tensors and Python's value stack.",
}
LISTINGS = {
    STATEMENTS: "Decompiled to Python statements.",
    INSTRUCTIONS: "As bytecode, each instruction with its purpose.",
}
REPLAY = "replay"
AS_PYTHON = "eager"
GENERATED = "generated"
CACHED_CALLS = {
    REPLAY: "Trace the call again without running it, and stop on its lines with real values.",
    AS_PYTHON: "Run the function uncompiled, as ordinary Python, while it has breakpoints.",
    GENERATED: "Stop only in generated code: at run-time breakpoints and when stepping in.",
}
DEFAULT_STANCE, FAIL_ON_RECOMPILE, EAGER_ON_RECOMPILE, FORCE_EAGER = (
    "default",
    "fail_on_recompile",
    "eager_on_recompile",
    "force_eager",
)
STANCES = {
    DEFAULT_STANCE: "Compile it.",
    FAIL_ON_RECOMPILE: "Raise an exception if the function was compiled before.",
    EAGER_ON_RECOMPILE: "Run it as Python if the function was compiled before.",
    FORCE_EAGER: "Run it as Python, and run compiled functions as Python too.",
}
FRESH = "fresh"
INTERPRET = "interpret"
TRITON = {INTERPRET: "In Triton's interpreter: no GPU is needed and kernel lines can be stepped. Slow."}
CACHES = {FRESH: "Use a new, empty cache folder and remove it when the program ends."}
ALONE, TOGETHER = "alone", "together"
STOP_RANKS = {
    ALONE: "Each rank by itself.",
    TOGETHER: "All debugged ranks: when one stops, the others pause; continuing one continues all. Stepping one rank "
    "also steps every rank stopped on the same line; the console reports a rank that diverges.",
}
PREFIXED, OWN_CONSOLE, OWN_TERMINAL, PLAIN = "prefixed", "own", "terminal", "plain"
RANK_OUTPUT = {
    PREFIXED: "In one console, each line prefixed with its rank: [rank 1].",
    OWN_CONSOLE: 'In the debug console of each rank\'s session. Ranks that are not debugged use "prefixed".',
    OWN_TERMINAL: 'Like "own"; VS Code also opens a terminal for each rank.',
    PLAIN: "In one console, without prefixes.",
}
CONSOLES = {
    "internalConsole": "The Debug Console. The program has no input.",
    "integratedTerminal": "A terminal in the editor.",
    "externalTerminal": "A separate terminal window.",
}


def _described(text: str, *, editor: object = None) -> Meta:
    """Describe an option; ``editor`` is the default in VS Code if it differs."""
    return Meta(description=text, extra={} if editor is None else {"editor": editor})


def _one_of(text: str, choices: dict[str, str]) -> Meta:
    """Describe ``choices``: the values and their meaning."""
    return Meta(description=text, extra={"choices": choices})


class RealValues(Struct, rename="camel", frozen=True, kw_only=True):
    """Limits on computing a trace's real values."""

    memory_limit: Annotated[
        float, Meta(gt=0, description="MiB of results kept for one trace. Above it, values are computed one at a time.")
    ] = 4096.0
    time_limit: Annotated[
        float, Meta(gt=0, description="Seconds per request. Results are kept, and the next request continues.")
    ] = 10.0


class CompilingOptions(Struct, rename="camel", frozen=True, kw_only=True):
    """Torch's settings that override the program's own."""

    compile_only: Annotated[
        list[str],
        _described(
            "Compile only these functions and the functions they call: names (fn, Model.forward) or files (model.py). "
            "Other functions run as Python."
        ),
    ] = []
    stance: Annotated[
        str | None, _one_of("What torch does with a call it would compile (torch.compiler.set_stance).", STANCES)
    ] = None
    backend: Annotated[
        str | None,
        _described(
            "Use this backend (eager, aot_eager, inductor) instead of the program's. Functions that are already "
            "compiled keep theirs."
        ),
    ] = None
    torch_logs: Annotated[
        str | None,
        _described(
            "Print torch's logs in the console, as TORCH_LOGS would (recompiles,graph_breaks or +dynamo). Each message "
            "links to its line."
        ),
    ] = None
    torch_config: Annotated[
        dict[str, bool | int | float | str | None],
        _described('Settings of torch that override those of the program: {"_dynamo.recompile_limit": 16}.'),
    ] = {}
    cache: Annotated[
        str | None,
        _one_of("Which cache torch uses for compiled kernels and graphs. Default: torch's own cache.", CACHES),
    ] = None


COMPILING_OPTIONS = {
    encoded: field
    for field, encoded in zip(
        CompilingOptions.__struct_fields__, CompilingOptions.__struct_encode_fields__, strict=True
    )
}
"""The attribute of each option, by the user's name for it."""
CONSOLE_PREFIX = "%"
"""Prefix of a debug console line that shows or changes an option: ``%stance force_eager``."""


def option_in_text(text: str) -> tuple[str, Raw | None]:
    """Return the option that a debug console line names, and its new value as JSON, or None without a value.

    A value is written as in launch.json, or plainly: words for a list, ``key=value`` for an object.
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
    """A name and a value, ``stance force_eager``; only a name shows the option, an empty text all options.

    The value is as in launch.json, or plain: words for a list, ``key=value`` for an object; null for the program's own.
    """


class SetOptionBody(Struct, rename="camel"):
    """Body of the response to ``SET_OPTION``, which can also answer ``evaluate``."""

    result: str
    """The option's present value, as readable text."""
    variables_reference: int = 0


class DebuggingOptions(CompilingOptions, rename="camel", frozen=True, kw_only=True):
    """The options for debugging that the server passes on to the agent."""

    mode: Annotated[
        str,
        _one_of("What to debug in a compiled function: Dynamo's tracing, the code that it generates, or both.", MODES),
    ] = BOTH
    just_my_code: Annotated[bool, _described("Skip installed packages and the standard library.")] = True
    stop_on_entry: Annotated[bool, _described("Stop on the first line.")] = False
    pause_on_restart: Annotated[
        bool,
        _described(
            "Hit a breakpoint again when Dynamo restarts its analysis of the function, for example after a graph break."
        ),
    ] = False
    stop_on_generated_code: Annotated[bool, _described("Stop on entry to every function that Dynamo generated.")] = (
        False
    )
    cached_calls: Annotated[
        str,
        _one_of("How breakpoints are hit in calls that reuse compiled code (no tracing takes place).", CACHED_CALLS),
    ] = REPLAY
    listing: Annotated[str, _one_of("How generated code is shown.", LISTINGS)] = STATEMENTS
    trace_instructions: Annotated[
        bool,
        _described(
            "Record every instruction of generated code as it runs, to locate a crash of the process (SIGSEGV). This "
            "is slow."
        ),
    ] = False
    record: Annotated[bool, _described('Record compiles in a file, for "dynamo-dap report".')] = True
    explore: Annotated[
        bool,
        _described(
            "Keep every stage of each compile, from Dynamo's graph to the kernels, to open in the editor or with "
            '"dynamo-dap explore". Compiles take longer and skip the caches of compiled graphs.'
        ),
    ] = False
    real_values: Annotated[
        RealValues | Literal["off"],
        _described(
            "Real tensor values while Dynamo traces, computed on demand by running the graph so far: limits of memory "
            "and time, or off."
        ),
    ] = RealValues()
    triton: Annotated[str | None, _one_of("Where to run Triton kernels. Default: on the GPU.", TRITON)] = None
    triton_program: Annotated[
        list[Annotated[int, Meta(ge=0)]],
        Meta(max_length=3),
        _described(
            "The Triton program (grid index) in which unconditional breakpoints stop: [3, 0, 0]. Default: the first."
        ),
    ] = []
    compare_every: Annotated[
        int,
        Meta(ge=1),
        _described('With the filter "mismatch": compare only every N-th call of a compiled graph.'),
    ] = 1
    stretch_timeouts: Annotated[
        bool,
        _described(
            "In a distributed job, let ranks wait up to a day for a stopped rank, regardless of the timeouts of the "
            "process groups."
        ),
    ] = True
    evaluation_timeout: Annotated[
        Seconds,
        _described("Seconds until an evaluation is interrupted. C code cannot be interrupted; the console reports it."),
    ] = 5.0


class AgentOptions(DebuggingOptions, rename="camel", frozen=True, kw_only=True):
    """Arguments of the agent's own ``attach`` request."""

    eager: bool = False
    """Whether another backend debugs ordinary Python in this session."""
    eager_address: str | None = None
    """``HOST:PORT`` where the server waits for debugpy, if this request starts it.

    Empty for the address that this program has connected to.
    """
    eager_token: str | None = None
    """The token that debugpy must show there."""
    eager_adopts: bool = False
    """Whether debugpy debugs this process already, in the same session."""
    children_file: str | None = None
    """Where child processes find an ``Invitation`` to sessions; None if nobody wants them."""

    @property
    def compile_time(self) -> bool:
        """Whether to debug tracing."""
        return self.mode in (COMPILE_TIME, BOTH)

    @property
    def run_time(self) -> bool:
        """Whether to debug generated code."""
        return self.mode in (RUN_TIME, BOTH)


class SessionOptions(DebuggingOptions, rename="camel", frozen=True, kw_only=True):
    """The options that ``launch`` and ``attach`` share."""

    eager: Annotated[bool, _described("Debug ordinary Python in the same session, with debugpy.")] = True
    sub_process: Annotated[
        bool | None,
        _described(
            'Debug child processes, each in its own session. Requires "eager": true and an editor that supports child '
            "sessions.",
            editor=True,
        ),
    ] = None
    ranks: Annotated[
        list[Annotated[int, Meta(ge=0)]] | None,
        _described(
            "Debug only these ranks of a distributed job (torchrun, torch.multiprocessing.spawn); the others run at "
            'full speed. With "connect", rank N listens on port + N.'
        ),
    ] = None
    stop_ranks: Annotated[
        str, _one_of("Which ranks of a distributed job stop, step and continue together.", STOP_RANKS)
    ] = ALONE
    rank_output: Annotated[
        str, _one_of("Where the output of ranks appears (torchrun, torch.multiprocessing.spawn).", RANK_OUTPUT)
    ] = PREFIXED
    launch_timeout: Annotated[Seconds, _described("Seconds for the program to start and connect to the debugger.")] = (
        60.0
    )
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
            "Python code to run, as with python -c: text or a list of lines. Give one of program, module and code."
        ),
    ] = None
    args: Annotated[
        str | list[str],
        _described("Command-line arguments of the program: a list, or text that is split as a shell would."),
    ] = []
    cwd: Annotated[str | None, _described("The working directory of the program.", editor="${workspaceFolder}")] = None
    env: Annotated[
        dict[str, str | None], _described("Environment variables to add for the program; null removes one.")
    ] = {}
    env_file: Annotated[
        str | None,
        _described("A file of NAME=value lines to add to the program's environment. env overrides it."),
    ] = None
    python: Annotated[
        str | list[str] | None,
        _described(
            "The Python interpreter of the program, or its command as a list. Default: the server's own; in VS Code "
            "the Python extension's choice, else dynamo.python, else an environment in the folder that has torch."
        ),
    ] = None
    console: Annotated[
        str,
        _one_of("Where to run the program: Debug Console, integrated or external terminal.", CONSOLES),
    ] = "internalConsole"
    input_file: Annotated[
        str | None,
        _described('The file that the program reads as its standard input. Requires "console": "internalConsole".'),
    ] = None
    profile: Annotated[
        bool,
        _described(
            'Write a profile of compile time when the program ends, as "dynamo-dap profile" does: PROGRAM.cpuprofile '
            "in the working directory. Time at stops in compiled functions is not counted."
        ),
    ] = False
    trace: Annotated[
        bool,
        _described('Also write torch\'s own trace, for "dynamo-dap report --tlparse".'),
    ] = False
    no_debug: bool = False
    """Set by IDEs: Run Without Debugging."""


class ConnectTarget(Struct, rename="camel", frozen=True, kw_only=True):
    """Where a program listens."""

    host: Annotated[str, _described("Host name or address.")] = "127.0.0.1"
    port: Annotated[Port, _described("Port number.")]
    access_token: Annotated[str | None, _described("The access token that the program requires.")] = None


class ListenTarget(Struct, rename="camel", frozen=True, kw_only=True):
    """Where to wait for a program."""

    host: Annotated[
        str, _described("Host name or address. An address that other machines can reach requires an access token.")
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535), _described("Port number; 0 is any free one.")]
    access_token: Annotated[
        str | None,
        _described("The access token that the program must present. Without it, the console shows a random one."),
    ] = None
    access_token_variable: Annotated[
        str | None, _described("The environment variable that holds the access token, instead of accessToken.")
    ] = None
    timeout: Annotated[Seconds, _described("Seconds to wait for the first program.")] = 3600.0


class HandedOverTarget(Struct, rename="camel", frozen=True, kw_only=True):
    """Where another server process passes on a program's connection."""

    path: str
    """A socket in a folder that only its user can enter."""
    access_token: str
    is_local: bool = True
    """Whether the program connected through the loopback interface."""


class AttachArguments(SessionOptions, rename="camel", frozen=True, kw_only=True):
    """Arguments of ``attach``."""

    connect: Annotated[
        ConnectTarget | None,
        _described(
            "The address that the program gave to dynamo_dap.listen() or debugpy.listen().",
            editor={"host": "127.0.0.1", "port": 5678},
        ),
    ] = None
    listen: Annotated[
        ListenTarget | None,
        _described(
            "Wait for a program that calls dynamo_dap.connect(), or for the ranks of a job on any machine, instead of "
            '"connect".'
        ),
    ] = None
    handed_over: HandedOverTarget | None = None
    """For the session of a rank that connected to another session, which has ``listen``."""
    meeting: ConnectTarget | None = None
    """Where ranks that stop together exchange events; set by the session that starts the ranks' sessions."""
    host: str | None = None
    """Also accepted from debugpy's configurations; users write ``connect``."""
    port: Port | None = None
    """Also accepted from debugpy's configurations, with ``host``."""
