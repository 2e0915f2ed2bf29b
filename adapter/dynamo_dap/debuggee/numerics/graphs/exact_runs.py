"""Runs a graph in float64: for its results without rounding errors, and for the effect of such errors.

A disturbed run changes each result at random, by one rounding error of the type that the result has in the call. Runs
on the program's thread that makes the call.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dynamo_dap.debuggee.numerics.graphs.bodies import RunBody, run_observed, with_bodies_run_by
from dynamo_dap.debuggee.numerics.graphs.differences import DISTURBED_RUNS, HALF, Referee, widened
from dynamo_dap.debuggee.numerics.graphs.transforms import VisibleGraph
from dynamo_dap.debuggee.replay.replayed_graph import ReplayedGraph
from dynamo_dap.debuggee.torch_api.graphs.graph import example_of, is_higher_order, node_with_result, target_name
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import has_own_memory
from dynamo_dap.debuggee.torch_api.graphs.operations import ZEROS, makes_unset_memory, set_memory_of
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import unwrapped, version_of
from dynamo_dap.debuggee.torch_api.graphs.transforms import is_visible
from dynamo_dap.debuggee.torch_api.isolation import data_reading
from dynamo_dap.debuggee.torch_api.objects import GraphModule, Node, Tensor
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import storage_of
from dynamo_dap.protocol.texts import named_first_line_of

_CONTRACTIONS = ("mm", "matmul", "linear", "conv", "einsum", "attention", "bilinear", "dot", "mv")
"""Parts of the names of operations whose results are sums of products."""
_REDUCTIONS = ("sum", "mean", "var", "std", "norm", "softmax", "logsumexp", "loss", "entropy", "prod", "pool")
"""Parts of the names of operations that reduce many elements to one."""
_MAKERS = ("zeros", "ones", "full", "empty", "rand", "randn", "eye", "linspace", "tensor", "arange")
_FACTORIES = frozenset(f"torch.{name}" for name in _MAKERS)
"""Functions that make a tensor of torch's default dtype, unless they get another one."""
_NORMALIZATIONS = ("batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm")
_TO_INTEGERS = frozenset({"round", "floor", "ceil", "trunc", "fix", "sign", "sgn", "floor_divide", "floordiv"})
_SELECTING = ("clamp", "clip", "minimum", "maximum", "max", "min", "where", "relu", "getitem", "gather", "masked_fill")
_COPYING = ("cat", "stack", "to", "float", "double", "half", "bfloat", "type", "clone", "contiguous", "copy")
_ARITHMETIC = ("add", "sub", "rsub", "mul", "neg", "abs", "iadd", "isub", "imul")
_EXACT_ON_INTEGERS = frozenset((*_SELECTING, *_COPYING, *_ARITHMETIC))
"""Operations whose results have no error if their operands and results are integers."""
_DISTURBANCE_OF_TAKEN = 16.0
"""The disturbance of a result that is taken from the call, in rounding errors of its type."""
_DISTURBANCE_OF_SUBGRAPH = 4.0
"""The disturbance of a higher-order operator's result, relative to the result's scale; see ``_of_cancelling``."""
_DISTURBANCE_OF_CONVOLUTION = 8.0
"""The same for a convolution: its algorithms differ, and some (Winograd) add and subtract large parts."""
_DISTURBANCE_OF_CONTRACTION = 2.0
"""The same for other sums of products, and for normalizations."""
_TIMES_FOR_GRADIENTS = 4.0
"""A compiled backward pass adds one term after the other, eager adds pairs. So its errors are larger by this factor."""
_REMEMBERS = 0.25
"""A custom operator whose result differs from that in the call by more than this fraction is not deterministic."""
_LARGEST_SPREAD = 4
"""Shared memory is copied as a whole if it has at most this many times the elements of its largest tensor."""


ExactRun = dict[str, object]
"""The results of a float64 run, by node name.

A result that a later operation overwrites has the key ``overwritten_key``. An output has its contents at the end.
"""


def overwritten_key(name: str) -> str:
    """Return the key in ``ExactRun`` for a node's result before a later operation writes to it."""
    return f"{name} before the next write"


def left_key(name: str) -> str:
    """Return the key in ``ExactRun`` for the contents of an input after the graph, if the graph writes to it."""
    return f"{name} after the graph"


def version_after(node: Node, value: Tensor) -> int:
    """Return the version of the tensor ``value`` after ``node``; -1 for an assignment to another node's tensor."""
    return version_of(value) if node_with_result(node) is node else -1


def not_in_float64(reason: str) -> str:
    """Return what is not compared if a graph does not run in float64."""
    return f"rounding errors, with a run in float64: {reason}"


@dataclass(frozen=True)
class TakenResult:
    """A result of the call that another run cannot repeat: that of a random operation or of a custom operator."""

    value: Any
    ratio: Any
    """The ratio of the result to the operand of the same shape: dropout's mask. None without such an operand."""
    is_random: bool

    @classmethod
    def of(cls, node: Node, results: Mapping[Node, object], *, is_random: bool) -> TakenResult:
        """Take the result of ``node`` from the call's run."""
        value = results[node]
        if not is_visible(value):
            return cls(None, None, is_random)
        operand = _operand_of_shape(node, results)
        with data_reading():
            kept = value.detach().clone()
            if not is_random or operand is None or not _has_fractions(value):
                return cls(kept, None, is_random)
            return cls(kept, widened(kept) / widened(operand.detach()), is_random)

    def put(self, node: Node, results: Mapping[Node, object]) -> bool:
        """Replace the result of a float64 run by this one, if the run cannot repeat it.

        Return whether the result now has only the precision of the call.
        """
        value = results[node]
        if self.value is None or not has_own_memory(value) or value.shape != self.value.shape:
            return False
        with data_reading():
            ours = widened(self.value)
            if not self.is_random:
                if bool(((widened(value.detach()) - ours).abs() <= _REMEMBERS * ours.abs()).all()):
                    return False
                value.detach().copy_(ours)
                return True
            operand = _operand_of_shape(node, results)
            if self.ratio is None or operand is None:
                value.detach().copy_(ours)
                return True
            exact = widened(operand.detach()) * self.ratio
            value.detach().copy_(exact.where(self.ratio.isfinite(), ours))
            return False


def _operand_of_shape(node: Node, results: Mapping[Node, object]) -> Any:
    """Return the first operand with the shape of the result, unless the node writes to it."""
    value: Any = results[node]
    for each in node.all_input_nodes:
        operand: Any = results.get(each)
        if has_own_memory(operand) and operand.shape == value.shape and _has_fractions(operand):
            return None if storage_of(operand) == storage_of(value) else operand
    return None


class Disturbance(NamedTuple):
    """How a run is disturbed."""

    seed: int
    times: float = 1.0
    """The number of rounding errors in each change. With several, the inputs change, too: equal ones become unequal."""


class _Runs:
    """The float64 runs of a graph or body; each is made at its first use."""

    def __init__(self, problems: dict[str, None] | None = None) -> None:
        self._exact: ExactRun | None = None
        self._disturbed: dict[float, list[ExactRun]] = {}
        """The disturbed runs, by the strength of the disturbance."""
        self.problems: dict[str, None] = {} if problems is None else problems
        """The reasons why results were judged without a float64 run, in order."""

    def exact(self) -> ExactRun:
        """Return the results of the undisturbed run; none if the graph cannot run in float64."""
        if self._exact is None:
            self._exact = self._tried(None)
        return self._exact

    def disturbed(self, count: int = DISTURBED_RUNS, times: float = 1.0) -> Sequence[ExactRun]:
        """Return the results of runs that are disturbed by ``times`` rounding errors."""
        runs = self._disturbed.setdefault(times, [])
        runs += [self._tried(Disturbance(seed, times)) for seed in range(len(runs), count)]
        return runs[:count]

    def referee(self, name: str) -> Referee:
        """Return the referee for the results of a node."""
        return _OfNode(self, name)

    def _tried(self, disturbance: Disturbance | None) -> ExactRun:
        try:
            return self._run(disturbance)
        except Exception as problem:  # noqa: BLE001  (whatever an operation that has no float64 raises)
            self.problems[not_in_float64(named_first_line_of(problem))] = None
            return {}

    def _run(self, disturbance: Disturbance | None) -> ExactRun:
        """Run the graph in float64, and disturb its results if wanted.

        Raises:
            Exception: whatever an operation raises.
        """
        raise NotImplementedError


class ExactRuns(_Runs):
    """The float64 runs of one call's graph."""

    def __init__(
        self,
        graph: VisibleGraph,
        dtypes: Mapping[str, object],
        taken: Mapping[str, TakenResult],
        body: ExactBody | None = None,
        problems: dict[str, None] | None = None,
    ) -> None:
        """Prepare the runs of ``graph``; none is made yet.

        ``dtypes`` has the dtypes that the results have in the call, and ``taken`` the results to take from the call,
        both by node name. With ``body``, the runs return the results of the body's nodes. ``problems`` may be shared
        with other runs.
        """
        super().__init__(problems)
        self._graph = graph
        self._dtypes = dtypes
        self._taken = dict(taken)
        self._body = body

    def in_body(self, module: GraphModule, dtypes: Mapping[str, object]) -> ExactRuns:
        """Return the runs for ``module``, the body of an operator; ``dtypes`` has the dtypes of its results."""
        return ExactRuns(self._graph, self._dtypes, self._taken, ExactBody(module, dtypes), self.problems)

    def _run(self, disturbance: Disturbance | None) -> ExactRun:
        if any(each.is_random and each.value is None for each in self._taken.values()):
            self.problems[not_in_float64("an operation draws random numbers")] = None
            return {}
        noise = None if disturbance is None else Noise(self._dtypes, disturbance)
        if self._body is None:
            return _run(self._graph, self._taken, noise)
        seen: dict[str, tuple[object, int, object]] = {}
        with with_bodies_run_by(self._graph.graph.module, self._body.runner(disturbance, seen)):
            _run(self._graph, self._taken, noise)
        return _results(seen)


class ExactPass(_Runs):
    """The float64 runs of an operator's body on the operands of one pass."""

    def __init__(self, body: ExactBody, operands: Sequence[object], problems: dict[str, None]) -> None:
        super().__init__(problems)
        self._body = body
        self._operands = operands

    def _run(self, disturbance: Disturbance | None) -> ExactRun:
        seen: dict[str, tuple[object, int, object]] = {}
        self._body.runner(disturbance, seen)(self._body.module, tuple(widened_together(self._operands)))
        return _results(seen)


@dataclass(frozen=True)
class _OfNode:
    """The ``Referee`` for the results of one node."""

    _runs: _Runs
    _name: str

    def exact(self) -> object:
        return self._runs.exact().get(self._name)

    def disturbed(self, count: int = DISTURBED_RUNS, times: float = 1.0) -> Sequence[object]:
        return [run.get(self._name) for run in self._runs.disturbed(count, times)]


@dataclass(frozen=True)
class ExactBody:
    """The body of a higher-order operator, to be run in float64."""

    module: GraphModule
    dtypes: Mapping[str, object]
    """The dtypes that the results have in the call, by node name."""

    def runner(self, disturbance: Disturbance | None, seen: dict[str, tuple[object, int, object]]) -> RunBody:
        """Return a function that runs bodies: this one in float64, with its results kept in ``seen``."""
        wide, _ = _widened_module(self.module, self.module.graph.nodes)
        noise = None if disturbance is None else Noise(self.dtypes, disturbance)

        def note(node: Node, results: Mapping[Node, object]) -> None:
            if noise is not None and node.op != "output":
                noise.disturb(node, results)
            _keep(node.name, node, results, seen)

        def run(body: Any, operands: tuple[object, ...]) -> object:
            if body is not self.module:
                return body(*operands)
            seen.clear()
            return run_observed(wide, operands, note)

        return run


class Noise:
    """Disturbs the results of a run. Has its own random generator, so that the program's generators do not change."""

    def __init__(self, dtypes: Mapping[str, object], disturbance: Disturbance) -> None:
        torch = sys.modules["torch"]
        self._dtypes = dtypes
        self._times = disturbance.times
        self._generator = torch.Generator()
        self._generator.manual_seed(disturbance.seed)

    def disturb(self, node: Node, results: Mapping[Node, object], times: float = 1.0, name: str = "") -> None:
        """Disturb the result of ``node`` in place, unless it is a view of a result that was disturbed already.

        ``times`` scales the disturbance. ``name`` is the key of the result's dtype, by default the node's name.
        """
        torch = sys.modules["torch"]
        if node.op == "get_attr" or not has_own_memory(results[node]):
            return
        value, dtype = unwrapped(results[node]), self._dtypes.get(name or node.name)
        if not value.is_floating_point():
            return
        unit = self._unit(value, dtype)
        operands = [unwrapped(results[each]) for each in node.all_input_nodes if has_own_memory(results.get(each))]
        is_view = any(storage_of(each) == storage_of(value) for each in operands)
        if node.op == "placeholder" and self._times == 1:
            unit = 0.0
        if is_view and not str(getattr(node.target, "__name__", node.target)).rstrip("0123456789").endswith("_"):
            return
        epsilon = float(torch.finfo(dtype or torch.float32).eps)
        unit *= times * self._times
        unit *= 1 + math.sqrt(_length(node, value, operands)) / 8
        later = max((_summed_by(user, value) for user in node.users), default=1.0)
        if later > 1:  # a user sums the elements, and rounds once for each
            unit += epsilon * math.sqrt(later) / 16
        elif _has_no_error(node, value, operands, 2 / epsilon):
            return
        if unit == 0.0:
            return
        # torch refuses to write to a tensor whose elements share memory. It stays unchanged.
        with data_reading(transforms=True), contextlib.suppress(RuntimeError):
            # Write through ``data``, which autograd does not notice: it may have saved the value already.
            value.data.mul_(1 + unit * self._random_like(value))
            if cancelling := _of_cancelling(node):
                value.data.add_(unit * cancelling * self._random_like(value) * value.pow(2).mean().sqrt())

    def disturb_gradient_in_body(self, name: str, node: Node, results: Mapping[Node, object]) -> None:
        """Disturb a result in the body of an operator, and its gradient; ``name`` is the key of the result's dtype."""
        self.disturb_gradient(node, results, name)

    def disturb_gradient(self, node: Node, results: Mapping[Node, Any], name: str = "") -> None:
        """Disturb the result of ``node``, and its gradient when that arrives."""
        value = unwrapped(results[node]) if has_own_memory(results[node]) else None
        if value is None or not value.requires_grad:
            self.disturb(node, results, name=name)
            return
        rounding = self._unit(value, self._dtypes.get(name or node.name))
        times = _TIMES_FOR_GRADIENTS if rounding < HALF else 1.0
        rounding *= times
        self.disturb(node, results, times, name)
        known = [
            results[each] for user in node.users for each in user.all_input_nodes if has_own_memory(results.get(each))
        ]
        terms = max((each.numel() for each in known), default=1) / max(value.numel(), 1)
        operands = [unwrapped(results[each]) for each in node.all_input_nodes if has_own_memory(results.get(each))]
        later = max((_summed_in_backward(node, value, operands, each) for each in operands), default=1.0)
        unit = rounding * (1 + math.sqrt(max(terms, 1.0)) / 8 + (2 * math.sqrt(later) if later > 1 else 0.0))
        cancelling = max((_of_cancelling(user) for user in node.users), default=0.0)
        is_normalized = value.dim() > 1 and any(_is_one_of(user, _NORMALIZATIONS) for user in node.users)

        def disturbed(gradient: Tensor) -> object:
            with data_reading():
                noise = gradient * unit * self._random_like(gradient)
                if cancelling:
                    noise += rounding * cancelling * self._random_like(gradient) * gradient.pow(2).mean().sqrt()
                if is_normalized:
                    noise += rounding * self._common_to_slices(gradient)
                return gradient + noise

        value.register_hook(disturbed)

    def _common_to_slices(self, gradient: Tensor) -> Any:
        """Return the rounding errors of the means that the backward of a normalization subtracts.

        Such an error is the same for all elements of a row or channel. Without it, the gradient would sum to exactly
        zero there, as for a bias before a batch norm.
        """
        one_channel = (slice(0, 1), slice(None), *[slice(0, 1)] * (gradient.dim() - 2))
        rows, channels = gradient[..., :1], gradient[one_channel]
        of_rows = math.sqrt(gradient.shape[-1]) * self._random_like(rows)
        of_channels = math.sqrt(gradient.numel() / max(channels.numel(), 1)) * self._random_like(channels)
        return gradient.pow(2).mean().sqrt() * (of_rows + of_channels)

    @staticmethod
    def _unit(value: Any, dtype: Any) -> float:
        torch = sys.modules["torch"]
        narrow = dtype is not None and dtype.is_floating_point and dtype.itemsize < value.itemsize
        return float(torch.finfo(dtype if narrow else torch.float32 if dtype is None else dtype).eps) / 2

    def _random_like(self, value: Any) -> Any:
        """Return numbers from -1 to 1."""
        torch = sys.modules["torch"]
        drawn = torch.rand(value.shape, generator=self._generator, dtype=value.dtype)
        return drawn.to(value.device) * 2 - 1


def _has_no_error(node: Node, value: Tensor, operands: Sequence[Tensor], largest: float) -> bool:
    """Return whether the result has integers that are computed exactly; those up to ``largest`` have no error.

    If they had one, a conversion to integers would change each of them: it truncates. Disturbed operands, which have
    errors, are not integers.
    """
    name = str(getattr(node.target, "__name__", node.target)).rstrip("_0123456789")
    given = (value,) if name in _TO_INTEGERS else (value, *operands)
    if operands and name not in _EXACT_ON_INTEGERS and name not in _TO_INTEGERS:
        return False
    with data_reading(transforms=True):
        return all(
            not each.is_floating_point() or bool(((each == each.round()) & (each.abs() <= largest)).all())
            for each in given
        )


def _length(node: Node, value: Tensor, operands: Sequence[Tensor]) -> float:
    """Estimate how many terms ``node`` sums up for each element of its result."""
    sizes = sorted((int(each.numel()) for each in operands), reverse=True)
    if not value.numel() or not sizes:
        return 1.0
    if len(sizes) > 1 and _is_one_of(node, _CONTRACTIONS):
        return max(math.sqrt(float(sizes[0] * sizes[1]) / int(value.numel())), 1.0)
    if _is_one_of(node, _REDUCTIONS):
        return max(sizes[0] / int(value.numel()), float(value.shape[-1] if value.dim() else 1))
    return 1.0


def _of_cancelling(node: Node) -> float:
    """Return the part of a result's disturbance that is relative to the scale of all elements, in rounding errors.

    Where the terms of an element cancel out, their rounding errors remain. Returns 0 for operations without such terms.
    """
    if any(is_higher_order(each) for each in (node, *node.all_input_nodes)):
        return _DISTURBANCE_OF_SUBGRAPH
    if _is_one_of(node, ("conv",)):
        return _DISTURBANCE_OF_CONVOLUTION
    return _DISTURBANCE_OF_CONTRACTION if _is_one_of(node, (*_CONTRACTIONS, *_NORMALIZATIONS)) else 0.0


def _summed_by(user: Node, value: Tensor) -> float:
    """Estimate how many elements of ``value`` are summed up for each element of the result of ``user``."""
    if not value.dim():
        return 1.0
    if _is_one_of(user, _CONTRACTIONS):
        return float(value.shape[-1])
    if not _is_one_of(user, _REDUCTIONS):
        return 1.0
    example = user.meta.get("example_value", user.meta.get("val"))
    shape = getattr(example, "shape", ())
    sizes = [size for size in shape if isinstance(size, int)]  # a symbolic size has no number here
    return max(int(value.numel()) / max(math.prod(sizes), 1), float(value.shape[-1]))


def _summed_in_backward(node: Node, value: Tensor, operands: Sequence[Tensor], operand: Tensor) -> float:
    """Estimate how many elements of the gradient of ``value`` the backward of ``node`` sums up for one of ``operand``.

    The backward rounds once for each of them, also where their sum is nearly zero.
    """
    if not operand.requires_grad or not operand.numel():
        return 1.0
    if not _is_one_of(node, _CONTRACTIONS):
        return int(value.numel()) / int(operand.numel())
    other = max((int(each.numel()) for each in operands if each is not operand), default=1)
    return max(math.sqrt(int(value.numel()) * other / int(operand.numel())), int(value.numel()) / int(operand.numel()))


def _is_one_of(node: Node, names: Sequence[str]) -> bool:
    name = str(getattr(node.target, "__name__", node.target))
    return any(each in name for each in names)


def widened_graph(graph: ReplayedGraph) -> ReplayedGraph:
    """Return the graph in float64, with its inputs in float64."""
    module, copies = _widened_module(graph.module, graph.nodes)
    inputs = widened_together(list(graph.inputs.values()))
    return graph.with_inputs(module, {copies[node]: value for node, value in zip(graph.inputs, inputs, strict=True)})


def _widened_module(module: GraphModule, nodes: Iterable[Node]) -> tuple[Any, dict[object, Any]]:
    """Return a module that runs ``nodes`` in float64, and the copy of each node."""
    torch = sys.modules["torch"]

    def wide(value: object) -> object:
        if not isinstance(value, torch.dtype):
            return value
        if value.is_complex:
            return torch.complex128
        return torch.float64 if value.is_floating_point and value.itemsize < 8 else value

    copy = torch.fx.Graph()
    copies: dict[object, Any] = {}
    for node in nodes:
        made = copies[node] = copy.node_copy(node, copies.__getitem__)
        if "autocast" in str(getattr(node.target, "__name__", node.target)):
            continue  # autocast does not convert float64 and complex128
        made.args, made.kwargs = torch.fx.node.map_aggregate((made.args, made.kwargs), wide)
        if made.op == "call_method" and made.target in ("float", "half", "bfloat16"):
            made.target = "double"
        elif _makes_default_fractions(node):
            made.kwargs = {**made.kwargs, "dtype": torch.float64}
        if makes_unset_memory(node):
            set_memory_of(made, ZEROS)  # errors scale with a tensor's elements, also with those that are not set
    wide_module = torch.fx.GraphModule(module, copy)
    for node in nodes:
        body: Any = getattr(module, node.target, None) if node.op == "get_attr" and "." not in node.target else None
        if hasattr(body, "graph"):
            of_body, _ = _widened_module(body, body.graph.nodes)
            of_body.meta.update(body.meta)
            setattr(wide_module, node.target, of_body)
    return wide_module, copies


def _makes_default_fractions(node: Node) -> bool:
    """Return whether a node makes a floating-point tensor without naming its dtype."""
    if target_name(node) not in _FACTORIES or "dtype" in node.kwargs:
        return False
    dtype = getattr(example_of(node), "dtype", None)
    return dtype is not None and bool(dtype.is_floating_point) and dtype.itemsize < 8


def _run(visible: VisibleGraph, taken: Mapping[str, TakenResult], noise: Noise | None) -> ExactRun:
    run = widened_graph(visible.graph)
    seen: dict[str, tuple[object, int, object]] = {}
    given: dict[Node, object] = {}

    def note(node: Node, results: Mapping[Node, object]) -> None:
        if node.prev.op == "root":
            seen.clear()
        if node.op == "placeholder":
            given[node] = results[node]
        is_taken = node.name in taken and taken[node.name].put(node, results)
        if noise is not None and node.name not in visible.added:
            noise.disturb(node, results, _DISTURBANCE_OF_TAKEN if is_taken else 1.0)
        _keep(visible.names.get(node.name, node.name), node, results, seen)

    outputs = run.run(note)
    values = _results(seen)
    with data_reading():
        for node, value in zip(run.output_nodes, outputs, strict=True):
            if has_own_memory(value):
                values[getattr(node, "name", "")] = value.detach().clone()
        for node, value in given.items():
            if has_own_memory(value) and storage_of(run.inputs[node]) in run.written:
                values[left_key(node.name)] = value.detach().clone()
    return values


def _keep(name: str, node: Node, results: Mapping[Node, object], seen: dict[str, tuple[object, int, object]]) -> None:
    value = results[node_with_result(node)]
    if is_visible(value):
        with data_reading(transforms=True):
            seen[name] = value, version_after(node, value), value.detach().clone()


def _results(seen: Mapping[str, tuple[object, int, object]]) -> ExactRun:
    """Return the kept results, by the keys of ``ExactRun``."""
    return {
        name if version_of(value) == version else overwritten_key(name): kept
        for name, (value, version, kept) in seen.items()
    }


def widened_together(values: Sequence[object]) -> list[object]:
    """Return the values in float64. Values that share memory share it in float64, too."""
    shared: dict[object, list[Tensor]] = {}
    for value in values:
        if has_own_memory(value) and _has_fractions(value):
            shared.setdefault(storage_of(value), []).append(value)
    bases: dict[object, Tensor] = {}
    with data_reading():
        for storage, views in shared.items():
            size = views[0].untyped_storage().nbytes() // views[0].itemsize
            is_one_type = len({each.dtype for each in views}) == 1
            if is_one_type and size <= _LARGEST_SPREAD * max(each.numel() for each in views):
                bases[storage] = _copied(views[0].detach().as_strided((size,), (1,), 0))
        return [_widened_one(value, bases) for value in values]


def _widened_one(value: object, bases: Mapping[object, Tensor]) -> object:
    if not has_own_memory(value) or not _has_fractions(value):
        return value
    base = bases.get(storage_of(value))
    if base is None:
        return _copied(value.detach())
    return base.as_strided(value.size(), value.stride(), value.storage_offset())


def _copied(value: Tensor) -> Tensor:
    """Return a copy in float64, also of a float64 tensor: a disturbed run writes to its inputs."""
    wide = widened(value)
    return wide.clone() if wide.data_ptr() == value.data_ptr() else wide


def _has_fractions(value: Tensor) -> bool:
    return bool(value.is_floating_point() or value.is_complex())
