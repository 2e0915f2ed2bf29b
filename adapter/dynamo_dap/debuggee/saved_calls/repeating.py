"""Repeats a saved call: rebuilds its arguments and code from a folder, compiles it, and calls it.

The user has agreed to run what the folder names. Source files are compiled under their paths in the folder, so that
breakpoints are set there. Only the named functions and classes of the user's modules are made; the rest of a file does
not run. Runs on the main thread of its own process; everything that is rebuilt lives as long as the process.
"""

from __future__ import annotations

import ast
import builtins
import collections
import contextlib
import enum
import functools
import importlib
import io
import logging
import sys
import types
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dynamo_dap.calls.consent import is_allowed_home, is_allowed_name
from dynamo_dap.calls.folder import (
    TENSORS_FILE,
    BadFolder,
    Cell,
    Class,
    Conditions,
    Function,
    Instance,
    Items,
    Lost,
    Member,
    Method,
    Named,
    Pairs,
    Scalar,
    Snapshot,
    Space,
    Stored,
)
from dynamo_dap.debuggee.bytecode import source_code
from dynamo_dap.debuggee.torch_api.compiles import call_conditions

_RECURSION = 20_000


class Missing:
    """Replaces a value that could not be saved."""

    def __init__(self, lost: Lost) -> None:
        self._text = f"{lost.path} ({lost.text}) was not saved: {lost.reason}"

    def __getattr__(self, name: str) -> object:
        raise AttributeError(self._text)

    def __call__(self, *arguments: object, **named: object) -> object:
        """Report the missing value."""
        raise RuntimeError(self._text)

    def __repr__(self) -> str:
        return f"<{self._text}>"


class RepeatedCall:
    """A saved call, about to be made."""

    def __init__(self, snapshot: Snapshot, report: Callable[[str], None]) -> None:
        """Report what differs from the saved call by ``report``, as readable text."""
        self._snapshot = snapshot
        self._folder = snapshot.folder
        self._call = snapshot.call
        self._report = report
        self._made: dict[int, object] = {}
        self._tensors: dict[str, Any] = {}
        self._codes: dict[str, list[tuple[str, types.CodeType]]] = {}
        self._moved: set[str] = set()

    def run(self) -> object:
        """Rebuild the call, compile the function as the program did, and return the call's result.

        Raises:
            BadFolder: something in the folder cannot be rebuilt.
        """
        torch = importlib.import_module("torch")
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _RECURSION))
        conditions = self._call.conditions
        self._report_versions(conditions)
        if self._snapshot.tensors is not None:
            content = io.BytesIO(self._snapshot.tensors)
            try:
                self._tensors = torch.load(content, weights_only=True, map_location=self._place)
            except Exception as error:  # noqa: BLE001 (whatever a changed file makes torch raise)
                raise BadFolder(f"{self._folder / TENSORS_FILE} cannot be read: {error}") from None
        for number, value in enumerate(self._call.values):
            if isinstance(value, Space):
                self._value(number)
        function = self._value(self._call.function)
        arguments = {name: self._value(number) for name, number in self._call.arguments.items()}
        with contextlib.ExitStack() as stack:
            for key, number in conditions.settings.items():
                self._set(key, self._value(number))
            compiled = torch.compile(
                function,
                backend=self._value(conditions.compiled_by),
                fullgraph=conditions.full_graph,
                options={name: self._value(each) for name, each in conditions.options.items()} or None,
            )
            call_conditions.enter_modes(conditions.modes, stack.enter_context)
            if conditions.random_state in self._tensors:
                torch.set_rng_state(self._tensors[conditions.random_state].cpu())
            return called(compiled, function.__code__, arguments)

    def _report_versions(self, conditions: Conditions) -> None:
        torch = sys.modules["torch"]
        now = {"python": sys.version.split()[0], "torch": str(torch.__version__), "platform": sys.platform}
        for name, version in conditions.versions.items():
            if now.get(name, version) != version:
                self._report(f"saved with {name} {version}; this environment has {now[name]}")
        for note in self._call.notes:
            self._report(note)
        for lost in self._call.lost:
            self._report(f"{lost.path} ({lost.text}) was not saved: {lost.reason}")

    def _set(self, key: str, value: object) -> None:
        try:
            call_conditions.change_setting(key, value)
        except (AttributeError, ImportError) as error:
            self._report(f"the setting torch.{key} = {value!r} cannot be set: {error}")

    # -- values ----------------------------------------------------------------------------------------------------

    def _value(self, number: int) -> Any:
        if number not in self._made:
            value = self._call.values[number]
            try:
                self._made[number] = self._make(number, value)
            except BadFolder:
                raise
            except Exception as error:
                raise BadFolder(f"value {number}, a {type(value).__name__}: {type(error).__name__}: {error}") from error
        return self._made[number]

    def _make(self, number: int, value: object) -> object:
        maker: Callable[[int, object], object] = getattr(self, f"_make_{type(value).__name__.lower()}")
        return maker(number, value)

    def _make_scalar(self, number: int, value: Scalar) -> object:
        torch = sys.modules["torch"]
        if value.type in ("dtype", "layout", "memory_format"):
            found = getattr(torch, value.text.removeprefix("torch."))
            if not isinstance(found, getattr(torch, value.type)):
                raise BadFolder(f"{value.text} is not a {value.type}")
            return found
        if value.type == "device":
            return torch.device(self._place_of(value.text))
        if value.type == "logger":
            return logging.getLogger(value.text)
        if value.type == "NotImplementedType":
            return NotImplemented
        if value.type == "float":
            return float.fromhex(value.text)
        return complex(value.text) if value.type == "complex" else ast.literal_eval(value.text)

    def _make_items(self, number: int, value: Items) -> object:
        torch = sys.modules["torch"]
        filled: dict[str, tuple[object, str]] = {
            "list": ([], "append"),
            "set": (set(), "add"),
            "deque": (deque(), "append"),
        }
        if value.type in filled:
            made, add = filled[value.type]
            self._made[number] = made
            for each in value.items:
                getattr(made, add)(self._value(each))
            return made
        items = [self._value(each) for each in value.items]
        made_of: dict[str, Callable[[], object]] = {
            "tuple": lambda: tuple(items),
            "frozenset": lambda: frozenset(items),
            "Size": lambda: torch.Size(items),
            "slice": lambda: slice(*items),
            "range": lambda: range(*items),
            "partial": lambda: functools.partial(items[0], *items[1], **items[2]),
            "same": lambda: items[0],
            "disabled": lambda: torch.compiler.disable(items[0]),
            "numpy number": lambda: items[0][()],
        }
        if value.type not in made_of:
            raise BadFolder(f"unknown kind of sequence {value.type!r}")
        return made_of[value.type]()

    def _make_pairs(self, number: int, value: Pairs) -> object:
        kinds: dict[str, Callable[[], Any]] = {
            "dict": dict,
            "OrderedDict": collections.OrderedDict,
            "Counter": collections.Counter,
            "defaultdict": lambda: collections.defaultdict(
                None if value.factory is None else self._value(value.factory)
            ),
        }
        if value.type not in kinds:
            raise BadFolder(f"unknown kind of dictionary {value.type!r}")
        made = self._made[number] = kinds[value.type]()
        for key, each in value.pairs:
            made[self._value(key)] = self._value(each)
        return made

    def _make_named(self, number: int, value: Named) -> object:
        try:
            found = importlib.import_module(value.module)
            for part in filter(None, value.name.split(".")):
                found = getattr(found, part)
                # The allow list contains names by module: torch.os.system is not defined in torch.
                if isinstance(found, types.ModuleType) and not call_conditions.is_operator_space(found):
                    raise BadFolder(f"{value.module}.{value.name} goes through the module {found.__name__}")
        except (ImportError, AttributeError) as error:
            name = f"{value.module}{'.' if value.name else ''}{value.name}"
            raise BadFolder(f"{name} cannot be imported: {error}") from None
        home, own = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
        # A name that the user has allowed is not checked again.
        is_of_the_user = not is_allowed_name(value.module, value.name)
        if isinstance(home, str) and isinstance(own, str) and not is_of_the_user and not is_allowed_home(home, own):
            raise BadFolder(f"{value.module}.{value.name} is {home}.{own}, which a saved call may not name")
        return found

    def _make_member(self, number: int, value: Member) -> object:
        kind = self._value(value.kind)
        if not isinstance(kind, enum.EnumMeta):
            raise BadFolder(f"{value.name} is not a member of an enumeration")
        return kind[value.name]

    def _make_stored(self, number: int, value: Stored) -> object:
        torch = sys.modules["torch"]
        if value.key is None:
            made = self._invented(value)
        elif value.key in self._tensors:
            made = self._tensors[value.key]
        else:
            raise BadFolder(f"{TENSORS_FILE} has no tensor {value.key}")
        if value.is_numpy:
            return made.numpy()
        if value.is_parameter:
            made = torch.nn.Parameter(made, requires_grad=value.requires_grad)
        elif value.requires_grad:
            made = made.detach().requires_grad_()
        self._made[number] = made
        for name, each in value.attributes.items():
            setattr(made, name, self._value(each))
        return made

    def _invented(self, value: Stored) -> Any:
        torch = sys.modules["torch"]
        dtype = getattr(torch, value.dtype.removeprefix("torch."))
        generator = torch.Generator().manual_seed(value.seed)
        if dtype.is_floating_point or dtype.is_complex:
            content = torch.randn(value.shape, generator=generator).to(dtype)
        else:
            # 0 and 1 are indices of anything that has two items.
            content = torch.randint(0, 2, value.shape, generator=generator).to(dtype)
        place = self._place_of(value.device)
        made = torch.empty_strided(value.shape, value.strides or content.stride(), dtype=dtype, device=place)
        made.copy_(content)
        return made

    def _place(self, storage: object, device: str) -> object:
        """Return the storage if ``torch.load`` must leave it there; None moves it to its own device."""
        place = self._place_of(device)
        return None if place == device else storage

    def _place_of(self, device: str) -> str:
        torch = sys.modules["torch"]
        kind = device.partition(":")[0]
        if kind in ("cpu", "meta") or (kind == "cuda" and torch.cuda.is_available()):
            return device
        if kind not in self._moved:
            self._moved.add(kind)
            self._report(f"this machine has no {kind}: its tensors are on the CPU")
        return "cpu"

    def _make_instance(self, number: int, value: Instance) -> object:
        kind: object = self._value(value.kind)
        base: Any = None if value.base is None else self._value(value.base)
        kind_of_base: Any = object if base is None else type(base)
        is_whole = issubclass(kind_of_base, tuple | frozenset | int | float | str)
        made: Any = kind_of_base.__new__(kind, base) if is_whole else kind_of_base.__new__(kind)
        self._made[number] = made
        if issubclass(kind_of_base, list | deque):
            kind_of_base.extend(made, base)
        elif issubclass(kind_of_base, dict):
            for key, each in base.items():
                kind_of_base.__setitem__(made, key, each)
        elif issubclass(kind_of_base, set):
            set.update(made, base)
        for name, each in value.attributes.items():
            if hasattr(made, "__dict__"):
                vars(made)[name] = self._value(each)
            else:
                object.__setattr__(made, name, self._value(each))
        return made

    def _make_lost(self, number: int, value: Lost) -> object:
        return Missing(value)

    # -- code ------------------------------------------------------------------------------------------------------

    def _make_space(self, number: int, value: Space) -> object:
        module = types.ModuleType(value.name)
        vars(module)["__package__"] = value.package
        vars(module)["__builtins__"] = builtins
        self._made[number] = module
        sys.modules.setdefault(value.name, module)
        for name, each in value.names.items():
            vars(module)[name] = self._value(each)
        return module

    def _make_cell(self, number: int, value: Cell) -> types.CellType:
        made = self._made[number] = types.CellType()
        if value.contents is not None:
            made.cell_contents = self._value(value.contents)
        return made

    def _make_method(self, number: int, value: Method) -> object:
        return types.MethodType(self._value(value.function), self._value(value.owner))

    def _make_function(self, number: int, value: Function) -> types.FunctionType:
        module = self._value(value.module)
        path = str(module.__file__) if value.source is None else str(self._folder / value.source)
        if path not in self._codes:
            self._codes[path] = source_code.named_codes_in(self._text(value.source, path), path)
        alike = source_code.codes_at([code for _, code in self._codes[path]], value.name, value.line)
        if value.ordinal >= len(alike):
            raise BadFolder(f"{path} has no function {value.qualified_name} at line {value.line}")
        code = alike[value.ordinal]
        # The allow list has the qualified name, and this code was not shown.
        if value.source is None and (value.qualified_name, code) not in self._codes[path]:
            raise BadFolder(f"the function at line {value.line} of {path} is not {value.qualified_name}")
        closure = tuple(self._cell(each) for each in value.closure)
        made = types.FunctionType(code, vars(module), value.name, None, closure)
        self._made[number] = made
        made.__qualname__ = value.qualified_name
        if value.defaults is not None:
            made.__defaults__ = tuple(self._value(each) for each in value.defaults)
        if value.keyword_defaults is not None:
            made.__kwdefaults__ = {name: self._value(each) for name, each in value.keyword_defaults.items()}
        for name, each in value.attributes.items():
            vars(made)[name] = self._value(each)
        return made

    def _text(self, source: str | None, path: str) -> str:
        return Path(path).read_text(encoding="utf-8") if source is None else self._snapshot.texts[source]

    def _cell(self, number: int) -> types.CellType:
        """Return a captured variable; it may hold the function that captures it."""
        value = self._call.values[number]
        if not isinstance(value, Cell):
            raise BadFolder(f"value {number} is not a captured variable")
        made: types.CellType = self._value(number)
        return made

    def _make_class(self, number: int, value: Class) -> object:
        module = self._value(value.module)
        names = self._call.values[value.module]
        assert isinstance(names, Space), "a class must be from a module of the user"
        for name in value.needs:
            if name in names.names:
                vars(module)[name] = self._value(names.names[name])
        path = str(self._folder / value.source)
        text = self._text(value.source, path)
        statement = source_code.class_statement(text, value.qualified_name, {value.line})
        if statement is None:
            raise BadFolder(f"{path} has no class {value.qualified_name} at line {value.line}")
        outside = {name: self._value(each) for name, each in value.names.items()}
        return self._class_made(statement, path, vars(module), outside)

    @staticmethod
    def _class_made(statement: ast.ClassDef, path: str, names: dict[str, object], outside: dict[str, object]) -> object:
        if not outside:
            made: dict[str, object] = {}
            exec(source_code.compiled_class(statement, path), names, _Made(names, made))
            return made[statement.name]
        # The statement captures variables of a function. Here they are parameters of our function.
        around = ast.parse(f"def make({', '.join(outside)}):\n    return {statement.name}")
        around.body[0].body.insert(0, statement)  # type: ignore[attr-defined]  # a function has a body
        found: dict[str, Any] = {}
        exec(compile(ast.fix_missing_locations(around), path, "exec", dont_inherit=True), names, _Made(names, found))
        return found["make"](**outside)


class _Made(dict[str, Any]):
    """Receives the names that a top-level statement of a module binds, instead of the module."""

    def __init__(self, names: dict[str, object], made: dict[str, object]) -> None:
        super().__init__()
        self._names = names
        self._bound = made

    def __setitem__(self, name: str, value: object) -> None:
        self._bound[name] = value

    def __getitem__(self, name: str) -> object:
        return self._bound[name] if name in self._bound else self._names[name]


def called(function: Callable[..., object], code: types.CodeType, arguments: dict[str, Any]) -> object:
    """Call a function with arguments by parameter, as ``code`` has them."""
    positional = [arguments[name] for name in code.co_varnames[: code.co_argcount] if name in arguments]
    count = code.co_argcount + code.co_kwonlyargcount
    by_name = {name: arguments[name] for name in code.co_varnames[code.co_argcount : count] if name in arguments}
    if code.co_flags & 0x04:
        positional += arguments.get(code.co_varnames[count], ())
        count += 1
    if code.co_flags & 0x08:
        by_name |= arguments.get(code.co_varnames[count], {})
    return function(*positional, **by_name)
