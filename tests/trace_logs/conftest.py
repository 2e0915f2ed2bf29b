"""Trace logs that the torch of this environment writes, made once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.timeline import DEADLINE

PROGRAMS = (
    "breaks",
    "recompiles",
    "backend_fails",
    "full_graph",
    "restarts",
    "dynamic",
    "unbacked",
    "training",
    "limit",
)
PROGRAM = Path(__file__).parents[2] / "fixtures" / "traced" / "ten_programs.py"


def write_logs(folder: Path, *programs: str) -> Path:
    """Run programs of ``ten_programs.py``; each leaves a folder of its name."""
    subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), *programs],
        env={**os.environ, "TORCH_TRACE": str(folder / "first"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        check=True,
        timeout=DEADLINE * 4,
    )
    return folder


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the trace logs of nine programs; that of kernels takes long."""
    return write_logs(tmp_path_factory.mktemp("logs"), *PROGRAMS)
