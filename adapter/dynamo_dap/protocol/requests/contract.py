"""Defines the contract between server and debugged program, beyond DAP itself.

Custom requests and events, a program's description of itself, environment variables, error ids. The options of
``launch`` and ``attach`` are in ``options``. Any thread may use the constants and structs.
"""

from __future__ import annotations

from enum import IntEnum, unique
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, field, to_builtins

from dynamo_dap.protocol.requests.bisection import BisectionRun
from dynamo_dap.protocol.requests.forecasts import ForecastRun
from dynamo_dap.protocol.requests.minifying import MinifyingRun
from dynamo_dap.protocol.requests.ranks import Rank
from dynamo_dap.protocol.requests.saved_calls import RecordingRun
from dynamo_dap.protocol.wire.types import Variable

CUSTOM_PREFIX = "dynamo"
"""Prefix of the names of custom requests and events."""

# -- environment variables ---------------------------------------------------------------------------------------------

ENTRY = str(Path(__file__).resolve().parents[2] / "debuggee" / "launch" / "starting" / "entry.py")
"""The script with which every debugged or recorded process begins."""
LAUNCH_VARIABLE = "DYNAMO_DAP_LAUNCH"
"""What to run and where to connect: a ``LaunchDescription`` as JSON."""
CRASH_CELL_VARIABLE = "DYNAMO_DAP_CRASH_CELL"
"""The folder of the files in which a program notes its position, see ``crash_cell``."""
LOG_VARIABLE = "DYNAMO_DAP_LOG"
"""The log file of the server and of the program."""
ACCESS_TOKEN_VARIABLE = "DYNAMO_DAP_ACCESS_TOKEN"
"""The token that clients of a server on TCP must show."""
RECORDS_VARIABLE = "DYNAMO_DAP_RECORDS"
"""The folder of all record files."""
TRITON_INTERPRET_VARIABLE = "TRITON_INTERPRET"
"""Triton's own variable: kernels run in its interpreter."""
CHECK_VARIABLE = "DYNAMO_DAP_CHECK"
"""Set if ``dynamo-dap check`` runs a program: pytest's workers then record themselves."""
CONNECT_VARIABLE = "DYNAMO_DAP_CONNECT"
"""Where a server waits for this program, perhaps on another machine, with the token: ``authorization.NamedServer``."""
EDITOR_VARIABLE = "DYNAMO_DAP_EDITOR"
"""The socket at which an editor shows an assistant's sessions."""

# -- modes and exception filters ---------------------------------------------------------------------------------------

STATEMENTS, INSTRUCTIONS = LISTING_FORMS = ("statements", "instructions")
"""The forms in which generated code is shown."""

COMPILE_TIME = "compile-time"
RUN_TIME = "run-time"
EAGER = "eager"
BACKWARD = "backward"
LOWERING = "lowering"
BREAKPOINT_MODES = (COMPILE_TIME, RUN_TIME, EAGER, BACKWARD, LOWERING)

GRAPH_BREAK = "graph-break"
RECOMPILE = "recompile"
UNSUPPORTED = "unsupported"
BACKEND_FAILURE = "backend-failure"
SPECIALIZE = "specialize"
GUARD = "guard"
LIMIT = "limit"
CUDA_GRAPH = "cudagraph"
GENERATED_CODE = "generated-code"
NAN = "nan"
MISMATCH = "mismatch"
OUT_OF_BOUNDS = "out-of-bounds"
RACE = "race"
KERNEL_MISMATCH = "kernel-mismatch"
FILTERS_OF_COMPILES = (GRAPH_BREAK, RECOMPILE, UNSUPPORTED, BACKEND_FAILURE, SPECIALIZE, GUARD, LIMIT, CUDA_GRAPH)
EXCEPTION_FILTERS = (*FILTERS_OF_COMPILES, GENERATED_CODE, NAN, MISMATCH, OUT_OF_BOUNDS, RACE, KERNEL_MISMATCH)
"""The agent's filters; debugpy has its own."""

# -- a connection's beginning ------------------------------------------------------------------------------------------

AUTHORIZE = "dynamoAuthorize"
"""The first request on each connection between server and program. The side that connects sends it.

Its arguments are ``AuthorizeArguments`` with those of ``ProcessInformation`` (a program), ``ChildOffer`` or
``TerminalStarted``. A program that listens gets the request, and answers with its ``ProcessInformation``.
"""


class AuthorizeArguments(Struct):
    """The first message of every process that connects."""

    token: str


def introduction(token: str, newcomer: Struct) -> dict[str, object]:
    """Return the arguments of ``AUTHORIZE`` for a process that connects to the server."""
    return {"token": token, **to_builtins(newcomer)}


class ProcessInformation(Struct, rename="camel"):
    """A program's description of itself, when it connects or the server connects to it."""

    process_id: int | None = None
    executable: str | None = None
    python_version: str | None = None
    torch_version: str | None = None
    rank: Rank | None = None


class ChildOffer(Struct, rename="camel", omit_defaults=True):
    """A child process reports the address at which it listens for its session."""

    process_id: int
    host: str = ""
    port: int = 0
    """0 for an unwanted process: it listens nowhere, and runs on."""
    access_token: str = ""
    rank: Rank | None = None


class TerminalStarted(Struct, rename="camel", omit_defaults=True):
    """A terminal's supervisor reports what it has started, or the ``problem``."""

    process_id: int | None = None
    problem: str | None = None


class Invitation(Struct, frozen=True):
    """Where the server waits for a connection, and the token to send. Child processes read theirs from a file."""

    address: str
    token: str
    ranks: list[int] | None = None
    """Only these ranks of a distributed job get a session."""
    stretch_timeouts: bool = True
    """Whether unwanted ranks wait for held ones."""
    rank_output: str = "plain"


class RecordedRun(Struct, rename="camel", omit_defaults=True):
    """A recorded program's run, which its child processes join; replaces an invitation."""

    name: str
    """The run's name, which ends with the id of its first process."""
    folder: str
    """Where record files are written."""
    profile: str | None = None
    """As in ``LaunchDescription``; each process appends its id."""
    explore: str | None = None
    """As in ``LaunchDescription``; each process appends its id."""
    comparisons: str | None = None
    """As in ``LaunchDescription``; all processes write to one file."""
    compare_every: int = 0
    hashed_calls: str | None = None
    """As in ``LaunchDescription``; each process has its own file."""
    cache_keys: bool = False
    """As in ``LaunchDescription``."""
    torch_settings: bool = False
    """As in ``LaunchDescription``."""
    rank: Rank | None = None
    """The child's rank, if the parent knows it."""


class LaunchDescription(Struct, rename="camel", omit_defaults=True):
    """The value of ``LAUNCH_VARIABLE``."""

    address: str | None = None
    """The server's address, ``HOST:PORT``; None to run without a debugger and only write a record."""
    token: str = ""
    connects: bool = False
    """Whether the program connects to the server that the environment names; if none is named, it runs undebugged."""
    program: str | None = None
    module: str | None = None
    code: str | None = None
    args: list[str] = []
    debugpy_address: str | None = None
    """Where the server waits for debugpy; None if ordinary Python is not debugged."""
    debugpy_token: str = ""
    copies: dict[str, str] = {}
    """Maps a file's path to the copy that the program reads instead, to try a fix."""
    settings: dict[str, bool | int | float | str | None] = {}
    """Torch settings that override the program's, to try a setting without an edit."""
    added: dict[str, list[str]] = {}
    """Names of functions to add to torch settings that are sets."""
    results: str | None = None
    """Where to write the program's results: see ``debuggee.launch.runs.trial``."""
    comparisons: str | None = None
    """Where to write the comparison of compiled graphs with Dynamo's: see ``numerics.comparing.comparing_run``."""
    explore: str | None = None
    """Where to write the stages of each compile: see ``explore.file``."""
    compare_every: int = 0
    """Compare each N-th call of a graph; 0 for calls 1, 2, 4, 8, ..."""
    hashed_calls: str | None = None
    """Where to write digests of the values in calls of compiled graphs: see ``requests.hashed_calls``. Also records."""
    cache_keys: bool = False
    """Record the answers of caches of compiled graphs, with the parts of their keys."""
    torch_settings: bool = False
    """Record torch's settings at the first compile."""
    entries: str | None = None
    """Where to write torch's cache entries at the end: see ``debuggee.launch.runs.cache_report``."""
    function: str | None = None
    """The functions that ``entries`` covers; None for all."""
    forecast: ForecastRun | None = None
    """Forecast at the end which calls compile next."""
    bisection: BisectionRun | None = None
    minifying: MinifyingRun | None = None
    recording: RecordingRun | None = None
    """Save a call."""
    profile: str | None = None
    """Where to write the profile of compile time, without suffix: see ``profile.files``."""
    began: float = 0.0
    """The start of this process, as ``time.time()``; for a profile."""
    with_children: bool = False
    """Whether child processes are recorded, profiled or explored too."""
    own_variables: list[str] = []
    """Environment variables that the server set only for this process."""
    is_thawed: bool = False
    """Whether the server made this process import the standard library from its files."""


# -- events between the program and the server -------------------------------------------------------------------------

EAGER_EVENT = "dynamoEager"
"""debugpy is connecting to the server, or will not connect."""
IMPORTING_EVENT = "dynamoImporting"
"""The program is importing a part of torch, which can take long, or has finished that."""
COMPILING_EVENT = "dynamoCompiling"
"""A thread has begun or ended a part of a compile that can take long. Sent if the client reports progress."""
ENDING_EVENT = "dynamoEnding"
"""The connection is about to end because the program is ending."""
RUNS_ON_EVENT = "dynamoRunsOn"
"""Sent by a child process: nobody attached in time, so it runs without debugging."""
SESSION_BEGINS_EVENT = "dynamoSessionBegins"
"""Sent to a child process: the client has answered that it started a session for it."""


class EagerEventBody(Struct, omit_defaults=True):
    """Body of ``EAGER_EVENT``."""

    problem: str | None = None
    """Why debugpy will not connect."""


class ImportingEventBody(Struct, rename="camel", omit_defaults=True):
    """Body of ``IMPORTING_EVENT``."""

    module: str
    is_done: bool = False


COMPILING = "torch.compile"
"""Title of the progress of compiles."""


class CompilingEventBody(Struct, rename="camel", omit_defaults=True):
    """Body of ``COMPILING_EVENT``."""

    thread_id: int
    what: str | None = None
    """``Inductor compiles forward``; None when the thread compiles nothing more."""


class RunsOnEventBody(Struct):
    """Body of ``RUNS_ON_EVENT``."""

    seconds: float
    """How long it has waited."""


# -- for clients: docs/custom-requests.md ------------------------------------------------------------------------------

COMPILES = "dynamoCompiles"
GRAPH = "dynamoGraph"
GUARDS = "dynamoGuards"
STAGES = "dynamoStages"
LISTING = "dynamoListing"
"""Show generated code in another form. No body; stack frames of stopped threads then become invalid."""
PATCH = "dynamoPatchInstruction"
"""Replace an instruction of generated code in later calls; the event ``invalidated`` follows."""
UNPATCH = "dynamoUnpatch"
"""Revert patches, so that calls run what Dynamo generated; the event ``invalidated`` follows."""
TENSOR = "dynamoTensor"
"""Show a part of a tensor: a page of elements, statistics, a picture. The tensor's thread must be stopped."""
COMPARISON = "dynamoComparison"
"""The newest call whose compiled graph was found to differ, line by line. No arguments."""
TIMELINE = "dynamoTimeline"
"""The statements that a held trace has visited. The thread must be stopped in that trace."""
GO_TO = "dynamoGoTo"
"""Go to a snapshot of a held trace. No body; the event ``stopped`` follows."""
RUN_BACK = "dynamoRunBack"
"""Go back in a held trace to the origin of a variable or node. No body; the event ``stopped`` follows."""
WITHDRAW_PAUSE = "dynamoWithdrawPause"
"""Withdraw a pause from threads that have not reached a line yet. No arguments, no body."""
SET_OPTION = "dynamoSetOption"
"""Change or show one of the options for torch, at any time. A line in VS Code's console can also do this."""
WHAT_IF = "dynamoWhatIf"
"""The newest trace in which the debugger changed something, and the program's own. No arguments."""
KEEP = "dynamoKeep"
"""Make the call run the graph of the changed trace in which its thread is stopped."""
WHAT_IF_EVENT = "dynamoWhatIfOver"
"""A changed trace and the program's own have ended: the answer to ``WHAT_IF``. Sent only to VS Code."""
ENTRIES = "dynamoEntries"
"""The cache entries of compiled functions, at any time. Calls are counted from the first request on."""
FORGET = "dynamoForget"
"""Make torch forget a cache entry, or everything it compiled for a function."""
RECORD_CALL = "dynamoRecordCall"
"""Save the call of a compiled function in which a thread is stopped."""
COMPILES_CHANGED_EVENT = "dynamoCompilesChanged"
"""The answer to ``COMPILES`` has changed. No body."""

LOGGED_EVENT = "dynamoLogged"
"""A log message was printed, while tracing or in generated code. Sent only to VS Code."""


class LoggedEventBody(Struct):
    """Body of ``LOGGED_EVENT``."""

    path: str
    line: int
    values: dict[str, str]
    """The text of each expression in the message."""


MISSED_EVENT = "dynamoMissed"
"""Why breakpoints have not stopped the program, if that is certain. Sent at its end, to VS Code and the terminal."""


class MissedBreakpoint(Struct):
    """A breakpoint that has not stopped the program."""

    path: str
    line: int
    reason: str


class MissedEventBody(Struct):
    """Body of ``MISSED_EVENT``."""

    breakpoints: list[MissedBreakpoint]


class GraphArguments(Struct, rename="camel"):
    """Arguments of ``GRAPH``."""

    compile_id: str
    index: int = 0


class GuardsArguments(Struct, rename="camel"):
    """Arguments of ``GUARDS``."""

    compile_id: str


class StagesArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``STAGES``: one compile with the parts of its documents, or every compile without them."""

    compile_id: str | None = None


class ListingArguments(Struct, rename="camel"):
    """Arguments of ``LISTING``."""

    form: Annotated[str, Meta(extra={"choices": LISTING_FORMS})]


class PatchArguments(Struct, rename="camel"):
    """Arguments of ``PATCH``."""

    instruction_reference: str
    """The instruction's address, from a stack frame or ``disassemble``."""
    instruction: str
    """The replacement: an instruction as in a listing, several separated by ``;``, or ``swap``.

    With a number of the listing and ``:`` in front, it replaces that instruction of the same code.
    """


class PatchBody(Struct, rename="camel"):
    """Body of the response to ``PATCH``."""

    name: str
    """Name of the code that calls run from now on, as in the stack."""
    instruction: str
    """The instruction there."""
    was: str
    """The instruction that Dynamo generated."""


class UnpatchArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``UNPATCH``."""

    instruction_reference: str | None = None
    """An address in the code whose patches to revert; None for all code."""


class UnpatchBody(Struct):
    """Body of the response to ``UNPATCH``."""

    count: int
    """How many patched instructions were reverted."""


class TimelineArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``TIMELINE``."""

    thread_id: int
    start: int | None = None
    """The first entry to return; by default the shown snapshot is in the middle."""
    count: int = 10_000


class TimelineEntry(Struct, rename="camel", omit_defaults=True):
    """A visited statement. ``mark`` names an attempt or a graph break that begins there."""

    snapshot: int
    """Its number, for ``GO_TO``."""
    function: str
    path: str
    line: int
    depth: int
    """How many inlined calls lead to it."""
    nodes: int
    """How many nodes the graph had at this snapshot."""
    has_breakpoint: bool = False
    mark: str = ""
    moment: int | None = None

    def __post_init__(self) -> None:
        """Also send the number under its name of version 0.2.0."""
        self.moment = self.snapshot


class TimelineBody(Struct, rename="camel", omit_defaults=True):
    """Body of the response to ``TIMELINE``."""

    entries: list[TimelineEntry]
    total: int
    current: int
    """The snapshot that is shown."""
    start: int = 0
    """How many entries precede these."""


class GoToSnapshotArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``GO_TO``."""

    thread_id: int
    snapshot: int = -1
    """The number of a statement in the timeline."""
    moment: int | None = None

    def __post_init__(self) -> None:
        """Accept the old name of 0.2.0, too."""
        if self.moment is not None:
            self.snapshot = self.moment
        if self.snapshot < 0:
            raise ValueError("`snapshot` has to be the number of a snapshot")


OLD_KEYS: dict[type[Struct], tuple[str, ...]] = {TimelineEntry: ("moment",), GoToSnapshotArguments: ("moment",)}
"""Keys of earlier versions, which are still accepted and sent, but not documented."""


BOUND, MUTATED, GUARDED_AT, BECAME_NAN, MADE = ORIGINS = ("bound", "mutated", "guarded", "nan", "made")
"""The origins of ``RUN_BACK``, in this order.

A variable got its value; its object was changed in place; a guard was installed on it; its value became NaN; a node was
added to the graph.
"""


class RunBackArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``RUN_BACK``."""

    frame_id: int
    name: str
    """A local variable of the frame; for ``made``, the name of a node."""
    to: Annotated[str, Meta(extra={"choices": ORIGINS})] = BOUND


class WhatIfBody(Struct, rename="camel", omit_defaults=True):
    """Body of the response to ``WHAT_IF``."""

    function: str
    compile_id: str
    changes: list[str]
    graph: str
    """The code of the changed trace's graph; empty if there is none, incomplete if the trace has not ended."""
    is_over: bool
    kept: bool = False
    program_graph: str | None = None
    """The code of the graph that the program runs; missing while its trace waits."""
    difference: str = ""
    """From the program's graph to the changed one, in the format of ``diff -u``."""
    problem: str | None = None
    """Why the changed trace ended early."""


class KeepArguments(Struct, rename="camel"):
    """Arguments of ``KEEP``."""

    thread_id: int


VS_CODE = "vscode"
"""VS Code's ``clientID``."""
TERMINAL = "dynamo-dap-terminal"
"""The ``clientID`` of ``dynamo-dap debug``."""
VARIABLE_MENU = "__vscodeVariableMenuContext"
"""VS Code's own field of a variable, which describes it to extensions."""


LOCALS_ALONG = "localsAlong"
"""An argument of ``scopes`` that asks debugpy for the local variables as well.

The answer has the answer to ``variables`` under this name, unless there are many variables, or showing one would run
code of the program.
"""

WATCHED = "watched"
"""An argument of debugpy's ``variables`` that asks whether changes of a child can stop; its answer has this name."""

TRACED = "dynamoTraced"
"""The menu context of local variables in a held trace; its commands go back to a variable's origin."""
TRACED_TENSOR = "dynamoTracedTensor"
"""The menu context of tensors among these variables; other tensors have ``TENSOR``."""


class MarkedVariable(Variable, kw_only=True):
    """A variable with additional commands."""

    menu_context: str = field(name=VARIABLE_MENU)


# -- failures ----------------------------------------------------------------------------------------------------------


@unique
class ErrorId(IntEnum):
    """Ids of failure responses, one for each kind of failure. Never renumber: clients and logs refer to them."""

    # Of a connection, at either end.
    UNNAMED = 1
    DISCONNECTED = 2
    UNREADABLE_MESSAGE = 3

    # Of the agent.
    UNKNOWN_TO_AGENT = 101
    NOT_STOPPED = 102
    EVALUATION_FAILED = 103
    TIMED_OUT = 104
    NO_SUCH_THREAD = 106
    UNREADABLE_SOURCE = 107
    UNKNOWN_GRANULARITY = 108
    NO_EXCEPTION = 109
    UNKNOWN_REFERENCE = 110
    NOTHING_STOPPED = 111
    THREAD_STUCK = 112
    NOTHING_TO_DISASSEMBLE = 130
    NO_ADDRESS = 131
    NO_SUCH_COMPILE = 132
    NOTHING_COMPILED = 133
    PATCH_REFUSED = 134
    NO_PAST = 135
    NOTHING_COMPARED = 136
    NO_ORIGIN = 137
    CANNOT_CHANGE = 138
    NOTHING_CHANGED = 139
    NO_SUCH_ENTRY = 140
    NO_CALL = 141
    AGENT_INTERNAL = 199

    # For the server; the agent uses those that fit.
    INTERNAL = 1000
    INVALID_ARGUMENTS = 1001
    UNKNOWN_REQUEST = 1002
    NOT_INITIALIZED = 1003
    INITIALIZED_TWICE = 1004
    ACCESS_DENIED = 1005
    STARTED_TWICE = 1006
    NO_PROGRAM = 1010
    PROGRAM_STARTING = 1011
    PROGRAM_ENDED = 1012
    AGENT_GONE = 1013
    NOT_EAGER = 1014
    SUSPENDED = 1015
    INVALID_OPTION = 1020
    CANNOT_START = 1021
    DIED_BEFORE_CONNECTING = 1022
    CONNECT_TIMEOUT = 1023
    CANNOT_ATTACH = 1024
    AGENT_REFUSED = 1025
    TERMINAL_UNSUPPORTED = 1026
    TERMINAL_FAILED = 1027
    NOT_RESTARTABLE = 1028
    CANCELLED = 1030
    SESSION_ENDING = 1031
    SYSTEM_REFUSED = 1032
