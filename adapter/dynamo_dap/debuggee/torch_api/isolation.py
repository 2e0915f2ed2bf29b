"""Contexts in which the debugger may call torch without the program noticing.

Modes, hooks and global switches of torch affect whatever runs, including the debugger's own calls. These contexts turn
them off on the calling thread and restore them. Entered on the held thread, for the length of one read.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.wrapping.patches import Outcome, Patches, Refusal

_EVAL_FRAME = "torch._C._dynamo.eval_frame:set_eval_frame"
_STANCE = "torch._dynamo.eval_frame:_stance"
_MODES = "torch.utils._python_dispatch:_disable_current_modes"
_TORCH_FUNCTION = "torch._C:DisableTorchFunction"

_RESET = "torch._dynamo:reset_code_caches"
"""What ``reset`` does first."""
_TRANSFORMS = "torch._functorch.pyfunctorch:temporarily_clear_interpreter_stack"
_DEPTH = "torch._C._functorch:get_dynamic_layer_stack_depth"

DYNAMO_OFF = Feature("running an expression's own calls without compiling them", _EVAL_FRAME, _STANCE)
RESETTING = Feature("refusing to reset Dynamo while it traces", _RESET)
READING = Feature("statistics and elements of tensors", _MODES, _TORCH_FUNCTION)
TRANSFORMS_OFF = Feature("statistics of large tensors inside torch.func", _TRANSFORMS, _DEPTH)


class _StanceOfThreads:
    """Stands in for ``torch._dynamo.eval_frame._stance``: ``force_eager`` on some threads, as before on all others.

    ``torch.compiler.set_stance`` acts on the whole process, and refuses inside a compile.
    """

    def __init__(self, before: Any) -> None:
        self.before = before
        self.eager_threads: dict[int, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.before, name)

    @property
    def stance(self) -> str:
        """The stance on the calling thread."""
        return "force_eager" if threading.get_ident() in self.eager_threads else self.before.stance


_stance_lock = threading.Lock()


@contextlib.contextmanager
def dynamo_off() -> Iterator[None]:
    """Let nothing be compiled on this thread, neither new frames nor functions that are called compiled."""
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

    torch frees what it then goes on to use; it says so only when that is done, and the program dies of it.
    """
    if RESETTING.problem is not None:
        yield
        return
    thread = threading.get_ident()

    def refuse() -> Generator[None, Outcome, None]:
        if threading.get_ident() == thread:
            error = "Dynamo cannot be reset while it traces: at a stop in ordinary Python it can"
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


def change_stance(stance: Any, only_if: Any = None) -> Any:
    """Put a stance of torch's in force for the process, and return the one before.

    With ``only_if`` nothing changes unless that one is in force: the program may have chosen another since.
    """
    DYNAMO_OFF.require()
    module: Any = sys.modules["torch._dynamo.eval_frame"]
    with _stance_lock:
        # An expression that is being evaluated keeps its thread's own.
        holder, name = (module._stance, "before") if type(module._stance) is _StanceOfThreads else (module, "_stance")
        before = getattr(holder, name)
        if only_if is None or before is only_if:
            setattr(holder, name, stance)
    return before


@contextlib.contextmanager
def metadata_reading() -> Iterator[None]:
    """Read a tensor's metadata: the ``__torch_function__`` of a subclass or a mode is not called."""
    torch: Any = sys.modules["torch"]
    with torch._C.DisableTorchFunction():
        yield


@contextlib.contextmanager
def data_reading() -> Iterator[None]:
    """Read or reduce a tensor's data: no modes, no gradients, no compiling."""
    with dynamo_off(), _without_modes():
        yield


def uncompiled_data_reading() -> contextlib.AbstractContextManager[object]:
    """Do the same with plain tensors, in code that Dynamo leaves alone anyway (``skipping.never_compile``).

    It is entered at each call of a compiled graph, and takes only as much as there is to turn off.
    """
    torch: Any = sys.modules["torch"]
    if not torch._C._len_torch_dispatch_stack() and not torch._C._len_torch_function_stack():
        return torch.no_grad()  # type: ignore[no-any-return]  # torch is untyped
    return _without_modes()


@contextlib.contextmanager
def _without_modes() -> Iterator[None]:
    torch: Any = sys.modules["torch"]
    disable_modes, disable_function = READING.resolve(_MODES), READING.resolve(_TORCH_FUNCTION)
    with disable_modes(), disable_function(), torch.no_grad():
        yield


@contextlib.contextmanager
def transforms_off() -> Iterator[None]:
    """Let no transform of ``torch.func`` act on this thread: all wrap what is computed, ``vmap`` forbids randomness."""
    if TRANSFORMS_OFF.problem is not None or not TRANSFORMS_OFF.resolve(_DEPTH)():
        yield
        return
    with TRANSFORMS_OFF.resolve(_TRANSFORMS)():
        yield


@contextlib.contextmanager
def tensor_texts(text: Callable[[Any], str]) -> Iterator[None]:
    """Let ``text`` make the text of every tensor that code inside prints: torch's own would read its data."""
    torch: Any = sys.modules.get("torch")
    mode: Any = getattr(sys.modules.get("torch.overrides"), "TorchFunctionMode", None)
    tensor: Any = getattr(torch, "Tensor", None)
    if mode is None or tensor is None:  # not imported, or not all of it yet
        yield
        return
    asked = (tensor.__repr__, tensor.__format__)

    class Texts(mode):  # type: ignore[misc]  # the base is known at run time
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return text(args[0]) if function in asked else function(*args, **(kwargs or {}))

    with Texts():
        yield


def copy_of_counter(counter: Any) -> Any:
    """Return an ``itertools.count`` that goes on where ``counter`` stands; Python 3.14 cannot copy one."""
    # Its text is the only way to read it without drawing a number.
    return itertools.count(*(ast.literal_eval(each) for each in repr(counter)[len("count(") : -1].split(", ")))
