"""A built release, and a new user's machine: an empty environment, an empty home, and nothing of the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from release.build import copy_tracked_files
from tests.release import link_torch
from tests.structure.sources import ROOT


@dataclass(frozen=True)
class Release:
    """What was built, and the checkout that it was built in."""

    checkout: Path
    folder: Path

    def file(self, pattern: str) -> Path:
        """Return the one file with that name."""
        (path,) = self.folder.glob(pattern)
        return path


def build(checkout: Path, output: Path, **changed: str) -> None:
    """Build a release of a checkout into a folder, with some environment variables changed."""
    environment = {**os.environ, **changed}
    command = [sys.executable, "-m", "release.build", "--output", str(output)]
    ran = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, check=False, text=True, timeout=600
    )
    assert ran.returncode == 0, ran.stderr


def build_a_copy(checkout: Path, folder: Path) -> Release:
    """Build a release of a copy of the repository, which may change while it is tested."""
    pytest.importorskip("build", reason="the extra 'release' is not installed")
    packages = ROOT / "vscode-extension" / "node_modules"
    if not packages.exists() or shutil.which("node") is None:
        pytest.skip("the extension's packages are not installed: make check-typescript installs them")
    copy_tracked_files(ROOT, checkout)
    (checkout / "vscode-extension" / "node_modules").symlink_to(packages)
    build(checkout, folder)
    return Release(checkout, folder)


@dataclass(frozen=True)
class NewUser:
    """An environment with the wheel in it, and the variables of a login shell in which it is activated."""

    environment: Path
    variables: dict[str, str]

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return self.environment / "bin" / "python"

    def run(self, *command: str, folder: Path, typed: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command as the user does."""
        return subprocess.run(
            command,
            cwd=folder,
            env=self.variables,
            input=typed,
            capture_output=True,
            check=False,
            text=True,
            timeout=300,
        )


def new_user(release: Release, folder: Path, interpreter: Path, *, with_torch: bool) -> NewUser:
    """Install the wheel into an empty environment of an interpreter, where no compiler can be found.

    With torch, also what the server for assistants needs.
    """
    environment, home = folder / "environment", folder / "home"
    home.mkdir()
    subprocess.run([str(interpreter), "-m", "venv", "--without-pip", str(environment)], check=True, timeout=300)
    python = environment / "bin" / "python"
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    variables = {**kept, "HOME": str(home), "TERM": "dumb", "PATH": str(environment / "bin")}
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--only-binary=:all:"]
    wheel = str(release.file("*.whl"))
    installed = subprocess.run(
        [*pip, f"{wheel}[mcp]" if with_torch else wheel],
        cwd=folder,
        env=variables,
        capture_output=True,
        check=False,
        text=True,
        timeout=600,
    )
    if "No matching distribution" in installed.stderr and "(from versions: none)" in installed.stderr:
        pytest.skip("no package index can be reached")
    if "Traceback (most recent call last)" in installed.stderr:
        pytest.skip(f"this environment's pip is too old for {interpreter}")
    assert installed.returncode == 0, installed.stderr
    if with_torch:
        # torch looks for a C++ compiler by its own.
        variables["PATH"] += f"{os.pathsep}{os.environ['PATH']}"
        link_torch.link(environment)
    return NewUser(environment, variables)
