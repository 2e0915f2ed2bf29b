"""What users read of the options of ``launch`` and ``attach`` is what the server takes: VS Code's, the README's."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

import msgspec
import pytest

from dynamo_dap.server.launching.options import (
    CONSOLES,
    MODES,
    AttachArguments,
    ConnectTarget,
    LaunchArguments,
    SessionOptions,
)
from tests.structure.sources import ROOT

NOT_FOR_USERS = {
    "noDebug": "an IDE's own: Run Without Debugging",
    "accessToken": "for clients of dynamo-dap --listen, which are no users of launch.json",
    "host": "connect says it",
    "port": "connect says it",
}


def _schema(request: str) -> dict[str, Any]:
    manifest = json.loads((ROOT / "vscode-extension/package.json").read_text())
    (debugger,) = manifest["contributes"]["debuggers"]
    return debugger["configurationAttributes"][request]["properties"]


def _fields(struct: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.encode_name: field for field in msgspec.structs.fields(struct)}


@pytest.mark.parametrize(("request_name", "struct"), [("launch", LaunchArguments), ("attach", AttachArguments)])
def test_vs_code_knows_every_option_and_its_default(request_name: str, struct: type[SessionOptions]) -> None:
    fields, schema = _fields(struct), _schema(request_name)
    assert set(schema) == set(fields) - set(NOT_FOR_USERS)
    for name, described in schema.items():
        assert described["description"].strip().endswith("."), name
        default = fields[name].default
        if default is None or name in ("args", "env"):
            continue
        assert described["default"] == default, name


def test_vs_code_knows_the_choices() -> None:
    schema = _schema("launch")
    assert set(schema["mode"]["enum"]) == set(MODES) == set(_schema("attach")["mode"]["enum"])
    assert set(schema["console"]["enum"]) == set(CONSOLES)
    assert set(_schema("attach")["connect"]["properties"]) == set(_fields(ConnectTarget))


def test_the_readme_lists_every_option() -> None:
    _, _, after = (ROOT / "README.md").read_text().partition("## Launch options\n")
    table = after.partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    known = {*_fields(LaunchArguments), *_fields(AttachArguments)}
    assert sorted(listed) == sorted(known - set(NOT_FOR_USERS))


def _unexplained(tree: ast.Module, lines: list[str]) -> list[int]:
    """The lines on which a session is begun with an option off, and without a comment that says why."""
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
    """Sessions of tests are those that a user gets."""
    wrong = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        wrong += [f"{path.relative_to(ROOT)}:{line}" for line in _unexplained(ast.parse(text), text.splitlines())]
    assert not wrong, "\n".join(wrong)


def test_the_check_sees_an_option_that_is_off() -> None:
    begin = "session.launch(p, eager=False)"
    text = f'{begin}\n{begin}  # why\nwith session.launching(p, mode="run-time"): pass\n'
    assert _unexplained(ast.parse(text), text.splitlines()) == [1, 3]
