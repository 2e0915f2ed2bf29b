"""A call's function run as ordinary Python, in a fork of the process: what its lines compute there.

It is Python of the program's, which may store anything anywhere: only in a process of its own does the program not
notice. The fork inherits what the call was given, and the results to compare with; it tells differences and ends. It
computes on one thread, since pools of threads do not survive a fork. A function whose graph breaks is not run: only
what Dynamo has traced as a whole is known to do nothing outside of the process.

``run_in_fork`` runs on the thread that makes the call; all that it calls, in the fork.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import json
import os
import select
import signal
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dynamo_dap.debuggee.torch_internals.comparisons import Difference, Reference, difference
from dynamo_dap.debuggee.torch_internals.fake_evaluation import storage_of
from dynamo_dap.debuggee.torch_internals.features import Feature
from dynamo_dap.debuggee.torch_internals.graph_runs import has_own_memory
from dynamo_dap.debuggee.torch_internals.isolation import data_reading, dynamo_off
from dynamo_dap.debuggee.torch_internals.replays import places_of
from dynamo_dap.debuggee.torch_internals.retracing import CachedCall
from dynamo_dap.debuggee.torch_internals.tensor_facts import version_of

_MODE = "torch.overrides:TorchFunctionMode"
EAGER_RUNS = Feature("comparing Dynamo's graphs with ordinary Python", _MODE)

_SECONDS = 120.0
"""For the whole run in the fork."""
_RESUME = "__resume_at"
_UNUSUAL = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

Line = tuple[str, int]
"""File and line."""


class NotRun(Exception):
    """The function cannot be run as ordinary Python here; the text says why."""


def run_in_fork(
    call: CachedCall, reference: Reference, random: Iterable[Callable[[], None]], is_passed_over: Callable[[str], bool]
) -> dict[Line, Difference]:
    """Run the function of ``call``, and return for its lines how Dynamo's graph differs from it.

    Lines are those of the innermost frame that is not in a file that ``is_passed_over``, and of its callers' calls.

    Raises:
        NotRun: it cannot be run.
    """
    EAGER_RUNS.require()
    _check(call)
    read, write = os.pipe()
    with warnings.catch_warnings():
        # Of threads that another process would lack: it uses none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        # debugpy replaces the function of this name in ``os``, to debug whatever is forked.
        child = sys.modules["posix"].fork()
    if child == 0:
        _end_with(write, lambda: _compared(call, reference, random, is_passed_over))
    os.close(write)
    try:
        answer = _read(read, time.monotonic() + _SECONDS)
    finally:
        os.close(read)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if not answer:
        raise NotRun("the run as ordinary Python gave no answer")
    told = json.loads(answer)
    if isinstance(told, str):
        raise NotRun(told)
    return {(path, line): Difference(largest, rmse, same) for path, line, largest, rmse, same in told}


def _check(call: CachedCall) -> None:
    torch: Any = sys.modules["torch"]
    if not hasattr(os, "fork") or sys.platform == "darwin":
        raise NotRun("this system has no copies of a process")
    if torch.cuda.is_initialized():
        raise NotRun("the program uses CUDA, which does not work in a copy of the process")
    generated: types.CodeType | None = getattr(call.frame, "f_code", None)
    if generated is None or any(str(name).startswith(_RESUME) for name in generated.co_names):
        raise NotRun("its graph breaks")
    if call.code.co_flags & _UNUSUAL:
        raise NotRun("it is a generator or a coroutine")


def _read(pipe: int, deadline: float) -> bytes:
    parts: list[bytes] = []
    while (left := deadline - time.monotonic()) > 0 and select.select([pipe], [], [], left)[0]:
        part = os.read(pipe, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
    return b""


def _end_with(pipe: int, work: Callable[[], object]) -> None:
    """Send what ``work`` returns, or what is wrong with it, and end this process."""
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        answer = work()
    except BaseException as problem:  # noqa: BLE001  (nothing may go on here)
        reason = (str(problem).strip().splitlines() or [""])[0]
        answer = f"{type(problem).__name__}: {reason}"
    with contextlib.suppress(BaseException):
        data = json.dumps(answer).encode()
        while data:
            data = data[os.write(pipe, data) :]
    os._exit(0)


def _compared(
    call: CachedCall, reference: Reference, random: Iterable[Callable[[], None]], is_passed_over: Callable[[str], bool]
) -> list[tuple[str, int, float, float, bool]]:
    torch: Any = sys.modules["torch"]
    torch.set_num_threads(1)
    _put_memory_back(call)
    results = _Results(is_passed_over, call.code)
    for put_back in random:
        put_back()
    with dynamo_off(), _mode(results.take):
        function = types.FunctionType(call.code, call.frame.f_globals, call.code.co_name, None, call.closure)
        positional, keywords = _arguments(call)
        function(*positional, **keywords)
    found = []
    for line, (own, nodes) in _by_line(reference, is_passed_over).items():
        pairs = _pairs(own, nodes, results.of(line, own=own))
        if pairs:
            # Both ran the same kernels: what the graph gives in float64 would excuse what the graph has wrong.
            differences = [difference(value, reference.values[node]) for node, value in pairs]
            worst = max(differences, key=lambda each: (not each.is_same, each.largest))
            found.append((*line, worst.largest, worst.rmse, worst.is_same))
    return found


def _put_memory_back(call: CachedCall) -> None:
    """Give what the compiled call has changed the contents that it had before, here alone."""
    tensors = [each for each in _tensors(list(call.arguments.values())) if storage_of(each) in call.memory]
    if any(each.is_shared() for each in tensors):
        raise NotRun("it writes to memory that processes share")
    with data_reading():
        for storage, before in call.memory.items():
            owner = next((each for each in tensors if storage_of(each) == storage), None)
            if owner is None:
                owner = _found_in_memory(storage)
            owner.untyped_storage().copy_(before)


def _found_in_memory(storage: object) -> Any:
    torch: Any = sys.modules["torch"]
    for each in gc.get_objects():
        if type(each) in (torch.Tensor, torch.nn.Parameter) and has_own_memory(each) and storage_of(each) == storage:
            if each.is_shared():
                raise NotRun("it writes to memory that processes share")
            return each
    raise NotRun("what it writes to cannot be found again")


def _tensors(values: Sequence[object]) -> list[Any]:
    return [each for each in values if has_own_memory(each)]


def _arguments(call: CachedCall) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments with which the function was called, from its local variables."""
    code, values = call.code, call.arguments
    names = code.co_varnames
    count = code.co_argcount
    positional = [values[name] for name in names[:count]]
    keywords = {name: values[name] for name in names[count : count + code.co_kwonlyargcount]}
    position = count + code.co_kwonlyargcount
    if code.co_flags & inspect.CO_VARARGS:
        positional += values[names[position]]  # type: ignore[arg-type]
        position += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        keywords.update(values[names[position]])  # type: ignore[call-overload]
    return positional, keywords


def _mode(take: Callable[[Any], None]) -> Any:
    base: Any = EAGER_RUNS.resolve(_MODE)

    class Noting(base):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            take(result)
            return result

    return Noting()


class _Results:
    """What the lines of the function, and of those that it calls, gave."""

    def __init__(self, is_passed_over: Callable[[str], bool], outermost: types.CodeType) -> None:
        self._is_passed_over = is_passed_over
        self._outermost = outermost
        self._found: list[tuple[list[Line], Any, int, Any]] = []

    def take(self, result: Any) -> None:
        """Note the result of an operation, with the lines that it was called from, the innermost first."""
        if not has_own_memory(result):
            return
        lines: list[Line] = []
        frame: types.FrameType | None = sys._getframe(2)
        while frame is not None:
            if not self._is_passed_over(frame.f_code.co_filename):
                lines.append((frame.f_code.co_filename, frame.f_lineno))
            if frame.f_code is self._outermost:
                break
            frame = frame.f_back
        with data_reading():
            self._found.append((lines, result, version_of(result), result.detach().clone()))

    def of(self, line: Line, *, own: bool) -> list[Any]:
        """Return what a line gave; not ``own``: what the functions gave that it called."""
        return [
            kept
            for lines, result, version, kept in self._found
            if line in (lines[:1] if own else lines[1:]) and version_of(result) == version
        ]


def _by_line(reference: Reference, is_passed_over: Callable[[str], bool]) -> Mapping[Line, tuple[bool, list[Any]]]:
    """Return the nodes of each line, and whether they are the line's own or those of functions that it called."""
    own: dict[Line, list[Any]] = {}
    called: dict[Line, list[Any]] = {}
    for node in reference.values:
        places = [place for place, _ in places_of(node) if not is_passed_over(place.path)]
        for groups, group in ((own, places[:1]), (called, places[1:])):
            for place in group:
                groups.setdefault((place.path, place.line), []).append(node)
    return {
        **{line: (False, nodes) for line, nodes in called.items() if line not in own},
        **{line: (True, nodes) for line, nodes in own.items()},
    }


def _pairs(own: bool, nodes: Sequence[Any], values: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return which node goes with which result: one for one, or else what each gave last."""
    if own and len(nodes) == len(values):
        return list(zip(nodes, values, strict=True))
    return [(nodes[-1], values[-1])] if nodes and values else []
