"""Makes placeholders for values that Dynamo models, but that do not exist in Python yet.

Expressions use them. A generator, a ``zip``, a storage or a context manager exists in a trace only as a tracker. Other
objects need a copy with the traced code's changes, which is impossible without running code of their class. For
``isinstance``, ``type()`` and ``hasattr``, a placeholder has the class of its value. It has an identity, and can be put
into containers and formatted. Operations that would advance, enter, call, read or change the value raise an error. Runs
on the tracing thread; a placeholder lives as long as the evaluation that made it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from dynamo_dap.debuggee.bytecode.exact_types import is_a
from dynamo_dap.debuggee.torch_api.traced.trackers.forms import Form
from dynamo_dap.debuggee.values.model import EvaluationError
from dynamo_dap.debuggee.values.type_facts import class_dictionary, is_python_class, module_of, mro_of, name_of

_VALUES: tuple[type, ...] = (str, bytes, int, float, complex, bool)
"""Classes whose text and equality need the value itself, which does not exist yet."""

_own = object.__getattribute__


class Placeholder:
    """Base class of placeholders; ``placeholder`` makes a subclass with the value's special methods."""

    __slots__ = ("__represented__",)

    __represented__: tuple[Form, type, str]

    def __getattribute__(self, name: str) -> object:
        _, cls, text = _own(self, "__represented__")
        if name == "__class__":
            return cls
        if has_attribute(self, name):
            raise EvaluationError(f"'{name}' of {text} cannot be read while tracing")
        raise AttributeError(f"'{name_of(cls)}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        _refuse(self, "setting an attribute")

    def __delattr__(self, name: str) -> NoReturn:
        _refuse(self, "deleting an attribute")

    def __repr__(self) -> str:
        _, cls, text = _own(self, "__represented__")
        if issubclass(cls, _VALUES):
            _refuse(self, "its text")
        return str(text)

    def __format__(self, specification: str) -> str:
        return format(repr(self), specification)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        _refuse(self, "copying")


def placeholder(form: Form, cls: type, text: str) -> object:
    """Return a placeholder for the value of ``form``, an object of ``cls`` that is shown as ``text``."""
    methods = {name: _refusing(name) for name in _SPECIAL_METHODS if _find(cls, name) is not None}
    if "__next__" in methods:
        methods["__iter__"] = lambda self: self
    if _find(cls, "__eq__") is not object.__eq__:
        methods |= {"__eq__": _refusing("__eq__"), "__ne__": _refusing("__ne__"), "__hash__": _refusing("__hash__")}
    namespace = {"__slots__": (), "__module__": module_of(cls), **methods}
    made = type(name_of(cls), (Placeholder,), namespace)()
    object.__setattr__(made, "__represented__", (form, cls, text))
    return made


def is_placeholder(value: object) -> bool:
    """Return whether ``value`` is a placeholder."""
    return is_a(value, Placeholder)


def form_behind(value: object) -> Form:
    """Return the form that a placeholder represents."""
    form: Form = _own(value, "__represented__")[0]
    return form


def type_of(value: object) -> type:
    """Return ``type(value)``; for a placeholder, the type of its value."""
    return _own(value, "__represented__")[1] if is_placeholder(value) else type(value)


def has_attribute(value: object, name: str) -> bool:
    """Return ``hasattr(value, name)``; for a placeholder, of its value."""
    if not is_placeholder(value):
        return hasattr(value, name)
    _, cls, text = _own(value, "__represented__")
    if _find(cls, name) is not None:
        return True
    if is_python_class(cls) and not name.startswith("__"):
        raise EvaluationError(f"whether {text} has '{name}' is not known while tracing")
    return False


def _find(cls: type, name: str) -> object:
    return next((class_dictionary(base)[name] for base in mro_of(cls) if name in class_dictionary(base)), None)


def _refusing(name: str) -> Callable[..., object]:
    doing = _DOINGS.get(name, f"'{name}'")

    return lambda placeholder, *_, **__: _refuse(placeholder, doing)


def _refuse(placeholder: Placeholder, doing: str) -> NoReturn:
    raise EvaluationError(f"{doing} is not possible while tracing: {_own(placeholder, '__represented__')[2]}")


_DOINGS = {
    "__next__": "taking the next item, which would advance it,",
    "__anext__": "taking the next item, which would advance it,",
    "__await__": "awaiting",
    "__enter__": "entering",
    "__aenter__": "entering",
    "__exit__": "leaving",
    "__aexit__": "leaving",
    "__call__": "calling",
}

_BINARY = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or"
_OTHERS = """
    neg pos abs invert bool int float complex index round trunc floor ceil lt le gt ge len getitem setitem delitem
    contains iter reversed next call enter exit aenter aexit aiter anext await get set delete
"""
_SPECIAL_METHODS = tuple(
    f"__{prefix}{name}__"
    for prefix, names in (("", _BINARY), ("r", _BINARY), ("i", _BINARY), ("", _OTHERS))
    for name in names.split()
)
"""Methods that Python looks up in an object's class: the placeholder's class has those of the value's class."""
