"""``launch`` and ``attach`` arguments: what is accepted, what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dynamo_dap.protocol.requests.options import AgentOptions, AttachArguments, LaunchArguments
from dynamo_dap.server.client.errors import StartRefused
from dynamo_dap.server.launching.options import agent_arguments, read_options, target_of, unknown_attributes
from dynamo_dap.server.launching.program import environment_changes, prepare, with_changes


def _launch(**given: Any) -> LaunchArguments:
    return read_options(msgspec.Raw(msgspec.json.encode(given)), LaunchArguments, "launch")


def _attach(**given: Any) -> AttachArguments:
    return read_options(msgspec.Raw(msgspec.json.encode(given)), AttachArguments, "attach")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"stopOnEntry": "yes"}, "$.stopOnEntry"),
        ({"env": {"A": 1}}, "$.env"),
        ({"args": ["a", 1]}, "$.args[1]"),
        ({"evaluationTimeout": 0}, "$.evaluationTimeout"),
        ({"mode": "compiletime"}, '"both", "compile-time", "run-time"'),
        ({"console": "console"}, '"internalConsole"'),
    ],
)
def test_a_wrong_value_is_named(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(StartRefused) as refused:
        _launch(program="x.py", **given)
    assert expected in refused.value.text


@pytest.mark.parametrize(
    ("given", "warning"),
    [
        ({"stopOnEntrry": True}, 'Did you mean "stopOnEntry"?'),
        ({"stoponentry": True}, 'Did you mean "stopOnEntry"?'),
        ({"pyhton": "x"}, 'Did you mean "python"?'),
        ({"zebra": 1}, 'Unknown attribute "zebra" is ignored.'),
    ],
)
def test_a_misspelt_attribute_is_reported(given: dict[str, Any], warning: str) -> None:
    warnings = unknown_attributes(msgspec.Raw(msgspec.json.encode({"program": "x.py", **given})), LaunchArguments)
    assert len(warnings) == 1
    assert warning in warnings[0]


def test_what_ides_and_debugpy_put_into_configurations_is_no_mistake() -> None:
    given = {"name": "n", "type": "dynamo", "request": "launch", "__sessionId": "1", "django": True, "subProcess": True}
    assert unknown_attributes(msgspec.Raw(msgspec.json.encode(given)), LaunchArguments) == []
    assert unknown_attributes(msgspec.Raw(b"null"), LaunchArguments) == []


def test_where_to_attach() -> None:
    assert target_of(_attach(connect={"port": 5})).host == "127.0.0.1"
    assert target_of(_attach(host="there", port=6)).port == 6
    with pytest.raises(StartRefused, match="address"):
        target_of(_attach())
    with pytest.raises(StartRefused, match=r"\$\.connect\.port"):
        _attach(connect={"port": 70000})


def test_the_agent_gets_every_option_that_it_knows() -> None:
    options = agent_arguments(_launch(program="x.py", mode="run-time", justMyCode=False, eager=True))
    assert options.mode == "run-time"
    assert options.just_my_code is False
    assert msgspec.json.decode(msgspec.json.encode(options), type=AgentOptions) == options


def test_arguments_may_be_one_string(tmp_path: Path) -> None:
    (tmp_path / "x.py").touch()
    job = prepare(_launch(program="x.py", cwd=str(tmp_path), args="one 'two words'"))
    assert job.arguments == ["one", "two words"]
    with pytest.raises(StartRefused, match='"args"'):
        prepare(_launch(program="x.py", cwd=str(tmp_path), args="one 'two"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"program": "nowhere.py"}, "does not exist"),
        ({"program": ""}, '"program" is empty'),
        ({"program": "folder"}, "__main__.py"),
        ({"program": "x.py", "module": "m"}, '"program" and "module"'),
        ({}, "none of them"),
        ({"module": "no-name"}, "not the name of a module"),
        ({"program": "x.py", "python": []}, '"python" is empty'),
        ({"program": "x.py", "python": "no_such_python_anywhere"}, "PATH"),
        ({"program": "x.py", "python": "./folder"}, "is a directory"),
        ({"program": "x.py", "python": "./x.py"}, "is not executable"),
        ({"program": "x.py", "envFile": "none.env"}, "none.env"),
        ({"program": "x.py", "console": "integratedTerminal", "inputFile": "x"}, '"inputFile" needs "console"'),
        ({"program": "x.py", "env": {"A=B": "c"}}, "cannot be an environment variable"),
    ],
)
def test_what_cannot_be_launched_is_reported(tmp_path: Path, given: dict[str, Any], expected: str) -> None:
    (tmp_path / "x.py").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(StartRefused) as refused:
        prepare(_launch(cwd=str(tmp_path), **given))
    assert expected in refused.value.text


@pytest.mark.parametrize(("cwd", "expected"), [("nowhere", "does not exist"), ("file", "is not a directory")])
def test_a_directory_that_is_not_one_is_reported(tmp_path: Path, cwd: str, expected: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartRefused, match=expected):
        prepare(_launch(program="x.py", cwd=str(tmp_path / cwd)))


def test_environment_files(tmp_path: Path) -> None:
    (tmp_path / "variables").write_text(
        "# a comment\n"
        "PLAIN = value # comment\n"
        "export EXPORTED=one\n"
        "SINGLE='as # it $is\\n'\n"
        'DOUBLE="line\\nline \\"quoted\\"" # comment\n'
        "EMPTY=\n"
        "no assignment\n"
        "OVERRIDDEN=file\n"
    )
    changes = environment_changes({"OVERRIDDEN": "env", "REMOVED": None}, "variables", tmp_path)
    assert changes == {
        "PLAIN": "value",
        "EXPORTED": "one",
        "SINGLE": "as # it $is\\n",
        "DOUBLE": 'line\nline "quoted"',
        "EMPTY": "",
        "OVERRIDDEN": "env",
        "REMOVED": None,
    }
    assert with_changes({"REMOVED": "there", "KEPT": "yes"}, {"REMOVED": None, "NEW": "1"}) == {
        "KEPT": "yes",
        "NEW": "1",
    }
