"""What commands print with ``--json`` is what ``dynamo-dap schema`` says of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dynamo_dap.command_line import main
from dynamo_dap.commands.registry import COMMANDS
from dynamo_dap.commands.schema import PRINTED, schema_of
from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE
from tests.client import zygote
from tests.client.environments import VirtualEnvironment
from tests.client.timeline import DEADLINE

PROGRAM = """\
import torch


def wrong(graph, inputs):
    for node in graph.graph.nodes:
        if node.target is torch.nn.functional.silu:
            node.target = torch.nn.functional.relu
    graph.recompile()
    return graph.forward


@torch.compile(backend=wrong)
def fn(x):
    y = torch.nn.functional.silu(x)
    torch._dynamo.graph_break()
    return y.sum() + (1 if torch.compiler.is_compiling() else 0)


values = [fn(torch.ones(size)).item() for size in (2, 3)]
print(values)
"""
_OPTIONS = {"profile": ["--output", "made"], "record-call": ["--folder", "saved"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("project")
    (path / "program.py").write_text(PROGRAM, encoding="utf-8")
    return path


def _printed(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "dynamo_dap", *arguments],
        env={**os.environ, RECORDS_VARIABLE: str(folder / "records"), "PYTHONUNBUFFERED": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    ).stdout


def _closed(schema: Any) -> Any:
    """The schema, with nothing allowed that it does not name: so that nothing is printed that it does not tell of."""
    for definition in schema["$defs"].values():
        definition["additionalProperties"] = False
    return schema


# These run a program many times: what they print is held to its type in test_questions, in test_minify, in
# test_data_dependent_breaks and in test_caches.
@pytest.mark.parametrize(
    "command", [name for name in PRINTED if name not in ("bisect", "diff-caches", "fix", "minify")]
)
def test_what_is_printed_is_as_its_schema_says(folder: Path, command: str) -> None:
    schema = schema_of(command)
    jsonschema.Draft202012Validator.check_schema(schema)
    python = ["--python", *zygote.python()]
    if command == "report":
        _printed(folder, "run", *python, "program.py")
        printed = _printed(folder, "report", "--json")
    elif command == "doctor":
        printed = _printed(folder, "doctor", "--json")
    else:
        printed = _printed(folder, command, "--json", *_OPTIONS.get(command, []), *python, "program.py")
    values = [json.loads(line) for line in printed.splitlines()] if command == "compare" else [json.loads(printed)]
    assert any(values)
    for value in values:
        jsonschema.validate(value, _closed(schema), cls=jsonschema.Draft202012Validator)


def test_each_command_with_json_has_a_schema(capsys: pytest.CaptureFixture[str]) -> None:
    found = set()
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            main([command, "-h"])
        if "--json " in capsys.readouterr().out:
            found.add(command)
    assert found - {"schema"} == set(PRINTED) - {"diff-caches"}


def test_without_the_sdk_the_server_says_what_to_install(tmp_path: Path) -> None:
    environment = VirtualEnvironment(tmp_path, "dynamo_dap", "msgspec")
    command = [str(environment.python), "-m", "dynamo_dap", "mcp"]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, env=variables, input="", cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == 1
    assert "pip install 'dynamo-dap[mcp]'" in done.stderr
    assert not done.stdout


def test_a_schema_is_printed(folder: Path) -> None:
    printed = json.loads(_printed(folder, "schema", "check"))
    assert printed == schema_of("check")
    assert printed["$defs"]["JsonReport"]["properties"]["problems"]["description"]
