"""Collects the stages of compiles from a trace log: graphs, output code and kernels, for ``dynamo-dap explore``.

A log has the texts of graphs and code, not the objects: parts are linked by the names that torch wrote in these texts.
Runs on one thread per log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dynamo_dap.explore.model import Document, Explored, Part, in_order
from dynamo_dap.records.model import Node, Place, StackLine
from dynamo_dap.trace_logs.compiles import Translation
from dynamo_dap.trace_logs.entries import Entry
from dynamo_dap.trace_logs.graph_texts import SourceText, numbered_nodes
from dynamo_dap.trace_logs.logs import Mappings, PathMap, read_trace

BOUND = 96 * 1024 * 1024
"""The most bytes of texts that are kept."""
_LONGEST = 4 * 1024 * 1024
_PARTS = 20_000
_GRAPHS = {
    "dynamo_output_graph": ("dynamo", "Dynamo's graph"),
    "after_pre_grad_graph": ("pre-grad", "After the pre-grad passes"),
    "aot_joint_graph": ("joint", "AOTAutograd's joint graph"),
    "after_joint_graph": ("joint-passes", "After the joint graph's passes"),
    "aot_inference_graph": ("forward", "AOTAutograd's graph"),
    "aot_forward_graph": ("forward", "AOTAutograd's graph, forward"),
    "aot_backward_graph": ("backward", "AOTAutograd's graph, backward"),
    "inductor_post_grad_graph": ("{}-post-grad", "After the post-grad passes, {}"),
    "after_post_grad_graph": ("{}-post-grad", "After the post-grad passes, {}"),
    "fx_graph_runnable": ("{}-runnable", "The graph as a program, {}"),
}
_BEFORE = {"before_pre_grad_graph": "pre-grad", "before_joint_graph": "joint-passes"}
_BEFORE |= {"before_post_grad_graph": "{}-post-grad"}
_CODE = "inductor_output_code"
_PREVIOUS = {
    "pre-grad": ("dynamo",),
    "joint-passes": ("joint", "forward"),
    "forward": ("joint-passes", "joint"),
    "backward": ("joint-passes", "joint"),
    "forward-post-grad": ("joint-passes", "forward"),
    "backward-post-grad": ("backward",),
}
"""For each graph: the earlier documents whose node names it keeps."""
_TANGENT = re.compile(r"\btangents_\d+\b")
_DEFINITION = re.compile(r"^(?P<name>\w+) = async_compile\.(?P<kind>\w+)\(")
_FRAGMENT = re.compile(r"^#\s+%(?P<node>\w+) : .*= call_function\[")
_END = re.compile(r"^'''")


@dataclass
class _Compile:
    attempt: int
    documents: dict[str, Document] = field(default_factory=dict)
    before: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, dict[str, Part]] = field(default_factory=dict)
    """The parts of graphs, by document and name."""


class StagesInLog:
    """Collects documents while a log is read."""

    def __init__(self, mapped: PathMap, function: str | None = None, bound: int = BOUND) -> None:
        """Collect the documents of compiles whose name contains ``function``; None: of all."""
        self._mapped = mapped
        self._function = function
        self._remaining = bound
        self._compiles: dict[str, _Compile] = {}
        self._found: dict[str, Explored] = {}
        self.is_truncated = False
        """Whether documents were left out because of their size."""

    def take(self, entry: Entry, translation: Translation) -> None:
        """Collect the entry's document, if it has one."""
        name = entry.name or entry.kind
        if name != _CODE and name not in _GRAPHS and name not in _BEFORE:
            return
        identifier = translation.compile_of(entry)
        compiled = None if identifier is None else translation.record.find(identifier)
        if compiled is None or (self._function is not None and self._function not in compiled.name):
            return
        if len(entry.content) > min(self._remaining, _LONGEST):
            self.is_truncated = True
            return
        self._remaining -= len(entry.content)
        known = self._compiles.get(compiled.id)
        if known is None or known.attempt < len(compiled.attempts):
            # Drop the documents of an abandoned attempt.
            known = self._compiles[compiled.id] = _Compile(len(compiled.attempts))
        place = compiled.place or Place("?", 1)
        self._found.setdefault(compiled.id, Explored(compiled.id, compiled.name, place))
        self._add(known, name, entry.payload)

    def explored(self) -> list[Explored]:
        """Return the compiles, with their documents."""
        for identifier, compiled in self._compiles.items():
            self._found[identifier].documents = in_order(compiled.documents.values())
        return list(self._found.values())

    def _add(self, compiled: _Compile, name: str, text: str) -> None:
        direction = "backward" if _TANGENT.search(text) else "forward"
        if name in _BEFORE:
            compiled.before[_BEFORE[name].format(direction)] = text
        elif name == _CODE:
            self._code(compiled, direction, text)
        else:
            identifier, title = (each.format(direction) for each in _GRAPHS[name])
            if identifier not in compiled.documents or name != "after_post_grad_graph":
                document = Document(identifier, title, "python", text, compiled.before.pop(identifier, None))
                compiled.documents[identifier] = document
                if not identifier.endswith("-runnable"):
                    self._graph(compiled, document)

    def _graph(self, compiled: _Compile, document: Document) -> None:
        quoted: list[SourceText] = []
        previous = next((each for each in _PREVIOUS.get(document.id, ()) if each in compiled.nodes), None)
        known = {} if previous is None else compiled.nodes[previous]
        places = _Places(document)
        parts = compiled.nodes[document.id] = {}
        for number, node in numbered_nodes(document.text, quoted):
            if node.operation == "output" or len(parts) >= _PARTS:
                continue
            lines = [] if node.place is None else [places.index(self._mapped(node.place.path), node.place.line)]
            parents = [f"{previous}:{node.name}"] if node.name in known else []
            part = Part(node.name, number, number, parents, lines, note=_note(node))
            parts[node.name] = part
            if node.operation.startswith("call_"):
                document.operations += 1
                if not lines:
                    document.lost.append(node.name)
        document.parts = list(parts.values())

    def _code(self, compiled: _Compile, direction: str, text: str) -> None:
        code = Document(f"{direction}-code", f"Output code, {direction}", "python", text)
        lines = text.split("\n")
        found = list(_kernels(lines))
        is_triton = any("triton" in kind for _, _, _, kind, _ in found)
        language = "python" if is_triton else "cpp"
        kernels = Document(f"{direction}-kernels", f"Kernels, {direction}", language, "")
        nodes = compiled.nodes.get(f"{direction}-post-grad", {})
        graph = compiled.documents.get(f"{direction}-post-grad")
        written: list[str] = []
        of_code, of_kernels = _Places(code), _Places(kernels)
        for name, first, last, _, fragment in found:
            parents = [each for each in fragment if each in nodes]
            used = [] if graph is None else [graph.places[index] for each in parents for index in nodes[each].lines]
            part = Part(
                name,
                first,
                last,
                [f"{direction}-post-grad:{each}" for each in parents],
                list(dict.fromkeys(of_code.index(each.place.path, each.place.line) for each in used)),
            )
            code.parts.append(part)
            begin = len(written) + 1
            written += [f"{'#' if is_triton else '//'} {name}", *lines[first : last - 1], ""]
            own = list(dict.fromkeys(of_kernels.index(each.place.path, each.place.line) for each in used))
            kernels.parts.append(Part(name, begin, len(written) - 1, [f"{code.id}:{name}"], own))
            kernels.operations += 1
            if not own:
                kernels.lost.append(name)
        kernels.text = "\n".join(written)
        compiled.documents[code.id] = code
        if found:
            compiled.documents[kernels.id] = kernels


def _kernels(lines: list[str]) -> Iterator[tuple[str, int, int, str, list[str]]]:
    """Yield each kernel of output code: name, first and last line, compiler, and the nodes in the comment above it."""
    begun: tuple[str, int, str] | None = None
    fragment: list[str] = []
    for number, line in enumerate(lines, 1):
        match = _DEFINITION.match(line) if begun is None else None
        if match is not None:
            begun = match["name"], number, match["kind"]
        elif begun is not None and _END.match(line):
            yield begun[0], begun[1], number, begun[2], list(dict.fromkeys(fragment))
            begun, fragment = None, []
        elif begun is None and (node := _FRAGMENT.match(line)) is not None:
            fragment.append(node["node"])
        elif begun is None and not line.startswith("#"):
            fragment = []


class _Places:
    """The user's lines of a document, each kept once."""

    def __init__(self, document: Document) -> None:
        self._places = document.places
        self._indices: dict[tuple[str, int], int] = {}

    def index(self, path: str, line: int) -> int:
        if (path, line) not in self._indices:
            self._indices[path, line] = len(self._places)
            self._places.append(StackLine(Place(path, line), ""))
        return self._indices[path, line]


def _note(node: Node) -> str:
    return f"{node.name}: {node.value}" if node.value else node.name


def stages_of(path: Path, mappings: Mappings = (), function: str | None = None) -> tuple[list[Explored], bool]:
    """Return the compiles in a log with their stages, and whether some were left out for their size.

    Raises:
        UnreadableRecord: there is no log, or it cannot be read.
    """
    stages = StagesInLog(PathMap(mappings), function)
    read_trace(path, mappings, observe=stages.take)
    return stages.explored(), stages.is_truncated
