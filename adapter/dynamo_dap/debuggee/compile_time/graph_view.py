"""Shows the graph that Dynamo builds: nodes as lines of Python, the ``Graph`` scope, the graph as a document.

Made on the tracing thread; the text of a document may be read on another.
"""

from __future__ import annotations

import linecache
from typing import Any

from dynamo_dap.debuggee.torch_internals.graph import (
    example_of,
    is_node,
    nodes_of,
    operands_of,
    target_name,
    user_place,
    user_places,
)
from dynamo_dap.debuggee.torch_internals.symbols import is_symbolic, size_text
from dynamo_dap.debuggee.torch_internals.tensor_facts import facts_of, is_tensor
from dynamo_dap.debuggee.torch_internals.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_internals.variable_trackers import Place
from dynamo_dap.debuggee.values.families import View
from dynamo_dap.debuggee.values.model import Children, Deferred, Location, Value, Variable, VirtualSource, bounded_text
from dynamo_dap.debuggee.values.paging import in_pages
from dynamo_dap.record.texts import short_paths

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


def node_text(node: Any) -> str:
    """Return the node as a line of Python: ``add = x + 1``."""
    return bounded_text(f"{node.name} = {call_text(node)}")


def call_text(node: Any) -> str:
    """Return what the node computes, as an expression."""
    arguments, keywords = operands_of(node)
    if node.op == "placeholder":
        return "graph input"
    if node.op == "get_attr":
        return f"self.{node.target}"
    if node.op == "output":
        return f"return {operand_text(arguments[0] if arguments else None)}"
    target = target_name(node)
    symbol = _OPERATORS.get(target)
    if symbol is not None and len(arguments) == 2 and not keywords:
        return f"{operand_text(arguments[0])} {symbol} {operand_text(arguments[1])}"
    if target == "operator.getitem" and len(arguments) == 2:
        return f"{operand_text(arguments[0])}[{_index_text(arguments[1])}]"
    texts = [operand_text(argument) for argument in arguments]
    if node.op == "call_method" and texts:
        target, texts = f"{texts[0]}.{target}", texts[1:]
    elif node.op == "call_module":
        target = f"self.{target}"
    texts += [f"{name}={operand_text(value)}" for name, value in keywords.items()]
    return f"{target}({', '.join(texts)})"


def _index_text(index: Any) -> str:
    if isinstance(index, tuple) and index:
        return ", ".join(_index_text(part) for part in index)
    if isinstance(index, slice):
        start, stop, step = (
            "" if part is None else operand_text(part) for part in (index.start, index.stop, index.step)
        )
        return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"
    return operand_text(index)


def operand_text(operand: Any) -> str:
    """Return an operand of a node: another node by name, a constant by value."""
    if is_node(operand):
        return str(operand.name)
    if isinstance(operand, list):
        return f"[{', '.join(operand_text(item) for item in operand)}]"
    if isinstance(operand, tuple):
        inside = ", ".join(operand_text(item) for item in operand)
        return f"({inside},)" if len(operand) == 1 else f"({inside})"
    if isinstance(operand, dict):
        return f"{{{', '.join(f'{key!r}: {operand_text(value)}' for key, value in operand.items())}}}"
    if isinstance(operand, slice):
        return f"slice({operand_text(operand.start)}, {operand_text(operand.stop)}, {operand_text(operand.step)})"
    return bounded_text(str(operand) if type(operand).__module__.startswith("torch") else repr(operand), 80)


def result_text(node: Any) -> str:
    """Return what the node gives: ``f32[3, 4] cpu``; empty when it is not known."""
    return example_text(example_of(node))


def example_text(example: Any) -> str:
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


def place_variable(name: str, place: Place) -> Variable:
    """Return a place of the user's code as a child with a link."""
    location = Location(place.path, place.line, place.column)
    text = f"{place.path.rpartition('/')[2]}:{place.line}"
    return Variable(name, Value(text, kind="virtual", location=location), declaration=location)


def user_location(node: Any) -> Location | None:
    """Return the user's line that made the node."""
    at = user_place(node)
    return None if at is None else Location(at[0].path, at[0].line)


def graph_text(graph: Any, name: str) -> str:
    """Return a graph as readable Python: one line a node, under the user's line it came from."""
    inputs = [node for node in nodes_of(graph) if node.op == "placeholder"]
    lines = [f"def {name}({', '.join(node.name for node in inputs)}):"]
    lines += [f"    # {node.name}: {result_text(node)}".rstrip() for node in inputs]
    operations = [(node, user_place(node)) for node in nodes_of(graph) if node.op != "placeholder"]
    names = short_paths(at[0].path for _, at in operations if at is not None)
    last: tuple[str, int] | None = None
    for node, at in operations:
        here = None if at is None else (at[0].path, at[0].line)
        if at is not None and here != last:
            path, line = at[0].path, at[0].line
            code = linecache.getline(path, line).strip()
            lines += ["", f"    # {names[path]}:{line} in {at[1]}: {code}"]
        last = here
        lines.append(_node_line(node))
    if not operations:
        lines.append("    ...  # no operation yet")
    return "\n".join(lines) + "\n"


def _node_line(node: Any) -> str:
    if node.op == "output":
        return f"    {call_text(node)}"
    result = result_text(node)
    line = f"    {node.name} = {call_text(node)}"
    return f"{line}  # {result}" if result else line


def graph_children(frame: TracedFrame, view: View) -> Children:
    """Return the nodes as children; inside a higher-order operator, the graphs around its body follow."""
    graphs = frame.graphs()
    inner, outer = graphs[0], graphs[1:]
    around = [_graph_variable(graph, depth, view) for depth, graph in enumerate(outer, start=1)]
    return in_pages(len(nodes_of(inner)), _page(inner, view), before=lambda: around)


def _page(graph: Any, view: View) -> Any:
    def page(start: int, stop: int) -> list[Variable]:
        return [_node_variable(node, view) for node in nodes_of(graph)[start:stop]]

    return page


def _graph_variable(graph: Any, depth: int, view: View) -> Variable:
    count = len(nodes_of(graph))
    below = in_pages(count, _page(graph, view))
    return Variable(f"graph around it ({depth})", Value(f"{count} nodes", children=below, kind="virtual"))


def _node_variable(node: Any, view: View) -> Variable:
    result = result_text(node)
    text = f"{call_text(node)} → {result}" if result else call_text(node)
    location = user_location(node)
    value = Value(bounded_text(text), node.op, Deferred(lambda: _parts(node, view)), location=location)
    return Variable(node.name, value, declaration=location)


def _parts(node: Any, view: View) -> list[Variable]:
    positional, keywords = operands_of(node)
    parts = [Variable("op", Value(str(node.op))), Variable("target", Value(target_name(node)))]
    parts += [Variable(f"argument {number}", Value(operand_text(each))) for number, each in enumerate(positional)]
    parts += [Variable(f"argument {name}", Value(operand_text(each))) for name, each in keywords.items()]
    example = example_of(node)
    if example is not None:
        shown = view.value(example)
        parts.append(Variable("result", Value(example_text(example) or shown.text, shown.type_name, shown.children)))
    users = ", ".join(user.name for user in node.users)
    parts.append(Variable("used by", Value(users or "nothing yet")))
    frames = list(user_places(node))
    for number, (place, function) in enumerate(reversed(frames)):
        name = "user line" if number == 0 else "called from" if number == 1 else f"called from ({number})"
        shown_place = place_variable(name, place)
        text = f"{shown_place.value.text} in {function}"
        value = Value(text, kind="virtual", location=shown_place.value.location)
        parts.append(Variable(name, value, declaration=shown_place.declaration))
    return parts


def graph_source(frame: TracedFrame) -> VirtualSource:
    """Return the whole graph written so far as a readable document, which lives as long as the pause."""
    graph = frame.graphs()[0]
    name = frame.compiled_code.co_name
    return VirtualSource(f"graph of {name}.py", lambda: graph_text(graph, name))
