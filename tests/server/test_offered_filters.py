"""The exception filters that an editor is offered: those that ``--filters`` names."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from dynamo_dap.server.client.capabilities import AGENT_CAPABILITIES, EAGER_CAPABILITIES, FILTER_NAMES
from tests.client.session import DEADLINE
from tests.structure.sources import ROOT

_CAPABILITIES = (AGENT_CAPABILITIES, EAGER_CAPABILITIES)


def _filters(*arguments: str) -> list[str]:
    body = json.dumps({"seq": 1, "type": "request", "command": "initialize", "arguments": {"adapterID": "dynamo"}})
    command = [sys.executable, "-m", "dynamo_dap", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        server.stdin.flush()
        length = int(server.stdout.readline().split(b":")[1])
        server.stdout.readline()
        response = json.loads(server.stdout.read(length))
    return [each["filter"] for each in response["body"]["exceptionBreakpointFilters"]]


def test_only_the_named_filters_are_offered() -> None:
    assert set(_filters()) == FILTER_NAMES
    assert sorted(_filters("--filters", "nan,uncaught")) == ["nan", "uncaught"]
    assert _filters("--filters", "") == []


@pytest.mark.parametrize("arguments", [["--filters", "nan,nothing"], ["--filters", "nan", "--listen", "0"]])
def test_bad_filters_are_refused(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "dynamo_dap", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert run.returncode == 2
    assert "--filters" in run.stderr
    assert "Traceback" not in run.stderr


def test_the_extension_knows_each_filter() -> None:
    package = json.loads((ROOT / "vscode-extension" / "package.json").read_text(encoding="utf-8"))
    setting = package["contributes"]["configuration"]["properties"]["dynamo.exceptionFilters"]
    assert set(setting["items"]["enum"]) == FILTER_NAMES
    assert set(setting["default"]) <= FILTER_NAMES
    texts = json.loads((ROOT / "vscode-extension" / "package.nls.json").read_text(encoding="utf-8"))
    shown = [texts[each.strip("%")] for each in setting["items"]["enumDescriptions"]]
    named = dict(zip(setting["items"]["enum"], shown, strict=True))
    labels = {each.filter: each.label for part in _CAPABILITIES for each in part.exception_breakpoint_filters or []}
    assert named == labels
    assert [named[each] for each in setting["default"]] == [
        "Graph Breaks",
        "Recompiles",
        "NaN and Inf",
        "Differs from Eager",
        "Uncaught Exceptions",
    ]
