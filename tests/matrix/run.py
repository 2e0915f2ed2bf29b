"""Run the tests of the debuggee on every other Python that is installed, and on other versions of torch.

``make test-matrix`` takes all combinations, ``make test-matrix TORCH=2.15.0`` one torch that is new; ``--versions``
prints the table of the README: what each lacks of what the debugger needs, and which feature is therefore off.

Makes an environment per Python in ``.matrix/`` with ``pip install torch`` (once; ``make clean`` removes them). Where
the machine has no NVIDIA GPU and pip's torch is the CUDA build, the gigabytes of CUDA packages are left out, and
substitutes for the missing libraries let torch be imported on the CPU (``stand_in_libraries``); ``--with-cuda``
installs everything.

Needs nothing but the standard library. Exits with 0 when the tests passed on every Python that was found.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".matrix"
_FOLDERS = "calls code_analysis compile_time eager end_to_end kernels records run_time starts wrapping"
TESTS = [f"tests/{folder}" for folder in _FOLDERS.split()]
"""Those of what runs in the debugged program."""

_TRIED = "tests/end_to_end/test_what_if.py::test_another_constant_takes_another_branch[2]"
"""Stops in the replay of a cached call, and traces it with a change: names that are there say nothing of that."""

_CUDA_PACKAGES = ("nvidia-", "cuda-", "triton")


@dataclass(frozen=True)
class Combination:
    """A Python and the torch to try on it."""

    python: str
    torch: str


COMBINATIONS = (
    Combination("3.10", "torch"),
    Combination("3.11", "torch==2.12.1"),
    Combination("3.12", "torch"),
    Combination("3.12", "torch==2.14.1"),
    Combination("3.13", "torch"),
    Combination("3.14", "torch"),
    Combination("3.15", "torch"),
)
"""The newest torch that each Python besides the reference can have, the oldest torch, and the last but one."""
NEWEST_PYTHON = "3.13"
"""For a torch that is new: each has wheels for it."""

_NO_PINNED_TRITON = ("3.15",)
"""Pythons for which the Triton that ``pyproject.toml`` asks for has no wheel: they get the newest."""

_REQUIREMENTS = """
import sys
from importlib.metadata import requires
from packaging.requirements import Requirement
_, package, extra = sys.argv
for one in map(Requirement, requires(package)):
    if one.marker is None or any(one.marker.evaluate({"extra": each}) for each in ("", extra)):
        print(f"{one.name}{one.specifier}")
"""

PROBE = """
import importlib, json, pkgutil, platform
import torch._dynamo
from dynamo_dap import debuggee
from dynamo_dap.debuggee.torch_api import features
for module in pkgutil.walk_packages(debuggee.__path__, debuggee.__name__ + "."):
    importlib.import_module(module.name)
needs = features.needs()
count = len({name for users in needs.values() for name in users})
print(json.dumps([platform.python_version(), torch.__version__, count, len(needs), features.problems()]))
"""


class Environment:
    """A virtual environment of the matrix."""

    def __init__(self, combination: Combination) -> None:
        self.combination = combination
        name = f"python{combination.python}-{combination.torch.replace('==', '-')}"
        self.folder = FOLDER / name
        self.python = self.folder / "bin" / "python"
        self._ready = self.folder / ".ready"

    def prepare(self, interpreter: Path, *, with_cuda: bool) -> None:
        """Make the environment unless it is there and as new as ``pyproject.toml``."""
        if self._ready.exists() and self._ready.stat().st_mtime > (ROOT / "pyproject.toml").stat().st_mtime:
            return
        print(f"making {self.folder.relative_to(ROOT)}", flush=True)
        if not self.python.exists():
            # Some distributions package pip apart from Python: that of this process installs into the environment.
            subprocess.run([interpreter, "-m", "venv", "--clear", "--without-pip", self.folder], check=True)
        if with_cuda:
            self._pip(self.combination.torch)
        else:
            self._install_torch_without_cuda()
        self._pip("packaging")
        self._pip("--no-deps", "--editable", str(ROOT))
        self._pip(*self._requirements("dynamo-dap", "dev"))
        self._check_torch()
        self._ready.touch()

    def test(self, arguments: list[str]) -> int:
        """Run the tests; return pytest's exit code."""
        command = [str(self.python), "-m", "pytest", *(arguments or ["-n", "2", *TESTS])]
        return subprocess.run(command, cwd=ROOT, check=False, stdout=sys.stderr).returncode

    def version_row(self) -> str:
        """A row of the table of versions."""
        answer = subprocess.run([self.python, "-c", PROBE], cwd=ROOT, check=True, capture_output=True, text=True)
        python, torch, features, names, problems = json.loads(answer.stdout.splitlines()[-1])
        off = "<br>".join(problems) or "nothing"
        tried = "works" if self.test(["-n", "0", "-q", _TRIED]) == 0 else "FAILED"
        count = f"{features - len(problems)} of {features}"
        return f"| {python} | {torch.partition('+')[0]} | {tried} | {count} | {names} | {off} |"

    def _pip(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "--quiet", *arguments]
        subprocess.run(command, check=True)

    def _install_torch_without_cuda(self) -> None:
        self._pip("--no-deps", self.combination.torch)
        self._pip("packaging")
        self._pip(*(one for one in self._requirements("torch", "") if not one.startswith(_CUDA_PACKAGES)))

    def _requirements(self, package: str, extra: str) -> list[str]:
        """Return what an installed package needs on this Python."""
        command = [str(self.python), "-c", _REQUIREMENTS, package, extra]
        needs = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        if self.combination.python in _NO_PINNED_TRITON:
            needs = ["triton" if one.startswith("triton") else one for one in needs]
        return needs

    def _check_torch(self) -> None:
        if not self._import_torch().returncode:
            return
        libraries = next(self.folder.glob("lib/python*/site-packages/torch/lib"))
        subprocess.run([self.python, Path(__file__).with_name("stand_in_libraries.py"), libraries], check=True)
        failed = self._import_torch()
        if failed.returncode:
            raise SystemExit(f"torch cannot be imported in {self.folder}:\n{failed.stderr}")

    def _import_torch(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.python, "-c", "import torch"], capture_output=True, text=True, check=False)


def find_interpreter(version: str) -> Path | None:
    """An interpreter of that version: on the PATH, or one of pyenv's."""
    candidates = [found] if (found := shutil.which(f"python{version}")) else []
    if pyenv := shutil.which("pyenv"):
        root = Path(subprocess.run([pyenv, "root"], check=True, capture_output=True, text=True).stdout.strip())
        candidates += [str(path) for path in sorted(root.glob(f"versions/{version}.*/bin/python"), reverse=True)]
    return next((path for one in candidates if (path := _real_interpreter(one, version))), None)


def _real_interpreter(command: str, version: str) -> Path | None:
    """The executable behind ``command``, which may be a shim that runs nothing."""
    program = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"
    answer = subprocess.run([command, "-c", program], capture_output=True, text=True, check=False).stdout.split()
    return Path(answer[1]) if answer[:1] == [version] else None


def has_nvidia_gpu() -> bool:
    """Whether this machine has a GPU that the CUDA packages are for."""
    return Path("/proc/driver/nvidia").exists() or shutil.which("nvidia-smi") is not None


def chosen(python: str | None, torch: str) -> list[Combination]:
    """Return the combinations for the options ``--only`` and ``--torch``."""
    if torch:
        # As `make setup` takes it, "torch==2.15.0", or the version alone.
        return [Combination(python or NEWEST_PYTHON, torch if torch.startswith("torch") else f"torch=={torch}")]
    return [one for one in COMBINATIONS if python in (None, one.python)]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--only", metavar="VERSION", help="one Python, for instance 3.12")
    made.add_argument("--with-cuda", action="store_true", help="install the CUDA packages also without a GPU")
    made.add_argument("--prepare", action="store_true", help="make the environments and run nothing")
    made.add_argument("--torch", metavar="VERSION", default="", help="one torch, for instance 2.15.0, on one Python")
    made.add_argument("--versions", action="store_true", help="print the table of versions and run nothing")
    made.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    return made


def main() -> int:
    """Prepare the environments and run the tests in each."""
    options = parser().parse_args()
    os.chdir(ROOT)
    outcomes: dict[str, str] = {}
    rows: list[str] = []
    for combination in chosen(options.only, options.torch):
        name = f"Python {combination.python}, {combination.torch}"
        interpreter = find_interpreter(combination.python)
        if interpreter is None:
            outcomes[name] = f"not run: no python{combination.python} on this machine"
            continue
        environment = Environment(combination)
        environment.prepare(interpreter, with_cuda=options.with_cuda or has_nvidia_gpu())
        if options.versions:
            rows.append(environment.version_row())
        elif not options.prepare:
            outcomes[name] = "passed" if environment.test(options.pytest) == 0 else "FAILED"
    if rows:
        print(
            "| Python | torch | stop, replay and what-if | features that work | names looked up | what is off |\n"
            "| --- | --- | --- | --- | --- | --- |"
        )
        print(*rows, sep="\n")
    for name, outcome in outcomes.items():
        print(f"{name}: {outcome}")
    return int("FAILED" in outcomes.values())


if __name__ == "__main__":
    sys.exit(main())
