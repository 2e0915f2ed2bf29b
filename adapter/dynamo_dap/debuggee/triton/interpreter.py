"""Hooks into Triton's interpreter: one observer gets each launch, program, and access to memory.

The hooks are installed once the program has imported the interpreter, for the life of the process, in sessions that
interpret kernels. The observer is called on the threads that launch kernels.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import inspect
import itertools
import os
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from dynamo_dap.debuggee.torch_api.import_hooks import when_imported
from dynamo_dap.debuggee.triton.accesses import Access, Order
from dynamo_dap.debuggee.triton.launches import LAUNCHES, MARK, Argument, Launch
from dynamo_dap.debuggee.triton.pointers import Outside, outside
from dynamo_dap.debuggee.wrapping.weak_collections import WeakValueDictionary
from dynamo_dap.protocol.requests.contract import TRITON_INTERPRET_VARIABLE

_INTERPRETER = "triton.runtime.interpreter"
_AUTOTUNER = "triton.runtime.autotuner"
MASKED = "dynamo_dap_masked"
"""The attribute of a loaded block's handle that counts its masked lanes."""
NUMBER = "dynamo_dap_number"
"""The attribute of a kernel, or of its wrapper, with its number."""


class Observer(Protocol):
    """Observes kernels."""

    def unobserved(self) -> AbstractContextManager[None]:
        """Observe nothing inside this context: Triton's own work in it may look like the program's."""

    def is_programs_launch(self) -> bool:
        """Return whether the program makes this launch, not an expression at a stop."""

    def program_begins(self, launch: Launch) -> None:
        """Observe that the next program of a launch is about to run."""

    def launch_ended(self, launch: Launch) -> None:
        """Observe that all programs of a launch have run, or one has raised."""

    def checks_accesses(self) -> bool:
        """Return whether to compare accesses with the bounds of tensors."""

    def is_outside(self, launch: Launch, access: Outside) -> None:
        """Observe that the running program is about to access memory outside of a tensor."""

    def follows_accesses(self) -> bool:
        """Return whether to report each access."""

    def accesses(self, launch: Launch, access: Access) -> None:
        """Observe that the running program is about to access memory."""


class CannotInterpret(Exception):
    """Kernels cannot be interpreted; the message says why."""


_observer: Observer | None = None
_is_installed = False
_is_followed = False


def interpret(observer: Observer, begin: Callable[[], None], on_problem: Callable[[str], None]) -> None:
    """Run the program's kernels in Triton's interpreter; call ``begin`` when it imports Triton.

    Raises:
        CannotInterpret: the program has imported Triton already, for a GPU.
    """
    global _observer, _is_installed
    _observer = observer
    if "triton" in sys.modules and _INTERPRETER not in sys.modules:
        raise CannotInterpret(
            'the option "triton" has no effect: the program has imported Triton before, so kernels are '
            f"compiled. Set {TRITON_INTERPRET_VARIABLE}=1 in its environment."
        )
    os.environ[TRITON_INTERPRET_VARIABLE] = "1"
    if not _is_installed:
        _is_installed = True
        when_imported(_INTERPRETER, lambda: _install(begin, on_problem))


def follow(observer: Observer) -> Any:
    """Report programs, pointers and accesses to ``observer``; return the interpreter, imported if it was not.

    Raises:
        Exception: of the import, or ``AttributeError`` in a version of Triton with another interpreter.
    """
    global _observer, _is_followed
    module = importlib.import_module(_INTERPRETER)
    _observer = observer
    if not _is_followed:
        _follow_programs(module.InterpreterBuilder)
        _follow_pointers(module)
        _follow_accesses(module.InterpreterBuilder)
        _follow_products(module.InterpreterBuilder)
        _is_followed = True
    return module


def _install(begin: Callable[[], None], on_problem: Callable[[str], None]) -> None:
    assert _observer is not None
    try:
        module = follow(_observer)
        _follow_launches(module.GridExecutor)
        _rewrite_unobserved(module.InterpretedFunction)
        _count(module.InterpretedFunction)
        when_imported(_AUTOTUNER, _install_wrappers)
        begin()
    except AttributeError as missing:
        on_problem(f"this version of Triton has another interpreter ({missing}): kernels run there unobserved")


def _install_wrappers() -> None:
    module = sys.modules[_AUTOTUNER]
    _tune_by_first(module.Autotuner)
    _count(module.Autotuner)
    _count(module.Heuristics)


# -- launches ----------------------------------------------------------------------------------------------------------


def _follow_launches(executor: Any) -> None:
    run, to_host = executor.__call__, executor._init_args_hst

    @functools.wraps(run)
    def call(self: Any, *args: object, **kwargs: object) -> object:
        launch = Launch(self.fn)
        is_programs = _observer is None or _observer.is_programs_launch()
        with LAUNCHES.running(launch, id(sys._getframe()), is_programs):
            try:
                return run(self, *args, **kwargs)
            finally:
                if _observer is not None:
                    _observer.launch_ended(launch)

    @functools.wraps(to_host)
    def init_args_hst(self: Any, args: object, kwargs: object) -> object:
        found = to_host(self, args, kwargs)
        launch = LAUNCHES.current
        if launch is not None:
            bound = inspect.getcallargs(self.fn, *found[0], **found[1])
            launch.constants = {name: bound[name] for name in self.constexprs if name in bound}
            for name, value in bound.items():
                note_arguments(launch, name, value)
        return found

    executor.__call__, executor._init_args_hst = call, init_args_hst


def _follow_programs(builder: Any) -> None:
    begin = builder.set_grid_idx

    @functools.wraps(begin)
    def set_grid_idx(self: Any, x: int, y: int, z: int) -> None:
        begin(self, x, y, z)
        launch = LAUNCHES.current
        if launch is not None:
            launch.grid, launch.program = tuple(self.grid_dim), (x, y, z)
            if _observer is not None:
                _observer.program_begins(launch)

    builder.set_grid_idx = set_grid_idx


def _rewrite_unobserved(function: Any) -> None:
    """Let the interpreter rewrite kernels unobserved: it executes the definition again, with other statements."""
    own = function.rewrite

    @functools.wraps(own)
    def rewrite(self: object) -> object:
        with contextlib.nullcontext() if _observer is None else _observer.unobserved():
            return own(self)

    function.rewrite = rewrite


def note_arguments(launch: Launch, name: str, value: object) -> None:
    """Note the tensors of a kernel's argument ``name``."""
    if isinstance(value, tuple):
        for index, each in enumerate(value):
            note_arguments(launch, f"{name}[{index}]", each)
        return
    # Wrappers of a tensor (``triton.reinterpret``, a descriptor) have it as their base.
    tensor = value if hasattr(value, "untyped_storage") else getattr(value, "base", None)
    if hasattr(tensor, "untyped_storage"):
        argument = Argument.of(name, tensor)
        launch.arguments[id(value)] = launch.arguments[id(tensor)] = argument


# -- pointers ----------------------------------------------------------------------------------------------------------


def _follow_pointers(module: Any) -> None:
    """Mark the type of each argument's pointer: every pointer computed from it has the same type."""
    own = module._implicit_cvt

    @functools.wraps(own)
    def implicit_cvt(arg: object) -> object:
        made = own(arg)
        launch = LAUNCHES.current
        argument = None if launch is None else launch.arguments.get(id(arg))
        handle: object = getattr(made, "handle", None)
        if argument is not None and hasattr(handle, "dtype"):
            handle.dtype = copy.copy(handle.dtype)
            setattr(handle.dtype, MARK, argument)
        return made

    module._implicit_cvt = implicit_cvt


# -- accesses ----------------------------------------------------------------------------------------------------------


class _Operation(NamedTuple):
    """A method of the builder: its effect, and the positions of its arguments."""

    what: str
    pointers: int
    mask: int | None = None
    values: int | None = None


_OPERATIONS = {
    "create_masked_load": _Operation("load", 0, 1),
    "create_masked_store": _Operation("store", 0, 2, values=1),
    "create_atomic_rmw": _Operation("atomic operation", 1, 3),
    "create_atomic_cas": _Operation("atomic compare-and-swap", 0),
    # Names of versions after Triton 3.7; they work like the first two.
    "create_atomic_load": _Operation("atomic load", 0, 1),
    "create_atomic_store": _Operation("atomic store", 0, 2),
}
_SEMANTICS, _IS_VOLATILE = "sem", "is_volatile"
"""Parameters whose positions vary with the version."""
_ORDERS = {
    "ACQUIRE": Order.ACQUIRE,
    "RELEASE": Order.RELEASE,
    "ACQUIRE_RELEASE": Order.ACQUIRE | Order.RELEASE,
}
"""By the name of Triton's ``MEM_SEMANTIC``."""


def _follow_accesses(builder: object) -> None:
    for name, operation in _OPERATIONS.items():
        if hasattr(builder, name):
            setattr(builder, name, _followed(getattr(builder, name), operation))


def _follow_products(builder: Any) -> None:
    own = builder.create_dot

    @functools.wraps(own)
    def create_dot(
        self: object, a: Any, b: object, d: object, input_precision: object, *rest: object, **kwargs: object
    ) -> object:
        launch = LAUNCHES.current
        if launch is not None and getattr(input_precision, "name", "") == "TF32" and str(a.data.dtype) == "float32":
            launch.rounds_products = True
        return own(self, a, b, d, input_precision, *rest, **kwargs)

    builder.create_dot = create_dot


class _InAtomic(threading.local):
    """Whether the calling thread is inside an atomic operation."""

    is_on = False


_in_atomic = _InAtomic()


def _followed(own: Callable[..., object], operation: _Operation) -> Callable[..., object]:
    parameters = list(inspect.signature(own).parameters)[1:]
    is_atomic = _SEMANTICS in parameters

    @functools.wraps(own)
    def access(self: object, *args: object, **kwargs: object) -> object:
        if _in_atomic.is_on:
            return own(self, *args, **kwargs)
        given = {name: kwargs.get(name) for name in parameters} | dict(zip(parameters, args, strict=False))
        values = list(given.values())
        launch, observer = LAUNCHES.current, _observer
        lanes = None if operation.mask is None else _array(values[operation.mask])
        if launch is not None and observer is not None:
            if observer.checks_accesses():
                found = outside(operation.what, values[operation.pointers], lanes)
                if found is not None:
                    observer.is_outside(launch, found)
            if observer.follows_accesses():
                observer.accesses(launch, _access(operation, given, lanes))
            if launch.memory is not None:
                within = launch.memory.within(operation.what, values[operation.pointers], lanes)
                if within is not lanes and operation.mask is not None:
                    name = parameters[operation.mask]
                    given[name], lanes = _as_mask(given[name], within), within
                    args, kwargs = (), {one: given[one] for one in (*parameters[: len(args)], *kwargs)}
        _in_atomic.is_on = is_atomic
        try:
            made = own(self, *args, **kwargs)
        finally:
            _in_atomic.is_on = False
        if operation.what == "load" and lanes is not None and not lanes.all():
            setattr(made, MASKED, int(lanes.size - lanes.sum()))
        return made

    return access


def _access(operation: _Operation, given: dict[str, Any], lanes: object) -> Access:
    values = list(given.values())
    semantics = getattr(given.get(_SEMANTICS), "name", "")
    return Access(
        operation.what,
        values[operation.pointers],
        lanes,
        None if operation.values is None else values[operation.values].data,
        _ORDERS.get(semantics, Order.NOTHING) if _SEMANTICS in given else None,
        bool(given.get(_IS_VOLATILE)),
    )


def _array(mask: Any) -> Any:
    """Return a mask as an array, which a block pointer's mask already is; None if the operation has no mask."""
    return mask if mask is None or hasattr(mask, "all") else mask.data


def _as_mask(mask: Any, lanes: object) -> object:
    """Return a mask for other lanes, of the same kind as ``mask``."""
    if hasattr(mask, "all"):
        return lanes
    changed = copy.copy(mask)
    changed.data = lanes
    return changed


# -- kernels and what wraps them ---------------------------------------------------------------------------------------

_numbers = itertools.count(1)
_kernels: WeakValueDictionary[int, object] = WeakValueDictionary()


def kernel_of(number: int) -> Any:
    """Return the kernel, or its wrapper, with ``number``."""
    return _kernels[number]


def _count(cls: Any) -> None:
    """Give each instance of a class a number: a graph contains the number instead of the kernel."""
    own = cls.__init__

    @functools.wraps(own)
    def init(self: object, *args: object, **kwargs: object) -> None:
        own(self, *args, **kwargs)
        number = next(_numbers)
        setattr(self, NUMBER, number)
        _kernels[number] = self

    cls.__init__ = init
    setattr(cls, NUMBER, None)


def _tune_by_first(autotuner: Any) -> None:
    """Take the first configuration: only a GPU can time them."""

    @functools.wraps(autotuner.run)
    def run(self: Any, *args: object, **kwargs: object) -> object:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        config = self.best_config = self.prune_configs(kwargs)[0]
        if config.pre_hook is not None:
            config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
        made = self.fn.run(*args, **kwargs, **config.all_kwargs())
        self.nargs = None
        return made

    autotuner.run = run
