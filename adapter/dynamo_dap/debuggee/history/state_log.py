"""Logs a trace's state at each instruction, to show earlier states without another trace.

Names and the value stack are copied before an instruction runs, or derived from the next copy (``snapshots``). State
that Dynamo changes in place (contents of containers, attributes, lazy values) is copied before the change. ``show``
puts an earlier state into Dynamo's own objects, so that all readers of the trace see it. Later it restores the present,
with which tracing continues. Runs on the tracing thread; a log lives as long as its attempt.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.history.snapshots import (
    NO_PROGRESS,
    PUSHED,
    QUIET,
    PastEffects,
    PastFrame,
    PastGraph,
    PastSizes,
    PastTrace,
    Snapshot,
    Snapshots,
    only_pushes,
)
from dynamo_dap.debuggee.history.trace_changes import Change
from dynamo_dap.debuggee.torch_api.graphs.graph import written_by
from dynamo_dap.debuggee.torch_api.graphs.real_values import restore_values, set_values_aside
from dynamo_dap.debuggee.torch_api.objects import Node, Output, ShapeEnv, Translator
from dynamo_dap.debuggee.torch_api.swaps import Swap
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.translator import running_translators, with_callers
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import source_name, unwrapped

MAXIMUM_SNAPSHOTS = 50_000
"""Above this number, the oldest snapshots are forgotten, ``_FORGOTTEN_AT_ONCE`` at a time."""
_FORGOTTEN_AT_ONCE = 5_000
MAXIMUM_COPIED = 4_000_000
"""Maximum number of copied container items; above it, all earlier snapshots are forgotten."""
_GENERATOR = 0x20 | 0x80 | 0x200
"""``co_flags`` of generators and coroutines (inspect.CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR)."""
_CONTAINERS = frozenset({list, dict, set, deque, defaultdict})
# Fields of Dynamo's interpreter.
_OF_RUNNING = frozenset({"symbolic_locals", "prefix_insts"})
"""Fields that a function needs only while it runs: variables, and first instructions of the generated code."""
_CACHES = "_cache_method_"
_CONSTANTS = "_constants_cache"
_MODULES = "nn_module_stack"
_FRAME_FIELDS = ("symbolic_locals", "stack", "instruction_pointer", "current_instruction", "lineno", "block_stack")


class StateLog:
    """One attempt's snapshots, oldest first."""

    def __init__(self, frame: TracedFrame) -> None:
        """Begin at ``frame``, the function of the first snapshot."""
        output: Any = frame.attempt
        self._output, self._shape_env = output, output.shape_env
        self.is_from_start = not frame.has_begun
        """Whether the first snapshot is the attempt's first."""
        self._snapshots = Snapshots()
        self._translator: Translator | None = None
        """The function of the last snapshot."""
        self._is_inlined = self._is_generator = False
        self._locals: dict[str, object] | None = None
        """The variables of that function in the last copy."""
        self._callers: tuple[PastFrame, ...] = ()
        """The waiting callers of that function."""
        self._around: list[tuple[PastFrame, ...]] = []
        """Earlier values of ``_callers``: each call adds one, and its return removes it."""
        self._emptied: dict[str, Any] = {}
        """Empty containers that ended functions share, by field name."""
        self._no_constants: dict[int, list[None]] = {}
        """Empty caches of constants that ended functions share, by number of constants."""
        self._modules: object = None
        """The modules of the last ended function."""
        self._position = 0
        """The last snapshot's position: see ``Snapshot.position``."""
        self._depth: int | None = None
        """The stack depth at the last snapshot, if that snapshot is partial."""
        self._is_quiet = False
        """Whether only stack and variables have changed since the last full snapshot."""
        self._changes: list[Change] = []
        self._trace: PastTrace | None = None
        """The trace's shared state at the last full snapshot."""
        self._tracer: object = None
        """The innermost graph at that time, with its numbers of nodes and inputs."""
        self._nodes = self._inputs = 0
        # torch._dynamo.config: whether a graph break ends the trace of an inlined function as well.
        self._breaks_inlined = bool(getattr(sys.modules.get("torch._dynamo.config"), "nested_graph_breaks", False))
        self._present: _Present | None = None
        self._has_program_run = False
        self._shown: tuple[int, bool] | None = None
        self._writing: tuple[int, list[tuple[int, Node]]] | None = None
        self._undone = 0
        self._copied = 0

    # -- writing ---------------------------------------------------------------------------------------------------

    def note(self, frame: TracedFrame, position: int, *, is_line: bool = True, as_a_whole: bool = False) -> None:
        """Add a snapshot of ``frame``, the innermost one.

        ``is_line``: its instruction has a line. ``as_a_whole``: take a full snapshot, since the user may change the
        trace here.
        """
        translator, snapshots = frame.translator, self._snapshots
        own: dict[str, Any] = translator.__dict__
        instruction, stack = own["current_instruction"], own["stack"]
        continues = translator is self._translator and position == self._position + is_line
        self._position = position
        if not continues:
            self._complete()
            self._is_quiet = False
            left = self._enter(translator)
            snapshots.begin(translator, self._callers, left, position)
        elif (
            instruction.opname in PUSHED
            and is_line
            and not as_a_whole
            and only_pushes(instruction, own, is_inlined=self._is_inlined)
        ):
            snapshots.instructions.append(instruction)
            self._depth = len(stack)
            return
        # The earlier partial snapshots are derived from this one.
        self._depth = None
        snapshots.instructions.append(instruction)
        self._add(own, stack)
        self._is_quiet = instruction.opname in QUIET
        is_prologue = not self._is_inlined and bool(own.get("is_tracing_resume_prologue"))
        if not is_line or as_a_whole or is_prologue:
            place = own["instruction_pointer"], instruction, own["lineno"]
            snapshots.note_place(place, has_line=is_line, is_prologue=is_prologue)
        if len(snapshots.instructions) > MAXIMUM_SNAPSHOTS:
            snapshots.forget(_FORGOTTEN_AT_ONCE)

    def _complete(self) -> None:
        """Make the last snapshot a full one."""
        depth, self._depth = self._depth, None
        if depth is not None:
            assert self._translator is not None, "a snapshot has a function"
            own = self._translator.__dict__
            self._is_quiet = False
            self._add(own, own["stack"][:depth])

    def _add(self, own: dict[str, Any], stack: list[object]) -> None:
        snapshots = self._snapshots
        # A tracker is equal only to itself, so this compares identities.
        if self._locals is None or self._locals != own["symbolic_locals"]:
            self._locals = dict(own["symbolic_locals"])
        snapshots.note(stack, self._locals)
        if own["block_stack"]:
            snapshots.note_blocks(tuple(own["block_stack"]))
        if self._is_generator:
            snapshots.note_progress(_generator_progress(self._translator))
        if self._is_quiet:
            return
        # An instruction changes little: reuse what is unchanged, which also spares the garbage collector.
        output, shape_env, trace = self._output, self._shape_env, self._trace
        effects, tracers = output.side_effects, output.tracers
        tracer = tracers[-1]
        if (
            trace is None
            or tracer.graph._len != self._nodes
            or len(output.tracing_context.guards_context.dynamo_guards.inner) != trace.guards
            or len(tracer.input_name_to_proxy) != self._inputs
            or len(effects.id_to_variable) != trace.effects.tracked
            or len(effects.save_for_backward) != trace.effects.saved
            or effects is not trace.effects.effects
            or shape_env._version_counter != trace.sizes.version[0]
            or tracer is not self._tracer
            # Around a higher-order operator's body there are other graphs, which get inputs for it.
            or len(tracers) > 1
            or (shape_env.var_to_range and trace.sizes.version != _version_of(shape_env))
        ):
            self._tracer, self._nodes, self._inputs = tracer, tracer.graph._len, len(tracer.input_name_to_proxy)
            self._trace = self._trace_now(trace)
            if self._trace is not trace:
                snapshots.note_trace(self._trace)

    def _trace_now(self, known: PastTrace | None) -> PastTrace:
        """Return the shared state of the trace; unchanged parts are those of ``known``."""
        output = self._output
        effects, guards = output.side_effects, len(output.tracing_context.guards_context.dynamo_guards.inner)
        graphs = tuple([PastGraph(each, each.graph._len, len(each.input_name_to_proxy)) for each in output.tracers])
        tracked, saved = len(effects.id_to_variable), len(effects.save_for_backward)
        sizes = _sizes_now(self._shape_env, None if known is None else known.sizes)
        if known is None:
            return PastTrace(graphs, guards, PastEffects(effects, tracked, saved), sizes)
        if known.graphs == graphs:
            graphs = known.graphs
        effects_then = known.effects
        # Torch compares ``SideEffects`` by value.
        if effects_then.effects is not effects or effects_then[1:] != (tracked, saved):
            effects_then = PastEffects(effects, tracked, saved)
        is_same = graphs is known.graphs and effects_then is known.effects and sizes is known.sizes
        return known if is_same and guards == known.guards else PastTrace(graphs, guards, effects_then, sizes)

    def _enter(self, translator: Translator) -> tuple[PastFrame, ...]:
        """Note the running function's callers; return generators that now wait to be resumed."""
        before, callers = self._translator, self._callers
        if before is translator:
            return ()
        variables, self._translator, self._locals = self._locals, translator, None
        self._is_generator = _is_generator(translator)
        parent = getattr(translator, "parent", None)
        self._is_inlined = parent is not None and not self._breaks_inlined
        if parent is before and before is not None and not self._is_generator:
            self._around.append(callers)
            self._callers = (_frame_now(before, variables), *callers)
            return ()
        at = next((at for at, each in enumerate(callers) if each.translator is translator), None)
        if at is None:
            self._callers = self._callers_of(translator)
            self._around.clear()
        else:
            self._callers = callers[at + 1 :] if at >= len(self._around) else self._around[-1 - at]
            del self._around[-1 - at :]
        gone: list[Translator] = [] if before is None else [before, *(each.translator for each in callers[:at])]
        if at != 0:
            running = {id(translator), *(id(each.translator) for each in self._callers)}
            gone = [each for each in gone if id(each) not in running]
        for each in gone:
            self._empty(each)
        return tuple([_frame_now(each) for each in gone if _is_generator(each)])

    def _empty(self, translator: Translator) -> None:
        """Replace the unused containers of an ended function by shared ones.

        Otherwise the garbage collector would scan a dozen containers for each function in the log.
        """
        if _is_generator(translator):
            return
        own, shared = translator.__dict__, self._emptied
        if not shared:
            empty = {name: each for name, each in own.items() if is_exactly(each, _CONTAINERS) and not each}
            shared.update({**empty, **{name: type(own[name])() for name in _OF_RUNNING if name in own}})
        for name, empty in shared.items():
            value = own.get(name)
            if type(value) is type(empty) and (not value or name in _OF_RUNNING):
                own[name] = empty
        for name in [name for name in own if name.startswith(_CACHES)]:
            del own[name]
        if (constants := own.get(_CONSTANTS)) is not None:
            own[_CONSTANTS] = self._no_constants.setdefault(len(constants), [None] * len(constants))
        if (modules := own.get(_MODULES)) is not None:
            own[_MODULES] = self._modules = self._modules if self._modules == modules else modules

    def _callers_of(self, translator: Translator) -> tuple[PastFrame, ...]:
        """Return the state of the waiting callers."""
        if _is_generator(translator):
            chain = list(running_translators(sys._getframe()))
            chain = chain[chain.index(translator) :] if translator in chain else list(with_callers(translator))
        else:
            chain = list(with_callers(translator))
        waiting = {id(each.translator): at for at, each in enumerate(self._callers)}
        callers: list[PastFrame] = []
        for each in chain[1:]:
            if id(each) in waiting:
                return (*callers, *self._callers[waiting[id(each)] :])
            callers.append(_frame_now(each))
        return tuple(callers)

    def add_change(self, change: Change) -> None:
        """Note a value before it changes in place."""
        self._changes.append(change)
        self._snapshots.changed.append(self._snapshots.number)
        self._copied += change.size
        if self._copied > MAXIMUM_COPIED:
            self._forget_all()

    def has_change(self, kind: type, tracker: object) -> bool:
        """Return whether the last change is of this kind and tracker, with no snapshot since."""
        changes, snapshots = self._changes, self._snapshots
        is_last = bool(changes) and type(changes[-1]) is kind and changes[-1].tracker is tracker
        return is_last and snapshots.changed[-1] == snapshots.number

    def _forget_all(self) -> None:
        self._snapshots = Snapshots(self._snapshots.number)
        self._depth = self._trace = None
        self._position = -2  # the next snapshot continues no earlier one
        self._changes.clear()
        self._copied = 0

    def guard_number(self, source: str) -> int | None:
        """Return the number of the first guard on a source, in the order of installation."""
        guards = self._output.tracing_context.guards_context.dynamo_guards.inner
        names = (source_name(each.originating_source) for each in guards)
        return next((number for number, name in enumerate(names) if name == source), None)

    def node_numbers(self) -> dict[str, int]:
        """Return the outermost graph's nodes by name, with the number of nodes before each.

        Inputs, which always come first, are left out.
        """
        tracer = self._output.root_tracer
        inputs = len(tracer.input_name_to_proxy)
        operations = [node for node in tracer.graph.nodes if node.op != "placeholder"]
        return {node.name: number + inputs for number, node in enumerate(operations)}

    def trackers(self) -> Iterator[object]:
        """Yield all trackers of the log, and containers of them."""
        yield from self.snapshots.trackers()
        for change in self._changes:
            yield from change.trackers()

    def noted_in(self, tracer: object) -> Iterator[object]:
        """Yield names and value stacks of the snapshots in the body that ``tracer`` traces, newest first."""
        snapshots = self.snapshots
        for at in range(len(snapshots) - 1, -1, -1):
            snapshot = snapshots[at]
            if not any(each.tracer is tracer for each in snapshot.graphs):
                return
            yield snapshot.frames[0].locals
            yield snapshot.frames[0].stack

    def lazy_fields(self) -> Iterator[dict[str, object]]:
        """Yield the fields that lazy values had before Dynamo realized them."""
        for change in self._changes:
            yield from change.holders()

    def close(self) -> None:
        """Forget the trace, which has ended, and its real values."""
        self.show(None)
        restore_values(self._output, None)
        self._snapshots = Snapshots(self._snapshots.number)
        self._changes.clear()
        self._translator = self._locals = self._depth = self._trace = self._tracer = None
        self._callers = ()
        self._around.clear()
        self._emptied.clear()
        self._no_constants.clear()
        self._modules = None

    # -- reading ---------------------------------------------------------------------------------------------------

    @property
    def snapshots(self) -> Snapshots:
        """All snapshots."""
        self._complete()
        return self._snapshots

    @property
    def forgotten(self) -> int:
        """The number of forgotten snapshots."""
        return self._snapshots.forgotten

    def last_change(self, tracker: object, before: int) -> int | None:
        """Return the number of the last change of a tracker's object before the change ``before``."""
        for number in range(before - 1, -1, -1):
            if self._changes[number].tracker is unwrapped(tracker):
                return number
        return None

    @property
    def is_showing(self) -> bool:
        """Whether an earlier state is shown."""
        return self._present is not None

    def show(self, index: int | None, *, as_result: bool = False) -> None:
        """Restore a snapshot's state in the trace; None for the present state.

        With ``as_result``, restore the state before Dynamo fetches the snapshot's instruction: right after the previous
        one.
        """
        self._shown = None if index is None else (index, as_result)
        if self._present is None:
            if index is None:
                return
            self._present = _Present(self._output)
        self._present.revert()
        if index is None:
            self._redo(len(self._changes))
            self._present = None
            return
        snapshot = self.snapshots[index]
        self._redo(snapshot.changes)
        self._undo(snapshot.changes)
        shown = self._as_result(index) if as_result else snapshot
        self._present.apply(shown, self._suspended(index))

    def _as_result(self, index: int) -> Snapshot:
        snapshot, before = self._snapshots[index], self._snapshots[index - 1].frames
        here = snapshot.frames[0]
        waited = next((each for each in before if each.translator is here.translator), here)
        shown = here._replace(pointer=here.at, instruction=waited.instruction, line=waited.line)
        return snapshot._replace(frames=(shown, *snapshot.frames[1:]))

    def writing_nodes(self) -> list[tuple[int, Node]]:
        """Return the outermost graph's nodes that change a tensor in place, with their numbers.

        The numbers count operations from 0, without inputs. The shown state stays as it is.
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
        """Keep Dynamo's facts about the program's objects, which the running program changes.

        With ``has_program_run`` false the program has not run: the same trace is shown for another call.
        """
        self.show(None)
        self._has_program_run = has_program_run

    def _suspended(self, index: int) -> Iterator[PastFrame]:
        """Yield generators that do not run at a snapshot: they wait to begin or to be resumed."""
        snapshots = self._snapshots
        known = {id(each.translator) for each in snapshots[index].frames}
        for each in snapshots.left_before(index):
            if id(each.translator) not in known:
                known.add(id(each.translator))
                yield each
        for translator, begun in snapshots.begun_after(index):
            if _is_generator(translator) and id(translator) not in known:
                known.add(id(translator))
                first = snapshots.function(begun)
                yield first._replace(pointer=0, stack=(), line=-1, progress=_generator_progress(None))


def _is_generator(translator: Translator) -> bool:
    return bool(translator.f_code.co_flags & _GENERATOR)


def _generator_progress(translator: Translator | None) -> dict[str, object]:
    return {
        "generated_items": list(getattr(translator, "generated_items", ())),
        "generator_exhausted": getattr(translator, "generator_exhausted", False),
    }


def _version_of(shape_env: ShapeEnv) -> tuple[int, ...]:
    return (shape_env._version_counter, *map(id, shape_env.var_to_range.values()))


def _sizes_now(shape_env: ShapeEnv, known: PastSizes | None) -> PastSizes:
    version = _version_of(shape_env)
    if known is not None and known.version == version:
        return known
    return PastSizes(version, list(shape_env.guards), dict(shape_env.replacements), dict(shape_env.var_to_range))


def _frame_now(translator: Translator, known: dict[str, object] | None = None) -> PastFrame:
    """Return a function's present state; ``known`` are its earlier variables, reused if they are unchanged."""
    own = translator.__dict__
    variables = own["symbolic_locals"]
    return PastFrame(
        translator,
        known if known is not None and known == variables else dict(variables),
        tuple(own["stack"]),
        own["instruction_pointer"],
        own["current_instruction"],
        own["lineno"],
        tuple(own["block_stack"]),
        _generator_progress(translator) if _is_generator(translator) else NO_PROGRESS,
    )


class _Present:
    """Holds the present state while an earlier state is shown."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._swap = Swap()

    def apply(self, snapshot: Snapshot, suspended: Iterator[PastFrame]) -> None:
        swap = self._swap
        for frame in (*snapshot.frames, *suspended):
            then = (
                dict(frame.locals),
                list(frame.stack),
                frame.pointer,
                frame.instruction,
                frame.line,
                list(frame.blocks),
            )
            fields = dict(zip(_FRAME_FIELDS, then, strict=True))
            swap.update(frame.translator.__dict__, {**fields, **frame.progress})
        output = self._output
        swap.set(output, "tracers", [each.tracer for each in snapshot.graphs])
        for graph in snapshot.graphs:
            self._cut(graph)
        guards = output.tracing_context.guards_context.dynamo_guards
        if len(guards.inner) > snapshot.guards:
            swap.set(guards, "inner", type(guards.inner)(list(guards.inner)[: snapshot.guards]))
        effects, tracked, saved = snapshot.trace.effects
        swap.set(output, "side_effects", effects)
        if len(effects.id_to_variable) > tracked:
            swap.set(effects, "id_to_variable", dict(islice(effects.id_to_variable.items(), tracked)))
        swap.set(effects, "save_for_backward", effects.save_for_backward[:saved])
        sizes, shape_env = snapshot.trace.sizes, output.shape_env
        if sizes.version != _version_of(shape_env):
            swap.set(shape_env, "guards", sizes.guards)
            swap.set(shape_env, "replacements", sizes.replacements)
            swap.set(shape_env, "var_to_range", sizes.ranges)
        swap.callback(restore_values, output, set_values_aside(output))

    def _cut(self, then: PastGraph) -> None:
        """Unlink the nodes added since ``then``. They need not be the last ones: inputs come first in a graph."""
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
            self._swap.set(before, "_next", after)
            self._swap.set(after, "_prev", before)
        self._forget_users(set(removed))
        self._swap.set(graph, "_len", count - len(removed))

    def _forget_users(self, removed: set[Node]) -> None:
        for operand in {each for node in removed for each in node.all_input_nodes} - removed:
            self._swap.fill(operand.users, dict.fromkeys(each for each in operand.users if each not in removed))

    def revert(self) -> None:
        self._swap.revert()
