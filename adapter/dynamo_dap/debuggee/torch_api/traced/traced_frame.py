"""Represents a function that Dynamo is tracing. Other packages see a trace only through this class.

``TracedFrame`` reads the state of one function from its symbolic interpreter (``torch._dynamo.symbolic_convert``): its
position, names and value stack, and the graph, guards and side effects of its compile. A ``TracedFrame`` refers
only to the interpreter, and is made again whenever it is needed. Its values are Dynamo's VariableTrackers; other
packages use only the form of a tracker. Runs on the tracing thread.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, NoReturn

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.cache import guards
from dynamo_dap.debuggee.torch_api.cache.guards import GuardFacts, ShapeGuardFacts
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import resume_function
from dynamo_dap.debuggee.torch_api.compiles import compilation
from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.graphs import graph
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue
from dynamo_dap.debuggee.torch_api.graphs.real_values import reachable_nodes, real_values_of, shares_written_memory
from dynamo_dap.debuggee.torch_api.graphs.saved_graphs import SavedGraph
from dynamo_dap.debuggee.torch_api.objects import Graph, Node, Translator
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import evaluating
from dynamo_dap.debuggee.torch_api.traced.replays import TraceIsOver, replayed_call
from dynamo_dap.debuggee.torch_api.traced.trace_state import TraceState, Undo
from dynamo_dap.debuggee.torch_api.traced.trackers.forms import Form, InstanceForm, Unrealized
from dynamo_dap.debuggee.torch_api.traced.trackers.readers import form_of
from dynamo_dap.debuggee.torch_api.traced.translator import frames_of_trace, running_translators, with_callers
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import (
    Place,
    Tracker,
    cell_contents,
    class_names,
    field,
    is_modified,
    is_tracker,
    pending_attributes,
    source_name,
    source_of,
    unwrapped,
    users_frame,
)

_COMPTIME_CONTEXT = "torch._dynamo.comptime:ComptimeContext"
_COMPTIME_TRANSLATOR = "torch._dynamo.comptime:ComptimeContext._i_will_not_complain_if_bc_breaks_InstructionTranslator"
_COMPTIME_CALL = "torch._dynamo.variables.misc:ComptimeVariable.call_function"

CONTEXT = Feature("'ctx' in the debug console", _COMPTIME_CONTEXT)
COMPTIME_BREAKPOINT = Feature("stopping at comptime.breakpoint()", _COMPTIME_CONTEXT, _COMPTIME_TRANSLATOR)
COMPTIME_CALLS = Feature("stopping at breakpoint() in a function passed to comptime()", _COMPTIME_CALL)

MISSING = object()
"""What ``lookup`` returns for a name that has no value."""

_GLOBAL_OPERATIONS = frozenset({"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME"})
_SCALARS: frozenset[type] = frozenset({int, float, complex, bool, str, bytes, type(None)})
"""Types of objects that Dynamo keeps by value: never tracked by identity."""

_BLOCKS = frozenset({"FOR_ITER", "SETUP_FINALLY", "SETUP_WITH", "SETUP_ASYNC_WITH"})
"""Instructions that open a block which ends at their target."""


class CodeRange(NamedTuple):
    """A part of the source: 1-based lines and columns."""

    line: int
    column: int = 1
    end_line: int | None = None
    end_column: int | None = None


class TracedInstruction(NamedTuple):
    """An instruction as Dynamo interprets it. Dynamo first cleans code up, so indices differ from those of ``dis``."""

    name: str
    argument: int | None
    value: object
    """The resolved argument: a name, a constant."""
    line: int | None
    target: int
    """The index of the instruction to which it may jump; -1 for none."""


class TracedFrame:
    """A function that Dynamo is tracing. Two objects for the same run of the same function are equal."""

    __slots__ = ("translator",)

    def __init__(self, translator: Translator) -> None:
        """Wrap ``translator``, torch's ``InstructionTranslatorBase``, which only this package uses."""
        self.translator = translator

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TracedFrame) and other.translator is self.translator

    def __hash__(self) -> int:
        return id(self.translator)

    @property
    def interpreter(self) -> object:
        """One object for this run of the function: compare it by identity, or hold it weakly."""
        return self.translator

    @property
    def attempt(self) -> object:
        """One object for all functions of one attempt of a trace: compare it by identity, or hold it weakly."""
        return self.translator.output

    # -- position -------------------------------------------------------------------------------------------

    @property
    def code(self) -> types.CodeType:
        """The function's code."""
        code: types.CodeType = self.translator.f_code
        return code

    @property
    def path(self) -> str:
        """The file of the code."""
        path: str = self.translator.f_code.co_filename
        return path

    @property
    def line(self) -> int:
        """The running instruction's line; the function's first line before any instruction."""
        line: int = self.translator.lineno
        return line if line > 0 else self.code.co_firstlineno

    @property
    def index(self) -> int:
        """The running instruction's index in ``instructions``."""
        tx = self.translator
        if tx.instruction_pointer is None:
            # The function returns, and its graph is being compiled.
            return int(tx.indexof[tx.current_instruction])
        return int(tx.instruction_pointer) - 1

    @property
    def next_index(self) -> int | None:
        """The index of the instruction that is fetched next; None if the function returns."""
        index: int | None = self.translator.instruction_pointer
        return index

    @next_index.setter
    def next_index(self, index: int) -> None:
        self.translator.instruction_pointer = index

    def has_line(self, index: int) -> bool:
        """Return whether the user's line of the instruction at ``index`` is known."""
        return bool(self.translator.instructions[index].starts_line)

    @property
    def instructions(self) -> list[TracedInstruction]:
        """All instructions of the function; made at each call."""
        raw = self.translator.instructions
        indices = {id(each): index for index, each in enumerate(raw)}
        return [
            TracedInstruction(each.opname, each.arg, each.argval, each.starts_line, indices.get(id(each.target), -1))
            for each in raw
        ]

    def blocks_around(self, index: int) -> object:
        """Return a key of all loops, ``with`` and ``try`` blocks around an instruction. Equal keys: the same blocks."""
        opened = tuple(
            at for at, each in enumerate(self.instructions) if each.name in _BLOCKS and at < index < each.target
        )
        entry = getattr(self.translator.instructions[index], "exn_tab_entry", None)
        return opened, None if entry is None else (id(entry.target), entry.depth)

    @property
    def range(self) -> CodeRange:
        """The part of the source that is being executed."""
        positions = self.translator.instructions[self.index].positions
        if positions is None or positions.lineno is None or positions.col_offset is None:
            return CodeRange(self.line)
        end = positions.end_col_offset
        return CodeRange(
            positions.lineno, positions.col_offset + 1, positions.end_lineno, None if end is None else end + 1
        )

    @property
    def is_in_resume_prologue(self) -> bool:
        """Whether a resume function is still restoring its state: none of the user's code runs there."""
        return bool(getattr(self.translator, "is_tracing_resume_prologue", False))

    @property
    def has_begun(self) -> bool:
        """Whether the function is inlined, or Dynamo has traced one of its lines."""
        if getattr(self.translator, "parent", None) is not None:
            return True
        return any(each.starts_line is not None for each in self.translator.instructions[: self.index])

    # -- callers ---------------------------------------------------------------------------------------------

    def with_callers(self) -> list[TracedFrame]:
        """Return the function and those into which it was inlined. Only ``running`` includes callers of generators."""
        return [TracedFrame(each) for each in with_callers(self.translator)]

    def running(self, top: types.FrameType) -> list[TracedFrame]:
        """Return the function and its callers, up to the function being compiled.

        Searches the Python frames from ``top`` outward for those of Dynamo's interpreter. The ``parent`` of a generator
        is not enough: it is the function that made the generator, and another function may run it.
        """
        chain = list(running_translators(top))
        if self.translator not in chain:
            return self.with_callers()
        return [TracedFrame(each) for each in chain[chain.index(self.translator) :]]

    @property
    def compiled_code(self) -> types.CodeType:
        """The code being compiled, into which the other functions are inlined."""
        code: types.CodeType = list(with_callers(self.translator))[-1].f_code
        return code

    @property
    def is_of_resume_function(self) -> bool:
        """Whether the compiled function resumes after a graph break."""
        return resume_function(self.compiled_code) is not None

    # -- names ---------------------------------------------------------------------------------------

    @property
    def globals(self) -> dict[str, Any]:
        """The original globals of its module, without the traced code's stores."""
        names: dict[str, object] = self.translator.f_globals
        return names

    @property
    def cell_names(self) -> tuple[str, ...]:
        """The names of cell and free variables, as the code declares them."""
        return (*self.code.co_cellvars, *self.code.co_freevars)

    def locals(self) -> list[tuple[str, Tracker]]:
        """Return name and tracker of every variable with a value that the function binds or captures.

        Parameters come first, as declared, then other local variables, cells, and what is captured.
        """
        cells = dict(self.cells())
        inputs = {name: Unrealized(value) for name, value in self._untouched_inputs().items()}
        values = {**inputs, **self.translator.symbolic_locals, **cells}
        declared = [name for name in dict.fromkeys((*self.code.co_varnames, *self.cell_names)) if name in values]
        others = [name for name in values if name not in set(declared)]
        # ``symbolic_locals`` also contains cells without a value.
        empty = set(self.cell_names) - cells.keys()
        return [(name, values[name]) for name in (*declared, *others) if name not in empty and _has_value(values[name])]

    def local(self, name: str) -> Tracker | None:
        """Return the function's own tracker of a variable; for a captured one, the tracker of its cell."""
        return self.translator.symbolic_locals.get(name)

    def cells(self) -> list[tuple[str, Tracker]]:
        """Return each cell and free variable that has a value: its name, and the tracker of its cell."""
        tx = self.translator
        registered = getattr(tx, "symbolic_cellvars", {})  # torch 2.15: a cell may share its name with a plain local
        kept = tx.post_prune_cell_and_freevars or {}
        cells = [(name, registered.get(name, tx.symbolic_locals.get(name, kept.get(name)))) for name in self.cell_names]
        return [(name, tracker) for name, tracker in cells if tracker is not None and _has_value(tracker)]

    def _untouched_inputs(self) -> dict[str, object]:
        """Return the real values of inputs without a tracker: torch 2.15 makes none for inputs that are never read."""
        tx = self.translator
        inputs = getattr(tx, "f_locals", None)
        if getattr(tx, "parent", None) is not None or type(inputs) is not dict:
            return {}
        absent = [name for name in self.code.co_varnames if name in inputs and name not in tx.symbolic_locals]
        if not absent:
            return {}
        written = {each.argval for each in tx.instructions if each.opname in ("STORE_FAST", "DELETE_FAST")}
        return {name: inputs[name] for name in absent if name not in written}

    def is_reference_weak(self, name: str) -> bool:
        """Return whether a weak reference to the compiled call's argument or global ``name`` is possible."""
        inputs = getattr(self.translator, "f_locals", None)
        values = inputs if type(inputs) is dict and name in inputs else self.globals
        return name in values and bool(getattr(type(values[name]), "__weakrefoffset__", 0))

    def globals_used(self) -> list[tuple[str, object]]:
        """Return name and value of the globals that the code names, as the trace sees them."""
        names = [str(each.argval) for each in self.translator.instructions if each.opname in _GLOBAL_OPERATIONS]
        values = {**self.globals, **self.stored_globals()}
        return [(name, values[name]) for name in dict.fromkeys(names) if name in values]

    def stored_globals(self) -> dict[str, Tracker]:
        """Return the globals that the traced code stored."""
        changes = self.attribute_changes()
        return {name: value for owner, name, value in changes if type(owner).__name__ == "NewGlobalVariable"}

    def lookup(self, name: str) -> object:
        """Return the value of ``name``: a tracker, a real object, or ``MISSING``."""
        tracker = self.translator.symbolic_locals.get(name)
        if tracker is not None and _has_value(tracker):
            return tracker
        for cell, contents in self.cells():
            if cell == name:
                return contents
        if self.is_declared(name):  # a local variable without a value hides the global of the same name
            return self._untouched_inputs().get(name, MISSING)
        stored = self.stored_globals()
        if name in stored:
            return stored[name]
        if name in self.globals:
            return self.globals[name]
        return self.translator.f_builtins.get(name, MISSING)

    def has(self, name: str) -> bool:
        """Return whether the program has a variable of this name here, with or without a value."""
        return self.is_declared(name) or self.lookup(name) is not MISSING

    def source_of(self, value: object) -> str | None:
        """Return the path to a tracker's object from the arguments ``L`` and globals ``G`` of a call, or None."""
        return source_name(source_of(value)) if is_tracker(value) else None

    def is_declared(self, name: str) -> bool:
        """Return whether the code has a local, cell or free variable of this name, with or without a value."""
        return name in self.code.co_varnames or name in self.cell_names

    @property
    def depth(self) -> int:
        """How many values lie on the value stack."""
        return len(self.translator.stack)

    def value_stack(self) -> list[Tracker]:
        """Return the values on the stack, bottom first."""
        return list(self.translator.stack)

    # -- values ----------------------------------------------------------------------------------------------------

    def form_of(self, tracker: Tracker) -> Form:
        """Return the form of a tracker or an untouched input. Nothing is realized, guarded or added to the graph."""
        return tracker if isinstance(tracker, Unrealized) else form_of(self.translator, tracker)

    def tracker_of(self, value: object) -> Tracker:
        """Return a tracker without wrappers, or the tracker of a real object; None if the object has none."""
        if is_tracker(value):
            return unwrapped(value)
        if is_exactly(value, _SCALARS):
            return None
        tracker = self.translator.output.side_effects.id_to_variable.get(id(value))
        return tracker if tracker is not None and is_tracker(tracker) else None

    def instance_form(self, value: object) -> InstanceForm:
        """Return the form of a real object, with the attributes that the traced code stored on it."""
        tracker = self.tracker_of(value)
        return InstanceForm(value, type(value), stored={} if tracker is None else self.stored_attributes(tracker))

    def stored_attributes(self, tracker: Tracker) -> dict[str, Tracker]:
        """Return the attributes that the traced code stored on an object; ``is_deleted`` identifies deletions."""
        return pending_attributes(self.translator, tracker)

    def cell_contents(self, cell: Tracker) -> Tracker | None:
        """Return what a cell holds now; None for an empty one."""
        return cell_contents(self.translator, cell)

    def globals_of_function(self, tracker: Tracker | None) -> dict[str, object]:
        """Return the globals of a function that the traced code made."""
        names: dict[str, object] = self.globals if tracker is None else field(tracker, "f_globals", self.globals)
        return names

    # -- the compile that it belongs to ----------------------------------------------------------------------------

    def compile_facts(self) -> compilation.CompileFacts:
        """Return the facts of this compile: id, options, progress."""
        return compilation.facts_of(self.translator)

    def graphs(self) -> list[Graph]:
        """Return the FX graph being written, then the graphs around it: each body of a higher-order operator is one."""
        return graph.graphs_of(self.translator)

    def guards(self) -> list[GuardFacts]:
        """Return the guards of the compile, in the order of installation."""
        return guards.guards_of(self.translator)

    def shape_guards(self) -> list[ShapeGuardFacts]:
        """Return the conditions on sizes: those that comparisons caused, then the ranges and equalities of symbols."""
        return guards.shape_guards_of(self.translator)

    def example_of_input(self, source: object) -> object:
        """Return the FakeTensor of a source's graph input, or None."""
        return guards.example_of_input(self.translator, source)

    @property
    def scopes_of_sources(self) -> tuple[dict[str, object], dict[str, object]]:
        """The real locals and globals of the function being compiled, in which sources begin."""
        output = self.translator.output
        return output.local_scope, output.global_scope

    def attribute_changes(self) -> Iterator[tuple[Tracker, str, Tracker]]:
        """Yield object, attribute and new value of every pending store, cells and globals included."""
        for tracker, attributes in list(self.translator.output.side_effects.store_attr_mutations.items()):
            yield from ((tracker, name, value) for name, value in list(attributes.items()))

    def modified_containers(self) -> Iterator[Tracker]:
        """Yield containers that existed before the trace and that the traced code modified."""
        return filter(is_modified, list(self.translator.output.side_effects.id_to_variable.values()))

    def changed_objects(self) -> frozenset[int]:
        """Return the ids of the real objects that the traced code changed, or made and stored somewhere."""
        effects = self.translator.output.side_effects
        changed = {id(tracker) for tracker in (*effects.store_attr_mutations, *self.modified_containers())}
        known = effects.id_to_variable.items()
        return frozenset(identifier for identifier, tracker in known if id(unwrapped(tracker)) in changed)

    def tensor_hooks(self) -> Iterator[tuple[Tracker, Tracker, str]]:
        """Yield each hook that the generated code will register: the tensor, the hook, the name of the method."""
        for tensor, hook, _, name in list(self.translator.output.side_effects.tensor_hooks.values()):
            yield tensor, hook, name

    def saved_for_backward(self) -> Iterator[tuple[Tracker, list[Tracker]]]:
        """Yield the context and tensors of every pending ``ctx.save_for_backward``."""
        return iter(list(self.translator.output.side_effects.save_for_backward))

    def last_change(self, tracker: Tracker) -> Place | None:
        """Return the user's line that last changed a value, if this torch version notes it."""
        known = getattr(self.translator.output.side_effects, "mutation_user_stacks", {})
        stacks = known.get(unwrapped(tracker))
        return users_frame(stacks[-1])[0] if stacks and stacks[-1] else None

    # -- expressions -----------------------------------------------------------------------------------------------

    def end_trace(self) -> NoReturn:
        """End the replay of a cached call early. Only a hook of the interpreter may call this.

        Raises:
            TraceIsOver: always.
        """
        raise TraceIsOver(self.translator.output)

    def evaluating(self) -> AbstractContextManager[None]:
        """Compute with the values of the trace without changing it."""
        return evaluating(self.translator)

    def real_value(self, node: Node) -> Any:
        """Return the value of a graph node in this call: a tensor, a number, a tuple of them.

        Raises:
            NoRealValue: there is none; the text says why.
            FeatureMissing: this version of torch lacks a name that real values need.
        """
        return real_values_of(self.translator.output).value_of(node, lambda: reachable_nodes(self.translator))

    def cheap_value(self, node: Node) -> object:
        """Return the result of ``real_value`` if computing it takes about a millisecond, else None; raises like it."""
        return real_values_of(self.translator.output).cheap_value_of(node, lambda: reachable_nodes(self.translator))

    def why_not_proven(self, node: Node, *, only_if_cheap: bool = False) -> str | None:
        """Return why the program's call may compute another value than ``real_value``; None if it cannot.

        With ``only_if_cheap``, None also if that takes more than about a millisecond; raises like ``real_value``.
        """
        values = real_values_of(self.translator.output)
        return values.why_not_proven(node, lambda: reachable_nodes(self.translator), only_if_cheap=only_if_cheap)

    def shares_written_memory(self, value: object) -> bool:
        """Return whether the graph so far may have written to the memory of a tensor of the program."""
        return shares_written_memory(self.translator.output, value)

    def as_written(self, value: object) -> object:
        """Return a tensor of the program with the graph's writes to its memory; raises like ``real_value``."""
        if not self.shares_written_memory(value):
            return value
        return real_values_of(self.translator.output).as_written(value, lambda: reachable_nodes(self.translator))

    def gradient(self, node: Node) -> object:
        """Return a node's gradient in the inspected backward pass; None if there is none.

        Raises:
            NoRealValue: there is none; the text says why.
        """
        call = replayed_call()
        if call is None or call.in_backward is None or node.graph is not self.translator.output.root_tracer.graph:
            raise NoRealValue("it is computed in the body of a higher-order operator")
        return call.in_backward.gradient_of(node.name, self.last_operation)

    @property
    def last_operation(self) -> str:
        """The last node added to the outermost graph; empty if there is none."""
        for node in reversed(self.translator.output.root_tracer.graph.nodes):
            return "" if node.op == "placeholder" else str(node.name)
        return ""

    @property
    def is_in_body(self) -> bool:
        """Whether the trace is inside the body of a higher-order operator."""
        output = self.translator.output
        return output.current_tracer is not output.root_tracer

    def operations_since(self, last: object) -> list[Node]:
        """Return the nodes after ``last`` in the outermost graph, or all for None; Dynamo may rename them later."""
        found: list[Node] = []
        for node in reversed(self.translator.output.root_tracer.graph.nodes):
            if node.op == "placeholder" or node is last:
                break
            found.append(node)
        return found[::-1]

    def keep_graph(self, graph: SavedGraph) -> int:
        """Copy the new nodes of the trace's outermost graph to ``graph``; return how many nodes ``graph`` has."""
        return graph.take(self.translator.output)

    def undo(self, *, whole_trace: bool) -> Undo:
        """Return an object that reverts the changes of an evaluation from now on."""
        return Undo(self.translator, whole_trace=whole_trace)

    def state(self) -> TraceState:
        """Return a copy of everything that Dynamo keeps about the trace."""
        return TraceState(self.translator)

    def comptime_context(self) -> object:
        """Return torch's public view of the function, a ``ComptimeContext``.

        Raises:
            FeatureMissing: this version of torch has none.
        """
        return CONTEXT.resolve(_COMPTIME_CONTEXT)(self.translator)


def running_frame(top: types.FrameType) -> TracedFrame | None:
    """Return the innermost traced function above the Python frame ``top``, or None."""
    translator = next(running_translators(top), None)
    return None if translator is None else TracedFrame(translator)


def frame_at_comptime_breakpoint(frame: types.FrameType) -> TracedFrame | None:
    """Return the traced function to stop in, if ``frame`` called ``breakpoint()`` for ``comptime``; else None.

    torch/_dynamo/comptime.py: ``comptime.breakpoint`` traces a function ``inner`` that calls ``builtins.breakpoint()``
    with the caller's ``ComptimeContext`` in its local ``ctx``. The traced code may also pass a function of its own to
    ``comptime(...)``: ``ComptimeVariable.call_function`` calls that one, with the interpreter in its local ``tx``.
    """
    if COMPTIME_BREAKPOINT.problem is None and frame.f_globals.get("__name__") == "torch._dynamo.comptime":
        context = frame.f_locals.get("ctx")
        if isinstance(context, COMPTIME_BREAKPOINT.resolve(_COMPTIME_CONTEXT)):
            return TracedFrame(COMPTIME_BREAKPOINT.resolve(_COMPTIME_TRANSLATOR)(context))
    if COMPTIME_CALLS.problem is not None:
        return None
    call = COMPTIME_CALLS.code_of(_COMPTIME_CALL)
    translator = next((each.f_locals.get("tx") for each in frames_of_trace(frame) if each.f_code is call), None)
    return None if translator is None else TracedFrame(translator)


def _has_value(tracker: object) -> bool:
    if isinstance(tracker, Unrealized):
        return True
    names = class_names(unwrapped(tracker))
    return "NullVariable" not in names and "DeletedVariable" not in names
