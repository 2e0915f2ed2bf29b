"""Whether the results of a compiled call are right, and which operation is the first wrong one, as ``compare`` says."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from dynamo_dap.debuggee.numerics.faults.comparisons import Comparison, EagerRaises
from dynamo_dap.debuggee.numerics.graphs.differences import Difference
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue
from tests.compile_time.compared import Call, Change, compared, wrong

X = torch.tensor([0.5, -1.25, 2.0, 3.0])


def found(comparison: Comparison) -> tuple[str | None, str | None]:
    """Return the name of the first wrong operation, and the wrong stage."""
    fault = comparison.fault()
    return None if fault.node is None else fault.node.name, fault.stage


# -- results ----------------------------------------------------------------------------------------------------------


def doubled(x: Any) -> Any:
    return x * 2


def logarithm(x: Any) -> Any:
    return x.log()


def cancelled(x: Any) -> Any:
    large = x + 1000
    return large - 1000


def transposed(x: Any) -> Any:
    return x.reshape(2, 2).t()


def largest(x: Any) -> Any:
    return (x.sin() * 3).argmax()


def largest_of_each(x: Any) -> Any:
    return x.sin().max(1)


def bfloat16_steps(x: Any) -> Any:
    return (x.bfloat16() * 1.1 + x.bfloat16()).sin()


CLOSE = torch.tensor([1.0, 1.0 + 2**-23])
VERDICTS: dict[str, tuple[Any, Any, dict[str, Change], str | None]] = {
    "equal": (doubled, X, {}, None),
    "one unit": (doubled, X, {"mul": lambda a, b: a * b * (1 + 2**-23)}, None),
    "a factor": (doubled, X, {"mul": lambda a, b: a * b * 1.001}, "largest difference 0.006"),
    "NaN": (doubled, X, {"mul": lambda a, b: (a * b).masked_fill(a < 0, torch.nan)}, "1 elements are NaN in the"),
    "NaN in both": (logarithm, X, {}, None),
    "no NaN": (logarithm, X, {"log": lambda a: a.abs().log()}, "1 elements are NaN in eager alone"),
    "no Inf": (doubled, X * 1e38, {"mul": lambda a, b: a}, "2 elements are Inf in eager alone"),
    "a small element": (doubled, torch.tensor([1e3, 1e-3]), {"mul": lambda a, b: a * b + 1e-6 * (a < 1)}, "largest"),
    "nearer than eager": (
        cancelled,
        X / 1e3,
        {"add": lambda a, b: a, "sub": lambda a, b: a, "large": lambda a, b: a},
        None,
    ),
    "float64, one unit": (doubled, X.double(), {"mul": lambda a, b: a * b * (1 + 2**-52)}, None),
    "float64, a factor": (doubled, X.double(), {"mul": lambda a, b: a * b * (1 + 1e-12)}, "largest difference 6e-12"),
    "bfloat16, rounded once": (
        bfloat16_steps,
        torch.linspace(-2, 2, 64),
        {"mul": lambda a, b: a.float() * b, "sin": lambda a: a.sin().bfloat16()},
        None,
    ),
    "bfloat16, a drift": (bfloat16_steps, torch.linspace(0.5, 1, 64), {"sin": lambda a: a.sin() * 1.01}, "largest"),
    "another dtype": (doubled, X, {"mul": lambda a, b: (a * b).double()}, "float64[4] instead of float32[4]"),
    "another shape": (doubled, X, {"mul": lambda a, b: (a * b)[:2]}, "float32[2] instead of float32[4]"),
    "other strides": (transposed, X, {"t": lambda a: a.t().contiguous()}, None),
    "a copy instead of a view": (transposed, X, {"t": lambda a: a.t().clone()}, None),
    "an index by rounding": (largest, CLOSE, {"argmax": lambda a: torch.tensor(0)}, None),
    "a wrong index": (largest, X, {"argmax": lambda a: torch.tensor(1)}, "largest difference 1"),
}
"""A function, its input, what its graph is changed to, and a part of the difference; None if it is the same."""


@pytest.mark.parametrize("name", VERDICTS)
def test_results(name: str) -> None:
    function, given, changes, reason = VERDICTS[name]
    comparison = compared(function, given, **changes)
    assert comparison.differs == (reason is not None)
    assert comparison.worst.is_same == (reason is None)
    assert (reason or "") in comparison.worst.text
    assert not comparison.is_python_run
    assert not comparison.not_compared


@pytest.mark.parametrize(
    ("function", "given", "changes", "text"),
    [
        (largest, CLOSE, {"argmax": lambda a: torch.tensor(0)}, "rounding decides 1 integer of argmax"),
        (
            largest_of_each,
            CLOSE.repeat(2, 1),
            {"max_1": lambda a, _: (a.max(1)[0], torch.tensor([0, 0]))},
            "rounding decides 2 integers of max",
        ),
    ],
)
def test_integers_that_rounding_decides(function: Any, given: Any, changes: Any, text: str) -> None:
    comparison = compared(function, given, **changes)
    assert not comparison.differs
    assert comparison.of_outputs[-1].rounding == text


def two_results(x: Any) -> Any:
    return x.sin() * 1000, x.cos()


def test_the_worst_result_is_the_one_that_differs() -> None:
    """Another one has the larger difference, which is rounding."""
    comparison = compared(two_results, X, mul=lambda a, b: a * b * (1 + 2**-23), cos=lambda a: a.cos() + 1e-5)
    assert [each.is_same for each in comparison.of_outputs] == [True, False]
    assert comparison.of_outputs[0].largest > comparison.of_outputs[1].largest
    assert comparison.worst is comparison.of_outputs[1]


def test_the_signs_of_zeros_are_counted() -> None:
    comparison = compared(doubled, torch.tensor([0.0, 0.0, 1.0]), mul=lambda a, b: (a * b).where(a > 0, -0.0))
    assert not comparison.differs
    assert comparison.zeros == 2


def partly_set(x: Any) -> Any:
    result = torch.empty(4)
    result[:2] = x[:2]
    return result.sin(), x.cos()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, None),
        ({"cos": lambda a: a.cos() * 1.01}, "cos"),
        # Its result has such elements, too: the others are compared.
        ({"sin": lambda a: a.sin() * 1.01}, "sin"),
    ],
)
def test_elements_that_no_operation_sets_are_not_compared(changes: dict[str, Change], line: str | None) -> None:
    """The memory has other contents in the compiled graph than in eager alone."""
    comparison = compared(partly_set, X, result=lambda *_, **__: torch.full((4,), torch.nan), **changes)
    assert comparison.differs == bool(changes)
    assert "torch.empty" in comparison.not_compared[0]
    if changes:
        fault = comparison.fault()
        assert found(comparison) == (line, None)
        assert [(each.name, each.right) for each in fault.judged[:-1]] == [("aot_eager", True)]


_garbage = itertools.count(start=1000, step=1000)


@torch._dynamo.allow_in_graph
def empty(size: int) -> Any:
    """Return memory with other contents at each call, as ``torch.empty`` may."""
    return torch.full((size,), float(next(_garbage)))


def test_the_contents_of_such_memory_do_not_excuse_other_elements() -> None:
    """Each run, also the one in float64, has other contents."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    result = graph.call_function(empty, (4,))
    graph.call_function(operator.setitem, (result, slice(0, 2), x))
    graph.output((graph.call_function(torch.mul, (result, 2)),))
    module = torch.fx.GraphModule({}, graph)
    assert not compared(module, X[:2]).differs
    assert compared(module, X[:2], mul=lambda a, b: a * b * 1.3).differs


def partly_set_in_a_body(x: Any) -> Any:
    def body(x: Any) -> Any:
        result = empty(4)
        result[:2] = x[:2]
        return result * 2

    return torch.utils.checkpoint.checkpoint(body, x, use_reentrant=False).cos()


def test_such_memory_in_the_body_of_an_operator() -> None:
    comparison = compared(partly_set_in_a_body, X)
    assert not comparison.differs
    assert "torch.empty" in comparison.not_compared[0]
    assert found(compared(partly_set_in_a_body, X, cos=lambda a: a.cos() * 1.01)) == ("cos", None)


def of_rows(x: Any, offsets: Any) -> Any:
    rows = torch.nested.nested_tensor_from_jagged(x, offsets)
    return rows.sin(), rows * 2


def test_results_of_several_lengths() -> None:
    """A jagged tensor is compared in outputs only, not after each operation."""
    offsets = torch.tensor([0, 1, 4])
    assert not compared(of_rows, X, offsets).differs
    comparison = compared(of_rows, X, offsets, mul=lambda a, b: a * b * 1.01)
    assert comparison.differs
    fault = comparison.fault()
    assert fault.observed is not None
    assert fault.observed.startswith("Result 1 differs")


def of_each_row(x: Any) -> Any:
    return torch.func.vmap(lambda row: row.sin() * 2)(x).cos()


def slope(x: Any) -> Any:
    return torch.func.grad(lambda y: (y.sin() * 3).sum())(x).neg()


@pytest.mark.parametrize(
    ("function", "name", "change"),
    [
        (of_each_row, "cos", lambda a: a.cos() * 1.01),
        (of_each_row, "_remove_batch_dim", lambda *a: torch._C._functorch._remove_batch_dim(*a) * 1.01),
        (of_each_row, "sin", lambda a: a.sin() * 1.01),
        (slope, "sin", lambda a: a.sin() * 1.01),
        (slope, "neg", lambda a: a * -1.01),
    ],
)
def test_operations_in_and_around_a_transform(function: Any, name: str, change: Change) -> None:
    comparison = compared(function, X.reshape(2, 2), **{name: change})
    assert comparison.differs
    assert found(comparison)[0] == name


# -- the first wrong operation ----------------------------------------------------------------------------------------


def chain(x: Any) -> Any:
    first = x.sin()
    second = first * 2
    third = second.cos()
    fourth = third + first
    return fourth.tanh()


CHAIN: dict[str, Change] = {
    "first": lambda a: a.sin() * 1.1,
    "second": lambda a, b: a * b * 1.1,
    "third": lambda a: a.cos() * 1.1,
    "fourth": lambda a, b: (a + b) * 1.1,
    "tanh": lambda a: a.tanh() * 1.1,
}


def has_one_output(module: Any, _: object) -> bool:
    return len(list(module.graph.nodes)[-1].args[0]) == 1


def records_gradients(_: object, given: Sequence[Any]) -> bool:
    return given[0].requires_grad and torch.is_grad_enabled()


def records_for_one_output(module: Any, given: Sequence[Any]) -> bool:
    return has_one_output(module, given) and records_gradients(module, given)


@pytest.mark.parametrize("name", CHAIN)
def test_the_first_wrong_operation(name: str) -> None:
    comparison = compared(chain, X, **{name: CHAIN[name]})
    fault = comparison.fault()
    assert fault.node is not None
    assert fault.node.name == name
    assert fault.stage is None
    assert [(each.name, each.right) for each in fault.judged[:-1]] == [("aot_eager", True)]
    assert not fault.difference.is_same
    assert not torch.allclose(fault.value, comparison.reference.values[fault.node])
    assert list(comparison.by_node) == comparison.reference.operations
    assert next(node.name for node, how in comparison.by_node.items() if not how.is_same) == name
    assert len(comparison.runs) == 3


@pytest.mark.parametrize(
    ("name", "when"),
    [
        *((name, has_one_output) for name in CHAIN),
        ("second", records_gradients),
        ("fourth", records_for_one_output),
    ],
)
def test_an_operation_that_is_wrong_in_some_graphs(name: str, when: Any) -> None:
    """The operation is right in the graph that returns all results, or while no gradients are recorded."""
    comparison = compared(chain, X.clone().requires_grad_(), backend=wrong({name: CHAIN[name]}, when))
    assert comparison.differs
    assert found(comparison) == (name, None)
    assert all(how.is_same for how in comparison.by_node.values())
    assert ("with gradients recorded" in str(comparison.runs)) == (when is not has_one_output)


def test_a_difference_that_is_gone_when_the_graph_is_compiled_again() -> None:
    once = itertools.count()
    backend = wrong({"mul": lambda a, b: a * b + 1}, lambda *_: next(once) == 0)
    comparison = compared(doubled, X, backend=backend)
    assert found(comparison) == (None, None)
    assert comparison.fault().difference == comparison.worst
    assert "gradients" not in str(comparison.runs)


def written(x: Any) -> Any:
    x.mul_(2)
    return x + 1


def test_gradients_cannot_be_recorded_for_a_graph_that_writes_to_its_inputs() -> None:
    leaf = X.clone().requires_grad_()
    comparison = compared(written, leaf, traced_with=[X], outputs=[(X * 2 + 5).requires_grad_()])
    assert found(comparison) == (None, None)
    assert "gradients" in comparison.runs[-1]


def overwritten(x: Any) -> Any:
    total = x + 1
    thrice = total * 3
    total.mul_(2)
    total[0] = 5.0
    return total, thrice


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("total", lambda a, b: a + b + 0.1),
        ("thrice", lambda a, b: a * b + 0.1),
        ("mul_", lambda a, b: a.mul_(b).add_(0.1)),
        ("setitem", lambda a, at, _: a.fill_(6)),
    ],
)
def test_results_that_are_overwritten(name: str, change: Any) -> None:
    """An operation's result is compared as it was before later operations wrote to it."""
    comparison = compared(overwritten, X, **{name: change})
    assert found(comparison)[0] == name
    assert [node.name for node in comparison.reference.operations] == ["total", "thrice", "mul_", "setitem"]
    assert [node.name for node in comparison.reference.values] == ["thrice"]


def overwritten_pair(x: Any) -> Any:
    pair = x.max(0)
    pair[0].add_(1)
    return pair[0], pair[1], x.sin()


def test_several_results_of_an_operation() -> None:
    """Only one of the two is still as the operation left it."""
    reference = compared(overwritten_pair, X.reshape(2, 2)).reference
    ((node, known),) = reference.several.items()
    assert node.target == "max"
    assert [each.tolist() for each in known] == [[1, 1]]


def normalized(x: Any) -> Any:
    factor = torch.linalg.cholesky(x)
    return factor.sin() + 1


POSITIVE, NEGATIVE = torch.eye(2), -torch.eye(2)


def test_an_operation_that_raises_in_eager() -> None:
    with pytest.raises(EagerRaises) as raised:
        compared(normalized, NEGATIVE, traced_with=[POSITIVE], outputs=[POSITIVE])
    assert raised.value.node.name == "factor"
    assert raised.value.problem.startswith("_LinAlgError")
    assert "cholesky" in str(raised.value)


def test_a_call_that_may_raise() -> None:
    comparison = Call(normalized, NEGATIVE, traced_with=[POSITIVE], outputs=[]).compared(may_fail=True)
    assert comparison.reference.failed is not None
    assert comparison.reference.failed[0].name == "factor"
    assert not comparison.differs
    assert comparison.worst == Difference(0.0, 0.0, True)
    assert not comparison.is_stored_right(X, X + 1)
    assert Call(normalized, POSITIVE).compared(may_fail=True).reference.failed is None


def test_an_input_that_no_longer_exists() -> None:
    """No operation has raised."""
    call = Call(doubled, X)
    call.graph.inputs.clear()
    with pytest.raises(NoRealValue) as raised:
        call.compared()
    assert type(raised.value) is NoRealValue
