"""Measures ``report`` and ``report --html`` on a trace log of 2 GB: ``python -m tests.benchmarks.large_log [GB]``."""

from __future__ import annotations

import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ARCHIVE = Path(__file__).parents[2] / "fixtures" / "traces" / "ten-programs-2.15.tar.xz"


def _write(log: Path, size: float) -> None:
    with tarfile.open(ARCHIVE) as archive:
        member = next(each for each in archive.getmembers() if each.name.startswith("breaks/") and each.isfile())
        content = archive.extractfile(member)
        assert content is not None
        text = content.read().decode()
    with log.open("w", encoding="utf-8") as file:
        for number in range(int(size / len(text)) + 1):
            # Each copy has other compiles.
            file.write(text.replace('"frame_id": ', f'"frame_id": {number + 1}'))


def main(gigabytes: float = 2.0) -> None:
    """Print seconds, and the largest size of the processes so far."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "dedicated_log_torch_trace_large.log")
        _write(log, gigabytes * 1e9)
        for options in ([], ["--html", "--no-browser"]):
            began = time.perf_counter()
            command = [sys.executable, "-m", "dynamo_dap", "report", *options, str(log)]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            size = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            print(f"report {' '.join(options)}: {time.perf_counter() - began:.1f} s, at most {size:.0f} MiB")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
