"""Shows the graph that Dynamo builds: nodes as lines of Python, the ``Graph`` scope, the graph as a document.

Runs on the tracing thread. Another thread may read the text of a document.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dynamo_dap.debuggee.torch_api.graphs.graph import (
    example_of,
    nodes_of,
    operands_of,
    target_name,
    user_place,
    user_places,
)
from dynamo_dap.debuggee.torch_api.objects import Graph, Node
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.traced_paths import PATHS, Operation, operation_text
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place
from dynamo_dap.debuggee.values.graph_texts import GraphTexts, example_text, graph_text, result_text
from dynamo_dap.debuggee.values.model import (
    Children,
    Deferred,
    Location,
    Value,
    Variable,
    View,
    VirtualSource,
    bounded_text,
)
from dynamo_dap.debuggee.values.paging import in_pages


def node_text(node: Node) -> str:
    """Return the node as a line of Python: ``add = x + 1``."""
    return GraphTexts(node.graph).node(node)


def place_variable(name: str, place: Place) -> Variable:
    """Return a place of the user's code as a child with a link."""
    location = Location(place.path, place.line, place.column)
    text = f"{place.path.rpartition('/')[2]}:{place.line}"
    return Variable(name, Value(text, kind="virtual", location=location), declaration=location)


def user_location(node: Node) -> Location | None:
    """Return the user's line that made the node."""
    at = user_place(node)
    return None if at is None else Location(at[0].path, at[0].line)


def graph_children(frame: TracedFrame, view: View) -> Children:
    """Return the nodes as children. Before them come the graphs around a higher-order operator's body.

    If this is a replay that differs from the call's cache entry, the entry's graph comes before the nodes, too.
    """
    graphs = frame.graphs()
    inner, outer = graphs[0], graphs[1:]
    around = [_graph_variable(graph, depth, view) for depth, graph in enumerate(outer, start=1)]
    around += _entry_variable(graphs[-1])
    return in_pages(len(nodes_of(inner)), _page(inner, view), before=lambda: around)


def _entry_variable(graph: Graph) -> Iterator[Variable]:
    """Yield the graph that the program runs, if the replay of a cached call differs from its cache entry."""
    problem = PATHS.why_replay_not_valid(graph)
    if problem is None:
        return

    def page(start: int, stop: int) -> list[Variable]:
        return [_operation_variable(at, problem.operations[at]) for at in range(start, min(stop, count))]

    count = len(problem.operations)
    text = f"the program runs this graph (operations: {count}), since {problem.difference}"
    yield Variable("graph of the cache entry", Value(text, children=in_pages(count, page), kind="virtual"))


def _operation_variable(position: int, operation: Operation) -> Variable:
    place = operation.place
    location = None if place is None else Location(place.path, place.line)
    return Variable(f"operation {position}", Value(operation_text(operation), location=location), declaration=location)


def _page(graph: Graph, view: View) -> Any:
    def page(start: int, stop: int) -> list[Variable]:
        texts = GraphTexts(graph)
        return [_node_variable(node, view, texts) for node in nodes_of(graph)[start:stop]]

    return page


def _graph_variable(graph: Graph, depth: int, view: View) -> Variable:
    count = len(nodes_of(graph))
    below = in_pages(count, _page(graph, view))
    return Variable(f"outer graph ({depth})", Value(f"{count} nodes", children=below, kind="virtual"))


def _node_variable(node: Node, view: View, texts: GraphTexts) -> Variable:
    result, call = result_text(node), texts.call(node)
    text = f"{call} → {result}" if result else call
    location = user_location(node)
    value = Value(bounded_text(text), node.op, Deferred(lambda: _parts(node, view, texts)), location=location)
    return Variable(texts.name(node), value, declaration=location)


def _parts(node: Node, view: View, texts: GraphTexts) -> list[Variable]:
    positional, keywords = operands_of(node)
    parts = [Variable("op", Value(str(node.op))), Variable("target", Value(target_name(node)))]
    if texts.name(node) != node.name:
        parts.append(Variable("in torch's logs", Value(str(node.name))))
    parts += [Variable(f"argument {number}", Value(texts.operand(each))) for number, each in enumerate(positional)]
    parts += [Variable(f"argument {name}", Value(texts.operand(each))) for name, each in keywords.items()]
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
