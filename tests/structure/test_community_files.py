"""The files for a public forge: forms that ask for the output of ``doctor``, and workflows with existing targets."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tests.matrix.run import COMBINATIONS
from tests.structure.sources import ROOT

_FORGE = ROOT / ".github"
_FORMS = sorted((_FORGE / "ISSUE_TEMPLATE").glob("*.yml"))
_WORKFLOWS = sorted((_FORGE / "workflows").glob("*.yml"))


@pytest.mark.parametrize("name", ["bug.yml", "wrong_verdict.yml"])
def test_reports_of_faults_ask_for_the_doctors_output(name: str) -> None:
    text = (_FORGE / "ISSUE_TEMPLATE" / name).read_text(encoding="utf-8")
    field = re.search(r"^  - type: \w+\n    id: doctor\n(?:    .*\n)*?      required: true$", text, re.MULTILINE)
    assert field is not None
    assert "dynamo-dap doctor" in field[0]


@pytest.mark.parametrize("path", [*_FORMS, *_WORKFLOWS], ids=lambda path: path.name)
def test_forms_and_workflows_are_yaml(path: object) -> None:
    text = (ROOT / str(path)).read_text(encoding="utf-8")
    fields = yaml.safe_load(text)
    assert set(fields) & {"body", "jobs", "blank_issues_enabled"}
    identifiers = [each["id"] for each in fields.get("body", ()) if "id" in each]
    assert len(identifiers) == len(set(identifiers))


def test_the_support_policy_names_the_versions_that_the_packages_ask_for() -> None:
    text = (ROOT / "SUPPORT.md").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    supported = dict(re.findall(r"^\| ([\w ]+) \| ([^|]+) \|", text, re.MULTILINE))
    pythons = re.findall(r"Python :: (3\.\d+)", project)
    assert supported["Python"] == f"{pythons[0]} to {pythons[-1]}"
    for package in ("torch", "debugpy"):
        (oldest,) = re.findall(rf'^.*"{package}>=([\d.]+)"', project, re.MULTILINE)
        assert supported[package] == f"{oldest} and newer"
    extension = json.loads((ROOT / "vscode-extension/package.json").read_text(encoding="utf-8"))
    assert supported["VS Code"] == extension["engines"]["vscode"].lstrip("^").removesuffix(".0") + " and newer"
    assert "**Experimental:**" in text


def test_a_new_contributor_finds_the_rules_and_the_plans() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in ("SUPPORT.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md", "docs/roadmap.md"):
        assert f"({name})" in readme
        assert (ROOT / name).is_file()
    assert "\n## Will not be done\n" in (ROOT / "docs/roadmap.md").read_text(encoding="utf-8")
    request = (_FORGE / "PULL_REQUEST_TEMPLATE.md").read_text(encoding="utf-8")
    assert request.count("- [ ] ") >= 4
    assert "`make check`" in request


def test_workflows_run_targets_that_exist_on_every_python_of_the_matrix() -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in _WORKFLOWS)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    run = {word for line in re.findall(r"run: make (.+)$", texts, re.MULTILINE) for word in line.split()}
    assert {"test", "test-all", "package", "docs"} <= run - {"ARGUMENTS=--check"} <= targets
    (pythons,) = re.findall(r"^        python: \[(.+)\]$", texts, re.MULTILINE)
    assert set(re.findall(r"[\d.]+", pythons)) == {combination.python for combination in COMBINATIONS}
    assert texts.count("path: tests/output\n") == texts.count("if: failure()")
