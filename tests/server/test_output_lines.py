"""An incomplete line of the program waits for its end, but a prompt is shown, and nothing is held back at a stop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial

import pytest

from dynamo_dap.server.launching import processes


async def _until(is_true: Callable[[], bool]) -> None:
    """Wait; the time limit of the test counts."""
    while not is_true():
        await asyncio.sleep(0.001)


def _has_read(pump: processes.OutputPump, text: str) -> bool:
    return pump.recent == text


def _pieces(monkeypatch: pytest.MonkeyPatch, seconds: float, *texts: str, flush: bool = False) -> list[str]:
    """Write texts to a pipe, each after the one before was read; return what is passed on."""
    monkeypatch.setattr(processes, "_LINE_SECONDS", seconds)
    pieces: list[str] = []

    async def run() -> None:
        reading, writing = os.pipe()
        pump = processes.OutputPump(reading, pieces.append)
        written = ""
        for text in texts:
            os.write(writing, text.encode())
            written += text
            await _until(partial(_has_read, pump, written))
        if flush:
            pump.flush()
        elif seconds == 0:
            await _until(lambda: bool(pieces))
        pump.close()
        os.close(writing)

    asyncio.run(run())
    return pieces


def test_the_pieces_of_a_line_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _pieces(monkeypatch, 600.0, "first\nargu", "ments", " [1]\n") == ["first\n", "arguments [1]\n"]


def test_a_line_that_does_not_end_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _pieces(monkeypatch, 0.0, "name: ") == ["name: "]


def test_nothing_is_held_back_before_a_later_message(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _pieces(monkeypatch, 600.0, "a\nb", flush=True) == ["a\n", "b"]


def test_nothing_is_lost_when_the_reading_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _pieces(monkeypatch, 600.0, "a\nb") == ["a\n", "b"]
