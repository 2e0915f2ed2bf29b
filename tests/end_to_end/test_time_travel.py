"""Time travel: a held trace is gone back in, by every kind of step, and goes on as if nobody had looked."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.client import Fixture, Session, Stop

_COMPARED = ("Locals", "Value Stack", "Graph", "Guards", "Side Effects")


def _state(stop: Stop) -> dict[str, object]:
    """Return what is shown of the trace, to depth 2, and where it stands."""
    state: dict[str, object] = {"frames": [(frame.name, frame.line) for frame in stop.frames]}
    for name, scope in stop.frame.scopes.items():
        if name in _COMPARED:
            state[name] = {child: (tree.text, tree.texts()) for child, tree in scope.children.items()}
    return state


def _lines(fixture: Fixture) -> list[int]:
    """Return the lines of the program's functions that begin a statement, but for ``main``."""
    return sorted(
        {node.lineno for function in _functions(fixture) for node in ast.walk(function) if _is_statement(node)}
    )


def _is_statement(node: ast.AST) -> bool:
    return isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef)


def _functions(fixture: Fixture) -> list[ast.FunctionDef]:
    tree = ast.parse(fixture.path.read_text())
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name != "main"]


def _end(fixture: Fixture, function: str) -> int:
    """Return the last line of a function."""
    return next(node.body[-1].lineno for node in _functions(fixture) if node.name == function)


@pytest.mark.parametrize(
    ("program", "function"),
    [
        ("basic", "compute"),
        ("control_flow", "generators"),
        ("control_flow", "blocks"),
        ("control_flow", "functions"),
        ("loops", "accumulate"),
        ("closures", "increment"),
        ("containers", "gather"),
        ("side_effects", "record"),
        ("dynamic_shapes", "normalize"),
    ],
)
def test_back_to_every_line_and_forward_again(session: Session, program: str, function: str) -> None:
    """The state at each position is the one when it was first visited, and nothing comes of having looked."""
    fixture = Fixture(program)
    end = _end(fixture, function)
    with session.launching(fixture):
        session.set_breakpoints(fixture, *_lines(fixture), mode="compile-time")
    visited: list[dict[str, object]] = []
    stop, trace = session.wait_for_stop("breakpoint"), ""
    while True:
        if stop.description != trace:
            visited, trace = [], stop.description
        visited.append(_state(stop))
        if stop.frame.line == end:
            break
        stop = session.go_on()
    assert len(visited) > 1
    for number, expected in reversed(list(enumerate(visited[:-1]))):
        session.resume("reverseContinue")
        _compare(number, expected, _state(session.wait_for_stop("breakpoint")))
    for number, expected in list(enumerate(visited))[1:]:
        session.resume("continue")
        _compare(number, expected, _state(session.wait_for_stop("breakpoint")))
    session.set_breakpoints(fixture)
    assert session.run_to_end() == 0
    plain = subprocess.run([sys.executable, str(fixture.path)], capture_output=True, text=True, check=True)
    assert session.output("stdout") == plain.stdout


def _compare(number: int, expected: dict[str, object], found: dict[str, object]) -> None:
    for name, value in expected.items():
        assert found[name] == value, f"{name} at stop {number}"
