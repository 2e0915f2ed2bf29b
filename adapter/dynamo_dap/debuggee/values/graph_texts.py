"""Writes FX graphs as Python: a node as a line, a graph as a function, its inputs as the user would write them.

For example, ``self.fc.weight`` replaces ``l_self_modules_fc_parameters_weight_``. Runs on the tracing thread, or on any
thread for a finished graph.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Iterator, Mapping

from dynamo_dap.debuggee.torch_api.graphs.graph import (
    example_of,
    is_node,
    nodes_of,
    operands_of,
    source_of_input,
    target_name,
    user_place,
)
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import facts_of, is_tensor
from dynamo_dap.debuggee.torch_api.objects import Graph, Node
from dynamo_dap.debuggee.torch_api.traced.sources import user_expression
from dynamo_dap.debuggee.torch_api.traced.symbols import is_symbolic, size_text
from dynamo_dap.debuggee.values.model import bounded_text
from dynamo_dap.protocol.texts import roots_of, short_paths

_OPERATORS = {
    "operator.add": "+",
    "operator.sub": "-",
    "operator.mul": "*",
    "operator.truediv": "/",
    "operator.floordiv": "//",
    "operator.mod": "%",
    "operator.pow": "**",
    "operator.matmul": "@",
    "operator.and_": "&",
    "operator.or_": "|",
    "operator.xor": "^",
    "operator.lshift": "<<",
    "operator.rshift": ">>",
    "operator.eq": "==",
    "operator.ne": "!=",
    "operator.lt": "<",
    "operator.le": "<=",
    "operator.gt": ">",
    "operator.ge": ">=",
    "operator.iadd": "+=",
    "operator.isub": "-=",
    "operator.imul": "*=",
    "operator.itruediv": "/=",
}
_EXPRESSION = re.compile(r"[A-Za-z_]\w*(?:[.\[(].*)?")


def names_of_inputs(graph: Graph) -> dict[Node, str]:
    """Return inputs as the user would write them, by placeholder.

    Leave out names that an operation of the graph also has: ``x = x + 1`` would be ambiguous.
    """
    nodes = nodes_of(graph)
    taken = {str(node.name) for node in nodes}
    found: dict[Node, str] = {}
    for node in nodes:
        # Show a size by its symbol, as the shapes do.
        if node.op == "placeholder" and not is_symbolic(example_of(node)):
            name = user_expression(source_of_input(node))
            if name and name not in taken and _EXPRESSION.fullmatch(name):
                found[node] = name
                taken.add(name)
    return found


class GraphTexts:
    """Writes the nodes of one graph."""

    def __init__(self, graph: Graph, names: Mapping[Node, str] | None = None) -> None:
        """Write inputs by ``names``; other inputs keep Dynamo's names."""
        self.names = names_of_inputs(graph) if names is None else names

    def name(self, node: Node) -> str:
        """Return the node's name; for an input, as the user wrote it."""
        return self.names.get(node) or str(node.name)

    def node(self, node: Node) -> str:
        """Return the node as a line of Python: ``add = x + 1``."""
        return bounded_text(f"{self.name(node)} = {self.call(node)}")

    def call(self, node: Node) -> str:
        """Return what the node computes, as an expression."""
        arguments, keywords = operands_of(node)
        if node.op == "placeholder":
            return "graph input"
        if node.op == "get_attr":
            return f"self.{node.target}"
        if node.op == "output":
            return f"return {self.operand(arguments[0] if arguments else None)}"
        target = target_name(node)
        symbol = _OPERATORS.get(target)
        if symbol is not None and len(arguments) == 2 and not keywords:
            return f"{self.operand(arguments[0])} {symbol} {self.operand(arguments[1])}"
        if target == "operator.getitem" and len(arguments) == 2:
            return f"{self.operand(arguments[0])}[{self._index(arguments[1])}]"
        texts = [self.operand(argument) for argument in arguments]
        if node.op == "call_method" and texts:
            target, texts = f"{texts[0]}.{target}", texts[1:]
        elif node.op == "call_module":
            target = f"self.{target}"
        texts += [f"{name}={self.operand(value)}" for name, value in keywords.items()]
        return f"{target}({', '.join(texts)})"

    def _index(self, index: object) -> str:
        if isinstance(index, tuple) and index:
            return ", ".join(self._index(part) for part in index)
        if isinstance(index, slice):
            start, stop, step = (
                "" if part is None else self.operand(part) for part in (index.start, index.stop, index.step)
            )
            return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"
        return self.operand(index)

    def operand(self, operand: object) -> str:
        """Return an operand of a node: another node by name, a constant by value."""
        if is_node(operand):
            return self.name(operand)
        if isinstance(operand, list):
            return f"[{', '.join(self.operand(item) for item in operand)}]"
        if isinstance(operand, tuple):
            inside = ", ".join(self.operand(item) for item in operand)
            return f"({inside},)" if len(operand) == 1 else f"({inside})"
        if isinstance(operand, dict):
            return f"{{{', '.join(f'{key!r}: {self.operand(value)}' for key, value in operand.items())}}}"
        if isinstance(operand, slice):
            return f"slice({self.operand(operand.start)}, {self.operand(operand.stop)}, {self.operand(operand.step)})"
        return bounded_text(str(operand) if type(operand).__module__.startswith("torch") else repr(operand), 80)


def result_text(node: Node) -> str:
    """Return the node's result: ``f32[3, 4] cpu``; empty when unknown."""
    return example_text(example_of(node))


def example_text(example: object) -> str:
    """Return an example value by its metadata."""
    if example is None:
        return ""
    if is_symbolic(example):
        return size_text(example)
    if is_tensor(example):
        return facts_of(example, "").text.strip()
    if isinstance(example, list | tuple):
        return f"({', '.join(example_text(item) for item in example)})"
    return bounded_text(repr(example), 80)


def graph_text(graph: Graph, name: str, texts: GraphTexts | None = None) -> str:
    """Return a graph as readable Python: one line for each node, below the user's line that made the node."""
    return "\n".join(line for line, _ in graph_lines(graph, name, texts or GraphTexts(graph))) + "\n"


def graph_lines(graph: Graph, name: str, texts: GraphTexts) -> Iterator[tuple[str, Node | None]]:
    """Yield the lines of ``graph_text``, each with its node, if it has one."""
    nodes = nodes_of(graph)
    inputs = [node for node in nodes if node.op == "placeholder"]
    yield f"def {name}({', '.join(roots_of(texts.name(node) for node in inputs))}):", None
    yield from ((f"    # {_input_text(node, texts)}", node) for node in inputs)
    operations = [node for node in nodes if node.op != "placeholder"]
    yield from _operation_lines(operations, texts)
    if not operations:
        yield "    ...  # no operation yet", None


def _operation_lines(operations: Iterable[Node], texts: GraphTexts) -> Iterator[tuple[str, Node | None]]:
    found = [(node, user_place(node)) for node in operations]
    names = short_paths(at[0].path for _, at in found if at is not None)
    last: tuple[str, int] | None = None
    for node, at in found:
        here = None if at is None else (at[0].path, at[0].line)
        if at is not None and here != last:
            path, line = at[0].path, at[0].line
            code = linecache.getline(path, line).strip()
            yield "", None
            yield f"    # {names[path]}:{line} in {at[1]}: {code}", None
        last = here
        yield _node_line(node, texts), node


def _input_text(node: Node, texts: GraphTexts) -> str:
    """Return ``self.fc.weight: f32[4, 4] cpu, in torch's logs l_self_modules_fc_parameters_weight_``."""
    shown = texts.name(node)
    text = f"{shown}: {result_text(node)}".rstrip(" :")
    return text if shown == node.name else f"{text}, in torch's logs {node.name}"


def _node_line(node: Node, texts: GraphTexts) -> str:
    if node.op == "output":
        return f"    {texts.call(node)}"
    result = result_text(node)
    line = f"    {node.name} = {texts.call(node)}"
    return f"{line}  # {result}" if result else line
