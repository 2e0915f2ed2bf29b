"""Finds the shortest list of calls after which no size of a range compiles, and proves that none is shorter.

A size's region is the set of sizes that its entry serves if the size is dynamic. Sizes outside of each other's regions
need different entries, and a call adds at most one entry. So the number of such sizes is the least number of calls. If
a first call adds an entry for its own size only, and every region has several sizes, one more call is needed. Each list
is tried with an empty cache. Runs on the main thread after the program's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

MOST_CALLS = 8
"""Maximum number of calls of a warm-up: by default torch compiles a function at most this often."""


@dataclass(frozen=True)
class RealCalls:
    """Makes real calls of the function."""

    empty_cache: Callable[[], None]
    call: Callable[[int, bool], None]
    """Calls the function with a size, which is dynamic if ``True`` follows. Raises what the function raises."""
    served: Callable[[bool], frozenset[int]]
    """Returns the sizes of the range that an entry serves now; ``True``: with the size dynamic."""


@dataclass
class FoundWarmUp:
    """A list of calls, and the least number of calls."""

    sizes: list[int] = field(default_factory=list)
    """Empty if none was found."""
    least: int = 0
    apart: list[int] = field(default_factory=list)
    """Sizes that need an entry each."""
    first_is_static: bool = False
    """Whether ``least`` counts a first call, whose entry serves its own size only."""
    failing: dict[int, Exception] = field(default_factory=dict)
    """Sizes with which the function raises, so that no call can compile it for them."""


def find_warm_up(real_calls: RealCalls, sizes: Iterable[int]) -> FoundWarmUp:
    """Return the shortest list of calls that was found, with a proven lower bound."""
    found = FoundWarmUp()
    wanted = frozenset(sizes)
    regions = _regions(real_calls, wanted, found.failing)
    wanted -= found.failing.keys()
    found.apart = sorted(
        size for size in regions if not any(size in region for other, region in regions.items() if other != size)
    )
    found.least = len(found.apart)
    if regions and len(found.apart) == len(regions) and all(len(region) > 1 for region in regions.values()):
        found.first_is_static = all(_serves_itself_only(real_calls, size) for size in regions)
        found.least += found.first_is_static
    for calls in _lists(regions):
        if len(calls) <= MOST_CALLS and _serve(real_calls, calls, wanted):
            found.sizes = calls
            break
    for size in list(found.sizes) if len(found.sizes) > found.least else []:
        fewer = [other for other in found.sizes if other != size]
        if fewer and _serve(real_calls, fewer, wanted):
            found.sizes = fewer
    if found.sizes:
        _serve(real_calls, found.sizes, wanted)
    return found


def _regions(
    real_calls: RealCalls, wanted: frozenset[int], failing: dict[int, Exception]
) -> Mapping[int, frozenset[int]]:
    """Return regions that cover all sizes, each under the smallest size that no earlier region covers."""
    regions: dict[int, frozenset[int]] = {}
    left = set(wanted)
    while left and len(regions) <= MOST_CALLS and len(failing) <= MOST_CALLS:
        size = min(left)
        real_calls.empty_cache()
        try:
            real_calls.call(size, True)
        except Exception as problem:  # noqa: BLE001  (the program's function may raise anything)
            failing[size] = problem
            left.discard(size)
            continue
        regions[size] = real_calls.served(True) | {size}
        left -= regions[size]
    return regions


def _serves_itself_only(real_calls: RealCalls, size: int) -> bool:
    real_calls.empty_cache()
    real_calls.call(size, False)
    return real_calls.served(False) <= {size}


def _lists(regions: Mapping[int, frozenset[int]]) -> Iterator[list[int]]:
    """Yield lists of calls to try, short ones first. Regions of one size go first: torch keeps these sizes static."""
    if not regions:
        return
    ordered = sorted(regions, key=lambda size: (len(regions[size]) > 1, size))
    yield ordered
    for size in reversed(ordered):
        others = sorted(regions[size] - {size})
        if others:
            yield [others[-1], *ordered]
            yield [size, *(other for other in ordered if other != size), others[0]]
    yield [other for size in ordered for other in dict.fromkeys([max(regions[size]), size])]


def _serve(real_calls: RealCalls, calls: Iterable[int], wanted: frozenset[int]) -> bool:
    """Return whether nothing compiles after these calls."""
    real_calls.empty_cache()
    for size in calls:
        real_calls.call(size, False)
    return real_calls.served(False) >= wanted
