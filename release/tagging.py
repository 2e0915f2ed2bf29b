"""Tags a release, ``make tag``, and says what keeps a commit from being one.

A commit is a release if the changelog dates its version and has nothing unreleased, nothing is changed, and the
version's tag is at no other commit.
"""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class NotReleased(Exception):
    """The release cannot be made; the text says why and what to do."""


def version_and_date(root: Path) -> tuple[str, dt.date]:
    """Return the version of the package and the day that the changelog gives it."""
    source = (root / "adapter/dynamo_dap/__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)
    if found is None:
        raise NotReleased('adapter/dynamo_dap/__init__.py has no line __version__ = "..."')
    heading = rf"^## {re.escape(found[1])} \((\d{{4}}-\d\d-\d\d)\)$"
    dated = re.search(heading, (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    if dated is None:
        raise NotReleased(f"CHANGELOG.md has no heading '## {found[1]} (YYYY-MM-DD)'")
    return found[1], dt.date.fromisoformat(dated[1])


def require_release(root: Path) -> str:
    """Return the version that this commit is.

    Raises:
        NotReleased: this commit is not a release; the text has every reason.
    """
    version, _ = version_and_date(root)
    reasons = []
    for name in ("CHANGELOG.md", "vscode-extension/CHANGELOG.md"):
        unreleased = re.search(
            r"^## Unreleased\n(.*?)(?=^## |\Z)", (root / name).read_text(encoding="utf-8"), re.M | re.S
        )
        entries = len(re.findall(r"^- ", unreleased[1], re.MULTILINE)) if unreleased else 0
        if entries:
            reasons.append(f"{name} has {entries} unreleased entries: move them to a dated version")
    if _git(root, "status", "--porcelain"):
        reasons.append("some changes are in no commit: commit them")
    tagged = tagged_commit(root, version)
    if tagged and tagged != _git(root, "rev-parse", "HEAD"):
        reasons.append(f"the tag v{version} is at another commit, {tagged[:9]}: choose a new version")
    if reasons:
        raise NotReleased(f"this commit is not release {version}:\n" + "\n".join(f"- {reason}" for reason in reasons))
    return version


def tagged_commit(root: Path, version: str) -> str:
    """Return the commit that has the version's tag; empty if none has."""
    name = f"v{version}"
    return _git(root, "rev-list", "-n", "1", name) if _git(root, "tag", "--list", name) else ""


def tag(root: Path) -> str:
    """Tag this commit with its version, unless it has the tag; return the tag.

    The tag is signed if Git is configured for that (``tag.gpgSign``).
    """
    version = require_release(root)
    if not tagged_commit(root, version):
        _git(root, "tag", "--annotate", f"v{version}", "--message", f"dynamo-dap {version}")
    return f"v{version}"


def _git(root: Path, *arguments: str) -> str:
    ran = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False, text=True)
    if ran.returncode:
        raise NotReleased(f"git {' '.join(arguments)} failed:\n{ran.stderr}")
    return ran.stdout.strip()


def main() -> int:
    """Tag the commit; 1 if it is not a release."""
    try:
        name = tag(ROOT)
    except NotReleased as problem:
        sys.stderr.write(f"tag: {problem}\n")
        return 1
    sys.stdout.write(f"{name} is at this commit. To publish it: git push origin {name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
