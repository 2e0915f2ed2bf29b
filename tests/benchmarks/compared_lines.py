"""Lines of a compiled call beside those of an eager one, for benchmarks that count which are the same."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class ComparedLines:
    """What was counted of one call."""

    lines: int = 0
    """Lines that the eager call came to, and that count."""
    hit: int = 0
    """How many of them the compiled call showed as well."""
    equal: int = 0
    different: list[str] = field(default_factory=list)
