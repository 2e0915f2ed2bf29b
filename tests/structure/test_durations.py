"""The list of long tests names tests that are there."""

from __future__ import annotations

import ast

from tests.durations import long_tests
from tests.structure.sources import ROOT


def test_every_long_test_exists() -> None:
    functions: dict[str, set[str]] = {}
    missing = []
    for test in sorted(long_tests()):
        path, _, name = test.partition("::")
        if path not in functions:
            tree = (
                ast.parse((ROOT / path).read_text(encoding="utf-8")) if (ROOT / path).is_file() else ast.Module([], [])
            )
            functions[path] = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        if name not in functions[path]:
            missing.append(test)
    assert missing == []
