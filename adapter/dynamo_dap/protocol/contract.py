"""The contract between the server and the debugged program, beyond DAP itself.

Custom requests and events, what a program tells about itself, environment variables, error ids. The options of
``launch`` and ``attach`` are in ``options``. Constants and structs; any thread.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Annotated

from msgspec import Meta, Struct, field, to_builtins

from dynamo_dap.protocol.types import Variable

CUSTOM_PREFIX = "dynamo"
"""Names of custom requests and events begin with this."""

# -- environment variables ---------------------------------------------------------------------------------------------

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

# -- modes and exception filters ---------------------------------------------------------------------------------------

STATEMENTS, INSTRUCTIONS = LISTING_FORMS = ("statements", "instructions")
"""The forms in which generated code is shown."""

COMPILE_TIME = "compile-time"
RUN_TIME = "run-time"
EAGER = "eager"
BACKWARD = "backward"
BREAKPOINT_MODES = (COMPILE_TIME, RUN_TIME, EAGER, BACKWARD)

GRAPH_BREAK = "graph-break"
RECOMPILE = "recompile"
UNSUPPORTED = "unsupported"
BACKEND_FAILURE = "backend-failure"
SPECIALIZE = "specialize"
GUARD = "guard"
LIMIT = "limit"
GENERATED_CODE = "generated-code"
NAN = "nan"
MISMATCH = "mismatch"
EXCEPTION_FILTERS = (
    GRAPH_BREAK,
    RECOMPILE,
    UNSUPPORTED,
    BACKEND_FAILURE,
    SPECIALIZE,
    GUARD,
    LIMIT,
    GENERATED_CODE,
    NAN,
    MISMATCH,
)
"""The agent's filters; debugpy has its own."""

# -- a connection's beginning ------------------------------------------------------------------------------------------

AUTHORIZE = "dynamoAuthorize"
"""The first request on each connection between the server and a process of the program. Whoever connects sends it.

Its arguments are ``AuthorizeArguments`` with those of ``ProcessInformation`` (a program), ``ChildOffer`` or
``TerminalArrival``. A program that listens is asked, and answers with its ``ProcessInformation``.
"""


class AuthorizeArguments(Struct):
    """What every process that connects sends."""

    token: str


def introduction(token: str, newcomer: Struct) -> dict[str, object]:
    """Return the arguments of ``AUTHORIZE`` for a process that connects to the server."""
    return {"token": token, **to_builtins(newcomer)}


class ProcessInformation(Struct, rename="camel"):
    """What a program tells about itself when it connects, or when the server connects to it."""

    process_id: int | None = None
    executable: str | None = None
    python_version: str | None = None
    torch_version: str | None = None


class ChildOffer(Struct, rename="camel"):
    """A child process of the program tells where it listens for a session of its own."""

    process_id: int
    host: str
    port: int
    access_token: str


class TerminalArrival(Struct, rename="camel", omit_defaults=True):
    """The supervisor in a terminal tells what it has started, or the ``problem`` with it."""

    process_id: int | None = None
    problem: str | None = None


class Invitation(Struct, frozen=True):
    """Where the server waits for a connection, and the token to send. Child processes read theirs from a file."""

    address: str
    token: str


class LaunchDescription(Struct, rename="camel", omit_defaults=True):
    """The value of ``LAUNCH_VARIABLE``."""

    address: str | None = None
    """The server's, ``HOST:PORT``; None to run without a debugger and only write a record."""
    token: str = ""
    program: str | None = None
    module: str | None = None
    code: str | None = None
    args: list[str] = []
    debugpy_address: str | None = None
    """Where the server waits for debugpy; None when ordinary Python is not debugged."""
    debugpy_token: str = ""
    copies: dict[str, str] = {}
    """Maps the path of a file to the copy that is read in its place: how a fix is tried."""
    results: str | None = None
    """Where to write what the program computed: see ``debuggee.bootstrap.trial``."""
    comparisons: str | None = None
    """Where to write how compiled graphs compare with Dynamo's: see ``debuggee.compile_time.comparing``."""
    compare_every: int = 0
    """Compare each N-th call of a graph; 0 for the first alone."""
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


# -- for clients: README.md, "Custom requests" -------------------------------------------------------------------------

COMPILES = "dynamoCompiles"
GRAPH = "dynamoGraph"
GUARDS = "dynamoGuards"
LISTING = "dynamoListing"
"""Have generated code shown in another form. No body; the stacks of stopped threads are invalid then."""
PATCH = "dynamoPatchInstruction"
"""Have calls of generated code run another instruction; the event ``invalidated`` follows."""
UNPATCH = "dynamoUnpatch"
"""Have calls run what Dynamo generated again; the event ``invalidated`` follows."""
TENSOR = "dynamoTensor"
"""Look at a part of a tensor: a page of elements, statistics, a picture. Its thread is stopped."""
COMPARISON = "dynamoComparison"
"""The newest call in which a compiled graph was found to differ, line by line. No arguments."""
TIMELINE = "dynamoTimeline"
"""The statements that a held trace has visited. Its thread is stopped in the trace."""
GO_TO = "dynamoGoTo"
"""Go to a moment of a held trace. No body; the event ``stopped`` follows."""
RUN_BACK = "dynamoRunBack"
"""Go back in a held trace to where something came from. No body; the event ``stopped`` follows."""
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


class ListingArguments(Struct, rename="camel"):
    """Arguments of ``LISTING``."""

    form: Annotated[str, Meta(extra={"choices": LISTING_FORMS})]


class PatchArguments(Struct, rename="camel"):
    """Arguments of ``PATCH``."""

    instruction_reference: str
    """The address of the instruction, as a stack frame or ``disassemble`` tells it."""
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
    """An address in the code whose patches to take back; None for those of all code."""


class UnpatchBody(Struct):
    """Body of the response to ``UNPATCH``."""

    count: int
    """How many instructions were patched."""


class Deviation(Struct, rename="camel", omit_defaults=True):
    """How one stage's results differ from those of the stage before."""

    same: bool
    """Whether they are within the tolerances of torch's own accuracy check."""
    largest: float | None = None
    """The largest difference; missing where it is no number: an Inf or a NaN on one side, another shape."""
    rmse: float | None = None


class ComparedLine(Struct, rename="camel", omit_defaults=True):
    """A line of the user's in one call."""

    path: str
    line: int
    function: str
    text: str
    operations: list[str]
    """What the line put into the graph."""
    compiled: Deviation | None = None
    """The compiled graph's results against those of Dynamo's graph; missing where they cannot be had."""
    dynamo: Deviation | None = None
    """Those of Dynamo's graph against those of the function run as ordinary Python."""


class ComparisonBody(Struct, rename="camel", omit_defaults=True):
    """Body of the response to ``COMPARISON``; one line of what ``dynamo-dap compare --json`` prints."""

    function: str
    compile_id: str
    backend: str
    call: int
    """Which call of the graph it is, of those that were looked at."""
    verdict: str
    """Whether something differs, and whose fault that is, for a person."""
    same: bool
    outputs: Deviation
    """Of what the compiled graph returned, the output that differs most."""
    stage: str | None = None
    """The stage at fault."""
    path: str | None = None
    """Where the first line is that differs."""
    line: int | None = None
    lines: list[ComparedLine] = []
    problem: str | None = None
    """Why something is missing."""


class TimelineArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``TIMELINE``."""

    thread_id: int
    start: int | None = None
    """The first entry to return; missing: so that the moment that is shown is in the middle."""
    count: int = 10_000


class TimelineEntry(Struct, rename="camel", omit_defaults=True):
    """A statement that was visited."""

    moment: int
    """For ``GO_TO``."""
    function: str
    path: str
    line: int
    depth: int
    """How many functions it was inlined through."""
    nodes: int
    """How many nodes the graph had."""
    has_breakpoint: bool = False


class TimelineBody(Struct, rename="camel", omit_defaults=True):
    """Body of the response to ``TIMELINE``."""

    entries: list[TimelineEntry]
    total: int
    current: int
    """The moment that is shown."""
    start: int = 0
    """How many entries come before these."""


class GoToMomentArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``GO_TO``."""

    thread_id: int
    moment: int


BOUND, MUTATED, GUARDED_AT, BECAME_NAN, MADE = ORIGINS = ("bound", "mutated", "guarded", "nan", "made")
"""Where something came from: a variable got its value, its object was changed in place, guards hold it to something,
its value was NaN for the first time; a node was added to the graph."""


class RunBackArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``RUN_BACK``."""

    frame_id: int
    name: str
    """A local variable of the frame; for ``made`` the name of a node."""
    to: Annotated[str, Meta(extra={"choices": ORIGINS})] = BOUND


ELEMENTS, STATISTICS, PICTURE = TENSOR_PARTS = ("elements", "statistics", "picture")
"""What of a tensor is looked at."""
HEAT_MAP, TILES, CHANNELS_FIRST, CHANNELS_LAST = TENSOR_PICTURES = ("map", "tiles", "chw", "hwc")
"""As what a tensor is drawn: one heat map, one for each index of a dimension, an image."""


class TensorArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``TENSOR``. The tensor is named by ``variablesReference``, else by ``expression``."""

    show: Annotated[str, Meta(extra={"choices": TENSOR_PARTS})] = ELEMENTS
    variables_reference: int | None = None
    """Where the children of the tensor are."""
    expression: str | None = None
    frame_id: int | None = None
    """Where expressions are evaluated."""
    minus: str | None = None
    """An expression for another tensor: what is shown is the difference."""
    selection: list[int | None] | None = None
    """For each dimension an index, or null where it is shown; missing: null for the last two, 0 before."""
    start_row: int = 0
    row_count: int = 100
    start_column: int = 0
    column_count: int = 100
    picture: Annotated[str, Meta(extra={"choices": TENSOR_PICTURES})] = HEAT_MAP
    width: int = 256
    """Of a picture, at most."""
    height: int = 256
    is_whole: bool = False
    """Whether statistics are to be of every element, however many there are: it takes its time."""


class TensorHistogram(Struct, rename="camel"):
    """How many elements lie in each of the intervals of equal width between two numbers."""

    low: float
    high: float
    counts: list[int]


class TensorStatistics(Struct, rename="camel", omit_defaults=True):
    """What all elements are like, or those of a sample."""

    count: int
    """Of the elements that were looked at."""
    of: Annotated[str, Meta(extra={"choices": ("all", "sample", "beginning")})]
    nans: int
    positive_infs: int
    negative_infs: int
    zeros: int
    minimum: str | None = None
    """Of those that are finite, as are the others below."""
    maximum: str | None = None
    mean: str | None = None
    deviation: str | None = None
    histogram: TensorHistogram | None = None


class TensorPicture(Struct, rename="camel", omit_defaults=True):
    """A picture: one byte a point of a heat map, four (red, green, blue, alpha) of an image; tile after tile."""

    width: int
    height: int
    tiles: int
    data: str
    """In base64. A byte of a heat map: 0 is ``low``, 252 is ``high``, 253 holds -inf, 254 inf, 255 NaN."""
    low: float
    high: float
    row_step: int
    """How many rows of the tensor one of the picture stands for: their mean, or in an image the first."""
    column_step: int
    is_sampled: bool = False
    """Whether not every element counted."""
    tile_count: int | None = None
    """How many tiles there would be, if not all are here."""


class TensorBody(Struct, rename="camel", omit_defaults=True):
    """Body of the response to ``TENSOR``: one of the three parts."""

    text: str
    """``Tensor f32[3, 4] cpu``."""
    shape: list[int]
    """Of what is shown."""
    pictures: list[Annotated[str, Meta(extra={"choices": TENSOR_PICTURES})]]
    """As what the tensor can be drawn, the likeliest first."""
    note: str | None = None
    """What is shown in place of the tensor's own elements, if it is not these."""
    elements: list[list[str]] | None = None
    statistics: TensorStatistics | None = None
    picture: TensorPicture | None = None


VS_CODE = "vscode"
"""Its ``clientID``."""
VARIABLE_MENU = "__vscodeVariableMenuContext"
"""Its own field of a variable, which tells extensions what that is."""


TRACED = "dynamoTraced"
"""What it says of local variables of a held trace, which can be run back to where they came from."""
TRACED_TENSOR = "dynamoTracedTensor"
"""What it says of those of them that are tensors; of all other tensors it says ``TENSOR``."""


class MarkedVariable(Variable, kw_only=True):
    """A variable for which clients may offer more than for others."""

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
