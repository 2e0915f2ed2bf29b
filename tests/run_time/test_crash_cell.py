"""The segfault locator, which says what a process was executing when it died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from dynamo_dap.protocol.crash_cell import CellWriter, CodeDescription, read_crash
from tests.client import Session
from tests.client.timeline import DEADLINE
from tests.conftest import NewSession
from tests.run_time.pythons import CALL

ROOT = Path(__file__).resolve().parents[2]

DESCRIPTION = CodeDescription(
    name="fn (generated #0)",
    path="/somewhere/program.py",
    instructions=[f"LOAD_FAST v{number}" for number in range(20)],
    user_lines=[8 if number > 9 else None for number in range(20)],
    listing="\n".join(f"line {number}" for number in range(20)),
)


def test_what_was_written_last_is_read(tmp_path: Path) -> None:
    writer = CellWriter(str(tmp_path))
    writer.describe(3, DESCRIPTION)
    slot = writer.take_slot(77)
    assert slot is not None
    assert read_crash(str(tmp_path), os.getpid()) is None
    writer.write(slot, 3, 4)
    writer.write(slot, 3, 17)
    site = read_crash(str(tmp_path), os.getpid())
    assert site is not None
    assert str(site).startswith("in fn (generated #0) at instruction 17 LOAD_FAST v17")
    assert str(site).endswith("user line 8")
    assert (site.thread_id, site.path) == (77, "/somewhere/program.py")
    assert site.excerpt(1) == "  line 16\n> line 17\n  line 18"
    writer.clear(slot)
    assert read_crash(str(tmp_path), os.getpid()) is None


def test_the_thread_that_moved_last_is_reported(tmp_path: Path) -> None:
    writer = CellWriter(str(tmp_path))
    writer.describe(0, DESCRIPTION)
    slots = [writer.take_slot(number) for number in (1, 2, 3)]
    for slot, index in zip(slots, (5, 6, 7), strict=True):
        assert slot is not None
        writer.write(slot, 0, index)
    assert slots[1] is not None
    writer.write(slots[1], 0, 9)
    site = read_crash(str(tmp_path), os.getpid())
    assert site is not None
    assert (site.thread_id, site.index) == (2, 9)


def test_a_process_that_wrote_nothing(tmp_path: Path) -> None:
    assert read_crash(str(tmp_path), 1) is None
    assert read_crash(str(tmp_path / "no such folder"), 1) is None
    (tmp_path / "5.cell").write_bytes(b"short")
    assert read_crash(str(tmp_path), 5) is None


def test_more_threads_than_records(tmp_path: Path) -> None:
    writer = CellWriter(str(tmp_path))
    taken = [writer.take_slot(number) for number in range(1000)]
    assert taken[0] == 0
    assert taken[-1] is None
    assert writer.take_slot(0) == 0, "a thread keeps its record"


def test_it_survives_the_death_of_its_process(tmp_path: Path) -> None:
    program = f"""
    import os, signal
    from dynamo_dap.protocol.crash_cell import CellWriter, CodeDescription
    writer = CellWriter({str(tmp_path)!r})
    writer.describe(0, CodeDescription("fn", "p.py", ["CALL 1"], [3], "listing"))
    writer.write(writer.take_slot(9), 0, 0)
    os.kill(os.getpid(), signal.SIGSEGV)
    """
    died = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], env={**os.environ, "PYTHONPATH": str(ROOT / "adapter")}
    )
    assert died.wait(DEADLINE) == -signal.SIGSEGV
    site = read_crash(str(tmp_path), died.pid)
    assert site is not None
    assert str(site) == "in fn at instruction 0 CALL 1, user line 3"


def test_writing_is_safe_from_many_threads(tmp_path: Path) -> None:
    writer = CellWriter(str(tmp_path))
    writer.describe(0, DESCRIPTION)

    def work() -> None:
        slot = writer.take_slot(threading.get_native_id())
        assert slot is not None
        for index in range(500):
            writer.write(slot, 0, index % 20)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    site = read_crash(str(tmp_path), os.getpid())
    assert site is not None
    assert site.index == 499 % 20


# -- end to end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["traced", "stepped"])
def test_the_server_says_where_the_program_died(new_session: NewSession, how: str) -> None:
    session: Session = new_session()
    if how == "traced":
        session.launch("generated_crash", traceInstructions=True)
    else:
        session.launch("generated_crash", stopOnGeneratedCode=True)
        session.wait_for_stop("entry")
        session.resume("stepOut")
    assert session.wait_for_exit() == -signal.SIGSEGV
    reported = session.output("important")
    from tests.client.fixtures import Fixture

    line = Fixture("generated_crash").line("crash")
    assert f"The program died of SIGSEGV (signal {int(signal.SIGSEGV)})" in reported
    assert "in risky (generated #0) at instruction " in reported
    assert f" {CALL} 1, user line {line}." in reported
    listing = session.output("console")
    assert "> " in listing
    assert "crash(graph_out_" in next(text for text in listing.splitlines() if text.startswith("> "))


def test_nothing_is_reported_for_a_crash_elsewhere(new_session: NewSession) -> None:
    session = new_session()
    session.launch("generated_crash", traceInstructions=True, args=["--afterwards"])
    assert session.wait_for_exit() == -signal.SIGSEGV
    assert "died of SIGSEGV (signal 11)." in session.output("important")
    assert "generated" not in session.output("important")
