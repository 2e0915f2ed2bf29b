"""Predicts what breakpoints do in later calls of a cache entry, without tracing those calls.

Each call of a cache entry reaches the same lines. A name on a line has the same origin in each call: a constant, a
value reached from arguments or globals, or a result of the graph. So conditions and log messages are computed from
these origins. For results, the graph of the first trace runs on the call's own inputs. A breakpoint that does not stop
(``step == 500``, ``loss.item() > 3``, a hit count, a log message) therefore costs no trace. The text of a log message,
and a condition that needs the graph, are first compared with those in the traced call. Everything else needs the trace,
such as an expression that calls the program's functions, or an object that the traced code has changed. Runs on the
program's threads; lives as long as the cache entry.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import CodeType
from typing import Any

from dynamo_dap.debuggee.agent.breakpoints import LineBreakpoint
from dynamo_dap.debuggee.agent.frames import LOG_CONTEXT, Frame
from dynamo_dap.debuggee.agent.own_rank import NAME as RANK
from dynamo_dap.debuggee.agent.own_rank import extra_names
from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import evaluating_on_real_values
from dynamo_dap.debuggee.torch_api.graphs.operations import is_operation
from dynamo_dap.debuggee.torch_api.graphs.saved_graphs import SavedGraph, SavedGraphInCall
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import is_tensor
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall
from dynamo_dap.debuggee.torch_api.traced.traced_frame import MISSING, TracedFrame
from dynamo_dap.debuggee.torch_api.traced.trackers.forms import (
    Form,
    Known,
    NumberForm,
    SequenceForm,
    TensorForm,
    Unrealized,
)
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import is_tracker
from dynamo_dap.debuggee.trace.forms import UNKNOWN
from dynamo_dap.debuggee.trace.paths import Paths
from dynamo_dap.debuggee.values.model import NOT_PROVEN, text_with_data
from dynamo_dap.debuggee.values.python_values import present
from dynamo_dap.debuggee.values.tensors import little_data

_PLAIN = (bool, int, float, str, type(None))
_ALLOWED = (
    ast.Attribute,
    ast.BinOp,
    ast.BoolOp,
    ast.Call,
    ast.Compare,
    ast.Constant,
    ast.Expression,
    ast.IfExp,
    ast.List,
    ast.Name,
    ast.Slice,
    ast.Subscript,
    ast.Tuple,
    ast.UnaryOp,
    ast.boolop,
    ast.cmpop,
    ast.expr_context,
    ast.keyword,
    ast.operator,
    ast.unaryop,
)
_BUILTINS: dict[str, object] = {
    each.__name__: each for each in (abs, all, any, bool, float, int, len, max, min, round, sum)
}
_ATTRIBUTES = frozenset({"H", "T", "device", "dtype", "imag", "is_cuda", "mH", "mT", "ndim", "real", "shape"})
"""Attributes that are equal for a tensor and its detached value."""
_UNSAFE = frozenset(
    {"backward", "data_ptr", "numpy", "register_hook", "retain_grad", "storage", "untyped_storage", "is_shared"}
)
"""Methods with side effects, or whose result differs for a detached value."""


class NotPredictable(Exception):
    """Raised if only a trace of the call gives the value."""


class Call:
    """One later call, with the values of its graphs."""

    def __init__(self, call: CachedCall) -> None:
        """Begin without computed values."""
        self.call = call
        self._graphs: dict[SavedGraph, SavedGraphInCall] = {}

    def graph(self, graph: SavedGraph) -> SavedGraphInCall:
        """Return ``graph`` with this call's inputs; its nodes run when their values are needed."""
        if graph not in self._graphs:
            self._graphs[graph] = SavedGraphInCall(graph, self.call)
        return self._graphs[graph]


_Operand = Callable[[Call], Any]
"""Returns a name's value in a later call."""


@dataclass(frozen=True)
class Predicted:
    """An expression at one visit of a line."""

    code: CodeType
    operands: Mapping[str, _Operand]
    """By the names in ``code``."""
    needs_graph: bool
    is_traced_tensor: bool
    """Whether it only names a tensor that the trace has reached, whose metadata is guarded."""

    def value(self, call: Call) -> object:
        """Return its value in ``call``, computed in isolation from the program: see ``evaluating``.

        Raises:
            NotPredictable: only the trace knows the value.
        """
        try:
            value = self.result(call)
            return value if is_exactly(value, _PLAIN) else bool(value)
        except Exception as problem:
            raise NotPredictable from problem

    def result(self, call: Call) -> Any:
        """Return the value itself, such as a tensor. Raises whatever the expression raises."""
        # Torch imports modules while it computes. These imports need the builtins of the running code.
        return eval(self.code, {"__builtins__": builtins}, _Names(self.operands, call))


@dataclass(frozen=True)
class PredictedText:
    """An expression of a log message at one visit of a line."""

    predicted: Predicted | None
    """None if the text is equal in every call."""
    text: str | None = None
    """The text in every call; for a small tensor the text before its elements; None for a plain value."""
    mark: str = ""
    """The end of the text if the value is not proven."""

    @classmethod
    def learnt(cls, predicted: Predicted, call: Call, in_trace: str) -> PredictedText | None:
        """Return the prediction of a text, which was ``in_trace`` in the traced ``call``; None if it is impossible."""
        value = predicted.result(call)
        mark = NOT_PROVEN if NOT_PROVEN in in_trace else ""
        if is_exactly(value, _PLAIN):
            return cls(predicted, mark=mark) if f"{_text(value)}{mark}" == in_trace else None
        if not is_tensor(value):
            return None
        data = little_data(value)
        shown = f"{_BEFORE_DATA}{data}{mark}"
        metadata = in_trace.removesuffix(shown).replace(f"{shown},", "")
        if data is not None and in_trace == text_with_data(metadata, shown.lstrip()):
            return cls(predicted, metadata, mark) if value.dim() == 0 or predicted.is_traced_tensor else None
        # Type, sizes and device of a traced tensor have the same text in every call: a varying size is a symbol.
        return cls(None, in_trace) if predicted.is_traced_tensor and _BEFORE_DATA not in in_trace else None

    @property
    def needs_graph(self) -> bool:
        """Whether it needs a run of the graph."""
        return self.predicted is not None and self.predicted.needs_graph

    def in_call(self, call: Call) -> str:
        """Return the text in ``call``. Raises ``NotPredictable``."""
        if self.predicted is None:
            return self.text or ""
        if self.text is None:
            return f"{_text(self.predicted.value(call))}{self.mark}"
        try:
            data = little_data(self.predicted.result(call))
        except Exception as problem:
            raise NotPredictable from problem
        if data is None:
            raise NotPredictable
        return text_with_data(self.text, f"= {data}{self.mark}")


_BEFORE_DATA = " = "


class _Names(dict[str, Any]):
    """The operands, computed when they are first needed."""

    def __init__(self, operands: Mapping[str, _Operand], call: Call) -> None:
        super().__init__()
        self._operands = operands
        self._call = call

    def __missing__(self, name: str) -> object:
        self[name] = self._operands[name](self._call)
        return self[name]


@dataclass(frozen=True)
class Visit:
    """A breakpoint that every call of a cache entry reaches; implements ``agent.deciding.Reached``."""

    breakpoint: LineBreakpoint
    condition: Predicted | None
    expressions: Mapping[str, PredictedText]
    """The log message's expressions."""

    @classmethod
    def predicted(
        cls, breakpoint: LineBreakpoint, frame: TracedFrame, shown: Frame, graph: SavedGraph, call: CachedCall
    ) -> Visit | None:
        """Return the prediction for ``breakpoint`` at ``frame``; None if each later call needs a trace.

        ``shown`` evaluates in the trace of ``call``.
        """
        conditions = breakpoint.conditions
        parts = conditions.log_message.parts if conditions.log_message is not None else ()
        try:
            condition = None
            if conditions.condition is not None:
                condition = _predicted(conditions.condition, frame, graph)
            logged = {text: _predicted(text, frame, graph) for text, is_expression in parts if is_expression}
            in_trace = {text: shown.evaluate(text, LOG_CONTEXT).text for text in logged}
            with evaluating([condition, *logged.values()]):
                values = Call(call)
                holds = condition is None or bool(condition.value(values))
                texts = {text: PredictedText.learnt(each, values, in_trace[text]) for text, each in logged.items()}
            if condition is not None and condition.needs_graph and holds != shown.is_true(conditions.condition or ""):
                return None
            expressions = {text: learnt for text, learnt in texts.items() if learnt is not None}
            if len(expressions) < len(logged):
                return None
            visit = cls(breakpoint, condition, expressions)
        except Exception:  # noqa: BLE001  (the trace reports whatever an expression raises)
            return None
        return visit

    @property
    def only_counts(self) -> bool:
        """Whether the breakpoint has only a hit count, and no condition or log message."""
        return self.condition is None and self.breakpoint.conditions.log_message is None

    def reached(self, call: Call) -> VisitInCall:
        """Return the breakpoint in ``call``."""
        return VisitInCall(self, call)


class VisitInCall:
    """A visit in one later call; implements ``agent.deciding.Reached``."""

    def __init__(self, visit: Visit, call: Call) -> None:
        """Begin without computed values."""
        self.breakpoint = visit.breakpoint
        self._visit = visit
        self._call = call

    def holds(self) -> bool:
        """Return whether the condition holds. Raises ``NotPredictable``."""
        condition = self._visit.condition
        return condition is None or bool(condition.value(self._call))

    def text_of(self, expression: str) -> str:
        """Return an expression of the log message as text. Raises ``NotPredictable``."""
        return self._visit.expressions[expression].in_call(self._call)


def _text(value: object) -> str:
    return present(value).text


def _predicted(expression: str, frame: TracedFrame, graph: SavedGraph) -> Predicted:
    tree = ast.parse(expression.strip(), mode="eval")
    resolver = _Resolver(frame, graph)
    is_traced_tensor = resolver.is_traced_tensor(tree.body)
    tree = ast.fix_missing_locations(ast.Expression(resolver.visit(tree.body)))
    _check(tree)
    return Predicted(compile(tree, "<expression>", "eval"), resolver.operands, resolver.needs_graph, is_traced_tensor)


def _check(tree: ast.AST) -> None:
    """Check that an expression has no side effects.

    Raises:
        NotPredictable: it may have some.
    """
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise NotPredictable
        if isinstance(node, ast.Attribute):
            name = node.attr
            is_method = id(node) in called and not (name.startswith("_") or name.endswith("_") or name in _UNSAFE)
            if not is_method and name not in _ATTRIBUTES:
                raise NotPredictable


class _Resolver(ast.NodeTransformer):
    """Replaces each path to a value by a new name."""

    def __init__(self, frame: TracedFrame, graph: SavedGraph) -> None:
        self._frame = frame
        self._graph = graph
        self._paths = Paths(frame, {})
        self.operands: dict[str, _Operand] = {}
        self.needs_graph = False

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == RANK and not self._frame.has(RANK) and (beside := extra_names()):
            return ast.copy_location(ast.Constant(beside[RANK]), node)
        value = self._frame.lookup(node.id)
        if value is not MISSING and not self._frame.is_declared(node.id) and value is _BUILTINS.get(node.id):
            return self._named(lambda call: value)
        return self._named(self._operand(self._paths.follow(node), node))

    def is_traced_tensor(self, node: ast.expr) -> bool:
        """Return whether ``node`` only names a tensor that the trace has reached."""
        found = self._paths.follow(node)
        form = None if found is UNKNOWN else self._paths.form_of(found)
        return isinstance(form, TensorForm) and form.node is not None

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return self._length(node) or self.generic_visit(node)

    def _length(self, node: ast.Call) -> ast.AST | None:
        """Return the length of a list or a tuple without computing items: guards fix the length."""
        function = node.func
        if not isinstance(function, ast.Name) or function.id != "len" or len(node.args) != 1 or node.keywords:
            return None
        is_builtin = self._frame.lookup("len") is len and not self._frame.is_declared("len")
        found = self._paths.follow(node.args[0]) if is_builtin else UNKNOWN
        form = None if found is UNKNOWN else self._paths.form_of(found)
        if not isinstance(form, SequenceForm) or form.type_name not in ("list", "tuple"):
            return None
        return ast.copy_location(ast.Constant(len(form.items)), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return self._path(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        function = self._paths.follow(node)
        if function is not UNKNOWN and is_operation(function, node.attr):
            return self._named(lambda call: function)
        return self._path(node)

    def _path(self, node: ast.Attribute | ast.Subscript) -> ast.AST:
        found = self._paths.follow(node)
        if found is not UNKNOWN and not self._is_computed(node.value):
            try:
                return self._named(self._operand(found, node))
            except NotPredictable:
                pass  # its own operand raises, but only when it is evaluated: ``step == 9 and self.xs[0] == 1``
        return self.generic_visit(node)

    def _is_computed(self, node: ast.expr) -> bool:
        found = self._paths.follow(node)
        return found is not UNKNOWN and isinstance(self._paths.form_of(found), TensorForm | NumberForm)

    def _named(self, operand: _Operand) -> ast.Name:
        name = f"_{len(self.operands)}"
        self.operands[name] = operand
        return ast.Name(name, ast.Load())

    def _operand(self, found: object, node: ast.expr) -> _Operand:
        """Return how later calls get the value of ``node``."""
        if found is UNKNOWN:
            raise NotPredictable
        form = self._paths.form_of(found)
        computed = self._computed(form)
        if computed is not None:
            return computed
        source = self._frame.source_of(found)
        if source is not None and isinstance(form, Unrealized) and is_tensor(form.value):
            return self._untouched(_compiled(source))
        if source is not None:
            return _FromSource(_compiled(source))
        if is_tracker(found) and isinstance(form, Known) and is_exactly(form.value, _PLAIN):
            return lambda call: form.value
        return self._stored(node)

    def _computed(self, form: Form) -> _Operand | None:
        """Return how to get a value from the graph; None if the graph does not compute it."""
        if isinstance(form, TensorForm | NumberForm):
            if form.node is None or (isinstance(form, TensorForm) and form.number is not None):
                return None
            graph, is_tensor = self._graph, isinstance(form, TensorForm)
            count = self._frame.keep_graph(graph)
            node = graph.wanted_copy(form.node)
            self.needs_graph = True

            def value(call: Call) -> object:
                given: Any = call.graph(graph).value_of(node, count)
                return given.detach() if is_tensor else given

            return value
        if isinstance(form, SequenceForm) and form.type_name in ("list", "tuple"):
            items = [self._computed(self._paths.form_of(each)) for each in form.items]
            known = [each for each in items if each is not None]
            if known and len(known) == len(items):
                made = list if form.type_name == "list" else tuple
                return lambda call: made(each(call) for each in known)
        return None

    def _untouched(self, source: CodeType) -> _Operand:
        """Return how a later call gets a tensor that the trace has not reached yet."""
        self.needs_graph = True
        graph, count = self._graph, self._frame.keep_graph(self._graph)
        return lambda call: call.graph(graph).memory_of(_at(source, call), count).detach()

    def _stored(self, node: ast.expr) -> _Operand:
        """Return how a later call reads an attribute: by names, without running the object's code."""
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or (attributes and any(True for _ in self._frame.attribute_changes())):
            raise NotPredictable
        name, value, namespace = node.id, self._frame.lookup(node.id), self._frame.globals
        source = self._frame.source_of(value)
        if source is not None:
            return _FromSource(_compiled(source), tuple(attributes))
        if name in namespace and value is namespace[name]:
            return lambda call: _plain(namespace.get(name, MISSING), attributes)
        raise NotPredictable


@dataclass(frozen=True)
class _FromSource:
    """A plain value that is reached from arguments or globals."""

    source: CodeType
    """As torch writes it: ``L['step']``."""
    attributes: tuple[str, ...] = ()

    def __call__(self, call: Call) -> object:
        return _plain(_at(self.source, call), self.attributes)


def _compiled(source: str) -> CodeType:
    try:
        return compile(source, "<source>", "eval")
    except SyntaxError:  # a tensor that Dynamo found inside another one, such as a nested tensor
        raise NotPredictable from None


def _at(source: CodeType, call: Call) -> object:
    return eval(source, {"L": call.call.arguments, "G": call.call.frame.f_globals})


def _plain(value: object, attributes: tuple[str, ...] | list[str]) -> object:
    """Follow attributes through the dictionaries of objects, without running the program's code."""
    for attribute in attributes:
        names = object.__getattribute__(value, "__dict__")
        if attribute not in names:
            raise NotPredictable
        value = names[attribute]
    if not is_exactly(value, _PLAIN):
        raise NotPredictable
    return value


def evaluating_visits(visits: Sequence[Visit]) -> AbstractContextManager[None]:
    """Return a context for computing the predictions of ``visits`` without side effects on the program."""
    return evaluating([each for visit in visits for each in (visit.condition, *visit.expressions.values())])


def evaluating(expressions: Sequence[Predicted | PredictedText | None]) -> AbstractContextManager[None]:
    """Return a context for computing ``expressions`` without side effects on the program."""
    needs_graph = any(each is not None and each.needs_graph for each in expressions)
    return evaluating_on_real_values() if needs_graph else nullcontext()


def reached_in(visits: Sequence[Visit], call: CachedCall) -> Iterator[VisitInCall]:
    """Yield the breakpoints in the order in which ``call`` reaches them."""
    values = Call(call)
    for visit in visits:
        yield visit.reached(values)
