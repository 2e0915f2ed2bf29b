"""Environments of programs under test: virtual environments, forks with torch imported, Inductor's cache."""

from __future__ import annotations

import fcntl
import importlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.client import zygote
from tests.client.fixtures import Fixture
from tests.client.timeline import DEADLINE

_WARM = "import torch\n@torch.compile\ndef f(x): return x + 1\nf(torch.ones(2))\n"
_WARM_SECONDS = 250
_COMMAND = """\
import sys
sys.executable = {python!r}
from dynamo_dap.__main__ import main
sys.exit(main())
"""


def need_inductor(name: str) -> None:
    """Make sure that Inductor can compile the program ``name`` and has probed this machine, which takes long.

    Inductor compiles C++ programs to probe the processor, once per cache; all tests share one cache.
    """
    if not any(map(shutil.which, ("g++", "clang++", "c++"))):
        pytest.skip(f"{name} compiles with Inductor, and there is no C++ compiler")
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if cache is None or (marker := Path(cache) / "warm").exists():
        return
    with Path(cache, "lock").open("w") as lock:  # only one of the processes that run tests probes
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not marker.exists():
            subprocess.run([sys.executable, "-c", _WARM], check=True, timeout=_WARM_SECONDS)
            marker.touch()


def own_command(python: str | None = None) -> list[str]:
    """Return the command ``dynamo-dap`` whose ``python`` forks programs from a process that has imported torch."""
    return [sys.executable, "-c", _COMMAND.format(python=python or zygote.python()[0])]


def alone(program: str | Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end without a debugger, forked from a process that has imported torch."""
    command = [*zygote.python(), str(program), *arguments]
    options = {"check": True, "timeout": DEADLINE, **options}
    return subprocess.run(command, capture_output=True, text=True, **options)  # noqa: PLW1510  (it is an option)


def python_option(program: Path) -> list[str]:
    """Return the options that fork the program from a process that has imported torch, if the program imports torch."""
    return ["--python", *zygote.python()] if Fixture(program).imports_torch else []


class VirtualEnvironment:
    """A new environment with the packages that the debugger needs, linked from the one that runs the tests."""

    def __init__(self, folder: Path, *packages: str) -> None:
        """Link ``packages``, which are importable names."""
        venv.create(folder, with_pip=False)
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.site_packages = next(folder.glob("lib/python*/site-packages"))
        for name in packages:
            found = importlib.import_module(name).__file__
            assert found is not None, f"{name} is not a package with a file"
            source = Path(found)
            source = source.parent if source.name == "__init__.py" else source
            (self.site_packages / source.name).symlink_to(source)

    def add_all_packages(self) -> None:
        """Let the environment also import the packages of the tests' environment, after its own."""
        shared = Path(importlib.import_module("msgspec").__file__ or "").parents[1]
        (self.site_packages / "shared.pth").write_text(f"{shared}\n", encoding="utf-8")

    def add_package(self, name: str, version: str, text: str) -> None:
        """Install a package of one module, in the form in which pip installs it."""
        package, information = self.site_packages / name, self.site_packages / f"{name}-{version}.dist-info"
        package.mkdir()
        (package / "__init__.py").write_text(text, encoding="utf-8")
        information.mkdir()
        (information / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8"
        )
