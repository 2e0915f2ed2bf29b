"""The project's Python sources, parsed, for the tests of its structure."""

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
        """Its dotted name; a package's is the package's."""
        parts = self.path.relative_to(ADAPTER).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.path.read_text(encoding="utf-8"), str(self.path))

    def imports(self) -> Iterator[tuple[str, int]]:
        """Every module it imports, anywhere in it, with the line; ``from a import b`` counts as ``a.b``."""
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
    """All modules of ``dynamo_dap``."""
    return [Module(path) for path in sorted(ADAPTER.rglob("*.py"))]
