"""Keeps what is known of each failed test in one folder, and names the failed tests in the last lines of a run.

Under xdist each worker writes the folders of its own tests; the controller empties ``FOLDER`` at the start of a run and
writes the last lines.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.client import Session

FOLDER = Path(__file__).parent / "output" / "failures"
_LISTED = 15
"""Failed tests that the last lines name; the folder has all of them."""
_REASON_LENGTH = 110

Report = pytest.TestReport | pytest.CollectReport


def is_controller(config: pytest.Config) -> bool:
    """Return whether this process reports the run, as opposed to a worker of xdist."""
    return not hasattr(config, "workerinput")


def forget_earlier_runs() -> None:
    """Remove the folders of the run before."""
    shutil.rmtree(FOLDER, ignore_errors=True)


def keep(report: Report, sessions: Sequence[Session] = ()) -> Path:
    """Write the report of a failed test with its sessions' transcripts and logs; return the folder."""
    folder = FOLDER / _folder_name(report.nodeid)
    folder.mkdir(parents=True, exist_ok=True)
    parts = [report.longreprtext, *(f"---- {title} ----\n{text}" for title, text in report.sections)]
    (folder / f"{report.when or 'collect'}.txt").write_text("\n\n".join(parts), encoding="utf-8")
    for number, session in enumerate(sessions, start=1):
        (folder / f"session-{number}.transcript.txt").write_text(session.timeline.transcript(), encoding="utf-8")
        (folder / f"session-{number}.log").write_text(session.logs(), encoding="utf-8")
    return folder


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Keep why a file has no tests: it cannot be imported."""
    if report.failed:
        keep(report)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """Say how a worker of xdist died: a fault has printed its stack, a signal from outside prints nothing."""
    process = getattr(getattr(node.gateway, "_io", None), "popen", None)
    if error is not None and process is not None:
        try:
            status = process.wait(5)
        except subprocess.TimeoutExpired:
            status = "none, for it still runs"
        node.config.get_terminal_writer().line(f"exit status of {node.gateway.id}, process {process.pid}: {status}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Name the failed tests after everything else, one line each: only the end of a long log may be kept."""
    yield
    failed = [
        report
        for outcome in ("failed", "error")
        for report in terminalreporter.getreports(outcome)
        if isinstance(report, (pytest.TestReport, pytest.CollectReport))
    ]
    if not failed:
        return
    terminalreporter.section("what failed")
    for report in failed[:_LISTED]:
        terminalreporter.line(f"FAILED {report.nodeid} - {_reason(report)}")
    if len(failed) > _LISTED:
        terminalreporter.line(f"... and {len(failed) - _LISTED} more")
    terminalreporter.line(f"KEPT transcripts and logs of what failed: {FOLDER}")


def _folder_name(nodeid: str) -> str:
    return re.sub(r"[^\w.\-]+", "_", nodeid.removeprefix("tests/"))[:150]


def _reason(report: Report) -> str:
    """Return the first line of what went wrong."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext.strip().rpartition("\n")[2]
    return text.strip().partition("\n")[0][:_REASON_LENGTH]
