"""The rules by which ``compare`` distinguishes rounding from a defect: for each clause, a case that only it decides.

``exact`` is a float64 result. ``eager``, ``compiled`` and ``runs`` are errors against it: of the two results, and of
disturbed float64 runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from dynamo_dap.debuggee.numerics.graphs.differences import (
    DISTURBED_RUNS,
    Difference,
    difference,
    zeros_of_other_sign,
)

COUNT = 16
SIDES = [(-1.0) ** at for at in range(COUNT)]
LARGE_FIRST = [100.0] + [1.0] * (COUNT - 1)
"""Elements of the exact result. The error of the first, large one must not excuse errors of the others."""
ONE_STEP = [2.0**-7] * COUNT
"""The step between two bfloat16 numbers at one."""
LARGE_STEP = 2.0**-14
"""The step between two float32 numbers at 1000."""


def only(at: int, error: float) -> list[float]:
    """Return errors that are zero except at one element."""
    return [error if each == at else 0.0 for each in range(COUNT)]


def to_both_sides(error: float, *, first: float | None = None) -> list[float]:
    """Return errors of alternating signs; ``first`` is the first one."""
    errors = [error * side for side in SIDES]
    return errors if first is None else [first, *errors[1:]]


def first_two(error: float) -> list[float]:
    """Return errors of which the first two are others, of both signs."""
    return [error, -error, *to_both_sides(1e-5)[2:]]


@dataclass(frozen=True)
class Case:
    """Two results of one operation, and whether they are the same except for rounding."""

    same: bool
    compiled: Sequence[float]
    eager: Sequence[float] = field(default_factory=lambda: [0.0] * COUNT)
    exact: Sequence[float] = field(default_factory=lambda: [1.0] * COUNT)
    runs: Sequence[Sequence[float]] = ()
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class Known:
    """Returns the results of a case. Implements ``differences.Referee``."""

    case: Case

    def exact(self) -> torch.Tensor:
        """Return the float64 result."""
        return torch.tensor(self.case.exact, dtype=torch.float64)

    def disturbed(self, count: int = DISTURBED_RUNS, times: float = 1.0) -> list[torch.Tensor]:
        """Return the disturbed float64 results; there are no strongly disturbed ones."""
        if times != 1:
            return []
        return [self.exact() + torch.tensor(each, dtype=torch.float64) for each in self.case.runs[:count]]


CASES = {
    # A compiled result that is nearer to float64 than eager's.
    "nearer, with an error elsewhere": Case(True, only(1, 2e-4), only(0, 1e-3), LARGE_FIRST),
    "nearer in its largest error alone": Case(False, to_both_sides(3e-4), only(0, 1e-3), LARGE_FIRST),
    "nearer in its RMSE alone": Case(False, only(1, 3e-4), [2e-4, 0.0] + [2e-4] * 14, [100.0, 1.0] + [100.0] * 14),
    "nearer, but without half of the digits": Case(False, only(1, 5e-4), only(0, 1e-3), LARGE_FIRST),
    # Errors of some units in the last place, and errors as large as eager's.
    "two units": Case(True, only(3, 2.2e-7)),
    "three units": Case(False, only(3, 3.6e-7)),
    "thrice the error of eager": Case(True, to_both_sides(2.8e-5), to_both_sides(1e-5)),
    "four times the error of eager": Case(False, to_both_sides(4e-5), to_both_sides(1e-5)),
    "each element in the limit, all together beyond": Case(False, to_both_sides(8e-5), to_both_sides(1e-6, first=3e-5)),
    "eager is wrong by its size near zero": Case(False, only(1, 1e-4), only(0, 1e-6), [1e-6] + [1.0] * 15),
    # Errors as large as those of disturbed runs.
    "as far as disturbed runs": Case(True, to_both_sides(5e-5), runs=[to_both_sides(1e-5)]),
    "farther than disturbed runs": Case(False, to_both_sides(7e-5), runs=[to_both_sides(1e-5)]),
    "two elements farther than disturbed runs": Case(
        False, [0.0, 1e-4, -1e-4] + [0.0] * 13, runs=[to_both_sides(1e-5)]
    ),
    "each element as far as in some run": Case(
        False, to_both_sides(5e-4)[:8], [0.0] * 8, [1.0] * 8, [only(at, 1e-4)[:8] for at in range(8)]
    ),
    "where no run happens to be disturbed": Case(True, to_both_sides(1e-5), runs=[to_both_sides(1e-5, first=0.0)]),
    "near the typical noise, where no run is disturbed": Case(True, first_two(5.5e-5), runs=[first_two(0.0)]),
    "beyond the typical noise, where no run is disturbed": Case(False, first_two(6.5e-5), runs=[first_two(0.0)]),
    # Rounding decides between two results, such as at a condition.
    "the other of two results": Case(True, only(0, 10.0), runs=[only(0, 10.0)] * 4 + [only(0, 0.0)] * 4),
    "neither of two results": Case(False, only(0, 30.0), runs=[only(0, 10.0)] * 4 + [only(0, 0.0)] * 4),
    "a result between many": Case(True, only(0, 0.35), runs=[only(0, at / 10) for at in range(-3, 5)]),
    # All errors in one direction.
    "bfloat16, to both sides": Case(True, to_both_sides(2.0**-7), dtype=torch.bfloat16),
    "bfloat16, to one side": Case(False, ONE_STEP, runs=[to_both_sides(1e-3)], dtype=torch.bfloat16),
    "bfloat16, as eager": Case(True, ONE_STEP, [0.0, *ONE_STEP[1:]], runs=[to_both_sides(1e-3)], dtype=torch.bfloat16),
    "bfloat16, as disturbed runs": Case(True, ONE_STEP, runs=[ONE_STEP], dtype=torch.bfloat16),
    "float32, to one side": Case(False, [6e-6] * COUNT, to_both_sides(3e-6), runs=[to_both_sides(1e-6)]),
    "float32, to one side by few steps": Case(True, [1e-6] * COUNT, runs=[to_both_sides(1e-6)]),
    "bfloat16, to one side, Inf in a run": Case(True, ONE_STEP, runs=[only(0, math.inf)], dtype=torch.bfloat16),
    "bfloat16, to one side, -Inf in a run": Case(True, ONE_STEP, runs=[only(0, -math.inf)], dtype=torch.bfloat16),
    "seven elements, to one side": Case(
        True, ONE_STEP[:7], [0.0] * 7, [1.0] * 7, runs=[to_both_sides(1e-3)[:7]], dtype=torch.bfloat16
    ),
    "bfloat16, to one side, without runs": Case(True, ONE_STEP, dtype=torch.bfloat16),
    # All errors in one direction, with elements much larger than one.
    "large elements, to one side": Case(
        False, [6e-3] * COUNT, to_both_sides(3e-3), [1000.0] * COUNT, runs=[to_both_sides(1e-3)]
    ),
    "large elements, to one side no farther than eager to both": Case(
        True,
        [50 * LARGE_STEP, 40 * LARGE_STEP] * 8,
        to_both_sides(48 * LARGE_STEP),
        [1000.0] * COUNT,
        runs=[to_both_sides(1e-3)],
    ),
    # NaN and Inf.
    "NaN in the compiled result": Case(False, only(3, math.nan), to_both_sides(1e-2)),
    "Inf in eager alone": Case(True, only(3, 1e-7), only(3, math.inf)),
    "Inf in eager does not permit other errors": Case(False, only(1, 2e-4), only(3, math.inf)),
    "Inf in both": Case(True, only(3, math.inf), only(3, math.inf)),
    "NaN in both, and rounding elsewhere": Case(True, only(1, 1.2e-7), exact=[1.0] * 15 + [math.nan]),
    "Inf of the other sign": Case(False, only(3, -math.inf), only(3, math.inf), only(3, math.inf)),
}


@pytest.mark.parametrize("name", CASES)
def test_what_rounding_explains(name: str) -> None:
    case = CASES[name]
    exact = torch.tensor(case.exact, dtype=torch.float64)
    eager, compiled = (
        (exact + torch.tensor(each, dtype=torch.float64)).to(case.dtype) for each in (case.eager, case.compiled)
    )
    found = difference(eager, compiled, Known(case))
    assert found.is_same == case.same, found
    assert found.largest > 0 or torch.equal(eager, compiled)


TWO_TIES = [[0], [0], [0], [9], [9], [0], [9], [0]] * 5
"""Disturbed runs that give an index of 3 or of 12."""
RARE = [[0]] * 7 + [[40]] + [[0], [40], [-2], [0]] * 8
"""Disturbed runs that give another integer only rarely."""
ONLY_ONCE = [*TWO_TIES[:-1], [200]]


@pytest.mark.parametrize(
    ("compiled", "runs", "same", "undecided"),
    [
        (3, [[0]] * 40, True, 0),
        (4, [[0]] * 40, False, 0),
        (12, TWO_TIES, True, 0),
        (7, TWO_TIES, False, 0),
        (70, TWO_TIES, False, 0),
        (1, RARE, True, 0),
        (7, ONLY_ONCE, True, 1),
        (2000, ONLY_ONCE, True, 1),
    ],
)
def test_integers_that_rounding_decides(compiled: int, runs: list[list[int]], same: bool, undecided: int) -> None:
    """The compiled integer is right if a run gives it. Else it is wrong, or undecided if a run has its own integer."""
    known = Known(Case(same, [], exact=[3.0], runs=runs))
    found = difference(torch.tensor([3]), torch.tensor([compiled]), known)
    assert (found.is_same, found.undecided) == (same, undecided)


@pytest.mark.parametrize(("error", "same"), [(500, True), (2000, False)])
def test_an_integer_that_no_run_changes_may_not_be_far_away(error: int, same: bool) -> None:
    """The first integer has an own value in one run, 191 from the nearest other. The second is equal in all runs."""
    runs = [torch.tensor([3 + run[0], 3]) for run in ONLY_ONCE]
    found = difference(torch.tensor([3, 3]), torch.tensor([3, 3 + error]), Decided(torch.tensor([3.0, 3.0]), runs))
    assert (found.is_same, found.undecided) == (same, int(same))


@pytest.mark.parametrize(("eager", "same"), [(3, False), (4, True), (2, True)])
def test_a_certain_integer_may_differ_where_that_of_eager_does(eager: int, same: bool) -> None:
    exact = torch.tensor([3.0, 3.0], dtype=torch.float64)
    runs = [torch.tensor([3 + run[0], 3]) for run in ONLY_ONCE]
    known = Decided(exact, runs, [exact.clone() for _ in range(16)])
    assert difference(torch.tensor([3, eager]), torch.tensor([3, 5]), known).is_same == same


def near_to_halves(number: int, times: float = 1.0) -> torch.Tensor:
    """Round many numbers to integers, with a different error for each number in each run."""
    generator = torch.Generator().manual_seed(number)
    numbers = torch.linspace(0, 300, 3_000, dtype=torch.float64)
    errors = torch.rand(3_000, generator=generator, dtype=torch.float64) - 0.5
    return (numbers + 0.02 * times * errors).round().long()


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({25: 1}, True),
        ({100: 1}, False),
        ({100: 50}, False),
        (dict.fromkeys(range(0, 3000, 20), 1), False),
    ],
    ids=["right", "one near a half", "one far from a half", "one far away", "many next to it"],
)
def test_many_integers_of_which_rounding_decides_some(change: dict[int, int], same: bool) -> None:
    """In a right result, about as many integers occur in no other run as in any run's own result."""
    compiled = near_to_halves(0)
    for at, error in change.items():
        compiled[at] += error
    runs = [near_to_halves(number) for number in range(1, 43)]
    strong = [near_to_halves(number, 8.0) for number in range(50, 66)]
    found = difference(runs[0], compiled, Decided(runs[1], runs[2:], strong))
    assert found.is_same == same
    assert not change or found.largest >= max(change.values())


def test_large_integers_are_compared_exactly() -> None:
    """The two integers are equal as float64, so they must be compared as integers."""
    large = torch.tensor([2**60, 2**60 + 1])
    assert difference(large, large.clone(), Decided(large)).is_same
    assert not difference(large, large + 1, Decided(large)).is_same
    assert not difference(large, large + 1).is_same


@pytest.mark.parametrize("runs", [0, 40])
def test_the_farthest_integers_are_not_taken_for_equal(runs: int) -> None:
    """Their distance does not fit into 64 bits. The smallest integer comes from NaN, or from the start of a maximum."""
    smallest = torch.full((4,), -(2**63))
    for one, two in ((smallest, torch.zeros_like(smallest)), (torch.zeros_like(smallest), smallest)):
        assert not difference(one, two, Decided(one, [one] * runs)).is_same
    assert not difference(smallest, -smallest - 1, Decided(smallest, [smallest] * runs)).is_same


@dataclass(frozen=True)
class Decided:
    """Returns a float64 run and its disturbed runs. Implements ``differences.Referee``."""

    right: object
    runs: Sequence[object] = ()
    strong: Sequence[object] = ()

    def exact(self) -> object:
        """Return the float64 result."""
        return self.right

    def disturbed(self, count: int = DISTURBED_RUNS, times: float = 1.0) -> Sequence[object]:
        """Return the disturbed results."""
        return self.runs[:count] if times == 1 else self.strong


def floats(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a vector."""
    return torch.tensor(values, dtype=dtype)


def wrapped(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    """Return a tensor of a subclass that contains two tensors, like DTensor, which contains one."""
    from torch.testing._internal.two_tensor import TwoTensor

    return TwoTensor(one, two)


@pytest.mark.parametrize(
    ("eager", "compiled", "same"),
    [
        (floats(1.0, 1000.0), floats(1.0 + 3e-4, 1000.0), True),
        (floats(1.0, 1.0), floats(1.0 + 3e-4, 1.0), True),
        (floats(1.0, 1.0), floats(1.0 + 1e-3, 1.0), False),
        (floats(1.0, 1.0, dtype=torch.float64), floats(1.0 + 1e-6, 1.0, dtype=torch.float64), False),
        (floats(1.0, 1e4), floats(1.0, 1e4 + 7.0), False),
        (floats(math.inf, 1.0), floats(math.inf, 1.0 + 1e-3), False),
        (floats(math.nan, 1.0), floats(math.nan, 1.0), True),
        (torch.tensor([1 + 1j]), torch.tensor([1 + 1.0001j]), True),
        (torch.tensor([1 + 1j]), torch.tensor([1 + 1.1j]), False),
        (torch.tensor([3, 4]), torch.tensor([3, 4]), True),
        (torch.tensor([3, 1 << 40]), torch.tensor([3, (1 << 40) + 1]), False),
        (torch.tensor([True]), torch.tensor([False]), False),
        (torch.empty(0), torch.empty(0), True),
        (torch.empty(0), torch.empty(0, 1), False),
        (floats(1.0), floats(1.0, dtype=torch.float64), False),
        (1, 2, True),
        (floats(1.0), 1.0, True),
        (wrapped(floats(1.0), floats(2.0)), wrapped(floats(1.0), floats(2.0)), True),
        (wrapped(floats(1.0), floats(2.0)), wrapped(floats(1.0), floats(2.5)), False),
        (wrapped(floats(1.0), floats(2.0)), wrapped(floats(1.5), floats(2.0)), False),
        (wrapped(floats(1.0), floats(2.0)), floats(1.5), True),
    ],
)
def test_without_a_float64_run_the_size_of_numbers_decides(eager: object, compiled: object, same: bool) -> None:
    assert difference(eager, compiled).is_same is same


@pytest.mark.parametrize("value", [floats(1.0, 2.0), torch.tensor([3]), torch.empty(0), 1], ids=str)
def test_equal_results_have_no_difference(value: Any) -> None:
    other = value.clone() if isinstance(value, torch.Tensor) else value
    assert difference(value, other) == Difference(0.0, 0.0, True)


@pytest.mark.parametrize(("count", "same"), [(999, True), (2000, False)])
def test_the_largest_error_of_eager_widens_the_tolerance_of_few_elements(count: int, same: bool) -> None:
    exact = torch.ones(count, dtype=torch.float64)
    eager, compiled = exact.float(), exact.float()
    eager[0] += 1e-3
    compiled[1] += 2e-3
    assert difference(eager, compiled, Decided(exact)).is_same == same


def test_a_result_near_zero_has_no_error_in_percent() -> None:
    zeros = torch.zeros(COUNT, dtype=torch.float64)
    found = difference(zeros.float(), zeros.float() + 1e-38, Decided(zeros))
    assert (found.is_same, found.rounding) == (True, None)


def test_the_worst_of_inner_tensors_is_reported() -> None:
    found = difference(wrapped(floats(1.0), floats(2.0)), wrapped(floats(1.25), floats(4.0)))
    assert found.largest == 2.0
    # A difference beyond rounding comes first, even if a difference within rounding is larger.
    found = difference(wrapped(floats(1e9), floats(2.0)), wrapped(floats(1e9 + 128), floats(2.5)))
    assert (found.is_same, found.largest) == (False, 0.5)


def test_a_float64_run_of_another_shape_or_none_decides_nothing() -> None:
    eager, compiled = floats(1.0, 1.0), floats(1.0 + 3e-4, 1.0)
    assert difference(eager, compiled, Decided(None)).is_same
    assert difference(eager, compiled, Decided(floats(1.0))).is_same
    assert difference(eager, compiled, Decided(floats(1.0, 1.0, 1.0))).is_same
    assert not difference(eager, compiled, Decided(floats(1.0, 1.0))).is_same


def test_disturbed_runs_without_a_value_or_of_another_shape_are_left_out() -> None:
    case = CASES["as far as disturbed runs"]
    exact = torch.tensor(case.exact, dtype=torch.float64)
    compiled = (exact + torch.tensor(case.compiled, dtype=torch.float64)).float()
    useful = exact + torch.tensor(case.runs[0], dtype=torch.float64)
    assert difference(exact.float(), compiled, Decided(exact, [None, exact[:1] + 1.0, useful])).is_same
    assert not difference(exact.float(), compiled, Decided(exact, [None, exact[:1] + 1.0])).is_same
    integers = torch.tensor([3, 4]), torch.tensor([3, 5])
    assert not difference(*integers, Decided(integers[0].double(), [None, integers[1][1:]])).is_same
    assert not difference(*integers, Decided(integers[0].double(), [torch.tensor([3, 5, 5])])).is_same
    one_step = (exact + 2.0**-7).bfloat16()
    assert difference(exact.bfloat16(), one_step, Decided(exact, [None, exact[:1], one_step])).is_same


def test_a_difference_says_its_size_and_its_reason() -> None:
    eager = floats(1.0, 2.0)
    found = difference(eager, floats(1.0, 2.5), Decided(eager.double()))
    assert (found.largest, found.error, found.reference_error) == (0.5, 0.5, 0.0)
    assert found.rmse == pytest.approx(math.sqrt(0.125))
    assert found.headline == "largest difference 0.5"
    assert found.size == "largest difference 0.5, RMSE 0.354"
    assert "0.5 compiled, 0 in eager" in found.text
    alone = difference(eager, floats(1.0, 2.5))
    assert alone.text == alone.size
    for compiled, reason in (
        (floats(1.0, math.nan), "1 elements are NaN in the"),
        (floats(math.inf, math.inf), "2 elements are Inf in the"),
        (floats(1.0), "float32[1] instead of float32[2]"),
        (floats(1.0, 2.0, dtype=torch.float64), "float64[2] instead of float32[2]"),
    ):
        for one, two in ((eager, compiled), (compiled, eager)):
            found = difference(one, two)
            assert found.headline == found.reason
            assert found.size.endswith(found.reason)
            assert not found.is_same
            assert reason in found.reason or two is eager
    assert "in eager alone" in difference(floats(1.0, math.nan), eager).reason


@pytest.mark.parametrize(
    ("eager", "compiled", "text"),
    [
        # The largest element of the float64 run is 1.
        (0.0, 0.0625, "bfloat16 rounding: 6.2 %, eager 0"),
        (0.0625, 0.03125, None),
    ],
)
def test_a_large_error_within_rounding_is_shown_in_percent(eager: float, compiled: float, text: str | None) -> None:
    exact = torch.tensor([1.0] * COUNT, dtype=torch.float64)
    one, two = ((exact + torch.tensor(only(0, error), dtype=torch.float64)) for error in (-eager, -compiled))
    found = difference(one.bfloat16(), two.bfloat16(), Decided(exact, [two, exact]))
    assert found.is_same
    assert found.rounding is None if text is None else text in str(found.rounding)


def test_a_small_error_within_rounding_is_not_shown() -> None:
    exact = torch.tensor([1.0] * 15 + [2.0**-4], dtype=torch.float64)
    compiled = exact - torch.tensor(only(15, 2.0**-12), dtype=torch.float64)
    found = difference(exact.bfloat16(), compiled.bfloat16(), Decided(exact))
    assert (found.is_same, found.error, found.rounding) == (True, 2.0**-12, None)


@pytest.mark.parametrize(
    ("eager", "compiled", "count"),
    [
        (floats(0.0, -0.0, 0.0, 1.0), floats(-0.0, 0.0, 0.0, -1.0), 2),
        (floats(0.0, 0.0), floats(0.0, -1.0), 0),
        (floats(1.0, -0.0), floats(-0.0, 1.0), 0),
        (floats(0.0), floats(-0.0, -0.0), 0),
        (floats(0.0), floats(-0.0, dtype=torch.float64), 0),
        (torch.tensor([0]), torch.tensor([0]), 0),
        (0.0, -0.0, 0),
        (floats(0.0), -0.0, 0),
    ],
)
def test_zeros_of_other_sign_are_counted_though_they_are_equal(eager: object, compiled: object, count: int) -> None:
    assert zeros_of_other_sign(eager, compiled) == count
