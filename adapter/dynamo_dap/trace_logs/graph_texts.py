"""Parses graphs as torch prints them (``print_readable``). It has no side effects.

Each statement is a node; the comment above it has the user's line. A graph may come from any torch since 2.6, and may
be cut off: unreadable parts are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from dynamo_dap.records.input_names import user_name
from dynamo_dap.records.model import Graph, Node, Place

MAXIMUM_NODES = 2000
_LONGEST = 300
_FORWARD = re.compile(r"\s*def forward\(self(?:, (?P<inputs>.*))?\):\s*(?:->.*)?$")
_INPUT = re.compile(r'(?P<name>\w+)(?:: "(?P<type>[^"]*)")?(?: = [^,]+)?(?:, |$)')
_LINE = re.compile(
    r"\s*# (?:Annotation: .*? )?File: (?P<path>.+?):(?P<line>\d+) in (?P<function>.+?)(?:, code: (?P<code>.*))?$"
)
_STATEMENT = re.compile(r'(?P<name>[A-Za-z_]\w*)(?:: "(?P<type>[^"]*)")? = (?P<value>.+?)(?:;  .*)?$')
_IN_PLACE = re.compile(
    r'(?P<value>\S.*? (?:[-+*/@&|^%]|//|\*\*|<<|>>)?= .+?);  (?P<name>\w+)(?:: "(?P<type>[^"]*)")? = .+$'
)
_ATTRIBUTE = re.compile(r"self(?:\.\w+|\[\d+\])+$")
_MODULE_CALL = re.compile(r"self(?:\.\w+)+\(")
_TARGET = re.compile(r"[\w.]+(?=\()")
_METHOD = re.compile(r"[A-Za-z_]\w*\.(?P<method>\w+)\(")


@dataclass
class SourceText:
    """A user's line, as in the log."""

    place: Place
    text: str


@dataclass
class ParsedGraph:
    """A graph, and the lines that its comments quote."""

    graph: Graph
    lines: list[SourceText] = field(default_factory=list)


def parsed_graph(text: str, index: int = 0) -> ParsedGraph:
    """Return the graph that torch printed; without nodes if it is unreadable."""
    lines: list[SourceText] = []
    nodes = [node for _, node in numbered_nodes(text, lines)]
    operations = sum(node.operation.startswith("call_") for node in nodes)
    name = f"graph {index}" if index else "graph"
    return ParsedGraph(Graph(index, name, len(nodes), operations, nodes[:MAXIMUM_NODES]), lines)


def numbered_nodes(text: str, quoted: list[SourceText]) -> Iterator[tuple[int, Node]]:
    """Yield a graph's nodes, each with its line in the text; collect the quoted user lines."""
    inputs: dict[str, str | None] = {}
    place: Place | None = None
    is_inside = is_in_header = False
    for number, line in enumerate(text.split("\n"), 1):
        if not is_inside:
            header = _FORWARD.match(line)
            if header is not None:
                is_inside = True
                inputs = {each["name"]: each["type"] for each in _INPUT.finditer(header["inputs"] or "")}
                yield from ((number, _input(name, kind)) for name, kind in inputs.items())
            # The header of a joint graph has a line for each argument.
            is_in_header = is_in_header or line.strip() == "def forward("
            is_inside = is_inside or (is_in_header and line.strip() == "):")
            continue
        stripped = line.strip()
        if not stripped:
            continue
        if stripped.startswith("#"):
            at = _LINE.match(line)
            place = None if at is None else Place(at["path"], int(at["line"]))
            if place is not None and at is not None and at["code"]:
                quoted.append(SourceText(place, at["code"].strip()))
            continue
        if stripped.startswith("return"):
            yield number, Node("output", "output", "output", expression=stripped[:_LONGEST])
            # Bodies of higher-order operators follow.
            return
        node = _statement(stripped, place, inputs)
        if node is not None:
            yield number, node


def _input(name: str, kind: str | None) -> Node:
    return Node(name, "placeholder", name, value=_value(kind), user_name=user_name(name))


def _statement(text: str, place: Place | None, inputs: dict[str, str | None]) -> Node | None:
    found = _STATEMENT.match(text) or _IN_PLACE.match(text)
    if found is None:
        return None
    value = found["value"]
    if value in inputs or (value == "None" and found["type"] is None):
        # The statement only gives an input a second name, or frees a value.
        return None
    target = _TARGET.match(value)
    method = _METHOD.match(value)
    if _ATTRIBUTE.match(value):
        operation, name = "get_attr", value
    elif _MODULE_CALL.match(value):
        operation, name = "call_module", target[0] if target else value
    elif method is not None and not value.startswith(("torch.", "operator.", "math.", "builtins.")):
        operation, name = "call_method", method["method"]
    else:
        operation, name = "call_function", target[0] if target else value
    return Node(found["name"], operation, name[:_LONGEST], _value(found["type"]), place, value[:_LONGEST])


def _value(kind: str | None) -> str | None:
    """Return ``f32[3, 4]``, without strides and device."""
    if kind is None:
        return None
    first = kind.find("]")
    return kind[: first + 1] if first >= 0 and kind[first + 1 : first + 2] == "[" else kind
