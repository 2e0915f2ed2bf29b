"""Pages children: a dictionary with a million keys is neither computed nor sent at once.

DAP itself pages lists (``indexedVariables``). Named children beyond a page go into groups that open on demand. Runs on
the held thread; objects live as long as the pause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dynamo_dap.debuggee.values.model import Children, Deferred, Value, Variable

PAGE = 100
"""Named children shown at once."""


def in_pages(
    count: int, page: Callable[[int, int], Sequence[Variable]], before: Callable[[], Sequence[Variable]] = tuple
) -> Children:
    """Return ``count`` named children, those beyond the first page in groups.

    ``page(start, stop)`` computes one page; ``before`` computes children in front of the first.
    """
    return Deferred(lambda: [*before(), *_page_or_groups(0, count, page)])


def _page_or_groups(start: int, stop: int, page: Callable[[int, int], Sequence[Variable]]) -> Sequence[Variable]:
    count = stop - start
    if count <= PAGE:
        return unique_names(page(start, stop))
    width = PAGE
    while width * PAGE < count:
        width *= PAGE
    first = unique_names(page(start, start + PAGE))
    begin = start + PAGE
    groups = [_group(at, min(at + width, stop), page) for at in range(begin, stop, width)]
    return [*first, *groups]


def _group(start: int, stop: int, page: Callable[[int, int], Sequence[Variable]]) -> Variable:
    below = Deferred(lambda: _page_or_groups(start, stop, page))
    return Variable(f"{start} … {stop - 1}", Value(f"{stop - start} more", children=below, kind="virtual"))


def unique_names(variables: Iterable[Variable]) -> list[Variable]:
    """Return the variables with unique names, made by adding a number: DAP identifies children by name."""
    seen: dict[str, int] = {}
    result: list[Variable] = []
    for variable in variables:
        times = seen.get(variable.name, 0) + 1
        seen[variable.name] = times
        if times > 1:
            name = f"{variable.name} ({times})"
            variable = Variable(name, variable.value, variable.evaluate_name, variable.declaration)  # noqa: PLW2901  (a changed item replaces it)
        result.append(variable)
    return result
