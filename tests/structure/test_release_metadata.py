"""What a release says of itself stands in one place; copies in the extension's files agree with it."""

from __future__ import annotations

import json
import re

import dynamo_dap
from tests.structure.sources import ROOT

_PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
_EXTENSION = ROOT / "vscode-extension"


def test_the_extension_has_the_packages_version() -> None:
    package = json.loads((_EXTENSION / "package.json").read_text(encoding="utf-8"))
    lock = json.loads((_EXTENSION / "package-lock.json").read_text(encoding="utf-8"))
    versions = {package["version"], lock["version"], lock["packages"][""]["version"]}
    assert versions == {dynamo_dap.__version__}
    assert not re.search(r"^version =", _PROJECT, re.MULTILINE), "the version is in dynamo_dap/__init__.py only"


def test_the_extension_has_the_projects_addresses() -> None:
    package = json.loads((_EXTENSION / "package.json").read_text(encoding="utf-8"))
    urls = dict(re.findall(r'^(\w+) = "(https://[^"]+)"$', _PROJECT, re.MULTILINE))
    assert package["homepage"] == urls["Homepage"]
    assert package["repository"]["url"] == urls["Repository"]
    assert package["bugs"]["url"] == urls["Issues"]


def test_the_extensions_changelog_has_the_version() -> None:
    text = (_EXTENSION / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(dynamo_dap.__version__)} \(", text, re.MULTILINE)
