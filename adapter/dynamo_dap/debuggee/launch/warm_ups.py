"""Finds the shortest list of calls after which no size of a range compiles, and proves that none is shorter.

A region is all sizes that one entry serves if it is compiled with the size dynamic. Two sizes in different regions need
an entry each, and a call adds at most one entry: so there are at least as many calls as regions. A first call makes an
entry of its own size only, which adds a call if every region has several sizes. Each list is tried with an empty cache.
Runs on the main thread after the program's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

MOST_CALLS = 8
"""Maximum number of calls of a warm-up: by default torch compiles a function at most this often."""


@dataclass(frozen=True)
class Attempts:
    """Makes real calls of the function."""

    empty_cache: Callable[[], None]
    call: Callable[[int, bool], None]
    """Call with a size; ``True`` has it dynamic. Raises what the function raises."""
    served: Callable[[bool], frozenset[int]]
    """Return the sizes of the range that an entry serves now."""


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


def find_warm_up(attempts: Attempts, sizes: Iterable[int]) -> FoundWarmUp:
    """Return the shortest list of calls that was found, with a proven lower bound."""
    found = FoundWarmUp()
    wanted = frozenset(sizes)
    regions = _regions(attempts, wanted, found.failing)
    wanted -= found.failing.keys()
    found.apart = sorted(
        size for size in regions if not any(size in region for other, region in regions.items() if other != size)
    )
    found.least = len(found.apart)
    if regions and len(found.apart) == len(regions) and all(len(region) > 1 for region in regions.values()):
        found.first_is_static = all(_serves_itself_only(attempts, size) for size in regions)
        found.least += found.first_is_static
    for calls in _lists(regions):
        if len(calls) <= MOST_CALLS and _serve(attempts, calls, wanted):
            found.sizes = calls
            break
    for size in list(found.sizes) if len(found.sizes) > found.least else []:
        fewer = [other for other in found.sizes if other != size]
        if fewer and _serve(attempts, fewer, wanted):
            found.sizes = fewer
    if found.sizes:
        _serve(attempts, found.sizes, wanted)
    return found


def _regions(attempts: Attempts, wanted: frozenset[int], failing: dict[int, Exception]) -> Mapping[int, frozenset[int]]:
    """Return the fewest regions that cover all sizes, each by its least size that no earlier region has."""
    regions: dict[int, frozenset[int]] = {}
    left = set(wanted)
    while left and len(regions) <= MOST_CALLS and len(failing) <= MOST_CALLS:
        size = min(left)
        attempts.empty_cache()
        try:
            attempts.call(size, True)
        except Exception as problem:  # noqa: BLE001  (the program's function may raise anything)
            failing[size] = problem
            left.discard(size)
            continue
        regions[size] = attempts.served(True) | {size}
        left -= regions[size]
    return regions


def _serves_itself_only(attempts: Attempts, size: int) -> bool:
    attempts.empty_cache()
    attempts.call(size, False)
    return attempts.served(False) <= {size}


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


def _serve(attempts: Attempts, calls: Iterable[int], wanted: frozenset[int]) -> bool:
    """Return whether nothing compiles after these calls."""
    attempts.empty_cache()
    for size in calls:
        attempts.call(size, False)
    return attempts.served(False) >= wanted
