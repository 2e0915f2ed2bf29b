"""The contract between the server and the debugged program, beyond DAP itself.

Custom requests and events, a program's description of itself, environment variables, error ids. The options of
``launch`` and ``attach`` are in ``options``. Constants and structs; any thread.
"""

from __future__ import annotations

from enum import IntEnum, unique
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, field, to_builtins

from dynamo_dap.protocol.bisection import BisectionRun
from dynamo_dap.protocol.forecasts import ForecastRun
from dynamo_dap.protocol.minifying import MinifyingRun
from dynamo_dap.protocol.ranks import Rank
from dynamo_dap.protocol.saved_calls import RecordingRun
from dynamo_dap.protocol.types import Variable

CUSTOM_PREFIX = "dynamo"
"""Names of custom requests and events begin with this."""

# -- environment variables ---------------------------------------------------------------------------------------------

ENTRY = str(Path(__file__).resolve().parents[1] / "debuggee" / "launch" / "entry.py")
"""The script with which every debugged or recorded process begins."""
LAUNCH_VARIABLE = "DYNAMO_DAP_LAUNCH"
"""What to run and where to connect: a ``LaunchDescription`` as JSON."""
CRASH_CELL_VARIABLE = "DYNAMO_DAP_CRASH_CELL"
"""The folder of the files in which a program notes where it is, see ``crash_cell``."""
LOG_VARIABLE = "DYNAMO_DAP_LOG"
"""The log file of the server and of the program."""
ACCESS_TOKEN_VARIABLE = "DYNAMO_DAP_ACCESS_TOKEN"
"""The token that clients of a server on TCP have to show."""
RECORDS_VARIABLE = "DYNAMO_DAP_RECORDS"
"""The folder of all record files."""
TRITON_INTERPRET_VARIABLE = "TRITON_INTERPRET"
"""Triton's own: kernels run in its interpreter."""
CHECK_VARIABLE = "DYNAMO_DAP_CHECK"
"""Set where ``dynamo-dap check`` runs a program: pytest's workers record themselves then."""
CONNECT_VARIABLE = "DYNAMO_DAP_CONNECT"
"""Where a server waits for this program, perhaps on another machine, and the token: ``authorization.NamedServer``."""
EDITOR_VARIABLE = "DYNAMO_DAP_EDITOR"
"""The socket at which an editor is asked to show the sessions of an assistant that it runs."""

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
``TerminalStarted``. A program that listens is asked, and answers with its ``ProcessInformation``.
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
    """A child process reports the address at which it listens for a session of its own."""

    process_id: int
    host: str = ""
    port: int = 0
    """0 for one that is not wanted, and says so: it listens nowhere, and runs on."""
    access_token: str = ""
    rank: Rank | None = None


class TerminalStarted(Struct, rename="camel", omit_defaults=True):
    """The supervisor in a terminal reports what it has started, or the ``problem`` with it."""

    process_id: int | None = None
    problem: str | None = None


class Invitation(Struct, frozen=True):
    """Where the server waits for a connection, and the token to send. Child processes read theirs from a file."""

    address: str
    token: str
    ranks: list[int] | None = None
    """Only these ranks of a distributed job get a session."""
    stretch_timeouts: bool = True
    """Whether the other ranks wait for those that are held."""
    rank_output: str = "plain"


class RecordedRun(Struct, rename="camel", omit_defaults=True):
    """The run for child processes of a recorded program, in place of an invitation."""

    name: str
    """The run's, which ends with the id of its first process."""
    folder: str
    """Where record files are written."""
    profile: str | None = None
    """As in ``LaunchDescription``; each process appends its id."""
    explore: str | None = None
    """The same."""
    comparisons: str | None = None
    """The same; all processes write to the one file."""
    compare_every: int = 0
    hashed_calls: str | None = None
    """As in ``LaunchDescription``; each process has a file of its own."""
    cache_keys: bool = False
    """The same."""
    rank: Rank | None = None
    """The child's rank, if the parent knows it."""


class LaunchDescription(Struct, rename="camel", omit_defaults=True):
    """The value of ``LAUNCH_VARIABLE``."""

    address: str | None = None
    """The server's, ``HOST:PORT``; None to run without a debugger and only write a record."""
    token: str = ""
    connects: bool = False
    """Whether it connects to the server that the environment names, and runs without a debugger if it names none."""
    program: str | None = None
    module: str | None = None
    code: str | None = None
    args: list[str] = []
    debugpy_address: str | None = None
    """Where the server waits for debugpy; None when ordinary Python is not debugged."""
    debugpy_token: str = ""
    copies: dict[str, str] = {}
    """Maps the path of a file to the copy that is read in its place: how a fix is tried."""
    settings: dict[str, bool] = {}
    """Settings of torch, whatever the program sets them to: how one is tried without an edit."""
    added: dict[str, list[str]] = {}
    """Names of functions to add to settings of torch that are sets."""
    results: str | None = None
    """Where to write what the program computed: see ``debuggee.launch.trial``."""
    comparisons: str | None = None
    """Where to write how compiled graphs compare with Dynamo's: see ``debuggee.numerics.comparing_run``."""
    explore: str | None = None
    """Where to write the stages of each compile: see ``explore.file``."""
    compare_every: int = 0
    """Compare each N-th call of a graph; 0 for the first alone."""
    hashed_calls: str | None = None
    """Record, and write digests of what calls of compiled graphs give here: see ``protocol.hashed_calls``."""
    cache_keys: bool = False
    """Record what caches of compiled graphs answer, with the parts of their keys."""
    entries: str | None = None
    """Where to write what is in torch's cache at the end: see ``debuggee.launch.entries``."""
    function: str | None = None
    """Of which functions; all if none is named."""
    forecast: ForecastRun | None = None
    """Forecast what compiles next, at the end."""
    bisection: BisectionRun | None = None
    minifying: MinifyingRun | None = None
    recording: RecordingRun | None = None
    """Save a call."""
    profile: str | None = None
    """Where to write where compile time goes, without suffix: see ``profile.files``."""
    began: float = 0.0
    """When this process was started, as ``time.time()`` says it; for a profile."""
    with_children: bool = False
    """Whether the processes that it starts are recorded, profiled or explored as it is."""
    own_variables: list[str] = []
    """Environment variables that the server set for this process alone."""
    is_thawed: bool = False
    """Whether the server had this process import the standard library from its files."""


# -- events of the program for the server ------------------------------------------------------------------------------

EAGER_EVENT = "dynamoEager"
"""debugpy is on its way to the server, or will not come."""
IMPORTING_EVENT = "dynamoImporting"
"""The program imports a part of torch, which can take long, or has done so."""
ENDING_EVENT = "dynamoEnding"
"""The connection is about to end because the program is."""
RUNS_ON_EVENT = "dynamoRunsOn"
"""Sent by a child process: nobody attached in time, so it runs without debugging."""


class EagerEventBody(Struct, omit_defaults=True):
    """Body of ``EAGER_EVENT``."""

    problem: str | None = None
    """Why debugpy will not come."""


class ImportingEventBody(Struct, rename="camel", omit_defaults=True):
    """Body of ``IMPORTING_EVENT``."""

    module: str
    is_done: bool = False


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
"""Have generated code shown in another form. No body; the stacks of stopped threads are invalid then."""
PATCH = "dynamoPatchInstruction"
"""Make calls of generated code run another instruction; the event ``invalidated`` follows."""
UNPATCH = "dynamoUnpatch"
"""Make calls run what Dynamo generated again; the event ``invalidated`` follows."""
TENSOR = "dynamoTensor"
"""Look at a part of a tensor: a page of elements, statistics, a picture. Its thread is stopped."""
COMPARISON = "dynamoComparison"
"""The newest call in which a compiled graph was found to differ, line by line. No arguments."""
TIMELINE = "dynamoTimeline"
"""The statements that a held trace has visited. Its thread is stopped in the trace."""
GO_TO = "dynamoGoTo"
"""Go to a snapshot of a held trace. No body; the event ``stopped`` follows."""
RUN_BACK = "dynamoRunBack"
"""Go back in a held trace to where something came from. No body; the event ``stopped`` follows."""
WITHDRAW_PAUSE = "dynamoWithdrawPause"
"""Make threads run on that were asked to pause and have not reached a line yet. No arguments, no body."""
SET_OPTION = "dynamoSetOption"
"""Change one of the options for torch, or say what it is. Any time; for VS Code's console, too."""
WHAT_IF = "dynamoWhatIf"
"""The newest trace in which the debugger changed something, beside the program's own. No arguments."""
KEEP = "dynamoKeep"
"""Make the call run the graph of the changed trace in which its thread is stopped."""
WHAT_IF_EVENT = "dynamoWhatIfOver"
"""A trace that was changed is over, and the program's own, too: the answer to ``WHAT_IF``. Sent to VS Code alone."""
ENTRIES = "dynamoEntries"
"""The cache entries of compiled functions. Any time; calls are counted from the first time on."""
FORGET = "dynamoForget"
"""Make torch forget a cache entry, or all that was compiled of a function."""
RECORD_CALL = "dynamoRecordCall"
"""Save the call of a compiled function in which a thread is stopped."""
COMPILES_CHANGED_EVENT = "dynamoCompilesChanged"
"""The answer to ``COMPILES`` has changed. No body."""

LOGGED_EVENT = "dynamoLogged"
"""A log message was printed, while tracing or in generated code. Sent to VS Code alone."""


class LoggedEventBody(Struct):
    """Body of ``LOGGED_EVENT``."""

    path: str
    line: int
    values: dict[str, str]
    """The text of each expression in the message."""


class GraphArguments(Struct, rename="camel"):
    """Arguments of ``GRAPH``."""

    compile_id: str
    index: int = 0


class GuardsArguments(Struct, rename="camel"):
    """Arguments of ``GUARDS``."""

    compile_id: str


class StagesArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``STAGES``: of one compile with the parts of its documents, else of every compile without them."""

    compile_id: str | None = None


class ListingArguments(Struct, rename="camel"):
    """Arguments of ``LISTING``."""

    form: Annotated[str, Meta(extra={"choices": LISTING_FORMS})]


class PatchArguments(Struct, rename="camel"):
    """Arguments of ``PATCH``."""

    instruction_reference: str
    """The address of the instruction, as a stack frame or ``disassemble`` gives it."""
    instruction: str
    """What to run there: an instruction as a listing shows it, several with ``;`` between, or ``swap``.

    With its number in the listing and ``:`` before it, it is for that place in the same code.
    """


class PatchBody(Struct, rename="camel"):
    """Body of the response to ``PATCH``."""

    name: str
    """The name of what calls run from now on, as in the stack."""
    instruction: str
    """The instruction there."""
    was: str
    """What Dynamo generated there."""


class UnpatchArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``UNPATCH``."""

    instruction_reference: str | None = None
    """An address in the code whose patches to revert; None for those of all code."""


class UnpatchBody(Struct):
    """Body of the response to ``UNPATCH``."""

    count: int
    """How many instructions were patched."""


class TimelineArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``TIMELINE``."""

    thread_id: int
    start: int | None = None
    """The first entry to return; missing: so that the shown snapshot is in the middle."""
    count: int = 10_000


class TimelineEntry(Struct, rename="camel", omit_defaults=True):
    """A visited statement. ``mark`` names an attempt or a graph break that begins there."""

    snapshot: int
    """Its number, for ``GO_TO``."""
    function: str
    path: str
    line: int
    depth: int
    """How many functions it was inlined through."""
    nodes: int
    """How many nodes the graph had."""
    has_breakpoint: bool = False
    mark: str = ""
    moment: int | None = None

    def __post_init__(self) -> None:
        """Also send the number under its name in 0.2.0."""
        self.moment = self.snapshot


class TimelineBody(Struct, rename="camel", omit_defaults=True):
    """Body of the response to ``TIMELINE``."""

    entries: list[TimelineEntry]
    total: int
    current: int
    """The snapshot that is shown."""
    start: int = 0
    """How many entries come before these."""


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
"""Keys of earlier versions, which are accepted and sent still, and described nowhere."""


BOUND, MUTATED, GUARDED_AT, BECAME_NAN, MADE = ORIGINS = ("bound", "mutated", "guarded", "nan", "made")
"""Where something came from: a variable got its value, its object was changed in place, guards hold it to something,
its value was NaN for the first time; a node was added to the graph."""


class RunBackArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``RUN_BACK``."""

    frame_id: int
    name: str
    """A local variable of the frame; for ``made`` the name of a node."""
    to: Annotated[str, Meta(extra={"choices": ORIGINS})] = BOUND


class WhatIfBody(Struct, rename="camel", omit_defaults=True):
    """Body of the response to ``WHAT_IF``."""

    function: str
    compile_id: str
    changes: list[str]
    graph: str
    """The code of its graph, empty for none; of a trace that is not over, as far as it is."""
    is_over: bool
    kept: bool = False
    program_graph: str | None = None
    """The code of the graph that the program runs; missing while its trace waits."""
    difference: str = ""
    """From the program's graph to the changed one, as ``diff -u`` shows it."""
    problem: str | None = None
    """Why it ended early."""


class KeepArguments(Struct, rename="camel"):
    """Arguments of ``KEEP``."""

    thread_id: int


VS_CODE = "vscode"
"""Its ``clientID``."""
VARIABLE_MENU = "__vscodeVariableMenuContext"
"""Its own field of a variable, which says to extensions what that is."""


LOCALS_ALONG = "localsAlong"
"""With it in the arguments of ``scopes``, debugpy's answer has the answer to ``variables`` of the local variables, too,
under this name. It has not where there are many of them, or where showing one runs code of the program."""

TRACED = "dynamoTraced"
"""What it says of local variables of a held trace, which can be run back to where they came from."""
TRACED_TENSOR = "dynamoTracedTensor"
"""What it says of those of them that are tensors; of all other tensors it says ``TENSOR``."""


class MarkedVariable(Variable, kw_only=True):
    """A variable with more commands than others."""

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

    # Of the server; the agent uses those that fit.
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
