"""A tag says that a commit is a release, so only such a commit gets one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from release.tagging import NotReleased, version_and_date
from tests.structure.sources import ROOT

_IDENTITY = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgSign=false")
_RELEASED = "# Changelog\n\n## 9.9.9 (2030-01-02)\n\n### Fixed\n\n- Everything.\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a repository whose commit is release 9.9.9, with the project's own release tools."""
    shutil.copytree(ROOT / "release", tmp_path / "release", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / ".gitignore").write_text("__pycache__/\n")
    for folder in ("adapter/dynamo_dap", "vscode-extension"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "adapter/dynamo_dap/__init__.py").write_text('__version__ = "9.9.9"\n')
    for name in ("CHANGELOG.md", "vscode-extension/CHANGELOG.md"):
        (tmp_path / name).write_text(_RELEASED)
    _git(tmp_path, "init", "--quiet")
    _commit(tmp_path)
    return tmp_path


def _git(checkout: Path, *arguments: str) -> str:
    command = ["git", *_IDENTITY, *arguments]
    return subprocess.run(command, cwd=checkout, capture_output=True, check=True, text=True).stdout.strip()


def _commit(checkout: Path) -> None:
    _git(checkout, "add", "--all")
    _git(checkout, "commit", "--quiet", "--message", "Change something")


def _tag(checkout: Path) -> subprocess.CompletedProcess[str]:
    for name, value in (("user.name", "Somebody"), ("user.email", "somebody@example.org"), ("tag.gpgSign", "false")):
        _git(checkout, "config", name, value)
    command = [sys.executable, "-m", "release.tagging"]
    return subprocess.run(command, cwd=checkout, capture_output=True, check=False, text=True)


def test_a_release_is_tagged_once(checkout: Path) -> None:
    for _ in range(2):
        tagged = _tag(checkout)
        assert (tagged.returncode, tagged.stderr) == (0, "")
        assert "git push origin v9.9.9" in tagged.stdout
    assert _git(checkout, "tag", "--list") == "v9.9.9"
    assert _git(checkout, "cat-file", "-t", "v9.9.9") == "tag", "an annotated tag, which git describe finds"
    assert _git(checkout, "rev-parse", "v9.9.9^{commit}") == _git(checkout, "rev-parse", "HEAD")


@pytest.mark.parametrize("name", ["CHANGELOG.md", "vscode-extension/CHANGELOG.md"])
def test_unreleased_entries_are_refused(name: str, checkout: Path) -> None:
    heading = "# Changelog\n\n"
    unreleased = f"{heading}## Unreleased\n\n### Added\n\n- One.\n- Two.\n\n"
    (checkout / name).write_text(_RELEASED.replace(heading, unreleased))
    _commit(checkout)
    refused = _tag(checkout)
    assert refused.returncode == 1
    assert f"- {name} has 2 unreleased entries" in refused.stderr
    assert _git(checkout, "tag", "--list") == ""


def test_an_empty_list_of_unreleased_changes_is_accepted(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text(_RELEASED.replace("## 9", "## Unreleased\n\n## 9"))
    _commit(checkout)
    assert _tag(checkout).returncode == 0


def test_uncommitted_changes_and_a_tag_elsewhere_are_refused_together(checkout: Path) -> None:
    first = _git(checkout, "rev-parse", "HEAD")
    assert _tag(checkout).returncode == 0
    (checkout / "new.py").write_text("")
    _commit(checkout)
    (checkout / "newer.py").write_text("")
    refused = _tag(checkout)
    assert refused.returncode == 1
    assert "some changes are in no commit" in refused.stderr
    assert f"v9.9.9 is at another commit, {first[:9]}" in refused.stderr
    assert _git(checkout, "rev-parse", "v9.9.9^{commit}") == first


def test_a_folder_that_is_not_a_repository_is_refused(checkout: Path) -> None:
    shutil.rmtree(checkout / ".git")
    refused = subprocess.run(
        [sys.executable, "-m", "release.tagging"], cwd=checkout, capture_output=True, check=False, text=True
    )
    assert refused.returncode == 1
    assert "git" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_release_is_not_built_from_another_commit(checkout: Path) -> None:
    """``make release`` refuses before it builds anything."""
    (checkout / "new.py").write_text("")
    command = [sys.executable, "-m", "release.build", "--release", "--output", "built"]
    refused = subprocess.run(command, cwd=checkout, capture_output=True, check=False, text=True)
    assert refused.returncode == 1
    assert "some changes are in no commit" in refused.stderr
    assert not (checkout / "built").exists()


def test_a_release_without_a_dated_version_is_refused(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n")
    with pytest.raises(NotReleased, match=r"9\.9\.9"):
        version_and_date(checkout)
