"""Subcommands, options, launch options and filters in README.md and ``docs`` exist."""

from __future__ import annotations

import contextlib
import io
import re

import pytest

from dynamo_dap.command_line import main
from dynamo_dap.commands.registry import COMMANDS, help_text
from dynamo_dap.protocol.requests.contract import EXCEPTION_FILTERS
from tests.structure.sources import guides

_GUIDES = "\n".join(page.read_text(encoding="utf-8") for page in guides())
_TABLE = _GUIDES.partition("## Counterparts of torch's tools")[2].partition("\n## ")[0]
_USED = re.compile(r"\bdynamo-dap ([a-z][a-z-]*)((?: --[a-z-]+)*)")
_CODE = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", _GUIDES, re.DOTALL))


def _help(subcommand: str) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), pytest.raises(SystemExit):
        main([subcommand, "-h"])
    return text.getvalue()


def test_every_subcommand_and_option_in_the_guides_exists() -> None:
    used = [(word, options.split()) for word, options in _USED.findall(_CODE)]
    assert len({word for word, _ in used}) > 10
    helps = {word: _help(word) for word in COMMANDS}
    wrong = [f"{word} {option}" for word, options in used for option in options if option not in helps.get(word, "")]
    assert not [word for word, _ in used if word not in helps], "no such subcommand"
    assert not wrong


def test_every_option_and_filter_in_the_guides_table_exists() -> None:
    cells = [line.split(" | ")[-1] for line in _TABLE.splitlines() if line.startswith("| ")][2:]
    assert len(cells) > 12
    options = {name for cell in cells for name in re.findall(r"the option `(\w+)`", cell)}
    assert options <= set(re.findall(r"^\| `(\w+)` \| (?:both|launch)", _GUIDES, re.MULTILINE))
    assert {name for cell in cells for name in re.findall(r"filter `([\w-]+)`", cell)} <= set(EXCEPTION_FILTERS)


def test_the_help_names_each_command() -> None:
    text = help_text()
    assert all(
        re.search(rf"^    {command.name} +{re.escape(command.summary)}$", text, re.M) for command in COMMANDS.values()
    )
