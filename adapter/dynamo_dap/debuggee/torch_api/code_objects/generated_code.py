"""Observes generated code before it runs, and finds its original, its cache entry and its value stack.

Torch calls ``Notifier`` just before generated code runs, on the thread that runs it. The lookups read torch's own
tables and may be called on any thread. Code objects are compared by identity: generated ones can be unhashable, and
``==`` compares them by value. The value stack of a frame is read on the frame's own thread. Torch's function reads as
many slots as are requested: too many would be dangling pointers. ``bytecode.stack_depth`` computes the right number.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from types import CodeType, FrameType
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature, owner_of
from dynamo_dap.debuggee.torch_api.skipping import never_compile
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.debuggee.wrapping.patches import Outcome, Patches, Result, calling_frame

_SET_CALLBACK = "torch._C._dynamo.eval_frame:set_bytecode_debugger_callback"
_GET_CALLBACK = "torch._C._dynamo.eval_frame:get_bytecode_debugger_callback"
_ORIGINALS = "torch._dynamo.convert_frame:orig_code_map"
_CACHE_ENTRIES = "torch._C._dynamo.eval_frame:_debug_get_cache_entry_list"
_MARKER = "torch._dynamo.bytecode_debugger:BREAKPOINT_MARKER"
_DEBUG_CONTEXT = "torch._dynamo.bytecode_debugger:_DebugContext"
_OUTPUT_CODES = "torch._dynamo.convert_frame:output_codes"
_REGISTER_MARKED = "torch._C._dynamo.eval_frame:register_breakpoint_code"
_SET_STRATEGY = "torch._C._dynamo.eval_frame:set_code_exec_strategy"
_STRATEGY = "torch._C._dynamo.eval_frame:_FrameExecStrategy"
_ACTION = "torch._C._dynamo.eval_frame:_FrameAction"
_CLEANUPS = "torch._dynamo.utils:CleanupManager"
_RESUME_FUNCTIONS = "torch._dynamo.resume_execution:ContinueExecutionCache.generated_code_metadata"

NOTIFICATION = Feature("stopping in generated code", _SET_CALLBACK, _GET_CALLBACK)
ORIGINALS = Feature("finding the function that generated code was made from", _ORIGINALS)
CACHE_ENTRIES = Feature("the guards of generated code", _CACHE_ENTRIES)
MARKERS = Feature("torch._dynamo.bytecode_debugger.breakpoint()", _MARKER, _DEBUG_CONTEXT, _SET_CALLBACK, _GET_CALLBACK)
AS_PYTHON_CALLS = Feature("running a compiled function as ordinary Python", _SET_STRATEGY, _STRATEGY, _ACTION)
REPLACING = Feature("patching generated code", _ORIGINALS, _CACHE_ENTRIES, _OUTPUT_CODES, _REGISTER_MARKED)
ONCE = Feature(
    "applying what-if changes to a call",
    _CLEANUPS,
    _ORIGINALS,
    _CACHE_ENTRIES,
    _OUTPUT_CODES,
    _REGISTER_MARKED,
)
RESUME_FUNCTIONS = Feature("distinguishing resume functions from the user's", _RESUME_FUNCTIONS)


class Notifier:
    """Calls a function with each code object that Dynamo generated, just before the code runs."""

    # If torch's own debugger starts after ours, it restores ours at its end, and reads these attributes of it.
    _monitoring_instruction_callback = _monitoring_return_callback = _monitoring_raise_callback = None
    _tracked_codes: tuple[CodeType, ...] = ()

    def __init__(self, notify: Callable[[CodeType], None], on_problem: Callable[[str], None]) -> None:
        """Call ``notify`` on the thread that will run the code; ``on_problem`` logs the current exception."""
        self._notify = notify
        self._on_problem = on_problem
        self._previous: Callable[[CodeType], None] | None = None
        self._installed = False
        self._lock = lock("new generated code", Level.HOOKS)
        # One object forever: a bound method is a new object at each access, and torch keeps the one it got.
        self._callback = self._about_to_run

    @property
    def is_installed(self) -> bool:
        """Whether the hook is installed."""
        return self._installed

    def install(self) -> None:
        """Install the hook in front of an existing one. Runs on any thread; harmless if it is installed."""
        with self._lock:
            if self._installed:
                return
            current = NOTIFICATION.resolve(_GET_CALLBACK)()
            self._previous = None if current is self._callback else current
            never_compile(self._callback)
            NOTIFICATION.resolve(_SET_CALLBACK)(self._callback)
            self._installed = True

    def remove(self) -> None:
        """Remove the hook and restore the one before it. Runs on any thread; harmless if it is not installed."""
        with self._lock:
            if not self._installed:
                return
            self._installed = False
            # Otherwise another tool has a hook in front of ours, and may call ours, which then only passes calls on.
            if NOTIFICATION.resolve(_GET_CALLBACK)() is self._callback:
                NOTIFICATION.resolve(_SET_CALLBACK)(self._previous)

    def _about_to_run(self, code: CodeType) -> None:
        """Report generated code. Never raise: an exception that leaves this function ends the process."""
        try:
            if self._installed:
                self._notify(code)
        except KeyboardInterrupt:
            # The exception was meant for the program, but cannot reach it from here.
            threading.Timer(0.0, _thread.interrupt_main).start()
        except BaseException:  # noqa: BLE001  (torch calls this during the program's compile)
            self._report("reporting generated code")
        previous = self._previous
        if previous is not None:
            try:
                previous(code)
            except BaseException:  # noqa: BLE001  (torch calls this during the program's compile)
                self._report("calling the hook for generated code that was there before")

    def _report(self, doing: str) -> None:
        with contextlib.suppress(BaseException):
            self._on_problem(doing)


class MarkerHook:
    """Replaces torch's terminal debugger for code with its breakpoint marker.

    torch starts a ``_DebugContext``, which reads commands from standard input, around code with the marker if no
    callback for generated code is set. The replacement installs a ``Notifier`` for as long as such code runs.
    Without a marker, torch never calls the replacement.
    """

    def __init__(self, notifier: Notifier) -> None:
        """Install ``notifier`` while marked code runs."""
        self._notifier = notifier
        self._patches = Patches(MARKERS.name)

    def install(self) -> None:
        """Install the replacement. Runs on any thread; harmless when it is installed."""
        MARKERS.require()
        if not self._patches.is_installed:
            self._patches.around(*owner_of(_DEBUG_CONTEXT), self._make)

    def remove(self) -> None:
        """Remove the replacement. Runs on any thread; harmless when it is not installed."""
        self._patches.remove()

    def _make(self) -> Generator[None, Outcome, Result | None]:
        caller = calling_frame().f_code
        if caller.co_name != "debug" or caller.co_filename != sys.modules["torch._dynamo.bytecode_debugger"].__file__:
            return Result(_MarkedCode(self._notifier))
        yield None
        return None


class _MarkedCode:
    """The replacement around one run of code with the marker."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self._was_installed = True

    def __enter__(self) -> _MarkedCode:
        self._was_installed = self._notifier.is_installed
        self._notifier.install()
        return self

    def __exit__(self, *exception: object) -> None:
        if not self._was_installed:
            self._notifier.remove()


def is_marker(value: object) -> bool:
    """Return whether a constant of generated code is torch's breakpoint marker."""
    return MARKERS.problem is None and value is MARKERS.resolve(_MARKER)


def has_marker(code: CodeType) -> bool:
    """Return whether ``code`` holds torch's breakpoint marker."""
    return any(is_marker(constant) for constant in code.co_consts)


def original_of(code: CodeType) -> CodeType | None:
    """Return the original of generated ``code``: the user's function, or a resume function.

    None if Dynamo did not generate ``code``, or has forgotten it.
    """
    if ORIGINALS.problem is not None:
        return None
    original: CodeType | None = ORIGINALS.resolve(_ORIGINALS).get(code)
    return original


def compiled_codes() -> list[CodeType]:
    """Return the originals of all generated code: user functions and resume functions."""
    if ORIGINALS.problem is not None:
        return []
    known = ORIGINALS.resolve(_ORIGINALS)
    # Torch's dictionary by identity cannot be iterated, but it has a plain dictionary of its values.
    return list({id(code): code for code in list(known.values.values())}.values())


def live_entries(original: CodeType) -> list[Any]:
    """Return those cache entries of a function that calls can still hit, in the order in which torch tries them."""
    if CACHE_ENTRIES.problem is not None:
        return []
    entries: Sequence[Any] = CACHE_ENTRIES.resolve(_CACHE_ENTRIES)(original)
    return [entry for entry in entries if type(entry.guard_manager).__name__ != _DELETED_MANAGER]


_DELETED_MANAGER = "DeletedGuardManagerWrapper"
"""Torch's replacement for the guards of an entry that must never match again."""


def user_function_of(original: CodeType) -> CodeType:
    """Return the user's function that ``original`` is, or resumes."""
    if RESUME_FUNCTIONS.problem is None:
        metadata = RESUME_FUNCTIONS.resolve(_RESUME_FUNCTIONS).get(original)
        code = getattr(metadata, "code", None)
        if isinstance(code, CodeType):
            return code
    return original


def cache_entry_of(code: CodeType) -> Any:
    """Return torch's cache entry whose generated code is or was ``code``; None if the entry has been dropped."""
    original = original_of(code)
    if original is None or CACHE_ENTRIES.problem is not None:
        return None
    running = versions_of(code)[-1]
    entries: Sequence[Any] = CACHE_ENTRIES.resolve(_CACHE_ENTRIES)(original)
    return next((entry for entry in entries if entry.code is running), None)


def is_served(code: CodeType | None) -> bool:
    """Return whether a cache entry may still run ``code``; False only if torch has certainly dropped it."""
    if code is None:
        return False
    if ORIGINALS.problem is not None or CACHE_ENTRIES.problem is not None:
        return True
    original = original_of(code)
    if original is None:
        return False
    versions = {id(version) for version in versions_of(code)}
    return any(id(entry.code) in versions for entry in live_entries(original))


_versions: dict[int, list[CodeType]] = {}
"""By ``id`` of a code object whose cache entry runs other code now: all versions of the code, as in ``versions_of``.

All are kept, since a thread may be about to run any of them: torch has no reference to code that it has looked up.
"""


def versions_of(code: CodeType) -> Sequence[CodeType]:
    """Return the versions that the cache entry of ``code`` has run: Dynamo's own code first, the present one last."""
    return _versions.get(id(code), (code,))


class CannotReplace(Exception):
    """A cache entry cannot be made to run other code; the text says why, and nothing was changed."""


def run_instead(code: CodeType, replacement: CodeType) -> None:
    """Let the cache entry of ``code`` run ``replacement`` from its next call on, under the same guards.

    Runs on any thread. Both must take the same arguments and have the same cells.

    Raises:
        CannotReplace: the entry has been dropped, or torch's layout of it is unknown.
        FeatureMissing: this torch lacks a name.
    """
    REPLACING.require()
    entry = cache_entry_of(code)
    original = original_of(code)
    if entry is None or original is None:
        raise CannotReplace("its cache entry no longer exists: Dynamo dropped it, or its function was freed")
    # Dynamo registers its generated code in the same tables.
    REPLACING.resolve(_ORIGINALS)[replacement] = original
    REPLACING.resolve(_OUTPUT_CODES).add(replacement)
    if has_marker(replacement):
        REPLACING.resolve(_REGISTER_MARKED)(replacement)
    versions = _versions.get(id(code), [code])
    slot = _slot_of_code(entry)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(replacement))
    slot.value = id(replacement)
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(versions[-1]))
    versions.append(replacement)
    for version in (code, replacement):
        _versions[id(version)] = versions


_INSTANCE_VALUE = 2 * ctypes.sizeof(ctypes.c_void_p)
"""Offset of the pointer to the C++ object in a pybind11 instance, right after the header of a Python object."""


def _slot_of_code(entry: Any) -> ctypes.c_size_t:
    """Return the memory that holds a cache entry's pointer to its code, since ``code`` has no setter.

    ``CacheEntry`` of torch 2.13 to 2.15 begins with three Python objects. The entry's attributes have the same three,
    which proves the layout.
    """
    begin = ctypes.c_size_t.from_address(id(entry) + _INSTANCE_VALUE).value
    objects = (ctypes.c_size_t * 3).from_address(begin)
    if list(objects) != [id(entry.guard_manager), id(entry.code), id(entry.compile_id)]:
        raise CannotReplace("this version of torch stores the code of a cache entry in an unknown place")
    return ctypes.c_size_t.from_address(begin + ctypes.sizeof(ctypes.c_size_t))


def run_once(code: CodeType, replacement: CodeType, cleanups: list[object]) -> None:
    """Let ``code``, which is running, run only once: its cache entry runs ``replacement`` from the next call on.

    ``cleanups`` run when ``code`` is freed.

    Raises:
        CannotReplace: the entry has been dropped, or torch's layout of it is unknown.
        FeatureMissing: this torch lacks a name.
    """
    ONCE.require()
    entry, original = cache_entry_of(code), original_of(code)
    if entry is None or original is None:
        raise CannotReplace("its cache entry no longer exists")
    slot = _slot_of_code(entry)
    ONCE.resolve(_ORIGINALS)[replacement] = original
    ONCE.resolve(_OUTPUT_CODES).add(replacement)
    if has_marker(replacement):
        ONCE.resolve(_REGISTER_MARKED)(replacement)
    manager = ONCE.resolve(_CLEANUPS).instance
    manager[replacement], manager[code] = manager[code], cleanups
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(replacement))
    slot.value = id(replacement)
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(code))


def run_as_python(code: CodeType, *, wanted: bool) -> None:
    """Run calls of compiled ``code`` and their callees eagerly, or as before.

    The cache entries stay, and calls hit them again afterwards; guards are not evaluated meanwhile.
    """
    action = AS_PYTHON_CALLS.resolve(_ACTION)
    chosen = action.SKIP if wanted else action.DEFAULT
    AS_PYTHON_CALLS.resolve(_SET_STRATEGY)(code, AS_PYTHON_CALLS.resolve(_STRATEGY)(chosen, chosen))


def compile_id_of(code: CodeType) -> str | None:
    """Return the id of the compile that made ``code`` in Dynamo's form (``0/1``); None if unknown."""
    entry = cache_entry_of(code)
    return None if entry is None else str(entry.compile_id)


_READ = "torch._C._dynamo.eval_frame:_get_frame_value_stack_with_depth"
_NULL = "torch._C._dynamo.eval_frame:NULL_STACK_VALUE"

VALUE_STACK = Feature("the value stack of generated code", _READ, _NULL)


def value_stack(frame: FrameType, depth: int) -> list[object]:
    """Return the ``depth`` bottom slots of the value stack of ``frame``, bottom first; see ``is_null``.

    Return fewer if the frame records that its stack is lower.

    Raises:
        FeatureMissing: this torch cannot read value stacks.
    """
    read = VALUE_STACK.resolve(_READ)
    stack: list[object] = read(frame, depth)
    return stack


def is_null(value: object) -> bool:
    """Return whether ``value`` represents an empty slot."""
    return VALUE_STACK.problem is None and value is VALUE_STACK.resolve(_NULL)
