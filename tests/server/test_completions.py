"""Completions in the debug console."""

from __future__ import annotations

from pathlib import Path

from tests.client import Fixture, Session

PROGRAM = """import torch


@torch.compile(backend="eager")
def scale(total):
    return total * 2  #@here


scale(torch.ones(2))
"""


def test_a_column_behind_the_text_is_its_end(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    session.launch(Fixture(program), "here")
    stop = session.wait_for_stop("breakpoint")
    frame = session.request("stackTrace", {"threadId": stop.thread_id, "levels": 1})["stackFrames"][0]["id"]
    for column in (5, 6, 2**63):
        (found,) = session.request("completions", {"text": "tota", "column": column, "frameId": frame})["targets"]
        assert (found["label"], found["start"], found["length"]) == ("total", 0, 4)
    session.resume()
    assert session.wait_for_exit() == 0
