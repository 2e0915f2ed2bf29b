"""Decides whether two results of one operation differ by more than rounding.

NaN and Inf positions are compared first, then element by element. What a result may be off is not a fixed number: it
follows from the graph in float64 (``Referee.exact``), from how far the eager result is from that, and, where both are
not enough, from runs in which every result is disturbed by as much as its own type rounds (``Referee.disturbed``).
Values whose float64 run is not to be had are judged relative to the tensor's own scale. Pure; any thread.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dynamo_dap.debuggee.torch_internals.graph_runs import has_own_memory
from dynamo_dap.debuggee.torch_internals.isolation import data_reading

_OF_EAGER = 3.0
"""A compiled result may be this many times as far from float64 as the eager one."""
_OF_NOISE = 6.0
"""Or this many times as far as a disturbed run at the same element,"""
_OF_TYPICAL_NOISE = 6.0
"""or as the median of disturbed runs is, relative to the element."""
_OF_ROUNDING = 2.0
"""Or this many units in the last place."""
_COMMON = 0.999
"""How far off nearly all elements of the eager result are counts for each; what is further off counts for itself."""
_FEW, _MANY = 1000, 1 << 24
"""Elements for which, and above which, that is the largest."""


@dataclass(frozen=True)
class Difference:
    """Of two values."""

    largest: float
    rmse: float
    is_same: bool
    error: float | None = None
    """The largest distance of the compiled result from the run in float64; None where there is none."""
    error_of_eager: float | None = None
    """The same of the result that it is compared with."""

    @property
    def text(self) -> str:
        """``largest difference 0.5, RMSE 0.1; off float64 by 0.5, eager by 1e-07``."""
        text = f"largest difference {self.largest:.3g}, RMSE {self.rmse:.3g}"
        if self.error is None or self.error_of_eager is None:
            return text
        return f"{text}; off float64 by {self.error:.3g}, eager by {self.error_of_eager:.3g}"


SAME = Difference(0.0, 0.0, True)
OTHERWISE = Difference(math.inf, math.inf, False)
"""Of values that have no numbers to compare: other shapes, other types."""


class Referee(Protocol):
    """What a result should be, apart from rounding. Asked only when two results are not equal."""

    def exact(self) -> Any:
        """Return the result of a run in float64; None if there is none."""

    def disturbed(self) -> Sequence[Any]:
        """Return its results in runs in float64 whose every operation rounds as it does in the graph."""

    def is_defined(self) -> Any:
        """Return which elements do not depend on memory that nobody has written to; None for all."""


class NoReferee:
    """Has no run in float64."""

    def exact(self) -> Any:
        """Return None."""
        return None

    def disturbed(self) -> Sequence[Any]:
        """Return nothing."""
        return ()

    def is_defined(self) -> Any:
        """Return None: all."""
        return None


def difference(reference: Any, other: Any, referee: Referee | None = None) -> Difference:
    """Compare two results of one operation: ``reference`` is the eager one, ``other`` the compiled one."""
    if not has_own_memory(reference) or not has_own_memory(other):
        return SAME  # numbers are compared by the guards, and what else there is cannot be
    if reference.shape != other.shape or reference.dtype != other.dtype or reference.device != other.device:
        return OTHERWISE
    if not reference.numel():
        return SAME
    with data_reading():
        return _judged(reference.detach(), other.detach(), referee or NoReferee())


def _judged(reference: Any, other: Any, referee: Referee) -> Difference:
    one, two = widened(reference), widened(other)
    apart = _apart(one, two)
    if not bool(apart.any()):
        return SAME
    if (defined := referee.is_defined()) is not None:
        apart = apart.where(defined, apart.new_zeros(()))
        if not bool(apart.any()):
            return SAME
    largest, rmse = float(apart.max()), float(apart.pow(2).mean().sqrt())
    exact = referee.exact()
    if not has_own_memory(exact) or exact.shape != reference.shape:
        return Difference(largest, rmse, bool((apart <= _allowed_without_referee(one, reference.dtype)).all()))
    exact = widened(exact.detach())
    if not _is_number(reference):
        return Difference(largest, rmse, _is_same_decision(apart, one, exact, referee))
    return _judged_by(exact, one, two, apart, Difference(largest, rmse, False), reference.dtype, referee)


def _judged_by(
    exact: Any, one: Any, two: Any, apart: Any, measured: Difference, dtype: Any, referee: Referee
) -> Difference:
    """Compare the errors of the two results, the run in float64 being right."""
    numbers = sys.modules["torch"].finfo(dtype)
    off, off_eager = _apart(exact, two).where(apart > 0, 0.0), _finite(_apart(exact, one))
    size = _finite(exact.abs())
    common = max(_common((off_eager / size).nan_to_num(posinf=0.0)) * _OF_EAGER, numbers.eps * _OF_ROUNDING)
    allowed = (off_eager * _OF_EAGER).maximum(size * common)
    is_same = bool((off <= allowed + numbers.tiny).all()) or _is_noise(off, allowed, exact, referee)
    return Difference(measured.largest, measured.rmse, is_same, float(off.max()), float(off_eager.max()))


def _is_noise(off: Any, allowed: Any, exact: Any, referee: Referee) -> bool:
    """Whether each element that is too far off is so where rounding carries as far."""
    runs = [each for each in referee.disturbed() if has_own_memory(each) and each.shape == exact.shape]
    if not runs:
        return False
    noise = _apart(exact, widened(runs[0].detach()))
    for each in runs[1:]:
        noise = noise.maximum(_apart(exact, widened(each.detach())))
    size = _finite(exact.abs())
    typical = float(_finite(noise / size).nan_to_num().flatten().median()) * _OF_TYPICAL_NOISE
    return bool((off <= allowed.maximum(noise * _OF_NOISE).maximum(size * typical)).all())


def _finite(values: Any) -> Any:
    return values.where(values < math.inf, 0.0)


def _common(errors: Any) -> float:
    if not _FEW <= errors.numel() <= _MANY:
        return float(errors.max())
    return float(errors.flatten().quantile(_COMMON))


def _is_same_decision(apart: Any, one: Any, exact: Any, referee: Referee) -> bool:
    """Whether integers or booleans differ only where rounding decides: where they do in another run, too."""
    decided = one == exact
    for each in referee.disturbed():
        if has_own_memory(each) and each.shape == one.shape:
            decided = decided & (widened(each.detach()) == exact)
    return not bool(((apart > 0) & decided).any())


def widened(value: Any) -> Any:
    """Return numbers of any type in float64, or complex128."""
    torch: Any = sys.modules["torch"]
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def _is_number(value: Any) -> bool:
    return bool(value.is_floating_point() or value.is_complex())


def _apart(one: Any, two: Any) -> Any:
    """Return the distance of each pair of elements: 0 for equal Infs and two NaNs, Inf for any other pair with one."""
    torch: Any = sys.modules["torch"]
    distance = (one - two).abs()
    distance = torch.where((one == two) | (one.isnan() & two.isnan()), torch.zeros_like(distance), distance)
    return distance.nan_to_num(nan=math.inf, posinf=math.inf)


def _allowed_without_referee(one: Any, dtype: Any) -> Any:
    """Return how far each element may be off, relative to itself and to the tensor's scale."""
    torch: Any = sys.modules["torch"]
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.zeros_like(one.abs())
    size = one.abs()
    finite = size.where(size.isfinite(), 0.0)
    return math.sqrt(torch.finfo(dtype).eps) * (finite + finite.pow(2).mean().sqrt())
