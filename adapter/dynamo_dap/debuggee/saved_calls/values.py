"""Classifies values and finds where to import them from, without running user code, for saved calls.

The functions only read the program's objects. They run on the thread that saves.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import linecache
import operator
import sys
import types
from collections.abc import Iterable
from typing import Any

from dynamo_dap.calls.folder import Named
from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.bytecode.loaded_modules import file_of


def text_of_scalar(value: object) -> str:
    """Return the source text of a plain value: a number, a text, None."""
    return float.hex(value) if type(value) is float else repr(value)


def text_of_file(path: str) -> str | None:
    """Return the source of a file or a notebook cell, or None."""
    linecache.checkcache(path)
    lines = linecache.getlines(path)
    return "".join(lines) if lines else None


def class_name(value: object) -> str:
    """Return the class of a value, with its module."""
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def member_path(path: str, name: str) -> str:
    """Return the path of an attribute, as the user would write it."""
    if name in ("_modules", "_parameters", "_buffers"):
        return path
    return f"{path}.{name}"


def file_of_class(kind: object) -> str:
    """Return the file of a class; ``<built in>`` if it has none."""
    module = sys.modules.get(str(getattr(kind, "__module__", "")))
    file = file_of(module)
    own = [each.__code__.co_filename for each in map(plain_method, vars(kind).values()) if each is not None]
    return file if file else next((each for each in own if each != "<string>"), "<built in>")


def plain_method(value: object) -> types.FunctionType | None:
    """Return the function behind an attribute of a class."""
    for name in ("__func__", "fget", "func", "__wrapped__"):
        if is_exactly(value, (staticmethod, classmethod, property, functools.cached_property)):
            value = getattr(value, name, value)
    return value if type(value) is types.FunctionType else None


def captured_values(function: types.FunctionType) -> dict[str, object]:
    """Return the variables that a function captures, by name."""
    found: dict[str, object] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name != "__class__":
            try:
                found[name] = cell.cell_contents
            except ValueError:
                continue
    return found


_CALLED_BY_PYTHON_ONLY = {"__init__", "__new__", "__repr__", "__str__", "__del__", "__reduce__", "__getstate__"}


def may_be_called(method: str, owner: str, names: set[str]) -> bool:
    """Return whether code that uses ``names`` may call a method of the class ``owner``, by its name or implicitly."""
    if method in ("__init__", "__new__", "__post_init__"):
        return owner in names
    is_implicit = method.startswith("__") and method.endswith("__") and method not in _CALLED_BY_PYTHON_ONLY
    return is_implicit or method == "forward" or method in names


def solid_base(kind: Any) -> Any:
    """Return the innermost class of ``kind`` that no ``class`` statement made."""
    return next(base for base in kind.__mro__ if not _is_python(base))


def _is_python(kind: Any) -> bool:
    """Return whether a ``class`` statement made a class: it declares slots, or adds what it does not inherit."""
    own = vars(kind)
    if not kind.__flags__ & (1 << 9):  # made in C, as Python's own are
        return False
    return bool({"__slots__", "__dict__", "__weakref__"} & own.keys()) or any(
        _is_python(each) for each in kind.__bases__
    )


def attributes_of(value: object, kind: Any) -> Iterable[tuple[str, object]]:
    """Yield the attributes of an object of the class ``kind``, from its dictionary and slots."""
    with contextlib.suppress(AttributeError):
        yield from object.__getattribute__(value, "__dict__").items()
    for base in kind.__mro__:
        for name, member in vars(base).items():
            if type(member) is types.MemberDescriptorType:
                try:
                    yield name, member.__get__(value, kind)
                except AttributeError:
                    continue


_HOMES = ("builtins", "operator", "math", "torch", "torch.nn.functional", "typing")


def named(value: object) -> Named | None:
    """Return where to import an installed package's object from, if it has a name there."""
    if type(value) is types.ModuleType:
        return Named(value.__name__) if sys.modules.get(value.__name__) is value else None
    if type(value).__name__ == "OpOverload" or type(value).__name__ == "OpOverloadPacket":
        return Named("torch", f"ops.{value}")
    name = _qualified(value)
    if name is None:
        return None
    for home in (_module_of(value), *_HOMES):
        for one in (name, name.rpartition(".")[2], f"Tensor.{name.rpartition('.')[2]}"):
            if home and _found(home, one) is value:
                return Named(home, one)
    return None


_WITH_NAMES = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
)


def _qualified(value: Any) -> str | None:
    if issubclass(type(value), _WITH_NAMES):
        return str(value.__qualname__)
    # Special forms of typing are instances with a name in the module.
    name = vars(value).get("_name") if type(value).__module__ == "typing" and hasattr(value, "__dict__") else None
    return name if isinstance(name, str) else None


def _module_of(value: object) -> str | None:
    module = getattr(value, "__module__", None) if issubclass(type(value), _WITH_NAMES) else None
    return module if isinstance(module, str) and module in sys.modules else None


def _found(home: str, name: str) -> object:
    try:
        return operator.attrgetter(name)(importlib.import_module(home))
    except (AttributeError, ImportError):
        return None
