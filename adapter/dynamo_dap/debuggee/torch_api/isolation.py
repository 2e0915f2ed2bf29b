"""Lets the debugger call torch without effect on the program.

Torch's modes, hooks and global switches would affect the debugger's own calls. These contexts turn them off on the
calling thread and restore them. ``isolated`` combines them, always in the same order. A held thread of the program
enters them for each request.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import logging
import random
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from types import ModuleType
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.swaps import Swap
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.debuggee.wrapping.patches import Outcome, Patches, Refusal

_EVAL_FRAME = "torch._C._dynamo.eval_frame:set_eval_frame"
_STANCE = "torch._dynamo.eval_frame:_stance"
_MODES = "torch.utils._python_dispatch:_disable_current_modes"
_TORCH_FUNCTION = "torch._C:DisableTorchFunction"

_RESET = "torch._dynamo:reset_code_caches"
"""The function that ``torch._dynamo.reset`` calls first."""
_TRANSFORMS = "torch._functorch.pyfunctorch:temporarily_clear_interpreter_stack"
_DEPTH = "torch._C._functorch:get_dynamic_layer_stack_depth"
_UNDO = "torch._C._functorch:pop_dynamic_layer_stack_and_undo_to_depth"
_FORWARD = "torch.autograd.forward_ad:_current_level"
_END_FORWARD = "torch.autograd.forward_ad:exit_dual_level"
_HOOKS_ENABLED = "torch._C._autograd:_saved_tensors_hooks_is_enabled"
_ENABLE_HOOKS = "torch._C._autograd:_saved_tensors_hooks_enable"

DYNAMO_OFF = Feature("running an expression's own calls without compiling them", _EVAL_FRAME, _STANCE)
RESETTING = Feature("refusing to reset Dynamo while it traces", _RESET)
READING = Feature("statistics and elements of tensors", _MODES, _TORCH_FUNCTION)
TRANSFORMS_OFF = Feature("statistics of large tensors inside torch.func", _TRANSFORMS, _DEPTH)
LEFT_OPEN = Feature(
    "closing transforms of torch.func after a failed evaluation",
    *(_DEPTH, _UNDO, _FORWARD, _END_FORWARD, _HOOKS_ENABLED, _ENABLE_HOOKS),
)

_LOCK = "torch._dynamo.convert_frame:compile_lock"
_COUNTERS = "torch._dynamo.utils:counters"
_TIMES = "torch._dynamo.utils:compilation_time_metrics"
_SUMS = "torch._dynamo.utils:cumulative_time_spent_ns"
_METRICS = "torch._dynamo.utils:_metrics_context_tls"
_METRICS_CONTEXT = "torch._dynamo.metrics_context:MetricsContext"
_NUMBERS = "torch._dynamo.bytecode_transformation:_unique_id_counter"
_GRAPH_NUMBERS = "torch.fx.graph_module:_loader.next_id"
COMPILES = (_LOCK, _COUNTERS, _TIMES, _SUMS, _METRICS, _METRICS_CONTEXT, _NUMBERS, _GRAPH_NUMBERS, _EVAL_FRAME, _STANCE)
"""Torch's names that an unnoticed compile needs; every feature that compiles lists them as well."""
COMPILES_APART = Feature("compiling without effect on the program", *COMPILES)


@contextlib.contextmanager
def isolated(
    *,
    modes: bool = False,
    transforms: bool = False,
    gradients: bool = False,
    resets: bool = False,
    compiles: bool = False,
    keeps_numbers: Callable[[], bool] = lambda: False,
) -> Iterator[contextlib.ExitStack]:
    """Run our code without effect on the program. The caller may add contexts to the yielded stack.

    Calls in our code are not compiled. Random states and global switches are always restored. In addition, ``modes``
    turns off the program's modes, ``transforms`` those transforms of torch.func that are open, and ``gradients`` the
    recording of gradients. ``resets`` makes ``torch._dynamo.reset()`` raise, which user code may call. With
    ``compiles`` our code may run a compile: it holds the compile lock, and torch's logs and counts do not include that
    compile. If ``keeps_numbers`` returns true at the end, the program keeps the compiled result, so the counters of its
    names are not reset.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(dynamo_off())
        if compiles:
            stack.enter_context(COMPILES_APART.resolve(_LOCK))
        stack.enter_context(preserved_global_state())
        stack.enter_context(_own_graph_numbers())
        if resets:
            stack.enter_context(not_reset())
        if transforms:
            stack.enter_context(transforms_off())
        stack.enter_context(transforms_closed())
        if modes:
            stack.enter_context(READING.resolve(_MODES)())
        if compiles:
            stack.enter_context(_silent_logs())
            stack.enter_context(_restored_statistics(keeps_numbers))
            stack.enter_context(_own_metrics())
        if gradients:
            stack.enter_context(sys.modules["torch"].no_grad())
        yield stack


class _StanceOfThreads:
    """Replaces ``torch._dynamo.eval_frame._stance``: ``force_eager`` on some threads, unchanged on all others.

    ``torch.compiler.set_stance`` acts on the whole process, and raises inside a compile.
    """

    def __init__(self, before: Any) -> None:
        self.before = before
        self.eager_threads: dict[int, int] = {}

    def __getattr__(self, name: str) -> object:
        return getattr(self.before, name)

    @property
    def stance(self) -> str:
        """The stance on the calling thread."""
        return "force_eager" if threading.get_ident() in self.eager_threads else self.before.stance


_stance_lock = lock("stance", Level.DATA)


@contextlib.contextmanager
def dynamo_off() -> Iterator[None]:
    """Compile nothing on this thread, neither new frames nor calls of compiled functions."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    set_eval_frame = DYNAMO_OFF.resolve(_EVAL_FRAME)
    _enter_eager()
    try:
        callback = set_eval_frame(None)
        try:
            yield
        finally:
            set_eval_frame(callback)
    finally:
        _leave_eager()


@contextlib.contextmanager
def not_reset() -> Iterator[None]:
    """Refuse ``torch._dynamo.reset()`` on this thread, which traces.

    Otherwise torch would free objects that the trace still uses, and the program would crash.
    """
    if RESETTING.problem is not None:
        yield
        return
    thread = threading.get_ident()

    def refuse() -> Generator[None, Outcome, None]:
        if threading.get_ident() == thread:
            error = "Dynamo cannot be reset while it traces. Reset it at a stop in ordinary Python."
            raise Refusal(RuntimeError(error))
        yield None

    with _not_resetting.meanwhile(sys.modules["torch._dynamo"], "reset_code_caches", refuse):
        yield


_not_resetting = Patches(RESETTING.name)


def _enter_eager() -> None:
    module: Any = sys.modules["torch._dynamo.eval_frame"]
    thread = threading.get_ident()
    with _stance_lock:
        if type(module._stance) is not _StanceOfThreads:
            module._stance = _StanceOfThreads(module._stance)
        threads = module._stance.eager_threads
        threads[thread] = threads.get(thread, 0) + 1


def is_dynamo_off() -> bool:
    """Return whether this thread is inside ``dynamo_off``. Only the debugger compiles there."""
    stance = sys.modules["torch._dynamo.eval_frame"]._stance
    return type(stance) is _StanceOfThreads and threading.get_ident() in stance.eager_threads


def _leave_eager() -> None:
    module: Any = sys.modules["torch._dynamo.eval_frame"]
    thread = threading.get_ident()
    with _stance_lock:
        stance = module._stance
        if type(stance) is not _StanceOfThreads:
            return
        stance.eager_threads[thread] -= 1
        if not stance.eager_threads[thread]:
            del stance.eager_threads[thread]
        if not stance.eager_threads:
            module._stance = stance.before


def change_stance(stance: object, only_if: object = None) -> object:
    """Set the stance of torch for the process, and return the previous one.

    With ``only_if``, set it only if ``only_if`` is the present stance: the program may have changed it.
    """
    DYNAMO_OFF.require()
    module = sys.modules["torch._dynamo.eval_frame"]
    with _stance_lock:
        # Threads inside ``dynamo_off`` keep ``force_eager``.
        holder, name = (module._stance, "before") if type(module._stance) is _StanceOfThreads else (module, "_stance")
        before = getattr(holder, name)
        if only_if is None or before is only_if:
            setattr(holder, name, stance)
    return before


@contextlib.contextmanager
def metadata_reading() -> Iterator[None]:
    """Read a tensor's metadata without calling the ``__torch_function__`` of a subclass or a mode."""
    torch = sys.modules["torch"]
    with torch._C.DisableTorchFunction():
        yield


@contextlib.contextmanager
def data_reading(*, transforms: bool = False) -> Iterator[None]:
    """Read or reduce a tensor's data: no modes, no gradients, no compiling; with ``transforms`` none of torch.func."""
    with dynamo_off(), _without_modes(), transforms_off() if transforms else contextlib.nullcontext():
        yield


def uncompiled_data_reading() -> contextlib.AbstractContextManager[object]:
    """Read or reduce plain tensors, in code that Dynamo skips anyway (``skipping.never_compile``).

    Every call of a compiled graph enters it, so it turns off only what is on.
    """
    torch = sys.modules["torch"]
    if not torch._C._len_torch_dispatch_stack() and not torch._C._len_torch_function_stack():
        return torch.no_grad()  # type: ignore[no-any-return]  # torch is untyped
    return _without_modes()


@contextlib.contextmanager
def _without_modes() -> Iterator[None]:
    torch = sys.modules["torch"]
    disable_modes, disable_function = READING.resolve(_MODES), READING.resolve(_TORCH_FUNCTION)
    with disable_modes(), disable_function(), torch.no_grad():
        yield


@contextlib.contextmanager
def transforms_off() -> Iterator[None]:
    """Turn off the transforms of ``torch.func`` on this thread: they wrap results, and ``vmap`` forbids randomness."""
    if TRANSFORMS_OFF.problem is not None or not TRANSFORMS_OFF.resolve(_DEPTH)():
        yield
        return
    with TRANSFORMS_OFF.resolve(_TRANSFORMS)():
        yield


@contextlib.contextmanager
def transforms_closed() -> Iterator[None]:
    """Close the transforms of ``torch.func`` that the code inside leaves open because it raised."""
    if LEFT_OPEN.problem is not None:
        yield
        return
    depth, forward = LEFT_OPEN.resolve(_DEPTH), sys.modules["torch.autograd.forward_ad"]
    is_saving, save = LEFT_OPEN.resolve(_HOOKS_ENABLED), LEFT_OPEN.resolve(_ENABLE_HOOKS)
    before, level, was_saving = depth(), forward._current_level, is_saving()
    try:
        yield
    finally:
        if depth() > before:
            LEFT_OPEN.resolve(_UNDO)(before)
        while forward._current_level > level:
            LEFT_OPEN.resolve(_END_FORWARD)()
        if was_saving and not is_saving():
            save()


@contextlib.contextmanager
def tensor_texts(text: Callable[[Any], str]) -> Iterator[None]:
    """Let the code inside print tensors as ``text`` formats them: torch's own format would read their data."""
    torch = sys.modules.get("torch")
    mode: Any = getattr(sys.modules.get("torch.overrides"), "TorchFunctionMode", None)
    tensor = getattr(torch, "Tensor", None)
    if mode is None or tensor is None:  # torch is not imported, or not completely
        yield
        return
    asked = (tensor.__repr__, tensor.__format__)

    class Texts(mode):  # type: ignore[misc]  # the base is known at run time
        def __torch_function__(self, function: Any, types: object, args: Any = (), kwargs: Any = None) -> object:
            return text(args[0]) if function in asked else function(*args, **(kwargs or {}))

    with Texts():
        yield


@contextlib.contextmanager
def preserved_global_state() -> Iterator[None]:
    """Restore random states and torch's global switches after the code inside."""
    restore = global_state()
    try:
        yield
    finally:
        for each in restore:
            each()


def global_state() -> list[Callable[[], None]]:
    """Return functions that restore the present random states and global switches."""
    return [*random_states(), *switches()]


def random_states() -> list[Callable[[], None]]:
    """Return functions that restore every random number generator in use."""
    torch = sys.modules["torch"]
    state = random.getstate()
    # Each replay runs this, so it is fast: the generator's methods are C code, which needs no ``dynamo_off``.
    with uncompiled_data_reading():
        tensor_state = torch.default_generator.get_state()
    restore = [lambda: random.setstate(state), lambda: _set_torch_state(torch, tensor_state)]
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy.random" in sys.modules:
        numpy_state = numpy.random.get_state()
        restore.append(lambda: numpy.random.set_state(numpy_state))
    if getattr(torch, "cuda", None) is not None and torch.cuda.is_initialized():
        with data_reading():
            cuda_states = torch.cuda.get_rng_state_all()
        restore.append(lambda: _set_cuda_states(torch, cuda_states))
    return restore


def random_state() -> Any:
    """Return the states of torch's random number generators, joined to a tensor of bytes on the CPU."""
    torch = sys.modules["torch"]
    with data_reading():
        states = [torch.get_rng_state()]
        if getattr(torch, "cuda", None) is not None and torch.cuda.is_initialized():
            states += torch.cuda.get_rng_state_all()
        return torch.cat(states)


def _set_torch_state(torch: ModuleType, state: object) -> None:
    with uncompiled_data_reading():
        torch.default_generator.set_state(state)


def _set_cuda_states(torch: ModuleType, states: object) -> None:
    with data_reading():
        torch.cuda.set_rng_state_all(states)


def switches() -> list[Callable[[], None]]:
    """Return a list with the function that restores torch's present global switches."""
    torch = sys.modules["torch"]
    grad = torch.is_grad_enabled()
    dtype = torch.get_default_dtype()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    autocast = {device: torch.is_autocast_enabled(device) for device in ("cpu", "cuda")}
    cache = torch.is_autocast_cache_enabled()

    def restore() -> None:
        if torch.is_grad_enabled() is not grad:
            torch._C._set_grad_enabled(grad)
        if torch.get_default_dtype() is not dtype:
            torch.set_default_dtype(dtype)
        if torch.are_deterministic_algorithms_enabled() is not deterministic:
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        for device, enabled in autocast.items():
            if torch.is_autocast_enabled(device) is not enabled:
                torch.set_autocast_enabled(device, enabled)
        if torch.is_autocast_cache_enabled() is not cache:
            torch.set_autocast_cache_enabled(cache)

    return [restore]


@contextlib.contextmanager
def _silent_logs() -> Iterator[None]:
    """Drop what this thread logs through torch's loggers."""
    thread = threading.get_ident()

    def is_kept(record: logging.LogRecord) -> bool:
        return record.thread != thread or not record.name.startswith("torch")

    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    handlers = {
        handler
        for logger in loggers
        if isinstance(logger, logging.Logger) and (logger is logging.root or logger.name.startswith("torch"))
        for handler in logger.handlers
    }
    structured = sys.modules.get("torch._logging.structured")
    # Torch writes each file name once to a structured trace, with a number that replaces the name from then on.
    interned: dict[str, int] = getattr(structured, "INTERN_TABLE", {})
    known = set(interned)
    for handler in handlers:
        handler.addFilter(is_kept)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_kept)
        for name in [name for name in interned if name not in known]:
            del interned[name]


@contextlib.contextmanager
def _restored_statistics(keeps_numbers: Callable[[], bool]) -> Iterator[None]:
    counters, times, sums = (COMPILES_APART.resolve(each) for each in (_COUNTERS, _TIMES, _SUMS))
    transformation: Any = sys.modules["torch._dynamo.bytecode_transformation"]
    numbers = copy_of_counter(transformation._unique_id_counter)
    with Swap() as swap:
        swap.keep(counters, levels=2)
        swap.keep(times, levels=2)
        swap.keep(sums)
        try:
            yield
        finally:
            if not keeps_numbers():  # else the program keeps the names, and a name must never occur twice
                transformation._unique_id_counter = numbers


class _GraphNumbers:
    """Numbers the debugger's graph code (``<eval_with_key>.5``) by a counter of its own.

    While any thread runs our code, torch uses our counter instead of its own.
    """

    def __init__(self) -> None:
        self._lock = lock("numbers of graphs", Level.DATA)
        self._threads = 0
        self._other = 1_000_000_000

    def change(self, by: int) -> None:
        """Change the number of threads that run our code; swap the counters at the first and last."""
        with self._lock:
            if self._threads + by == 0 or self._threads == 0:
                loader = sys.modules["torch.fx.graph_module"]._loader
                self._other, loader.next_id = loader.next_id, self._other
            self._threads += by


_graph_numbers = _GraphNumbers()


@contextlib.contextmanager
def _own_graph_numbers() -> Iterator[None]:
    if COMPILES_APART.problem is not None:
        yield
        return
    _graph_numbers.change(1)
    try:
        yield
    finally:
        _graph_numbers.change(-1)


@contextlib.contextmanager
def _own_metrics() -> Iterator[None]:
    """Collect the metrics of our compile on this thread, and drop them.

    Torch keeps the metrics of the last 64 compiles: ours would displace metrics of the program's compiles.
    """
    of_thread = COMPILES_APART.resolve(_METRICS)
    with Swap() as swap:
        swap.fill(of_thread.__dict__, {})
        of_thread.metrics_context = COMPILES_APART.resolve(_METRICS_CONTEXT)(on_exit=lambda *_: None)
        with of_thread.metrics_context:
            yield


def copy_of_counter(counter: object) -> itertools.count[int]:
    """Return an ``itertools.count`` with the present number of ``counter``; Python 3.14 cannot copy one."""
    # Only the text of a counter shows its present number without drawing the number.
    return itertools.count(*(ast.literal_eval(each) for each in repr(counter)[len("count(") : -1].split(", ")))
