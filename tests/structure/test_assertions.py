"""Each test asserts something, itself or through a function of ``tests``."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tests.structure.sources import ROOT

_EXPECTING = frozenset({"check_call", "check_output", "fail", "raises", "run_state_machine_as_test", "warns"})
"""Functions of libraries that raise what a test is about."""
_PREPARING = frozenset(
    {
        "address",
        "at",
        "child",
        "close",
        "end",
        "line",
        "request",
        "resume",
        "run",
        "scenario",
        "set_breakpoints",
        "start",
    }
)
"""Functions of ``tests`` that a test calls on its way, and that assert only that the way is free."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _asserts(function: _Function) -> bool:
    """Return whether a function asserts or raises something itself."""
    for node in ast.walk(function):
        if isinstance(node, (ast.Assert, ast.Raise)):
            return True
        if isinstance(node, ast.Call):
            if _called(node) in _EXPECTING or _called(node).startswith("assert_"):
                return True
            if any(one.arg == "check" and getattr(one.value, "value", False) for one in node.keywords):
                return True
    return False


def without_assertion(trees: Iterable[tuple[str, ast.Module]]) -> list[str]:
    """Return the tests that neither assert nor call a function that does. Functions are known by their names."""
    functions = [(path, each) for path, tree in trees for each in ast.walk(tree) if isinstance(each, _Function)]
    tests = [(path, each) for path, each in functions if each.name.startswith("test_")]
    helpers = {each.name for _, each in functions if not each.name.startswith("test_") and _asserts(each)} - _PREPARING

    def calls_a_helper(test: _Function) -> bool:
        return any(isinstance(node, ast.Call) and _called(node) in helpers for node in ast.walk(test))

    return [f"{path}::{each.name}" for path, each in tests if not _asserts(each) and not calls_a_helper(each)]


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if "node_modules" not in path.parts:
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def test_each_test_asserts() -> None:
    assert not without_assertion(_trees())


def test_the_check_sees_a_test_that_asserts_nothing() -> None:
    text = """
def helper(): assert stopped()
def prepare(): launch()
def test_itself(): assert stopped()
def test_by_a_helper(): helper()
def test_by_an_exception():
    with pytest.raises(ValueError): launch()
def test_nothing(): prepare()
"""
    assert without_assertion([("file", ast.parse(text))]) == ["file::test_nothing"]
