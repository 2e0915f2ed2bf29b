"""What follows a program on the command line reaches it as it is given."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from dynamo_dap.commands.debug import read_options as read_options_of_debug
from dynamo_dap.records.program import add_program, given_program, read_options


@pytest.mark.parametrize(
    ("before", "after", "arguments"),
    [
        ([], ["--", "x"], ["--", "x"]),
        ([], ["a", "--", "--json"], ["a", "--", "--json"]),
        (["--json"], ["--json", "-x"], ["--json", "-x"]),
        (["--json", "--"], ["--", "b"], ["--", "b"]),
    ],
)
def test_a_programs_arguments_are_those_that_follow_it(
    tmp_path: Path, before: list[str], after: list[str], arguments: list[str]
) -> None:
    program = tmp_path / "program.py"
    program.write_text("")
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    add_program(parser)
    options = read_options(parser, [*before, str(program), *after])
    found = given_program(parser, options)
    assert (found.program, found.args, options.json) == (str(program), arguments, bool(before))


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        (["mod", "--", "q"], ["q"]),
        (["mod", "a", "--", "b"], ["a", "--", "b"]),
        (["mod"], []),
        (["mod", "a", "--"], ["a", "--"]),
        (["mod", "a", "--", "--"], ["a", "--", "--"]),
    ],
)
def test_a_modules_arguments_may_follow_two_dashes(given: list[str], arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    add_program(parser)
    found = given_program(parser, read_options(parser, ["-m", *given]))
    assert (found.module, found.args) == ("mod", arguments)


@pytest.mark.parametrize(
    ("given", "arguments", "breakpoints"),
    [
        (["-m", "pytest", "test_a.py", "-q", "-m", "slow"], ["test_a.py", "-q", "-m", "slow"], []),
        (["-m", "mod", "-b", "f", "run", "-b", "2"], ["run", "-b", "2"], ["f"]),
        (["--module=mod", "run", "--", "-q"], ["run", "-q"], []),
        (["-m", "mod", "--", "-q"], ["-q"], []),
        (["program.py", "-b", "f", "--mode=both", "--", "-q"], ["-q"], ["f"]),
    ],
)
def test_debug_leaves_options_to_a_module(given: list[str], arguments: list[str], breakpoints: list[str]) -> None:
    options, found = read_options_of_debug(given)
    assert (found, options.breakpoints) == (arguments, breakpoints)
    assert (options.program is None) != (options.module is None)


def test_no_program_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_program(parser)
    with pytest.raises(SystemExit):
        given_program(parser, read_options(parser, []))
    assert "give a program" in capsys.readouterr().err
