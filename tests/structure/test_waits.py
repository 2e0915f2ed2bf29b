"""Tests wait for a condition, and fail only minutes later: a busy machine makes no test fail."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.structure.sources import ROOT

_LEAST = 100
"""Seconds. A wait for what will happen takes ``DEADLINE`` of ``tests.client``, or the time of many compiles."""
_NAMES = frozenset({"deadline", "timeout"})
_LAST_ARGUMENT = frozenset({"create_connection", "wait_for", "wait_until_gone"})
_ONLY_ARGUMENT = frozenset({"join", "settimeout", "wait"})
_CLOCKS = frozenset({"monotonic", "perf_counter", "time"})

INTENDED = {
    "client/test_zygote.py::test_a_forked_server_that_does_not_end_is_killed": "the server is suspended",
    "client/zygote.py::_Zygote._fork_for": "one that connects and asks for nothing would block the others",
    "client/zygote.py::_end": "the zygote is killed afterwards",
    "eager/test_waiting_ranks.py::test_the_end_of_the_program_waits_for_a_look_in_progress": "the thread may not end",
    "failures.py::pytest_testnodedown": "without the exit status the report says less",
    "protocol/test_connection.py::test_no_answer_is_a_timeout_that_says_what_was_asked": "nobody answers",
    "server/test_unauthenticated.py::_is_closed": "most of the connections stay open",
}
"""Waits that may be short: in which function, and why."""


def _number(node: ast.expr | None, constants: dict[str, float]) -> float | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        return node.value
    return constants.get(node.id) if isinstance(node, ast.Name) else None


def _constants(tree: ast.Module) -> dict[str, float]:
    """Return the numbers that have names in a module."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            number = _number(node.value, {})
            if number is not None:
                found[node.targets[0].id] = number
    return found


def _limits(node: ast.AST) -> Iterator[ast.expr | None]:
    """Yield the expressions by which a node limits a wait."""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        yield from (keyword.value for keyword in node.keywords if keyword.arg in _NAMES)
        if name in _LAST_ARGUMENT and len(node.args) > 1:
            yield node.args[-1]
        if name in _ONLY_ARGUMENT and len(node.args) == 1:
            yield node.args[0]
    elif isinstance(node, ast.arguments):
        positional = [*node.posonlyargs, *node.args]
        defaults = [*([None] * (len(positional) - len(node.defaults))), *node.defaults, *node.kw_defaults]
        yield from (
            default
            for argument, default in zip([*positional, *node.kwonlyargs], defaults, strict=True)
            if argument.arg in _NAMES
        )
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and isinstance(node.left, ast.Call):
        yield from [node.right] if getattr(node.left.func, "attr", "") in _CLOCKS else []


def short_waits(tree: ast.Module) -> list[tuple[str, int]]:
    """Return the functions that wait for less than a busy machine may need, each with the line."""
    constants = _constants(tree)
    found = []

    def visit(node: ast.AST, owner: str) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            owner = f"{owner}.{node.name}" if owner else node.name
        for limit in _limits(node):
            number = _number(limit, constants)
            if limit is not None and number is not None and number < _LEAST:
                found.append((owner, limit.lineno))
        for child in ast.iter_child_nodes(node):
            visit(child, owner)

    visit(tree, "")
    return found


def _test_files() -> list[Path]:
    left_out = {"benchmarks", "demo", "matrix", "node_modules", "zoo"}
    return [path for path in sorted((ROOT / "tests").rglob("*.py")) if not left_out & {*path.parts}]


def test_a_wait_has_a_deadline_of_minutes() -> None:
    found, seen = [], set()
    for path in _test_files():
        for owner, line in short_waits(ast.parse(path.read_text(encoding="utf-8"))):
            name = f"{path.relative_to(ROOT / 'tests')}::{owner}"
            seen.add(name)
            if name not in INTENDED:
                found.append(f"tests/{path.relative_to(ROOT / 'tests')}:{line} in {owner or 'the module'}")
    assert not found, "\n".join(found)
    assert seen == INTENDED.keys()


def test_the_check_sees_short_waits() -> None:
    text = (
        "SHORT = 5.0\n"
        "def f(deadline=30):\n"
        "    wait(timeout=20)\n"
        "    process.wait(SHORT)\n"
        "    until = time.monotonic() + 60\n"
        "    process.wait(DEADLINE)\n"
        "    changed.wait_for(found, 30)\n"
    )
    assert short_waits(ast.parse(text)) == [("f", 2), ("f", 3), ("f", 4), ("f", 5), ("f", 7)]
