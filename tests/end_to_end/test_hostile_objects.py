"""Objects that raise in all that Python may ask of them cost no row but their own, in every kind of stop."""

from __future__ import annotations

from pathlib import Path

from tests.client import Session
from tests.client.session import Stop

FIXTURE = "hostile_objects"
IN_TRACE = {
    *("x", "unhashable", "plain", "attributes", "number", "text", "items", "pair", "mapping", "group", "failure"),
    "keys",
}
IN_CALLER = {
    *("x", "of_refusing", "nothing", "false_class", "unhashable_class", "refusing_class", "others", "answer"),
}


def _look(stop: Stop, function: str, names: set[str]) -> None:
    """Open each scope of a frame two levels deep."""
    frame = stop.frame_called(function)
    scopes = list(frame.scopes.values())
    shown = scopes[0].texts()
    if "class variables" in shown:  # a group that debugpy makes
        shown |= scopes[0]["class variables"].texts()
    assert names <= set(shown), shown
    for scope in scopes:
        scope.open(2)
    assert frame.evaluate("1 + 1").text == "2"
    rows = [*shown.items(), *((name, each.text) for scope in scopes for name, each in scope.children.items())]
    assert not [row for row in rows if "cannot be shown" in row[1] or ": Refused>" in row[1] or "TypeError" in row[1]]


def test_their_rows_are_there_in_every_kind_of_stop(session: Session) -> None:
    """In ordinary Python, while Dynamo traces, and in two calls that the cache serves."""
    session.launch(FIXTURE, "call", "trace", eager=True)
    for _ in range(3):
        _look(session.wait_for_stop("breakpoint", at="call"), "caller", IN_CALLER)
        session.resume()
        stop = session.wait_for_stop("breakpoint", at="trace")
        _look(stop, "traced", IN_TRACE)
        _look(stop, "caller", IN_CALLER)
        for expression in ("others[0]", "others", "nothing", "false_class", "refusing_class", "of_refusing"):
            stop.frame_called("caller").evaluate(expression).open(2)
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == "[2.0, 2.0]\n[4.0, 4.0]\n[6.0, 6.0]\n"


def test_their_rows_are_there_in_generated_code(session: Session) -> None:
    with session.launching(FIXTURE):
        session.set_breakpoints(FIXTURE, "trace", mode="run-time")
    stop = session.wait_for_stop("breakpoint")
    _look(stop, "caller", IN_CALLER)
    frame = stop.frame
    for scope in frame.scopes.values():
        scope.open(2)
    assert frame.evaluate("1 + 1").text == "2"


ENDLESS = """
class Endless:
    def __repr__(self):
        while True:
            pass

class Patient(Endless):
    def __repr__(self):
        try:
            return super().__repr__()
        except BaseException:
            return "caught"

def function():
    before, endless, patient, again, after = 1, Endless(), Patient(), Endless(), "end"
    endless.inside = 7
    return after  #@here

function()
print("over")
"""


def test_a_repr_that_never_ends_costs_its_own_row(session: Session, tmp_path: Path) -> None:
    """In ordinary Python, where debugpy calls it; the frame, steps and the other rows live on."""
    program = tmp_path / "program.py"
    program.write_text(ENDLESS, encoding="utf-8")
    session.launch(program, "here", evaluationTimeout=0.5)
    stop = session.wait_for_stop("breakpoint", at="here")
    rows = stop.frame["Locals"]
    texts = rows.texts()
    assert (texts["before"], texts["after"]) == ("1", "'end'")
    assert all("__repr__ took" in texts[name] for name in ("endless", "patient", "again")), texts
    assert rows["endless"]["inside"].text == "7"
    assert "__repr__ took" in stop.frame.evaluate("endless").text
    assert "__repr__ took" in stop.frame.evaluate("type('New', (Endless,), {})()").text
    assert stop.frame.evaluate("1 + 1").text == "2"
    session.resume("next")
    stop = session.wait_for_stop("step")
    assert stop.frame.evaluate("2 + 2").text == "4"
    session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == "over\n"
    assert session.output("stderr") == ""


PROXIES = """
import torch

class Proxy:
    def __init__(self, number):
        self.number, self.scale = number, 2.0

    __class__ = property(lambda self: type)

@torch.compile(backend="eager")
def function(x, proxy):
    y = x * proxy.scale
    return y + 1  #@here

for number in range(4):
    function(torch.ones(2), Proxy(number))
"""


def test_an_object_that_claims_another_class_is_that_of_each_call(session: Session, tmp_path: Path) -> None:
    """A saved trace keeps no object of the call that it was made in, whatever the object says of its class."""
    program = tmp_path / "proxies.py"
    program.write_text(PROXIES)
    with session.launching(program):
        session.set_breakpoints(program, "here")
    for number in range(4):
        stop = session.wait_for_stop("breakpoint")
        assert stop.frame.evaluate("proxy.number").text == str(number)
        session.resume()
    assert session.wait_for_exit() == 0
