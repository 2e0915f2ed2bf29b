"""Compares the side effects of a compiled call with eager's: attributes, containers, captured variables, globals.

Generated code makes these stores after the graph has run. A ``State`` has an entry for each place that a function may
store to: the place as the user's expression, and facts about the value there. The states after a compiled call and
after an eager run differ where the call stores or returns a wrong value. The facts are plain values, which a pipe
carries between processes. Reading a state runs none of the program's code: no property, no ``__getattr__``, no
``__eq__``. Runs on the thread that makes the call, or in a fork of the process.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import hashlib
import inspect
import itertools
import operator
import random
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynamo_dap.debuggee.bytecode.exact_types import find_in_type, is_exactly
from dynamo_dap.debuggee.bytecode.loaded_modules import loaded_files
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import has_own_memory
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import has_all_memory, version_of
from dynamo_dap.debuggee.torch_api.isolation import data_reading
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import storage_of
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall
from dynamo_dap.debuggee.values.type_facts import (
    class_dictionary,
    instance_dictionary,
    module_of,
    mro_of,
)
from dynamo_dap.protocol.texts import counted

Roots = Mapping[str, Callable[[], object]]
"""For each expression, a function that returns the present value."""
Step = tuple[str, Any]
"""``attribute`` or ``item`` with its name or key, or ``value of object`` with the position of the key."""
Entry = tuple[str, tuple[Step, ...], str, Any]
"""The root of a value, the path from the root, the value's kind, and facts that are compared."""
State = tuple[dict[str, Entry], list[str]]
"""The entries by expression, those nearer to a root first; and what was left out, as texts for the user."""

_Memory = tuple[int, int] | None
"""The size in bytes of memory, and at which element a tensor begins in it: -1 if elements lie beyond it."""

RETURNED = "the returned value"

_MISSING = object()
_SHOWN_NAMES = 3
_MAXIMUM = 50_000
"""The maximum number of values in a state; those nearest to the roots are kept."""
_MAXIMUM_BYTES = 64 * 2**20
"""The maximum size of tensor contents in a state. Further tensors are compared only by shape and dtype."""
_MAXIMUM_TEXT = 2_000
"""The number of characters that are kept of a text; of the others, a checksum is kept."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_SEQUENCES = (list, tuple, collections.deque)
_CLOSED = (type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.CodeType)
"""Types whose attributes are not compared."""
_ITERABLES: tuple[Any, ...] = ([], (), "", b"", {}, {}.values(), {}.items(), set(), range(0))
_ITERATORS = tuple(type(iter(each)) for each in _ITERABLES)
"""Types of iterators whose position can be read without a change."""
_OF_MODULES = ("_parameters", "_buffers", "_modules")
"""The dictionaries of a ``torch.nn.Module`` whose items users write as attributes."""


def roots_of(call: CachedCall, codes: Sequence[types.CodeType]) -> Roots:
    """Return the values from which all stores of a call can be reached.

    These are its arguments, captured variables, and the globals that ``codes`` name.
    """
    captured = dict(zip(call.code.co_freevars, call.closure, strict=False))
    roots: dict[str, Callable[[], object]] = {name: functools.partial(_itself, value) for name, value in _given(call)}
    roots |= {name: functools.partial(_content, cell) for name, cell in captured.items()}
    modules = {path: namespace for _, path, namespace in loaded_files()}
    modules[call.code.co_filename] = call.frame.f_globals
    for code in codes:
        namespace = modules.get(code.co_filename)
        if namespace is None:
            continue
        for name in code.co_names:
            roots.setdefault(name, functools.partial(namespace.get, name, _MISSING))
    _add_captured(roots, codes)
    return roots


def _add_captured(roots: dict[str, Callable[[], object]], codes: Sequence[types.CodeType]) -> None:
    """Add the captured variables of functions in ``codes``, if the roots lead to these functions."""
    waiting, seen = [get() for get in roots.values()], set[int]()
    while waiting:
        for function in _functions_of(waiting.pop()):
            if function.__code__ not in codes or id(function) in seen:
                continue
            seen.add(id(function))
            for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
                root = name if name not in roots else f"{function.__code__.co_name}.{name}"
                roots.setdefault(root, functools.partial(_content, cell))
                waiting.append(_content(cell))


def _functions_of(value: Any) -> list[types.FunctionType]:
    """Return the functions of a value: itself, that of a bound method, or those that an object's classes define."""
    if type(value) is types.FunctionType:
        return [value]
    if type(value) is types.MethodType:
        return _functions_of(value.__func__)
    kinds = mro_of(value if issubclass(type(value), type) else type(value))
    return [each for kind in kinds for each in class_dictionary(kind).values() if type(each) is types.FunctionType]


def _given(call: CachedCall) -> Iterator[tuple[str, object]]:
    """Yield the arguments by name. For ``*args`` and ``**kwargs``, new objects in each run, yield the items."""
    code, values = call.code, call.arguments
    count = code.co_argcount + code.co_kwonlyargcount
    yield from ((name, values[name]) for name in code.co_varnames[:count] if name in values)
    starred: list[Any] = [values.get(name) for name in code.co_varnames[count : count + 2]]
    if code.co_flags & inspect.CO_VARARGS:
        yield from ((f"{code.co_varnames[count]}[{at}]", each) for at, each in enumerate(starred.pop(0) or ()))
        count += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        yield from ((f"{code.co_varnames[count]}[{name!r}]", each) for name, each in (starred.pop(0) or {}).items())


def _itself(value: object) -> object:
    return value


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


class Before:
    """The tensors that were reachable before a call stored anything."""

    def __init__(self, roots: Roots, written: Sequence[object]) -> None:
        """Note the tensors; ``written`` has the storages that the compiled graph has written to."""
        self._written = frozenset(written)
        self.roots: Roots = {**roots, **_random_states()}
        values = [value for *_, value in _walk(self.roots)]
        self.tensors = {id(value): value for value in values if has_own_memory(value)}
        self._storages = {storage_of(each): each.untyped_storage() for each in self.tensors.values()}
        """Their memory, which is kept alive: new memory must not get the same key."""
        self._objects = {id(value): found for value in values if (found := _object_keys(value))}
        """The identities of the keys and members that are objects, by the identity of their dictionary or set."""
        self._versions: dict[int, int] = {}
        self.note_versions()

    def note_versions(self) -> None:
        """Note the tensors' present versions, so that only later writes count as changes."""
        self._versions = {key: version_of(each) for key, each in self.tensors.items()}

    def state(self, returned: object) -> State:
        """Return the present state; ``returned`` is the function's result."""
        left, entries, left_out = _MAXIMUM_BYTES, dict[str, Entry](), _LeftOut()
        for expression, root, steps, value in _walk({**self.roots, RETURNED: lambda: returned}, left_out):
            kind, facts = _facts(value)
            if kind == "tensor":
                content, left = self._content(value, left)
                facts = (*facts, self._memory(value), content)
                left_out.tensors += content is None
            elif (objects := _object_keys(value)) and self._objects.get(id(value)) != objects:
                left_out.keys.append(expression)
            elif facts is None and (kind == "generator" or (kind == "other" and _has_position(value))):
                left_out.positions.append(expression)
            entries[expression] = (root, steps, kind, facts)
        return entries, left_out.texts()

    def _memory(self, value: Any) -> _Memory:
        """Return the size of a tensor's memory, unless it is new: a compiler may compute more or less around a view."""
        size = value.untyped_storage().nbytes()
        if not has_all_memory(value):
            return size, -1
        return (size, int(value.storage_offset())) if storage_of(value) in self._storages else None

    def _content(self, value: Any, left: int) -> tuple[object, int]:
        """Return a tensor's bytes, or its identity if it is unchanged; also how many bytes may still be kept.

        The content is None if the tensor is too large, or not on the CPU; it is "" if its memory has been released.
        """
        if not has_all_memory(value):
            return "", left
        known = self._versions.get(id(value))
        if known == version_of(value) and storage_of(value) not in self._written:
            return id(value), left
        size = value.numel() * value.itemsize
        if value.device.type != "cpu" or size > left:
            return None, left
        torch = sys.modules["torch"]
        with data_reading():
            plain = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
            return bytes(plain.view(torch.uint8).numpy().tobytes()) if size else b"", left - size

    def tensor(self, facts: tuple[Any, ...]) -> object:
        """Return the tensor with the ``facts`` of an entry; None if its contents were not kept."""
        torch = sys.modules["torch"]
        shape, dtype, _, content = facts
        if not isinstance(content, bytes):
            return self.tensors.get(content)
        kind = getattr(torch, dtype)
        if not content:
            return torch.empty(shape, dtype=kind)
        return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(kind).reshape(shape)


@dataclass
class _LeftOut:
    """What a state does not have, of the values that a call can reach."""

    is_cut: bool = False
    tensors: int = 0
    keys: list[str] = field(default_factory=list)
    """The dictionaries and sets whose keys or members are objects that may have changed."""
    positions: list[str] = field(default_factory=list)
    """The iterators and random generators whose position cannot be read, or not for a fork."""

    def texts(self) -> list[str]:
        """Return what was left out, for the user."""
        megabytes = _MAXIMUM_BYTES >> 20
        texts = [f"values beyond the nearest {_MAXIMUM:,} that the call can reach"] if self.is_cut else []
        if self.tensors:
            tensors = "1 stored tensor" if self.tensors == 1 else f"{self.tensors} stored tensors"
            texts.append(f"contents of {tensors}, beyond {megabytes} MiB or not on the CPU")
        if self.keys:
            texts.append(f"which objects are keys or members of {_some(self.keys)}")
        if self.positions:
            texts.append(f"the position of {_some(self.positions)}")
        return texts


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more


def identity_at(roots: Roots, root: str, steps: Sequence[Step]) -> tuple[str, object]:
    """Return the kind and facts of the value at a place. They change when a store changes the place."""
    value = roots[root]()
    for kind, name in steps:
        if kind == "attribute":
            value = (_attributes(value) or {}).get(name, _MISSING)
        else:
            value = _item(value, name) if kind == "item" else _value_of_object(value, name)
    found, facts = _facts(value)
    if found != "tensor":
        return found, (type(facts), facts)
    tensor: Any = value
    memory = tensor.untyped_storage()
    return found, (id(tensor), version_of(tensor), storage_of(tensor), memory.nbytes(), tensor.storage_offset())


def _item(value: Any, name: object) -> object:
    if issubclass(type(value), dict):
        return dict.get(value, name, _MISSING)
    if not issubclass(type(value), _SEQUENCES):
        return _MISSING
    return next((each for at, each in enumerate(_items(value)) if at == name), _MISSING)


def _value_of_object(value: Any, position: int) -> object:
    """Return the value of a dictionary's ``position``-th key that is an object."""
    if not issubclass(type(value), dict):
        return _MISSING
    values = (each for key, each in dict.items(value) if not _is_plain(key))
    return next(itertools.islice(values, position, None), _MISSING)


def _walk(roots: Roots, left_out: _LeftOut | None = None) -> Iterator[tuple[str, str, tuple[Step, ...], object]]:
    """Yield the expression, root, path and value of all reachable values, nearest first.

    If there are too many, note in ``left_out`` that the walk has ended early.
    """
    waiting: collections.deque[tuple[str, str, tuple[Step, ...], object]] = collections.deque(
        (name, name, (), get()) for name, get in roots.items()
    )
    seen: set[int] = set()
    for _ in range(_MAXIMUM):
        if not waiting:
            return
        found = waiting.popleft()
        yield found
        expression, root, steps, value = found
        if id(value) in seen or len(waiting) > _MAXIMUM:
            continue
        seen.add(id(value))
        for text, way, child in _children(value):
            waiting.append((f"{expression}{text}", root, (*steps, *way), child))
    if waiting and left_out is not None:
        left_out.is_cut = True


def _children(value: Any) -> Iterator[tuple[str, tuple[Step, ...], object]]:
    kind, _ = _facts(value)
    if kind == "sequence":
        for at, each in enumerate(_items(value)):
            yield f"[{at}]", (("item", at),), each
    elif kind == "dictionary":
        objects = itertools.count()
        for key, each in dict.items(value):
            if _is_plain(key):
                yield f"[{key!r}]", (("item", key),), each
            else:
                at = next(objects)
                yield f"[<object {at}>]", (("value of object", at),), each
    elif kind == "object":
        for name, each in (_attributes(value) or {}).items():
            if name in _OF_MODULES and issubclass(type(each), dict):
                for key, inner in dict.items(each):
                    yield f".{key}", (("attribute", name), ("item", key)), inner
            else:
                yield f".{name}", (("attribute", name),), each


def _items(value: Any) -> Iterator[object]:
    kind = next(each for each in _SEQUENCES if issubclass(type(value), each))
    return iter(kind.__iter__(value))


def _facts(value: Any) -> tuple[str, Any]:
    """Return a value's kind, and the facts in which two values of that kind may differ."""
    kind = type(value)
    if value is _MISSING:
        return "missing", None
    if is_exactly(value, _PLAIN):
        return "plain", _shortened(value) if kind in (str, bytes) else value
    if has_own_memory(value):
        return "tensor", (tuple(int(each) for each in value.shape), str(value.dtype).rpartition(".")[2])
    if issubclass(kind, _SEQUENCES):
        return "sequence", sum(1 for _ in _items(value))
    if issubclass(kind, (dict, set, frozenset)):
        objects = len(_object_keys(value))
        keys = sorted(repr(each) for each in _keys(value) if _is_plain(each))
        counted = [f"{objects} objects"] if objects else []
        return "dictionary" if issubclass(kind, dict) else "set", (*keys, *counted)
    if is_exactly(value, _ITERATORS):
        return "iterator", operator.length_hint(value)
    if (state := _state_of_generator(value)) is not None:
        return "generator", state or None
    closed = issubclass(kind, _CLOSED) or module_of(kind).startswith(("torch._", "builtins"))
    names = None if closed else _attributes(value)
    return ("other", None) if names is None else ("object", tuple(sorted(names)))


class _GlobalState:
    """Stands for the generator behind a module's functions, such as ``random.random``."""

    def __init__(self, read: Callable[[], object]) -> None:
        self.read = read


def _random_states() -> Roots:
    """Return the random states of the process, as roots: torch's own are compared with the graph."""
    found: dict[str, Callable[[], object]] = {}
    of_python = _GlobalState(random.getstate)
    found["the generator of the module random"] = functools.partial(_itself, of_python)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and "numpy.random" in sys.modules:
        of_numpy = _GlobalState(numpy.random.get_state)
        found["the generator of numpy.random"] = functools.partial(_itself, of_numpy)
    return found


def _state_of_generator(value: Any) -> str | None:
    """Return a checksum of a random generator's state; "" if it cannot be read, None if it is not a generator."""
    kind = type(value)
    numpy: Any = sys.modules.get("numpy.random")
    if kind is _GlobalState:
        state: object = value.read()
    elif kind is random.Random:
        state = value.getstate()
    elif numpy is not None and kind is numpy.RandomState:
        state = value.get_state(legacy=False)
    elif numpy is not None and kind is numpy.Generator and module_of(type(value.bit_generator)).startswith("numpy."):
        state = value.bit_generator.state
    elif kind is sys.modules["torch"].Generator:
        if value.device.type != "cpu":
            return ""
        with data_reading():
            state = value.get_state().numpy().tobytes()
    else:
        return None
    return hashlib.sha256(_bytes_of(state)).hexdigest()


def _bytes_of(state: Any) -> bytes:
    """Return all of a generator's state as bytes; its ``repr`` would leave out elements of arrays."""
    if isinstance(state, dict):
        return b"{" + b",".join(_bytes_of(each) for item in state.items() for each in item) + b"}"
    if isinstance(state, tuple | list):
        return b"(" + b",".join(map(_bytes_of, state)) + b")"
    return state.tobytes() if hasattr(state, "tobytes") else repr(state).encode()


def _keys(value: Any) -> Iterator[object]:
    """Yield the keys of a dictionary, or the members of a set; nothing for another value."""
    base = next((each for each in (dict, set, frozenset) if issubclass(type(value), each)), None)
    if base is not None:
        yield from base.__iter__(value)


def _object_keys(value: object) -> tuple[int, ...]:
    """Return the identities of the keys or members that are objects, in order."""
    return tuple(id(each) for each in _keys(value) if not _is_plain(each))


def _is_plain(key: Any) -> bool:
    """Return whether a key is a number, a text, or a tuple or frozenset of such keys."""
    if is_exactly(key, (tuple, frozenset)):
        return all(map(_is_plain, key))
    return is_exactly(key, _PLAIN)


def _has_position(value: object) -> bool:
    """Return whether a value is an iterator whose position cannot be compared."""
    kind = type(value)
    return module_of(kind) in ("builtins", "itertools") and find_in_type(value, "__next__") is not None


def _shortened(text: Any) -> Any:
    """Return a text, with a checksum instead of the characters beyond the first ones."""
    if len(text) <= _MAXIMUM_TEXT:
        return text
    checksum = hashlib.sha256(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text).hexdigest()
    rest = f"... ({len(text)} characters, SHA-256 {checksum})"
    return text[:_MAXIMUM_TEXT] + (rest if isinstance(text, str) else rest.encode())


def _attributes(value: object) -> dict[str, Any] | None:
    """Return an object's attributes; None if it cannot have any."""
    found: dict[str, object] = {}
    has_any = False
    for kind in mro_of(type(value)):
        for name, each in class_dictionary(kind).items():
            if type(each) is types.MemberDescriptorType and not module_of(kind).startswith("torch"):
                has_any = True
                with contextlib.suppress(AttributeError):
                    found[name] = each.__get__(value)
    if is_exactly(find_in_type(value, "__dict__"), (types.GetSetDescriptorType, types.MemberDescriptorType)):
        found |= instance_dictionary(value)
        has_any = True
    return found if has_any else None


@dataclass(frozen=True)
class StoredDifference:
    """A stored value that differs between compiled and eager."""

    expression: str
    root: str
    steps: tuple[Step, ...]
    by_python: str
    by_compiled: str
    values: tuple[Any, Any]
    """The value in the compiled call and in eager; each is None if it is neither plain nor a tensor."""


def differences(
    python: State, compiled: State, before: Before, are_same: Callable[[object, object], bool]
) -> Iterator[StoredDifference]:
    """Yield the differences.

    ``are_same`` compares two tensors of the same shape and dtype, or two numbers of type ``float``.
    """
    for expression, (root, steps, kind, facts) in python[0].items():
        other = compiled[0].get(expression)
        if other is None or "other" in (kind, other[2]):
            continue
        if kind == other[2] and _are_same(kind, facts, other[3], before, are_same):
            continue
        if kind == other[2] == "generator" and None in (facts, other[3]):
            continue
        texts = _text(kind, facts, other[3]), _text(other[2], other[3], facts)
        values = _value(other[2], other[3], before), _value(kind, facts, before)
        if kind == other[2] == "tensor" and not _is_memory_same(facts[2], other[3][2]):
            values = None, None  # the difference is not in the elements
        yield StoredDifference(expression, root, steps, *texts, values)


def _are_same(kind: str, one: Any, other: Any, before: Before, are_same: Callable[[object, object], bool]) -> bool:
    if kind == "plain":
        if type(one) is not type(other):
            return False  # True equals 1, and 1 equals 1.0
        is_equal = bool(one == other) or (one != one and other != other)  # noqa: PLR0124  (only NaN differs from itself)
        return is_equal or (isinstance(one, float) and are_same(one, other))
    if kind != "tensor":
        return bool(one == other)
    if one[:2] != other[:2] or not _is_memory_same(one[2], other[2]):
        return False
    if one[3] == other[3]:
        return True
    tensors = before.tensor(one), before.tensor(other)
    return any(each is None for each in tensors) or are_same(*tensors)


def _is_memory_same(one: _Memory, other: _Memory) -> bool:
    """Return whether the sizes of memory are equal; memory of an unknown size has all elements of its tensor."""
    if one is None or other is None:
        return all(each is None or each[1] >= 0 for each in (one, other))
    return one == other


def _value(kind: str, facts: Any, before: Before) -> object:
    return facts if kind == "plain" else before.tensor(facts) if kind == "tensor" else None


def _tensor_text(facts: Any, beside: object) -> str:
    text = f"a tensor {facts[1]}{list(facts[0])}"
    if not isinstance(beside, tuple) or facts[:2] != beside[:2]:
        return text
    if _is_memory_same(facts[2], beside[2]):
        return f"{text} with other contents"
    if facts[2] is None:
        return f"{text} with all its memory"
    size, offset = facts[2]
    begins = f" from element {offset}" if offset > 0 else ""
    return f"{text} in memory of {counted(size, 'byte')}{begins}"


def _text(kind: str, facts: Any, beside: object) -> str:
    if kind == "plain":
        text = repr(facts)
        return text if len(text) <= 80 else f"{text[:80]}..."
    if kind == "tensor":
        return _tensor_text(facts, beside)
    if kind == "sequence":
        return "1 item" if facts == 1 else f"{facts} items"
    if kind == "missing":
        return "not there"
    if kind == "iterator":
        return f"an iterator with {facts} items left"
    if kind == "generator":
        return f"in state {str(facts)[:8]}"
    if isinstance(beside, tuple) and isinstance(facts, tuple):
        own = [str(each) for each in facts if each not in beside]
        others = [str(each) for each in beside if each not in facts]
        return f"with {', '.join(own[:3])}" if own else f"without {', '.join(others[:3])}"
    return f"a {kind}"
