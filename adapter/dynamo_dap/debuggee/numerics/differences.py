"""Judges whether two tensors of one operation are the same, element by element.

NaN and Inf must be at the same positions. The other elements must be close relative to their own size and to the
tensor's scale. Where they are not, a run in float64 decides: its distance from each result distinguishes the rounding
of a narrow type from a bug. Runs on the thread that makes the call; nothing here is kept.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.torch_api.graph_runs import has_own_memory
from dynamo_dap.debuggee.torch_api.isolation import data_reading

_CLOSE = {8: 1e-7, 4: 1e-4, 2: 4e-3, 1: 1.3e-1}
"""By bytes of a number: how far apart two results may be without asking float64, relative to their size."""
_CLOSE_BFLOAT16 = 1.6e-2
_CLOSE_WITHOUT_EXACT = 4e-2
"""For 16-bit numbers, where the graph cannot be run in float64."""
_ERRORS = 8.0
"""How many times the largest error of eager the largest error of the compiled graph may be."""


@dataclass(frozen=True)
class Difference:
    """How two values differ."""

    largest: float
    rmse: float
    is_same: bool
    error: float | None = None
    """The largest error of the other value against float64, if that was asked for."""
    reference_error: float | None = None
    """The largest error of the reference against float64."""
    reason: str = ""
    """What differs, if that is not the size of finite elements."""

    @property
    def text(self) -> str:
        """``largest difference 0.5, RMSE 0.1``."""
        parts = [f"largest difference {self.largest:.3g}, RMSE {self.rmse:.3g}"]
        if self.reason:
            parts.append(self.reason)
        if self.error is not None and self.reference_error is not None:
            parts.append(
                f"largest error against float64: {self.error:.3g} compiled, {self.reference_error:.3g} in eager"
            )
        return ", ".join(parts)


def difference(reference: Any, other: Any, exact: Callable[[], Any] = lambda: None) -> Difference:
    """Compare two results; ``exact`` gives that of a run in float64, or None, and is called only if it matters."""
    if not has_own_memory(reference) or not has_own_memory(other):
        return Difference(0.0, 0.0, True)  # guards compare numbers, and nothing can compare the rest
    if reference.shape != other.shape or reference.dtype != other.dtype:
        return Difference(math.inf, math.inf, False, reason=_facts_text(reference, other))
    if not reference.numel():
        return Difference(0.0, 0.0, True)
    with data_reading():
        return _judged(reference, other, exact)


def _facts_text(reference: Any, other: Any) -> str:
    one, two = (f"{str(each.dtype).rpartition('.')[2]}{list(each.shape)}" for each in (reference, other))
    return f"it is {two} in place of {one}"


def _judged(reference: Any, other: Any, exact: Callable[[], Any]) -> Difference:
    torch: Any = sys.modules["torch"]
    one, two = _wide(reference), _wide(other)
    apart = torch.where(_equal(one, two), 0.0, (one - two).abs()).nan_to_num(nan=math.inf, posinf=math.inf)
    largest, rmse = float(apart.max()), float(apart.pow(2).mean().sqrt())
    if largest == 0.0:
        return Difference(0.0, 0.0, True)
    is_rounded = reference.is_floating_point() or reference.is_complex()
    size = one.abs().nan_to_num(nan=0.0, posinf=0.0)
    scale = float(size.pow(2).mean().sqrt())
    closeness = _closeness(reference)
    allowed = closeness * (size + scale) if is_rounded else torch.zeros_like(size)
    if bool((apart <= allowed).all()):
        return Difference(largest, rmse, True)
    found = exact()
    if not has_own_memory(found) or found.shape != reference.shape:
        coarse = is_rounded and reference.itemsize < 4
        is_same = coarse and bool((apart <= _CLOSE_WITHOUT_EXACT * (size + scale)).all())
        return Difference(largest, rmse, is_same, reason=_not_finite_text(one, two))
    return _judged_by(_wide(found), one, two, allowed, Difference(largest, rmse, False))


def _judged_by(exact: Any, one: Any, two: Any, allowed: Any, found: Difference) -> Difference:
    torch: Any = sys.modules["torch"]
    error, reference_error = (
        torch.where(_equal(each, exact), 0.0, (each - exact).abs()).nan_to_num(nan=math.inf, posinf=math.inf)
        for each in (two, one)
    )
    # An Inf or a NaN in eager alone allows no error elsewhere.
    known = reference_error[reference_error.isfinite()]
    largest = float(known.max()) if known.numel() else 0.0
    is_exact = exact.abs().nan_to_num(nan=0.0, posinf=0.0)
    nearer = _ERRORS * largest + allowed.max() * is_exact / is_exact.max().clamp_min(1e-300)
    is_same = bool(((error <= nearer) | (error <= reference_error) & reference_error.isfinite()).all())
    same_size = float(error.max()), float(reference_error.max())
    return Difference(found.largest, found.rmse, is_same, *same_size, reason=_not_finite_text(one, two))


def _closeness(value: Any) -> float:
    torch: Any = sys.modules["torch"]
    if value.dtype == torch.bfloat16:
        return _CLOSE_BFLOAT16
    return _CLOSE.get(value.itemsize // (2 if value.is_complex() else 1), _CLOSE[8])


def _wide(value: Any) -> Any:
    torch: Any = sys.modules["torch"]
    return value.detach().to(torch.complex128 if value.is_complex() else torch.float64)


def _equal(one: Any, two: Any) -> Any:
    return (one == two) | (one.isnan() & two.isnan())


def _not_finite_text(one: Any, two: Any) -> str:
    """Say how many elements are NaN or Inf in one result alone."""
    for name, eager, compiled in (("NaN", one.isnan(), two.isnan()), ("Inf", one.isinf(), two.isinf())):
        only = int((compiled & ~eager).sum()), int((eager & ~compiled).sum())
        if only[0]:
            return f"{only[0]} elements are {name} in the compiled graph alone"
        if only[1]:
            return f"{only[1]} elements are {name} in eager alone"
    return ""
