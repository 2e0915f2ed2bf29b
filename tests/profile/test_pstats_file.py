"""Sums of a profile as pstats has them: recursion is counted once, and callers are reported."""

from __future__ import annotations

import io
import marshal

import pytest

from dynamo_dap.profile.model import VERSION, Frame, Node, Profile, Track
from dynamo_dap.profile.pstats_file import pstats_file


def test_recursion_counts_once_in_total_times() -> None:
    frames = [Frame("main", "function", "/p.py", 1), Frame("f", "function", "/p.py", 5)]
    nodes = [Node(0, -1, own=1_000_000_000, calls=1), Node(1, 0, own=2_000_000_000, calls=2)]
    nodes.append(Node(1, 1, own=4_000_000_000, calls=3))
    track = Track("MainThread", is_main=True, began=0, ended=10, nodes=nodes)
    stats = marshal.load(io.BytesIO(pstats_file(Profile(VERSION, ["p.py"], frames, [track]))))
    main, function = ("/p.py", 1, "main"), ("/p.py", 5, "f")
    assert stats[main][:4] == (1, 1, 1.0, pytest.approx(7.0))
    primitive, calls, own, total, callers = stats[function]
    assert (primitive, calls, own, total) == (2, 5, 6.0, pytest.approx(6.0))
    assert callers == {main: (2, 2, 2.0, 6.0), function: (3, 0, 4.0, 0.0)}
