"""The rule by which ``compare`` distinguishes rounding from a defect: each clause decides one of these cases alone.

``exact`` is a float64 result, ``eager`` and ``compiled`` are the errors of the two results against it, and ``runs``
those of disturbed float64 runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import torch

from dynamo_dap.debuggee.numerics.differences import DISTURBED_RUNS, difference

COUNT = 16
SIDES = [(-1.0) ** at for at in range(COUNT)]
LARGE_FIRST = [100.0] + [1.0] * (COUNT - 1)
"""Elements of the exact result: an error of the first one does not permit one of another."""
ONE_STEP = [2.0**-7] * COUNT
"""The step between two bfloat16 numbers at one."""


def only(at: int, error: float) -> list[float]:
    """Return errors that are zero but at one element."""
    return [error if each == at else 0.0 for each in range(COUNT)]


def to_both_sides(error: float, *, first: float | None = None) -> list[float]:
    """Return errors of alternating signs; ``first`` is the first one."""
    errors = [error * side for side in SIDES]
    return errors if first is None else [first, *errors[1:]]


@dataclass(frozen=True)
class Case:
    """Two results of one operation, and whether they are the same but for rounding."""

    same: bool
    compiled: Sequence[float]
    eager: Sequence[float] = field(default_factory=lambda: [0.0] * COUNT)
    exact: Sequence[float] = field(default_factory=lambda: [1.0] * COUNT)
    runs: Sequence[Sequence[float]] = ()
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class Known:
    """Gives the results that a case has. Implements ``differences.Referee``."""

    case: Case

    def exact(self) -> torch.Tensor:
        """Return the float64 result."""
        return torch.tensor(self.case.exact, dtype=torch.float64)

    def disturbed(self, count: int = DISTURBED_RUNS) -> list[torch.Tensor]:
        """Return the disturbed float64 results."""
        return [self.exact() + torch.tensor(each, dtype=torch.float64) for each in self.case.runs[:count]]


CASES = {
    # A compiled result that is nearer to float64 than eager's.
    "nearer, with an error elsewhere": Case(True, only(1, 2e-4), only(0, 1e-3), LARGE_FIRST),
    "nearer in its largest error alone": Case(False, to_both_sides(3e-4), only(0, 1e-3), LARGE_FIRST),
    "nearer in its RMSE alone": Case(False, only(1, 3e-4), [2e-4, 0.0] + [2e-4] * 14, [100.0, 1.0] + [100.0] * 14),
    "nearer, but without half of the digits": Case(False, only(1, 5e-4), only(0, 1e-3), LARGE_FIRST),
    # Units in the last place, and the error of eager.
    "two units": Case(True, only(3, 2.2e-7)),
    "three units": Case(False, only(3, 3.6e-7)),
    "thrice the error of eager": Case(True, to_both_sides(2.8e-5), to_both_sides(1e-5)),
    "four times the error of eager": Case(False, to_both_sides(4e-5), to_both_sides(1e-5)),
    "each element in the limit, all together beyond": Case(False, to_both_sides(8e-5), to_both_sides(1e-6, first=3e-5)),
    "eager is wrong by its size near zero": Case(False, only(1, 1e-4), only(0, 1e-6), [1e-6] + [1.0] * 15),
    # The error of runs in which each result is disturbed.
    "as far as disturbed runs": Case(True, to_both_sides(5e-5), runs=[to_both_sides(1e-5)]),
    "farther than disturbed runs": Case(False, to_both_sides(7e-5), runs=[to_both_sides(1e-5)]),
    "each element as far as in some run": Case(
        False, to_both_sides(5e-4)[:8], [0.0] * 8, [1.0] * 8, [only(at, 1e-4)[:8] for at in range(8)]
    ),
    "where no run happens to be disturbed": Case(True, to_both_sides(1e-5), runs=[to_both_sides(1e-5, first=0.0)]),
    # Rounding decides between two results, such as at a condition.
    "the other of two results": Case(True, only(0, 10.0), runs=[only(0, 10.0)] * 4 + [only(0, 0.0)] * 4),
    "neither of two results": Case(False, only(0, 30.0), runs=[only(0, 10.0)] * 4 + [only(0, 0.0)] * 4),
    "a result between many": Case(True, only(0, 0.35), runs=[only(0, at / 10) for at in range(-3, 5)]),
    # All elements to one side.
    "bfloat16, to both sides": Case(True, to_both_sides(2.0**-7), dtype=torch.bfloat16),
    "bfloat16, to one side": Case(False, ONE_STEP, runs=[to_both_sides(1e-3)], dtype=torch.bfloat16),
    "bfloat16, as eager": Case(True, ONE_STEP, [0.0, *ONE_STEP[1:]], runs=[to_both_sides(1e-3)], dtype=torch.bfloat16),
    "bfloat16, as disturbed runs": Case(True, ONE_STEP, runs=[ONE_STEP], dtype=torch.bfloat16),
    "float32, to one side": Case(False, [6e-6] * COUNT, to_both_sides(3e-6), runs=[to_both_sides(1e-6)]),
    "seven elements, to one side": Case(
        True, ONE_STEP[:7], [0.0] * 7, [1.0] * 7, runs=[to_both_sides(1e-3)[:7]], dtype=torch.bfloat16
    ),
    # NaN and Inf.
    "NaN in the compiled result": Case(False, only(3, math.nan), to_both_sides(1e-2)),
    "Inf in eager alone": Case(True, only(3, 1e-7), only(3, math.inf)),
    "Inf in eager does not permit other errors": Case(False, only(1, 2e-4), only(3, math.inf)),
    "Inf in both": Case(True, only(3, math.inf), only(3, math.inf)),
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
"""Only later runs give 1."""
ONLY_ONCE = [*TWO_TIES[:-1], [200]]


@pytest.mark.parametrize(
    ("compiled", "runs", "same", "undecided"),
    [
        (3, [[0]] * 40, True, 0),
        (4, [[0]] * 40, False, 0),
        (12, TWO_TIES, True, 0),
        (7, TWO_TIES, True, 1),
        (70, TWO_TIES, False, 0),
        (1, RARE, True, 0),
        (2000, ONLY_ONCE, True, 1),
    ],
)
def test_integers_that_rounding_decides(compiled: int, runs: list[list[int]], same: bool, undecided: int) -> None:
    """A run must give the compiled integer. Otherwise it is wrong if it is far from all, and more runs tell no more."""
    known = Known(Case(same, [], exact=[3.0], runs=runs))
    found = difference(torch.tensor([3]), torch.tensor([compiled]), known)
    assert (found.is_same, found.undecided) == (same, undecided)
