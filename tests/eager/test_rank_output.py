"""The output of ranks: together with prefixes, in the console of each rank's session, or without prefixes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.client import Session
from tests.conftest import NewSession
from tests.eager.test_child_processes import Family
from tests.eager.test_ranks import name_of_next

PRINTING = """
import os, sys
rank = os.environ["RANK"]
for turn in range(20):
    print("one", rank, "of\\nlines", rank)
print("half", rank, end="", flush=True)
print(" whole")
sys.stderr.write(f"error {rank}\\n")
sys.stdout.buffer.write(f"bytes {rank}\\n".encode())
sys.stdout.flush()
if "fork" in sys.argv:
    if os.fork() == 0:
        print("forked", rank)
        sys.exit()
    os.wait()
"""


def lines_of(rank: int) -> list[str]:
    return [*[f"one {rank} of", f"lines {rank}"] * 20, f"half {rank} whole", f"bytes {rank}"]


@pytest.fixture
def family(new_session: NewSession) -> Family:
    return Family(new_session)


def launch(family: Family, tmp_path: Path, *arguments: str, **options: Any) -> None:
    program = tmp_path / "program.py"
    program.write_text(PRINTING)
    options_of_launcher = [one for one in arguments if one.startswith("--")]
    rest = [one for one in arguments if not one.startswith("--")]
    args = ["--standalone", "--nproc-per-node=2", *options_of_launcher, str(program), *rest]
    what = {"module": "torch.distributed.run", "python": [sys.executable], "args": args, **options}
    with family.parent.configuring("launch", what):
        pass


def printed(session: Session, category: str, of: int) -> list[str]:
    """Return the lines of one rank."""
    return [line for line in session.output(category).splitlines() if f" {of}" in line.removeprefix(f"[rank {of}]")]


@pytest.mark.parametrize("console", ["internalConsole", "integratedTerminal"])
def test_each_line_says_which_rank_printed_it(family: Family, tmp_path: Path, console: str) -> None:
    """This also works in a terminal, and for a rank that is not debugged."""
    launch(family, tmp_path, *(["fork"] if console == "internalConsole" else []), ranks=[0], console=console)
    with family.child():
        pass
    if console == "internalConsole":
        with family.child():  # the process that rank 0 forks
            pass
    assert family.parent.wait_for_exit() == 0
    for rank in range(2):
        wanted = [f"[rank {rank}] {line}" for line in lines_of(rank)]
        if console == "internalConsole":
            assert printed(family.parent, "stdout", rank) == [*wanted, f"[rank {rank}] forked {rank}"]
            assert f"[rank {rank}] error {rank}\n" in family.parent.output("stderr")
        else:
            text = family.parent.terminal_output.splitlines()
            assert [line for line in wanted if line not in text] == []


@pytest.mark.parametrize("how", ["own", "terminal"])
def test_each_rank_prints_in_its_own_session(family: Family, tmp_path: Path, how: str) -> None:
    launch(family, tmp_path, rankOutput=how)
    ranks: dict[str, Session] = {}
    for _ in range(2):
        name = name_of_next(family)
        with family.child() as child:
            pass
        ranks[name] = child
    assert family.parent.wait_for_exit() == 0
    for rank in range(2):
        session = ranks[f"rank {rank} (local {rank})"]
        session.timeline.expect_event("terminated")
        assert printed(session, "stdout", rank) == lines_of(rank)
        assert printed(session, "stderr", rank) == [f"error {rank}"]
    assert "one" not in family.parent.output("stdout")


@pytest.mark.parametrize("way", ["plain", "redirects"])
def test_what_ranks_print_is_left_alone(family: Family, tmp_path: Path, way: str) -> None:
    """The user has chosen this, or torchrun writes the output to files."""
    logs = tmp_path / "logs"
    if way == "plain":
        launch(family, tmp_path, rankOutput="plain", ranks=[])
    else:
        launch(family, tmp_path, "--redirects=3", f"--log-dir={logs}", ranks=[])
    assert family.parent.wait_for_exit() == 0
    if way == "plain":
        assert "[rank" not in family.parent.output()
        assert "half 0 whole\n" in family.parent.output("stdout")
    else:
        for rank in range(2):
            (file,) = logs.glob(f"*/*/{rank}/stdout.log")
            assert file.read_text().splitlines() == lines_of(rank)
