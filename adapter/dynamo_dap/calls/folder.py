"""The folder of a saved call: ``call.json``, ``tensors.pt``, and the source files of the code that it needs.

``call.json`` is a table of values, none of which is code: what replaying runs is in the source files, and named in the
table by file and line. A folder may come from a stranger. Reading it runs nothing and imports nothing; whoever wants to
run it is asked first, once for each content (``is_agreed``). Any process; a ``SavedCall`` lives as long as its reader.
"""

from __future__ import annotations

import ast
import hashlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from dynamo_dap.protocol.saved_calls import RecordCallBody
from dynamo_dap.records.folders import records_base

VERSION = 1
CALL_FILE = "call.json"
TENSORS_FILE = "tensors.pt"
SOURCES_FOLDER = "sources"
_MOST_BYTES = 256 * 2**20
"""Of ``call.json``: tensors are in a file of their own."""

# -- values: each names others by their place in the table -------------------------------------------------------------


class Scalar(Struct, tag_field="is", tag="scalar"):
    """A number, a text, None, or something of torch's that a text stands for: a device, a dtype."""

    type: str
    text: str


class Items(Struct, tag_field="is", tag="items"):
    """What is made of items in an order: a list, a tuple, a set, a slice, a ``torch.Size``."""

    type: str
    items: list[int]


class Pairs(Struct, tag_field="is", tag="pairs"):
    """A dictionary of some kind."""

    type: str
    pairs: list[tuple[int, int]]
    factory: int | None = None
    """Of a ``defaultdict``."""


class Named(Struct, tag_field="is", tag="named"):
    """Something of an installed package or of Python, by where it is found; a module without a name in it."""

    module: str
    name: str = ""


class Member(Struct, tag_field="is", tag="member"):
    """A member of an enumeration."""

    kind: int
    name: str


class Stored(Struct, tag_field="is", tag="tensor", omit_defaults=True):
    """A tensor: ``key`` in the file of tensors, or, without data, what it is like and how it is filled."""

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
    """A module of the user's: those of its globals that are needed."""

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
    """The file in the folder; None for the module's own."""
    defaults: list[int] | None = None
    keyword_defaults: dict[str, int] | None = None
    closure: list[int] = []
    attributes: dict[str, int] = {}


class Cell(Struct, tag_field="is", tag="cell"):
    """A captured variable; None while it has no value."""

    contents: int | None


class Method(Struct, tag_field="is", tag="method"):
    """A function bound to an object."""

    owner: int
    function: int


class Class(Struct, tag_field="is", tag="class", omit_defaults=True):
    """A class of the user's, made by its statement."""

    module: int
    qualified_name: str
    line: int
    source: str
    needs: list[str] = []
    """Globals that the statement itself reads."""
    names: dict[str, int] = {}
    """What else it reads, where it stands in a function."""


class Instance(Struct, tag_field="is", tag="instance", omit_defaults=True):
    """An object that is its attributes, and perhaps the items of a container."""

    kind: int
    attributes: dict[str, int] = {}
    base: int | None = None
    """The ``Items`` or ``Pairs`` of what it is besides."""


class Lost(Struct, tag_field="is", tag="lost"):
    """What cannot be saved."""

    text: str
    """What it was."""
    path: str
    """Where it was found, as the user would write it."""
    reason: str


Value = (
    Scalar | Items | Pairs | Named | Member | Stored | Space | Function | Cell | Method | Class | Instance | Lost
)  # fmt: skip


class Conditions(Struct, rename="camel", omit_defaults=True):
    """What besides its arguments a call depends on."""

    compiled_by: int = -1
    """The backend: a name, or a function."""
    options: dict[str, int] = {}
    full_graph: bool = False
    modes: dict[str, str] = {}
    """Modes and defaults of torch by name: ``grad``, ``autocast cpu``, ``default dtype``."""
    settings: dict[str, int] = {}
    """Torch's settings that are not as torch has them: ``_dynamo.recompile_limit``."""
    random_state: str | None = None
    """Key of the state of torch's generator for the CPU in the file of tensors."""
    versions: dict[str, str] = {}


class SavedCall(Struct, rename="camel", omit_defaults=True):
    """The content of ``call.json``."""

    version: int
    function: int
    name: str
    """For a person."""
    arguments: dict[str, int]
    """By parameter."""
    conditions: Conditions
    values: list[Value]
    sources: dict[str, str] = {}
    """By file in the folder: where it was."""
    has_data: bool = True
    notes: list[str] = []
    """What is not as it was, for a person."""

    @property
    def lost(self) -> list[Lost]:
        """What could not be saved."""
        return [each for each in self.values if isinstance(each, Lost)]


class BadFolder(Exception):
    """It is no folder of a saved call; the text says why, for a person."""


def write_call(folder: Path, call: SavedCall) -> None:
    """Write ``call.json``. What it names is there already."""
    (folder / CALL_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(call), indent=1))


def read_call(folder: Path) -> SavedCall:
    """Read what is in a folder, without running any of it.

    Raises:
        BadFolder: it is not one, or not as it was written.
    """
    path = folder / CALL_FILE
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise BadFolder(f"{path} is larger than any saved call")
        call = msgspec.json.decode(path.read_bytes(), type=SavedCall)
    except OSError as error:
        raise BadFolder(f"{folder} holds no saved call: {CALL_FILE}: {error.strerror or error}") from None
    except msgspec.DecodeError as error:
        raise BadFolder(f"{path} cannot be read: {error}") from None
    if call.version != VERSION:
        raise BadFolder(f"{path} is of version {call.version}, and this dynamo-dap reads version {VERSION}")
    _check(folder, call)
    return call


def _check(folder: Path, call: SavedCall) -> None:
    count = len(call.values)
    for number in [call.function, *call.arguments.values(), *_references(call.conditions)]:
        _check_number(number, count)
    for value in call.values:
        for number in _references(value):
            _check_number(number, count)
        if isinstance(value, Function | Class) and value.source is not None and value.source not in call.sources:
            raise BadFolder(f"{value.source} is no source file of this call")
    real = Path(os.path.realpath(folder))
    for name in [*call.sources, *([TENSORS_FILE] if call.has_data else [])]:
        if real not in Path(os.path.realpath(folder / name)).parents or Path(name).is_absolute():
            raise BadFolder(f"{name} is not in {folder}")
        if not (folder / name).is_file():
            raise BadFolder(f"{folder / name} is missing")
    for name in call.sources:
        try:
            ast.parse((folder / name).read_text(encoding="utf-8"))
        except (SyntaxError, ValueError) as error:
            raise BadFolder(f"{folder / name} is no Python: {error}") from None


def _check_number(number: int, count: int) -> None:
    if not 0 <= number < count:
        raise BadFolder(f"{CALL_FILE} names value {number} of {count}")


def _references(value: Value | Conditions) -> Iterator[int]:
    """Yield the numbers of the values that one names."""
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


# -- what would run, and who agreed ------------------------------------------------------------------------------------


def code_of(folder: Path, call: SavedCall) -> str:
    """Return the code that replaying the call may run, and the modules that it imports, as text for a person."""
    lines: list[str] = []
    for name, origin in call.sources.items():
        text = (folder / name).read_text(encoding="utf-8")
        wanted = _wanted_lines(call, name, text)
        lines.append(f"# {folder / name} (was {origin})")
        previous = 0
        for number, line in enumerate(text.splitlines(), 1):
            if number in wanted:
                if previous and number != previous + 1:
                    lines.append("       ...")
                lines.append(f"{number:5}  {line}")
                previous = number
        lines.append("")
    modules = sorted({each.module for each in call.values if isinstance(each, Named)} - {"builtins"})
    lines.append(f"Imports: {', '.join(modules) or 'nothing'}")
    return "\n".join(lines)


def _wanted_lines(call: SavedCall, source: str, text: str) -> set[int]:
    """Return the lines of the functions and classes of a source file that are named."""
    begins = {each.line for each in call.values if isinstance(each, Function | Class) and each.source == source}
    wanted: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(each.lineno for each in decorators)])
            if begins & {first, node.lineno}:
                wanted |= set(range(first, (node.end_lineno or first) + 1))
    return wanted


def _digest(folder: Path, call: SavedCall) -> str:
    digest = hashlib.sha256()
    for name in (CALL_FILE, *sorted(call.sources)):
        content = (folder / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _agreements() -> Path:
    return records_base().parent / "agreed-calls"


def is_agreed(folder: Path, call: SavedCall) -> bool:
    """Whether the user has agreed to run what is in the folder, as it is now."""
    return (_agreements() / _digest(folder, call)).is_file()


def agree(folder: Path, call: SavedCall) -> None:
    """Remember that the user agrees to it."""
    file = _agreements() / _digest(folder, call)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.write_text(f"{os.path.realpath(folder)}\n", encoding="utf-8")


def first_line(folder: Path, call: SavedCall) -> tuple[Path, int]:
    """Return the file and the line at which the saved function's own statements begin.

    Raises:
        BadFolder: it is not there.
    """
    function = call.values[call.function]
    if isinstance(function, Function) and function.source is not None:
        path = folder / function.source
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
                if function.line in (first, node.lineno):
                    return path, _first_statement(node)
    raise BadFolder(f"{CALL_FILE} names no function of a file in {folder}")


def _first_statement(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> int:
    if isinstance(node, ast.Lambda):
        return node.body.lineno
    is_text = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
    return node.body[1 if is_text and len(node.body) > 1 else 0].lineno


def told(saved: RecordCallBody) -> str:
    """Return what was saved, for a person."""
    lines = [f"Saved the call of {saved.function} in {saved.folder} ({saved.bytes:,} bytes)"]
    lines += [f"  {note}" for note in saved.notes]
    lines += [f"  not saved: {each.path} ({each.text}): {each.reason}" for each in saved.lost]
    return "\n".join([*lines, f"Make it again with: {shlex.join(['dynamo-dap', 'replay', saved.folder])}", ""])
