"""What a trace was like at each line that it came to, so that its past can be looked at without tracing again.

Names and the value stack are copied at each line; what Dynamo changes in place (contents of containers, attributes,
lazy values) is copied before it changes. ``show`` puts the past back into Dynamo's own objects, so that whoever looks
at the trace sees it, and takes it out again: what was found is what tracing goes on with. Tracing thread; a log lives
as long as the attempt that it is of.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, overload

from dynamo_dap.debuggee.torch_internals.graph import written_by
from dynamo_dap.debuggee.torch_internals.real_values import RealValues, forget_values, put_values_back
from dynamo_dap.debuggee.torch_internals.trace_changes import Change
from dynamo_dap.debuggee.torch_internals.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_internals.translator import Translator, running_translators, with_callers
from dynamo_dap.debuggee.torch_internals.variable_trackers import source_name, unwrapped

MAXIMUM_MOMENTS = 50_000
"""The oldest are forgotten, so many at a time as ``_FORGOTTEN_AT_ONCE`` says."""
_FORGOTTEN_AT_ONCE = 5_000
MAXIMUM_COPIED = 4_000_000
"""Items of containers; when more were copied, all that was before is forgotten."""
_GENERATOR = 0x20 | 0x80 | 0x200
"""``co_flags`` of generators and coroutines (inspect.CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR)."""
_FRAME_FIELDS = ("symbolic_locals", "stack", "instruction_pointer", "current_instruction", "lineno", "block_stack")


class FrameThen(NamedTuple):
    """A function as its interpreter had it."""

    translator: Translator
    locals: dict[str, Any]
    stack: Sequence[Any]
    pointer: int | None
    instruction: Any
    line: int
    blocks: Sequence[Any]
    progress: dict[str, Any]
    """Of a generator: what it has yielded, and whether it has ended."""

    @property
    def frame(self) -> TracedFrame:
        """The function, as it is now."""
        return TracedFrame(self.translator)

    @property
    def interpreter(self) -> object:
        """See ``TracedFrame.interpreter``."""
        return self.translator

    @property
    def path(self) -> str:
        """The file that the code says it is from."""
        path: str = self.translator.f_code.co_filename
        return path

    @property
    def at(self) -> int:
        """The index of the instruction that was being executed."""
        return int(self.translator.indexof[self.instruction]) if self.pointer is None else self.pointer - 1


class _GraphThen(NamedTuple):
    tracer: Any
    nodes: int
    inputs: int


class _EffectsThen(NamedTuple):
    effects: Any
    """Torch's ``SideEffects``: the body of a higher-order operator is traced with a copy."""
    tracked: int
    """How many objects are known by identity."""
    saved: int
    """How many times tensors were saved for a backward pass."""


@dataclass(frozen=True, slots=True)
class _SizesThen:
    """What Dynamo knew of sizes (torch/fx/experimental/symbolic_shapes.py, ``ShapeEnv``)."""

    version: tuple[int, ...]
    """That of the environment, and which ranges it had: those change without a new version."""
    guards: list[Any]
    replacements: dict[Any, Any]
    ranges: dict[Any, Any]


class Moment(NamedTuple):
    """The trace as an instruction was about to run."""

    frames: tuple[FrameThen, ...]
    """The function and its callers, innermost first."""
    left: tuple[FrameThen, ...]
    """Generators that ran at the moment before, and wait to be resumed."""
    is_line: bool
    """Whether a line of the source begins there, as Dynamo counts lines."""
    position: int
    """How many instructions with a line the attempt had come to."""
    changes: int
    graphs: tuple[_GraphThen, ...]
    guards: int
    effects: _EffectsThen
    sizes: _SizesThen | None


class _Moments(Sequence[Moment]):
    """Moments, whose fields lie one after the other in one list, and what was on their stacks in another.

    A trace has thousands: objects that each of them kept would be for the garbage collector to go through, which took
    longer than to note them.
    """

    def __init__(self) -> None:
        self.fields: list[Any] = []
        """Of each moment the fields of its function (``FrameThen``), its callers, and the others of ``Moment``.

        For the stack it has the number of its first item, of all that were ever added.
        """
        self._items: list[Any] = []
        self._forgotten_items = 0

    def add_stack(self, stack: list[Any]) -> int:
        """Keep the items of the stack of the moment that is added next; return the number of the first one."""
        number = self._forgotten_items + len(self._items)
        self._items += stack
        return number

    def forget(self, count: int) -> None:
        """Forget the oldest moments; there are more of them."""
        del self.fields[: count * _WIDTH]
        first: int = self.fields[_STACK]
        del self._items[: first - self._forgotten_items]
        self._forgotten_items = first

    def clear(self) -> None:
        """Forget all of them."""
        self.fields.clear()
        self._items.clear()

    def __len__(self) -> int:
        return len(self.fields) // _WIDTH

    @overload
    def __getitem__(self, index: int) -> Moment: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Moment]: ...
    def __getitem__(self, index: int | slice) -> Moment | Sequence[Moment]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        begin = range(0, len(self.fields), _WIDTH)[index]
        callers, *others = self.fields[begin + _OF_FUNCTION : begin + _WIDTH]
        return Moment((self.function(index), *callers), *others)

    def function(self, index: int) -> FrameThen:
        """Return the innermost function of a moment: cheaper than the moment."""
        begin = range(0, len(self.fields), _WIDTH)[index]
        fields = self.fields[begin : begin + _OF_FUNCTION]
        after = begin + _WIDTH + _STACK
        end = self.fields[after] - self._forgotten_items if after < len(self.fields) else len(self._items)
        fields[_STACK] = tuple(self._items[fields[_STACK] - self._forgotten_items : end])
        return FrameThen(*fields)


_OF_FUNCTION = len(FrameThen._fields)
_WIDTH = _OF_FUNCTION + len(Moment._fields)
_STACK = FrameThen._fields.index("stack")
_LOCALS = FrameThen._fields.index("locals") - _WIDTH
_CALLERS = _OF_FUNCTION - _WIDTH


class TraceLog:
    """The moments of one attempt, oldest first."""

    def __init__(self, frame: TracedFrame) -> None:
        """``frame`` is one of the attempt's functions, at the first moment that is noted."""
        self._output: Any = frame.attempt
        self.is_from_start = not frame.has_begun
        """Whether the first moment is the attempt's first."""
        self._moments = _Moments()
        self.forgotten = 0
        """How many of the oldest were forgotten."""
        self._left: list[tuple[int, tuple[FrameThen, ...]]] = []
        self._generators: dict[int, int] = {}
        """The first moment of each generator, by the identity of its interpreter.

        Here and in ``_left``, which has those that were left, moments count from the attempt's first.
        """
        self._changes: list[Change] = []
        self._graphs: tuple[_GraphThen, ...] = ()
        self._effects: _EffectsThen | None = None
        self._sizes: _SizesThen | None = None
        self._present: _Present | None = None
        self._has_program_run = False
        self._shown: tuple[int, bool] | None = None
        self._writing: tuple[int, list[tuple[int, Any]]] | None = None
        self._undone = 0
        self._copied = 0

    # -- writing ---------------------------------------------------------------------------------------------------

    def note(self, frame: TracedFrame, position: int, *, is_line: bool = True) -> None:
        """Add the moment at which ``frame`` stands, the innermost one."""
        translator, fields = frame.translator, self._moments.fields
        left: tuple[FrameThen, ...] = ()
        if fields and fields[-_WIDTH] is translator:
            variables, callers = fields[_LOCALS], fields[_CALLERS]
        else:
            before = self._moments[-1].frames if fields else ()
            variables, callers = None, self._callers_of(translator, before)
            left = _generators_left(before, (translator, *(each.translator for each in callers)))
            self._note_generators(translator, left)
        if len(fields) >= MAXIMUM_MOMENTS * _WIDTH:
            self._moments.forget(_FORGOTTEN_AT_ONCE)
            self.forgotten += _FORGOTTEN_AT_ONCE
        output, context = self._output, self._output.tracing_context
        fields += (
            *_fields_now(translator, self._moments.add_stack(translator.stack), variables),
            callers,
            left,
            is_line,
            position,
            len(self._changes),
            self._graphs_now(output.tracers),
            len(context.guards_context.dynamo_guards.inner),
            self._effects_now(output.side_effects),
            self._sizes_now(context.fake_mode.shape_env),
        )

    def _note_generators(self, translator: Translator, left: tuple[FrameThen, ...]) -> None:
        number = self.forgotten + len(self._moments)
        if left:
            self._left.append((number, left))
        if _is_generator(translator):
            self._generators.setdefault(id(translator), number)

    # An instruction changes little: what is as before is not made anew, for the garbage collector's sake as well.

    def _graphs_now(self, tracers: list[Any]) -> tuple[_GraphThen, ...]:
        known = self._graphs
        if len(tracers) == len(known) == 1:
            tracer, last = tracers[0], known[0]
            is_same = last.nodes == tracer.graph._len and last.inputs == len(tracer.input_name_to_proxy)
            if is_same and last.tracer is tracer:
                return known
        self._graphs = tuple([_GraphThen(each, each.graph._len, len(each.input_name_to_proxy)) for each in tracers])
        return self._graphs

    def _effects_now(self, effects: Any) -> _EffectsThen:
        known, tracked, saved = self._effects, len(effects.id_to_variable), len(effects.save_for_backward)
        if known is None or known.tracked != tracked or known.effects is not effects or known.saved != saved:
            known = self._effects = _EffectsThen(effects, tracked, saved)
        return known

    def _callers_of(self, translator: Translator, before: tuple[FrameThen, ...]) -> tuple[FrameThen, ...]:
        """Return the callers as they are while they wait; ``before`` are the functions of the last moment."""
        for at, each in enumerate(before):
            if each.translator is translator:
                return before[at + 1 :]
        if _is_generator(translator):
            chain = list(running_translators(sys._getframe()))
            chain = chain[chain.index(translator) :] if translator in chain else list(with_callers(translator))
        else:
            chain = list(with_callers(translator))
        waiting = {id(each.translator): at for at, each in enumerate(before) if at}
        callers: list[FrameThen] = []
        for each in chain[1:]:
            if id(each) in waiting:
                return (*callers, *before[waiting[id(each)] :])
            callers.append(_frame_now(each))
        return tuple(callers)

    def _sizes_now(self, shape_env: Any) -> _SizesThen | None:
        if shape_env is None:
            return None
        version, sizes = _version_of(shape_env), self._sizes
        if sizes is None or sizes.version != version:
            sizes = self._sizes = _SizesThen(
                version, list(shape_env.guards), dict(shape_env.replacements), dict(shape_env.var_to_range)
            )
        return sizes

    def add_change(self, change: Change) -> None:
        """Something is about to change in place."""
        self._changes.append(change)
        self._copied += change.size
        if self._copied > MAXIMUM_COPIED:
            self._forget_all()

    def _forget_all(self) -> None:
        self.forgotten += len(self._moments)
        self._moments.clear()
        self._left.clear()
        self._changes.clear()
        self._copied = 0

    def guard_number(self, source: str) -> int | None:
        """Return the number, in the order in which they were asked for, of the first guard on what a source finds."""
        guards = self._output.tracing_context.guards_context.dynamo_guards.inner
        names = (source_name(each.originating_source) for each in guards)
        return next((number for number, name in enumerate(names) if name == source), None)

    def node_numbers(self) -> dict[str, int]:
        """Return the nodes of the outermost graph by name, with how many there were when each was added.

        Inputs, which come first whenever they were made, are left out.
        """
        tracer = self._output.root_tracer
        inputs = len(tracer.input_name_to_proxy)
        operations = [node for node in tracer.graph.nodes if node.op != "placeholder"]
        return {node.name: number + inputs for number, node in enumerate(operations)}

    def trackers(self) -> Iterator[Any]:
        """Yield all that the log holds of trackers, and of containers of them."""
        for moment in self._moments:
            for frame in (*moment.frames[:1], *moment.left):
                yield frame.locals
                yield frame.stack
        for change in self._changes:
            yield from change.trackers()

    def noted_in(self, tracer: Any) -> Iterator[Any]:
        """Yield the names and value stacks of the moments in the body that ``tracer`` traces, the newest first."""
        for at in range(len(self._moments) - 1, -1, -1):
            moment = self._moments[at]
            if not any(each.tracer is tracer for each in moment.graphs):
                return
            yield moment.frames[0].locals
            yield moment.frames[0].stack

    def lazy_fields(self) -> Iterator[dict[str, Any]]:
        """Yield fields of values before they were realized."""
        for change in self._changes:
            yield from change.holders()

    def close(self) -> None:
        """The trace is over: forget it, and the real values that were computed in it."""
        self.show(None)
        put_values_back(self._output, None)
        self._moments.clear()
        self._left.clear()
        self._generators.clear()
        self._changes.clear()
        self._graphs, self._effects, self._sizes = (), None, None

    # -- reading ---------------------------------------------------------------------------------------------------

    @property
    def moments(self) -> _Moments:
        """All that are known."""
        return self._moments

    def last_change(self, tracker: Any, before: int) -> int | None:
        """Return the number of the last change of a tracker's object that was made before change ``before``."""
        for number in range(before - 1, -1, -1):
            if self._changes[number].tracker is unwrapped(tracker):
                return number
        return None

    @property
    def is_showing(self) -> bool:
        """Whether the past is put in place of the present."""
        return self._present is not None

    def show(self, index: int | None, *, as_result: bool = False) -> None:
        """Put the trace into the state of a moment; None: into that in which it was found.

        With ``as_result`` it is as the instruction before has left it: the one of the moment is not fetched yet.
        """
        self._shown = None if index is None else (index, as_result)
        if self._present is None:
            if index is None:
                return
            self._present = _Present(self._output)
        self._present.take_back()
        if index is None:
            self._redo(len(self._changes))
            self._present = None
            return
        moment = self._moments[index]
        self._redo(moment.changes)
        self._undo(moment.changes)
        shown = self._as_result(index) if as_result else moment
        self._present.put_in(shown, self._suspended(index))

    def _as_result(self, index: int) -> Moment:
        moment, before = self._moments[index], self._moments[index - 1].frames
        here = moment.frames[0]
        waited = next((each for each in before if each.translator is here.translator), here)
        shown = here._replace(pointer=here.at, instruction=waited.instruction, line=waited.line)
        return moment._replace(frames=(shown, *moment.frames[1:]))

    def writing_nodes(self) -> list[tuple[int, Any]]:
        """Return the nodes of the outermost graph that change a tensor in place, with their numbers.

        These count operations from 0, inputs left out. What is shown stays shown.
        """
        shown = self._shown
        self.show(None)
        graph = self._output.root_tracer.graph
        if self._writing is None or self._writing[0] != graph._len:
            operations = (node for node in graph.nodes if node.op != "placeholder")
            self._writing = graph._len, [(at, node) for at, node in enumerate(operations) if written_by(node)]
        if shown is not None:
            self.show(shown[0], as_result=shown[1])
        return self._writing[1]

    def _undo(self, count: int) -> None:
        while len(self._changes) - self._undone > count:
            self._undone += 1
            self._swap(self._changes[-self._undone])

    def _redo(self, count: int) -> None:
        while len(self._changes) - self._undone < count:
            self._swap(self._changes[-self._undone])
            self._undone -= 1

    def _swap(self, change: Change) -> None:
        if not (change.is_realization and self._has_program_run):
            change.swap()

    def outlive_trace(self, *, has_program_run: bool = True) -> None:
        """The program runs on: its objects are not what they were, but what Dynamo noted of them still is.

        Or it does not, in another call that the same trace is looked at for.
        """
        self.show(None)
        self._has_program_run = has_program_run

    def _suspended(self, index: int) -> Iterator[FrameThen]:
        """Yield generators that do not run at a moment, as they wait to be resumed, or to begin."""
        shown = self.forgotten + index
        known = {id(each.translator) for each in self._moments[index].frames}
        for number, left in reversed(self._left):
            if self.forgotten <= number <= shown:
                yield from (each for each in left if id(each.translator) not in known)
                known |= {id(each.translator) for each in left}
        for number in self._generators.values():
            if number > shown:
                first = self._moments.function(number - self.forgotten)
                if id(first.translator) not in known:
                    yield first._replace(pointer=0, stack=(), line=-1, progress=_generator_progress(None))


def _generators_left(before: Sequence[FrameThen], now: Sequence[Translator]) -> tuple[FrameThen, ...]:
    running = set(map(id, now))
    left = [each.translator for each in before if id(each.translator) not in running]
    return tuple(_frame_now(each) for each in left if _is_generator(each))


def _is_generator(translator: Translator) -> bool:
    return bool(translator.f_code.co_flags & _GENERATOR)


def _generator_progress(translator: Translator | None) -> dict[str, Any]:
    return {
        "generated_items": list(getattr(translator, "generated_items", ())),
        "generator_exhausted": getattr(translator, "generator_exhausted", False),
    }


def _version_of(shape_env: Any) -> tuple[int, ...]:
    return (shape_env._version_counter, *map(id, shape_env.var_to_range.values()))


def _frame_now(translator: Translator) -> FrameThen:
    return FrameThen(*_fields_now(translator, tuple(translator.stack)))


def _fields_now(
    translator: Translator, stack: Sequence[Any] | int, variables: dict[str, Any] | None = None
) -> tuple[Any, ...]:
    """Return a function as it is, as fields of ``FrameThen``; ``variables`` are those that it had just now."""
    own = translator.__dict__
    blocks = own["block_stack"]
    # Trackers are equal to nothing but themselves.
    if variables is None or variables != own["symbolic_locals"]:
        variables = dict(own["symbolic_locals"])
    return (
        translator,
        variables,
        stack,
        own["instruction_pointer"],
        own["current_instruction"],
        own["lineno"],
        tuple(blocks) if blocks else (),
        _generator_progress(translator) if translator.f_code.co_flags & _GENERATOR else _NO_PROGRESS,
    )


_NO_PROGRESS: dict[str, Any] = {}


class _Present:
    """What the past is put in place of."""

    def __init__(self, output: Any) -> None:
        self._output = output
        self._frames: list[tuple[Translator, dict[str, Any]]] = []
        self._unlinked: list[tuple[Any, Any, Any]] = []
        self._users: list[tuple[dict[Any, None], dict[Any, None]]] = []
        self._lengths: list[tuple[Any, int]] = []
        self._fields: list[tuple[Any, str, Any]] = []
        self._values: RealValues | None = None
        self._has_values = False

    def put_in(self, moment: Moment, suspended: Iterator[FrameThen]) -> None:
        for frame in (*moment.frames, *suspended):
            own = frame.translator.__dict__
            names = (*_FRAME_FIELDS, *frame.progress)
            self._frames.append((frame.translator, {name: own[name] for name in names if name in own}))
            then = (
                dict(frame.locals),
                list(frame.stack),
                frame.pointer,
                frame.instruction,
                frame.line,
                list(frame.blocks),
            )
            own.update(zip(_FRAME_FIELDS, then, strict=True))
            own.update(frame.progress)
        output = self._output
        self._set(output, "tracers", [each.tracer for each in moment.graphs])
        for graph in moment.graphs:
            self._cut(graph)
        guards = output.tracing_context.guards_context.dynamo_guards
        if len(guards.inner) > moment.guards:
            self._set(guards, "inner", type(guards.inner)(list(guards.inner)[: moment.guards]))
        effects, tracked, saved = moment.effects
        self._set(output, "side_effects", effects)
        if len(effects.id_to_variable) > tracked:
            self._set(effects, "id_to_variable", dict(islice(effects.id_to_variable.items(), tracked)))
        self._set(effects, "save_for_backward", effects.save_for_backward[:saved])
        sizes, shape_env = moment.sizes, output.shape_env
        if sizes is not None and sizes.version != _version_of(shape_env):
            self._set(shape_env, "guards", sizes.guards)
            self._set(shape_env, "replacements", sizes.replacements)
            self._set(shape_env, "var_to_range", sizes.ranges)
        self._values, self._has_values = forget_values(output), True

    def _set(self, owner: Any, name: str, value: Any) -> None:
        self._fields.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def _cut(self, then: _GraphThen) -> None:
        """Unlink the nodes that were added since: inputs come first in a graph, whenever they are made."""
        graph = then.tracer.graph
        count = graph._len
        if count == then.nodes:
            return
        inputs = {proxy.node for proxy in list(then.tracer.input_name_to_proxy.values())[: then.inputs]}
        left = then.nodes - len(inputs)
        removed = []
        for node in graph.nodes:
            if node.op == "placeholder":
                if node not in inputs:
                    removed.append(node)
            elif left > 0:
                left -= 1
            else:
                removed.append(node)
        for node in removed:
            before, after = node._prev, node._next
            self._unlinked.append((node, before, after))
            before._next, after._prev = after, before
        self._forget_users(set(removed))
        self._lengths.append((graph, count))
        graph._len = count - len(removed)

    def _forget_users(self, removed: set[Any]) -> None:
        for operand in {each for node in removed for each in node.all_input_nodes} - removed:
            users: dict[Any, None] = operand.users
            self._users.append((users, dict(users)))
            for node in removed & users.keys():
                del users[node]

    def take_back(self) -> None:
        if self._has_values:
            put_values_back(self._output, self._values)
            self._values, self._has_values = None, False
        for owner, name, value in reversed(self._fields):
            setattr(owner, name, value)
        for node, before, after in reversed(self._unlinked):
            before._next = after._prev = node
        for users, all_of_them in self._users:
            users.clear()
            users.update(all_of_them)
        for graph, length in self._lengths:
            graph._len = length
        for translator, own in reversed(self._frames):
            translator.__dict__.update(own)
        for each in (self._fields, self._unlinked, self._users, self._lengths, self._frames):
            each.clear()
