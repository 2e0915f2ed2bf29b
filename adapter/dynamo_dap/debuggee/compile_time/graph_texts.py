"""FX nodes and whole graphs as text a person reads. Tracing thread, and whoever reads the text later."""

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
)
from dynamo_dap.debuggee.torch_internals.symbols import is_symbolic, size_text
from dynamo_dap.debuggee.torch_internals.tensor_facts import facts_of
from dynamo_dap.debuggee.values.model import Location, bounded_text
from dynamo_dap.record.short_paths import short_paths

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
    if any(base.__name__ == "Tensor" and base.__module__ == "torch" for base in type(example).__mro__):
        return facts_of(example, "").text.strip()
    if isinstance(example, list | tuple):
        return f"({', '.join(example_text(item) for item in example)})"
    return bounded_text(repr(example), 80)


def user_location(node: Any) -> Location | None:
    """Return the user's line that made the node."""
    found = user_place(node)
    return None if found is None else Location(found[0].path, found[0].line)


def graph_text(graph: Any, name: str) -> str:
    """Return a graph as readable Python: one line a node, under the user's line it came from."""
    inputs = [node for node in nodes_of(graph) if node.op == "placeholder"]
    lines = [f"def {name}({', '.join(node.name for node in inputs)}):"]
    lines += [f"    # {node.name}: {result_text(node)}".rstrip() for node in inputs]
    operations = [(node, user_place(node)) for node in nodes_of(graph) if node.op != "placeholder"]
    names = short_paths(found[0].path for _, found in operations if found is not None)
    last: tuple[str, int] | None = None
    for node, found in operations:
        here = None if found is None else (found[0].path, found[0].line)
        if found is not None and here != last:
            path, line = found[0].path, found[0].line
            code = linecache.getline(path, line).strip()
            lines += ["", f"    # {names[path]}:{line} in {found[1]}: {code}"]
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
