"""Runs a call's function as ordinary Python in a fork of the process, to get the results of its lines.

The function may store anything anywhere, so it runs in its own process, and the program does not notice. The fork
inherits the inputs of the call and the results to compare with. It reports differences and ends. It computes on one
thread, since thread pools do not survive a fork. A function with a graph break is not run: only a function that Dynamo
traced completely is known to do nothing outside the process.

The objects that the function stores are compared as well: a second fork runs the generated code, which makes the
stores. If the two differ, a third fork runs the function again and finds the line that stores the value.

``run_in_fork`` and similar functions run on the calling thread. The functions that they pass to ``_answer_of`` run in
the fork.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import marshal
import operator
import os
import random as python_random
import select
import signal
import sys
import time
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.numerics.faults.comparisons import Reference
from dynamo_dap.debuggee.numerics.faults.stored_state import Before, Roots, State, Step, identity_at
from dynamo_dap.debuggee.numerics.graphs.differences import Difference, difference
from dynamo_dap.debuggee.replay.graph_calls import ContinuesInFork
from dynamo_dap.debuggee.replay.replayed_graph import places_of
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import draws_of
from dynamo_dap.debuggee.torch_api.code_objects.frame_memory import program_cells
from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.graphs.graph import is_higher_order, number_of
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import has_own_memory
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import version_of
from dynamo_dap.debuggee.torch_api.graphs.transforms import is_visible
from dynamo_dap.debuggee.torch_api.isolation import data_reading, dynamo_off
from dynamo_dap.debuggee.torch_api.objects import Tensor
from dynamo_dap.debuggee.torch_api.skipping import never_compile
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import storage_of
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall
from dynamo_dap.protocol.texts import named_first_line_of

_MODE = "torch.overrides:TorchFunctionMode"
EAGER_RUNS = Feature("comparing Dynamo's graphs with ordinary Python", _MODE)

_SECONDS = 120.0
"""Time limit of the fork."""
_EVENTS = 17
"""A number of ``sys.monitoring`` events (one bit each) that no version of Python exceeds."""
_RESUME = "__resume_at"
_UNUSUAL = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

_Answer = Callable[[Callable[[], object]], None]
"""Calls a function in the fork, sends the result as the fork's answer, and ends the fork."""
Line = tuple[str, int]
"""File and line."""


class NotRun(Exception):
    """The function or the generated code cannot run in a fork; the text says why."""


@dataclass(frozen=True)
class PythonRun:
    """The results and stores of a function that has run as ordinary Python."""

    by_line: dict[Line, Difference]
    """How the results of Dynamo's graph differ from the function's, by line."""
    state: State
    """The state of the stored objects after the run."""
    problems: list[str]
    """What was not compared."""


def run_in_fork(
    call: CachedCall,
    reference: Reference,
    random: Iterable[Callable[[], None]],
    is_passed_over: Callable[[str], bool],
    before: Before,
) -> PythonRun:
    """Run the function of ``call``, and compare the results of its lines with ``reference``; also return its stores.

    A result belongs to the line of the innermost frame that is not in an ``is_passed_over`` file, and to the lines of
    that frame's callers.

    Raises:
        NotRun: the function cannot be run.
    """
    EAGER_RUNS.require()
    _check(call)

    def work() -> object:
        results = _Results(is_passed_over, call.code)
        _begin_again(call, random)
        before.note_versions()
        with dynamo_off(), _mode(results.take):
            returned = _run(call)
        found = _compared(reference, results, is_passed_over)
        return found, before.state(returned), list(reference.runs.problems)

    reported, state, problems = _answer_of(work)
    return PythonRun(
        {(path, line): Difference(largest, rmse, same) for path, line, largest, rmse, same in reported}, state, problems
    )


def problem_in_python(call: CachedCall, random: Iterable[Callable[[], None]]) -> str:
    """Run the function of ``call``, and return the name and first line of the exception that it raises; "" for none.

    Raises:
        NotRun: the function cannot be run.
    """
    EAGER_RUNS.require()
    _check(call)

    def work() -> object:
        _begin_again(call, random)
        with dynamo_off():
            try:
                _run(call)
            except Exception as problem:  # noqa: BLE001  (whatever the function raises is the answer)
                return [named_first_line_of(problem)]
        return [""]

    (found,) = _answer_of(work)
    return str(found)


def state_after(call: CachedCall, before: Before) -> State:
    """Return the state after the generated code has made its stores. Only the fork runs it, not the program itself.

    Raises:
        NotRun: the generated code does not return.
        ContinuesInFork: raised in the fork only, which continues the call.
    """

    def work(answer: _Answer) -> None:
        before.note_versions()

        def at_end(frame: object, event: str, returned: object) -> object:
            if frame is not call.frame:
                answer(lambda: "the generated code did not return")
            if event == "return":
                answer(lambda: state(returned))
            return at_end

        def state(returned: object) -> State:
            with dynamo_off():
                return before.state(returned)

        never_compile(at_end)
        never_compile(_no_trace)
        sys.settrace(_no_trace)
        frame: Any = call.frame
        while frame is not None:  # trace the callers as well: none of them may continue
            frame.f_trace = at_end
            frame = frame.f_back
        raise ContinuesInFork

    state: State = _answer_of(send_later=work)
    return state


def _no_trace(*_: object) -> None:
    """Return None: functions that begin from now on are not traced."""


@dataclass(frozen=True)
class Visit:
    """One execution of a line in a run."""

    path: str
    line: int
    number: int
    """1 for the first execution of the line; a loop repeats lines."""


def visits_that_store(
    call: CachedCall,
    random: Iterable[Callable[[], None]],
    is_passed_over: Callable[[str], bool],
    roots: Roots,
    wanted: Sequence[tuple[str, tuple[Step, ...]]],
) -> tuple[list[Visit | None], Visit | None]:
    """Run the function, and return for each value in ``wanted`` the line that changed it last.

    Also return the line at which the function returned.

    Raises:
        NotRun: the function cannot be run.
    """

    def work() -> object:
        _begin_again(call, random)
        stores = _Stores(is_passed_over, [lambda one=one: identity_at(roots, *one) for one in wanted])  # type: ignore[misc]  # a lambda in a loop
        with dynamo_off():
            sys.settrace(stores.trace)
            try:
                _run(call)
            finally:
                sys.settrace(None)
        stores.look()
        return stores.found, stores.last_of(call.code)

    found, end = _answer_of(work)
    return [None if each is None else Visit(*each) for each in found], None if end is None else Visit(*end)


class _Stores:
    """Finds the lines that change values. Lives for one run, as its trace function."""

    def __init__(self, is_passed_over: Callable[[str], bool], values: Sequence[Callable[[], object]]) -> None:
        self._is_passed_over = is_passed_over
        self._values = values
        self._before = [each() for each in values]
        self._lines: dict[int, tuple[types.CodeType, tuple[str, int, int]]] = {}
        """The present line of each running frame, by identity."""
        self._visits: Counter[Line] = Counter()
        self._at: tuple[str, int, int] | None = None
        self._ends: dict[types.CodeType, tuple[str, int, int]] = {}
        self.found: list[tuple[str, int, int] | None] = [None] * len(values)

    def trace(self, frame: types.FrameType, event: str, _: object) -> Any:
        """Note the lines that run, and the values that they change. A trace function for ``sys.settrace``."""
        path = frame.f_code.co_filename
        if self._is_passed_over(path):
            return None
        self.look()
        known = self._lines.get(id(frame))
        if event == "line" and (known is None or known[1][1] != frame.f_lineno):
            line = (path, frame.f_lineno)
            self._visits[line] += 1
            self._at = (*line, self._visits[line])
            self._lines[id(frame)] = frame.f_code, self._at
        elif event == "line" and known is not None:
            self._at = known[1]
        elif event == "return":
            ended = self._lines.pop(id(frame), None)
            if ended is not None:
                self._ends[ended[0]] = ended[1]
            caller = frame.f_back
            while caller is not None and id(caller) not in self._lines:
                caller = caller.f_back
            self._at = self._at if caller is None else self._lines[id(caller)][1]
        return self.trace

    def look(self) -> None:
        """Attribute each changed value to the line that has run since the last check."""
        for at, value in enumerate(self._values):
            now = value()
            if now != self._before[at]:
                self._before[at], self.found[at] = now, self._at

    def last_of(self, code: types.CodeType) -> tuple[str, int, int] | None:
        """Return the line at which a function returned last, if it did."""
        return self._ends.get(code)


def _answer_of(
    work: Callable[[], object] = lambda: None, *, send_later: Callable[[_Answer], None] | None = None
) -> Any:
    """Fork, run ``work`` in the fork, and return its result.

    For an answer that is known only later, pass ``send_later`` instead. It gets the function that sends the answer, and
    may let the program's call continue in the fork.
    """
    read, write = os.pipe()
    with warnings.catch_warnings():
        # Python warns that the fork lacks the other threads. The fork does not use them.
        warnings.simplefilter("ignore", DeprecationWarning)
        # Not ``os.fork``: debugpy replaces that, to debug forked processes.
        child = sys.modules["posix"].fork()
    if child == 0:

        def begin() -> object:
            _be_quiet()
            if send_later is not None:
                send_later(lambda answer: _end_with(write, answer))
            return work()

        _end_with(write, begin)
    os.close(write)
    try:
        answer = _read(read, time.monotonic() + _SECONDS)
    finally:
        os.close(read)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if not answer:
        raise NotRun("the run in a fork of the process gave no answer")
    reported = marshal.loads(answer)
    if isinstance(reported, str):
        raise NotRun(reported)
    return reported


def _be_quiet() -> None:
    """Disconnect this process from its input, output and debuggers."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    torch = sys.modules["torch"]
    torch.set_num_threads(1)
    sys.settrace(None)
    sys.setprofile(None)
    monitoring: Any = getattr(sys, "monitoring", None)
    for tool in range(6) if monitoring is not None else ():
        if monitoring.get_tool(tool) is not None:
            for number in range(_EVENTS):
                with contextlib.suppress(ValueError):
                    monitoring.register_callback(tool, 1 << number, None)


def _begin_again(call: CachedCall, random: Iterable[Callable[[], None]]) -> None:
    _restore_memory(call)
    for restore in random:
        restore()
    _take_draws_back(call)


def _take_draws_back(call: CachedCall) -> None:
    """Restore Python's random state from before the generated code drew the numbers that it gives to the graph.

    The earlier state is the one from which the same draws give the same numbers and lead to the present state.
    """
    known = draws_of(call.frame)
    if known is None:
        return
    draw, drawn = known
    now = python_random.getstate()
    version, words, of_gauss = now
    position = words[-1]
    for earlier in range(position, -1, -1):
        before = version, (*words[:-1], earlier), of_gauss
        python_random.setstate(before)
        if draw() == drawn and python_random.getstate() == now:
            python_random.setstate(before)
            return
    raise NotRun("its random numbers would differ")


def _run(call: CachedCall) -> object:
    function = types.FunctionType(call.code, call.frame.f_globals, call.code.co_name, None, call.closure)
    positional, keywords = _arguments(call)
    return function(*positional, **keywords)


def _check(call: CachedCall) -> None:
    torch = sys.modules["torch"]
    if not hasattr(os, "fork") or sys.platform == "darwin":
        raise NotRun("this system cannot fork a process")
    if torch.cuda.is_initialized():
        raise NotRun("the program uses CUDA, which does not work in a fork")
    generated: types.CodeType | None = getattr(call.frame, "f_code", None)
    if generated is None or any(str(name).startswith(_RESUME) for name in generated.co_names):
        raise NotRun("its graph breaks")
    if isinstance(call.frame, types.FrameType) and program_cells(call.frame) is None:
        raise NotRun("this Python does not expose the variables that it captures")
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
    """Send the result of ``work``, or the text of its exception, and end this process.

    Raises:
        ContinuesInFork: see ``state_after``.
    """
    continues = False
    try:
        try:
            reported: Any = work()
            answer = marshal.dumps(reported)
        except ContinuesInFork:
            continues = True
            raise
        except BaseException as problem:  # noqa: BLE001 (nothing may continue here)
            answer = marshal.dumps(named_first_line_of(problem))
        while answer:
            answer = answer[os.write(pipe, answer) :]
    finally:
        # If the copy of the program continued, it would write the program's files twice.
        if not continues:
            os._exit(0)


def _compared(
    reference: Reference, results: _Results, is_passed_over: Callable[[str], bool]
) -> list[tuple[str, int, float, float, bool]]:
    found = []
    referees = {id(value): reference.referee(node) for node, value in reference.values.items()}
    for line, (own, values) in _by_line(reference, is_passed_over).items():
        pairs = _pairs(own, values, results.of(line, own=own))
        if pairs:
            # The referee knows the graph's rounding errors. So the graph's result is the reference here.
            differences = [difference(of_graph, value, referees.get(id(of_graph))) for of_graph, value in pairs]
            worst = max(differences, key=lambda each: (not each.is_same, each.largest))
            found.append((*line, worst.largest, worst.rmse, worst.is_same))
    return found


def _restore_memory(call: CachedCall) -> None:
    """Restore the memory that the compiled call has changed, in this fork only."""
    tensors = [each for each in _tensors(list(call.arguments.values())) if storage_of(each) in call.memory]
    if any(each.is_shared() for each in tensors):
        raise NotRun("it writes to memory that processes share")
    with data_reading():
        for storage, before in call.memory.items():
            owner = next((each for each in tensors if storage_of(each) == storage), None)
            if owner is None:
                owner = _found_in_memory(storage)
            memory = owner.untyped_storage()
            if memory.nbytes() != before.nbytes():
                memory.resize_(before.nbytes())
            memory.copy_(before)


def _found_in_memory(storage: object) -> Any:
    torch = sys.modules["torch"]
    for each in gc.get_objects():
        cls = type(each)  # compared by identity first, which is fast: there are millions of objects
        if (cls is torch.Tensor or cls is torch.nn.Parameter) and has_own_memory(each) and storage_of(each) == storage:
            if each.is_shared():
                raise NotRun("it writes to memory that processes share")
            return each
    raise NotRun("the memory that it writes to cannot be found again")


def _tensors(values: Sequence[object]) -> list[Tensor]:
    return [each for each in values if has_own_memory(each)]


def _arguments(call: CachedCall) -> tuple[list[object], dict[str, object]]:
    """Return the function's positional and keyword arguments, from its local variables."""
    code, values = call.code, call.arguments
    names = code.co_varnames
    count = code.co_argcount
    positional = [values[name] for name in names[:count]]
    keywords = {name: values[name] for name in names[count : count + code.co_kwonlyargcount]}
    position = count + code.co_kwonlyargcount
    if code.co_flags & inspect.CO_VARARGS:
        positional += values[names[position]]  # type: ignore[arg-type]  # a tuple by the flag
        position += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        keywords.update(values[names[position]])  # type: ignore[call-overload]  # a dict by the flag
    return positional, keywords


def _mode(take: Callable[[object], None]) -> Any:
    base: Any = EAGER_RUNS.resolve(_MODE)

    class Noting(base):  # type: ignore[misc]  # the base is known at run time
        def __torch_function__(self, function: Any, types: object, args: Any = (), kwargs: Any = None) -> object:
            result = function(*args, **(kwargs or {}))
            take(result)
            return result

    return Noting()


def _several(result: object) -> Sequence[object]:
    return result if isinstance(result, list | tuple) else [result]


class _Results:
    """Collects the results of operations, with the lines that called them."""

    def __init__(self, is_passed_over: Callable[[str], bool], outermost: types.CodeType) -> None:
        self._is_passed_over = is_passed_over
        self._outermost = outermost
        self._found: list[tuple[list[Line], object, int, object]] = []

    def take(self, result: object) -> None:
        """Keep an operation's result, with the lines that called the operation, innermost first."""
        tensors = [each for each in _several(result) if is_visible(each)]
        if not tensors:
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
            self._found += [(lines, each, version_of(each), each.detach().clone()) for each in tensors]

    def of(self, line: Line, *, own: bool) -> list[object]:
        """Return the results of operations in a line, or (not ``own``) in functions that the line calls."""
        return [
            kept
            for lines, result, version, kept in self._found
            if line in (lines[:1] if own else lines[1:]) and version_of(result) == version
        ]


def _by_line(reference: Reference, is_passed_over: Callable[[str], bool]) -> Mapping[Line, tuple[bool, list[object]]]:
    """Return the graph's values for each line.

    The boolean says whether they are results of operations in the line itself, or of functions that the line calls.
    """
    own: dict[Line, list[object]] = {}
    called: dict[Line, list[object]] = {}
    for node in reference.graph.nodes:
        if node.target is operator.getitem and node.args[0] in reference.several:
            continue  # Python only takes an item out of a tuple here
        if number_of(node) is not None:
            continue  # Python has no tensor for this number, which is compared as a part of the state
        if node not in reference.values and node not in reference.several:
            continue
        if node in reference.uninitialized_before_writes:
            continue  # Python's run has other contents in this memory
        if is_higher_order(node) or node in reference.visible.inside:
            continue  # Python runs the lines inside the operator or transform
        values = reference.several[node] if node in reference.several else [reference.values[node]]
        places = [place for place, _ in places_of(node) if not is_passed_over(place.path)]
        for groups, group in ((own, places[:1]), (called, places[1:])):
            for place in group:
                groups.setdefault((place.path, place.line), []).extend(values)
    return {
        **{line: (False, values) for line, values in called.items() if line not in own},
        **{line: (True, values) for line, values in own.items()},
    }


def _pairs(own: bool, of_graph: Sequence[object], values: Sequence[object]) -> list[tuple[object, object]]:
    """Pair the graph's values with Python's: by position if their numbers are equal, else only the graph's last one."""
    if not of_graph or not values:
        return []
    if own and len(of_graph) == len(values):
        return list(zip(of_graph, values, strict=True))
    # Python may compute more values, or Dynamo may record several operations for one. Accept any match.
    last = of_graph[-1]
    return [(last, next((each for each in reversed(values) if difference(each, last).is_same), values[-1]))]
