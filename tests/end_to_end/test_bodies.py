"""Time travel through the bodies of higher-order operators (``torch.cond``, checkpointing), also after their end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client import Fixture, Session

PROGRAM = """
import torch
from torch.utils.checkpoint import checkpoint

def layer(x, weight):
    grown = x @ weight
    kept = grown.relu()
    return kept + 1  #@layer

def positive(a, b):
    doubled = a * 2
    return doubled + b  #@positive

def negative(a, b):
    less = a - b
    return less.cos()  #@negative

@torch.compile(backend="eager")
def function(x, weight):
    hidden = checkpoint(layer, x, weight, use_reentrant=False)
    chosen = torch.cond(hidden.sum() > 0, positive, negative, (hidden, x))
    return chosen.sum()  #@end

for number in range(4):
    print(function(torch.ones(2, 2) * (number + 1), torch.eye(2)).item())
"""
EXPRESSIONS = {"layer": "kept.sum().item()", "positive": "doubled.sum().item()", "negative": "less.sum().item()"}


@pytest.mark.parametrize("call", [1, 2, 4])
def test_back_into_bodies_that_are_over(session: Session, tmp_path: Path, call: int) -> None:
    """In a compiled call, in a cached call that is replayed, and in one with a saved trace."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    fixture = Fixture(path)
    session.launch(fixture, *EXPRESSIONS, "end")
    stop = session.wait_for_stop("breakpoint", at="layer")
    for _ in range(call - 1):
        for place in ("positive", "negative", "end", "layer"):
            stop = session.continue_to_stop(at=place)
    seen: dict[str, tuple[str, dict[str, str]]] = {}
    for place, expression in EXPRESSIONS.items():
        stop = stop if place == "layer" else session.continue_to_stop(at=place)
        seen[place] = stop.frame.evaluate(expression).text, stop.frame["Graph"].texts()
    # The input is 4 ones times the call's number; the body adds one and doubles.
    assert [each for each, _ in seen.values()] == [str(4.0 * call), str(8.0 * (call + 1)), "4.0"]
    session.continue_to_stop(at="end")
    for place, expression in reversed(EXPRESSIONS.items()):
        session.resume("reverseContinue")
        stop = session.wait_for_stop("breakpoint", at=place)
        assert (stop.frame.evaluate(expression).text, stop.frame["Graph"].texts()) == seen[place], place
    for place, expression in list(EXPRESSIONS.items())[1:]:
        stop = session.continue_to_stop(at=place)
        assert stop.frame.evaluate(expression).text == seen[place][0], place
    session.continue_to_stop(at="end")
    session.set_breakpoints(fixture)
    assert session.run_to_end() == 0
    assert session.output("stdout") == "".join(f"{4.0 * (2 * (number + 1) + number)}\n" for number in range(1, 5))


def test_a_condition_in_a_body_holds_in_later_calls(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    fixture = Fixture(path)
    with session.launching(fixture):
        line = fixture.line("layer")
        breakpoints = [{"line": line, "condition": "kept.sum().item() > 9"}]
        session.request("setBreakpoints", {"source": {"path": str(path)}, "breakpoints": breakpoints})
    stop = session.wait_for_stop("breakpoint", at="layer")
    assert stop.frame.evaluate("kept.sum().item()").text == "12.0"
    assert session.continue_to_stop(at="layer").frame.evaluate("kept.sum().item()").text == "16.0"
    assert session.run_to_end() == 0
