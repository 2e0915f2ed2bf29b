"""Interprets a launch of a kernel that is compiled for a device, before the launch itself.

The interpreter works on copies of the arguments; the launch itself is unchanged. The hooks are installed when the
program imports Triton, for the life of the process. The interpreter patches Triton's language for all threads. So it
interprets one launch at a time, and compiles on other threads wait meanwhile. Nothing else in Triton changes. Runs on
the threads that launch kernels.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from dynamo_dap.debuggee.torch_api.import_hooks import when_imported
from dynamo_dap.debuggee.torch_api.lowering.generated_kernels import Given, watch_generated_launches
from dynamo_dap.debuggee.triton.argument_copies import ArgumentCopies, KernelDifference
from dynamo_dap.debuggee.triton.device_functions import device_functions
from dynamo_dap.debuggee.triton.interpreter import Observer, follow, note_arguments
from dynamo_dap.debuggee.triton.launches import LAUNCHES, Launch
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.debuggee.wrapping.weak_collections import WeakKeyDictionary

_KERNELS = "triton.runtime.jit"
_AUTOTUNER = "triton.runtime.autotuner"
_COMPILER = "triton.compiler.compiler"
_SEMANTIC = "interpreter_semantic"
"""The interpreter's global variable that rewritten kernels refer to."""
_SECONDS_UNTIL_REPORTED = 2.0


@dataclass(frozen=True)
class Observation:
    """What to observe in a launch."""

    is_of_all_programs: bool
    """Whether to interpret every program, not only the chosen one."""
    is_compared: bool = False
    """Whether to compare the results of launch and interpreter."""


class LaunchObserver(Protocol):
    """Decides which launches to interpret."""

    def observes_any(self) -> bool:
        """Return whether any launch may have to be interpreted. Called at every launch."""

    def observation(self, function: types.FunctionType, *, is_entered: bool) -> Observation | None:
        """Return what to observe in the launch that is about to begin; None for nothing.

        Called at every launch. ``is_entered`` says whether a step goes into the kernel.
        """

    def chosen(self, launch: Launch) -> tuple[int, int, int] | None:
        """Return the program in which to stop; None if the grid lacks it."""

    def step_suspended(self) -> AbstractContextManager[None]:
        """Suspend the user's step inside the context."""

    def report(self, text: str) -> None:
        """Show the user a text about a launch."""

    def differs(self, launch: Launch, difference: KernelDifference) -> None:
        """Observe that launch and interpreter wrote different values."""


class _OfThread(threading.local):
    is_measuring = False
    """Whether Triton is timing configurations of a kernel."""
    functions: dict[int, types.FunctionType] | None = None
    """While the interpreter runs: its function for each compiled function, by ``id``."""


_of_thread = _OfThread()
_observers: tuple[LaunchObserver, Observer] | None = None
_is_installed = False


def watch(observer: LaunchObserver, programs: Observer) -> None:
    """Ask ``observer`` at each launch once the program imports Triton; ``programs`` observes the programs that run."""
    global _observers, _is_installed
    _observers = observer, programs
    if not _is_installed:
        _is_installed = True
        when_imported(_COMPILER, lambda: _isolate_compiler(sys.modules[_COMPILER].ASTSource))
        when_imported(_AUTOTUNER, lambda: _note_benchmarks(sys.modules[_AUTOTUNER].Autotuner))
        watch_generated_launches(observer.observes_any, functools.partial(interpret_copy, is_entered=False))
        when_imported(_KERNELS, lambda: _watch_launches(sys.modules[_KERNELS].JITFunction))


def _as_of_triton(function: Any) -> object:
    """Disguise a function as the Triton function that it replaces: debugpy cannot step out of the debugger's files."""
    function.__code__ = function.__code__.replace(co_filename=str(sys.modules[_KERNELS].__file__))
    return function


def _watch_launches(kernel: Any) -> None:
    own_run, own_call = kernel.run, kernel.__call__

    @functools.wraps(own_run)
    def run(self: object, *args: object, grid: object, warmup: object, **kwargs: object) -> object:
        interpreted = None if warmup else interpret_copy(self, lambda: (args, kwargs, grid))
        if interpreted is None:
            return own_run(self, *args, grid=grid, warmup=warmup, **kwargs)
        with interpreted.launching():
            return own_run(self, *args, grid=grid, warmup=warmup, **kwargs)

    @functools.wraps(own_call)
    def call(self: object, *args: object, **kwargs: object) -> object:
        functions = _of_thread.functions
        if functions is None:
            return own_call(self, *args, **kwargs)
        if id(self) not in functions:
            functions[id(self)] = _interpreted(self)
        return functions[id(self)](*args, **kwargs)

    kernel.run, kernel.__call__ = _as_of_triton(run), _as_of_triton(call)
    for between in (interpret_copy, _Prepared.run, _run_programs):
        _as_of_triton(between)


def _note_benchmarks(autotuner: Any) -> None:
    own = autotuner._bench

    @functools.wraps(own)
    def bench(self: object, *args: object, **kwargs: object) -> object:
        before, _of_thread.is_measuring = _of_thread.is_measuring, True
        try:
            return own(self, *args, **kwargs)
        finally:
            _of_thread.is_measuring = before

    autotuner._bench = bench


def _isolate_compiler(source: Any) -> None:
    own = source.make_ir

    @functools.wraps(own)
    def make_ir(self: Any, *args: object, **kwargs: object) -> object:
        with _language.as_compiled(lambda: _name_of(self.fn)):
            return own(self, *args, **kwargs)

    source.make_ir = make_ir


def _name_of(kernel: Any) -> str:
    return str(kernel.fn.__name__)


# -- looking into a launch ---------------------------------------------------------------------------------------------


class InterpretedLaunch:
    """A launch that was interpreted, and is about to be made."""

    def __init__(self, observer: LaunchObserver, programs: Observer) -> None:
        self._observer, self._programs = observer, programs
        self._compared: tuple[Launch, ArgumentCopies] | None = None

    def compare_after(self, launch: Launch, copies: ArgumentCopies) -> None:
        """Compare the launch's results with ``copies`` once it has run. Every program has run on the copies."""
        self._compared = launch, copies

    @contextlib.contextmanager
    def launching(self) -> Iterator[None]:
        """Keep steps from ending inside the launch, then compare its results."""
        with self._observer.step_suspended():
            yield
        if self._compared is not None:
            self._compare(*self._compared)

    def _compare(self, launch: Launch, copies: ArgumentCopies) -> None:
        try:
            with self._programs.unobserved():
                difference = copies.first_difference(rounds_products=launch.rounds_products)
        except Exception as error:  # noqa: BLE001  (the program continues)
            self._observer.report(f"the results of {launch.name} cannot be compared: {type(error).__name__}: {error}")
            return
        if difference is not None:
            self._observer.differs(launch, difference)


def interpret_copy(kernel: Any, given: Callable[[], Given], *, is_entered: bool = True) -> InterpretedLaunch | None:
    """Interpret a launch that is about to be made, on copies, if the observer wants that.

    Failures are reported, and the program continues. ``is_entered`` says whether steps go in.
    """
    if _observers is None or _of_thread.is_measuring or _of_thread.functions is not None:
        return None
    observer, programs = _observers
    observation = observer.observation(kernel.fn, is_entered=is_entered)
    if observation is None:
        return None
    interpreted = InterpretedLaunch(observer, programs)
    try:
        with programs.unobserved():
            prepared = _Prepared(kernel, given(), observer, programs)
        prepared.run(observation)
        if observation.is_compared and prepared.copies.is_complete:
            interpreted.compare_after(prepared.launch, prepared.copies)
    except Exception as error:  # noqa: BLE001  (whatever the kernel raises there, the launch is the program's)
        text = (
            f"{_name_of(kernel)} cannot be interpreted (the launch itself continues): {type(error).__name__}: {error}"
        )
        observer.report(text)
    return interpreted


class _Prepared:
    """A launch, ready to be run in the interpreter."""

    def __init__(self, kernel: Any, given: Given, observer: LaunchObserver, programs: Observer) -> None:
        args, kwargs, grid = given
        if kernel.is_gluon():
            raise TypeError("Triton has no interpreter for Gluon")
        _refuse_capture()
        self._observer, self._programs = observer, programs
        self._interpreter = follow(programs)
        named = {name: value for name, value in kwargs.items() if name in kernel.signature.parameters}
        bound = kernel.signature.bind(*args, **named)
        bound.apply_defaults()
        sizes = grid(dict(bound.arguments)) if callable(grid) else grid
        self._grid = tuple(int(size) for size in (*sizes, 1, 1))[:3]
        self._function = _interpreted(kernel)
        self.launch = launch = Launch(self._function, grid=(self._grid[0], self._grid[1], self._grid[2]))
        self.copies = ArgumentCopies(bound.arguments, lambda text: observer.report(f"{launch.name}: {text}"))
        launch.memory = self.copies
        constants = {parameter.name for parameter in kernel.params if parameter.is_constexpr}
        launch.constants = {name: value for name, value in self.copies.values.items() if name in constants}
        for name, value in self.copies.values.items():
            note_arguments(launch, name, value)
        self._constants = constants

    def run(self, observation: Observation) -> None:
        """Interpret the launch."""
        programs: Iterable[tuple[int, ...]] = itertools.product(*map(range, self._grid))
        if not observation.is_of_all_programs:
            chosen = self._observer.chosen(self.launch)
            programs = [] if chosen is None else [chosen]
        functions: dict[int, types.FunctionType] = {}
        numpy = sys.modules["numpy"]
        with _language.as_interpreted(self._interpreter, self.launch.name), numpy.errstate(all="ignore"):
            before, _of_thread.functions = _of_thread.functions, functions
            try:
                with self._programs.unobserved(), LAUNCHES.running(self.launch, id(sys._getframe()), is_programs=False):
                    arguments = {
                        name: value if name in self._constants else self._interpreter._implicit_cvt(value)
                        for name, value in self.copies.values.items()
                    }
                _run_programs(self._interpreter.interpreter_builder, self._function, arguments, self.launch, programs)
            finally:
                _of_thread.functions = before
                self._programs.launch_ended(self.launch)


def _run_programs(
    builder: Any,
    function: types.FunctionType,
    arguments: dict[str, object],
    launch: Launch,
    programs: Iterable[tuple[int, ...]],
) -> None:
    with LAUNCHES.running(launch, id(sys._getframe()), is_programs=False):
        builder.set_grid_dim(*launch.grid)
        for program in programs:
            builder.set_grid_idx(*program)
            function(**arguments)


def _refuse_capture() -> None:
    torch = sys.modules["torch"]
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("nothing can be copied while a CUDA graph is captured")


# -- what the interpreter runs for a kernel ----------------------------------------------------------------------------


def names_of(function: types.FunctionType) -> dict[str, object]:
    """Return the values of a function's global and free names."""
    closure = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {**function.__globals__, **{name: cell.cell_contents for name, cell in closure}}


_rewritten: WeakKeyDictionary[types.FunctionType, types.FunctionType] = WeakKeyDictionary()


def _interpreted(kernel: Any) -> types.FunctionType:
    """Return the function that the interpreter runs for a kernel, with a copy of the present global variables."""
    scope = dict(names_of(kernel.fn))
    function = _rewritten.get(kernel.fn)
    if function is None:
        assert _observers is not None
        with _observers[1].unobserved():
            function = _rewritten[kernel.fn] = _rewrite(kernel.fn, dict(scope))
    scope[_SEMANTIC] = sys.modules["triton.runtime.interpreter"].interpreter_semantic
    made = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__, made.__annotations__ = function.__kwdefaults__, function.__annotations__
    made.__qualname__, made.__module__ = kernel.fn.__qualname__, kernel.fn.__module__
    return made


def _rewrite(own: types.FunctionType, scope: dict[str, object]) -> types.FunctionType:
    """Make Triton rewrite a kernel for its interpreter; the result goes into ``scope``, not into the program."""
    function = types.FunctionType(own.__code__, scope, own.__name__, own.__defaults__, own.__closure__)
    function.__kwdefaults__, function.__annotations__ = own.__kwdefaults__, own.__annotations__
    function.__module__, function.__qualname__ = own.__module__, f"{own.__qualname__}.dynamo_dap"
    try:
        rewritten = sys.modules["triton.runtime.interpreter"].FunctionRewriter(function).rewrite_ast()
    finally:
        registry = getattr(sys.modules[_KERNELS], "_triton_jit_function_registry", {})
        registry.pop(f"{function.__module__}:{function.__qualname__}", None)
    if rewritten is function:
        raise TypeError(f"{own.__name__} has no source to interpret")
    assert isinstance(rewritten, types.FunctionType)
    return rewritten


# -- the language ------------------------------------------------------------------------------------------------------


def _patched(interpreter: Any, modules: types.SimpleNamespace) -> object:
    patches = interpreter._patch_lang(modules)
    for module, name, function in device_functions():
        patches.set_attr(module, name, function)
    return patches


class _Language:
    """``triton.language`` in one of two states: original for the compiler, or patched for the interpreter."""

    def __init__(self) -> None:
        self._lock = lock("launches of kernels", Level.STOPS)
        self._owner: int | None = None
        self._running = ""
        self._patch: Callable[[], object] = lambda: None
        self._patches: Any = None

    @contextlib.contextmanager
    def as_interpreted(self, interpreter: object, name: str) -> Iterator[None]:
        """Patch the language for the interpreter inside the context."""
        modules = {"tl": sys.modules["triton.language"], "core": sys.modules["triton.language.core"]}
        of_all = types.SimpleNamespace(__globals__=modules)
        with self._held(lambda: f"the launch of {name}"):
            self._owner, self._running = threading.get_ident(), name
            self._patch = lambda: _patched(interpreter, of_all)
            self._patches = self._patch()
            try:
                yield
            finally:
                self._patches.restore()
                self._owner = self._patches = None

    def as_compiled(self, name: Callable[[], str]) -> AbstractContextManager[None]:
        """Restore Triton's own language inside the context."""
        if self._owner == threading.get_ident():
            return self._restored()
        return self._held(lambda: f"compiling {name()}")

    @contextlib.contextmanager
    def _restored(self) -> Iterator[None]:
        self._patches.restore()
        try:
            yield
        finally:
            self._patches = self._patch()

    @contextlib.contextmanager
    def _held(self, what: Callable[[], str]) -> Iterator[None]:
        if not self._lock.acquire(timeout=_SECONDS_UNTIL_REPORTED):
            if _observers is not None:
                running = self._running or "another kernel"
                _observers[0].report(f"{what()} waits until {running}, which another thread interprets, has run")
            self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()


_language = _Language()
