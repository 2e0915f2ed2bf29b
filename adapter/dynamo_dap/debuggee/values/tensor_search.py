"""Searches a tensor for elements that are NaN or Inf, equal a number or satisfy a comparison.

Reads numbers chunk by chunk, like the statistics. Runs on the held thread; nothing outlives a request.
"""

from __future__ import annotations

import operator
import re
import sys
import time
from collections.abc import Callable, Iterable

from dynamo_dap.debuggee.torch_api.objects import Tensor
from dynamo_dap.debuggee.values.model import EvaluationError

_MOST_SECONDS = 2.0
_COMPARISONS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_COMPARISON = re.compile(r"(<=|>=|==|!=|<|>)?\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)", re.IGNORECASE)


def search(chunks: Iterable[Tensor], text: str, after: int, dtype: str) -> tuple[int, int, int]:
    """Return how many elements match ``text``, and the position and value of the first match after ``after``.

    After the last match, the search starts again at the first. ``chunks`` have all elements in order, as float64;
    positions count them.

    Raises:
        EvaluationError: no element matches, or the search takes too long; the text says which.
    """
    matches = condition(text, dtype)
    deadline = time.monotonic() + _MOST_SECONDS
    count = before = start = 0
    first = following = None
    for numbers in chunks:
        places = matches(numbers.flatten()).nonzero().flatten() + start
        start += numbers.numel()
        if places.numel():
            first = int(places[0]) if first is None else first
            behind = places[places > after]
            if following is None:
                before += int(places.numel() - behind.numel())
                following = int(behind[0]) if behind.numel() else None
            count += int(places.numel())
        if time.monotonic() > deadline:
            raise EvaluationError(f"the search takes longer than {_MOST_SECONDS:g} s: show a part of the tensor")
    if first is None:
        raise EvaluationError(f"no element matches {text.strip()!r}")
    return (count, first, 1) if following is None else (count, following, before + 1)


def condition(text: str, dtype: str) -> Callable[[Tensor], Tensor]:
    """Return a function that says for each number whether it matches: ``nan``, ``inf``, ``1`` or ``> 0.5``.

    Raises:
        EvaluationError: ``text`` is none of these.
    """
    torch, text = sys.modules["torch"], text.strip()
    if text.lower() in ("nan", "inf"):
        return torch.isnan if text.lower() == "nan" else torch.isinf  # type: ignore[no-any-return]  # torch is untyped
    found = _COMPARISON.fullmatch(text)
    if found is None:
        raise EvaluationError("search for nan, inf, a number, or a comparison such as > 0.5")
    kind = getattr(torch, dtype.removeprefix("torch."), None)
    number = float(found[2])
    if kind is not None and kind.is_floating_point:
        number = float(torch.tensor(number, dtype=torch.float64).to(kind))  # 0.1 of float32 is not 0.1 of float64
    compare = _COMPARISONS[found[1] or "=="]
    return lambda numbers: compare(numbers, number)
