"""Sizes of memory in ``compare`` and ``mismatch``, and real values of a trace that releases memory."""

from __future__ import annotations

from pathlib import Path

from tests.client import Fixture, Session
from tests.client.environments import alone
from tests.end_to_end.test_mismatch import launch, reported

RELEASED = """
import torch

def kept(graph, inputs):
    for node in [each for each in graph.graph.nodes if "resize_storage" in str(each.target)]:
        graph.graph.erase_node(node)
    graph.recompile()
    return graph

@torch.compile(backend=kept)
def gathered(x):
    y = x * 2
    x.untyped_storage().resize_(0)  # @wrong
    return y.sum()

def sharded(x):
    y = x * 2
    x.untyped_storage().resize_(0)
    z = y + 1  # @after
    return z.sum()

for _ in range(2):
    x = torch.ones(4)
    print(gathered(x).item(), x.untyped_storage().nbytes())
    print(torch.compile(sharded, backend="eager")(x).item(), x.untyped_storage().nbytes())
"""


def released(folder: Path) -> Fixture:
    path = folder / "sharded.py"
    path.write_text(RELEASED, encoding="utf-8")
    return Fixture(path)


def test_a_stop_does_not_release_memory(session: Session, tmp_path: Path) -> None:
    """Real values come from a run of the traced operations, which must not release the program's memory."""
    program = released(tmp_path)
    with session.launching(program):
        session.set_breakpoints(program, "after")
    for _ in range(2):
        stop = session.wait_for_stop("breakpoint", at="after")
        assert stop.frame.evaluate("y.tolist()").text == "[2.0, 2.0, 2.0, 2.0]"
        session.next()
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == alone(program.path).stdout


def test_mismatch_stops_where_memory_is_not_released(session: Session, tmp_path: Path) -> None:
    program = released(tmp_path)
    launch(session, program)
    stop = session.wait_for_stop("exception", at="wrong")
    exception_id, (what, _, cause) = reported(session, stop)
    assert exception_id.startswith("Mismatch: The memory of x has")
    assert what.endswith("in eager 0 bytes.")
    assert cause.startswith("Cause: the backend (kept)")
    session.resume()
    session.wait_for_stop("exception", at="wrong")  # in the second call
    session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == alone(program.path).stdout
