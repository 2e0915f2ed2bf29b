"""Runs the tests that need a GPU and writes what they gave: ``make test-gpu``.

``--large`` measures a Llama of 1 B parameters as well; ``--rehearse`` runs on the CPU what can run there, to test the
tests. Other arguments are pytest's. The result is a page in Markdown with card, versions, date, each test and the table
of ratios, to be copied into ``docs/``. Without a GPU the command says so, and succeeds.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import os
import platform
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "tests" / "output" / "gpu.md"


@dataclass
class Outcomes:
    """A plugin of pytest that notes the outcome of each test."""

    rows: dict[str, tuple[str, float, str]] = field(default_factory=dict)
    """Outcome, seconds and the reason why it was skipped, by test."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the test's own outcome, or that of its fixtures where they failed or skipped it."""
        if report.when == "call" or (report.when == "setup" and not report.passed) or report.failed:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
            self.rows[report.nodeid] = (report.outcome, report.duration, reason.removeprefix("Skipped: "))

    def count(self, outcome: str) -> int:
        """How many tests had ``outcome``."""
        return sum(row[0] == outcome for row in self.rows.values())


def main() -> int:
    """Run the tests; return pytest's exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULT, help="the page that is written")
    parser.add_argument("--large", action="store_true", help="measure a Llama of 1 B parameters as well")
    parser.add_argument("--rehearse", action="store_true", help="without a GPU: run on the CPU what can run there")
    options, others = parser.parse_known_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    if options.rehearse:
        os.environ["DYNAMO_DAP_REHEARSE_GPU"] = "1"
    from tests.gpu import needs

    is_rehearsed = options.rehearse and not needs.CARDS
    outcomes = Outcomes()
    # One test at a time: they share the card.
    status = pytest.main(["-n", "0", "-q", "tests/gpu", *others], plugins=[outcomes])
    if not needs.CARDS and not is_rehearsed:
        # With another status a test failed, or pytest could not run them.
        print(f"no GPU: {outcomes.count('skipped')} tests skipped")  # noqa: T201 - the user of a terminal reads it
        return int(status)
    ratios: list[str] = []
    if options.large:
        from tests.gpu import large

        measured = large.measure("cuda" if needs.CARDS else "cpu", is_small=is_rehearsed)
        ratios = large.as_table(measured, is_small=is_rehearsed)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(page(outcomes, ratios), encoding="utf-8")
    print(f"written to {options.output}")  # noqa: T201 - the user of a terminal reads it
    return int(status)


def page(outcomes: Outcomes, ratios: list[str]) -> str:
    """Return the result as a page in Markdown."""
    import torch

    cards = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())] or ["none: a rehearsal"]
    facts = {
        "date": dt.datetime.now(tz=dt.timezone.utc).date().isoformat(),
        "card": ", ".join(cards),
        "torch": torch.__version__,
        "CUDA": torch.version.cuda or "none",
        "Python": platform.python_version(),
        "Triton": _version_of("triton"),
    }
    counts = ", ".join(f"{outcomes.count(name)} {name}" for name in ("passed", "failed", "skipped"))
    rows = [
        f"| `{name.rpartition('/')[2]}` | {outcome}{f': {reason}' if reason else ''} | {seconds:.1f} s |"
        for name, (outcome, seconds, reason) in outcomes.rows.items()
    ]
    lines = [
        "# Tests on a GPU",
        "",
        *(f"- {name}: {text}" for name, text in facts.items()),
        f"- tests: {counts}",
        "",
        "| test | outcome | time |",
        "| --- | --- | --- |",
        *rows,
        *(["", *ratios] if ratios else []),
    ]
    return "\n".join(lines) + "\n"


def _version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


if __name__ == "__main__":
    sys.exit(main())
