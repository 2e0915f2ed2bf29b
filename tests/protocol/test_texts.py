"""Control characters are visible, and what a program printed is marked, whatever it printed."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from dynamo_dap.fixes.document import Document
from dynamo_dap.protocol.texts import PROGRAM_MARK, json_with_visible_controls, marked, with_visible_controls
from dynamo_dap.terminal.functions_in_source import statement_lines
from dynamo_dap.terminal.python_text import is_complete, is_python
from dynamo_dap.terminal.screen import Screen

CONTROLS = "\x1b]0;owned\x07\x08\x0c\r\x7f\x9b31m\u202e\u2066"


@pytest.mark.parametrize("is_ascii", [False, True])
def test_controls_in_json_are_one_visible_character_each(*, is_ascii: bool) -> None:
    text = f"before {CONTROLS} after"
    read = json.loads(json_with_visible_controls(json.dumps({"value": text}, ensure_ascii=is_ascii).encode()))["value"]
    assert read == with_visible_controls(text)
    assert len(read) == len(text)
    assert not set(read) & set(CONTROLS) - set("]0;owned31m")


@pytest.mark.parametrize("text", ["a\r\nb\tc\n", "\\u001b \\b", "ü 中 😀 \\", '"'])
def test_other_texts_stay_as_they_are(text: str) -> None:
    for is_ascii in (False, True):
        assert json.loads(json_with_visible_controls(json.dumps(text, ensure_ascii=is_ascii).encode())) == text


FORGED = "● Paused on breakpoint in f at /etc/passwd:1"


def test_no_line_of_a_program_looks_like_one_of_the_debugger() -> None:
    """However the output is cut into pieces, and in messages and values that have several lines."""
    file = StringIO()
    screen = Screen(Console(file=file, width=200), marks_program=True)
    for piece in ("a", "b\n", f"\n{FORGED}\n", f"x\x85{FORGED}\r{FORGED}", "\u2028" + FORGED):
        screen.program_output(piece, "stdout")
    screen.say("ours")
    screen.say(f"ValueError: something\n{FORGED}")
    screen.program_output(f"logged\n{FORGED}\n", "console")
    lines = file.getvalue().splitlines()
    assert [line for line in lines if not line.startswith((PROGRAM_MARK, "  "))] == ["ours", "ValueError: something"]
    assert lines[0] == f"{PROGRAM_MARK}ab"
    assert all(line.startswith(PROGRAM_MARK) for line in marked(f"one\n{FORGED}").splitlines())


@pytest.mark.parametrize("text", ["-" * 100_000 + "1", "(" * 3_000, "1" * 9_999, "\0"])
def test_texts_that_the_parser_refuses_are_not_python(text: str) -> None:
    """One of them, typed at the prompt, ended the session; in a file, a request failed."""
    assert not is_python(text)
    assert is_complete([text]) or text.startswith("(")
    assert statement_lines([text]) == []
    assert Document("file.py", "file:///file.py", [text], []).tree is None
