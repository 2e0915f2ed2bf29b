"""Reads the condition of a data-dependent branch, and the origin of its numbers.

Torch raises ``GuardOnDataDependentSymNode`` for such a branch, with the condition as a sympy expression: ``Eq(u0, 3)``.
A symbol ``u0`` represents a number that the program computes from data: ``mask.nonzero().shape[0]``, ``x.item()``. An
operation that makes a symbol must return it: otherwise torch raises ``PendingUnbackedSymbolNotFound``. Reads only, on
the compiling thread, while the exception is handled.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath
from types import ModuleType
from typing import Any, NamedTuple

from dynamo_dap.debuggee.torch_api.compiles.graph_breaks import BreakFacts
from dynamo_dap.debuggee.torch_api.features import Feature, FeatureMissing
from dynamo_dap.debuggee.torch_api.graphs.graph import example_of, graphs_of, nodes_of, target_name, user_place
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import is_tensor
from dynamo_dap.debuggee.torch_api.isolation import metadata_reading
from dynamo_dap.debuggee.torch_api.objects import ShapeEnv, Tensor
from dynamo_dap.debuggee.torch_api.traced.symbols import expression_of, is_symbolic, range_text, replaced
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.trackers.forms import NumberForm, SequenceForm, TensorForm
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place, users_frame
from dynamo_dap.protocol.requests.branches import BRANCH_ON_TENSOR, CAPTURING_SETTINGS

_ERROR = "torch.fx.experimental.symbolic_shapes:GuardOnDataDependentSymNode"
_PENDING = "torch.fx.experimental.symbolic_shapes:PendingUnbackedSymbolNotFound"
_STACKS = "torch.fx.experimental.symbolic_shapes:ShapeEnv.create_unbacked_symint"
_PRINTER = "torch.utils._sympy.printers:PythonPrinter"
_OF_DATA = "torch.fx.experimental.symbolic_shapes:free_unbacked_symbols"

DATA_DEPENDENCE = Feature("where the number of a data-dependent branch came from", _ERROR, _PRINTER, _OF_DATA)
PENDING = Feature("where a number was made that its operation does not return", _PENDING, _STACKS)
_SYMBOLS = re.compile(r"Pending unbacked symbols \{(?P<names>[^}]*)\} not in returned outputs")

_PROMISES = 6
"""Maximum number of promises (``torch._check``) that are shown."""
_ANYTHING = "-∞ … ∞"
_ITEMS = 64
_LISTS = ("list", "tuple")
_STEPS = 20
"""How many causes of an exception are searched."""


class DataSymbol(NamedTuple):
    """A number that the program computes from data."""

    name: str
    """Torch's name: ``u0``."""
    user_name: str | None
    """As the user may write it at the branch: ``n``, ``found.shape[0]``; None if no variable holds it."""
    operation: str | None
    """The operation that made it: ``nonzero``."""
    place: Place | None
    """The user's line that made it."""
    range: str | None
    """Torch's bounds: ``0 … ∞``."""
    node: Any
    """The node of the graph whose result contains it."""
    position: int | None
    """The position of the size in that result; None for a number."""

    @property
    def text(self) -> str:
        """Its name, and the line that made it: ``n is size 0 of the result of nonzero at model.py:6``."""
        name = self.name if self.user_name is None else self.user_name
        if self.operation is None:
            return f"{name} is known only when the program runs"
        what = f"the result of {'indexing' if self.operation == 'operator.getitem' else self.operation}"
        if self.position is not None:
            what = f"size {self.position} of {what}"
        where = "" if self.place is None else f" at {PurePath(self.place.path).name}:{self.place.line}"
        return f"{name} is {what}{where}"


class DataDependence(NamedTuple):
    """The condition of a branch."""

    condition: str
    """With torch's names: ``u0 == 3``."""
    user_condition: str | None
    """As the user may write it at the branch: ``n == 3``; None if a symbol has no name there."""
    symbols: tuple[DataSymbol, ...]
    known: tuple[str, ...] = ()
    """The code's promises about its numbers, by ``torch._check``: ``(n % 4) == 0``."""
    user_opposite: str | None = None
    """The opposite of ``user_condition``: ``n != 3``."""
    is_number: bool = False
    """Whether the code needs the number itself, as ``range()`` does: the condition is the number."""

    @property
    def kind(self) -> str:
        """The kind of graph break: ``Data-dependent condition: n == 3``."""
        return f"Data-dependent {'number' if self.is_number else 'condition'}: {self.text}"

    @property
    def text(self) -> str:
        """The condition as the user may write it, else with torch's names."""
        return self.condition if self.user_condition is None else self.user_condition


NUMBER_HINT = (
    "the line needs the number itself, as range() does: give it as an int, so that torch compiles once per value; "
    "or write the loop as one operation or as torch.while_loop"
)


class Obstacle(NamedTuple):
    """The cause of a graph break, if a fix can be tried."""

    kind: str
    """Torch's name of the kind of graph break."""
    condition: DataDependence | None
    """The data-dependent condition, if that is the cause."""
    is_on_tensor: bool
    """Whether a line of the user's code branches on a tensor."""
    settings: tuple[str, ...]
    """Settings that torch's hints name and whose only effect is that Dynamo traces more code."""


def obstacle_of(facts: BreakFacts, condition: DataDependence | None, *, is_in_library: bool) -> Obstacle | None:
    """Return the obstacle that a fix must remove; None if the graph break does not depend on data."""
    hints = "\n".join(facts.hints)
    settings = tuple(name for name in CAPTURING_SETTINGS if f"{name} = True" in hints)
    is_on_tensor = facts.kind == BRANCH_ON_TENSOR and not is_in_library
    if condition is None and not is_on_tensor and not settings:
        return None
    return Obstacle(facts.kind, condition, is_on_tensor, settings)


def explained(facts: BreakFacts, dependence: DataDependence | None, inside: TracedFrame | None = None) -> BreakFacts:
    """Return a break's facts, with its condition in the user's terms. ``inside`` is the library function that asks."""
    if dependence is None:
        return facts
    verb = "know" if dependence.is_number else "decide"
    asked = f"Dynamo has to {verb} {dependence.text} while tracing, but the answer depends on data."
    made = [f"{symbol.text}." for symbol in dependence.symbols]
    known = [f"Known from torch._check: {', '.join(dependence.known)}."] if dependence.known else []
    called = []
    if inside is not None:
        place = f"{PurePath(inside.path).name}:{inside.line}"
        called = [f"This line calls {inside.code.co_name} at {place}, which needs the answer."]
    explanation = "\n".join([asked, *called, *made, *known])
    hints = (*facts.hints, *([NUMBER_HINT] if dependence.is_number else []))
    return replace(facts, kind=dependence.kind, explanation=explanation, hints=hints)


def data_dependence_of(exception: BaseException, frame: TracedFrame) -> DataDependence | None:
    """Return the condition of the branch at ``frame`` that raised ``exception``; None for every other problem."""
    if DATA_DEPENDENCE.problem is not None:
        return None
    error = _data_dependent_error(exception)
    shape_env = getattr(frame.translator.output, "shape_env", None)
    if error is None or shape_env is None:
        return None
    condition = replaced(error.cond, shape_env)
    names = dict(_names_of_symbols(frame))
    symbols = symbols_of_data(condition)
    found = [_symbol(each, frame, shape_env, names) for each in symbols]
    if not found:
        return None
    user_condition = _in_user_names(condition, names)
    asserted = getattr(shape_env, "deferred_runtime_asserts", {})
    promised = [promise.expr for each in symbols for promise in asserted.get(each, ())][:_PROMISES]
    known = [_in_user_names(one, names) or _printed(one) for one in promised]
    is_number = bool(condition.is_real)
    opposite = None if user_condition is None or is_number else _in_user_names(~condition, names)
    return DataDependence(
        _printed(condition), user_condition, tuple(found), tuple(dict.fromkeys(known)), opposite, is_number
    )


def _in_user_names(expression: Any, names: dict[Any, str]) -> str | None:
    """Return an expression with the user's names; None where a symbol has no name."""
    sympy: ModuleType = sys.modules["sympy"]
    named = {one: sympy.Symbol(name, integer=one.is_integer, real=True) for one, name in names.items()}
    found = expression.xreplace(named)
    return _printed(found) if found.free_symbols <= set(named.values()) else None


def data_symbols_of(value: Any, frame: TracedFrame) -> list[DataSymbol]:
    """Return the data-dependent numbers in a symbolic size or number, with the origin of each."""
    shape_env = getattr(value.node, "shape_env", None)
    if DATA_DEPENDENCE.problem is not None or shape_env is None:
        return []
    with metadata_reading():
        return [_symbol(each, frame, shape_env, {}) for each in symbols_of_data(value)]


def symbols_of_data(expression: object) -> list[object]:
    """Return the symbols in an expression or symbolic value for numbers that the program computes from data."""
    return sorted(DATA_DEPENDENCE.resolve(_OF_DATA)(expression), key=str)


class PendingSymbol(NamedTuple):
    """A number that an operation makes from data and does not return."""

    name: str
    """Torch's name: ``u0``."""
    place: Place | None
    """The user's line that made it, in code that the operation called; None if no such line is known."""

    @property
    def text(self) -> str:
        """Its name, and the line that made it: ``u0 was made at operators.py:14``."""
        if self.place is None:
            return f"{self.name} was made by the operation"
        return f"{self.name} was made at {PurePath(self.place.path).name}:{self.place.line}"


PENDING_TEXT = "The operation makes a number that depends on data, and returns it in no result."
PENDING_HINTS = (
    "return a tensor with the number as a size, or do not create the number",
    "each new_dynamic_size() and each item() of a fake implementation makes a number",
)


def pending_symbols_of(exception: BaseException, frame: TracedFrame) -> list[PendingSymbol]:
    """Return the numbers that an operation made and did not return; an empty list for every other problem."""
    if PENDING.problem is not None:
        return []
    error = _error_of(exception, PENDING.resolve(_PENDING))
    found = None if error is None else _SYMBOLS.search(str(error))
    if found is None:
        return []
    shape_env = getattr(frame.translator.output, "shape_env", None)
    stacks = {str(symbol): stack for symbol, stack in dict(getattr(shape_env, "var_to_stack", {})).items()}
    names = sorted(name.strip() for name in found["names"].split(","))
    return [PendingSymbol(name, _place_below_dynamo(stacks.get(name))) for name in names]


def _place_below_dynamo(stack: Any) -> Place | None:
    """Return the innermost user line in the code that an operation called while Dynamo traced the operation."""
    torch: Any = sys.modules["torch"]
    dynamo = os.path.join(os.path.dirname(torch.__file__), "_dynamo", "")
    frames = [] if stack is None else list(stack.summary())
    last = max((number for number, each in enumerate(frames) if each.filename.startswith(dynamo)), default=-1)
    below = frames[last + 1 :]
    if not below or all(each.filename.startswith(os.path.dirname(torch.__file__)) for each in below):
        return None
    return users_frame(below)[0]


def _data_dependent_error(exception: BaseException | None) -> Any:
    return _error_of(exception, DATA_DEPENDENCE.resolve(_ERROR))


def _error_of(exception: BaseException | None, kind: Any) -> object:
    for _ in range(_STEPS):
        if exception is None or isinstance(exception, kind):
            return exception
        exception = exception.__cause__ or exception.__context__
    return None


def _printed(expression: object) -> str:
    """Return an expression as Python: sympy writes ``Eq(u0, 3)``, and 0.5 with 17 digits."""
    printer = DATA_DEPENDENCE.resolve(_PRINTER)()
    printer._print_Float = lambda number: repr(float(number))
    return str(printer.doprint(expression))


def _names_of_symbols(frame: TracedFrame) -> Iterator[tuple[Any, str]]:
    """Yield each symbol of the function's variables, and each ``numel()``, with the user's expression for it.

    The last expression of a symbol counts: sizes come first, then items of lists, then numbers.
    """
    cells = dict(frame.cells())
    values = [(name, frame.cell_contents(one) if name in cells else one) for name, one in frame.locals()]
    forms = [(name, frame.form_of(one)) for name, one in values if one is not None and name.isidentifier()]
    for name, form in reversed(forms):
        if isinstance(form, TensorForm) and is_tensor(form.example):
            for position, symbol in _symbols_of_sizes(form.example):
                yield symbol, f"{name}.shape[{position}]"
            if (count := _product_of_sizes(form.example)) is not None:
                yield count, f"{name}.numel()"
    for name, form in reversed(forms):
        if isinstance(form, SequenceForm) and form.type_name in _LISTS:
            for position, item in enumerate(form.items[:_ITEMS]):
                yield from _number(frame.form_of(item), f"{name}[{position}]")
    for name, form in reversed(forms):
        yield from _number(form, name)


def _number(form: object, name: str) -> Iterator[tuple[Any, str]]:
    if isinstance(form, NumberForm) and is_symbolic(form.number):
        expression = expression_of(form.number)
        if getattr(expression, "is_Symbol", False):
            yield expression, name


def _product_of_sizes(tensor: Tensor) -> Any:
    """Return a tensor's number of elements if it is a product with a symbol; None for others."""
    with metadata_reading():
        sizes: list[Any] = [expression_of(size) if is_symbolic(size) else size for size in tensor.size()]
    product: Any = math.prod(sizes)
    return product if getattr(product, "is_Mul", False) and product.free_symbols else None


def _symbols_of_sizes(tensor: Tensor) -> list[tuple[int, object]]:
    with metadata_reading():
        sizes = list(tensor.size())
    symbolic = [(position, expression_of(size)) for position, size in enumerate(sizes) if is_symbolic(size)]
    return [(position, each) for position, each in symbolic if getattr(each, "is_Symbol", False)]


def _symbol(symbol: object, frame: TracedFrame, shape_env: ShapeEnv, names: dict[object, str]) -> DataSymbol:
    node, position = _maker_of(symbol, frame)
    made = None if node is None else user_place(node)
    bounds = getattr(shape_env, "var_to_range", {}).get(symbol)
    return DataSymbol(
        name=str(symbol),
        user_name=names.get(symbol),
        operation=None if node is None else target_name(node),
        place=None if made is None else made[0],
        range=None if bounds is None or (known := range_text(bounds)) == _ANYTHING else known,
        node=node,
        position=position,
    )


def _maker_of(symbol: object, frame: TracedFrame) -> tuple[Any, int | None]:
    """Return the first node whose result contains the symbol, and the position of the size."""
    for graph in reversed(graphs_of(frame.translator)):
        for node in nodes_of(graph):
            example = example_of(node)
            if is_symbolic(example) and expression_of(example) == symbol:
                return node, None
            if is_tensor(example):
                position = next((number for number, each in _symbols_of_sizes(example) if each == symbol), None)
                if position is not None:
                    return node, position
    return None, None


def node_of_symbol(name: str, frame: TracedFrame) -> str | None:
    """Return the name of the node that makes a data-dependent number, given torch's name of the number: ``u0``."""
    symbol = next((each for each in _symbols_in(frame) if str(each) == name), None)
    found = None if symbol is None else _maker_of(symbol, frame)[0]
    return None if found is None else str(found.name)


def _symbols_in(frame: TracedFrame) -> list[object]:
    shape_env = getattr(frame.translator.output, "shape_env", None)
    return [] if shape_env is None else list(getattr(shape_env, "var_to_stack", {}))


def value_in_call(symbol: DataSymbol, frame: TracedFrame) -> int | float | bool | None:
    """Return the value of ``symbol`` in the call being traced; None if it cannot be computed.

    Runs the graph so far on the call's own inputs, so call this only while the program is held.
    """
    if symbol.node is None:
        return None
    with contextlib.suppress(NoRealValue, FeatureMissing):
        value: object = frame.real_value(symbol.node)
        if symbol.position is not None and is_tensor(value):
            return int(value.size(symbol.position))
        if symbol.position is None and isinstance(value, int | float | bool):
            return value
    return None
