"""Stores a trace's snapshots: the state of Dynamo's interpreter before each instruction.

Half of the instructions only push a value, or do nothing visible. Of these, only the position is stored: the rest is
derived from the next full snapshot, without the values pushed in between. Runs on the tracing thread; snapshots live as
long as the trace's log (``state_log``).
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, overload

from dynamo_dap.debuggee.torch_api.objects import Instruction, SideEffects, Tracer, Translator
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame

PUSHED: Mapping[str, int] = {
    "LOAD_CONST": 1,
    "LOAD_FAST": 1,
    "LOAD_FAST_BORROW": 1,
    "LOAD_SMALL_INT": 1,
    "NOP": 0,
    "NOT_TAKEN": 0,
    "PRECALL": 0,
    "PUSH_NULL": 1,
    "RESUME": 0,
}
"""How many values each of these instructions pushes; ``only_pushes`` has the exceptions."""
QUIET = frozenset({*PUSHED, "COPY", "JUMP_BACKWARD", "JUMP_FORWARD", "KW_NAMES", "POP_TOP", "STORE_FAST", "SWAP"})
"""Instructions that change only the stack and variables, and continue in the same function."""
NO_PROGRESS: Mapping[str, object] = {}
"""The progress of functions that are not generators."""
_OF_RESUMED_STACK = "__stack"
"""Prefix of the variables from which resume functions restore the stack: loading such a variable deletes it."""


class PastFrame(NamedTuple):
    """A function's interpreter state."""

    translator: Translator
    locals: dict[str, object]
    stack: Sequence[object]
    pointer: int | None
    instruction: Instruction
    line: int
    blocks: Sequence[object]
    progress: Mapping[str, object]
    """A generator's progress: yielded values, and whether it has ended."""

    @property
    def frame(self) -> TracedFrame:
        """The present state of the function."""
        return TracedFrame(self.translator)

    @property
    def interpreter(self) -> object:
        """Return the translator with this state."""
        return self.translator

    @property
    def path(self) -> str:
        """The file of the code."""
        path: str = self.translator.f_code.co_filename
        return path

    @property
    def at(self) -> int:
        """The index of the running instruction."""
        return int(self.translator.indexof[self.instruction]) if self.pointer is None else self.pointer - 1


class PastGraph(NamedTuple):
    """The length of a graph so far."""

    tracer: Tracer
    nodes: int
    inputs: int


class PastEffects(NamedTuple):
    """Dynamo's facts about objects."""

    effects: SideEffects
    """Torch's ``SideEffects``; the body of a higher-order operator is traced with a copy."""
    tracked: int
    """How many objects are known by identity."""
    saved: int
    """How often tensors were saved for a backward pass."""


@dataclass(frozen=True, slots=True)
class PastSizes:
    """Dynamo's facts about sizes (torch/fx/experimental/symbolic_shapes.py, ``ShapeEnv``)."""

    version: tuple[int, ...]
    """The environment's version, and the ids of its ranges, which change without a new version."""
    guards: list[object]
    replacements: dict[object, object]
    ranges: dict[object, object]


class PastTrace(NamedTuple):
    """The shared state of all functions of a trace; most snapshots share it with the one before."""

    graphs: tuple[PastGraph, ...]
    guards: int
    effects: PastEffects
    sizes: PastSizes


class Snapshot(NamedTuple):
    """The state of the trace before an instruction."""

    frames: tuple[PastFrame, ...]
    """The function and its callers, innermost first."""
    left: tuple[PastFrame, ...]
    """Generators that ran at the snapshot before, and now wait to be resumed."""
    is_line: bool
    """Whether a source line begins there, as Dynamo counts lines."""
    position: int
    """How many instructions with a line the attempt had reached."""
    changes: int
    """How many changes (``trace_changes``) had been made."""
    trace: PastTrace

    @property
    def graphs(self) -> tuple[PastGraph, ...]:
        """Return the graphs of the snapshot."""
        return self.trace.graphs

    @property
    def guards(self) -> int:
        """Return the number of guards at the snapshot."""
        return self.trace.guards


_COUNTS = 5
"""How many numbers ``_counts`` has for each ``PastTrace``."""
_LOADS = frozenset(name for name in PUSHED if name.startswith("LOAD_FAST"))


def only_pushes(instruction: Instruction, own: Mapping[str, Any], *, is_inlined: bool) -> bool:
    """Return whether an instruction, one of ``PUSHED`` with a line, only pushes values on the stack.

    ``own`` are the interpreter's fields before the instruction.
    """
    if instruction.opname in _LOADS:
        variable = instruction.argval
        if variable not in own["symbolic_locals"] or (not is_inlined and variable.startswith(_OF_RESUMED_STACK)):
            return False
    if blocks := own["block_stack"]:
        # Dynamo updates its stack of blocks when it reaches an instruction.
        entry = instruction.exn_tab_entry
        if entry is None or entry.target is not blocks[-1].target:
            return False
    # At an empty stack the trace of a function that is not inlined may end with a graph break.
    return is_inlined or bool(own["stack"] and not own.get("is_tracing_resume_prologue"))


def where(translator: Translator, instruction: Instruction) -> tuple[int, Any, int]:
    """Return pointer, instruction and line of a function before an instruction with a line."""
    return translator.indexof[instruction] + 1, instruction, instruction.starts_line


@cache
def _marks() -> dict[type, object]:
    """Return, by type, one tracker to store for all trackers of the type: all NULLs on value stacks are alike."""
    null = getattr(sys.modules.get("torch._dynamo.variables.misc"), "NullVariable", None)
    return {} if null is None else {null: null()}


class _Sequences:
    """Many short sequences in one list, numbered from the first one ever added."""

    def __init__(self) -> None:
        self.items: list[object] = []
        """The items of all sequences that are not forgotten."""
        self.count = 0
        """How many sequences were ever added."""
        self._ends = array("q")
        """The end of each sequence, counting all items ever added."""
        self._forgotten = self._forgotten_items = 0

    def add(self, items: Iterable[object]) -> None:
        """Add a sequence; its number is ``count`` before the call."""
        self.items += items
        self._ends.append(self._forgotten_items + len(self.items))
        self.count += 1

    def get(self, number: int, *, without: int = 0) -> list[object]:
        """Return a sequence without some items at its end."""
        first = self._first(number)
        end = self._ends[number - self._forgotten] - self._forgotten_items
        return self.items[first - self._forgotten_items : end - without]

    def _first(self, number: int) -> int:
        return self._ends[number - self._forgotten - 1] if number > self._forgotten else self._forgotten_items

    def forget(self, number: int) -> None:
        """Forget the sequences before ``number``, the number of an existing sequence."""
        first = self._first(number)
        del self._ends[: number - self._forgotten]
        del self.items[: first - self._forgotten_items]
        self._forgotten, self._forgotten_items = number, first


class Snapshots(Sequence[Snapshot]):
    """Snapshots, oldest first. A trace has thousands of snapshots, and each mostly equals the one before.

    So each field of all snapshots is one list or array: with one object per snapshot, garbage collection took longer
    than taking the snapshots. Numbers count from the first snapshot ever added.
    """

    def __init__(self, forgotten: int = 0) -> None:
        """Begin after ``forgotten`` earlier snapshots."""
        self._shared = _marks()
        self.instructions: list[Instruction] = []
        """For each snapshot, its next instruction."""
        self.forgotten = forgotten
        """How many of the oldest snapshots were forgotten."""
        self.changed = array("q")
        """For each change (``trace_changes``), how many snapshots preceded it."""
        self._noted = array("q")
        """The numbers of full snapshots, which copy stack and variables; the others are derived from the next one."""
        self._stacks = _Sequences()
        """The value stacks of the full snapshots; ``_forgotten_stacks`` of them are forgotten."""
        self._forgotten_stacks = 0
        self._bound = array("q")
        """For each full snapshot, the number of its variables in ``_values``."""
        self._names: list[tuple[str, ...]] = []
        self._values = _Sequences()
        """The values of the variables in ``_names``: a sequence for each time that any value had changed."""
        self._variables: dict[str, object] | None = None
        """The variables of the last full snapshot."""
        self._begun = array("q")
        """The number of each stretch's first snapshot. A stretch is a run of snapshots in one function."""
        self._functions: list[Translator] = []
        """The function of each stretch."""
        self._callers: list[tuple[PastFrame, ...]] = []
        """The waiting callers of each stretch."""
        self._positions = array("q")
        """The position at each stretch's beginning."""
        self._left: dict[int, tuple[PastFrame, ...]] = {}
        """``Snapshot.left`` of each snapshot that has any."""
        self._traced = array("q")
        """The numbers of the snapshots at which a new ``PastTrace`` begins."""
        self._tracers: list[Tracer] = []
        self._counts = array("q")
        """Counts of the innermost graph's nodes and inputs, of guards, tracked objects, and saves of tensors."""
        self._effects: list[Any] = []
        self._sizes: list[PastSizes] = []
        self._graphs: dict[int, tuple[PastGraph, ...]] = {}
        """All graphs, for snapshots with more than one."""
        self._without_line = array("q")
        """Snapshots whose instruction has no line: they do not count as positions."""
        self._prologue: set[int] = set()
        """Snapshots at which a resume function restores its state: Dynamo counts no line there."""
        self._places: dict[int, tuple[int | None, Any, int]] = {}
        """Pointer, instruction and line, if the instruction does not give them."""
        self._blocks: dict[int, tuple[object, ...]] = {}
        """The blocks around the instruction, if any."""
        self._progress: dict[int, dict[str, object]] = {}
        """The progress of generators."""

    @property
    def number(self) -> int:
        """The number of the next snapshot."""
        return self.forgotten + len(self.instructions)

    # -- writing: to the last snapshot --------------------------------------------------------

    def begin(
        self, translator: Translator, callers: tuple[PastFrame, ...], left: tuple[PastFrame, ...], position: int
    ) -> None:
        """Begin a stretch at ``position`` with the next snapshot; ``left`` as in ``Snapshot``."""
        number = self.number
        self._begun.append(number)
        self._functions.append(translator)
        self._callers.append(callers)
        self._positions.append(position)
        if left:
            self._left[number] = left

    def note(self, stack: Sequence[object], variables: dict[str, object]) -> None:
        """Note the stack and the variables. Unchanged variables are the same dictionary as before."""
        self._noted.append(self.forgotten + len(self.instructions) - 1)
        shared = self._shared
        self._stacks.add([shared.get(type(each), each) for each in stack])
        if variables is not self._variables:
            self._variables = variables
            self._names.append(tuple(variables))
            self._values.add(variables.values())
        self._bound.append(self._values.count - 1)

    def note_place(self, place: tuple[int | None, object, int], *, has_line: bool, is_prologue: bool) -> None:
        """Note the function's position, because its instruction has no line or does not give the position."""
        number = self.forgotten + len(self.instructions) - 1
        self._places[number] = place
        if not has_line:
            self._without_line.append(number)
        if is_prologue:
            self._prologue.add(number)

    def note_blocks(self, blocks: tuple[object, ...]) -> None:
        """Note the blocks around the function's instruction."""
        self._blocks[self.forgotten + len(self.instructions) - 1] = blocks

    def note_progress(self, progress: dict[str, object]) -> None:
        """Note the progress of a generator."""
        self._progress[self.forgotten + len(self.instructions) - 1] = progress

    def note_trace(self, trace: PastTrace) -> None:
        """Note the shared state of the trace, which differs from that of the snapshot before."""
        # The change may precede the latest partial snapshots, so it applies right after the previous full snapshot.
        number = self._noted[-2] + 1 if len(self._noted) > 1 else self.forgotten
        innermost, effects = trace.graphs[-1], trace.effects
        self._traced.append(number)
        self._tracers.append(innermost.tracer)
        self._counts.extend((innermost.nodes, innermost.inputs, trace.guards, effects.tracked, effects.saved))
        self._effects.append(effects.effects)
        self._sizes.append(trace.sizes)
        if len(trace.graphs) > 1:
            self._graphs[number] = trace.graphs

    def forget(self, count: int) -> None:
        """Forget the ``count`` oldest snapshots. Others must remain, and the last one must be full."""
        del self.instructions[:count]
        self.forgotten += count
        gone = bisect_left(self._noted, self.forgotten)
        self._forgotten_stacks += gone
        self._stacks.forget(self._forgotten_stacks)
        before = self._bound[0]
        del self._noted[:gone], self._bound[:gone]
        self._values.forget(self._bound[0])
        del self._names[: self._bound[0] - before]
        gone = bisect_right(self._begun, self.forgotten) - 1
        del self._begun[:gone], self._functions[:gone], self._callers[:gone], self._positions[:gone]
        gone = bisect_right(self._traced, self.forgotten) - 1
        del self._traced[:gone], self._tracers[:gone], self._counts[: gone * _COUNTS]
        del self._effects[:gone], self._sizes[:gone]
        del self._without_line[: bisect_left(self._without_line, self._begun[0])]
        self._prologue = {each for each in self._prologue if each >= self.forgotten}
        for noted, first in (
            (self._places, self.forgotten),
            (self._blocks, self.forgotten),
            (self._progress, self.forgotten),
            (self._left, self.forgotten),
            (self._graphs, self._traced[0]),
        ):
            for number in [number for number in noted if number < first]:
                del noted[number]

    # -- reading ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.instructions)

    @overload
    def __getitem__(self, index: int) -> Snapshot: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Snapshot]: ...
    def __getitem__(self, index: int | slice) -> Snapshot | Sequence[Snapshot]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        number = self.forgotten + range(len(self.instructions))[index]
        at = bisect_right(self._begun, number) - 1
        begin = self._begun[at]
        lines = bisect_right(self._without_line, number) - bisect_right(self._without_line, begin)
        return Snapshot(
            (self._function(number, self._functions[at]), *self._callers[at]),
            self._left.get(number, ()),
            number not in self._prologue and not self._lacks_line(number),
            self._positions[at] + number - begin - lines,
            bisect_right(self.changed, number),
            self._trace(bisect_right(self._traced, number) - 1),
        )

    def _trace(self, at: int) -> PastTrace:
        nodes, inputs, guards, tracked, saved = self._counts[at * _COUNTS : (at + 1) * _COUNTS]
        graphs = self._graphs.get(self._traced[at], (PastGraph(self._tracers[at], nodes, inputs),))
        return PastTrace(graphs, guards, PastEffects(self._effects[at], tracked, saved), self._sizes[at])

    def _lacks_line(self, number: int) -> bool:
        at = bisect_left(self._without_line, number)
        return at < len(self._without_line) and self._without_line[at] == number

    def function(self, index: int) -> PastFrame:
        """Return a snapshot's innermost function; cheaper than the snapshot."""
        number = self.forgotten + range(len(self.instructions))[index]
        return self._function(number, self._functions[bisect_right(self._begun, number) - 1])

    def lines(self, first: int, end: int) -> Iterator[tuple[int, int, str, int]]:
        """Yield index, ``id`` of the innermost function, file and line of snapshots. Cheaper than the function."""
        at = bisect_right(self._begun, self.forgotten + first) - 1
        for index in range(first, end):
            number = self.forgotten + index
            if at + 1 < len(self._begun) and self._begun[at + 1] == number:
                at += 1
            place = self._places.get(number)
            translator, line = self._functions[at], self.instructions[index].starts_line if place is None else place[2]
            yield index, id(translator), translator.f_code.co_filename, line

    def _function(self, number: int, translator: Translator) -> PastFrame:
        at = bisect_left(self._noted, number)
        noted = self._noted[at]
        pushed = 0
        instruction = self.instructions[number - self.forgotten]
        if noted != number:
            passed = self.instructions[number - self.forgotten : noted - self.forgotten]
            pushed = sum([PUSHED[each.opname] for each in passed])
        return PastFrame(
            translator,
            self._variables_at(at),
            tuple(self._stacks.get(self._forgotten_stacks + at, without=pushed)),
            *(self._places.get(number) or where(translator, instruction)),
            self._blocks.get(noted, ()),
            self._progress.get(noted, NO_PROGRESS),
        )

    def _variables_at(self, at: int) -> dict[str, object]:
        number = self._bound[at]
        return dict(zip(self._names[number - self._bound[0]], self._values.get(number), strict=True))

    def left_before(self, index: int) -> Iterator[PastFrame]:
        """Yield the waiting generators of a snapshot, the latest first."""
        for number in reversed(self._left):
            if number <= self.forgotten + index:
                yield from self._left[number]

    def begun_after(self, index: int) -> Iterator[tuple[Translator, int]]:
        """Yield the function of each stretch that begins after a snapshot, with the index of its first snapshot."""
        for at in range(bisect_right(self._begun, self.forgotten + index), len(self._begun)):
            yield self._functions[at], self._begun[at] - self.forgotten

    @property
    def noted(self) -> int:
        """The number of full snapshots."""
        return len(self._noted)

    def trackers(self) -> Iterator[object]:
        """Yield all trackers, and containers of them."""
        yield self._stacks.items
        yield self._values.items
        for frames in self._left.values():
            for frame in frames:
                yield frame.locals
                yield frame.stack
