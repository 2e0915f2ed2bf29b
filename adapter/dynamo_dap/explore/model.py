"""Models the stages of a compile as documents, and links each part to the parts that it was made from.

The structs are plain values for any thread, as in ``records.model``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from dynamo_dap.records.model import Place, StackLine

VERSION = 1
"""Version of the file format."""


class Part(Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """Lines of a document that belong together: a node, an operation, a kernel, a kernel call."""

    name: str
    """Unique in its document."""
    first: int
    """The first line, from 1."""
    last: int
    parents: list[str] = []
    """The parts that it was made from: ``DOCUMENT:PART``."""
    lines: list[int] = []
    """The user's lines that it computes: indices into ``Document.places``."""
    callers: list[int] = []
    """The user's lines that called these lines, outermost first: indices as in ``lines``."""
    note: str | None = None
    """Additional information: a name in torch's logs, a size."""
    lowerings: list[str] = []
    """The Inductor functions that made it, each with its place."""
    why: list[str] = []
    """Why it was made this way: not fused with another, a fallback, a copy."""
    read: int | None = None
    """Bytes that it reads, each buffer once; for a repeated kernel, all calls together."""
    written: int | None = None
    flops: int | None = None
    memory: int | None = None
    """Bytes of intermediate and resulting buffers in use while it runs; in a backward pass also saved ones."""
    is_peak: bool = False
    """Whether it is the peak: no other operation of its graph uses more."""
    saved: int | None = None
    """Bytes saved for the backward pass."""
    recomputed: int | None = None
    """Bytes that the backward pass recomputes."""


class Document(Struct, rename="camel", omit_defaults=True):
    """One stage of one compile."""

    id: str
    """``forward-post-grad``: unique in its compile."""
    title: str
    language: str
    """``python``, ``cpp`` or ``plaintext``."""
    text: str
    before: str | None = None
    """The text before this stage's passes; None if no passes ran."""
    parts: list[Part] = []
    places: list[StackLine] = []
    operations: int = 0
    """The number of parts that compute something."""
    lost: list[str] = []
    """Names of the parts that compute something for an unknown user line."""


class Explored(Struct, rename="camel", omit_defaults=True):
    """A compile and its stages, in order."""

    id: str
    """The record's id: ``0/1``."""
    name: str
    """The frame's name: ``Model.forward``, ``fn (resumed at line 8)``."""
    place: Place
    documents: list[Document] = []


STAGES = (
    "dynamo",
    "pre-grad",
    "joint",
    "joint-passes",
    *(
        f"{direction}{stage}"
        for direction in ("forward", "backward")
        for stage in ("", "-post-grad", "-runnable", "-ir", "-fused", "-code", "-kernels")
    ),
)
"""The documents' ids, in order."""


def in_order(documents: Iterable[Document]) -> list[Document]:
    """Return documents in the order of the stages. Without a joint graph, ``joint-passes`` follows ``forward``."""
    found = list(documents)
    is_inference = all(each.id != "joint" for each in found)

    def position(document: Document) -> float:
        if is_inference and document.id == "joint-passes":
            return STAGES.index("forward") + 0.5
        return STAGES.index(document.id)

    return sorted(found, key=position)


class Links:
    """Links between the parts of a compile's documents: origins and results."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self._documents = {each.id: each for each in documents}
        self.parts = {f"{each.id}:{part.name}": part for each in self._documents.values() for part in each.parts}
        self._children: dict[str, list[str]] = {}
        for name, part in self.parts.items():
            for parent in part.parents:
                self._children.setdefault(parent, []).append(name)

    def made_from(self, name: str) -> set[str]:
        """Return everything that a part was made from, itself included."""
        return self._closure([name], lambda each: self.parts[each].parents if each in self.parts else ())

    def became(self, names: Iterable[str]) -> set[str]:
        """Return the parts with these names, and everything that was made from them."""
        return self._closure(names, lambda each: self._children.get(each, ()))

    def counterparts(self, name: str) -> set[str]:
        """Return what a part was made from, and what was made from it."""
        return self.made_from(name) | self.became([name])

    def of_line(self, path: str, line: int, *, with_callers: bool = True) -> set[str]:
        """Return the parts that compute a user's line, or a line that it calls."""
        return {
            name
            for name, part in self.parts.items()
            if (path, line) in self._places(name, part, with_callers=with_callers)
        }

    def lines_of(self, name: str) -> list[StackLine]:
        """Return the user's lines that a part computes."""
        document = self._documents[name.partition(":")[0]]
        return [document.places[each] for each in self.parts[name].lines]

    def in_document(self, names: Iterable[str], document: str) -> list[Part]:
        """Return those parts that are in a document."""
        return [self.parts[name] for name in names if name.partition(":")[0] == document and name in self.parts]

    def _places(self, name: str, part: Part, *, with_callers: bool) -> Iterator[tuple[str, int]]:
        places = self._documents[name.partition(":")[0]].places
        for each in [*part.lines, *(part.callers if with_callers else ())]:
            yield places[each].place.path, places[each].place.line

    @staticmethod
    def _closure(names: Iterable[str], following: Callable[[str], Iterable[str]]) -> set[str]:
        found: set[str] = set()
        waiting = list(names)
        while waiting:
            each = waiting.pop()
            if each not in found:
                found.add(each)
                waiting += following(each)
        return found
