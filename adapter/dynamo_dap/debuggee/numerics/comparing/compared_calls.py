"""Compares a compiled graph with Dynamo's graph, and makes the reports for the filter ``mismatch`` and commands.

Runs on the thread that makes the call, right after the call. Gradients are compared on the thread of the backward pass.
"""

from __future__ import annotations

import contextlib
import linecache
import math
from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from dynamo_dap.debuggee.agent.user_code import is_debugger_file, is_torch_file
from dynamo_dap.debuggee.numerics.comparing.causes import STAGE_TEXTS, cause_of, cause_of_gradient, operation_text
from dynamo_dap.debuggee.numerics.comparing.output_facts import FACTS, ObservedOutputs, records_gradients
from dynamo_dap.debuggee.numerics.faults.comparisons import COMPARING, Comparison, EagerRaises, Fault
from dynamo_dap.debuggee.numerics.faults.eager_runs import (
    NotRun,
    problem_in_python,
    run_in_fork,
    state_after,
    visits_that_store,
)
from dynamo_dap.debuggee.numerics.faults.stage_search import DYNAMO, ladder
from dynamo_dap.debuggee.numerics.faults.storage_sizes import SIZES, fault_in_sizes
from dynamo_dap.debuggee.numerics.faults.stored_state import (
    RETURNED,
    Before,
    Roots,
    StoredDifference,
    differences,
    roots_of,
)
from dynamo_dap.debuggee.numerics.gradients.gradient_comparisons import GradientComparison
from dynamo_dap.debuggee.numerics.gradients.kept_backward import KeptBackward
from dynamo_dap.debuggee.numerics.graphs.differences import Difference, difference
from dynamo_dap.debuggee.numerics.graphs.memory_runs import raises_by
from dynamo_dap.debuggee.recording.function_names import name_of_call
from dynamo_dap.debuggee.replay.graph_calls import GraphCall
from dynamo_dap.debuggee.replay.replayed_graph import ReplayedGraph, graph_of, place_of, places_of
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import draws_of, is_compiled_backward
from dynamo_dap.debuggee.torch_api.compiles.backends import draws_its_own_numbers, name_of
from dynamo_dap.debuggee.torch_api.compiles.raised_calls import RaisedCall
from dynamo_dap.debuggee.torch_api.features import FeatureMissing
from dynamo_dap.debuggee.torch_api.graphs.compiled_graphs import GRAPHS
from dynamo_dap.debuggee.torch_api.graphs.graph import operation_name, target_name
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue, has_own_memory
from dynamo_dap.debuggee.torch_api.graphs.transforms import TRANSFORMS
from dynamo_dap.debuggee.torch_api.isolation import preserved_global_state, switches
from dynamo_dap.debuggee.torch_api.objects import Node
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall
from dynamo_dap.debuggee.torch_api.traced.traced_paths import PATHS, NotValid
from dynamo_dap.debuggee.torch_api.traced.tracing_hooks import NODES
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place
from dynamo_dap.protocol.requests.comparisons import (
    GRADIENTS,
    NOTHING_DIFFERS,
    ComparedLine,
    ComparisonBody,
    Deviation,
    JudgedStage,
)
from dynamo_dap.protocol.texts import first_line_of, named_first_line_of

NEEDED = (GRAPHS, NODES, COMPARING)
_MAXIMUM_STORED = 8
"""The maximum number of differing stored values that are examined."""
_DYNAMOS = "eager"
"""The name of Dynamo's own trace among the stages of ``bisect``."""


class CallsDifferByChance(Exception):
    """A call cannot be compared: Inductor draws its own random numbers, which differ from eager's."""


@contextlib.contextmanager
def with_initial_randomness(call: GraphCall) -> Iterator[None]:
    """Restore the call's initial random state inside this context, so that runs draw the same numbers."""
    with preserved_global_state():
        for restore in call.kept.random:
            restore()
        yield


def outputs_of(call: GraphCall) -> list[object]:
    """Return the compiled graph's outputs; none if it raised an exception."""
    if call.problem is not None:
        return []
    return list(call.outputs) if isinstance(call.outputs, list | tuple) else [call.outputs]


def graph_of_call(call: GraphCall, cached_call: CachedCall, *, with_transforms: bool = False) -> ReplayedGraph:
    """Replay the call, and return its graph with the call's inputs.

    Raises:
        NoRealValue: the graph differs from the compiled one, or is a backward pass of compiled autograd.
    """
    if is_compiled_backward(cached_call.code):
        raise NoRealValue(
            "compiled autograd made this graph: its inputs are gone, a second run would add gradients twice"
        )
    count = None if call.problem is not None else len(outputs_of(call))
    graph = graph_of(cached_call, count, with_transforms=with_transforms)
    graph.take_inputs(call.inputs)
    return graph


def compared(call: GraphCall, cached_call: CachedCall) -> Comparison:
    """Run Dynamo's graph of a call eagerly, and compare its outputs with those of the compiled graph.

    Raises:
        CallsDifferByChance: the graph draws random numbers that Inductor draws differently.
        NoRealValue: the graph cannot be run.
    """
    if call.graph.draws and draws_its_own_numbers(cached_call.backend):
        raise CallsDifferByChance(
            "Inductor's random numbers differ from eager's: set torch._inductor.config.fallback_random to compare"
        )
    graph = graph_of_call(call, cached_call, with_transforms=TRANSFORMS.problem is None)
    may_fail = call.problem is not None
    return Comparison(graph, outputs_of(call), cached_call.backend, call.kept.random, may_fail=may_fail)


def compared_if_valid(call: GraphCall, cached_call: CachedCall) -> Comparison | NotValid:
    """Return the result of ``compared``, or the reason why the call's cache entry is not valid for the call.

    Raises:
        CallsDifferByChance: see ``compared``.
        NoRealValue: see ``compared``.
    """
    try:
        comparison = compared(call, cached_call)
    except NoRealValue:
        # The replay of a call with a wrong cache entry gives another graph, which cannot be compared.
        invalid = PATHS.why_not_valid(cached_call)
        if invalid is None:
            raise
        return invalid
    return PATHS.why_not_valid(cached_call, comparison.graph.module.graph) or comparison


def find_fault(call: GraphCall, cached_call: CachedCall, comparison: Comparison) -> tuple[Fault | None, str | None]:
    """Return the call's first difference, if any, and why a part of the call was not compared.

    Faults of Dynamo come before those of later stages.

    Raises:
        Exception: whatever the backend raises.
    """
    found, missing = _fault_in_values(call, cached_call, comparison)
    if found is None and call.problem is None:
        try:
            states = [*switches(), *call.kept.random]
            kept = KeptBackward.of(call, cached_call, comparison.graph, states)
            expected = ObservedOutputs(kept, with_gradients=records_gradients())
            found = expected.fault(outputs_of(call), call.inputs, cached_call.backend)
        except Exception as problem:  # noqa: BLE001  (whatever an operation of the program raises)
            comparison.not_compared.append(f"{FACTS}: {first_line_of(problem)}")
    if found is None and call.problem is None:
        found = comparison.fault_in_random_state(call.kept.random_after)
    return found, missing


def _fault_in_values(
    call: GraphCall, cached_call: CachedCall, comparison: Comparison
) -> tuple[Fault | None, str | None]:
    if (of_operator := comparison.fault_of_operator()) is not None:
        return of_operator, None
    function = name_of_call(cached_call)
    run, missing = None, None
    roots = roots_of(cached_call, comparison.graph.codes)
    before = Before(roots, list(cached_call.memory))
    try:
        if comparison.graph.has_drawn_in_python and draws_of(cached_call.frame) is None:
            raise NotRun("its random numbers would differ")
        run = run_in_fork(cached_call, comparison.reference, call.kept.random, is_torch_file, before)
        comparison.by_line = run.by_line
    except (NotRun, FeatureMissing) as problem:
        missing = f"{function} is not run as ordinary Python: {problem}"
    if run is not None:
        comparison.is_python_run = True
        comparison.runs.append("the function as ordinary Python, in a fork")
        comparison.reference.runs.problems.update(dict.fromkeys(run.problems))
    found = comparison.fault_of_dynamo(is_torch_file) or (comparison.fault() if comparison.differs else None)
    if found is None and call.problem is None:
        try:
            found = fault_in_sizes(comparison, call.inputs, outputs_of(call), call.kept.random)
        except Exception as problem:  # noqa: BLE001  (whatever an operation of the program raises)
            comparison.not_compared.append(f"{SIZES}: {first_line_of(problem)}")
    if found is None:
        try:
            found = comparison.fault_in_memory(call.inputs)
        except Exception as problem:  # noqa: BLE001  (whatever an operation of the program raises)
            missing = missing or f"what {function} writes to its inputs is not compared: {problem}"
    if found is not None or run is None:
        return found, missing
    if comparison.uninitialized is not None and comparison.uninitialized.is_returned:
        return None, f"what {function} stores is not compared: it returns memory that no operation has set"
    try:
        compiled = state_after(cached_call, before)
        comparison.not_compared += dict.fromkeys([*run.state[1], *compiled[1]])
        left = list(islice(differences(run.state, compiled, before, comparison.is_stored_right), _MAXIMUM_STORED))
        return _fault_in_stored(call, cached_call, before.roots, left) if left else None, None
    except NotRun as problem:
        return None, f"what {function} stores is not compared: {problem}"


def _fault_in_stored(call: GraphCall, cached_call: CachedCall, roots: Roots, left: Sequence[StoredDifference]) -> Fault:
    wanted = [(each.root, each.steps) for each in left if each.root != RETURNED]
    visits, end = visits_that_store(cached_call, call.kept.random, _is_passed_over, roots, wanted)
    stored = [each for each in left if each.root != RETURNED]
    known = [(each, visit) for each, visit in zip(stored, visits, strict=True) if visit is not None]
    what, where = known[0] if known else (left[0], end)
    line = None if where is None else (where.path, where.line)
    compiled, python = what.values
    are_alike = all(map(has_own_memory, what.values)) and compiled.shape == python.shape
    how = difference(python, compiled) if are_alike else Difference(math.inf, math.inf, False)
    return Fault(None, how, DYNAMO, compiled, line, stored=what, visit=1 if where is None else where.number)


def _same(comparison: Comparison) -> str:
    if comparison.worst.reason:
        return f"{comparison.worst.reason}."
    if not comparison.zeros:
        return NOTHING_DIFFERS
    return f"the signs of zeros differ: elements that are 0.0 in one graph and -0.0 in the other: {comparison.zeros}."


def _is_passed_over(path: str) -> bool:
    return is_torch_file(path) or is_debugger_file(path)


def body_of(
    call: GraphCall, cached_call: CachedCall, comparison: Comparison, fault: Fault | None, problem: str | None
) -> ComparisonBody:
    """Return the report on a comparison.

    ``fault`` is None if nothing differs. ``problem`` says what was not compared, and why.
    """
    backend = name_of(cached_call.backend)
    verdict = _same(comparison) if fault is None else cause_of(fault, backend)
    lines_differ = fault is None and not all(each.is_same for each in comparison.by_node.values())
    if lines_differ:
        verdict = "some lines differ when the graph is compiled again, to return the results of all operations."
    undecided = 0 if fault is not None or lines_differ else sum(each.undecided for each in comparison.of_outputs)
    if undecided:
        verdict = f"rounding decides integers of the results, and no run gives {undecided} of the compiled ones."
    place = None if fault is None else line_at_fault(fault)
    return ComparisonBody(
        function=name_of_call(cached_call),
        compile_id=cached_call.compile_id,
        backend=backend,
        call=call.graph.calls,
        token=call.token,
        verdict=verdict,
        same=fault is None and not undecided,
        compared=not undecided,
        outputs=_deviation(comparison.worst),
        stage=None if fault is None else fault.stage or backend,
        part=None if fault is None else fault.part,
        stages=_judged(comparison, fault),
        operation=_operation(fault),
        of_operation=None if fault is None or _operation(fault) is None else _deviation(fault.difference),
        path=None if place is None else place[0],
        line=None if place is None else place[1],
        lines=_lines(comparison, fault),
        problem=problem,
        below_dynamo=fault is None and problem is not None and not comparison.is_python_run,
        evidence=list(dict.fromkeys(comparison.runs)),
        zeros=comparison.zeros,
        not_compared=[
            *comparison.not_compared,
            *comparison.reference.runs.problems,
            *([GRADIENTS] if needs_gradients(comparison.outputs) else []),
        ],
    )


def _judged(comparison: Comparison, fault: Fault | None) -> list[JudgedStage]:
    """Return the stages that were judged. Dynamo's trace is among them if the function ran as ordinary Python."""
    if fault is None:
        return []
    if fault.stage == DYNAMO:
        return [JudgedStage(_DYNAMOS, right=False)]
    is_traced_right = bool(comparison.by_line) and all(each.is_same for each in comparison.by_line.values())
    return [*([JudgedStage(_DYNAMOS, right=True)] if fault.judged and is_traced_right else []), *fault.judged]


def _operation(fault: Fault | None) -> str | None:
    """Return the operation whose result differs; None if the difference is not in the value of a result."""
    is_value = fault is not None and fault.node is not None and fault.stored is None and fault.observed is None
    return operation_text(fault.node) if fault is not None and is_value else None


def needs_gradients(outputs: Sequence[object]) -> bool:
    """Return whether a backward pass can reach any of ``outputs``."""
    return any(getattr(each, "requires_grad", False) for each in outputs)


def body_of_backward(call: KeptBackward, comparison: GradientComparison, fault: Fault | None) -> ComparisonBody:
    """Return the report on a backward pass; ``fault`` is None if nothing differs."""
    worst = comparison.worst
    place = None if fault is None or fault.node is None else line_at_fault(fault)
    body = ComparisonBody(
        function=call.function,
        compile_id=call.compile_id,
        backend=name_of(call.backend),
        call=call.number,
        token=call.token,
        verdict=NOTHING_DIFFERS,
        same=fault is None,
        outputs=Deviation(same=True) if worst is None else _deviation(worst.difference),
        stage=None if fault is None else fault.stage or name_of(call.backend),
        part=None if fault is None else fault.part,
        stages=[] if fault is None else list(fault.judged),
        operation=_operation(fault),
        of_operation=None if fault is None or _operation(fault) is None else _deviation(fault.difference),
        path=None if place is None else place[0],
        line=None if place is None else place[1],
        evidence=list(dict.fromkeys(comparison.evidence)),
        not_compared=list(comparison.not_compared),
        is_backward=True,
    )
    if fault is not None and worst is not None:
        body.verdict = cause_of_gradient(fault, worst, name_of(call.backend))
    lines: dict[tuple[str, int], ComparedLine] = {}
    for (_, node), how in comparison.by_use.items():
        where = place_of(node, is_torch_file)
        if where is not None:
            line = lines.setdefault((where[0].path, where[0].line), _line(*where, None))
            if operation_name(node) not in line.operations:
                line.operations.append(operation_name(node))
            line.gradient = _worse(line.gradient, _deviation(how))
    body.lines = [lines[key] for key in sorted(lines)]
    return body


def body_of_lost_backward(call: KeptBackward, reason: str) -> ComparisonBody:
    """Return the report on a backward pass that could not be compared."""
    return ComparisonBody(
        function=call.function,
        compile_id=call.compile_id,
        backend=name_of(call.backend),
        call=call.number,
        token=call.token,
        verdict=reason,
        same=False,
        outputs=Deviation(same=True),
        compared=False,
        is_backward=True,
    )


def body_of_raised_backward(call: KeptBackward, raised: RaisedCall, eager: BaseException | None) -> ComparisonBody:
    """Return the report on a backward pass that raised in the compiled graph.

    ``eager`` is the exception that the same backward pass raises in eager, if any.
    """
    problem, backend = named_first_line_of(raised.problem), name_of(call.backend)
    node = raised.node or (raised.backward_nodes[0] if len(raised.backward_nodes) == 1 else None)
    place = None if node is None else place_of(node, is_torch_file)
    is_alike = eager is not None and named_first_line_of(eager) == problem
    if is_alike:
        verdict = f"your code. Eager's backward pass also raises {problem}"
    elif eager is None:
        verdict = f"the backend ({backend}). Its backward graph raises {problem}. Dynamo's graph raises nothing."
    else:
        verdict = f"the compiled backward pass raises {problem}, and eager's {named_first_line_of(eager)}"
    return replace(
        body_of_lost_backward(call, verdict),
        same=is_alike,
        compared=is_alike or eager is None,
        outputs=Deviation(same=is_alike),
        stage=None if eager is not None else backend,
        operation=raised.operator,
        path=None if place is None else place[0].path,
        line=None if place is None else place[0].line,
        evidence=["the program's backward pass", "Dynamo's graph, differentiated"],
    )


def body_without_graph(
    call: GraphCall, cached_call: CachedCall, verdict: str, *, stage: str | None = None, line: Place | None = None
) -> ComparisonBody:
    """Return the report on a call whose graphs were not compared; ``stage`` is the wrong stage, if known."""
    return ComparisonBody(
        function=name_of_call(cached_call),
        compile_id=cached_call.compile_id,
        backend=name_of(cached_call.backend),
        call=call.graph.calls,
        token=call.token,
        verdict=verdict,
        same=False,
        compared=stage is not None,
        outputs=Deviation(stage is None),
        stage=stage,
        path=None if line is None else line.path,
        line=None if line is None else line.line,
    )


def body_of_missing_exception(call: GraphCall, cached_call: CachedCall, found: EagerRaises) -> ComparisonBody:
    """Return the report on a compiled call that returned, though an operation of its graph raises in eager.

    Raises:
        NoRealValue: it is not proven that ordinary Python raises the exception, too.
    """
    try:
        in_python = problem_in_python(cached_call, call.kept.random)
    except NotRun as problem:
        function = name_of_call(cached_call)
        raise NoRealValue(f"{found}; {function} is not run as ordinary Python: {problem}") from None
    if in_python != found.problem:
        raise found
    backend = cached_call.backend
    found_in = ladder(backend, lambda earlier: raises_by(earlier, found.graph, call.kept.random, found.problem))
    place = place_of(found.node, is_torch_file)
    stage = found_in.stage or name_of(backend)
    who = f"the backend ({stage})" if found_in.stage is None else STAGE_TEXTS.get(stage, stage)
    verdict = f"{who}. It raises nothing where eager raises {found.problem}"
    body = body_without_graph(call, cached_call, verdict, stage=stage, line=None if place is None else place[0])
    runs = ["Dynamo's graph, operation by operation", "the function as ordinary Python, in a fork", *found_in.runs]
    return replace(body, operation=target_name(found.node), stages=list(found_in.judged), evidence=runs)


def body_of_failed_compile(
    function: str, compile_id: str, backend: str, verdict: str, *, stage: str | None, line: Place | None
) -> ComparisonBody:
    """Return the report on a compile that raised; ``stage`` is the wrong stage, if known."""
    return ComparisonBody(
        function=function,
        compile_id=compile_id,
        backend=backend,
        call=0,
        verdict=verdict,
        same=False,
        compared=stage is not None,
        outputs=Deviation(same=stage is None),
        stage=stage,
        path=None if line is None else line.path,
        line=None if line is None else line.line,
    )


def line_at_fault(fault: Fault) -> tuple[str, int] | None:
    """Return the file and line of the fault."""
    if fault.node is None:
        return fault.line
    place = place_of_fault(fault)
    return None if place is None else (place[0].path, place[0].line)


def place_of_fault(fault: Fault) -> tuple[Place, str] | None:
    """Return the line of a fault in an operation, and the line's function."""
    if fault.line is None:
        return place_of(fault.node, is_torch_file)
    return next((each for each in places_of(fault.node) if (each[0].path, each[0].line) == fault.line), None)


def _lines(comparison: Comparison, fault: Fault | None) -> list[ComparedLine]:
    lines: dict[tuple[str, int], ComparedLine] = {}
    undecided: list[ComparedLine] = []
    for node in _nodes(comparison, fault):
        places = [each for each in places_of(node) if not is_torch_file(each[0].path)] or places_of(node)[:1]
        if not node.op.startswith("call_") or not places:
            continue
        for place, function in reversed(places):
            of_python = comparison.by_line.get((place.path, place.line))
            # List a line that only calls functions if their results differ there.
            if place is places[0][0] or (of_python is not None and not of_python.is_same):
                line = lines.setdefault((place.path, place.line), _line(place, function, of_python))
        line.operations.append(operation_name(node))
        if node in comparison.by_node:
            line.compiled = _worse(line.compiled, _deviation(comparison.by_node[node]))
            if comparison.by_node[node].undecided:
                undecided.append(line)
    for line in undecided:
        if line.compiled is not None and line.compiled.same:
            line.compiled = None
    if fault is not None and fault.stored is not None and fault.line is not None:
        place = Place(*fault.line, 1)
        line = lines.setdefault(fault.line, _line(place, _function_at(comparison, place), None))
        line.dynamo = _deviation(fault.difference)
    at_fault = None if fault is None else lines.get(line_at_fault(fault) or ("", 0))
    if fault is not None and at_fault is not None and not _is_any_different(at_fault):
        # The line's values are right. The difference is in written memory, strides, shared memory or gradients.
        at_fault.compiled = replace(_deviation(fault.difference), same=False)
    return list(lines.values())


def _nodes(comparison: Comparison, fault: Fault | None) -> list[Node]:
    """Return the graph's nodes; before a wrong higher-order operator, insert the compared nodes of its body."""
    nodes = list(comparison.graph.nodes)
    if fault is not None and fault.within is not None:
        known, position = set(nodes), nodes.index(fault.within)
        nodes[position:position] = [each for each in comparison.by_node if each not in known]
    return nodes


def _is_any_different(line: ComparedLine) -> bool:
    return any(each is not None and not each.same for each in (line.compiled, line.dynamo))


def _function_at(comparison: Comparison, place: Place) -> str:
    """Return the name of the innermost function that has the line."""
    within = [
        code
        for code in comparison.graph.codes
        if code.co_filename == place.path and place.line in {line for _, _, line in code.co_lines()}
    ]
    return within[-1].co_name if within else ""


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
    error, in_eager = (
        None if each is None else _number(each) for each in (difference.error, difference.reference_error)
    )
    largest, rmse = _number(difference.largest), _number(difference.rmse)
    return Deviation(difference.is_same, largest, rmse, error, in_eager, difference.rounding)


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
