"""A recorded graph as readable Python: one line per node, below the user's line that it comes from."""

from __future__ import annotations

from dynamo_dap.record.model import Graph, Node
from dynamo_dap.record.short_paths import short_paths
from dynamo_dap.record.texts import source_line


def readable_graph(graph: Graph, name: str) -> str:
    """Return the text; ``name`` is that of the function it is written as."""
    inputs = [node for node in graph.nodes if node.operation == "placeholder"]
    lines = [f"def {_identifier(name)}({', '.join(node.name for node in inputs)}):"]
    lines += [f"    # {node.name}: {node.value or ''}".rstrip(" :") for node in inputs]
    names = short_paths(node.place.path for node in graph.nodes if node.place is not None)
    last = None
    for node in graph.nodes:
        if node.operation == "placeholder":
            continue
        if node.place is not None and node.place != last:
            code = source_line(node.place.path, node.place.line)
            lines += ["", f"    # {names[node.place.path]}:{node.place.line}: {code}"]
        last = node.place
        lines.append(_line(node))
    if len(graph.nodes) < graph.node_count:
        lines.append(f"    ...  # {graph.node_count - len(graph.nodes)} more nodes are not recorded")
    return "\n".join(lines) + "\n"


def _line(node: Node) -> str:
    if node.operation == "output":
        return f"    {node.expression or 'return'}"
    line = f"    {node.name} = {node.expression or node.target}"
    return f"{line}  # {node.value}" if node.value else line


def _identifier(name: str) -> str:
    first = name.rpartition(".")[2].partition(" ")[0]
    return first if first.isidentifier() else "graph"
