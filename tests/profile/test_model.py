"""Times of functions and lines, from the tree of a profile."""

from __future__ import annotations

from dynamo_dap.profile.model import FUNCTION, PROGRAM, VERSION, Frame, Node, Profile, Track, function_times


def test_a_line_takes_no_less_with_its_calls_than_itself() -> None:
    """A line that only inner calls of a recursive function reach, as that of the base case."""
    frames = [Frame("program", PROGRAM), Frame("f", FUNCTION, "/p.py", 5), Frame("g", FUNCTION, "/p.py", 15)]
    nodes = [
        Node(0, -1),
        Node(1, 0, calls=1, own=3, lines={6: 1, 7: 2}),
        Node(2, 1, call_line=7, calls=1, own=4, lines={16: 4}),
        Node(1, 2, call_line=16, calls=1, own=8, lines={7: 8}),
        Node(1, 3, call_line=7, calls=1, own=48, lines={6: 16, 8: 32}),
    ]
    track = Track("MainThread", is_main=True, began=0, ended=100, nodes=nodes)
    f, g = function_times(Profile(VERSION, ["p.py"], frames, [track]))
    assert (f.own, f.total, f.calls) == (59, 63, 3)
    assert f.lines == {6: (17, 17), 7: (10, 62), 8: (32, 32)}
    assert g.lines == {16: (4, 60)}
