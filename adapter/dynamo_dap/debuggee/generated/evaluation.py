"""Evaluates expressions in frames of generated code: over locals, globals and ``__stack__``.

``__stack__`` is the value stack, bottom first. Nothing that an expression calls is compiled. Runs on the held thread
only, except ``ConditionFilter``, which runs on the thread that executes the code. Its fast check skips breakpoints with
a false condition, since the agent's full decision takes several times as long.
"""

from __future__ import annotations

import ast
import functools
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from dynamo_dap.debuggee.agent.breakpoints import LineBreakpoint
from dynamo_dap.debuggee.agent.eager_expressions import evaluate_python, is_true_python
from dynamo_dap.debuggee.agent.engine import Host
from dynamo_dap.debuggee.agent.interruption import Guard
from dynamo_dap.debuggee.agent.own_rank import NAME as RANK
from dynamo_dap.debuggee.agent.own_rank import extra_names
from dynamo_dap.debuggee.generated.frame_values import FrameValues
from dynamo_dap.debuggee.generated.known_code import GeneratedCode
from dynamo_dap.debuggee.generated.writing import write_local, write_slot
from dynamo_dap.debuggee.torch_api.isolation import dynamo_off
from dynamo_dap.debuggee.values.model import EvaluationError, Interrupted, Value, WriteRefused, text_of_raised
from dynamo_dap.debuggee.values.python_values import present

STACK_NAME = "__stack__"


def evaluate(
    values: FrameValues, scratch: dict[str, object], expression: str, context: str, console: Callable[[str], None]
) -> Value:
    """Return the value of ``expression``.

    Statements of the console may assign locals; other names go to ``scratch``.
    """
    written, own = values.written_names(), values.locals()
    before = {**written, **own}
    names: dict[str, object] = {**written, **scratch, **own, STACK_NAME: values.stack()}
    with dynamo_off():
        value = evaluate_python(expression, context, values.frame.f_globals, names, console)
    _keep_assigned(values, scratch, before, names)
    return value


def _keep_assigned(
    values: FrameValues, scratch: dict[str, object], before: dict[str, object], names: dict[str, object]
) -> None:
    own = set(values.names)
    for name, value in names.items():
        if name == STACK_NAME or (name in before and before[name] is value):
            continue
        if name in own:
            write_local(values.frame, name, value)
        else:
            scratch[name] = value


@dataclass(frozen=True, slots=True)
class _Condition:
    """A condition, ready to run at every instruction."""

    code: types.CodeType
    calls: bool
    """Whether it calls anything, which might be a compiled function."""
    names_stack: bool
    """Whether it uses ``__stack__``."""

    def names_in(self, frame: FrameType) -> dict[str, object]:
        """Return the variables that it uses, without globals."""
        variables = frame.f_locals
        used: dict[str, object] = {name: variables[name] for name in self.code.co_names if name in variables}
        return used | extra_names(used, frame.f_globals) if RANK in self.code.co_names else used


def is_true(values: FrameValues, expression: str) -> bool:
    """Return whether ``expression`` is true. Passes its exceptions on."""
    condition = _compiled_condition(expression)
    if condition is None:
        names: Mapping[str, object] = {**values.locals(), STACK_NAME: values.stack()}
        with dynamo_off():
            return is_true_python(expression, values.frame.f_globals, dict(names))
    used = condition.names_in(values.frame)
    if condition.names_stack:
        used[STACK_NAME] = values.stack()
    if not condition.calls:
        # Hooks run where Dynamo is disabled; only a call of a compiled function would enable it.
        return bool(eval(condition.code, values.frame.f_globals, used))
    with dynamo_off():
        return bool(eval(condition.code, values.frame.f_globals, used))


def is_surely_false(generated: GeneratedCode, frame: types.FrameType, offset: int, expression: str) -> bool:
    """Return whether a condition without calls is certainly false, at minimal cost.

    Called at every instruction with a conditional breakpoint. Return False as well if the full evaluation must decide.
    """
    condition = _compiled_condition(expression)
    if condition is None or condition.calls:
        return False
    try:
        used = condition.names_in(frame)
        if condition.names_stack:
            index = generated.table.index_of_start[offset]
            used[STACK_NAME] = FrameValues(generated, frame, index, is_whole=True).stack()
        return not eval(condition.code, frame.f_globals, used)
    except Interrupted:
        raise
    except BaseException:  # noqa: BLE001  (the full evaluation reports it)
        return False


@functools.lru_cache(maxsize=256)
def _compiled_condition(expression: str) -> _Condition | None:
    """Compile a condition; None if it does not parse or has scopes of its own, such as a lambda."""
    try:
        tree = ast.parse(expression.strip(), "<condition>", "eval")
    except SyntaxError:
        return None
    code: types.CodeType = compile(tree, "<condition>", "eval")
    if any(isinstance(constant, types.CodeType) for constant in code.co_consts):
        return None
    calls = any(isinstance(node, ast.Call) for node in ast.walk(tree))
    return _Condition(code, calls, STACK_NAME in code.co_names)


def value_of(values: FrameValues, expression: str) -> Any:
    """Return the bare value of ``expression``.

    Raises:
        EvaluationError: it does not parse, or raises.
    """
    names = {**values.frame.f_globals, **values.locals(), STACK_NAME: values.stack()}
    try:
        code = compile(expression.strip(), "<expression>", "eval")
    except SyntaxError as error:
        raise EvaluationError(f"not a Python expression: {error.msg}") from None
    try:
        with dynamo_off():
            return eval(code, names)
    except Interrupted:
        raise
    except BaseException as error:  # noqa: BLE001  (whatever the expression raises)
        raise EvaluationError(text_of_raised(error)) from None


def assign(values: FrameValues, target: str, expression: str) -> Value:
    """Assign the value of ``expression`` to ``target`` and return it in displayed form.

    Raises:
        WriteRefused: nothing can be assigned there.
        EvaluationError: the expression has no value.
    """
    try:
        tree = ast.parse(target.strip(), "<target>", "eval").body
    except SyntaxError:
        raise WriteRefused(f"{target!r} cannot be assigned to") from None
    if isinstance(tree, ast.Name):
        return assign_local(values, tree.id, expression)
    slot = _slot_number(tree)
    if slot is not None:
        return assign_slot(values, slot, expression)
    if not isinstance(tree, (ast.Attribute, ast.Subscript)):
        raise WriteRefused(f"{target!r} cannot be assigned to")
    if any(isinstance(node, ast.Name) and node.id == STACK_NAME for node in ast.walk(tree.value)) and isinstance(
        tree.value, ast.Name
    ):
        raise WriteRefused(f"assign one slot at a time, such as {STACK_NAME}[0]")
    return _assign_inside(values, target, expression)


def _slot_number(tree: ast.expr) -> int | None:
    if not isinstance(tree, ast.Subscript) or not isinstance(tree.value, ast.Name) or tree.value.id != STACK_NAME:
        return None
    try:
        number = ast.literal_eval(tree.slice)
    except ValueError:
        return None
    return number if type(number) is int else None


def assign_local(values: FrameValues, name: str, expression: str) -> Value:
    """Assign to the local variable or cell ``name``."""
    if name not in values.names:
        raise WriteRefused(f"'{name}' is not a local variable of {values.generated.name}")
    value = value_of(values, expression)
    write_local(values.frame, name, value)
    return present(value, name)


def assign_slot(values: FrameValues, number: int, expression: str) -> Value:
    """Assign to slot ``number`` of the value stack, counted from the bottom, or from the top if negative."""
    depth = len(values.stack())
    index = number + depth if number < 0 else number
    if not 0 <= index < depth:
        raise WriteRefused(f"the value stack has no slot {number}: its depth is {depth}")
    value = value_of(values, expression)
    write_slot(values, index, value)
    return present(value, f"{STACK_NAME}[{index}]")


def _assign_inside(values: FrameValues, target: str, expression: str) -> Value:
    value = value_of(values, expression)
    names = {**values.frame.f_globals, **values.locals(), STACK_NAME: values.stack(), "__value__": value}
    try:
        with dynamo_off():
            exec(compile(f"{target.strip()} = __value__", "<assignment>", "exec"), names)
    except Interrupted:
        raise
    except BaseException as error:  # noqa: BLE001  (whatever the assignment raises)
        raise WriteRefused(text_of_raised(error)) from None
    return present(value, target.strip())


class ConditionFilter:
    """A fast check of conditions, with the same time limit as other evaluations."""

    def __init__(self, host: Host) -> None:
        """Take the time limit of evaluations from the options of ``host``."""
        self._host = host
        self._threads = threading.local()

    @property
    def are_evaluated(self) -> bool:
        """Whether this thread is evaluating a condition: its calls must not stop."""
        guard: Guard | None = getattr(self._threads, "guard", None)
        return guard is not None and guard.is_busy

    def possibly_true(
        self, breakpoints: Sequence[LineBreakpoint], generated: GeneratedCode, frame: FrameType, offset: int
    ) -> list[LineBreakpoint]:
        """Return the ``breakpoints`` that may have to stop before the instruction at ``offset``."""
        guard: Guard | None = getattr(self._threads, "guard", None)
        if guard is None:
            guard = self._threads.guard = Guard()
        elif guard.is_busy:
            return []
        remaining: list[LineBreakpoint] = []
        try:
            guard.begin(self._host.options.evaluation_timeout)
            try:
                for breakpoint in breakpoints:
                    condition = breakpoint.conditions.condition
                    if condition is None or not is_surely_false(generated, frame, offset, condition):
                        remaining.append(breakpoint)
            finally:
                guard.end()
        except Interrupted:
            # A condition took too long. The agent evaluates it again and reports that. The interrupt may have cut
            # ``end`` short, so it is called again.
            guard.end()
            return list(breakpoints)
        return remaining
