"""Computes the gradients of all nodes of Dynamo's graph from the real gradients of its outputs.

``OutputGradients`` gets the outputs' gradients in the program's backward pass, by hooks on the program's autograd
graph. The hooks change nothing that the program can see. ``GradientRun`` then runs the call's graph again with
autograd, on detached inputs and with the call's random numbers, and differentiates it from the outputs. Runs on the
thread that runs the hook. For tensors on the CPU that is the thread that called ``backward()``, else one of autograd's
threads.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.numerics.graphs.bodies import calling, run_observed
from dynamo_dap.debuggee.numerics.graphs.not_finite import BadOperation, made_in_body
from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.graphs.graph import target_name, user_place
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue, isolated_from_program
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import gradient_node_of, is_tensor
from dynamo_dap.debuggee.torch_api.isolation import switches
from dynamo_dap.debuggee.torch_api.objects import GradientNode, GraphModule, Node, Tensor
from dynamo_dap.debuggee.torch_api.skipping import never_compile
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import storage_of
from dynamo_dap.debuggee.wrapping.patches import Patches
from dynamo_dap.protocol.texts import named_first_line_of

_EDGE = "torch.autograd.graph:get_gradient_edge"
_TASK = "torch._C:_current_graph_task_id"
_ENGINE = "torch.autograd:Variable._execution_engine.queue_callback"
_MAP = "torch.fx.node:map_arg"

GRADIENTS = Feature("gradients of what a compiled call computes", _EDGE, _TASK, _ENGINE, _MAP)

P = ParamSpec("P")
Gradients = Sequence[Any]
"""The gradient of each output of a graph; None for an output whose gradient has not arrived."""


def current_pass() -> int:
    """Return autograd's number of the backward pass on this thread."""
    number: int = GRADIENTS.resolve(_TASK)()
    return number


def at_end_of_pass(call: Callable[[], None]) -> None:
    """Call a function at the end of the backward pass on this thread."""
    GRADIENTS.resolve(_ENGINE)(call)


_HOOKS = Patches(GRADIENTS.name)


def guarded_in_backward(hook: Callable[P, None], patches: Patches = _HOOKS) -> Callable[P, None]:
    """Return ``hook`` for autograd to call: ``backward()`` would raise its exceptions, and Dynamo could compile it.

    An object must not keep the result for its own method: the cycle would hold the call's tensors until the next
    garbage collection.
    """
    guarded = patches.guarded(hook, None)
    never_compile(guarded)
    return guarded


def is_backward_compiled() -> bool:
    """Return whether compiled autograd is on: it would compile the hooks, too."""
    torch = sys.modules["torch"]
    module = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(torch._dynamo.config.compiled_autograd or getattr(module, "compiled_autograd_enabled", False))


class OutputGradients:
    """The gradients of a call's outputs, reported once in each backward pass that reaches the call."""

    def __init__(
        self, outputs: Sequence[object], inputs: Sequence[object], report: Callable[[Gradients], None]
    ) -> None:
        """Call ``report`` once all gradients of the outputs that a backward pass reaches have arrived.

        If every pass reaches the same output last, that is before the pass enters the call, else at the end of the
        pass. ``report`` must handle its own exceptions. The program's autograd graph keeps ``report`` alive, so that
        ``report`` must not refer to any node of that graph.
        """
        for method in (OutputGradients._on_gradients, OutputGradients._finish):
            never_compile(method)
        self._report = report
        on_gradients = guarded_in_backward(self._on_gradients)
        ends = [node for each in inputs if (node := gradient_node_of(each)) is not None]
        found = _Places(outputs, ends)
        self._places = found.places
        self._last = found.last
        self.included = found.included
        """For each output, the indices of the other outputs whose gradients flow into its own: see ``GradientRun``."""
        self._arrived: dict[int, dict[int, tuple[object, ...]]] = {}
        self._handles = [
            node.register_prehook(functools.partial(on_gradients, at)) for at, node in enumerate(found.nodes)
        ]

    @property
    def are_expected(self) -> bool:
        """Whether any output can get a gradient."""
        return bool(self._handles)

    def close(self) -> None:
        """Stop reporting."""
        while self._handles:
            self._handles.pop().remove()
        self._arrived.clear()

    def _on_gradients(self, at: int, gradients: tuple[object, ...]) -> None:
        task = current_pass()
        if task not in self._arrived:
            self._arrived[task] = {}
            if self._last != at:  # in case the pass does not reach the last output
                at_end_of_pass(functools.partial(guarded_in_backward(self._finish), task))
        self._arrived[task][at] = gradients
        if self._last == at:
            self._finish(task)

    def _finish(self, task: int) -> None:
        arrived = self._arrived.pop(task, None)
        if arrived is not None:
            self._report(
                [
                    None if place is None or place[0] not in arrived else arrived[place[0]][place[1]]
                    for place in self._places
                ]
            )


class _Places:
    """The nodes of some tensors in autograd's graph, and which of these nodes a backward pass from another reaches."""

    def __init__(self, tensors: Sequence[Any], ends: Sequence[GradientNode]) -> None:
        """Find the nodes of ``tensors``; follow the graph up to the nodes ``ends`` only."""
        self.nodes: list[GradientNode] = []
        self.places: list[tuple[int, int] | None] = []
        """For each tensor, the index of its node in ``nodes``, and the tensor's number among the node's outputs."""
        for each in tensors:
            node = gradient_node_of(each)
            if node is not None and node not in self.nodes:
                self.nodes.append(node)
            self.places.append(None if node is None else (self.nodes.index(node), each.output_nr))
        reachable = self._reachable(set(ends))
        others = set(range(len(self.nodes)))
        self.last = next(
            (at for at in others if all(at in {node for node, _ in reachable[each]} for each in others - {at})), None
        )
        """The index of the node that every backward pass reaches last; None if there is no such node."""
        self.included = [
            frozenset(
                other
                for other, where in enumerate(self.places)
                if place is not None and where is not None and where[0] != place[0] and place in reachable[where[0]]
            )
            for place in self.places
        ]
        """For each tensor, the indices of the tensors whose backward passes reach it."""

    def _reachable(self, ends: set[GradientNode]) -> list[set[tuple[int, int]]]:
        if len(self.nodes) < 2:
            return [set() for _ in self.nodes]
        place = {node: at for at, node in enumerate(self.nodes)}
        direct = [_next_of(node, place, ends) for node in self.nodes]
        found: list[set[tuple[int, int]]] = []
        for at in range(len(self.nodes)):
            seen: set[tuple[int, int]] = set()
            left = set(direct[at])
            while left:
                each = left.pop()
                if each not in seen:
                    seen.add(each)
                    left |= direct[each[0]]
            found.append(seen)
        return found


def _next_of(node: GradientNode, place: Mapping[GradientNode, int], ends: set[GradientNode]) -> set[tuple[int, int]]:
    """Return the first nodes of ``place`` on each path of a backward pass from ``node``.

    Each is the node's index, with the number of the output that the pass reaches.
    """
    found: set[tuple[int, int]] = set()
    seen: set[object] = set()
    left = list(node.next_functions)
    while left:
        each, number = left.pop()
        if each in place:
            found.add((place[each], number))
        elif each is not None and each not in seen and each not in ends:
            seen.add(each)
            left += each.next_functions
    return found


class GivenTensors:
    """Weak references to a call's input tensors, with the versions that these had in the call."""

    def __init__(self, inputs: Sequence[object]) -> None:
        """Note the present versions of a graph's ``inputs``."""
        tensors = [each for each in inputs if is_tensor(each) and not each.is_inference()]
        self._versions = [(weakref.ref(each), each._version) for each in tensors]

    def tensors(self) -> list[Tensor]:
        """Return the tensors that still exist."""
        return [each for reference, _ in self._versions if (each := reference()) is not None]

    def are_changed(self, memory: Mapping[object, object]) -> bool:
        """Return whether an input was written to since. Ignore inputs in ``memory``, whose contents were copied."""
        return any(
            each._version != version and storage_of(each) not in memory
            for reference, version in self._versions
            if (each := reference()) is not None
        )


@dataclass
class KeptInput:
    """The kept input of one placeholder in a call's graph."""

    name: str
    value: Any
    """The input. A tensor is detached and shares the program's memory, or is a copy if the call writes to it."""
    requires_grad: bool = False
    version: int | None = None
    """The version that the program's tensor had. None for a copy, and for an inference tensor, which has none."""
    is_parameter: bool = False

    @classmethod
    def of(cls, name: str, given: object, *, is_written: bool) -> KeptInput:
        """Keep ``given``, or a copy if the call writes to it (``is_written``).

        Raises:
            NoRealValue: the input is a subclass of tensor.
        """
        torch = sys.modules["torch"]
        if not isinstance(given, torch.Tensor):
            return cls(name, given)
        if not is_exactly(given, (torch.Tensor, torch.nn.Parameter)):
            raise NoRealValue(f"the input '{name}' is a {type(given).__name__}")
        with torch._C.DisableTorchFunction():
            detached = given.detach()
            if is_written:
                return cls(name, detached.clone(), given.requires_grad)
            version = None if given.is_inference() else given._version
            return cls(name, detached, given.requires_grad, version, isinstance(given, torch.nn.Parameter))

    @property
    def bytes(self) -> int:
        """The size of the memory that only this object keeps alive: 0 for a parameter, which the program keeps."""
        if self.is_parameter or not isinstance(self.value, sys.modules["torch"].Tensor):
            return 0
        return int(self.value.untyped_storage().nbytes())

    def now(self) -> object:
        """Return the input as it was in the call.

        Raises:
            NoRealValue: the program has changed the tensor since.
        """
        if self.version is not None and self.value._version != self.version:
            raise NoRealValue(f"the input '{self.name}' was changed in place after the call")
        return self.value


class DifferentiableGraph(Protocol):
    """A graph that can be run with autograd on."""

    @property
    def nodes(self) -> Sequence[Node]:
        """All nodes except the output."""

    @property
    def outputs(self) -> Sequence[Any]:
        """The graph's results: nodes, or constants."""

    @property
    def written(self) -> Set[object]:
        """The placeholders whose tensors the graph overwrites."""

    def attribute(self, target: str) -> Any:
        """Return a parameter, buffer, constant or submodule of the graph."""


class GradientRun:
    """A repeated run of a graph, for its nodes' gradients."""

    def __init__(
        self,
        graph: DifferentiableGraph,
        inputs: Mapping[Node, KeptInput],
        states: Sequence[Callable[[], None]],
        arrived: Gradients,
        included: Sequence[frozenset[int]],
        ran: Callable[[Node, Mapping[Node, object]], None] | None = None,
        ran_in_body: Callable[[str, Node, Mapping[Node, object]], None] | None = None,
    ) -> None:
        """Run the graph; ``states`` restore the random states and switches with which the call began.

        ``arrived`` has the outputs' gradients. If the program's autograd graph computes output B from output A, the
        gradient of A contains that of B, and ``included`` has B for A. That happens if B is a view of A, or if the
        backend runs the graph's operations under autograd, as "eager" does.

        ``ran`` and ``ran_in_body`` are called with each node that has run, and the results so far.

        Raises:
            NoRealValue: the graph cannot run with autograd; the text says why.
        """
        self._found: dict[tuple[str, int], object] = {}
        self._edges: dict[tuple[str, int], object] = {}
        """Autograd edges by a node's name and a number: that of the node itself, or of one that wrote to its memory."""
        self._written: dict[str, list[int]] = {}
        """For each node's name, the numbers with which it is in ``_edges``."""
        self._numbers = {node.name: number for number, node in enumerate(graph.nodes)}
        self._alive: dict[object, list[tuple[str, weakref.ref[Tensor], int]]] = {}
        """By memory: the nodes whose tensors use the memory and need gradients, with the tensors and their versions."""
        self._bytes = 0
        self._known: dict[object, object] = {}
        """Gradients of outputs that are known from ``arrived``, by edge."""
        self._states = states
        self._of_pass = switches()
        """Restores the switches of the backward pass, in which autocast is usually off."""
        self._ran = ran
        self._ran_in_body = ran_in_body
        """Also gets a unique name for each node in the body of an operator."""
        self._is_forward = True
        self.bodies: dict[str, GraphModule] = {}
        """The bodies of higher-order operators that have run, by the target of their ``get_attr`` node."""
        self.results_in_bodies: dict[tuple[str, int], dict[str, str]] = {}
        """By file and line, and by body: the name of the line's last node with a gradient."""
        self.made_in_bodies: list[BadOperation] = []
        """NaN and Inf that were made in the backward of an ``autograd.Function`` in the last differentiation."""
        self.ran_in_backward: list[tuple[GraphModule, tuple[object, ...]]] = []
        """The bodies that ran in the last differentiation, with their operands."""
        torch = sys.modules["torch"]
        with self._recording():
            before = torch.get_rng_state()
            results = self._results(graph, inputs)
            self._is_forward = False
            self.draws = not torch.equal(before, torch.get_rng_state())
            """Whether the run has drawn random numbers from the CPU's generator."""
            outputs = [results.get(each, each) for each in graph.outputs]
            self.outputs = [each.detach() if isinstance(each, torch.Tensor) else each for each in outputs]
            """The graph's outputs, detached."""
            self.needs_gradient = [isinstance(each, torch.Tensor) and bool(each.requires_grad) for each in outputs]
            """For each output, whether it requires a gradient."""
            self._seed(outputs, arrived, included)

    @property
    def names(self) -> frozenset[str]:
        """The names of the nodes that can have a gradient."""
        return frozenset(self._written)

    def gradient(self, name: str, at: str, limit: int) -> Any:
        """Return the gradient of a node's tensor; None if the outputs do not depend on it.

        The gradient is of the tensor's contents right after the node ``at``, since later nodes may overwrite them. All
        gradients are computed at once unless they take more than ``limit`` bytes.

        Raises:
            NoRealValue: autograd fails; the text says why.
        """
        if name not in self._written:
            return None
        first, *later = self._written[name]
        until = self._numbers.get(at, -1)
        key = name, max((number for number in later if number <= until), default=first)
        if key not in self._found:
            is_small = self._bytes <= limit
            self._compute([each for each in self._edges if each not in self._found] if is_small else [key])
            if not is_small:
                return self._found.pop(key)
        return self._found[key]

    def written_by(self, names: Collection[str]) -> list[str]:
        """Return the names of the nodes whose memory the nodes ``names`` have overwritten, the latest first."""
        numbers = {self._numbers[name] for name in names if name in self._numbers}
        return [name for name, (_, *later) in reversed(self._written.items()) if not numbers.isdisjoint(later)]

    def contribution(self, results: Sequence[str], name: str, limit: int) -> object:
        """Return the part of the gradient of node ``name`` that comes through one of its users; None for no part.

        ``results`` names the results of that user.

        Raises:
            NoRealValue: autograd fails; the text says why.
        """
        torch = sys.modules["torch"]
        self.made_in_bodies, self.ran_in_backward = [], []
        arrived = [(self._edges[each, self._written[each][0]], self.gradient(each, each, limit)) for each in results]
        roots = [(edge, gradient) for edge, gradient in arrived if gradient is not None]
        if not roots:
            return None
        with self._recording():
            for restore in self._of_pass:
                restore()
            try:
                (found,) = torch.autograd.grad(
                    [edge for edge, _ in roots],
                    [self._edges[name, self._written[name][0]]],
                    [gradient for _, gradient in roots],
                    retain_graph=True,
                    allow_unused=True,
                )
            except Exception as problem:
                raise NoRealValue(f"differentiating fails: {named_first_line_of(problem)}") from problem
        return found

    def compute(self, names: Sequence[str]) -> None:
        """Compute the gradients of the nodes ``names`` at once, for later calls of ``gradient``.

        Raises:
            NoRealValue: autograd fails; the text says why.
        """
        keys = [(name, number) for name in names for number in self._written.get(name, ())]
        self._compute([key for key in keys if key not in self._found])

    def _compute(self, keys: Sequence[tuple[str, int]]) -> None:
        self._found.update({key: self._known[edge] for key in keys if (edge := self._edges[key]) in self._known})
        wanted = [key for key in keys if key not in self._found]
        if not wanted or not self._roots:
            self._found.update(dict.fromkeys(wanted))
            return
        torch = sys.modules["torch"]
        with self._recording():
            for restore in self._of_pass:
                restore()
            try:
                found = torch.autograd.grad(
                    self._roots,
                    [self._edges[key] for key in wanted],
                    self._gradients,
                    retain_graph=True,
                    allow_unused=True,
                )
            except Exception as problem:
                raise NoRealValue(f"differentiating fails: {named_first_line_of(problem)}") from problem
        self._found.update(zip(wanted, found, strict=True))

    @contextlib.contextmanager
    def _recording(self) -> Iterator[None]:
        torch = sys.modules["torch"]
        with isolated_from_program():
            for restore in self._states:
                restore()
            with torch.enable_grad():
                yield

    def _results(self, graph: DifferentiableGraph, inputs: Mapping[Node, KeptInput]) -> dict[Node, object]:
        map_arg = GRADIENTS.resolve(_MAP)
        results: dict[Node, object] = {}
        last_use = {operand: node for node in graph.nodes for operand in node.all_input_nodes}
        for node in graph.nodes:
            try:
                result = results[node] = self._result(graph, inputs, node, map_arg, results)
            except NoRealValue:
                raise
            except Exception as problem:
                raise NoRealValue(f"{target_name(node)} fails: {named_first_line_of(problem)}") from problem
            if self._ran is not None:
                self._ran(node, results)
            self._note_written(node, results)
            if isinstance(result, sys.modules["torch"].Tensor) and result.requires_grad:
                self._note(node.name, self._numbers[node.name], result)
            for operand in node.all_input_nodes:
                if last_use[operand] is node and operand not in graph.outputs:
                    results.pop(operand, None)
        return results

    def _result(
        self, graph: DifferentiableGraph, inputs: Mapping[Node, KeptInput], node: Node, map_arg: Any, results: Any
    ) -> object:
        if node.op == "placeholder":
            return _given(inputs[node], is_written=node in graph.written)
        if node.op == "get_attr":
            attribute = graph.attribute(node.target)
            if hasattr(attribute, "graph"):
                return calling(attribute, functools.partial(self._run_body, node.target, attribute))
            return _attribute(attribute) if isinstance(attribute, sys.modules["torch"].Tensor) else attribute
        name = target_name(node)
        refusal = next((why for part, why in _REFUSED.items() if part in name), None)
        if node.op == "call_module" or refusal is not None:
            raise NoRealValue(f"the call has {name}, {refusal or 'a module that Dynamo did not trace into'}")
        if any(part in name for part in _LEFT_OUT):
            return None
        args = map_arg(node.args, results.__getitem__)
        kwargs = map_arg(node.kwargs, results.__getitem__)
        if node.op == "call_method":
            return getattr(args[0], node.target)(*args[1:], **kwargs)
        return node.target(*args, **kwargs)

    def _run_body(self, target: str, body: GraphModule, operands: tuple[object, ...]) -> object:
        """Run a higher-order operator's body, and note its nodes.

        In a backward pass, note instead the NaN and Inf that the body makes, and its operands.
        """
        if not self._is_forward and not sys.modules["torch"].is_grad_enabled():
            outputs, made = made_in_body(body, operands)
            self.made_in_bodies += made.values()
            self.ran_in_backward.append((body, operands))
            return outputs
        is_noted = self._is_forward and target not in self.bodies and sys.modules["torch"].is_grad_enabled()
        if is_noted:
            self.bodies[target] = body

        def note(node: Node, results: Mapping[Node, object]) -> None:
            name, result = f"{target}.{node.name}", results[node]
            if self._ran_in_body is not None and node.op != "output":
                self._ran_in_body(name, node, results)
            if is_noted and isinstance(result, sys.modules["torch"].Tensor) and result.requires_grad:
                self._note(name, -1, result)
                if node.op != "placeholder" and (place := user_place(node)) is not None:
                    self.results_in_bodies.setdefault((place[0].path, place[0].line), {})[target] = name

        return run_observed(body, operands, note)

    def _note(self, name: str, number: int, result: Tensor) -> None:
        """Note the present autograd edge of a tensor, which each in-place write replaces."""
        self._edges[name, number] = result if result.grad_fn is None else GRADIENTS.resolve(_EDGE)(result)
        self._written.setdefault(name, []).append(number)
        self._bytes += result.numel() * result.element_size()
        self._alive.setdefault(storage_of(result), []).append((name, weakref.ref(result), result._version))

    def _note_written(self, node: Node, results: Mapping[Node, object]) -> None:
        """Note the tensors that ``node`` has written to, directly or through a view."""
        for operand in node.all_input_nodes:
            given: Any = results.get(operand)
            here = self._alive.get(storage_of(given), ()) if isinstance(given, sys.modules["torch"].Tensor) else ()
            if all(version == given._version for _, _, version in here):
                continue
            self._alive[storage_of(given)] = []
            for name, reference, _ in here:
                if (tensor := reference()) is not None and tensor.requires_grad:
                    self._note(name, self._numbers[node.name], tensor)

    def _seed(self, outputs: Sequence[Any], arrived: Gradients, included: Sequence[frozenset[int]]) -> None:
        """Set the outputs from which to differentiate, and their gradients."""
        torch = sys.modules["torch"]
        self._roots: list[object] = []
        self._gradients: list[object] = []
        if len(outputs) != len(arrived):
            raise NoRealValue(f"the call gave {len(arrived)} outputs, and its graph gives {len(outputs)}")
        counted = [
            isinstance(each, torch.Tensor) and each.grad_fn is not None and gradient is not None
            for each, gradient in zip(outputs, arrived, strict=True)
        ]
        within = _Places([each if is_in else None for each, is_in in zip(outputs, counted, strict=True)], []).included
        for at in (each for each, is_in in enumerate(counted) if is_in):
            before = {each for each in included[at] if counted[each]}
            if before - within[at] or (before and within[at] - before):
                raise NoRealValue("its outputs are computed from each other, some by views")
            if before:
                # Asked for this edge's gradient, autograd would return it as it was before the hook below.
                self._known[GRADIENTS.resolve(_EDGE)(outputs[at])] = arrived[at].detach()
                outputs[at].register_hook(_always(arrived[at]))
            self._roots.append(outputs[at])
            self._gradients.append(arrived[at].detach())


def _always(whole: object) -> Callable[[object], object]:
    """Return a hook that replaces a tensor's accumulated gradient by ``whole``, which contains it."""
    return lambda _: whole


_REFUSED = {
    "register_hook": "a hook on a gradient, which is not run again",
    "_c10d_functional": "a collective, which is not run again",
    "c10d": "a collective, which is not run again",
    "torch.distributed": "a collective, which is not run again",
}
_LEFT_OUT = ("record_function", "._print")


def _attribute(tensor: Tensor) -> object:
    """Return a copy of a tensor that belongs to the graph: the graph may write to it, as an optimizer's step does."""
    return tensor.detach().requires_grad_(tensor.requires_grad).clone()


def _given(kept: KeptInput, *, is_written: bool) -> object:
    torch = sys.modules["torch"]
    value = kept.now()
    if not isinstance(value, torch.Tensor):
        return value
    if not kept.requires_grad:
        return value.clone() if is_written else value.detach()
    leaf = value.detach().requires_grad_()
    return leaf.clone() if is_written else leaf
