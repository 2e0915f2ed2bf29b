"""Parses the project's Python sources for the tests of its structure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ADAPTER = ROOT / "adapter"


@dataclass(frozen=True)
class Module:
    """A module of ``dynamo_dap``."""

    path: Path

    @property
    def name(self) -> str:
        """The dotted name; for an ``__init__`` module, the name of its package."""
        parts = self.path.relative_to(ADAPTER).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.path.read_text(encoding="utf-8"), str(self.path))

    def imports(self) -> Iterator[tuple[str, int]]:
        """Yield every module that this one imports, with the line; ``from a import b`` counts as ``a.b``."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((alias.name, node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.path}:{node.lineno}: a relative import"
                yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def guides() -> list[Path]:
    """The pages that users read: the README and what it leads to."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def adapter_modules() -> list[Module]:
    """Return all modules of ``dynamo_dap``."""
    return [Module(path) for path in sorted(ADAPTER.rglob("*.py"))]
