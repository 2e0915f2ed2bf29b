"""What a compile is at each of its stages: documents, whose parts say what they were made from.

Plain values, as in ``records.model``. Any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from dynamo_dap.records.model import Place, StackLine

VERSION = 1
"""Of the file format."""


class Part(Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """Some lines of a document that are one thing: a node, an operation, a kernel, a call of one."""

    name: str
    """Unique in its document."""
    first: int
    """The first line, from 1."""
    last: int
    parents: list[str] = []
    """What it was made from: ``DOCUMENT:PART``."""
    lines: list[int] = []
    """The user's lines that it computes: indices of ``Document.places``."""
    callers: list[int] = []
    """The user's lines that called those, outermost first."""
    note: str | None = None
    """What else a person may want to know of it: a name in torch's texts, a size."""
    lowerings: list[str] = []
    """What made it of its nodes: functions of Inductor's, each with its place."""
    why: list[str] = []
    """Why it is there as it is: not fused with another, a fallback, a copy."""
    read: int | None = None
    """Bytes that it reads, each buffer once; of a kernel that is called often, all calls together."""
    written: int | None = None
    flops: int | None = None
    memory: int | None = None
    """Bytes of intermediate and resulting buffers in use while it runs, in a backward pass of saved ones, too."""
    is_peak: bool = False
    """Whether no other operation of its graph has more in use."""
    saved: int | None = None
    """Bytes that are kept of it for the backward pass."""
    recomputed: int | None = None
    """Bytes that the backward pass computes again of it."""


class Document(Struct, rename="camel", omit_defaults=True):
    """One stage of one compile."""

    id: str
    """``forward-post-grad``: unique in its compile."""
    title: str
    language: str
    """``python``, ``cpp`` or ``plaintext``."""
    text: str
    before: str | None = None
    """What it was before the passes of this stage; None where no passes ran."""
    parts: list[Part] = []
    places: list[StackLine] = []
    operations: int = 0
    """How many parts compute something."""
    lost: list[str] = []
    """Those of them of which nobody knows what line of the user's they come from."""


class Explored(Struct, rename="camel", omit_defaults=True):
    """A compile and its stages, in their order."""

    id: str
    """As in the record: ``0/1``."""
    name: str
    """The frame: ``Model.forward``, ``fn (resumed at line 8)``."""
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
"""The ids of documents, in their order."""


def in_order(documents: Iterable[Document]) -> list[Document]:
    """Return documents in the order of the stages; of an inference graph the passes come after it."""
    found = list(documents)
    is_inference = all(each.id != "joint" for each in found)

    def position(document: Document) -> float:
        if is_inference and document.id == "joint-passes":
            return STAGES.index("forward") + 0.5
        return STAGES.index(document.id)

    return sorted(found, key=position)


class Links:
    """Which parts of a compile's documents belong together: what a part was made from, and what was made from it."""

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
        """Return everything that was made from parts, themselves included."""
        return self._closure(names, lambda each: self._children.get(each, ()))

    def counterparts(self, name: str) -> set[str]:
        """Return what a part was made from, and what was made from it."""
        return self.made_from(name) | self.became([name])

    def of_line(self, path: str, line: int, *, with_callers: bool = True) -> set[str]:
        """Return the parts that compute a line of the user's, or what it calls."""
        return {
            name
            for name, part in self.parts.items()
            if (path, line) in self._places(name, part, with_callers=with_callers)
        }

    def lines_of(self, name: str) -> list[StackLine]:
        """Return the lines of the user's that a part computes, in the order of the files."""
        document = self._documents[name.partition(":")[0]]
        return [document.places[each] for each in self.parts[name].lines]

    def in_document(self, names: Iterable[str], document: str) -> list[Part]:
        """Return those of some parts that are in a document."""
        return [self.parts[name] for name in names if name.partition(":")[0] == document and name in self.parts]

    def _places(self, name: str, part: Part, *, with_callers: bool) -> Iterator[tuple[str, int]]:
        places = self._documents[name.partition(":")[0]].places
        for each in [*part.lines, *(part.callers if with_callers else ())]:
            yield places[each].place.path, places[each].place.line

    @staticmethod
    def _closure(names: Iterable[str], following: object) -> set[str]:
        found: set[str] = set()
        waiting = list(names)
        while waiting:
            each = waiting.pop()
            if each not in found:
                found.add(each)
                waiting += following(each)  # type: ignore[operator]  # a function by its name
        return found
