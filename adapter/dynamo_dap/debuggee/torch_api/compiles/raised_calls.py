"""Reports compiled calls that raise, without a frame of ours in the program's traceback.

When a compiled call ends, torch calls a function that restores a setting. A hook of that function reads the exception.
The graph is not run again: the traceback has the frame of the graph, or of the backend's code, that raised. For a
backward pass the hook is at the return of the autograd engine. Runs on the thread that makes the call.
"""

from __future__ import annotations

import contextlib
import re
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature, owner_of
from dynamo_dap.debuggee.torch_api.graphs.graph import nodes_of, target_name
from dynamo_dap.debuggee.torch_api.objects import GraphModule, Node
from dynamo_dap.debuggee.wrapping.patches import Patches, calling_frame
from dynamo_dap.debuggee.wrapping.weak_collections import WeakKeyDictionary

_ENDS = "torch._dynamo.eval_frame:set_skip_guard_eval_unsafe"
RAISED_CALLS = Feature("the record of compiled calls that raise", _ENDS)
_PASS_ENDS = "torch._C:_remove_obj_from_tls"
_CLEANUPS = "torch._dynamo.utils:CleanupManager.instance"
_CACHING = "torch._functorch._aot_autograd.graph_compile:serialize_graph_module"
RAISED_PASSES = Feature("the record of compiled backward passes that raise", _PASS_ENDS, _CLEANUPS, _CACHING)

_BACKWARD = "_backward_impl"
"""The method of AOTAutograd's function that calls the compiled backward graph."""
_MAXIMUM_OBJECTS = 1000
"""How many objects behind a compiled graph are searched for AOTAutograd's function."""
_MAXIMUM_BYTES = 4_000_000
"""The largest file of Inductor's code that is read."""
_NODES = re.compile(r"\s*# Topologically Sorted Source Nodes: \[([^\]]*)\]")
_OPERATOR = re.compile(r"torch\.ops\.([\w.]+)")
_CALLED = re.compile(r"\s*(?:\w+ = )?(\w+)(?:\.run)?\(")


@dataclass(frozen=True)
class RaisedCall:
    """A compiled call that raised."""

    code: types.CodeType
    """Dynamo's generated code, whose graph raised."""
    problem: Exception
    operator: str | None = None
    """The operation, ``aten.index.Tensor``, or the kernel, if the traceback shows it."""
    node: Any = None
    """Its node, if the graph that raised runs its nodes one by one."""
    nodes: tuple[str, ...] = ()
    """In Inductor's code: the failing kernel's operations, by their names in Dynamo's graph."""
    frames: tuple[tuple[str, int], ...] = ()
    """File and line of each frame in the graph's call, without Inductor's code, outermost first."""
    is_backward: bool = False
    """Whether its backward pass raised."""
    backward_nodes: tuple[Node, ...] = ()
    """In Inductor's code: the operation's nodes, with ``target`` and ``meta``; none if the code came from a cache."""


class RaisedCalls:
    """Notes compiled calls that raise, each exception once."""

    def __init__(
        self, report: Callable[[RaisedCall], None], codes: Callable[[], Iterable[types.CodeType]] = lambda: ()
    ) -> None:
        """Give each to ``report``; ``codes`` returns the generated code whose backward passes are noted."""
        self._report = report
        self._codes = codes
        self._stacks: WeakKeyDictionary[object, Mapping[str, str | None]] = WeakKeyDictionary()
        """By backward graph that torch has cached, the stack of each node: torch removes these."""
        self._patches = Patches("the record of compiled calls that raise")

    def install(self) -> None:
        """Note them from now on."""
        if self._patches.is_installed:
            return
        if RAISED_CALLS.problem is None:
            self._patches.before(*owner_of(_ENDS), self._call_ends)
        if RAISED_PASSES.problem is None:
            self._patches.before(*owner_of(_PASS_ENDS), self._pass_ends)
            self._patches.before(*owner_of(_CACHING), self._caches)

    def remove(self) -> None:
        """Stop noting them."""
        self._patches.remove()

    def _call_ends(self, *_: object) -> None:
        self._ends(calling_frame(), _raised)

    def _pass_ends(self, *_: object) -> None:
        self._ends(calling_frame(), self._raised_in_backward)

    def _caches(self, graph: GraphModule) -> None:
        self._stacks[graph] = {node.name: node.meta.get("stack_trace") for node in graph.graph.nodes}

    def _ends(self, frame: object, find: Callable[[Exception, list[types.TracebackType]], RaisedCall | None]) -> None:
        problem = sys.exc_info()[1]
        if not isinstance(problem, Exception):
            return
        traceback = problem.__traceback__
        if traceback is None or traceback.tb_frame is not frame:
            return  # the program handles an exception while it makes a call
        found = find(problem, list(_steps(traceback)))
        if found is not None:
            self._report(found)

    def _raised_in_backward(self, problem: Exception, steps: list[types.TracebackType]) -> RaisedCall | None:
        at = next((at for at, step in enumerate(steps) if step.tb_frame.f_code.co_name == _BACKWARD), None)
        function = None if at is None else steps[at].tb_frame.f_locals.get("CompiledFunction")
        code = None if function is None else next((one for one in self._codes() if _has_function(one, function)), None)
        if at is None or code is None:
            return None
        found = _raised_inside(RaisedCall(code, problem, is_backward=True), steps[at + 1 :])
        graph = getattr(getattr(function, "_lazy_backward_info", None), "bw_module", None)
        nodes = [] if graph is None else list(self._nodes(graph, found.nodes))
        name = ".".join((found.operator or "").split(".")[:2])
        own = [each for each in nodes if "." in name and name in target_name(each)]
        return replace(found, backward_nodes=tuple(own or nodes))

    def _nodes(self, graph: GraphModule, names: Collection[str]) -> Iterator[Node]:
        stacks = self._stacks.get(graph, {})
        for node in nodes_of(graph.graph):
            if node.name in names:
                stack = stacks.get(node.name)
                meta = {"stack_trace": stack} if stack else node.meta
                yield types.SimpleNamespace(target=node.target, meta=meta)


def _raised(problem: Exception, steps: list[types.TracebackType]) -> RaisedCall | None:
    at = next((at for at in range(len(steps) - 1, 0, -1) if _calls_graph(*steps[at - 1 : at + 1])), None)
    if at is None:
        return None
    return _raised_inside(RaisedCall(steps[at - 1].tb_frame.f_code, problem), steps[at + 1 :])


def _has_function(code: types.CodeType, function: object) -> bool:
    """Return whether the generated ``code`` calls a graph that leads to AOTAutograd's ``function``."""
    hooks = RAISED_PASSES.resolve(_CLEANUPS).get(code, ())
    left: list[object] = [each.scope.get(each.name) for each in hooks if each.name.startswith("__compiled_fn")]
    seen: set[int] = set()
    while left and len(seen) < _MAXIMUM_OBJECTS:
        one = left.pop()
        if one is function:
            return True
        # Torch 2.15 has ``apply`` of its function as a builtin method, earlier versions as a method.
        if id(one) in seen or not isinstance(one, types.FunctionType | types.MethodType | types.BuiltinMethodType):
            continue
        seen.add(id(one))
        left += one.__dict__.values() if isinstance(one, types.FunctionType) else [one.__self__]
        for cell in getattr(one, "__closure__", None) or ():
            with contextlib.suppress(ValueError):  # an empty cell
                left.append(cell.cell_contents)
    return False


def _raised_inside(found: RaisedCall, inside: list[types.TracebackType]) -> RaisedCall:
    """Complete ``found`` from the frames inside the graph's call."""
    files = tuple((step.tb_frame.f_code.co_filename, step.tb_lineno) for step in inside if not _is_of_inductor(step))
    found = replace(found, frames=files)
    for step in reversed(inside):
        path = step.tb_frame.f_code.co_filename
        if path.startswith("<eval_with_key>"):
            node = _node_of(step)
            return replace(found, operator=None if node is None else target_name(node), node=node)
        if _is_of_inductor(step):
            operator, nodes = _of_line(path, step.tb_lineno)
            return replace(found, operator=operator, nodes=nodes)
    return found


def _steps(traceback: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _calls_graph(outer: types.TracebackType, inner: types.TracebackType) -> bool:
    """Return whether ``outer`` is generated code, and ``inner`` torch's function around its graph."""
    names = [name for name in outer.tb_frame.f_code.co_names if name.startswith("__compiled_fn")]
    if not names or inner.tb_frame.f_code.co_name != "_fn":
        return False
    called = inner.tb_frame.f_locals.get("fn")
    graphs = (outer.tb_frame.f_globals.get(name) for name in names)
    return any(getattr(graph, "_torchdynamo_orig_callable", None) is called for graph in graphs)


def _is_of_inductor(step: types.TracebackType) -> bool:
    """Return whether a frame runs code that Inductor wrote."""
    return "assert_size_stride" in step.tb_frame.f_globals


def _node_of(step: types.TracebackType) -> Any:
    """Return the node that a line of an FX graph's code runs."""
    module: Any = step.tb_frame.f_locals.get("self")
    lines, begins = getattr(module, "_lineno_map", None), getattr(module, "_prologue_start", 0)
    number = (lines or {}).get(step.tb_lineno - begins)
    return None if number is None else next(islice(nodes_of(module.graph), number, None), None)


def _of_line(path: str, line: int) -> tuple[str | None, tuple[str, ...]]:
    """Return the operator and Dynamo's nodes of a line of Inductor's code, from its comment."""
    try:
        file = Path(path)
        lines = file.read_text(encoding="utf-8").splitlines() if file.stat().st_size < _MAXIMUM_BYTES else []
    except (OSError, ValueError):
        return None, ()
    if not 0 < line <= len(lines):
        return None, ()
    text = lines[line - 1]
    called = _CALLED.match(text)
    kernel = called and next(
        (at for at, each in enumerate(lines) if each.startswith(f"{called[1]} = async_compile.")), None
    )
    if called is not None and kernel is not None:
        return called[1], _nodes_above(lines, kernel)
    operator = _OPERATOR.search(text)
    if operator is None:
        return None, ()
    call = next((at for at in range(line - 1, -1, -1) if f"torch.ops.{operator[1]}(" in lines[at]), line - 1)
    return operator[1], _nodes_above(lines, call)


def _nodes_above(lines: list[str], at: int) -> tuple[str, ...]:
    """Return the nodes that the comment right above a line names."""
    while at > 0 and lines[at - 1].lstrip().startswith("#"):
        at -= 1
        match = _NODES.match(lines[at])
        if match is not None:
            return tuple(name.strip() for name in match[1].split(",") if name.strip())
    return ()
