"""Why an operation is there as it is: what Inductor says becomes a sentence, of one operation and of fused ones."""

from __future__ import annotations

from dataclasses import dataclass

from dynamo_dap.debuggee.torch_api.lowering.stage_costs import MAXIMUM_REASONS, Reasons


@dataclass
class Why:
    """As Inductor's ``WhyNoFuse``, when it has been reported."""

    name1: str
    name2: str
    reason: str
    args: tuple[object, ...] = ()


def reported(*whys: Why) -> Reasons:
    reasons = Reasons()
    for why in whys:
        reasons.not_fused(why)
    return reasons


def test_a_reason_names_the_operations_and_has_its_numbers() -> None:
    reasons = reported(Why("op1", "op2", "node1 has %d\n   users, node2 %s", (3, "none")))
    assert list(reasons.of_fused(["op1"], {})) == [("op2", "op1 has 3 users, op2 none")]
    assert list(reasons.of_fused(["op2"], {})) == [("op1", "op1 has 3 users, op2 none")], "from the other side, too"
    assert list(reasons.of_fused(["op3"], {})) == []


def test_operations_with_nothing_in_common_need_no_reason() -> None:
    assert list(reported(Why("op1", "op2", "no shared data")).of_fused(["op1"], {})) == []


def test_the_newest_reason_counts() -> None:
    reasons = reported(Why("op1", "op2", "not yet"), Why("op1", "op2", "never"))
    assert list(reasons.of_fused(["op1"], {})) == [("op2", "never")]


def test_reasons_are_reported_for_what_operations_were_fused_into() -> None:
    reasons = reported(Why("op1", "op2", "too large"), Why("op1_op2", "op3", "between"), Why("op3", "op4_op5", "later"))
    holder = {"op1": "op1_op2", "op2": "op1_op2", "op4": "op4_op5", "op5": "op4_op5"}
    assert list(reasons.of_fused(["op1", "op2"], holder)) == [("op3", "between")], "they were fused after all"
    assert list(reasons.of_fused(["op3"], holder)) == [("op1_op2", "between"), ("op4_op5", "later")]
    # In the end they were fused with different ones.
    assert list(reasons.of_fused(["op3"], {**holder, "op5": "op5_op6"})) == [("op1_op2", "between")]


def test_what_is_reported_for_one_operation_is_bounded() -> None:
    reasons = reported(*(Why("op0", f"op{each}", "apart") for each in range(1, 3 * MAXIMUM_REASONS)))
    assert len(list(reasons.of_fused(["op0"], {}))) == MAXIMUM_REASONS


def test_one_that_was_not_copied_has_no_reason() -> None:
    assert Reasons().of_operation("op0") == []
