"""Reads and removes torch's cache entries: their guards, generated code, and memory.

Runs on any thread; only the code of removed entries is kept here. Reading has no effect on the program: no guard is
evaluated. Entries are removed in torch's own way, as when a guarded object has been freed.
"""

from __future__ import annotations

import functools
import gc
import itertools
import os
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from dynamo_dap.debuggee.bytecode.exact_types import find_in_type, is_a, is_one_of
from dynamo_dap.debuggee.torch_api.cache.guard_checks import GuardCheck, checks_of_manager
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import resume_function
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import compiled_codes, live_entries, user_function_of
from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.isolation import metadata_reading
from dynamo_dap.debuggee.torch_api.objects import Tensor

_DELETED_MANAGER = "torch._dynamo.guards:DeletedGuardManagerWrapper"
_RESET = "torch._C._dynamo.eval_frame:reset_code"
_CALLBACK = "torch._dynamo.convert_frame:CatchErrorsWrapper"

_TRACED = "torch._dynamo.bytecode_transformation:cleaned_instructions"

FORGETTING = Feature("forgetting cache entries", _DELETED_MANAGER, _RESET, _CALLBACK)
BRANCHES = Feature("distinguishing the two resume functions of a branch", _TRACED)


def functions_with_entries() -> list[CodeType]:
    """Return the functions with cache entries, by file and line, each followed by its resume functions."""
    found = [code for code in compiled_codes() if live_entries(code)]
    return sorted(found, key=_order)


def _order(code: CodeType) -> tuple[str, int, int, int]:
    function = user_function_of(code)
    resumed = resume_function(code)
    return function.co_filename, function.co_firstlineno, id(function), resumed.line if resumed else 0


@dataclass(frozen=True, slots=True)
class TracedInstruction:
    """An instruction as Dynamo traces it. The names of resume functions have these offsets."""

    name: str
    offset: int
    line: int | None
    jumps_to: int | None
    """The offset of the instruction to which it may jump."""


def traced_instructions(code: CodeType) -> list[TracedInstruction]:
    """Return Dynamo's instructions of ``code``: Dynamo removes some of Python's, and replaces others.

    Raises:
        FeatureMissing: this torch lacks a name that ``BRANCHES`` needs.
    """
    return [
        TracedInstruction(one.opname, one.offset, one.starts_line, None if one.target is None else one.target.offset)
        for one in BRANCHES.resolve(_TRACED)(code)
        if one.offset is not None
    ]


def family_of(code: CodeType) -> list[CodeType]:
    """Return ``code``, a user's function, and its resume functions that have cache entries."""
    function = user_function_of(code)
    return [one for one in functions_with_entries() if user_function_of(one) is function]


# -- guards ------------------------------------------------------------------------------------------------------------


def checks_of(entry: Any, failed: Sequence[str] = ()) -> list[GuardCheck]:
    """Return the checks of a cache entry; ``failed`` are the known failure messages."""
    return checks_of_manager(entry.guard_manager, failed)


def is_dynamos_file(path: str) -> bool:
    """Return whether a file belongs to Dynamo, whose lines install some guards in every compile."""
    return path.startswith(os.path.join(str(sys.modules["torch"].__path__[0]), "_dynamo") + os.sep)


# -- references of generated code -------------------------------------------------------------------------------------

_GRAPH_NAME = "__compiled_fn_"
_RESUME_NAME = "__resume_at_"


@dataclass(frozen=True, slots=True)
class References:
    """Dynamo's functions that an entry's code calls."""

    graphs: tuple[tuple[str, object], ...]
    """Global name and compiled graph."""
    resumes: tuple[tuple[str, CodeType], ...]
    """Global name and resume function."""


def references_of(entry: Any) -> References:
    """Return Dynamo's functions that a cache entry's code calls."""
    names = [name for code in _with_inner(entry.code) for name in code.co_names]
    wanted = list(dict.fromkeys(name for name in names if name.startswith((_GRAPH_NAME, _RESUME_NAME))))
    namespace = _globals_with(wanted, entry.code)
    resumes = [
        (name, getattr(namespace.get(name), "__code__", None)) for name in wanted if name.startswith(_RESUME_NAME)
    ]
    graphs = [(name, namespace.get(name)) for name in wanted if name.startswith(_GRAPH_NAME)]
    return References(tuple(graphs), tuple((name, code) for name, code in resumes if isinstance(code, CodeType)))


def _globals_with(names: Sequence[str], code: CodeType) -> dict[str, object]:
    """Return the globals with Dynamo's ``names``, which are unique in the process."""
    if not names:
        return {}
    for module in list(sys.modules.values()):
        namespace = getattr(module, "__dict__", None)
        if type(namespace) is dict and names[0] in namespace:
            return namespace
    for original in compiled_codes():
        if any(entry.code is code for entry in live_entries(original)):
            functions = [one for one in gc.get_referrers(original) if type(one) is types.FunctionType]
            return next((one.__globals__ for one in functions if names[0] in one.__globals__), {})
    return {}


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


# -- memory ------------------------------------------------------------------------------------------------------------

_MAXIMUM_OBJECTS = 5000
_CONTAINERS: tuple[Any, ...] = (list, tuple, set, frozenset)
_PARTIAL: tuple[Any, ...] = (functools.partial.func, functools.partial.args, functools.partial.keywords)
"""Descriptors that read a ``functools.partial`` without running code of a subclass."""


@dataclass(frozen=True, slots=True)
class Held:
    """The memory that an entry keeps alive, in bytes."""

    code: int
    tensors: int
    """Of constants and buffers in the compiled graph itself; parameters are inputs."""
    tensor_count: int
    backend_code: int
    """Of the backend's Python code, without compiled kernels."""
    is_whole: bool
    """Whether everything was measured."""


def held_by(entry: Any, graphs: Sequence[object]) -> Held:
    """Return the memory that a cache entry keeps alive, with its compiled graphs."""
    torch = sys.modules["torch"]
    storages: dict[int, int] = {}
    written = 0
    is_whole = True
    with metadata_reading():
        for count, found in enumerate(_reachable(graphs)):
            is_whole = count < _MAXIMUM_OBJECTS
            if is_a(found, torch.Tensor):
                storages |= _storage(found)
            elif is_a(found, CodeType):
                written += _size_of(found)
    return Held(_size_of(entry.code), sum(storages.values()), len(storages), written, is_whole)


def tensors_of(graph: object) -> list[object]:
    """Return the tensors that a compiled graph keeps alive, for example an optimizer's parameters."""
    torch = sys.modules["torch"]
    with metadata_reading():
        return [found for found in _reachable([graph]) if is_a(found, torch.Tensor)]


def _size_of(code: CodeType) -> int:
    return sum(sys.getsizeof(one) for one in _with_inner(code))


def _storage(tensor: Tensor) -> dict[int, int]:
    torch = sys.modules["torch"]
    if isinstance(tensor, torch.nn.Parameter) or type(tensor).__name__ == "FakeTensor":
        return {}
    try:
        storage = tensor.untyped_storage()
        return {storage._cdata: int(storage.nbytes())}
    except (RuntimeError, NotImplementedError):  # a tensor without storage
        return {}


def code_of_callable(function: object) -> Iterator[types.CodeType]:
    """Yield the code of a callable object and of the functions that it holds, except torch's; call nothing."""
    return (found for found in _reachable([function], with_calls=True) if is_a(found, types.CodeType))


def _reachable(roots: Sequence[object], *, with_calls: bool = False) -> Iterator[object]:
    """Yield tensors and the backend's code that are reachable from compiled graphs; nothing is called.

    ``with_calls`` adds the ``__call__`` of the program's objects.
    """
    torch: Any = sys.modules["torch"]
    own = os.path.dirname(torch.__file__)
    waiting, seen = list(roots), set[int]()
    while waiting and len(seen) <= _MAXIMUM_OBJECTS:
        found = waiting.pop()
        if id(found) in seen or is_one_of(found, (type, types.ModuleType, str, bytes, int, float)):
            continue
        seen.add(id(found))
        if is_a(found, torch.Tensor):
            yield found
            continue
        if is_a(found, types.FunctionType) and not found.__code__.co_filename.startswith(own):
            yield found.__code__
        waiting += _inside(found).values()
        if with_calls and is_a(call := find_in_type(found, "__call__"), types.FunctionType):
            waiting.append(call)


def _inside(found: object) -> dict[Any, object]:
    """Return what a container, a function or an object of torch holds; nothing for the program's objects."""
    if is_a(found, dict):
        return dict(enumerate(itertools.islice(dict.values(found), _MAXIMUM_OBJECTS)))
    for base in _CONTAINERS:
        if is_a(found, base):
            return dict(enumerate(itertools.islice(base.__iter__(found), _MAXIMUM_OBJECTS)))
    if is_a(found, types.MethodType):
        return {"self": found.__self__, "function": found.__func__}
    if is_a(found, types.FunctionType):
        cells = [cell.cell_contents for cell in found.__closure__ or () if _is_filled(cell)]
        return {**found.__dict__, **dict(enumerate(cells))}
    if is_a(found, functools.partial):
        return {number: read.__get__(found) for number, read in enumerate(_PARTIAL)}
    own = getattr(type(found), "__module__", "").partition(".")[0] in ("torch", "functools")
    try:
        return dict(object.__getattribute__(found, "__dict__")) if own else {}
    except AttributeError:
        return {}


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  (it raises when the cell is empty)
    except ValueError:
        return False
    return True


# -- forgetting --------------------------------------------------------------------------------------------------------


class CannotForget(Exception):
    """Cache entries cannot be removed now; the message says why."""


_kept: list[CodeType] = []
"""The code of removed entries: a thread may be about to run it, and torch has no reference to code it has looked up."""


def forget_entry(entry: Any) -> None:
    """Disable a cache entry; torch keeps its code until it forgets the function.

    Raises:
        CannotForget: torch's layout of the entry is unknown.
        FeatureMissing: this torch lacks a name.
    """
    gone = FORGETTING.resolve(_DELETED_MANAGER)
    manager = entry.guard_manager
    state, own = getattr(manager, "extra_state", None), getattr(manager, "cache_entry", None)
    if state is None or own is None:
        raise CannotForget("torch does not say which function this entry belongs to")
    _kept.append(entry.code)
    state.invalidate(own, gone("forgotten by the user of the debugger"))


def forget_function(code: CodeType) -> int:
    """Make torch forget all compiles of a function and its resume functions; return the number of entries.

    Raises:
        CannotForget: the function is being compiled.
        FeatureMissing: this torch lacks a name.
    """
    reset = FORGETTING.resolve(_RESET)
    family = family_of(code)
    if any(one is being for one in family for being in _codes_in_compile()):
        raise CannotForget(f"{code.co_name} is being compiled: forget its entries after that")
    count = 0
    for one in family:
        entries = live_entries(one)
        _kept.extend(entry.code for entry in entries)
        count += len(entries)
        reset(one)
    return count


def _codes_in_compile() -> Iterator[CodeType]:
    """Yield the code that threads are compiling: torch still needs its entries at the end."""
    callback = FORGETTING.resolve(_CALLBACK)
    for frame in sys._current_frames().values():
        current: types.FrameType | None = frame
        while current is not None:
            if current.f_code.co_name == "__call__" and type(current.f_locals.get("self")) is callback:
                compiled = getattr(current.f_locals.get("frame"), "f_code", None)
                if isinstance(compiled, CodeType):
                    yield compiled
            current = current.f_back
