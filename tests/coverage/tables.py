"""The tables of coverage: packages, and the modules of which too little ran."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

ENOUGH = 70
"""Percent. Modules below it are listed."""


@dataclass(frozen=True)
class Counted:
    """Lines of a module or a package, and how many of them ran."""

    lines: int = 0
    executed: int = 0

    @property
    def percent(self) -> float:
        return 100 * self.executed / self.lines if self.lines else 100.0

    def __add__(self, other: Counted) -> Counted:
        return Counted(self.lines + other.lines, self.executed + other.executed)


def tables(modules: Mapping[str, Counted]) -> Iterator[str]:
    """Yield the lines of both tables, for modules by their paths in the package."""
    packages: dict[str, Counted] = defaultdict(Counted)
    for path, count in modules.items():
        folders = path.split("/")[:-1]
        packages["/".join(folders[: 2 if folders[:1] == ["debuggee"] else 1]) or "."] += count
    yield "| package | lines with code | executed |\n| --- | ---: | ---: |"
    yield from (_row(f"`{name}`", count) for name, count in sorted(packages.items()))
    yield _row("all", sum(modules.values(), Counted()))
    yield f"\n| module below {ENOUGH} % | lines with code | executed |\n| --- | ---: | ---: |"
    yield from (_row(f"`{path}`", count) for path, count in sorted(modules.items()) if count.percent < ENOUGH)


def _row(name: str, count: Counted) -> str:
    return f"| {name} | {count.lines:,} | {count.percent:.0f} % |"
