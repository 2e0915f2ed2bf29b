"""Writes the stages of one compile as documents, and finds the origin of each part.

Runs on the compiling thread, or on the thread that first runs a backward pass. Each explored compile has one
``StageDocuments``, which keeps texts and names, no torch object.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from dynamo_dap.debuggee.agent.user_code import is_torch_file
from dynamo_dap.debuggee.inductor.explored_stages import (
    IrOperation,
    Kernel,
    copied_by,
    described_input,
    forward_of,
    made_from,
)
from dynamo_dap.debuggee.torch_api.graphs.graph import nodes_of, user_places
from dynamo_dap.debuggee.torch_api.lowering.stage_costs import Figures
from dynamo_dap.debuggee.torch_api.objects import Graph, Node
from dynamo_dap.debuggee.values.graph_texts import GraphTexts, graph_lines, names_of_inputs, result_text
from dynamo_dap.explore.model import Document, Part
from dynamo_dap.protocol.texts import short_paths
from dynamo_dap.records.model import Place, StackLine

MAXIMUM_TEXT = 1024 * 1024
MAXIMUM_PARTS = 20_000
_COMMENTED_LINES = 12
_CALL_LINES = 16
_NAMED_NODES = 3
_NOT_FUSED = "not fused with"
_COPYING = ("aten.clone.", "aten.copy.", "aten.copy_.")
_DEFINITION = re.compile(r"^(?P<name>\w+) = async_compile\.(?P<kind>\w+)\(.*'''$")
_KERNEL_PATH = "# kernel path: "
"""Inductor's comment with the file of a single kernel."""
_CALL = re.compile(r"^\s*# \[Provenance debug handles\] (?P<name>.+)$")
_FRAME_NAME = re.compile(r"\W+")


class StageDocuments:
    """The documents of one compile so far."""

    def __init__(self, function: str) -> None:
        """Collect documents of the graphs of ``function``, which gives them their name."""
        self._function = _FRAME_NAME.sub("_", function.rpartition(".")[2].partition(" ")[0]).strip("_") or "graph"
        self.documents: dict[str, Document] = {}
        self._parts: dict[str, Part] = {}
        self._graphs: dict[str, tuple[int, dict[str, str]]] = {}
        """For each graph's document: the graph's identity, and the operation of each node."""
        self._names: dict[str, str] = {}
        """Inputs of AOTAutograd's graphs, as the user would write them."""
        self._inputs: list[str] = []
        self._outputs: list[str] = []
        self._of_number: dict[int, list[str]] = {}
        """Parts of Dynamo's graph, by autograd's number of the operation."""

    # -- graphs ----------------------------------------------------------------------------------------------------

    def dynamo(self, graph: Graph) -> Document:
        """Write Dynamo's graph."""
        names = names_of_inputs(graph)
        nodes = nodes_of(graph)
        self._inputs = [names.get(node, str(node.name)) for node in nodes if node.op == "placeholder"]
        self._outputs = [str(each) for node in nodes if node.op == "output" for each in _flat(node.args)]
        return self.graph("dynamo", "Dynamo's graph", graph)

    def text_of(self, graph: Graph) -> str:
        """Return a graph as text, before passes change it."""
        return _bounded("\n".join(line for line, _ in graph_lines(graph, self._function, self._texts(graph))) + "\n")

    def graph(self, identifier: str, title: str, graph: Graph, before: str | None = None) -> Document:
        """Write a graph; ``before`` is its text before this stage's passes."""
        document = Document(identifier, title, "python", "", before)
        # A value written back comes from a part of the same document.
        self.documents[identifier] = document
        operations = {str(node.name): str(node.op) for node in nodes_of(graph)}
        previous = self._previous(identifier)
        lines, places = [], _Places(document)
        for number, (line, node) in enumerate(graph_lines(graph, self._function, self._texts(graph)), start=1):
            lines.append(line)
            if node is not None:
                parents = self._parents(node, identifier, previous)
                own, callers = places.of_node(node)
                own = own or self._inherited(parents, places)
                part = Part(str(node.name), number, number, parents, own, callers, _note(node), why=_why(node))
                self._add(document, part, is_operation=node.op == "call_function")
                self._number(identifier, node, part)
        document.text = _bounded("\n".join(lines) + "\n")
        self._graphs[identifier] = (id(graph), operations)
        return document

    def _texts(self, graph: Graph) -> GraphTexts:
        nodes = nodes_of(graph)
        taken = {str(node.name) for node in nodes}
        names = names_of_inputs(graph)
        for node in nodes:
            if node.op == "placeholder" and node not in names:
                name = self._name_of_input(node)
                if name is not None and name not in taken:
                    names[node] = self._names[str(node.name)] = name
        return GraphTexts(graph, names)

    def _name_of_input(self, node: Node) -> str | None:
        described = described_input(node)
        if described is None:
            return self._names.get(str(node.name))
        kind, which = described
        if kind == "attribute":
            return f"self.{which}"
        known = self._inputs if kind == "input" else self._outputs
        if which >= len(known):
            return None
        return known[which] if kind == "input" else f"{known[which]}.grad"

    def _previous(self, identifier: str) -> str | None:
        """Return the earlier document whose node names a stage's graph has kept."""
        has_joint = "joint" in self.documents
        passes = ["joint-passes", "joint"] if has_joint else ["forward"]
        found = {
            "pre-grad": ["dynamo"],
            "joint-passes": passes[-1:],
            "forward": passes if has_joint else [],
            "backward": passes if has_joint else [],
            "forward-post-grad": ["forward"] if has_joint else ["joint-passes", "forward"],
            "backward-post-grad": ["backward"],
        }.get(identifier, [])
        return next((each for each in found if each in self.documents), None)

    def _parents(self, node: Node, identifier: str, previous: str | None) -> list[str]:
        name = str(node.name)
        found = [part for way in made_from(node) if (part := self._nearest(way)) is not None]
        if previous is not None and self._graphs[previous][1].get(name) == str(node.op):
            # The node existed before the passes, and may have replaced other nodes.
            found = [f"{previous}:{name}", *found]
        if found or node.op != "call_function":
            return list(dict.fromkeys(found))
        if (copied := copied_by(node)) is not None:
            return [f"{identifier}:{copied.name}"]
        names, number = forward_of(node)
        operations = self._graphs.get("dynamo", (0, {}))[1]
        named = next((f"dynamo:{each}" for each in reversed(names) if each in operations), None)
        return [named] if named is not None else self._of_number.get(number if number is not None else -1, [])

    def _nearest(self, way: Sequence[tuple[str, int]]) -> str | None:
        """Return the nearest step of the way back that is in a document: in the newest one of its graph."""
        for name, graph in way:
            for identifier in reversed(self._graphs):
                known, operations = self._graphs[identifier]
                if known == graph and name in operations:
                    return f"{identifier}:{name}"
        return None

    def _number(self, identifier: str, node: Node, part: Part) -> None:
        """Note which part of Dynamo's graph has an operation's number, which the operation's backward pass has too."""
        number = node.meta.get("seq_nr")
        if identifier == "joint" and number is not None and part.parents:
            self._of_number.setdefault(number, part.parents)

    # -- operations, kernels, code ---------------------------------------------------------------------------------

    def operations(self, direction: str, operations: Sequence[IrOperation], *, fused: bool) -> Document:
        """Write Inductor's operations, before or after fusion."""
        identifier, title = ("fused", "after fusion") if fused else ("ir", "before fusion")
        document = Document(f"{direction}-{identifier}", f"Inductor's operations {title}, {direction}", "python", "")
        below, places, lines = f"{direction}-{'ir' if fused else 'post-grad'}", _Places(document), _Lines()
        for each in operations:
            known = self._known(below, each.members if fused else each.origins)
            # Sort them as in the document: Inductor reports them in any order.
            parents = sorted(known, key=lambda parent: self._parts[parent].first)
            own = self._inherited(parents, places)
            own = own or self._inherited(self._known(f"{direction}-post-grad", each.wanting), places)
            first = lines.add(*_comments(document, own, "#"))
            last = lines.add(*each.text.splitlines()) + each.text.count("\n")
            why = each.reasons + [
                f"{_NOT_FUSED} {self._named(below, other)}: {reason}" for other, reason in each.not_fused
            ]
            part = Part(each.name, first, last, parents, own, lowerings=each.lowerings, why=why)
            self._add(document, part, is_operation=True)
            lines.add("")
        return self._finish(document, lines)

    def _named(self, operations: str, fused: str) -> str:
        """Return a fused operation with the nodes that it computes."""
        parts = [self._parts.get(f"{operations}:{each}") for each in fused.split("_")]
        nodes = [parent.partition(":")[2] for part in parts if part is not None for parent in part.parents]
        shown = ", ".join(dict.fromkeys(nodes[-_NAMED_NODES:]))
        return f"{fused} ({shown})" if shown else fused

    def divided(self, saved: dict[str, int], recomputed: dict[str, int]) -> list[Document]:
        """Note which nodes are saved for the backward pass, and which it recomputes."""
        facts = (
            ("forward", {name: {"saved": size} for name, size in saved.items()}),
            ("backward", {name: {"recomputed": size} for name, size in recomputed.items()}),
        )
        return [self._changed(identifier, changes) for identifier, changes in facts if changes]

    def _changed(self, identifier: str, changes: dict[str, dict[str, Any]]) -> Document:
        """Add facts to parts of a document."""
        document = self.documents[identifier]
        for index, part in enumerate(document.parts):
            if part.name in changes:
                changed = msgspec.structs.replace(part, **changes[part.name])
                document.parts[index] = self._parts[f"{identifier}:{part.name}"] = changed
        return document

    def code(self, direction: str, text: str, kernels: Sequence[Kernel], costs: dict[str, Figures]) -> list[Document]:
        """Write the output code, then each kernel that it defines; report the costs of operations."""
        fused = f"{direction}-fused"
        peak = max((each.memory for each in costs.values() if each.memory is not None), default=None)
        facts = {
            name: {**asdict(each), "is_peak": peak is not None and each.memory == peak} for name, each in costs.items()
        }
        changed = [self._changed(fused, facts)] if fused in self.documents else []
        lines = text.splitlines()
        definitions = dict(_definitions(lines))
        document = Document(f"{direction}-code", f"Output code, {direction}", "python", "")
        places = _Places(document)
        calls = {f"{each.name}:{each.handle}": each for each in kernels}
        for name, first, last in _calls(lines):
            if name in calls:
                parents = self._computed_by(direction, calls[name])
                own = self._inherited(parents, places)
                self._add(document, Part(name, first, last, parents, own), is_operation=False)
        self._finish(document, _Lines(lines))
        made = self._kernels(direction, lines, definitions, kernels)
        for name, (first, last, _) in definitions.items():
            parents = self._known(made.id, [name])
            own = self._inherited(parents, places)
            self._add(document, Part(f"{name} (definition)", first, last, parents, own), is_operation=False)
        return [*changed, document, made]

    def _kernels(
        self,
        direction: str,
        lines: Sequence[str],
        definitions: dict[str, tuple[int, int, str]],
        kernels: Sequence[Kernel],
    ) -> Document:
        is_triton = any("triton" in kind for _, _, kind in definitions.values())
        document = Document(f"{direction}-kernels", f"Kernels, {direction}", "python" if is_triton else "cpp", "")
        places, written, mark = _Places(document), _Lines(), "#" if is_triton else "//"
        called: dict[str, list[Kernel]] = {}
        for each in kernels:
            name = each.name if each.name in definitions else f"{each.name}:{each.handle}"
            called.setdefault(name, []).append(each)
        for name, calls in called.items():
            parents = self._known(f"{direction}-code", [f"{each.name}:{each.handle}" for each in calls])
            parents = parents or [one for each in calls for one in self._computed_by(direction, each)]
            own = self._inherited(parents, places)
            first = written.add(f"{mark} {name}", *_comments(document, own, mark))
            if name in definitions:
                begin, end, _ = definitions[name]
                written.add(*_path_comment(lines, begin - 1), *lines[begin : end - 1])
            computed = self._fused(direction, calls)
            part = Part(name, first, written.count, parents, own, **_together(computed))
            self._add(document, part, is_operation=True)
            written.add("")
        return self._finish(document, written)

    def _fused(self, direction: str, kernels: Iterable[Kernel]) -> list[Part]:
        """Return the scheduler's operations that kernels compute, each once."""
        names = [name for each in kernels for name in self._holding(direction, each.operations)]
        return [self._parts[name] for name in dict.fromkeys(names) if name in self._parts]

    def _computed_by(self, direction: str, kernel: Kernel) -> list[str]:
        found = self._holding(direction, kernel.operations)
        return found or self._known(f"{direction}-post-grad", kernel.origins)

    def _holding(self, direction: str, operations: Iterable[str]) -> list[str]:
        """Return the fused operations that contain ``operations``: kernels name only single operations."""
        fused, wanted = self.documents.get(f"{direction}-fused"), set(operations)
        return [
            f"{direction}-fused:{part.name}"
            for part in ([] if fused is None else fused.parts)
            if wanted & {part.name, *(parent.partition(":")[2] for parent in part.parents)}
        ]

    def runnable(self, direction: str, text: str) -> Document:
        """Write the graph as a program."""
        document = Document(f"{direction}-runnable", f"The graph as a program, {direction}", "python", "")
        return self._finish(document, _Lines(text.splitlines()))

    # -- parts -----------------------------------------------------------------------------------------------------

    def _known(self, identifier: str, names: Iterable[str]) -> list[str]:
        wanted = [f"{identifier}:{name}" for name in dict.fromkeys(names)]
        return [each for each in wanted if each in self._parts]

    def _inherited(self, parents: Iterable[str], places: _Places) -> list[int]:
        """Return the user's lines of the parts that a part was made from."""
        found: dict[int, None] = {}
        for parent in parents:
            identifier = parent.partition(":")[0]
            part = self._parts.get(parent)
            for each in () if part is None else part.lines:
                found[places.index(self.documents[identifier].places[each])] = None
        return list(found)

    def _add(self, document: Document, part: Part, *, is_operation: bool) -> None:
        if is_operation:
            document.operations += 1
            if not part.lines:
                document.lost.append(part.name)
        if len(document.parts) < MAXIMUM_PARTS:
            document.parts.append(part)
            self._parts[f"{document.id}:{part.name}"] = part

    def _finish(self, document: Document, lines: _Lines) -> Document:
        document.text = _bounded("\n".join(lines.texts) + "\n")
        self.documents[document.id] = document
        return document


class _Lines:
    """Lines of a document."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.texts = list(texts)

    @property
    def count(self) -> int:
        return len(self.texts)

    def add(self, *texts: str) -> int:
        """Append lines; return the number of the first of them, from 1."""
        first = self.count + 1
        self.texts += texts
        return first


class _Places:
    """The user's lines of a document, each kept once."""

    def __init__(self, document: Document) -> None:
        self._places = document.places
        self._indices: dict[tuple[str, int, str], int] = {}

    def index(self, line: StackLine) -> int:
        key = (line.place.path, line.place.line, line.function)
        if key not in self._indices:
            self._indices[key] = len(self._places)
            self._places.append(line)
        return self._indices[key]

    def of_node(self, node: Node) -> tuple[list[int], list[int]]:
        """Return the line that a node computes, and its callers; torch's own lines only if there are no others."""
        stack = [StackLine(Place(at.path, at.line), function) for at, function in user_places(node)]
        users = [each for each in stack if not is_torch_file(each.place.path)] or stack
        indices = [self.index(each) for each in users]
        return indices[-1:], indices[:-1]


def _comments(document: Document, lines: Sequence[int], mark: str) -> list[str]:
    found = [document.places[each] for each in lines]
    names = short_paths(each.place.path for each in found)
    texts = [
        f"{mark} {names[each.place.path]}:{each.place.line} in {each.function}: "
        f"{linecache.getline(each.place.path, each.place.line).strip()}"
        for each in found[:_COMMENTED_LINES]
    ]
    more = len(found) - len(texts)
    return [*texts, f"{mark} and {more} more lines"] if more > 0 else texts


def _definitions(lines: Sequence[str]) -> Iterator[tuple[str, tuple[int, int, str]]]:
    """Yield the kernels that output code defines: name, first and last line (from 1), and how each is compiled."""
    begun: tuple[str, int, str] | None = None
    for number, line in enumerate(lines, start=1):
        if begun is None and (match := _DEFINITION.match(line)) is not None:
            begun = match["name"], number, match["kind"]
        elif begun is not None and line.startswith("'''"):
            yield begun[0], (begun[1], number, begun[2])
            begun = None


def _path_comment(lines: Sequence[str], definition: int) -> list[str]:
    """Return the comment above a kernel's definition that names the kernel's file; empty if there is none."""
    for index in range(definition - 1, -1, -1):
        if not lines[index].startswith("#"):
            break
        if lines[index].startswith(_KERNEL_PATH):
            return [lines[index]]
    return []


def _calls(lines: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Yield the kernel calls in output code: name with handle, first and last line (from 1)."""
    for number, line in enumerate(lines, start=1):
        match = _CALL.match(line)
        if match is not None:
            called = match["name"].partition(":")[0].rpartition(".")[2] + "("
            following = range(number, min(number + _CALL_LINES, len(lines)))
            last = next((each + 1 for each in following if called in lines[each]), number)
            yield match["name"], number, last


def _note(node: Node) -> str:
    parts = [str(node.name), result_text(node)]
    return ": ".join(each for each in parts if each)


def _why(node: Node) -> list[str]:
    """Return why a graph contains a copy that the user did not write."""
    target = str(node.target)
    if copied_by(node) is not None:
        return ["a copy: the program changes an input in place, and this writes it back"]
    if not target.startswith(_COPYING):
        return []
    names, _ = forward_of(node)
    return [f"a copy: {target} was made from {names[-1]}"] if names else [f"a copy: {target}"]


def _together(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the cost of a kernel that computes operations: sums, but the maximum of memory."""

    def total(found: Iterable[int | None], combine: Callable[[list[int]], int]) -> int | None:
        known = [each for each in found if each is not None]
        return combine(known) if known else None

    # One kernel may hold several loops that Inductor could not fuse.
    inside = tuple(f"{_NOT_FUSED} {each.name} " for each in parts)
    return {
        "read": total((each.read for each in parts), sum),
        "written": total((each.written for each in parts), sum),
        "flops": total((each.flops for each in parts), sum),
        "memory": total((each.memory for each in parts), max),
        "is_peak": any(each.is_peak for each in parts),
        "why": list(dict.fromkeys(why for each in parts for why in each.why if not why.startswith(inside))),
        "lowerings": list(dict.fromkeys(one for each in parts for one in each.lowerings)),
    }


def _flat(value: object) -> Iterator[object]:
    if isinstance(value, list | tuple):
        for each in value:
            yield from _flat(each)
    else:
        yield value


def _bounded(text: str) -> str:
    if len(text) <= MAXIMUM_TEXT:
        return text
    return text[:MAXIMUM_TEXT].rpartition("\n")[0] + f"\n# ... {len(text) - MAXIMUM_TEXT} more characters\n"
