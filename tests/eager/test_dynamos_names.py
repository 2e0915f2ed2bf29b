"""debugpy and the agent show Dynamo's names separately from the user's, with the default options."""

from __future__ import annotations

import re
from typing import Any

from tests.client import Fixture, Session
from tests.client.session import Frame, Stop, Tree

PROGRAM = Fixture("eager/resumed")
DYNAMOS = re.compile(r"___|__nested_|__(compiled_fn|resume_at|builtins_dict|import|is_tracing)_|tmp_\d|graph_out_\d")
GROUP = "of Dynamo"


def launch(session: Session, *places: str, **options: Any) -> None:
    configuration = {"program": str(PROGRAM.path), **options}
    with session.configuring("launch", configuration):
        session.set_breakpoints(PROGRAM, *places)


def check(variables: Tree) -> list[str]:
    """Check that Dynamo's names are only in their group; return the user's names."""
    names = [name for name in variables.children if name != GROUP]
    assert not [name for name in names if DYNAMOS.match(name)], names
    if GROUP in variables:
        assert variables[GROUP].children
        assert not [name for name in variables[GROUP].children if re.fullmatch(r"[a-z]+", name)]
    return names


def users_frames(stop: Stop) -> list[Frame]:
    return [frame for frame in stop.frames if frame.path == PROGRAM.path]


def test_a_resume_function_is_shown_in_one_form(session: Session) -> None:
    """Show the same frames in its trace and, in the second call, as ordinary Python.

    The trace also shows a local from before the break.
    """
    launch(session, "inner_rest", "outer_rest")
    seen: list[tuple[str | None, str, str, tuple[str, ...]]] = []
    while session.timeline.expect_first("stopped", "terminated")[0] == "stopped":
        body = [event["body"] for event in session.timeline.events if event["event"] == "stopped"][-1]
        stop = Stop(session, body)
        frame = users_frames(stop)[0]
        by = "agent" if stop.description else "debugpy"
        seen.append((frame.marker, by, frame.name, tuple(sorted(check(frame["Locals"])))))
        for other in users_frames(stop):
            assert "torch_dynamo_resume" not in other.name
            if "Globals" in other.scopes:
                check(other["Globals"])
        session.resume(thread_id=stop.thread_id)
    resumed = f"inner (resumed at line {PROGRAM.line('inner_rest') - 1})"
    inner = [each[1:] for each in seen if each[0] == "inner_rest"]
    assert inner == [("agent", resumed, ("first", "x")), ("debugpy", resumed, ("first",))], seen
    outer = f"outer (resumed at line {PROGRAM.line('outer_rest') - 1})"
    assert {name for marker, _, name, _ in seen if marker == "outer_rest"} == {outer}


def test_dynamos_globals_are_in_one_group_of_an_eager_frame(session: Session) -> None:
    launch(session, "late")
    stop = session.wait_for_stop("breakpoint", at="late")
    for frame in users_frames(stop):
        names = check(frame["Globals"])
        assert {"torch", "Model", "polyfilled"} <= {*names, *_below_groups(frame["Globals"])}
    group = stop.frame["Globals"][GROUP]
    assert [name for name in group.children if name.startswith("__compiled_fn_")]
    (generated,) = (frame for frame in stop.frames if frame.name == "Model.forward (generated)")
    assert set(check(generated["Locals"])) <= {"self", "x", "shift", "moved", "result"}


def _below_groups(variables: Tree) -> set[str]:
    groups = ("function variables", "class variables", "special variables")
    return {name for group in groups if group in variables for name in variables[group].children}


def test_locals_have_what_a_function_binds_or_captures(session: Session) -> None:
    launch(session, "captured", "captures")
    stop = session.wait_for_stop("breakpoint", at="captured")
    assert list(stop.frame["Locals"].children) == ["self", "x", "moved", "shift"]
    assert stop.frame["Locals"]["shift"].text == "2"
    assert set(stop.frame["Cells"].children) == {"self", "shift"}
    stop = session.continue_to_stop(at="captures")
    assert list(stop.frame["Locals"].children) == ["tensor", "self", "shift"]
    assert stop.frame["Locals"]["self"].text == "<Model module>"
    assert [frame.name for frame in stop.frames][:2] == ["Model.forward.<locals>.moved", "Model.forward"]
    assert set(stop.frames[1]["Locals"].children) == {"self", "x", "moved", "shift"}
    session.disconnect()


def test_a_step_in_passes_polyfills_by_and_enters_what_they_call(session: Session) -> None:
    """``justMyCode`` is off, so steps enter installed packages, but no polyfill, which replaces a builtin."""
    launch(session, "before_polyfill", justMyCode=False)
    session.wait_for_stop("breakpoint", at="before_polyfill")
    seen = []
    for _ in range(60):
        stop = session.step_in()
        source = stop.frame.data.source
        where = str(source and (source.path or source.name))
        assert "polyfills" not in where, stop.frames
        assert "_collections_abc" not in where, stop.frames
        for frame in stop.frames:
            if frame.path is not None and "polyfills" in str(frame.path):
                assert frame.data.presentation_hint == "subtle"
        seen.append(stop.marker)
        if stop.marker == "last":
            break
    assert {"yield", "body", "polyfill", "last"} <= set(seen)
    session.disconnect()
