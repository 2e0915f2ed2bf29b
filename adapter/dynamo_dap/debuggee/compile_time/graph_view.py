"""The ``Graph`` scope: the FX nodes written so far, and the whole graph as a document. Tracing thread."""

from __future__ import annotations

from typing import Any

from dynamo_dap.debuggee.compile_time.graph_texts import (
    call_text,
    example_text,
    graph_text,
    operand_text,
    result_text,
    user_location,
)
from dynamo_dap.debuggee.compile_time.trackers.tracker_facts import place_variable
from dynamo_dap.debuggee.torch_internals.graph import (
    example_of,
    graphs_of,
    nodes_of,
    operands_of,
    target_name,
    user_places,
)
from dynamo_dap.debuggee.values.families import View
from dynamo_dap.debuggee.values.model import Children, Deferred, Value, Variable, VirtualSource, bounded_text
from dynamo_dap.debuggee.values.paging import in_pages


def graph_children(tx: Any, view: View) -> Children:
    """Return the nodes as children; inside a higher-order operator, the graphs around its body follow."""
    graphs = graphs_of(tx)
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


def graph_source(tx: Any) -> VirtualSource:
    """Return the whole graph written so far as a readable document, which lives as long as the pause."""
    graph = graphs_of(tx)[0]
    name = tx.output.root_tx.f_code.co_name
    return VirtualSource(f"graph of {name}.py", lambda: graph_text(graph, name))
