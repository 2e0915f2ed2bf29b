"""Makes torch's minifier compare graphs that give NaN or Inf.

Torch compares the errors of two results, and a single NaN makes an error NaN. If both errors are NaN, its comparison
passes. Here NaN and Inf must be at the same positions, and the other elements are compared as in torch. Runs in a
process that only minifies.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.objects import Tensor

_SAME = "torch._dynamo.utils:same"

COMPARING_NAN = Feature("comparing NaN while minifying", _SAME)


def compare_nan() -> None:
    """Compare results with NaN or Inf from now on; torch has been imported."""
    if COMPARING_NAN.problem is not None:
        return
    same = COMPARING_NAN.resolve(_SAME)

    @functools.wraps(same)
    def same_where_finite(expected: Any, result: Any, exact: Any = None, *more: object, **named: object) -> bool:
        if not all(map(_can_have_nan, (expected, result))) or expected.shape != result.shape:
            return bool(same(expected, result, exact, *more, **named))
        given = [expected, result, *([exact] if _can_have_nan(exact) and exact.shape == expected.shape else [])]
        torch = sys.modules["torch"]
        with torch.no_grad():
            where = [each.detach().isfinite() for each in given]
            if not torch.equal(*where[:2]) or not _equal_where(~where[0], expected.detach(), result.detach()):
                return False
            finite = functools.reduce(torch.logical_and, where)
            if bool(finite.all()):
                return bool(same(expected, result, exact, *more, **named))
            zeroed = [torch.where(finite, each.detach(), 0) for each in given]
        return bool(same(zeroed[0], zeroed[1], zeroed[2] if len(zeroed) > 2 else exact, *more, **named))

    sys.modules["torch._dynamo.utils"].same = same_where_finite  # type: ignore[attr-defined]  # a module as a value


def _can_have_nan(value: object) -> bool:
    torch = sys.modules["torch"]
    return isinstance(value, torch.Tensor) and value.layout == torch.strided and value.is_floating_point()


def _equal_where(mask: object, one: Tensor, other: Tensor) -> bool:
    """Return whether two results have the same NaN and the same sign of Inf at the positions of ``mask``."""
    torch = sys.modules["torch"]
    return bool(torch.equal(one[mask].nan_to_num(0.0), other[mask].to(one.dtype).nan_to_num(0.0)))
