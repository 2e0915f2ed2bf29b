"""Pausing a program that runs ordinary Python."""

from __future__ import annotations

from tests.client import Session


def test_a_pause_is_shown_where_it_is(session: Session) -> None:
    session.launch("endings/runs_on")
    session.wait_for_output("running")
    session.client.pause(session.client.threads()[0].id)
    stop = session.wait_for_stop("pause")
    assert "preserveFocusHint" not in stop.body, "an IDE selects the frame, which the user has asked for"
    assert stop.frame.name == "<module>"
    session.resume()
    session.request("terminate")
    session.timeline.expect_event("terminated")
