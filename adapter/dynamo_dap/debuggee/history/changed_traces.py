"""Makes a changed trace: traces the held trace's call again, with the user's assignment or jump.

The held trace stays unchanged. Its call is replayed (``replays``) from its arguments up to the user's change. There
an assignment is traced as if the function contained it, or the interpreter continues at another line. Runs on the
tracing thread, under Dynamo's compile lock; nothing here outlives the changed trace.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import sys
import threading
import types
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature, FeatureMissing
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import is_fake_tensor
from dynamo_dap.debuggee.torch_api.objects import Tensor, Translator
from dynamo_dap.debuggee.torch_api.swaps import Swap
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall, NoFrame
from dynamo_dap.debuggee.torch_api.traced.symbols import hint_of, is_symbolic, symbols_of
from dynamo_dap.debuggee.torch_api.traced.traced_frame import MISSING, TracedFrame
from dynamo_dap.debuggee.torch_api.traced.translator import frame_below_trace
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Tracker, source_name, unwrapped
from dynamo_dap.debuggee.trace.runs import current_run
from dynamo_dap.debuggee.wrapping.patches import Outcome, Patches

_COMPILE_FRAME = "torch._dynamo.convert_frame:compile_frame"
_FUNCTION_MODES = "torch._dynamo.variables.torch_function:torch_function_mode_stack_state_mgr"
_FUNCTION = "torch._dynamo.variables:UserFunctionVariable"
_BUILDER = "torch._dynamo.variables.builder:VariableBuilder"
_SYMBOL = "torch._dynamo.variables.builder:VariableBuilder.wrap_symint"
_SOURCE = "torch._dynamo.source:SyntheticLocalSource"
_DYNAMIC = "torch.fx.experimental.symbolic_shapes:DimDynamic"
_SIZES = "torch._dynamo.variables.builder:_automatic_dynamic"
_STORE_CELL = "torch._dynamo.side_effects:SideEffects.store_cell"

CHANGING = Feature("changing a held trace", _COMPILE_FRAME, _FUNCTION_MODES, _FUNCTION, _STORE_CELL)
SIZES = Feature(
    "static sizes instead of symbols, and symbols instead of static ones",
    *(_SIZES, _DYNAMIC),
    signatures={_SIZES: ("e", "tx", "source")},
)
SYMBOLS = Feature("a symbol instead of a number", _BUILDER, _SYMBOL, _SOURCE, _DYNAMIC)

NEW_SYMBOL = "dynamic"
"""``dynamic(8)`` in an assignment: a symbol that has this value in the call."""
CHANGED = "<changed by the debugger>"
"""The file name of assignments, which marks the nodes that they make."""
_SYMBOL_NAME = "__symbol_{}__"


class CannotChange(Exception):
    """A change of a trace is impossible; the text says why, and nothing was changed."""


# -- the call ----------------------------------------------------------------------------------------------------------


def traced_call(top: types.FrameType, compile_id: str) -> CachedCall:
    """Return the call whose trace runs, or is shown, on the stack that ends in the Python frame ``top``.

    Raises:
        CannotChange: the call has ended, or its compile is unknown.
    """
    call = current_run().call
    if call is not None:
        if call.in_backward is not None:
            raise CannotChange("the call has ended: this stop is in its backward pass")
        return call
    compiling = _compiling_frame(top)
    if compiling is None:
        raise CannotChange("the compile of this trace is unknown")
    given = compiling.f_locals
    return CachedCall(
        code=given["code"],
        frame=NoFrame(given["globals"], given["builtins"], frame_below_trace(top)),
        arguments=given["locals"],
        closure=given["closure"],
        compile_id=compile_id,
        backend=given["compiler_fn"],
        number=None,
        is_compiled_now=True,
    )


def is_full_graph(top: types.FrameType) -> bool:
    """Return whether graph breaks are errors in the trace that runs on the stack of ``top``."""
    compiling = _compiling_frame(top)
    return compiling is not None and bool(compiling.f_locals.get("one_graph"))


def _compiling_frame(top: types.FrameType | None) -> types.FrameType | None:
    code = CHANGING.code_of(_COMPILE_FRAME)
    while top is not None and top.f_code is not code:
        top = top.f_back
    return top


@contextlib.contextmanager
def beside_running_trace(top: types.FrameType, frame: TracedFrame) -> Iterator[None]:
    """Run another trace inside this context, then restore torch's globals for the trace of ``frame``.

    The trace of ``frame`` runs on the stack of ``top``, or is shown there.
    """
    if _compiling_frame(top) is None:  # a saved trace is shown, so no trace runs
        yield
        return
    output = frame.translator.output
    with contextlib.ExitStack() as stack:
        swap = stack.enter_context(Swap())
        for container in _containers():
            swap.keep(container)
        stack.enter_context(_function_modes_enabled())
        now: dict[str, object] = {}
        output.save_global_state(out=now)
        stack.callback(_set_all, now)
        _set_all(output.tracing_context.global_context.global_state)
        yield


def _containers() -> list[object]:
    """Return torch's tables of objects that graphs create, and of numbers that must be constants."""
    created = sys.modules.get("torch._dynamo.graph_bytecode_inputs")
    names = ("index_to_bytecode_constructor", "index_to_external_object_weakref", "keep_alive")
    containers = [getattr(created, name, None) for name in names]
    tensorify = getattr(sys.modules.get("torch._dynamo.symbolic_convert"), "TensorifyState", None)
    containers.append(getattr(tensorify, "force_specializations", None))
    return [each for each in containers if each is not None]


@contextlib.contextmanager
def _function_modes_enabled() -> Iterator[None]:
    """Enable the function modes that the program had when the running trace began; tracing has disabled them."""
    manager = CHANGING.resolve(_FUNCTION_MODES)
    before = manager.stack
    try:
        with manager.temp_restore_stack():
            yield
    finally:
        manager.stack = before


def _set_all(state: dict[str, Any]) -> None:
    for put, value in list(state.values()):
        put(value)


# -- assignments -------------------------------------------------------------------------------------------------------


def assign(frame: TracedFrame, text: str) -> None:
    """Trace the statements of ``text`` at the line of ``frame``, as if the function contained them there.

    Raises:
        CannotChange: Dynamo cannot trace the statements, or they use a missing name. The trace must then end.
    """
    CHANGING.require()
    body = _parsed(text)
    line = _line_of(text)
    names = sorted(_assigned_names(body))
    assigned = [name for name in names if frame.is_declared(name)]
    globals_ = [name for name in names if name not in assigned and name in frame.globals]
    numbers = _SymbolCalls(frame, line)
    statements: list[Any] = [numbers.visit(each) for each in body]
    values = _locals_used(frame, statements)
    if assigned:
        items: list[ast.expr] = [ast.Name(name, ast.Load()) for name in assigned]
        statements.append(ast.Return(items[0] if len(items) == 1 else ast.Tuple(items, ast.Load())))
    if globals_:
        statements.insert(0, ast.Global(globals_))
    result = _call(frame, statements, {**values, **numbers.symbols}, line)
    results = [result] if len(assigned) < 2 else list(unwrapped(result).items)
    for name, value in zip(assigned, results, strict=False):
        _store(frame, name, value)


def _parsed(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text, CHANGED).body
    except SyntaxError as problem:
        raise CannotChange(f"not valid Python: {problem.msg}") from None


def _assigned_names(body: list[ast.stmt]) -> set[str]:
    stores = (node for each in body for node in ast.walk(each) if isinstance(node, ast.Name))
    named = list(stores)
    deleted = next((node.id for node in named if isinstance(node.ctx, ast.Del)), None)
    if deleted is not None:
        raise CannotChange(f"'{deleted}' cannot be deleted in a trace")
    return {node.id for node in named if isinstance(node.ctx, ast.Store)}


def _locals_used(frame: TracedFrame, trees: Sequence[ast.AST]) -> dict[str, Tracker]:
    """Return the trackers of the local variables that the trees name, except those without a value.

    Raises:
        CannotChange: the trees read a variable without a value.
    """
    names = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)]
    values = {each.id: _tracker(frame, each.id) for each in names if frame.is_declared(each.id)}
    for each in names:
        if isinstance(each.ctx, ast.Load) and each.id in values and values[each.id] is None:
            problem = "has no value here" if frame.lookup(each.id) is MISSING else "is not known to the trace"
            raise CannotChange(f"'{each.id}' {problem}")
    return {name: value for name, value in sorted(values.items()) if value is not None}


def _tracker(frame: TracedFrame, name: str) -> Tracker | None:
    cell = dict(frame.cells()).get(name)
    if cell is not None:
        return frame.cell_contents(cell)
    return None if frame.lookup(name) is MISSING else frame.translator.symbolic_locals.get(name)


_texts: list[str] = []
"""Assigned texts, as the lines of a virtual file. Graphs name this file instead of the user's."""


def _line_of(text: str) -> int:
    line = " ".join(part.strip() for part in text.strip().splitlines())
    if line not in _texts:
        _texts.append(line)
        lines = [f"{each}\n" for each in _texts]
        linecache.cache[CHANGED] = (sum(map(len, lines)), None, lines, CHANGED)
    return _texts.index(line) + 1


def _call(frame: TracedFrame, statements: list[Any], values: dict[str, Tracker], line: int) -> object:
    """Trace the statements as the body of a function that takes ``values``; return its result."""
    function = ast.parse("def changed(): pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    function.args.args = [ast.arg(name) for name in values]
    function.body = statements
    module = ast.fix_missing_locations(ast.Module([function], []))
    for node in ast.walk(module):
        if "lineno" in node._attributes:
            node.lineno, node.end_lineno = line, line  # type: ignore[attr-defined]  # a node with lines
    outer = compile(module, CHANGED, "exec")
    code = next(each for each in outer.co_consts if isinstance(each, types.CodeType))
    made = types.FunctionType(code, frame.globals, "changed")
    tx = frame.translator
    try:
        return CHANGING.resolve(_FUNCTION)(made).call_function(tx, list(values.values()), {})
    except Exception as problem:  # noqa: BLE001  (the user sees whatever Dynamo raises)
        raise CannotChange(_reason(problem)) from None


def _reason(problem: Exception) -> str:
    lines = [line.strip() for line in str(problem).strip().splitlines()]
    text = next((line for line in lines if line), type(problem).__name__)
    explained = next((line.partition(":")[2].strip() for line in lines if line.startswith("Explanation:")), None)
    return f"Dynamo cannot trace it here: {text}" + ("" if explained is None else f": {explained}")


def _store(frame: TracedFrame, name: str, value: Tracker) -> None:
    tx = frame.translator
    cell = dict(frame.cells()).get(name)
    if cell is not None:
        tx.output.side_effects.store_cell(cell, value)
        return
    if name in frame.cell_names:
        raise CannotChange(f"'{name}' is a captured variable without a value here")
    hint: Callable[[str], None] | None = getattr(value, "set_name_hint", None)
    if hint is not None:
        hint(name)
    tx.symbolic_locals[name] = value


class _SymbolCalls(ast.NodeTransformer):
    """Replaces calls of ``dynamic`` by new symbols, unless the program uses that name."""

    def __init__(self, frame: TracedFrame, line: int) -> None:
        self._frame = frame
        self._line = line
        self._is_known = frame.lookup(NEW_SYMBOL) is not MISSING
        self.symbols: dict[str, Tracker] = {}

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace the call by a name for the symbol."""
        self.generic_visit(node)
        if self._is_known or not isinstance(node.func, ast.Name) or node.func.id != NEW_SYMBOL:
            return node
        if len(node.args) != 1 or node.keywords:
            raise CannotChange(f"{NEW_SYMBOL} takes one number")
        values = _locals_used(self._frame, [node.args[0]])
        found = _call(self._frame, [ast.Return(node.args[0])], {**values, **self.symbols}, self._line)
        number = _constant(found)
        if number in (0, 1):
            raise CannotChange("Dynamo makes no symbols for 0 and 1")
        name = _SYMBOL_NAME.format(len(self.symbols))
        self.symbols[name] = _new_symbol(self._frame, number)
        return ast.copy_location(ast.Name(name, ast.Load()), node)


def _constant(tracker: Tracker) -> int:
    is_constant = unwrapped(tracker).is_python_constant()
    value = unwrapped(tracker).as_python_constant() if is_constant else None
    if type(value) is not int:
        raise CannotChange(f"{NEW_SYMBOL} takes a whole number that Dynamo knows")
    return value


def _new_symbol(frame: TracedFrame, number: int) -> Tracker:
    try:
        SYMBOLS.require()
    except FeatureMissing as problem:
        raise CannotChange(str(problem)) from None
    tx = frame.translator
    known = tx.output.unspec_variable_map
    name = next(name for at in range(len(known) + 1) if (name := f"dynamic_{at}") not in str(list(known)))
    builder = SYMBOLS.resolve(_BUILDER)(tx, SYMBOLS.resolve(_SOURCE)(name))
    tracker: Tracker = builder.wrap_symint(number, dynamism=SYMBOLS.resolve(_DYNAMIC).DYNAMIC)
    return tracker


# -- sizes -------------------------------------------------------------------------------------------------------------

STATIC, SYMBOLIC = "static", "symbolic"
"""Names that the user can assign to a size: ``x.shape[0] = symbolic``."""


@dataclass(frozen=True, slots=True)
class SizeChange:
    """The change of an input's size to a symbol, or to a constant."""

    source: str
    """The tensor's source, as torch writes it."""
    dimension: int
    is_symbol: bool


def size_change(frame: TracedFrame, tensor: Tensor, source: str | None, dimension: int, wanted: object) -> SizeChange:
    """Return the change of an input that makes a tensor's size ``wanted``: ``STATIC``, ``SYMBOLIC`` or its number.

    ``tensor`` is the FakeTensor, or the call's own tensor if Dynamo has made no FakeTensor yet. ``source`` is Dynamo's
    source of an input, None for a computed tensor.

    Raises:
        CannotChange: that is impossible; the text says why.
    """
    try:
        SIZES.require()
    except FeatureMissing as problem:
        raise CannotChange(str(problem)) from None
    if not -tensor.dim() <= dimension < tensor.dim():
        raise CannotChange(f"the tensor has {tensor.dim()} dimensions")
    dimension %= tensor.dim()
    size = tensor.size()[dimension]
    number = hint_of(size) if is_symbolic(size) else size
    if wanted not in (STATIC, SYMBOLIC, number):
        raise CannotChange(f"the size is {number} in this call: it can be '{STATIC}', {number} or '{SYMBOLIC}'")
    is_symbol = wanted == SYMBOLIC
    if is_symbol == is_symbolic(size) and is_fake_tensor(tensor):
        raise CannotChange(f"the size is {SYMBOLIC if is_symbol else STATIC} already")
    if is_symbol and number in (0, 1):
        raise CannotChange("Dynamo makes no symbols for 0 and 1")
    if source is None:
        source, dimension = _size_of_input(frame, size)
    return SizeChange(source, dimension, is_symbol)


def _size_of_input(frame: TracedFrame, size: object) -> tuple[str, int]:
    """Return the input and the dimension of a symbol."""
    symbols = symbols_of(size) if is_symbolic(size) else []
    known = getattr(frame.translator.output.shape_env, "var_to_sources", {})
    for source in known.get(symbols[0], ()) if len(symbols) == 1 else ():
        base = source_name(getattr(source, "base", None))
        if base is not None and getattr(source, "idx", None) is not None:
            return base, int(source.idx)
    raise CannotChange("the tensor is computed: its sizes follow from those of the inputs, which can be changed")


_changed_sizes = Patches(SIZES.name)


@contextlib.contextmanager
def sizes_changed(changes: Sequence[SizeChange]) -> Iterator[None]:
    """Apply ``changes`` to each trace that this thread begins inside this context.

    Raises:
        CannotChange: a change failed, so the trace has not made it.
    """
    if not changes:
        yield
        return
    kinds, thread = SIZES.resolve(_DYNAMIC), threading.get_ident()

    def change(
        _value: object, _tx: Translator, source: object, *_: object, **_named: object
    ) -> Generator[None, Outcome, None]:
        outcome = yield
        if threading.get_ident() != thread or outcome.error is not None:
            return
        name = source_name(source)
        for each in changes:
            if each.source == name:
                outcome.result.dynamic_sizes[each.dimension] = kinds.DYNAMIC if each.is_symbol else kinds.STATIC
                outcome.result.constraint_sizes[each.dimension] = None

    with _changed_sizes.meanwhile(sys.modules["torch._dynamo.variables.builder"], "_automatic_dynamic", change):
        yield
    if _changed_sizes.is_off:
        raise CannotChange("the sizes could not be changed")
