"""Explains why input sizes are static or dynamic.

Runs on any thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dynamo_dap.protocol.requests.sizes import STATIC, ZERO_ONE
from dynamo_dap.records.model import Compile, Place, Size, SizeReason

_LISTED = 8
"""The most sizes, and the most reasons, in one line."""
_SHORT = 2
"""The most reasons in the line of a short report."""


def size_lines(sizes: Sequence[Size], listed: int = _LISTED) -> Iterator[str]:
    """Yield one line for each size that may vary or was marked, then one line for each reason of constant sizes.

    A line about a size has at most ``listed`` reasons.
    """
    plain: dict[str, list[str]] = {}
    for size in sizes:
        if _is_plain(size):
            if size.reasons:
                plain.setdefault(size.reasons[0].text, []).append(size.source)
        else:
            known = _different(size.reasons)
            reasons = [reason_text(reason) for reason in known[:listed]]
            reasons += [f"{len(known) - listed} more"] if len(known) > listed else []
            yield ": ".join(filter(None, [state_text(size), "; ".join(reasons)]))
    for text, sources in plain.items():
        more = f" and {len(sources) - _LISTED} more" if len(sources) > _LISTED else ""
        yield f"{', '.join(sources[:_LISTED])}{more}: {text}"


def short_size_line(sizes: Sequence[Size]) -> str | None:
    """Return the first of ``size_lines``, shortened, with the number of other sizes."""
    varying = [size for size in sizes if not _is_plain(size)]
    first = next(size_lines(varying[:1] or sizes, _SHORT), None)
    others = len(sizes) - 1 if varying else 0
    if first is None or not others:
        return first
    return f"{first} (and {others} more: --html)"


def are_explained(compiled: Compile) -> bool:
    """Return whether a short report explains the sizes: if one may vary or was marked, or a guard failed."""
    return bool(compiled.failures) or not all(map(_is_plain, compiled.sizes))


def _is_plain(size: Size) -> bool:
    """Return whether a size is a constant that nobody marked."""
    return size.state == STATIC and not any(reason.kind == ZERO_ONE for reason in size.reasons)


def _different(reasons: Sequence[SizeReason]) -> list[SizeReason]:
    """Return the reasons without repetition: torch may note one condition twice, once with the code that needs it."""
    found = {(reason.text.partition(", asked by ")[0], reason.place): reason for reason in reversed(reasons)}
    return list(found.values())[::-1]


def state_text(size: Size) -> str:
    """Return a size with its state: ``x.shape[0] is dynamic (s77, 4 in this call)``."""
    known = ", ".join(filter(None, [size.symbol, f"{size.value} in this call" if size.value else None]))
    return f"{size.source} is {size.state}" + (f" ({known})" if known else "")


def reason_text(reason: SizeReason) -> str:
    """Return a reason with its line."""
    return reason.text if reason.place is None else f"{reason.text} at {_line(reason.place)}"


def _line(place: Place) -> str:
    return f"{place.path}:{place.line}"
