"""Judges whether two results of one operation differ by more than rounding, element by element.

The measure is a run in float64 (``Referee.exact``). A compiled result is right if it is at least as near to that run as
the eager result, and if half of each element's digits are right. Other results get a tolerance from the eager result's
own error against the float64 run. A result beyond the tolerance is compared with further float64 runs. These change
each operation's result at random, by one rounding error of its type (``Referee.disturbed``). Without a float64 run, the
tolerance is relative to each element and to the tensor's scale. Runs on the thread that makes the call.
"""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from dynamo_dap.debuggee.torch_api.graphs.graph_runs import has_own_memory
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import inner_tensors
from dynamo_dap.debuggee.torch_api.isolation import data_reading
from dynamo_dap.debuggee.torch_api.objects import Tensor

# An element of a compiled result is right if its error against the float64 run is within one of these four limits.
_FACTOR_OF_EAGER = 3.0
"""This many times eager's error."""
_FACTOR_OF_NOISE = 6.0
"""This many times the largest error of the disturbed runs at the same element."""
_FACTOR_OF_TYPICAL_NOISE = 6.0
"""This many times the median of the disturbed runs' relative errors."""
_FACTOR_OF_GAPS = 64.0
"""For elements whose results in the runs are far apart: this many times each result's distance to the nearest other."""
_FACTOR_OF_ROUNDING = 2.0
"""This many units in the last place."""
_COMMON = 0.999
"""This quantile of eager's errors widens the tolerance of every element with a smaller error."""
_FEW, _MANY = 1000, 1 << 24
"""With fewer or more elements than these, the largest error replaces the quantile."""
# The mean error of all elements, their bias, may be as large as the largest of these three.
_FACTOR_OF_BIAS = 3.0
"""This many times the bias of eager and of disturbed runs."""
_FACTOR_OF_STEP = 0.25
"""This part of the step between two numbers of a half type."""
_FACTOR_OF_STEPS = 16.0
"""This many steps between two numbers of another type: its mathematical functions are approximations."""
HALF = 1e-4
"""A type with a larger step between 1 and the next number is a half type, whose sums are computed in float32."""
_SHOWN = 1e-3
"""An error within rounding is reported from this fraction of the largest element on."""
_FEWEST = 8
"""The bias of fewer elements is not judged."""
DISTURBED_RUNS = 8
_RUNS_FOR_DECISIONS = 40
"""The number of disturbed runs if the first ``DISTURBED_RUNS`` do not give each integer of the compiled result."""
_STRONG_RUNS = 16
_OF_STRONG = 8.0
"""A strong run changes each result by this many rounding errors. An integer that none of them changes is certain."""


@dataclass(frozen=True)
class Difference:
    """The difference of two values."""

    largest: float
    rmse: float
    is_same: bool
    error: float | None = None
    """The compiled value's largest error against float64, if a float64 run was made."""
    reference_error: float | None = None
    """The eager value's largest error against float64."""
    reason: str = ""
    """The difference in words, if it is not the size of finite elements: shapes or NaN, for example."""
    undecided: int = 0
    """The number of compiled integers that no run gives, though rounding may. They prove no defect and no equality."""
    decided: int = 0
    """The number of integers or booleans that differ from eager's by rounding: some run gives the compiled ones."""
    rounding: str | None = None
    """A text about the compiled error, if it is within rounding but larger than eager's and not small; else None."""

    @property
    def text(self) -> str:
        """The difference in words, with the errors against float64 if they are known."""
        parts = [self.size]
        if self.error is not None and self.reference_error is not None:
            parts.append(
                f"largest error against float64: {self.error:.3g} compiled, {self.reference_error:.3g} in eager"
            )
        return ", ".join(parts)

    @property
    def size(self) -> str:
        """The difference without errors against float64: ``largest difference 0.5, RMSE 0.1``."""
        size = f"largest difference {self.largest:.3g}, RMSE {self.rmse:.3g}"
        return f"{size}, {self.reason}" if self.reason else size

    @property
    def headline(self) -> str:
        """The difference, short enough for a headline."""
        return self.reason or f"largest difference {self.largest:.3g}"


class Referee(Protocol):
    """Provides an operation's results in float64. Each run is made when it is first needed."""

    def exact(self) -> object:
        """Return the result of a float64 run; None if there is none."""

    def disturbed(self, count: int = DISTURBED_RUNS, times: float = 1.0) -> Sequence[object]:
        """Return results of float64 runs that change each operation's result by one rounding error of its type.

        ``times`` multiplies the change. For gradients there are never more than ``DISTURBED_RUNS``, with one error.
        """


def difference(reference: object, other: object, referee: Referee | None = None) -> Difference:
    """Compare two results of one operation: ``reference`` is the eager one, ``other`` the compiled one."""
    if not has_own_memory(reference) or not has_own_memory(other):
        # Numbers need no comparison: guards ensure them. In other objects, compare the tensors inside.
        return _worst([difference(*pair) for pair in _inner_pairs(reference, other)])
    if reference.shape != other.shape or reference.dtype != other.dtype:
        return Difference(math.inf, math.inf, False, reason=_facts_text(reference, other))
    if not reference.numel():
        return Difference(0.0, 0.0, True)
    with data_reading():
        return _judged(reference.detach(), other.detach(), referee)


def _inner_pairs(reference: object, other: object) -> list[tuple[object, object]]:
    if type(reference) is not type(other):
        return []
    one, two = inner_tensors(reference), inner_tensors(other)
    return [(one[name], two[name]) for name in one if name in two]


def _worst(found: Sequence[Difference]) -> Difference:
    return max(found, key=lambda each: (not each.is_same, each.largest), default=Difference(0.0, 0.0, True))


def zeros_of_other_sign(reference: object, other: object) -> int:
    """Count the elements that are 0.0 in one result and -0.0 in the other, which ``difference`` treats as equal."""
    if not has_own_memory(reference) or not has_own_memory(other) or not reference.is_floating_point():
        return 0
    if reference.shape != other.shape or reference.dtype != other.dtype:
        return 0
    with data_reading():
        one, two = reference.detach(), other.detach()
        return int(((one == 0) & (two == 0) & (one.signbit() != two.signbit())).sum())


def _facts_text(reference: Tensor, other: Tensor) -> str:
    one, two = (f"{str(each.dtype).rpartition('.')[2]}{list(each.shape)}" for each in (reference, other))
    return f"it is {two} instead of {one}"


def _judged(reference: Tensor, other: Tensor, referee: Referee | None) -> Difference:
    one, two = widened(reference), widened(other)
    apart = _apart(one, two)
    is_whole = not (reference.is_floating_point() or reference.is_complex())
    if is_whole:  # float64 has no number for each large integer
        apart = apart.where(reference == other, apart.clamp(min=1.0))
    largest, rmse = float(apart.max()), float(apart.pow(2).mean().sqrt())
    if largest == 0.0:
        return Difference(0.0, 0.0, True)
    found = Difference(largest, rmse, False, reason=_not_finite_text(one, two))
    exact = None if referee is None else referee.exact()
    if referee is None or not has_own_memory(exact) or exact.shape != reference.shape:
        return replace(found, is_same=bool((apart <= _allowed_without_referee(one, reference.dtype)).all()))
    if is_whole:
        integers = [_as_integers(each) for each in (reference, other, exact.detach())]
        return _judged_decision(found, integers[0], integers[1], integers[2], referee)
    exact = widened(exact.detach())
    return _judged_by(exact, one, two, apart, found, reference.dtype, referee)


def _judged_by(
    exact: Tensor, one: Tensor, two: Tensor, apart: Tensor, measured: Difference, dtype: object, referee: Referee
) -> Difference:
    """Judge the compiled result ``two`` by its errors and those of the eager result ``one`` against ``exact``."""
    numbers = sys.modules["torch"].finfo(dtype)
    off, of_eager = _apart(exact, two).where(apart > 0, 0.0), _apart(exact, one)
    off_eager = _finite(of_eager)
    size = _finite(exact.abs())
    relative, absolute = _common((off_eager / size).nan_to_num(posinf=0.0)), _common(off_eager)
    # Relative errors near zero are large, and must not widen the tolerance of other elements.
    allowed = off_eager.maximum((size * relative).clamp(max=absolute)) * _FACTOR_OF_EAGER
    rounded = size * (numbers.eps * _FACTOR_OF_ROUNDING) + numbers.tiny
    is_nearer = float(off.max()) <= float(off_eager.max()) and _rmse(off) <= _rmse(off_eager)
    # Require half of the digits of each element to be right, also of small ones.
    is_nearer = is_nearer and bool((off <= size * math.sqrt(numbers.eps)).all())
    is_usual = bool((off <= rounded).all()) or (
        bool((off <= allowed.maximum(rounded)).all()) and _rmse(off) <= _rmse(off_eager) * _FACTOR_OF_EAGER
    )
    is_same = is_nearer or (
        (is_usual or _is_noise(off, allowed.maximum(rounded), off_eager, exact, two, referee))
        and not _is_biased(exact, one, two, numbers.eps, referee)
    )
    found = replace(measured, is_same=is_same, error=float(off.max()), reference_error=float(of_eager.max()))
    return replace(found, rounding=_rounding_text(found, float(size.max()), dtype)) if is_same else found


def _rounding_text(found: Difference, scale: float, dtype: object) -> str | None:
    """Return both errors in percent if the compiled one is larger, and so large that it could hide a defect."""
    assert found.error is not None
    assert found.reference_error is not None
    if not scale or not math.isfinite(found.reference_error) or found.error < scale * _SHOWN:
        return None
    if found.error <= found.reference_error:
        return None
    percent, in_eager = found.error / scale * 100, found.reference_error / scale * 100
    return f"within {str(dtype).rpartition('.')[2]} rounding: {percent:.2g} %, eager {in_eager:.2g} %"


def _is_noise(off: Tensor, allowed: Tensor, off_eager: Tensor, exact: Tensor, two: Tensor, referee: Referee) -> bool:
    """Return whether rounding, as in the disturbed runs, explains each element and the RMSE of all elements.

    The RMSE of many rounding errors is about the same in every run. So it reveals a result that is wrong by a factor.
    """
    runs = [each for each in referee.disturbed() if has_own_memory(each) and each.shape == exact.shape]
    if not runs:
        return False
    errors = [_apart(exact, widened(each.detach())) for each in runs]
    noise = errors[0]
    for each in errors[1:]:
        noise = noise.maximum(each)
    size = _finite(exact.abs())
    typical = float(_finite(noise / size).nan_to_num().flatten().median()) * _FACTOR_OF_TYPICAL_NOISE
    if not bool((off <= allowed.maximum(noise * _FACTOR_OF_NOISE).maximum(size * typical)).all()):
        return False
    if not _is_among([exact, *(widened(each.detach()) for each in runs)], two, allowed, off):
        return False
    return _rmse(off) <= max(_rmse(_finite(each)) for each in (off_eager, *errors)) * _FACTOR_OF_NOISE


def _is_among(known: Sequence[Tensor], two: Tensor, allowed: Tensor, off: Tensor) -> bool:
    """Return whether each element of ``two`` with a large error is near its result in one of the runs ``known``.

    Rounding may decide between a few results that are far apart (``x > 4`` at 4). Then the disturbed runs' errors are
    large, but a value between these results is still wrong.
    """
    exact = known[0]
    torch: Any = sys.modules["torch"]
    is_clear = off > math.sqrt(torch.finfo(exact.dtype).eps) ** 0.5 * _rmse(_finite(exact.abs()))
    if not bool(is_clear.any()):
        return True
    two, allowed, known = two[is_clear], allowed[is_clear], [each[is_clear] for each in known]
    nearest = functools.reduce(torch.minimum, [_apart(each, two) for each in known])
    gaps = [
        functools.reduce(torch.minimum, [_apart(one, other) for other in known if other is not one]) for one in known
    ]
    return bool((nearest <= allowed + functools.reduce(torch.maximum, gaps) * _FACTOR_OF_GAPS).all())


def _is_biased(exact: Tensor, one: Tensor, two: Tensor, step: float, referee: Referee) -> bool:
    """Return whether the elements of ``two`` deviate to one side by more than rounding explains.

    Rounding each element moves elements to both sides. Rounding a common factor moves all to one side, but does so in
    the disturbed runs, too.
    """
    known = exact.isfinite() & one.isfinite() & two.isfinite() & (exact != 0)
    if int(known.sum()) < _FEWEST:
        return False
    exact, one, two = (each[known] for each in (exact, one, two))
    typical = _rmse((one - exact).abs()) / _rmse(exact.abs())
    least = max(typical, step * (_FACTOR_OF_STEP if step > HALF else _FACTOR_OF_STEPS))
    bias, of_eager = _bias(exact, two), _bias(exact, one)
    if bias <= max(least, of_eager * _FACTOR_OF_BIAS):
        return False
    runs = [each for each in referee.disturbed() if has_own_memory(each) and each.shape == known.shape]
    biases = [_bias(exact, widened(each.detach())[known].nan_to_num(0.0, 0.0, 0.0)) for each in runs]
    return bool(runs) and bias > max(biases) * _FACTOR_OF_BIAS


def _bias(exact: Tensor, other: Tensor) -> float:
    """Return the relative error common to all elements, or the mean error relative to their scale if that is larger."""
    apart = other - exact
    scale = exact.abs().pow(2)
    factor = (apart * exact.conj()).sum().abs() / scale.sum()
    return max(float(factor), float(apart.mean().abs() / scale.mean().sqrt()))


def _rmse(errors: Tensor) -> float:
    return float(errors.pow(2).mean().sqrt())


def _finite(values: Tensor) -> Tensor:
    return values.where(values < math.inf, 0.0)


def _common(errors: Tensor) -> float:
    if not _FEW <= errors.numel() <= _MANY:
        return float(errors.max())
    return float(errors.flatten().quantile(_COMMON))


def _judged_decision(found: Difference, one: Tensor, two: Tensor, exact: Tensor, referee: Referee) -> Difference:
    """Judge integers and booleans that differ from eager's.

    The compiled result is right if each of its elements occurs in some run. If rounding decides elements, a run may
    have elements that no other run has. The compiled result is wrong if it has many more such elements than a run, or
    has some that are much farther from all runs, or differs where rounding cannot. If it has about as many as a run,
    they stay undecided.
    """
    decided = int((one != two).sum())
    most = own = 0
    farthest = 0.0
    distances = is_own = one
    for count, is_last in ((DISTURBED_RUNS, False), (_RUNS_FOR_DECISIONS, True)):
        runs = [each for each in referee.disturbed(count) if has_own_memory(each) and each.shape == one.shape]
        known, compiled = _where_they_differ([exact, one, *(_as_integers(each.detach()) for each in runs)], two)
        is_new = (known != compiled).all(0)
        own = int(is_new.sum())
        if not own:
            return replace(found, is_same=True, decided=decided)
        # In float64: the distance of two integers may be too large for an integer.
        distances = (known.double() - compiled.double()).abs().amin(0).clamp(min=1).where(is_new, 0.0)
        is_own, most, farthest = _outliers(known)
        if own > (most if is_last else most + 1) * _FACTOR_OF_NOISE:
            return found
    if float(distances.where(~is_own, 0.0).max()) > farthest * _FACTOR_OF_NOISE:
        return found
    if _differs_where_certain(one, two, exact, referee):
        return found
    if own < most and float(distances.max()) <= farthest:
        return replace(found, is_same=True, decided=decided)
    return replace(found, is_same=True, undecided=own)


def _differs_where_certain(one: Tensor, two: Tensor, exact: Tensor, referee: Referee) -> bool:
    """Return whether ``two`` differs in an element that many rounding errors do not change.

    If the eager result ``one`` differs in such an element, too, the real errors are larger than assumed.
    """
    strong = referee.disturbed(_STRONG_RUNS, _OF_STRONG)
    runs = [_as_integers(each.detach()) for each in strong if has_own_memory(each) and each.shape == one.shape]
    if len(runs) < _STRONG_RUNS:
        return False
    is_certain = functools.reduce(operator.and_, [each == exact for each in runs])
    return bool((is_certain & (two != exact)).any()) and not bool((is_certain & (one != exact)).any())


def _where_they_differ(runs: Sequence[Tensor], compiled: Tensor) -> tuple[Any, Any]:
    """Return the few elements in which ``compiled`` differs from any of ``runs``, in the runs and in ``compiled``."""
    torch = sys.modules["torch"]
    differs = functools.reduce(torch.logical_or, [each != compiled for each in runs])
    return torch.stack([each[differs] for each in runs]), compiled[differs]


def _outliers(known: Tensor) -> tuple[Tensor, int, float]:
    """Find the elements in which one run differs from all other runs.

    Returns:
        Which elements these are, their largest number in one run, and their largest distance to the nearest other run.
    """
    torch = sys.modules["torch"]
    ordered, order = torch.sort(known, 0)
    gaps = ordered.double().diff(dim=0).clamp(min=1).where(ordered[1:] != ordered[:-1], 0.0)
    end = torch.full_like(gaps[:1], math.inf)
    nearest = torch.cat([end, gaps]).minimum(torch.cat([gaps, end]))
    most = torch.bincount(order[nearest > 0], minlength=1).max()
    return (nearest > 0).any(0), int(most), float(nearest.max())


def _as_integers(value: Tensor) -> Tensor:
    return value.to(sys.modules["torch"].int64)


def widened(value: Tensor) -> Tensor:
    """Return a tensor of numbers converted to float64, or to complex128."""
    torch = sys.modules["torch"]
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def _apart(one: Tensor, two: Tensor) -> Any:
    """Return the distance of each pair of elements: 0 for equal Infs and two NaNs, Inf if only one is NaN or Inf."""
    torch = sys.modules["torch"]
    distance = (one - two).abs()
    distance = torch.where((one == two) | (one.isnan() & two.isnan()), torch.zeros_like(distance), distance)
    return distance.nan_to_num(nan=math.inf, posinf=math.inf)


def _allowed_without_referee(one: Tensor, dtype: Any) -> object:
    """Return each element's tolerance, relative to itself and to the tensor's scale."""
    torch = sys.modules["torch"]
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.zeros_like(one.abs())
    size = one.abs()
    finite = size.where(size.isfinite(), 0.0)
    return math.sqrt(torch.finfo(dtype).eps) * (finite + finite.pow(2).mean().sqrt())


def _not_finite_text(one: Tensor, two: Tensor) -> str:
    """Return a text with the number of elements that are NaN or Inf in only one result; empty for none."""
    for name, eager, compiled in (("NaN", one.isnan(), two.isnan()), ("Inf", one.isinf(), two.isinf())):
        only = int((compiled & ~eager).sum()), int((eager & ~compiled).sum())
        if only[0]:
            return f"{only[0]} elements are {name} in the compiled graph alone"
        if only[1]:
            return f"{only[1]} elements are {name} in eager alone"
    return ""
