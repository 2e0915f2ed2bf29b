"""Measures which statements of the Python package the tests run, in every process: ``make coverage``.

``python -m tests.coverage.measure`` takes the arguments of pytest; without any it runs the tests of ``make test``.
``--add`` keeps what earlier runs of the same sources have found; ``--report`` runs nothing. No other tests may run in
the checkout meanwhile, and no source of the package may change.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import coverage

from tests.coverage.marks import MarkedPackage
from tests.coverage.tables import Counted, tables

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "adapter" / "dynamo_dap"
MARKS = ROOT / "build" / "coverage" / "marks"
_CORE = ["-n", "2", "--dist", "worksteal", "-m", "not long"]
_NEVER_RUN = ["if TYPE_CHECKING:", r"\.\.\.$", "@abstractmethod", "raise NotImplementedError"]
"""Statements for the type checker and abstract methods."""


def counted(executed: dict[Path, list[int]]) -> dict[str, Counted]:
    """Return the counts of each module with statements, by its path in the package."""
    measurement = coverage.Coverage(data_file=None, config_file=False)
    for pattern in _NEVER_RUN:
        measurement.exclude(pattern)
    measurement.get_data().add_lines({str(source): lines for source, lines in executed.items()})
    counts = {}
    for source in executed:
        _, statements, _, missing, _ = measurement.analysis2(str(source))
        if statements:
            name = source.relative_to(PACKAGE).as_posix()
            counts[name] = Counted(len(statements), len(statements) - len(missing))
    return counts


def main() -> int:
    """Run the tests, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", action="store_true", help="keep what earlier runs have found")
    parser.add_argument("--report", action="store_true", help="print what earlier runs have found, and run nothing")
    options, arguments = parser.parse_known_args()
    package = MarkedPackage(PACKAGE, MARKS)
    status = 0
    if not options.report:
        if not options.add:
            MARKS.unlink(missing_ok=True)
        package.begin()
        try:
            command = [sys.executable, "-m", "pytest", *(arguments or _CORE)]
            status = subprocess.run(command, cwd=ROOT, check=False).returncode
        finally:
            package.end()
    for line in tables(counted(package.executed())):
        sys.stdout.write(line + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
