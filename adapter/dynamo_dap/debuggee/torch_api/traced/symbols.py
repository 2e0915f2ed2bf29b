"""Reads symbolic sizes and numbers without changing the state of their shape environment.

``SymNode.expr`` and ``ShapeEnv.replace`` shorten chains of replacements in place, and comparing or printing a
``SymInt`` may add a guard. This module reads raw expressions, and substitutes replacements in copies. Runs on the held
thread.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import types
from collections.abc import Iterable
from typing import Any, NamedTuple

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.objects import ShapeEnv
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import source_name
from dynamo_dap.protocol.texts import in_user_terms

_CHAIN = 16
"""How many replacements are followed; a longer chain would be a cycle."""


def is_symbolic(value: object) -> bool:
    """Return whether ``value`` is a SymInt, SymFloat or SymBool."""
    torch = sys.modules.get("torch")
    return torch is not None and is_exactly(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def expression_of(value: Any) -> object:
    """Return the present sympy expression of a symbolic number, replacements applied."""
    node = value.node
    expression = getattr(node, "_expr", None)
    if expression is None:
        return node.maybe_as_int() if hasattr(node, "maybe_as_int") else node
    return replaced(expression, getattr(node, "shape_env", None))


def replaced(expression: Any, shape_env: object) -> Any:
    """Return ``expression`` with the shape environment's replacements applied, without changing them."""
    replacements = getattr(shape_env, "replacements", None)
    if not replacements or not hasattr(expression, "xreplace"):
        return expression
    for _ in range(_CHAIN):
        known = {symbol: replacements[symbol] for symbol in expression.free_symbols if symbol in replacements}
        if not known:
            break
        following = expression.xreplace(known)
        if following == expression:
            break
        expression = following
    return expression


def hint_of(value: Any) -> object:
    """Return the symbol's number in this call; None for a data-dependent one."""
    return getattr(value.node, "_hint", None)


def size_text(value: object) -> str:
    """Return a size or stride as text: a number, or the symbolic expression."""
    if type(value) is int:
        return str(value)
    try:
        return relation_text(expression_of(value))
    except AttributeError:
        return str(value)


def size_texts(values: Iterable[object]) -> tuple[str, ...]:
    """Return sizes or strides as texts."""
    return tuple(str(value) if type(value) is int else size_text(value) for value in values)


def ranges_of(value: Any) -> list[tuple[str, str]]:
    """Return each symbol of a symbolic number with the range it is known to lie in: ``2 … ∞``."""
    shape_env = getattr(value.node, "shape_env", None)
    ranges = getattr(shape_env, "var_to_range", {})
    return [(str(symbol), range_text(ranges[symbol])) for symbol in symbols_of(value) if symbol in ranges]


def range_text(bounds: Any) -> str:
    """Return a value range as text."""
    return f"{_bound_text(bounds.lower)} … {_bound_text(bounds.upper)}"


def _bound_text(bound: Any) -> str:
    if getattr(bound, "is_Integer", False) and int(bound) >= sys.maxsize - 1:
        return "∞"
    return str(bound).replace("int_oo", "∞").replace("oo", "∞")


def sources_of(value: Any) -> list[tuple[str, str]]:
    """Return each symbol with the input sizes or numbers that it represents, as guards write them."""
    shape_env = getattr(value.node, "shape_env", None)
    known = getattr(shape_env, "var_to_sources", {})
    named = [(str(symbol), [source_name(source) for source in known.get(symbol, ())]) for symbol in symbols_of(value)]
    return [(symbol, ", ".join(filter(None, names))) for symbol, names in named if names]


class SymbolFacts(NamedTuple):
    """A dynamic size or number of compiled code."""

    name: str
    source: str
    """The input that it represents, in the user's terms: ``x.size()[0]``."""
    value: str | None
    """In this call."""
    range: str | None


def symbols_of_environment(shape_env: object) -> list[SymbolFacts]:
    """Return the symbols of inputs, without those that became constants or equal to another symbol."""
    values = _values_of(shape_env)
    ranges, replaced = getattr(shape_env, "var_to_range", {}), getattr(shape_env, "replacements", {})
    facts = []
    for symbol, sources in list(getattr(shape_env, "var_to_sources", {}).items()):
        names = [in_user_terms(name) for name in map(source_name, sources) if name]
        if names and symbol not in replaced:
            value, bounds = values.get(symbol), ranges.get(symbol)
            reported = None if bounds is None else range_text(bounds)
            facts.append(SymbolFacts(str(symbol), ", ".join(names), None if value is None else str(value), reported))
    return facts


def symbols_of(value: object) -> list[object]:
    """Return the symbols in a symbolic number's expression, by name."""
    expression = expression_of(value)
    return sorted(getattr(expression, "free_symbols", ()), key=str)


_RELATIONS = {
    "Equality": "==",
    "Unequality": "!=",
    "StrictLessThan": "<",
    "LessThan": "<=",
    "StrictGreaterThan": ">",
    "GreaterThan": ">=",
}


def relation_text(expression: Any) -> str:
    """Return a relation as Python writes it: sympy prints ``Eq(s77, 3)``."""
    symbol = _RELATIONS.get(type(expression).__name__)
    if symbol is not None:
        return f"{expression.lhs} {symbol} {expression.rhs}"
    if type(expression).__name__ == "Not":
        return f"not ({relation_text(expression.args[0])})"
    if type(expression).__name__ in ("And", "Or"):
        word = f" {type(expression).__name__.lower()} "
        return word.join(f"({relation_text(argument)})" for argument in expression.args)
    return str(expression)


class SpecializationFacts(NamedTuple):
    """A symbol that became a number."""

    symbol: str
    source: str
    """The input that it represented: ``x.size()[0]``."""
    value: int | float


def specialization_of(shape_env: object, symbol: object, value: Any) -> SpecializationFacts | None:
    """Return the input that ``symbol`` represents; None if there is none, or if it equals another symbol."""
    sources = getattr(shape_env, "var_to_sources", {}).get(symbol)
    if not getattr(value, "is_number", False) or not sources:
        return None
    name = source_name(sources[0])
    number = int(value) if getattr(value, "is_integer", False) else float(value)
    return None if name is None else SpecializationFacts(str(symbol), in_user_terms(name), number)


class NumbersOfTrace:
    """Replaces the numbers of a finished trace's symbols by those of a later call."""

    def __init__(self, shape_env: ShapeEnv) -> None:
        """Collect the symbols and their numbers."""
        self._shape_env = shape_env
        self._sources: dict[object, types.CodeType] = {}
        self._nodes: dict[Any, list[Any]] = {}
        """Symbolic numbers, by expression."""
        values = _values_of(shape_env)
        for symbol, sources in list(getattr(shape_env, "var_to_sources", {}).items()):
            names = [name for name in map(source_name, sources) if name]
            if symbol in values and names:
                # A size of a nested tensor, for example, has a source that is not an expression.
                with contextlib.suppress(SyntaxError):
                    self._sources[symbol] = compile(names[0], "<source>", "eval")
        self.is_complete = self._sources.keys() >= values.keys()
        """Whether the numbers of all symbols can be found again."""
        if values and self.is_complete:
            self._find_nodes()

    def _find_nodes(self) -> None:
        # C++ also refers to them, from the sizes of FakeTensors.
        node_type = getattr(sys.modules.get("torch.fx.experimental.sym_node"), "SymNode", None)
        for each in gc.get_objects():
            is_node = type(each) is node_type and getattr(each, "shape_env", None) is self._shape_env
            if is_node and is_exactly(each._hint, (int, float, bool)):
                self._nodes.setdefault(each._expr, []).append(each)

    def found_in(self, scope: dict[str, object]) -> dict[object, object]:
        """Return the numbers of the symbols' sources in ``scope``."""
        sympy = sys.modules["sympy"]
        return {symbol: sympy.sympify(eval(source, scope)) for symbol, source in self._sources.items()}

    def put_in(self, numbers: dict[object, object]) -> None:
        """Set the numbers of the symbols, as ``found_in`` returned them."""
        values = _values_of(self._shape_env)
        if all(values[symbol] == number for symbol, number in numbers.items()):
            return
        values.update(numbers)
        for expression, nodes in self._nodes.items():
            number = expression.xreplace(values)
            for node in nodes:
                node._hint = type(node._hint)(number)
        # Torch uses the version to recognize results computed from the earlier numbers.
        self._shape_env._version_counter += 1


def value_of_symbol(shape_env: object, symbol: object) -> object:
    """Return a symbol's number in the compiled call; None if it depends on data."""
    return _values_of(shape_env).get(symbol)


def _values_of(shape_env: object) -> dict[object, object]:
    values: dict[object, object] | None = getattr(shape_env, "backed_var_to_val", None)
    # Earlier versions use another name.
    return values if values is not None else getattr(shape_env, "var_to_val", {})
