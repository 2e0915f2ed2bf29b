"""Forecasts what compiles next: tries sizes on torch's cache after a program, for ``dynamo-dap forecast``.

While the program runs, this module keeps each compile's variables, torch's modes, and the call from ordinary Python.
After the program, it evaluates the guards of the cache entries on the same variables with tensors of other sizes. Then
it tries lists of sizes, and declarations such as ``mark_dynamic``, by real calls whose output is discarded. Runs on
compiling threads, and on the main thread after the program's end.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType
from typing import Any

import msgspec

from dynamo_dap.debuggee.launch.forecasts.varied_inputs import CannotForecast, VariedInputs, integers_in
from dynamo_dap.debuggee.launch.forecasts.warm_ups import RealCalls, find_warm_up
from dynamo_dap.debuggee.recording.function_names import function_of, name_of
from dynamo_dap.debuggee.torch_api.cache.guard_lookup import (
    compile_ids_of,
    is_shared,
    replaced,
    serving_entry,
    tensors_in,
    with_containers_copied,
    with_size,
)
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import calls_resume_function
from dynamo_dap.debuggee.torch_api.compiles.call_conditions import enter_modes, modes
from dynamo_dap.debuggee.torch_api.compiles.compile_hooks import HOOKS, CompileObserver, CompileResult, FrameCompile
from dynamo_dap.debuggee.torch_api.compiles.compiled_calls import CompiledCall, call_in_progress, follow_calls
from dynamo_dap.debuggee.torch_api.declarations import (
    Declaration,
    DeclaredSize,
    compiled_as_dynamic,
    follows_calls,
    marks,
    specified,
    varying,
)
from dynamo_dap.debuggee.torch_api.features import FeatureMissing
from dynamo_dap.protocol.requests.forecasts import (
    DeclaredFunction,
    ForecastBody,
    ForecastRun,
    ForecastTrial,
    FunctionForecast,
    InputForecast,
    ServedRange,
    SizeForecast,
    VariedSize,
    Verification,
    WarmUp,
    Way,
)
from dynamo_dap.protocol.texts import named_first_line_of

_SIZES = 8
"""The most sizes of a function that are tried if the user names none."""
_EXAMPLES = 3
_MARKED, _AS_DYNAMIC, _SPECIFIED = "mark_dynamic", "dynamic", "shapes_spec"


@dataclass
class _Known:
    """A function's newest compile, and its sizes in all compiles."""

    names: dict[str, Any] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    call: CompiledCall | None = None
    follows_calls: bool = False
    """Whether torch decides call by call which sizes are dynamic; see ``declarations.follows_calls``."""
    compiles: int = 0
    seen: dict[str, list[int]] = field(default_factory=dict)
    """By expression of a size, or name of an integer argument: its values, one per compile."""


class _Compiles(CompileObserver):
    """Keeps the inputs of each compile. Lives as long as the process."""

    feature = "the forecast of recompiles"

    def __init__(self) -> None:
        self.known: dict[CodeType, _Known] = {}
        self.declared: Sequence[DeclaredFunction] = ()
        self.count = 0
        self.broken: set[CodeType] = set()
        """Functions that have a graph break."""
        self.is_over = False
        """Whether the program has ended; compiles of trials are only counted."""
        self._settings: dict[FrameCompile, contextlib.ExitStack] = {}
        self._declared_call: tuple[CompiledCall, Callable[[], AbstractContextManager[object]]] | None = None

    def compile_began(self, compiling: FrameCompile) -> None:
        """Declare the sizes, as the user would before the call. Compiles of inner functions get the same settings."""
        if self.is_over or not self.declared:
            return
        names, call = getattr(compiling.frame, "f_locals", None), call_in_progress()
        if type(names) is not dict:
            return
        declared = _declared_of(compiling.code, names, self.declared)
        settings = None if self._declared_call is None else self._declared_call[1]
        if declared is not None:
            with contextlib.suppress(CannotForecast):  # without that size nothing is declared, as the result shows
                settings = _declare(compiling.code, names, declared)
        elif self._declared_call is None or self._declared_call[0] is not call:
            return
        if settings is not None:
            self._declared_call = None if call is None else (call, settings)
            stack = self._settings[compiling] = contextlib.ExitStack()
            stack.enter_context(settings())

    def compile_ended(self, compiling: FrameCompile, result: CompileResult, problem: BaseException | None) -> None:
        """Count the compile, and keep its call's inputs."""
        self.count += 1
        if compiling in self._settings:
            self._settings.pop(compiling).close()
        if result.code is not None and calls_resume_function(result.code):
            self.broken.add(compiling.code)
        names = getattr(compiling.frame, "f_locals", None)
        if self.is_over or result.code is None or type(names) is not dict:
            return
        known = self.known.setdefault(compiling.code, _Known())
        known.compiles += 1
        known.names, known.modes, known.call = with_containers_copied(names), modes(), call_in_progress()
        if known.call is not None:
            known.call = replace(
                known.call,
                args=with_containers_copied(known.call.args),
                kwargs=with_containers_copied(known.call.kwargs),
            )
        known.follows_calls = follows_calls()
        sizes = [
            (f"{path}.shape[{at}]", int(size)) for path, one in tensors_in(names) for at, size in enumerate(one.shape)
        ]
        for name, size in (*sizes, *integers_in(compiling.code, names)):
            known.seen.setdefault(name, []).append(size)


_compiles = _Compiles()


def begin_forecast(asked: ForecastRun) -> None:
    """Keep each compile's inputs from now on."""
    follow_calls()
    _compiles.declared = asked.declared
    events = (CompileObserver.compile_ended,)
    HOOKS.want(_compiles, (CompileObserver.compile_began, *events) if asked.declared else events)


def _declared_of(
    code: CodeType, names: dict[str, object], among: Iterable[DeclaredFunction]
) -> DeclaredFunction | None:
    """Return the declaration that names this function; resume functions have their own names."""
    _, place = function_of(code, names)
    found = (place.path, place.line, name_of(code, names))
    return next((one for one in among if (one.path, one.line, one.name) == found), None)


def _declare(
    code: CodeType, names: dict[str, object], declared: DeclaredFunction
) -> Callable[[], AbstractContextManager[object]] | None:
    """Mark the tensors of a call, and return the settings for its compiles; None if torch lacks that declaration."""
    inputs = VariedInputs(code, names, None, declared.size.names)
    declaration = _declaration(declared.way, inputs.declared)
    if declaration is None:
        return None
    inputs.mark(declaration)
    return declaration.settings


def _declaration(way: Way, sizes: Sequence[DeclaredSize]) -> Declaration | None:
    if way.kind == _MARKED:
        return marks(sizes, way.first, way.last)
    if way.kind == _AS_DYNAMIC:
        return compiled_as_dynamic()
    assert way.first is not None
    assert way.last is not None
    return specified(sizes, way.first, way.last)


def _verified(asked: ForecastRun) -> ForecastBody:
    """Return the effect of each declaration on this run of the program."""
    _compiles.is_over = True
    body = ForecastBody()
    for declared in asked.declared:
        found = next(
            (each for each in _compiles.known.items() if _declared_of(each[0], each[1].names, [declared])), None
        )
        verification = Verification() if found is None else _of_declared(*found, declared)
        if found is None:
            verification.problem = "the function was not compiled"
        trial = ForecastTrial("", way=declared.way, verification=verification)
        size = SizeForecast(list(declared.size.names), [], [], [trial])
        body.functions.append(FunctionForecast(declared.name, declared.path, declared.line, [], [size]))
    return body


def _of_declared(code: CodeType, known: _Known, declared: DeclaredFunction) -> Verification:
    made = Verification(known.compiles)
    try:
        with _modes_of_call(known):
            _check_known(code, known)
            size = _Size(code, known, declared.size)
            size.call_some(made)
    except Exception as error:  # noqa: BLE001  (the program's function may raise anything)
        text = str(error)
        made.problem = text if isinstance(error, CannotForecast | FeatureMissing) else named_first_line_of(error)
    made.breaks = code in _compiles.broken
    return made


def write_forecast(asked: ForecastRun) -> None:
    """Write the forecast: first the sizes that the cache entries match now, then each trial's result."""
    if asked.declared:
        with _without_streams():
            Path(asked.path).write_bytes(msgspec.json.encode(_verified(asked)))
        return
    body, sizes = ask_entries(asked)
    inputs = list(_input_lists(asked, body)) if asked.inputs else []
    path = Path(asked.path)
    path.write_bytes(msgspec.json.encode(body))
    callable_sizes = [size for size in sizes if size.can_be_called]
    trials: list[Callable[[ForecastRun], None]] = [size.call_each for size in callable_sizes if asked.calls]
    trials += [size.find_warm_up for size in callable_sizes if asked.warm_up]
    trials += [size.call_declared for size in callable_sizes]
    trials += [one.call_each for one in inputs]
    with _without_streams():
        for trial in trials:
            trial(asked)
            path.write_bytes(msgspec.json.encode(body))


def ask_entries(asked: ForecastRun) -> tuple[ForecastBody, list[_Size]]:
    """Return which entry serves each size now, and the sizes for trials."""
    _compiles.is_over = True
    found = [each for code, known in _wanted(asked) for each in _sizes_of_function(code, known, asked)]
    functions = list({id(function): function for function, _ in found}.values())
    return ForecastBody(functions), [size for _, size in found if size is not None]


@contextlib.contextmanager
def _without_streams() -> Iterator[None]:
    """Connect stdin, stdout and stderr to the null device inside the context."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    kept = [os.dup(descriptor) for descriptor in (0, 1, 2)]
    nowhere = os.open(os.devnull, os.O_RDWR)
    try:
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        for descriptor, saved in enumerate(kept):
            os.dup2(saved, descriptor)
        for each in (*kept, nowhere):
            os.close(each)


def _wanted(asked: ForecastRun) -> Iterator[tuple[CodeType, _Known]]:
    for code, known in list(_compiles.known.items()):
        name, _ = function_of(code, known.names)
        # A resume function belongs to its function.
        if asked.function is None or name == asked.function or name.endswith(f".{asked.function}"):
            yield code, known


def _sizes_of_function(
    code: CodeType, known: _Known, asked: ForecastRun
) -> Iterator[tuple[FunctionForecast, _Size | None]]:
    """Yield each size of a function with the function's facts; None for a function without sizes."""
    _, place = function_of(code, known.names)
    found = FunctionForecast(name_of(code, known.names), place.path, place.line, compile_ids_of(code))
    found.breaks = code in _compiles.broken
    sizes = []
    try:
        with _modes_of_call(known):
            _check_known(code, known)
            for size in asked.sizes or ([] if asked.inputs else list(_sizes_of(known, asked))):
                sizes.append(_Size(code, known, size))
                found.sizes.append(sizes[-1].found)
    except (FeatureMissing, CannotForecast) as problem:
        found.problem = str(problem)
    if not sizes:
        yield found, None
    for one in sizes:
        yield found, one


class _Inputs:
    """A list of inputs of one function."""

    def __init__(
        self, code: CodeType, known: _Known, found: FunctionForecast, inputs: Sequence[dict[str, int]]
    ) -> None:
        self._known = known
        self._found = found
        ids = compile_ids_of(code)
        self._inputs = [(VariedInputs(code, known.names, known.call, values), values) for values in inputs]
        for varied, values in self._inputs:
            number = varied.serving(values)
            found.inputs.append(InputForecast(values, None if number is None else ids[number]))

    def call_each(self, asked: ForecastRun) -> None:
        """Call the function with these inputs, one after the other, and count what each compiles."""
        if not all(varied.can_be_called for varied, _ in self._inputs):
            return
        with _modes_of_call(self._known):
            for (varied, values), one in zip(self._inputs, self._found.inputs, strict=True):
                before = _compiles.count
                try:
                    varied.call(values)
                except Exception as error:  # noqa: BLE001  (the program's function may raise anything)
                    one.problem = named_first_line_of(error)
                one.compiled = _compiles.count - before


def _input_lists(asked: ForecastRun, body: ForecastBody) -> Iterator[_Inputs]:
    """Yield the requested inputs for each function that has all of these sizes."""
    for function, (code, known) in zip(body.functions, _wanted(asked), strict=True):
        if function.problem is not None:
            continue
        try:
            with _modes_of_call(known):
                yield _Inputs(code, known, function, asked.inputs)
        except (CannotForecast, FeatureMissing) as problem:
            function.problem = str(problem)


def _check_known(code: CodeType, known: _Known) -> None:
    """Check that the newest compiled call would hit the cache now, also with our tensors.

    Raises:
        CannotForecast: it would not, so misses of other sizes would have another cause.
    """
    if is_shared(code):
        raise CannotForecast("several torch.compile calls compiled it, and each uses its own entries")
    if serving_entry(code, known.names) is None:
        raise CannotForecast("an object that its guards check has changed since its newest compile")
    made = {id(tensor): with_size(tensor, {}) for _, tensor in tensors_in(known.names)}
    if serving_entry(code, {name: replaced(one, made) for name, one in known.names.items()}) is None:
        raise CannotForecast("its guards check properties of its tensors that copies lack, such as their identity")


@contextlib.contextmanager
def _modes_of_call(known: _Known) -> Iterator[None]:
    before = modes()
    try:
        with contextlib.ExitStack() as stack:
            enter_modes(known.modes, stack.enter_context)
            yield
    finally:
        enter_modes({name: text for name, text in before.items() if name in _SET}, lambda context: None)


_SET = {"grad", "default dtype", "float32 matmul precision", "deterministic"}
"""Modes that a program sets by a call, without a context."""


def _sizes_of(known: _Known, asked: ForecastRun) -> Iterator[VariedSize]:
    """Yield the sizes that varied, equal ones together; if none varied, each size alone."""
    tensors = tensors_in(known.names)
    present = {f"{path}.shape[{at}]" for path, tensor in tensors for at in range(tensor.dim())}
    present |= {name for name, one in known.names.items() if type(one) is int}
    varied = {name: sizes for name, sizes in known.seen.items() if len(set(sizes)) > 1 and name in present}
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, sizes in varied.items():
        groups.setdefault(tuple(sizes), []).append(name)
    alone = [[name] for name in known.seen if name in present and "." in name] if not groups else []
    for names in [*groups.values(), *alone][:_SIZES]:
        yield VariedSize(tuple(names), asked.first, asked.last)


class _Size:
    """Sizes of one function that change together."""

    def __init__(self, code: CodeType, known: _Known, size: VariedSize) -> None:
        self._code = code
        self._known = known
        self._size = size
        self._inputs = VariedInputs(code, known.names, known.call, size.names)
        seen = sorted(set(known.seen.get(size.names[0], [])))
        self._declared = self._inputs.declared
        self._breaks = code in _compiles.broken
        self.found = SizeForecast(list(size.names), seen, self._served())

    @property
    def can_be_called(self) -> bool:
        """Return whether the varied tensors and integers were all passed by a call from ordinary Python."""
        return self._inputs.can_be_called

    def call_each(self, asked: ForecastRun) -> None:
        """Call the function with the requested sizes, one after the other."""
        with self._tried(", ".join(map(str, asked.calls))) as trial:
            self._call_with(trial, asked.calls)

    def call_declared(self, asked: ForecastRun) -> None:
        """Call the function with each declaration and an empty cache, until one entry serves every size."""
        is_in_question = bool(asked.sizes) or len(self.found.seen) > 1
        if not is_in_question or all(one.entry is not None for one in self.found.served):
            return
        seen = [size for size in self._known.seen.get(self._size.names[0], []) if size > 1]
        ends = [max(self._size.last - number, 2) for number in range(_EXAMPLES)]
        sizes = list(dict.fromkeys([*seen, *ends]))[:_SIZES]
        first, last = max(self._size.first, 2), max(self._size.last, *sizes)
        if self._inputs.integers:
            # The other declarations apply to tensors only.
            self._try(Way(_AS_DYNAMIC), sizes)
            return
        trial = self._try(Way(_MARKED), sizes)
        if not _is_one(trial, first):
            trial = self._try(Way(_MARKED, first, last), sizes)
        if not _is_one(trial, first) and self._known.follows_calls:
            trial = self._try(Way(_AS_DYNAMIC), sizes)
        spec = Way(_SPECIFIED, self._size.first, last)
        if not _is_one(trial, 0) and _declaration(spec, self._declared) is not None:
            self._try(spec, sizes)

    def _try(self, way: Way, sizes: Iterable[int]) -> ForecastTrial:
        declaration = _declaration(way, self._declared)
        assert declaration is not None
        with self._tried(declaration.title) as trial:
            trial.way = way
            _empty_cache()
            _compiles.broken.discard(self._code)
            self._call_with(trial, sizes, declaration)
            trial.breaks = not self._breaks and self._code in _compiles.broken
        return trial

    def call_some(self, made: Verification) -> None:
        """Call the function with a few of the sizes that an entry serves, and count the compiles."""
        made.served = self.found.served
        if not self._inputs.can_be_called:
            return
        served = sorted(_sizes_served(made.served))
        chosen = random.Random(0).sample(served, min(len(served), _EXAMPLES))
        for size in dict.fromkeys([*served[:1], *chosen, *served[-1:]]):
            made.compiled.append(self._call(size))
            made.sizes.append(size)

    def find_warm_up(self, asked: ForecastRun) -> None:
        """Find the shortest list of calls after which no size of the range compiles."""
        dynamic = varying(self._declared, self._inputs.integers)
        if dynamic is None:
            self.found.warm_up = WarmUp([], [], problem="this torch has no dynamic_sources, which integers need")
            return
        real_calls = RealCalls(
            _empty_cache,
            lambda size, varies: self._call_only(size, dynamic if varies else None),
            lambda varies: _sizes_served(self._served(dynamic if varies else None)),
        )
        try:
            with _modes_of_call(self._known):
                found = find_warm_up(real_calls, range(self._size.first, self._size.last + 1))
                self.found.warm_up = WarmUp(
                    found.sizes,
                    self._served() if found.sizes else [],
                    least=found.least,
                    apart=found.apart,
                    first_is_static=found.first_is_static,
                    failing={str(size): named_first_line_of(problem) for size, problem in found.failing.items()},
                )
        except Exception as error:  # noqa: BLE001 (the program's function may raise anything)
            self.found.warm_up = WarmUp([], [], problem=named_first_line_of(error))

    @contextlib.contextmanager
    def _tried(self, title: str) -> Iterator[ForecastTrial]:
        trial = ForecastTrial(title)
        self.found.trials.append(trial)
        try:
            with _modes_of_call(self._known):
                yield trial
        except Exception as error:  # noqa: BLE001  (the program's function may raise anything)
            trial.problem = named_first_line_of(error)

    def _served(self, declaration: Declaration | None = None) -> list[ServedRange]:
        """Return which entry serves each size of the range; consecutive sizes with one entry are merged."""
        ids = compile_ids_of(self._code)
        found: list[ServedRange] = []
        for size in range(self._size.first, self._size.last + 1):
            number = self._inputs.serving(self._values(size), declaration)
            entry = None if number is None else ids[number]
            if found and found[-1].entry == entry:
                found[-1].last = size
            else:
                found.append(ServedRange(size, size, entry))
        return found

    def _call_with(self, trial: ForecastTrial, sizes: Iterable[int], declaration: Declaration | None = None) -> None:
        for size in sizes:
            trial.compiled.append(self._call(size, declaration))
            trial.sizes.append(size)
        trial.served = self._served(declaration)

    def _call_only(self, size: int, declaration: Declaration | None) -> None:
        self._call(size, declaration)

    def _call(self, size: int, declaration: Declaration | None = None) -> int:
        """Call the function with a size; return how many compiles that causes."""
        before = _compiles.count
        with contextlib.nullcontext() if declaration is None else declaration.settings():
            self._inputs.call(self._values(size), declaration)
        return _compiles.count - before

    def _values(self, size: int) -> dict[str, int]:
        return dict.fromkeys(self._size.names, size)


def _sizes_served(served: Iterable[ServedRange]) -> frozenset[int]:
    return frozenset(size for one in served if one.entry is not None for size in range(one.first, one.last + 1))


def _is_one(trial: ForecastTrial, first: int) -> bool:
    """Return whether one entry serves all sizes from ``first`` on, with no compile after the first call."""
    entries = {one.entry for one in trial.served if one.last >= first}
    return (
        trial.problem is None
        and not trial.breaks
        and len(entries) == 1
        and None not in entries
        and not any(trial.compiled[1:])
    )


def _empty_cache() -> None:
    sys.modules["torch"]._dynamo.reset()
