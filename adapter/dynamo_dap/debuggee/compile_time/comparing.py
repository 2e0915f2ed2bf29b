"""How a compiled graph compares with Dynamo's, line by line of the user's: for the filter ``mismatch`` and commands.

``ComparingRun`` is for a run without a debugger (``dynamo-dap compare``): it compares the calls of the program as they
return, and writes each comparison to a file. Runs on the thread that makes the call, right after it.
"""

from __future__ import annotations

import contextlib
import linecache
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from dynamo_dap.debuggee.agent.user_code import is_torch_file
from dynamo_dap.debuggee.torch_internals.comparisons import (
    COMPARING,
    DECOMPOSITION,
    DYNAMO,
    Comparison,
    Difference,
    Fault,
    draws_its_own_numbers,
    name_of,
)
from dynamo_dap.debuggee.torch_internals.compile_hooks import HOOKS, CompileObserver, CompileResult, FrameCompile
from dynamo_dap.debuggee.torch_internals.dynamo_names import user_function_name
from dynamo_dap.debuggee.torch_internals.eager_runs import NotRun, run_in_fork
from dynamo_dap.debuggee.torch_internals.fake_evaluation import preserved_global_state
from dynamo_dap.debuggee.torch_internals.features import FeatureMissing
from dynamo_dap.debuggee.torch_internals.graph import target_name
from dynamo_dap.debuggee.torch_internals.graph_calls import GRAPH_CALLS, GRAPHS, CallObserver, GraphCall
from dynamo_dap.debuggee.torch_internals.real_values import limits_of_real_values
from dynamo_dap.debuggee.torch_internals.replays import ReplayedGraph, graph_of, place_of, places_of
from dynamo_dap.debuggee.torch_internals.retracing import CachedCall
from dynamo_dap.debuggee.torch_internals.tracing_hooks import NODES
from dynamo_dap.debuggee.torch_internals.variable_trackers import Place
from dynamo_dap.protocol.contract import ComparedLine, ComparisonBody, Deviation

NEEDED = (GRAPHS, NODES, COMPARING)
_SAME = "nobody's: nothing differs."


class CallsDifferByChance(Exception):
    """A call cannot be compared: Inductor draws other random numbers than the graph's operations do."""


@contextlib.contextmanager
def as_it_began(call: GraphCall) -> Iterator[None]:
    """Draw the random numbers that the call drew."""
    with preserved_global_state():
        for put_back in call.kept.random:
            put_back()
        yield


def outputs_of(call: GraphCall) -> list[Any]:
    """Return what the compiled graph returned."""
    return list(call.outputs) if isinstance(call.outputs, list | tuple) else [call.outputs]


def graph_of_call(call: GraphCall, cached_call: CachedCall) -> ReplayedGraph:
    """Trace the call again, and return its graph.

    Raises:
        NoRealValue: it is another graph than the one that was compiled.
    """
    graph = graph_of(cached_call, len(outputs_of(call)))
    graph.take_inputs(call.inputs)
    return graph


def compared(call: GraphCall, cached_call: CachedCall) -> Comparison:
    """Run the graph of a call as it is, and compare its outputs with those of the compiled graph.

    Raises:
        CallsDifferByChance: they are not to be compared.
        NoRealValue: the graph cannot be run.
    """
    if call.graph.draws and draws_its_own_numbers(cached_call.backend):
        raise CallsDifferByChance(
            "Inductor draws other random numbers than the operations of the graph do, unless fallback_random is set in "
            "its configuration"
        )
    graph = graph_of_call(call, cached_call)
    return Comparison(graph, outputs_of(call), cached_call.backend, call.kept.random)


def compare_with_python(call: GraphCall, cached_call: CachedCall, comparison: Comparison) -> str | None:
    """Compare Dynamo's graph with the function run as ordinary Python; return why not, if that cannot be."""
    if comparison.graph.has_drawn_in_python:
        return f"{user_function_name(cached_call.code)} is not run as ordinary Python: it would draw other numbers"
    try:
        comparison.by_line = run_in_fork(cached_call, comparison.reference, call.kept.random, is_torch_file)
    except (NotRun, FeatureMissing) as problem:
        return f"{user_function_name(cached_call.code)} is not run as ordinary Python: {problem}"
    return None


def fault_in(comparison: Comparison) -> Fault | None:
    """Return where results begin to differ, Dynamo's own faults first; None where nothing differs.

    Raises:
        Exception: whatever the backend raises.
    """
    found = comparison.fault_of_dynamo(is_torch_file)
    return found or (comparison.fault() if comparison.differs else None)


def body_of(
    call: GraphCall, cached_call: CachedCall, comparison: Comparison, fault: Fault | None, problem: str | None
) -> ComparisonBody:
    """Return what is told of a comparison.

    ``fault`` is None where nothing differs; ``problem`` says what is missing.
    """
    backend = name_of(cached_call.backend)
    verdict = _SAME if fault is None else whose_fault(fault, backend)
    lines_differ = fault is None and not all(each.is_same for each in comparison.by_node.values())
    if lines_differ:
        verdict = "nobody's in this call. Compiled once more so that each line's result is returned, some differ."
    place = None if fault is None or fault.node is None else place_of_fault(fault)
    return ComparisonBody(
        function=user_function_name(cached_call.code),
        compile_id=cached_call.compile_id,
        backend=backend,
        call=call.graph.calls,
        verdict=verdict,
        same=fault is None and not lines_differ,
        outputs=_deviation(comparison.worst),
        stage=None if fault is None else fault.stage or backend,
        path=None if place is None else place[0].path,
        line=None if place is None else place[0].line,
        lines=_lines(comparison),
        problem=problem,
    )


def place_of_fault(fault: Fault) -> tuple[Place, str] | None:
    """Return the line at fault, and its function."""
    if fault.line is None:
        return place_of(fault.node, is_torch_file)
    return next((each for each in places_of(fault.node) if (each[0].path, each[0].line) == fault.line), None)


def whose_fault(fault: Fault, backend: str) -> str:
    """Return whose fault a difference is, and what tells."""
    if fault.node is None:
        return f"the backend's ({backend}), but not again: compiled once more, the graph gives what it should."
    if fault.stage == DYNAMO:
        return "Dynamo's. Its graph gives something else than the function does when it runs as ordinary Python."
    if fault.stage is None:
        return f"the backend's ({backend}). What AOTAutograd hands to it gives what Dynamo's graph gives."
    if fault.stage == DECOMPOSITION:
        return "a decomposition's that Inductor asks for. Without it AOTAutograd gives what Dynamo's graph gives."
    return f"{fault.stage}'s. Compiled no further than that, the graph gives something else already."


def _lines(comparison: Comparison) -> list[ComparedLine]:
    lines: dict[tuple[str, int], ComparedLine] = {}
    for node in comparison.graph.nodes:
        places = [each for each in places_of(node) if not is_torch_file(each[0].path)] or places_of(node)[:1]
        if not node.op.startswith("call_") or not places:
            continue
        for place, function in reversed(places):
            of_python = comparison.by_line.get((place.path, place.line))
            # Lines that only call functions are told if what these give is another.
            if place is places[0][0] or (of_python is not None and not of_python.is_same):
                line = lines.setdefault((place.path, place.line), _line(place, function, of_python))
        line.operations.append(target_name(node))
        if node in comparison.by_node:
            line.compiled = _worse(line.compiled, _deviation(comparison.by_node[node]))
    return list(lines.values())


def _line(place: Place, function: str, of_python: Difference | None) -> ComparedLine:
    text = linecache.getline(place.path, place.line).strip()
    found = ComparedLine(place.path, place.line, function, text, [])
    found.dynamo = None if of_python is None else _deviation(of_python)
    return found


def _worse(one: Deviation | None, other: Deviation) -> Deviation:
    return other if one is None else max(one, other, key=_weight)


def _weight(each: Deviation) -> tuple[bool, float]:
    return not each.same, math.inf if each.largest is None else each.largest


def _deviation(difference: Difference) -> Deviation:
    return Deviation(difference.is_same, _number(difference.largest), _number(difference.rmse))


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


class ComparingRun(CallObserver, CompileObserver):
    """Compares the calls of a program that nobody debugs. Lives as long as the program."""

    def __init__(self, path: str, every: int, tell: Callable[[str], None]) -> None:
        """Comparisons are written to ``path``; ``every`` N-th call, the first alone if it is 0."""
        self._path = Path(path)
        self._every = every
        self._tell = tell
        self._told: set[str] = set()
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Observe from now on; torch has been imported."""
        for feature in NEEDED:
            if feature.problem is not None:
                self._tell(f"dynamo-dap: {feature.problem}\n")
                return
        HOOKS.want(self, (CompileObserver.compile_ended,))
        GRAPH_CALLS.want(self, limits_of_real_values().bytes)

    def compile_ended(self, compiling: FrameCompile, result: CompileResult, problem: BaseException | None) -> None:
        """Observe what was compiled, from its first call on."""
        if result.code is not None:
            GRAPH_CALLS.compiled(result.code)

    def returned(self, call: GraphCall) -> None:
        """Compare, and write down what was found."""
        wanted = call.graph.calls == 1 if self._every == 0 else (call.graph.calls - 1) % self._every == 0
        cached_call = call.as_cached_call() if wanted else None
        if cached_call is None:
            return
        try:
            with as_it_began(call):
                comparison = compared(call, cached_call)
                comparison.look_at_nodes()
                problem = compare_with_python(call, cached_call, comparison)
                body = body_of(call, cached_call, comparison, fault_in(comparison), problem)
        except Exception as problem:  # noqa: BLE001  (whatever it is, the program goes on)
            self._cannot(cached_call, problem)
            return
        with self._lock, self._path.open("ab") as file:
            file.write(msgspec.json.encode(body) + b"\n")

    def _cannot(self, cached_call: CachedCall, problem: Exception) -> None:
        name = user_function_name(cached_call.code)
        reason = (str(problem).strip().splitlines() or [""])[0]
        if not isinstance(problem, CallsDifferByChance):
            reason = f"{type(problem).__name__}: {reason}"
        text = f"dynamo-dap: calls of {name} are not compared: {reason}\n"
        if text not in self._told:
            self._told.add(text)
            self._tell(text)
