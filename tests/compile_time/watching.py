"""Inspects a paused trace like a user with every pane open: scopes to a depth, lazy values, watches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from dynamo_dap.debuggee.torch_api.traced.variable_trackers import unwrapped
from dynamo_dap.debuggee.trace.evaluation import evaluate, evaluate_to_tensor
from dynamo_dap.debuggee.trace.frames import scopes_of
from dynamo_dap.debuggee.trace.graph_view import graph_source
from dynamo_dap.debuggee.trace.paths import completions
from dynamo_dap.debuggee.values.model import Children, Variable
from dynamo_dap.debuggee.values.tensor_parts import part_of_tensor
from dynamo_dap.protocol.requests.tensor_requests import ELEMENTS, TENSOR_PARTS, TensorArguments
from tests.compile_time.samples import WALKS, Once

DEPTH = 3
ITEMS = 100
"""How many indexed children are opened at each level."""


class Looker:
    """Opens every scope of a frame, and the own scopes of its callers, at every line.

    Modules, classes, guards and nodes are opened only at their first occurrence: they are the same at every line. Other
    values are opened again if their text has changed; in ``make walks``, at every line.
    """

    def __init__(self, depth: int = DEPTH, *, lazy: bool = False) -> None:
        """``lazy``: also compute the values that are computed only on request."""
        self._depth = depth
        self._lazy = lazy
        self._opened: set[tuple[str, str]] = set()
        self._once = Once()
        self.shown: dict[str, str] = {}
        """The last text of every path that was shown. Not the values: their objects must die with the pause."""

    def __call__(self, frame: Any) -> None:
        """Look at a paused trace."""
        for scope in scopes_of(frame):
            self._open(scope.children, scope.name, self._depth)
        for number, caller in enumerate(frame.with_callers()[1:], start=1):
            for scope in scopes_of(caller)[:3]:
                self._open(scope.children, f"caller {number}.{scope.name}", 1)
        self.shown["graph"] = graph_source(frame).text()

    def _open(self, children: Children, path: str, depth: int) -> None:
        variables = [*children.named(), *children.indexed(0, min(children.indexed_count, ITEMS))]
        for variable in variables:
            name = f"{path}.{variable.name}"
            self.shown[name] = variable.value.text
            below = variable.value.children
            if below is not None and depth > 1 and self._is_worth_opening(variable, path):
                self._open(below, name, depth - 1)

    def _is_worth_opening(self, variable: Variable, path: str) -> bool:
        value = variable.value
        if value.kind == "class" or path in ("Guards", "Graph", "Globals"):
            known = (variable.name, value.text) in self._opened
            self._opened.add((variable.name, value.text))
            return not known
        is_page = " … " in variable.name  # a further page of siblings, which opening the parent leaves closed
        is_wanted = not is_page and (self._lazy or not value.lazy)
        return is_wanted and self._once.is_new((path, variable.name, value.text))


class EachLine:
    """Calls a function once for every line that a frame reaches, like a step by line."""

    def __init__(self, look: Callable[[Any], None], most: int | None = None) -> None:
        """``look(frame)`` is called at most ``most`` times for a line in a loop, except in ``make walks``."""
        self._look = look
        self._most = most
        self._last: tuple[int, int] | None = None
        self._times: Counter[tuple[object, int]] = Counter()

    def __call__(self, frame: Any) -> None:
        """Call ``look`` if the line or the frame differs from last time."""
        if self._last != (id(frame.interpreter), frame.line):
            self._last = (id(frame.interpreter), frame.line)
            self._times[frame.code, frame.line] += 1
            if WALKS or self._most is None or self._times[frame.code, frame.line] <= self._most:
                self._look(frame)


WATCHES = (
    "{0}",
    "{0}.shape",
    "{0}.shape[0] > 3",
    "len({0})",
    "{0} == {0}",
    "[{0}, 1]",
    "f'{{{0}}}'",
    "{0}[0]",
    "{0} + 1",
    "type({0}).__name__",
)


def _new_locals(frame: Any, once: Once, most: int | None = None) -> list[str]:
    """Return the newest local, and those of the newest ``most`` locals whose kind of value is new.

    In ``make walks``, return all locals at each line.
    """
    names = [name for name in frame.translator.symbolic_locals if name.isidentifier()][-(most or 0) :]
    kinds = [type(unwrapped(frame.translator.symbolic_locals[name])) for name in names]
    new = [name for name, kind in zip(names, kinds, strict=True) if once.is_new((frame.code, name, kind))]
    return list(dict.fromkeys([*new, *names[-1:]]))


class TensorLooker:
    """Inspects every part of every new local variable with the values of this call, and computes derived values."""

    def __init__(self) -> None:
        """Begin without any seen variables."""
        self.seen: dict[str, str] = {}
        self._once = Once()

    def __call__(self, frame: Any) -> None:
        """Look at a paused trace."""
        for name in _new_locals(frame, self._once):
            for expression, parts in ((name, TENSOR_PARTS), (f"{name} * 2", (ELEMENTS,))):
                for part in parts:
                    try:
                        tensor = evaluate_to_tensor(frame, expression, lambda text: None, {})
                        self.seen[f"{part} of {expression}"] = part_of_tensor(tensor.data, TensorArguments(part)).text
                    except Exception as problem:  # noqa: BLE001  (most expressions are not tensors)
                        self.seen[f"{part} of {expression}"] = f"{type(problem).__name__}: {problem}"


class Watcher:
    """Evaluates watches over the frame's locals, including expressions that fail."""

    def __init__(self, most_names: int = 4, interpreter: bool = False) -> None:
        """``interpreter``: also use ``ctx`` in ways that touch the trace."""
        self._most_names = most_names
        self._interpreter = interpreter
        self._once = Once()
        self.results: dict[str, str] = {}

    def __call__(self, frame: Any) -> None:
        """Evaluate everything."""
        for name in _new_locals(frame, self._once, self._most_names):
            for watch in WATCHES:
                self._evaluate(frame, watch.format(name))
            if self._interpreter:
                for watch in ("ctx.get_local('{}').python_type()", "ctx.get_local('{}').is_dynamic()"):
                    self._evaluate(frame, watch.format(name))
        for expression in ("no_such_name", "torch.zeros(2).sum()", "sum(range(10))"):
            self._evaluate(frame, expression)
        if self._interpreter:
            for expression in ("ctx.print_locals()", "ctx.print_guards()", "ctx.graph_break()", "tx.stack"):
                self._evaluate(frame, expression)
        completions(frame, "x.", 3)
        completions(frame, "", 1)

    def _evaluate(self, frame: Any, expression: str) -> None:
        try:
            value = evaluate(frame, expression, "repl", console=lambda text: None)
        except Exception as problem:  # noqa: BLE001  (the expression's own errors are among the results)
            self.results[expression] = f"{type(problem).__name__}: {problem}"
            return
        self.results[expression] = value.text
        if value.children is not None:
            value.children.named()
