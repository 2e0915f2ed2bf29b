"""Differences of a compiled call that are in no result of an ordinary operation, as ``compare`` finds them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.utils.checkpoint

from dynamo_dap.debuggee.numerics.faults.body_faults import ALONE
from dynamo_dap.debuggee.numerics.faults.comparisons import EagerRaises
from dynamo_dap.debuggee.numerics.faults.stage_search import DYNAMO
from dynamo_dap.debuggee.numerics.graphs.differences import Difference
from dynamo_dap.debuggee.numerics.graphs.memory_runs import raises_by
from dynamo_dap.debuggee.torch_api.compiles.backends import aot_eager
from dynamo_dap.debuggee.torch_api.graphs.custom_operators import FAKE_KERNEL, OPERATOR
from dynamo_dap.debuggee.torch_api.isolation import random_state
from tests.compile_time.compared import Call, compared, wrong

X = torch.tensor([0.5, -1.25, 2.0, 3.0])
SAME = Difference(0.0, 0.0, True)
OTHER = Difference(1.0, 1.0, False)


# -- custom operators -------------------------------------------------------------------------------------------------

_calls: list[None] = []


@torch.library.custom_op("dynamo_dap_tests::counting", mutates_args=())
def counting(x: torch.Tensor) -> torch.Tensor:
    """Give another result in every call."""
    _calls.append(None)
    return x * 2.0 ** len(_calls)


@torch.library.custom_op("dynamo_dap_tests::writing", mutates_args=())
def writing(x: torch.Tensor) -> torch.Tensor:
    """Write to the argument, against the declaration."""
    x += 1
    return x * 2


@torch.library.custom_op("dynamo_dap_tests::shortening", mutates_args=())
def shortening(x: torch.Tensor) -> torch.Tensor:
    """Return fewer elements than the fake kernel declares."""
    return x[:2].clone()


@torch.library.custom_op("dynamo_dap_tests::dense", mutates_args=())
def dense(x: torch.Tensor) -> torch.Tensor:
    """Refuse operands with other strides."""
    assert x.is_contiguous()
    return x * 2


for _operator in (counting, writing, shortening, dense):
    _operator.register_fake(torch.empty_like)


def counted(x: Any) -> Any:
    shifted = x + 1
    number = counting(shifted)
    return number.sin()


def densely(x: Any) -> Any:
    even = dense(x)
    return even.sin()


def shortened(x: Any) -> Any:
    return shortening(x) + x


def test_an_operator_with_other_results_for_equal_operands() -> None:
    _calls.clear()
    comparison = compared(counted, X)
    assert comparison.fault_of_operator() is None
    fault = comparison.fault()
    assert (fault.stage, fault.node.name) == (OPERATOR, "number")
    assert "when it is called again" in str(fault.operator)


def test_a_deterministic_operator_is_not_at_fault() -> None:
    """It cannot be called again on operands with other strides."""
    comparison = compared(densely, X.reshape(2, 2), even=lambda a: a * 3)
    fault = comparison.fault()
    assert (fault.stage, fault.node.name, fault.operator) == (None, "even", None)


def test_an_operator_whose_operand_is_overwritten_is_not_called_again() -> None:
    def function(x: Any) -> Any:
        y = x.sin()
        number = counting(y)
        y.add_(1)
        return number, y

    _calls.clear()
    fault = compared(function, X).fault()
    assert (fault.node.name, fault.operator) == ("number", None)


@pytest.mark.parametrize(
    ("function", "outputs", "stage", "text"),
    [
        (lambda x: writing(x + 1).sin(), [X], OPERATOR, "It writes to its argument x"),
        (shortened, [X], FAKE_KERNEL, "the operator returns float32[2]"),
    ],
)
def test_an_operator_that_breaks_its_declaration(function: Any, outputs: Any, stage: str, text: str) -> None:
    """It is at fault, also if a later operation fails."""
    fault = compared(function, X, outputs=outputs).fault_of_operator()
    assert fault is not None
    assert (fault.stage, text in str(fault.operator)) == (stage, True)


# -- Dynamo -----------------------------------------------------------------------------------------------------------


def called(x: Any) -> Any:
    y = x * 3
    return y + 1


def calls(x: Any) -> Any:
    a = x.sin()
    b = called(a)
    c = counting(b)
    unused = c.cos() * 2
    return b * 2, c, unused > 9


FILE = __file__
FIRST, CALLED = calls.__code__.co_firstlineno, called.__code__.co_firstlineno


@pytest.mark.parametrize(
    ("lines", "node", "line"),
    [
        ([], None, None),
        ([FIRST + 1], None, None),
        ([CALLED + 1, CALLED + 2], None, None),
        ([FIRST + 5, FIRST + 2], "b", (FILE, FIRST + 2)),
        ([FIRST + 5, CALLED + 1], "y", None),
        ([FIRST + 5], "gt", None),
    ],
)
def test_the_line_at_which_the_graph_differs_from_python(lines: list[int], node: str | None, line: object) -> None:
    _calls.clear()
    comparison = compared(calls, X)
    everywhere = {(FILE, at): SAME for at in range(CALLED, FIRST + 6)}
    comparison.by_line = {**everywhere, **{(FILE, at): OTHER for at in lines}}
    fault = comparison.fault_of_dynamo(lambda path: path != FILE)
    assert (fault and (fault.node.name, fault.line)) == (node and (node, line))
    assert fault is None or (fault.stage, fault.difference, fault.visit) == (DYNAMO, OTHER, 1)
    assert comparison.fault_of_dynamo(lambda path: True) is None


def test_an_operator_in_a_line_that_differs_from_python() -> None:
    _calls.clear()
    comparison = compared(counted, X)
    line = (FILE, counted.__code__.co_firstlineno + 2)
    comparison.by_line = {line: OTHER, (FILE, line[1] + 1): OTHER}
    fault = comparison.fault_of_dynamo(lambda path: path != FILE)
    assert fault is not None
    assert (fault.node.name, fault.stage, fault.line) == ("number", OPERATOR, None)


# -- written inputs, random numbers, stored values --------------------------------------------------------------------


def updated(x: Any, state: Any) -> Any:
    unused = x.cos()
    twice = x * 2
    more = twice + 1
    state.add_(more)
    return x.sin(), unused > 9


@pytest.mark.parametrize(
    ("changes", "node"),
    [
        ({"add_": lambda a, b: a.add_(b).add_(1)}, "add_"),
        ({"more": lambda a, b: a + b + 1}, "more"),
        ({"twice": lambda a, b: a * b + 1, "unused": lambda a: a.cos() + 1}, "twice"),
    ],
)
def test_wrong_contents_of_an_input(changes: Any, node: str) -> None:
    """The first wrong operation on which the writing one depends."""
    call = Call(updated, X, X.clone(), **changes)
    comparison = call.compared()
    assert not comparison.differs
    fault = comparison.fault_in_memory(call.after)
    assert fault is not None
    assert (fault.node.name, fault.stage, fault.written) == (node, None, "state")
    assert [each.right for each in fault.judged] == [True, False]
    assert "AOTAutograd" in comparison.runs[2] or "aot_eager" in comparison.runs[2]


def test_right_contents_of_an_input() -> None:
    call = Call(updated, X, X.clone())
    comparison = call.compared()
    assert comparison.fault_in_memory(call.after) is None
    assert not comparison.by_node


def draws(x: Any) -> Any:
    return x + torch.rand(4)


def test_the_state_of_the_random_generator() -> None:
    call = Call(draws, X)
    right = call.compared()
    assert not right.differs
    assert right.fault_in_random_state(call.random_after) is None
    assert right.fault_in_random_state(None) is None
    call = Call(draws, X, add=lambda a, b: a + b + 0 * torch.rand(4))
    comparison = call.compared()
    assert not comparison.differs
    fault = comparison.fault_in_random_state(call.random_after)
    assert fault is not None
    assert (fault.stage, fault.node, fault.difference) == (None, None, Difference(0.0, 0.0, False))
    assert "random number generator" in str(fault.observed)
    assert [each.right for each in fault.judged] == [True, False]


def test_the_state_of_the_random_generator_of_inductor() -> None:
    comparison = compared(draws, X, outputs=[X])
    comparison.backend = torch._dynamo.lookup_backend("inductor")
    assert comparison.fault_in_random_state(random_state() + 1) is None
    assert "Inductor draws other numbers" in comparison.not_compared[0]


def returned_number() -> Any:
    """Return a graph that returns a Python number, beside a tensor."""
    graph = torch.fx.Graph()
    given = graph.placeholder("given")
    made = graph.call_function(
        torch.scalar_tensor, (graph.call_function(operator.mul, (given, 3)),), {"dtype": torch.float64}
    )
    graph.output((made, graph.call_function(torch.scalar_tensor, (1,), {"dtype": torch.float64}), 4))
    return torch.fx.GraphModule({}, graph)


@pytest.mark.parametrize(
    ("expected", "stored", "is_right"),
    [(0.1 * 3, 0.3, True), (0.5, 0.3, False), (0.1 * 3, 0.4, False), (0.9, 1.0, False)],
)
def test_stored_numbers(expected: float, stored: float, is_right: bool) -> None:
    """A stored number is right if the graph returns it, and if it is within rounding of the expected one."""
    comparison = compared(returned_number(), 0.1, mul=lambda a, b: 0.3)
    assert comparison.is_stored_right(expected, stored) == is_right


def stores(x: Any, state: Any) -> Any:
    large = x + 1000
    state.sub_(large - 1000)
    return x.bool(), large - 1000, x.double(), x[:1]


SMALL = X / 1e3
EXACT: dict[str, Any] = {
    "large": lambda a, b: a.double() + b,
    "sub": lambda a, b: (a - b).float(),
    "sub_1": lambda a, b: (a - b).float(),
}
"""Changes of ``stores`` that avoid its rounding errors, which are not small."""


def test_a_number_that_the_compiled_graph_returns_as_such() -> None:
    """It should be a tensor."""
    comparison = compared(returned_number(), 0.1, outputs=[0.1 * 3, torch.tensor(1.0), 4])
    assert not comparison.is_stored_right(0.1 * 3, 0.3)


def test_stored_tensors() -> None:
    comparison = compared(stores, SMALL, torch.zeros(4), **EXACT)
    rounded: Any = comparison.reference.outputs[1]
    exact: Any = comparison.outputs[1]
    assert not comparison.differs
    assert comparison.is_stored_right(rounded, rounded.clone())
    assert comparison.is_stored_right(rounded, exact)
    assert not comparison.is_stored_right(rounded, exact * 1.5)
    assert not comparison.is_stored_right(rounded * 1.5, exact)


def test_tensors_that_the_graph_leaves_in_inputs() -> None:
    call = Call(stores, SMALL, torch.zeros(4), **EXACT)
    comparison = call.compared()
    expected, stored = 1000 - (SMALL + 1000), call.after[1]
    assert not comparison.is_stored_right(expected, stored)
    assert comparison.fault_in_memory(call.after) is None
    assert comparison.is_stored_right(expected, stored)
    assert not comparison.is_stored_right(expected * 1.5, stored)


# -- memory -----------------------------------------------------------------------------------------------------------


def partly_set(x: Any) -> Any:
    memory = torch.empty(4)
    memory[:2] = x[:2]
    copy = memory.clone()
    pair = memory.max(0)
    return x.sin(), copy, pair[0]


def sine(x: Any) -> Any:
    return x.sin()


def unused_memory(x: Any) -> Any:
    memory = torch.empty(4)
    copy = memory + x
    return x.sin(), copy.zero_()


def test_memory_that_no_operation_sets() -> None:
    """Only the elements that are set are compared."""
    comparison = compared(partly_set, X, empty=lambda n: torch.full((n,), 7.0))
    assert not comparison.differs
    assert "torch.empty" in comparison.not_compared[0]
    assert [node.name for node in comparison.reference.operations] == ["getitem", "setitem", "copy", "sin"]
    assert not comparison.reference.several
    changed = compared(partly_set, X, copy=lambda a: a + 1)
    assert [each.is_same for each in changed.of_outputs] == [True, False, True]
    assert changed.fault().node.name == "copy"
    assert compared(unused_memory, X).not_compared == []


def test_released_memory() -> None:
    """It has no contents to compare."""
    outputs = [X + 1]
    assert compared(sine, X, outputs=outputs).differs
    outputs[0].untyped_storage().resize_(0)
    assert not compared(sine, X, outputs=outputs).differs


def test_memory_that_belongs_to_the_graph() -> None:
    """A result in such memory is kept when later runs overwrite it."""
    graph = torch.fx.Graph()
    given, own = graph.placeholder("given"), graph.get_attr("own")
    graph.output((graph.call_method("add_", (own, given)),))
    module = torch.fx.GraphModule({"own": torch.zeros(4)}, graph)
    comparison = compared(module, X, outputs=[X + 1], add_=lambda a, b: a.add_(b).add_(1))
    fault = comparison.fault()
    assert fault.node.name == "add_"
    assert torch.equal(fault.value, X + 1)


# -- operators with bodies, and transforms ----------------------------------------------------------------------------


def checkpointed(x: Any) -> Any:
    def body(given: Any) -> Any:
        inner = given.sin()
        return inner * 2

    return torch.utils.checkpoint.checkpoint(body, x, use_reentrant=False) + 1


def test_an_operation_in_the_body_of_an_operator() -> None:
    comparison = compared(checkpointed, X, inner=lambda a: a.sin() + 1)
    fault = comparison.fault()
    assert fault.within is not None
    assert (fault.node.name, "checkpoint" in fault.within.name) == ("inner", True)
    assert [node.name for node, how in comparison.by_node.items() if not how.is_same][-2:] == ["inner", "mul"]
    assert ALONE not in comparison.runs


def test_a_body_that_cannot_be_compared() -> None:
    def refuse(module: Any, given: Sequence[Any]) -> Any:
        if len(list(module.wrap_body_0.graph.nodes)[-1].args[0]) > 1:
            raise ValueError("too many")
        return wrong({"inner": lambda a: a.sin() + 1})(module, given)

    comparison = compared(checkpointed, X, backend=refuse)
    fault = comparison.fault()
    assert fault.within is None
    assert "too many" in comparison.not_compared[-1]


def updated_by_body(x: Any, state: Any) -> Any:
    state.add_(checkpointed(x))
    return x.cos()


def test_the_stages_of_a_graph_with_a_body_that_writes_to_an_input() -> None:
    """The stage before the backend is judged, too."""
    call = Call(updated_by_body, X, X.clone(), add_=lambda a, b: a.add_(b).add_(1))
    comparison = call.compared()
    fault = comparison.fault_in_memory(call.after)
    assert fault is not None
    assert (fault.node.name, fault.stage) == ("add_", None)
    assert [each.right for each in fault.judged] == [True, False]


def factored(x: Any) -> Any:
    def body(given: Any) -> Any:
        return torch.linalg.cholesky(given)

    return torch.utils.checkpoint.checkpoint(body, x, use_reentrant=False)


def test_an_operation_in_a_body_raises_in_the_stage_before_the_backend() -> None:
    """Otherwise that stage would be at fault, for a call that raises in eager alone."""
    call = Call(factored, -torch.eye(2), traced_with=[torch.eye(2)], outputs=[torch.eye(2)])
    with pytest.raises(EagerRaises) as raised:
        call.compared()
    assert not raises_by(wrong({}), call.graph, (), "ValueError: other")
    assert raises_by(wrong({}), call.graph, (), raised.value.problem)
    assert raises_by(aot_eager(), call.graph, (), raised.value.problem)


def differentiated(x: Any) -> Any:
    def cost(given: Any) -> Any:
        factor = torch.ones(4).cumsum(0)
        twice = factor * 2
        square = given * given * twice
        return square.sum()

    return torch.func.grad(cost)(x) + 1


def test_an_operation_inside_a_transform() -> None:
    comparison = compared(differentiated, X, square=lambda a, b: a * b * 1.5)
    fault = comparison.fault()
    assert (fault.node.name, fault.stage) == ("square", None)
    assert comparison.reference.visible.inside
