"""A word that is not a command gets an answer that says what to write instead."""

from __future__ import annotations

import pytest

from dynamo_dap.command_line import main


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        ("comparee", "Did you mean 'compare'?"),
        ("ru", "Did you mean 'run'?"),
        ("train.py", "dynamo-dap debug train.py"),
        ("nan", "debug --catch nan program.py"),
        ("qqq", "unknown command 'qqq'. To list"),
        ("", "unknown command ''"),
        ("a" * 5000, "--help"),
    ],
)
def test_an_unknown_command(word: str, advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word, "program.py"]) == 2
    printed = capsys.readouterr()
    assert advice in printed.err
    assert printed.err.count("\n") == 1
    assert not printed.out
