"""Saves a call of a compiled function to a folder: its arguments, the objects that its code uses, its source files.

The code is followed without running it: from the names in a function's instructions to its globals and the modules that
it uses, and so on. So the folder has more than a single trace used, and a repeated call can take another path. Values
are read as the debugger reads them: no method of a user's class is called. Runs on the held thread, or the thread that
makes the call; a ``CallWriter`` lives for one call.
"""

from __future__ import annotations

import collections
import enum
import functools
import logging
import os
import sys
import types
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dynamo_dap.calls.folder import (
    SOURCES_FOLDER,
    TENSORS_FILE,
    VERSION,
    Cell,
    Class,
    Conditions,
    Function,
    Instance,
    Items,
    Lost,
    Member,
    Method,
    Pairs,
    SavedCall,
    Scalar,
    Space,
    Stored,
    Value,
    write_call,
)
from dynamo_dap.debuggee.agent.user_code import is_user_file
from dynamo_dap.debuggee.bytecode import source_code
from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.bytecode.line_table import qualified_name
from dynamo_dap.debuggee.bytecode.loaded_modules import file_of
from dynamo_dap.debuggee.saved_calls.values import (
    attributes_of,
    captured_values,
    class_name,
    file_of_class,
    may_be_called,
    member_path,
    named,
    plain_method,
    solid_base,
    text_of_file,
    text_of_scalar,
)
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import is_dynamos_global
from dynamo_dap.debuggee.torch_api.compiles import call_conditions
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import with_earlier_memory
from dynamo_dap.debuggee.torch_api.isolation import data_reading, metadata_reading
from dynamo_dap.debuggee.torch_api.objects import Tensor
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall

_MOST_VALUES = 1_000_000
_OF_MODULES = {"__name__", "__file__", "__spec__", "__loader__", "__builtins__", "__package__", "__doc__", "__path__"}
_SCALARS = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
_ITEMS = (list, tuple, set, frozenset, deque)
_PAIRS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
_NOT_KEPT = {"_compiled_call_impl"}
"""Attributes of modules that contain compiled code."""


class CannotSave(Exception):
    """A call cannot be saved at all; the message says why."""


class CallWriter:
    """Writes one call."""

    def __init__(self, folder: Path, *, with_data: bool) -> None:
        """Save into ``folder``, which must be empty."""
        self._folder = folder
        self._with_data = with_data
        self._values: list[Value | None] = []
        self._numbers: dict[int, int] = {}
        self._scalars: dict[tuple[str, str], int] = {}
        self._kept: list[object] = []
        """Keeps objects alive, so that no other object gets their identity."""
        self._waiting: deque[tuple[int, object, str]] = deque()
        self._tensors: dict[str, object] = {}
        self._sources: dict[str, tuple[str, str]] = {}
        """By ``co_filename``: the file in the folder, and its text."""
        self._codes: dict[str, list[types.CodeType]] = {}
        self._spaces: dict[int, tuple[Space, Mapping[str, object]]] = {}
        self._used_modules: set[int] = set()
        """Namespaces of modules that code uses as values: it may use any of their attributes."""
        self._names: set[str] = set()
        """Every name in the known code."""
        self._methods: dict[int, tuple[types.FunctionType, str]] = {}
        """Methods that no known code calls."""
        self._memory: Mapping[object, object] = {}
        self._notes: list[str] = []

    def write(self, call: CachedCall, *, full_graph: bool = False, notes: Iterable[str] = ()) -> SavedCall:
        """Save a call, and return a description.

        Raises:
            CannotSave: its code has no source.
            OSError: the folder cannot be written.
        """
        self._memory = call.memory
        self._notes += notes
        with metadata_reading():
            function, arguments = self._root(call), self._arguments(call)
            conditions = self._conditions(call, full_graph=full_graph)
            self._follow()
        self._folder.mkdir(parents=True)
        self._write_files()
        saved = SavedCall(
            version=VERSION,
            function=function,
            name=qualified_name(call.code),
            arguments=arguments,
            conditions=conditions,
            values=[each for each in self._values if each is not None],
            sources={name: os.path.abspath(path) for path, (name, _) in self._sources.items()},
            has_data=self._with_data,
            notes=self._notes,
        )
        write_call(self._folder, saved)
        return saved

    def _write_files(self) -> None:
        torch = sys.modules["torch"]
        if self._with_data:
            with data_reading():
                torch.save(self._tensors, self._folder / TENSORS_FILE)
        (self._folder / SOURCES_FOLDER).mkdir()
        for name, text in self._sources.values():
            (self._folder / name).write_text(text, encoding="utf-8")

    # -- what a call is --------------------------------------------------------------------------------------------

    def _root(self, call: CachedCall) -> int:
        closure = [self._number(cell, name) for name, cell in zip(call.code.co_freevars, call.closure, strict=True)]
        names = call.frame.f_globals
        found = self._function(call.code, names, str(names.get("__name__")))
        if isinstance(found, str):
            raise CannotSave(f"{qualified_name(call.code)} cannot be saved: {found}")
        found.closure = closure
        return self._add(found)

    def _arguments(self, call: CachedCall) -> dict[str, int]:
        given = {}
        for name in parameters_of(call.code):
            if name in call.arguments:
                given[name] = self._number(call.arguments[name], name)
            else:
                self._notes.append(f"the value of the argument {name} was freed before the call was saved")
        return given

    def _conditions(self, call: CachedCall, *, full_graph: bool) -> Conditions:
        torch = sys.modules["torch"]
        backend, options = call_conditions.backend_of(call.backend)
        changed = call_conditions.changed_settings()
        settings = {key: self._number(value, f"torch.{key}") for key, value in changed.items()}
        if self._with_data:
            self._tensors["random state"] = call_conditions.random_state()
        return Conditions(
            compiled_by=self._number(backend, "the backend"),
            options={name: self._number(value, f"option {name}") for name, value in options.items()},
            full_graph=full_graph,
            modes=call_conditions.modes(),
            settings=settings,
            random_state="random state" if self._with_data else None,
            versions={"python": sys.version.split()[0], "torch": str(torch.__version__), "platform": sys.platform},
        )

    # -- values ----------------------------------------------------------------------------------------------------

    def _number(self, value: object, path: str) -> int:
        """Return a value's place in the table; its contents are saved later."""
        if is_exactly(value, _SCALARS):
            scalar = Scalar(type(value).__name__, text_of_scalar(value))
            key = scalar.type, scalar.text
            if key not in self._scalars:
                self._scalars[key] = self._add(scalar)
            return self._scalars[key]
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = self._add(None)
            self._kept.append(value)
            self._waiting.append((number, value, path))
        return number

    def _add(self, value: Value | None) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def _follow(self) -> None:
        while self._waiting or self._newly_named():
            while self._waiting:
                number, value, path = self._waiting.popleft()
                if len(self._values) > _MOST_VALUES:
                    self._values[number] = Lost(class_name(value), path, f"there are more than {_MOST_VALUES:,} values")
                    continue
                found = self._value(value, path)
                self._values[number] = Lost(class_name(value), path, found) if isinstance(found, str) else found

    def _value(self, value: object, path: str) -> Value | str:
        """Return how a value is saved, or why it cannot be."""
        kind = type(value)
        for read in (self._of_torch, self._of_python, self._code):
            found = read(value, kind, path)
            if found is not None:
                return found
        found = named(value)
        return found if found is not None else self._instance(value, kind, path)

    def _of_torch(self, value: Any, kind: type, path: str) -> Value | str | None:
        torch = sys.modules["torch"]
        if issubclass(kind, torch.Tensor):
            return self._tensor(value, kind, path)
        if kind is torch.Size:
            return Items("Size", [self._number(int(each), path) for each in value])
        if is_exactly(value, (torch.device, torch.dtype, torch.layout, torch.memory_format)):
            return Scalar(kind.__name__, str(value))
        plain = call_conditions.plain_module(value)
        if plain is not None:
            return Items("same", [self._number(plain, path)])
        if kind is types.FunctionType and (wrapped := call_conditions.plain_function(value)) is not None:
            return Items("disabled" if wrapped[1] else "same", [self._number(wrapped[0], path)])
        if kind.__module__ == "numpy":
            return self._of_numpy(value, path)
        return None

    def _tensor(self, value: Tensor, kind: type, path: str) -> Value | str:
        torch = sys.modules["torch"]
        if not is_exactly(value, (torch.Tensor, torch.nn.Parameter)):
            return f"a tensor of the class {kind.__qualname__} has state besides its data"
        if value.is_nested or (not self._with_data and value.layout is not torch.strided):
            return "only strided tensors that are not nested can be saved"
        stored = Stored(
            list(value.shape),
            str(value.dtype),
            str(value.device),
            requires_grad=bool(value.requires_grad),
            is_parameter=kind is torch.nn.Parameter,
            attributes=self._each(value.__dict__, path),
        )
        return self._kept_data(stored, value)

    def _kept_data(self, stored: Stored, value: Tensor) -> Stored | str:
        if not self._with_data:
            stored.strides, stored.seed = list(value.stride()), len(self._values)
            return stored
        if value.device.type == "meta" or type(value).__name__ == "FakeTensor":
            return "it has no data"
        stored.key = str(len(self._tensors))
        with data_reading():
            self._tensors[stored.key] = with_earlier_memory(value, self._memory).detach()
        return stored

    def _of_numpy(self, value: object, path: str) -> Value | str | None:
        numpy = sys.modules["numpy"]
        torch = sys.modules["torch"]
        if not isinstance(value, numpy.ndarray | numpy.generic):
            return None
        try:
            with data_reading():
                tensor = torch.from_numpy(numpy.array(value))
        except TypeError:
            return f"torch has no dtype for an array of {value.dtype}"
        kind = "array" if isinstance(value, numpy.ndarray) else "number"
        stored = self._kept_data(Stored(list(tensor.shape), str(tensor.dtype), "cpu", is_numpy=True), tensor)
        if isinstance(stored, str) or kind == "array":
            return stored
        return Items("numpy number", [self._add(stored)])

    def _of_python(self, value: Any, kind: type, path: str) -> Value | None:
        if is_exactly(value, _ITEMS):
            return Items(kind.__name__, [self._number(each, f"{path}[{at}]") for at, each in enumerate(value)])
        if is_exactly(value, _PAIRS):
            return self._pairs(value, kind, path)
        if is_exactly(value, (slice, range)):
            return Items(kind.__name__, [self._number(each, path) for each in (value.start, value.stop, value.step)])
        if kind is functools.partial:
            parts = (value.func, tuple(value.args), dict(value.keywords))
            return Items("partial", [self._number(each, path) for each in parts])
        if kind is logging.Logger:
            return Scalar("logger", value.name)
        if issubclass(kind, enum.Enum):
            return Member(self._number(kind, path), str(object.__getattribute__(value, "_name_")))
        if kind is functools._lru_cache_wrapper:
            return Items("same", [self._number(value.__wrapped__, path)])
        return None

    def _pairs(self, value: Any, kind: Any, path: str) -> Pairs:
        pairs = [(self._number(key, path),
                  self._number(each, f"{path}[{key!r}]" if is_exactly(key, _SCALARS) else path))
                 for key, each in kind.items(value)]  # fmt: skip
        factory = self._number(value.default_factory, path) if kind is collections.defaultdict else None
        return Pairs(kind.__name__, pairs, factory)

    def _code(self, value: Any, kind: type, path: str) -> Value | str | None:
        if kind is types.CellType:
            try:
                return Cell(self._number(value.cell_contents, path))
            except ValueError:
                return Cell(None)
        if kind is types.MethodType:
            return Method(self._number(value.__self__, path), self._number(value.__func__, path))
        if kind is types.ModuleType and is_user_file(str(getattr(value, "__file__", None) or "<built in>")):
            self._used_modules.add(id(vars(value)))
            return self._space(vars(value), value.__name__)[1]
        if kind is types.FunctionType:
            return self._function_value(value, path)
        if issubclass(kind, type) and is_user_file(file_of_class(value)):
            return self._class(value, path)
        return None

    def _function_value(self, value: types.FunctionType, path: str) -> Value | str | None:
        importable = None if is_user_file(value.__code__.co_filename) else named(value)
        if importable is not None:
            return importable
        found = self._function(value.__code__, value.__globals__, value.__module__)
        if isinstance(found, str):
            return found
        found.closure = [
            self._number(cell, name)
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        ]
        found.defaults = (
            None if value.__defaults__ is None else [self._number(each, path) for each in value.__defaults__]
        )
        found.keyword_defaults = None if value.__kwdefaults__ is None else self._each(value.__kwdefaults__, path)
        found.attributes = self._each(value.__dict__, path)
        return found

    def _instance(self, value: object, kind: Any, path: str) -> Value | str:
        base = solid_base(kind)
        if base not in (object, *_ITEMS, *_PAIRS, int, float, str):
            return f"an object of {kind.__module__}.{kind.__qualname__} has state besides its attributes"
        found = Instance(self._number(kind, path))
        if base is not object:
            plain = (
                collections.OrderedDict(base.items(value))
                if base in _PAIRS
                else base(base.__iter__(value) if base in _ITEMS else value)
            )
            found.base = self._number(plain, path)
        state = dict(attributes_of(value, kind))
        if "_parameters" in state and "_modules" in state:
            state = {name: each for name, each in state.items() if name not in _NOT_KEPT}
        found.attributes = self._each(state, path)
        return found

    def _each(self, values: Mapping[str, object], path: str) -> dict[str, int]:
        return {str(name): self._number(value, member_path(path, str(name))) for name, value in values.items()}

    # -- code ------------------------------------------------------------------------------------------------------

    def _function(self, code: types.CodeType, names: dict[str, object], module: str | None) -> Function | str:
        """Return how to find a function in its source, or why it cannot be found."""
        path = code.co_filename
        source: str | None = None
        if is_user_file(path):
            text = self._source(path)
            if text is None:
                return f"{path} has no source"
            source = self._sources[path][0]
            space = self._space(names, module or "__main__")[0]
            self._read_by(code, names)
        else:
            owner = sys.modules.get(str(names.get("__name__")))
            if owner is None or vars(owner) is not names:
                return "its module cannot be imported"
            space = self._number(owner, str(module))
            self._codes_of(path, text_of_file(path) or "")
        alike = source_code.codes_at(self._codes.get(path, []), code.co_name, code.co_firstlineno)
        exact = [at for at, each in enumerate(alike) if each.co_code == code.co_code and each.co_names == code.co_names]
        if not alike:
            return f"{path} has changed and does not contain the function"
        if not exact:
            self._notes.append(f"{path} may have changed since {qualified_name(code)} was imported from it")
        at = exact[0] if exact else 0
        return Function(space, code.co_name, qualified_name(code), code.co_firstlineno, at, source)

    def _source(self, path: str) -> str | None:
        if path not in self._sources:
            text = text_of_file(path)
            if text is None:
                return None
            base = os.path.basename(path).strip("<>") or "source"
            base = base if base.endswith(".py") else f"{base}.py"
            known = {name for name, _ in self._sources.values()}
            number = 1
            while (name := f"{SOURCES_FOLDER}/{base}") in known:
                number += 1
                base = f"{number}-{os.path.basename(path)}"
            self._sources[path] = name, text
            self._codes_of(path, text)
        return self._sources[path][1]

    def _codes_of(self, path: str, text: str) -> None:
        if path not in self._codes:
            try:
                self._codes[path] = source_code.codes_in(text, path)
            except SyntaxError:
                self._codes[path] = []

    def _space(self, names: Mapping[str, object], name: str) -> tuple[int, Space]:
        """Return number and contents of the module whose globals are ``names``."""
        known = self._spaces.get(id(names))
        if known is None:
            package = names.get("__package__")
            space = Space(str(names.get("__name__", name)), package if isinstance(package, str) else None)
            self._spaces[id(names)] = known = space, names
            owner = sys.modules.get(space.name)
            number = self._add(space)
            if owner is not None and vars(owner) is names:
                self._numbers.setdefault(id(owner), number)
        space = known[0]
        return next(at for at, each in enumerate(self._values) if each is space), space

    def _read_by(self, code: types.CodeType, names: Mapping[str, object]) -> None:
        """Save the globals that code reads."""
        self._names |= source_code.all_names(code)
        space = self._space(names, "")[1]
        self._take(space, names, source_code.read_names(code))
        for name in source_code.imported_names(code):
            imported = sys.modules.get(name)
            if imported is not None and is_user_file(file_of(imported) or "<built in>"):
                self._number(imported, name)

    def _take(self, space: Space, names: Mapping[str, object], wanted: Iterable[str]) -> None:
        for name in sorted(wanted):
            if name in names and name not in space.names and name not in _OF_MODULES and not is_dynamos_global(name):
                space.names[name] = self._number(names[name], name)

    def _class(self, kind: type, path: str) -> Value | str:
        file = file_of_class(kind)
        text = self._source(file)
        module = sys.modules.get(kind.__module__)
        if text is None or module is None:
            return f"{file} has no source"
        methods = [each for each in (plain_method(each) for each in vars(kind).values()) if each is not None]
        own = [each for each in methods if each.__code__.co_filename == file]
        try:
            statement = source_code.class_statement(
                text, kind.__qualname__, {each.__code__.co_firstlineno for each in own}
            )
        except SyntaxError:
            statement = None
        if statement is None:
            return f"the present text of {file} does not contain the class"
        needs = source_code.names_of_statement(source_code.compiled_class(statement, file))
        number, space = self._space(vars(module), kind.__module__)
        found = Class(number, kind.__qualname__, statement.lineno, self._sources[file][0], sorted(needs))
        self._take(space, vars(module), needs)
        if "<locals>" in kind.__qualname__:
            local: dict[str, object] = {each.__name__: each for each in kind.__bases__}
            for each in own:
                local |= captured_values(each)
            found.names = self._each(local, path)
        for each in own:
            self._methods[id(each)] = each, kind.__name__
        return found

    def _newly_named(self) -> bool:
        """Save what newly known code calls by name; return whether there is anything new to follow."""
        for number, (method, owner) in list(self._methods.items()):
            if may_be_called(method.__name__, owner, self._names):
                del self._methods[number]
                self._read_by(method.__code__, method.__globals__)
        for identity in self._used_modules & self._spaces.keys():
            space, names = self._spaces[identity]
            self._take(space, names, self._names)
        return bool(self._waiting)


def parameters_of(code: types.CodeType) -> list[str]:
    """Return a function's parameter names: positional, by name only, ``*args``, ``**kwargs``."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return list(code.co_varnames[:count])
