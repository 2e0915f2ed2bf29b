"""Reads and writes a saved call's folder: ``call.json``, ``tensors.pt``, and the source files of its code.

``call.json`` is a table of values, none of which is code. The replayed code is in the source files; the table refers to
it by file and line. A folder may come from anybody: reading it runs nothing and imports nothing. The user must agree to
each content before it is run (``consent``). Runs in any process; a ``SavedCall`` lives as long as its reader.
"""

from __future__ import annotations

import ast
import hashlib
import keyword
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from dynamo_dap.protocol.requests.saved_calls import RecordCallBody
from dynamo_dap.protocol.texts import NOT_PYTHON, first_line_of
from dynamo_dap.protocol.user_files import open_regular, read_regular

VERSION = 1
CALL_FILE = "call.json"
TENSORS_FILE = "tensors.pt"
SOURCES_FOLDER = "sources"
REPLAYING = "dynamo_dap.debuggee.saved_calls.repeating_run"
"""The module that replays a call; its argument is the folder."""
_MOST_BYTES = 256 * 2**20
"""Maximum size of ``call.json``: tensors are in another file."""

# -- values: each refers to others by their index in the table ---------------------------------------------------------


class Scalar(Struct, tag_field="is", tag="scalar"):
    """A number, a text, None, or a torch object by its name: a device, a dtype."""

    type: str
    text: str


class Items(Struct, tag_field="is", tag="items"):
    """A sequence of items: a list, a tuple, a set, a slice, a ``torch.Size``."""

    type: str
    items: list[int]


class Pairs(Struct, tag_field="is", tag="pairs"):
    """A dictionary of some kind."""

    type: str
    pairs: list[tuple[int, int]]
    factory: int | None = None
    """The factory of a ``defaultdict``."""


class Named(Struct, tag_field="is", tag="named"):
    """An object of Python or an installed package, by module and name; without a name, the module."""

    module: str
    name: str = ""


class Member(Struct, tag_field="is", tag="member"):
    """A member of an enumeration."""

    kind: int
    name: str


class Stored(Struct, tag_field="is", tag="tensor", omit_defaults=True):
    """A tensor. ``key`` identifies its data in ``tensors.pt``; without data it is filled from ``seed``."""

    shape: list[int]
    dtype: str
    device: str
    requires_grad: bool = False
    key: str | None = None
    strides: list[int] | None = None
    seed: int = 0
    is_parameter: bool = False
    is_numpy: bool = False
    attributes: dict[str, int] = {}


class Space(Struct, tag_field="is", tag="module", omit_defaults=True):
    """A user's module: the globals that the call needs."""

    name: str
    package: str | None = None
    names: dict[str, int] = {}


class Function(Struct, tag_field="is", tag="function", omit_defaults=True):
    """A function: its code is the ``ordinal``-th of this name that begins at this line."""

    module: int
    """A ``Space``, or a ``Named`` module of a package."""
    name: str
    qualified_name: str
    line: int
    ordinal: int = 0
    source: str | None = None
    """The file in the folder; None for the module's file."""
    defaults: list[int] | None = None
    keyword_defaults: dict[str, int] | None = None
    closure: list[int] = []
    attributes: dict[str, int] = {}


class Cell(Struct, tag_field="is", tag="cell"):
    """A captured variable; None if it is not assigned."""

    contents: int | None


class Method(Struct, tag_field="is", tag="method"):
    """A function bound to an object."""

    owner: int
    function: int


class Class(Struct, tag_field="is", tag="class", omit_defaults=True):
    """A user's class, defined by its statement in a source file."""

    module: int
    qualified_name: str
    line: int
    source: str
    needs: list[str] = []
    """Globals that the statement itself reads."""
    names: dict[str, int] = {}
    """Captured variables that the statement reads, if it is inside a function."""


class Instance(Struct, tag_field="is", tag="instance", omit_defaults=True):
    """An object, by its attributes and, for a container, its items."""

    kind: int
    attributes: dict[str, int] = {}
    base: int | None = None
    """The ``Items`` or ``Pairs`` of an object that is also a container."""


class Lost(Struct, tag_field="is", tag="lost"):
    """A value that cannot be saved."""

    text: str
    """The value as text."""
    path: str
    """The expression for the value, as the user would write it."""
    reason: str


Value = (
    Scalar | Items | Pairs | Named | Member | Stored | Space | Function | Cell | Method | Class | Instance | Lost
)  # fmt: skip


class Conditions(Struct, rename="camel", omit_defaults=True):
    """What a call depends on besides its arguments."""

    compiled_by: int = -1
    """The backend: a name, or a function."""
    options: dict[str, int] = {}
    full_graph: bool = False
    modes: dict[str, str] = {}
    """Modes and defaults of torch by name: ``grad``, ``autocast cpu``, ``default dtype``."""
    settings: dict[str, int] = {}
    """Torch's settings that differ from their defaults: ``_dynamo.recompile_limit``."""
    random_state: str | None = None
    """The key in ``tensors.pt`` of the state of torch's CPU generator."""
    versions: dict[str, str] = {}


class SavedCall(Struct, rename="camel", omit_defaults=True):
    """The content of ``call.json``."""

    version: int
    function: int
    name: str
    """The function's name for users."""
    arguments: dict[str, int]
    """The numbers of the arguments, by parameter."""
    conditions: Conditions
    values: list[Value]
    sources: dict[str, str] = {}
    """The original path of each source file in the folder."""
    has_data: bool = True
    notes: list[str] = []
    """What differs from the original, as readable text."""

    @property
    def lost(self) -> list[Lost]:
        """The values that could not be saved."""
        return [each for each in self.values if isinstance(each, Lost)]


def is_saved_call(folder: Path) -> bool:
    """Return whether a folder looks like one with a saved call."""
    return (folder / CALL_FILE).is_file()


class BadFolder(Exception):
    """The folder has no valid saved call; the message says why."""


def write_call(folder: Path, call: SavedCall) -> None:
    """Write ``call.json``; the files that it names exist already."""
    (folder / CALL_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(call), indent=1))


@dataclass(frozen=True)
class Snapshot:
    """A folder's content, read once: exactly this is shown, agreed to and run."""

    folder: Path
    call: SavedCall
    texts: dict[str, str]
    """The source files, by their names in the folder; each line ends with ``\\n``."""
    tensors: bytes | None
    digest: str


def read_snapshot(folder: Path) -> Snapshot:
    """Read a folder, without running any of it.

    Raises:
        BadFolder: the folder has no saved call, or its files do not belong together.
    """
    path = folder / CALL_FILE
    digest = hashlib.sha256()
    try:
        with open_regular(path) as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise BadFolder(f"{path} is larger than any saved call")
        call = msgspec.json.decode(content, type=SavedCall)
    except OSError as error:
        raise BadFolder(f"{folder} holds no saved call: {CALL_FILE}: {error.strerror or error}") from None
    except msgspec.DecodeError as error:
        raise BadFolder(f"{path} cannot be read: {error}") from None
    if call.version != VERSION:
        raise BadFolder(f"{path} is of version {call.version}, and this dynamo-dap reads version {VERSION}")
    files = {CALL_FILE: content}
    real = Path(os.path.realpath(folder))
    for name in [*call.sources, *([TENSORS_FILE] if call.has_data else [])]:
        if real not in Path(os.path.realpath(folder / name)).parents or Path(name).is_absolute():
            raise BadFolder(f"{name} is not in {folder}")
        try:
            files[name] = read_regular(folder / name)
        except FileNotFoundError:
            raise BadFolder(f"{folder / name} is missing") from None
        except OSError as error:
            raise BadFolder(f"{folder / name} cannot be read: {error.strerror or error}") from None
    for name in sorted(files):
        digest.update(f"{name!r} {len(files[name])}\n".encode())
        digest.update(files[name])
    texts: dict[str, str] = {}
    for name in call.sources:
        try:
            texts[name] = files[name].decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
            ast.parse(texts[name])
        except NOT_PYTHON as error:
            raise BadFolder(f"{folder / name} is not Python: {first_line_of(error)}") from None
    _check(call, texts)
    return Snapshot(folder, call, texts, files.get(TENSORS_FILE), digest.hexdigest())


_OF_PYTHON = {"__file__", "__spec__", "__loader__", "__builtins__", "__path__"}


def _check(call: SavedCall, texts: dict[str, str]) -> None:
    count = len(call.values)
    for number in [call.function, *call.arguments.values(), *_references(call.conditions)]:
        _check_number(number, count)
    for value in call.values:
        for number in _references(value):
            _check_number(number, count)
        if isinstance(value, Function | Class):
            _check_code(call, value, texts)
        if isinstance(value, Space) and (names := _OF_PYTHON & value.names.keys()):
            raise BadFolder(f"two values are given for {min(names)} of the module {value.name}")


def _check_code(call: SavedCall, value: Function | Class, texts: dict[str, str]) -> None:
    owner = call.values[value.module]
    if isinstance(value, Class):
        if not isinstance(owner, Space):
            raise BadFolder(f"{value.qualified_name} is in no module of the call")
        if not all(each.isidentifier() and not keyword.iskeyword(each) for each in value.names):
            raise BadFolder(f"{value.qualified_name} refers to an invalid name")
    elif value.source is None and not (isinstance(owner, Named) and not owner.name):
        raise BadFolder(f"{value.qualified_name} is in no source file of this call")
    if value.source is None:
        # The allow list checks the qualified name, but the replay finds the code by the short one.
        if value.name != value.qualified_name.rpartition(".")[2]:
            raise BadFolder(f"the qualified name {value.qualified_name} does not end with the name {value.name}")
        return
    if value.source not in texts:
        raise BadFolder(f"{value.source} is not a source file of this call")
    if not nodes_of(texts[value.source], value):
        raise BadFolder(f"{value.source} has no {value.qualified_name} at line {value.line}")


def _check_number(number: int, count: int) -> None:
    if not 0 <= number < count:
        raise BadFolder(f"{CALL_FILE} refers to value {number}, but has only {count}")


def _references(value: Value | Conditions) -> Iterator[int]:
    """Yield the numbers of the values to which a value refers."""
    match value:
        case Items():
            yield from value.items
        case Pairs():
            yield from (number for pair in value.pairs for number in pair)
            yield from () if value.factory is None else (value.factory,)
        case Member() | Instance():
            yield value.kind
        case Method():
            yield from (value.owner, value.function)
        case Cell():
            yield from () if value.contents is None else (value.contents,)
        case Function() | Class():
            yield value.module
        case Conditions():
            yield from (value.compiled_by, *value.options.values(), *value.settings.values())
    if isinstance(value, Function):
        yield from (*(value.defaults or ()), *(value.keyword_defaults or {}).values(), *value.closure)
    if isinstance(value, Instance) and value.base is not None:
        yield value.base
    if isinstance(value, Stored | Function | Instance):
        yield from value.attributes.values()
    if isinstance(value, Space | Class):
        yield from value.names.values()


# -- code --------------------------------------------------------------------------------------------------------------


def nodes_of(text: str, value: Function | Class) -> list[tuple[int, ast.AST]]:
    """Return the statements or lambdas that may define a function or class of the table, with their first lines."""
    found: list[tuple[int, ast.AST]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(value, Class):
            if isinstance(node, ast.ClassDef) and node.name == value.qualified_name.rpartition(".")[2]:
                found.append((_first(node), node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
            if name == value.name and _first(node) == value.line:
                found.append((_first(node), node))
    return found


def _first(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda) -> int:
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *(each.lineno for each in decorators)])


def first_line(snapshot: Snapshot) -> tuple[Path, int]:
    """Return the file and the line at which the saved function's own statements begin.

    Raises:
        BadFolder: the function is not in a file of the folder.
    """
    function = snapshot.call.values[snapshot.call.function]
    if isinstance(function, Function) and function.source is not None:
        for _, node in nodes_of(snapshot.texts[function.source], function):
            assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            return snapshot.folder / function.source, _first_statement(node)
    raise BadFolder(f"{CALL_FILE} names no function of a file in {snapshot.folder}")


def _first_statement(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> int:
    if isinstance(node, ast.Lambda):
        return node.body.lineno
    is_text = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
    return node.body[1 if is_text and len(node.body) > 1 else 0].lineno


def reported(saved: RecordCallBody) -> str:
    """Return a summary of the saved call."""
    lines = [f"Saved the call of {saved.function} in {saved.folder} ({saved.bytes:,} bytes)"]
    lines += [f"  {note}" for note in saved.notes]
    lines += [f"  not saved: {each.path} ({each.text}): {each.reason}" for each in saved.lost]
    return "\n".join([*lines, f"Replay it with: {shlex.join(['dynamo-dap', 'replay', saved.folder])}", ""])
