"""Graph breaks: Dynamo starts its analysis again, and what follows is a resume function."""

from __future__ import annotations

from tests.client import Session


def test_a_breakpoint_is_hit_once_and_the_rest_is_a_frame_of_its_own(session: Session) -> None:
    session.launch("graph_break", "in_loop", "after_break")
    seen = []
    for _ in range(3):
        stop = session.wait_for_stop("breakpoint", at="in_loop")
        seen.append(stop.frame["Locals"]["index"].text)
        session.resume()
    assert seen == ["0", "1", "2"]
    stop = session.wait_for_stop("breakpoint", at="after_break")
    assert stop.frame.name.startswith("train_step (resumed at line ")
    assert stop.frame["Locals"]["scaled"].text.startswith("Tensor f32[2, 3]")
    assert not [name for name in stop.frame["Locals"].children if name.startswith("___")]
    assert [frame.name for frame in stop.frames][-2:] == ["main", "<module>"]
    assert "torch_dynamo_resume" not in " ".join(frame.name for frame in stop.frames)
    assert session.run_to_end() == 0
    assert session.output("stdout") == "sum 42.0\n"


def test_a_step_over_a_graph_break_says_which_attempt_it_is(session: Session) -> None:
    session.launch("graph_break", "before_break")
    stop = session.wait_for_stop("breakpoint", at="before_break")
    assert "attempt" not in stop.description
    session.next(at="break")
    stop = session.next()
    if stop.marker == "break":
        assert "attempt 2" in stop.description
        stop = session.next()
    assert stop.marker == "after_break"
    assert stop.frame.name.startswith("train_step (resumed at line ")
    session.next(at="return")
    assert session.run_to_end() == 0


def test_pause_on_restart_hits_again(session: Session) -> None:
    session.launch("graph_break", "in_loop", pauseOnRestart=True)
    attempts = []
    for _ in range(6):
        stop = session.wait_for_stop("breakpoint", at="in_loop")
        attempts.append("attempt 2" in stop.description)
        session.resume()
    assert attempts == [False] * 3 + [True] * 3
    assert session.wait_for_exit() == 0


def test_recompiles_are_new_compiles(session: Session) -> None:
    """Each recompile traces again: the breakpoint is hit with another compile id; in a cached call with that one's."""
    session.launch("recompiles", "mode")
    identities = []
    modes = []
    for _ in range(5):
        stop = session.wait_for_stop("breakpoint", at="mode")
        identities.append(stop.frame["Compile"].texts())
        modes.append(stop.frame["Locals"]["mode"].text)
        session.resume()
    assert session.wait_for_stop("breakpoint", at="mode").description == "Call 6 of select [0/0]"
    assert session.run_to_end() == 0
    assert [mode.split()[0] for mode in modes] == ["'double'", "5", "'other'", "'other'", "'double'"]
    ids = [next(text for name, text in one.items() if "id" in name.lower()) for one in identities]
    assert len(set(ids)) == 5, ids
