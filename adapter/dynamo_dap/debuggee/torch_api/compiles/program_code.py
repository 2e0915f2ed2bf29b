"""Reports when torch calls code of the program's inside a compile: passes, patterns, lowerings and fake kernels.

Each hook is around torch's caller, because the program's functions must stay as they are. Torch calls hundreds of its
own functions in the same way, so the watcher decides once for each function whether it leads to the program's code.
Installed on any thread, called on the compiling one.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Generator, Iterator
from typing import Any

from dynamo_dap.debuggee.bytecode.exact_types import find_in_type, is_a, is_exactly
from dynamo_dap.debuggee.torch_api.features import Feature, FeatureMissing, owner_of
from dynamo_dap.debuggee.torch_api.import_hooks import when_imported
from dynamo_dap.debuggee.torch_api.isolation import is_dynamo_off
from dynamo_dap.debuggee.wrapping.patches import Outcome, Patches
from dynamo_dap.debuggee.wrapping.weak_collections import WeakKeyDictionary

_OBSERVER = "torch.fx.passes.graph_transform_observer:GraphTransformObserver"
_GRAPH_PASS = f"{_OBSERVER}.apply_graph_pass"
_MODULE_PASS = f"{_OBSERVER}.apply_gm_pass"
_PATTERNS = "torch._inductor.pattern_matcher:PatternMatcherPass.apply"
_LOWERING = "torch._inductor.graph:GraphLowering.call_function"
_LOWERINGS = "torch._inductor.graph:lowerings"
_FAKE_KERNEL = "torch._library.utils:Kernel.__call__"

PASSES = Feature("stopping in passes of Inductor", _GRAPH_PASS, _MODULE_PASS)
PATTERNS = Feature("stopping in patterns of Inductor", _PATTERNS)
LOWERINGS = Feature("stopping in lowerings of Inductor", _LOWERING, _LOWERINGS)
FAKE_KERNELS = Feature("stopping in fake kernels", _FAKE_KERNEL)

_MAXIMUM_DEPTH = 4

Begin = Callable[[], Callable[[], None] | None]
IsUsers = Callable[[types.CodeType], bool]


class ProgramCodeWatcher:
    """Calls a function before each such call of the program's code, and what it returns after it."""

    def __init__(self, begin: Begin, is_users: IsUsers) -> None:
        """Call ``begin``; ``is_users`` says whether the user wrote a code object."""
        self._search = _Search(is_users)
        self._hooks = [
            _CallerHooks(PASSES, (_GRAPH_PASS, _MODULE_PASS), self._is_in_pass, begin),
            _CallerHooks(PATTERNS, (_PATTERNS,), self._search.is_in_patterns, begin),
            _CallerHooks(LOWERINGS, (_LOWERING,), self._is_in_lowering, begin),
            _CallerHooks(FAKE_KERNELS, (_FAKE_KERNEL,), self._is_in_kernel, begin),
        ]

    def install(self, on_problem: Callable[[str], None]) -> None:
        """Install the hooks, those of Inductor once it is imported; ``on_problem`` gets what this torch lacks."""
        for hooks in self._hooks:
            hooks.install(on_problem)

    def remove(self) -> None:
        """Remove the hooks; harmless if there are none. Runs on any thread."""
        for hooks in self._hooks:
            hooks.remove()

    def _is_in_pass(self, _: object, applied: object) -> bool:
        return self._search.is_in(applied)

    def _is_in_lowering(self, _: object, target: Any, *__: object) -> bool:
        tables = (LOWERINGS.resolve(_LOWERINGS), getattr(sys.modules["torch._inductor.graph"], "user_lowerings", {}))
        found = [table[target] for table in tables if target in table]  # the second table is new in torch 2.13
        if not found and is_exactly(target, _KINDS):
            found = [target]  # the handler of a pattern
        return any(map(self._search.is_in, found))

    def _is_in_kernel(self, kernel: Any, *_: object) -> bool:
        return self._search.is_inside(kernel.func)


class _CallerHooks:
    """The hooks of one feature, around functions of torch that call the program's code."""

    def __init__(
        self, feature: Feature, callers: tuple[str, ...], is_programs: Callable[..., bool], begin: Begin
    ) -> None:
        self._feature = feature
        self._callers = callers
        self._is_programs = is_programs
        self._patches = Patches(feature.name)
        self._begin = self._patches.guarded(begin, None)
        self._stop_waiting: Callable[[], None] | None = None
        self._is_reported = False

    def install(self, on_problem: Callable[[str], None]) -> None:
        if not self._patches.is_installed:
            if self._stop_waiting is not None:
                self._stop_waiting()
            module = self._callers[0].partition(":")[0]
            self._stop_waiting = when_imported(module, functools.partial(self._hook, on_problem))

    def remove(self) -> None:
        stop, self._stop_waiting = self._stop_waiting, None
        if stop is not None:
            stop()
        self._patches.remove()

    def _hook(self, on_problem: Callable[[str], None]) -> None:
        try:
            self._feature.require()
        except FeatureMissing as missing:
            if not self._is_reported:
                on_problem(str(missing))
            self._is_reported = True
            return
        for caller in self._callers:
            self._patches.around(*owner_of(caller), self._call)

    def _call(self, *arguments: object, **_: object) -> Generator[None, Outcome, None]:
        end = self._begin() if self._is_programs(*arguments) and not is_dynamo_off() else None
        yield None
        if end is not None:
            self._patches.guarded(end, None)()


class _Search:
    """Finds whether callables of torch's lead to functions that the user wrote; calls nothing."""

    def __init__(self, is_users: IsUsers) -> None:
        self._is_users = is_users
        self._functions: WeakKeyDictionary[types.FunctionType, bool] = WeakKeyDictionary()
        self._passes: WeakKeyDictionary[object, tuple[int, bool]] = WeakKeyDictionary()

    def is_in(self, called: object) -> bool:
        """Return whether ``called`` is the user's, or wraps a function that is."""
        function = called.__func__ if type(called) is types.MethodType else called
        if type(function) is not types.FunctionType:
            return self._leads_to_users(called)
        # Wrappers have the name of the module of what they wrap.
        return self._is_own(function) if _is_of_torch(function) else self.is_inside(function)

    def is_inside(self, function: object) -> bool:
        """Return whether a function, perhaps one of torch's with cells, leads to one of the user's."""
        if type(function) is not types.FunctionType:
            return self._leads_to_users(function)
        known = self._functions.get(function)
        if known is None:
            known = self._functions[function] = self._leads_to_users(function)
        return known

    def is_in_patterns(self, patterns: Any, *_: object) -> bool:
        """Return whether a ``PatternMatcherPass`` has a pattern with a function of the user's."""
        count = sum(map(len, patterns.patterns.values()))
        known = self._passes.get(patterns)
        if known is None or known[0] != count:
            entries = {id(entry): entry for entries in patterns.patterns.values() for entry in entries}
            functions = [value for entry in entries.values() for value in vars(entry).values() if callable(value)]
            known = self._passes[patterns] = count, any(map(self.is_inside, functions))
        return known[1]

    def _leads_to_users(self, called: object) -> bool:
        return any(map(self._is_own, _functions_in(called)))

    def _is_own(self, function: types.FunctionType) -> bool:
        code = function.__code__
        # Torch generates functions whose file is "<string>", as that of ``python -c`` is.
        return self._is_users(code) and (function.__module__ == "__main__" or not code.co_filename.startswith("<"))


def _is_of_torch(function: types.FunctionType) -> bool:
    return str(function.__module__).startswith("torch.")


def _functions_in(root: object) -> Iterator[types.FunctionType]:
    """Yield the functions that a callable consists of."""
    waiting, seen = [(root, 0)], set[int]()
    while waiting:
        found, depth = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if type(found) is types.FunctionType:
            yield found
        if depth < _MAXIMUM_DEPTH:
            waiting += [(part, depth + 1) for part in _parts(found)]


def _parts(found: Any) -> list[object]:
    kind = type(found)
    if kind is types.FunctionType:
        cells = [_content(cell) for cell in found.__closure__ or ()]
        return [each for each in (*cells, found.__dict__.get("__wrapped__")) if _may_hold_functions(each)]
    if kind is types.MethodType:
        return [found.__func__]
    if kind is functools.partial:
        return [each for each in (found.func, *found.args, *found.keywords.values()) if _may_hold_functions(each)]
    if kind.__module__.startswith("torch."):
        held = types.MappingProxyType(getattr(found, "__dict__", {})).values()
        return [each for each in held if is_exactly(each, _KINDS)]
    call = find_in_type(found, "__call__")
    return [call] if type(call) is types.FunctionType else []


_KINDS = (types.FunctionType, types.MethodType, functools.partial)


def _may_hold_functions(found: object) -> bool:
    return is_exactly(found, _KINDS) or (callable(found) and not is_a(found, type))


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # an empty cell
        return None
