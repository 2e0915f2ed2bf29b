"""Tests debug with the default options, as users do; a test that does not says why."""

from __future__ import annotations

import ast

from tests.structure.sources import ROOT


def _unexplained(tree: ast.Module, lines: list[str]) -> list[int]:
    """Return the lines that start a session with an option off, without a comment that says why."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if name in ("launch", "launching", "attach", "launch_configuration"):
                found |= {
                    keyword.value.lineno
                    for keyword in node.keywords
                    if keyword.arg in ("eager", "mode", "record")
                    and isinstance(keyword.value, ast.Constant)
                    and keyword.value.value in (False, "compile-time", "run-time")
                }
    return sorted(line for line in found if "#" not in lines[line - 1])


def test_a_test_that_turns_an_option_off_says_why() -> None:
    """Sessions of tests have the options that a user gets."""
    wrong = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        wrong += [f"{path.relative_to(ROOT)}:{line}" for line in _unexplained(ast.parse(text), text.splitlines())]
    assert not wrong, "\n".join(wrong)


def test_the_check_sees_an_option_that_is_off() -> None:
    begin = "session.launch(p, eager=False)"
    text = f'{begin}\n{begin}  # why\nwith session.launching(p, mode="run-time"): pass\n'
    assert _unexplained(ast.parse(text), text.splitlines()) == [1, 3]
