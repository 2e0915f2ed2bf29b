"""The contract between the server and the debugged program, beyond DAP itself.

Custom requests and events, what a program tells about itself, environment variables, error ids. The options of
``launch`` and ``attach`` are in ``options``. Constants and structs; any thread.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Annotated

from msgspec import Meta, Struct, to_builtins

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
BREAKPOINT_MODES = (COMPILE_TIME, RUN_TIME, EAGER)

GRAPH_BREAK = "graph-break"
RECOMPILE = "recompile"
UNSUPPORTED = "unsupported"
BACKEND_FAILURE = "backend-failure"
SPECIALIZE = "specialize"
GUARD = "guard"
LIMIT = "limit"
GENERATED_CODE = "generated-code"
EXCEPTION_FILTERS = (
    GRAPH_BREAK,
    RECOMPILE,
    UNSUPPORTED,
    BACKEND_FAILURE,
    SPECIALIZE,
    GUARD,
    LIMIT,
    GENERATED_CODE,
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
COMPILES_CHANGED_EVENT = "dynamoCompilesChanged"
"""The answer to ``COMPILES`` has changed. No body."""


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
