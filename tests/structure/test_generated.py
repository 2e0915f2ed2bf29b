"""Generated files agree with their sources: they are not edited, and no part of them is unused."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import msgspec
import pytest

from dynamo_dap.debuggee.agent import handlers as _handlers  # noqa: F401  (registers the requests)
from dynamo_dap.debuggee.agent.requests import HANDLERS
from dynamo_dap.protocol.requests.contract import CUSTOM_PREFIX, OLD_KEYS, GoToSnapshotArguments, TimelineEntry
from dynamo_dap.protocol.requests.options import AttachArguments, LaunchArguments
from tests.matrix.run import PROBE
from tests.structure import generate_options, generate_requests, generate_types
from tests.structure.sources import ROOT


def test_the_structures_of_dap_are_those_of_the_schema_that_are_used() -> None:
    assert generate_types.PATH.read_text(encoding="utf-8") == generate_types.generated_text(), "run: make generate"


def test_the_options_in_the_extension_and_the_readme_are_those_that_there_are() -> None:
    files = (generate_options.MANIFEST, generate_options.TEXTS)
    there = tuple(path.read_text(encoding="utf-8") for path in files)
    assert there == generate_options.manifest_texts(), "make generate"
    assert generate_options.PAGE.read_text(encoding="utf-8") == generate_options.page_text(), "make generate"


@pytest.mark.parametrize(
    ("options", "not_for_configurations"),
    [
        (LaunchArguments, {"noDebug", "accessToken"}),
        (AttachArguments, {"accessToken", "handedOver", "host", "meeting", "port"}),
    ],
)
def test_every_option_that_users_write_is_described(
    options: type[msgspec.Struct], not_for_configurations: set[str]
) -> None:
    described = {one.name: one.description for one in generate_options.options_of(options)}
    assert all(text.endswith(".") for text in described.values())
    assert {*options.__struct_encode_fields__} - {*described} == not_for_configurations


def test_the_structures_of_our_requests_in_the_extension_are_those_that_are_answered() -> None:
    assert generate_requests.PATH.read_text(encoding="utf-8") == generate_requests.generated_text(), "make generate"


def test_the_guide_lists_our_requests_and_their_arguments() -> None:
    guide = (ROOT / "docs" / "custom-requests.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `\{(.*?)\}` \|", guide, re.MULTILINE)
    listed = {name: [one for one in arguments.split(", ") if one] for name, arguments in rows}
    served = {name: handler for name, handler in HANDLERS.items() if name.startswith(CUSTOM_PREFIX)}
    expected = {
        name: [key for key in kind.__struct_encode_fields__ if key not in OLD_KEYS.get(kind, ())]
        for name, kind in ((name, handler.arguments_type) for name, handler in served.items())
    }
    assert listed == expected


def test_the_reference_of_our_requests_is_the_contract() -> None:
    guide = generate_requests.GUIDE.read_text(encoding="utf-8")
    assert guide == generate_requests.guide_text(guide), "make generate"


def test_the_old_name_of_a_snapshot_is_accepted_and_sent() -> None:
    assert msgspec.convert({"threadId": 1, "moment": 7}, GoToSnapshotArguments).snapshot == 7
    assert msgspec.convert({"threadId": 1, "snapshot": 0}, GoToSnapshotArguments).snapshot == 0
    with pytest.raises(msgspec.ValidationError, match="snapshot"):
        msgspec.convert({"threadId": 1}, GoToSnapshotArguments)
    assert msgspec.to_builtins(TimelineEntry(7, "f", "f.py", 1, 0, 0))["moment"] == 7


def test_the_readmes_table_of_versions_has_the_numbers_of_this_environment() -> None:
    """Tests only the row of this Python and torch; ``make versions`` prints all rows."""
    printed = subprocess.run([sys.executable, "-c", PROBE], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    python, torch, features, names, _ = json.loads(printed.splitlines()[-1])
    rows = re.findall(
        r"^\| (\d+\.\d+)\.\d+ \| (\d+\.\d+)\.\d+ \| works \| \d+ of (\d+) \| (\d+) \|",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    known = {(of_python, of_torch): (int(count), int(needs)) for of_python, of_torch, count, needs in rows}
    here = python.rpartition(".")[0], ".".join(torch.split(".")[:2])
    assert known
    assert known.get(here, (features, names)) == (features, names), "make versions"
