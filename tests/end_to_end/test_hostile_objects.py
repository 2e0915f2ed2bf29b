"""Objects whose special methods all raise spoil only their own rows, in every kind of stop."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from dynamo_dap.protocol.requests.contract import EXCEPTION_FILTERS, GUARD
from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.client import Fixture, Session
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
    if "class variables" in shown:  # debugpy groups these
        shown |= scopes[0]["class variables"].texts()
    assert names <= set(shown), shown
    for scope in scopes:
        scope.open(2)
    assert frame.evaluate("1 + 1").text == "2"
    rows = [*shown.items(), *((name, each.text) for scope in scopes for name, each in scope.children.items())]
    assert not [row for row in rows if "cannot be shown" in row[1] or ": Refused>" in row[1] or "TypeError" in row[1]]


def test_their_rows_are_there_in_every_kind_of_stop(session: Session) -> None:
    """The stops are in ordinary Python, in a trace, and in two cached calls."""
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
    """This is in ordinary Python, where debugpy calls it; the frame, steps and the other rows still work."""
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
    """A saved trace keeps no object of its call, whatever class the object claims."""
    program = tmp_path / "proxies.py"
    program.write_text(PROXIES)
    with session.launching(program):
        session.set_breakpoints(program, "here")
    for number in range(4):
        stop = session.wait_for_stop("breakpoint")
        assert stop.frame.evaluate("proxy.number").text == str(number)
        session.resume()
    assert session.wait_for_exit() == 0


WATCHFUL = """
asked = []

def noting(name):
    def method(*arguments, **named):
        asked.append(name)
        return getattr(type, name, getattr(object, name, len))(*arguments, **named)
    return method

SPECIAL = ("__eq__", "__hash__", "__getattribute__", "__instancecheck__", "__subclasscheck__", "__repr__", "__dir__")
Meta = type("Meta", (type,), {name: noting("class " + name) for name in SPECIAL} | {
    name: noting(name) for name in ("__eq__", "__getattribute__", "__repr__", "__dir__", "__bool__")
} | {"__hash__": type.__hash__, "__getattr__": lambda cls, name: asked.append("class attribute " + name)})

class Watchful:
    def __init__(self):
        self.inside = 7

    def __repr__(self):
        return "<shown>"

    def __getattr__(self, name):
        asked.append(name)
        raise KeyError(name)

    def __bool__(self):
        asked.append("bool")
        return True

    def __len__(self):
        asked.append("len")
        return 3

    def __iter__(self):
        asked.append("iter")
        return iter(())

    def __eq__(self, other):
        asked.append("eq")
        return True

    def __dir__(self):
        asked.append("dir")
        return ["prop"]

    @property
    def prop(self):
        asked.append("prop")

class Lying(Watchful):
    __class__ = property(lambda self: asked.append("__class__") or Watchful)

class Guarded(Watchful):
    def __getattribute__(self, name):
        asked.append("get " + name)
        return object.__getattribute__(self, name)

OfMeta = Meta("OfMeta", (Watchful,), {})

def function():
    attributes, lying, guarded, of_meta, cls = Watchful(), Lying(), Guarded(), OfMeta(), OfMeta
    plain = type("Plain", (), {"__repr__": lambda self: "<plain>", "prop": Watchful.prop})()
    asked.clear()
    return 1  #@here

function()
print(asked)
"""
OBJECTS = ("attributes", "lying", "guarded", "of_meta")


def test_looking_in_ordinary_python_runs_no_code_but_repr(session: Session, tmp_path: Path) -> None:
    """Debugpy itself would read objects' class, attributes and length, and compare classes."""
    program = tmp_path / "program.py"
    program.write_text(WATCHFUL, encoding="utf-8")
    session.launch(program, "here")
    stop = session.wait_for_stop("breakpoint", at="here")
    rows, frame_id = stop.frame["Locals"], stop.frame.data.id
    shown = rows.texts()
    assert [shown[name] for name in (*OBJECTS, "plain")] == ["<shown>"] * 4 + ["<plain>"], shown
    assert "cls" in rows["class variables"].texts()
    for name in OBJECTS:
        assert rows[name]["inside"].text == "7"
        for context in ("watch", "hover", "repl", "clipboard"):
            result = session.client.evaluate(name, frame_id, context)
            assert result.result == "<shown>"
        completed = session.request("completions", {"text": f"{name}.", "column": len(name) + 2, "frameId": frame_id})
        assert {"inside", "prop"} <= {each["label"] for each in completed["targets"]}
    completed = session.request("completions", {"text": "at", "column": 3, "frameId": frame_id})
    assert "attributes" in [each["label"] for each in completed["targets"]]
    session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == "[]\n"


WATCHFUL_OBJECTS = "watchful_objects"
OPENED_BY_DEBUGPY = {"__repr__ by pydevd_safe_repr.py", "__dir__ by pydevd_resolver.py", "prop by pydevd_resolver.py"}
"""The methods that are called on an opened object of a plain class with a ``__repr__``, in ordinary Python."""


def _look_at_all(stop: Stop) -> None:
    """Open every scope of the user's frames, and evaluate each name."""
    for frame in stop.user_frames[:2]:
        for scope in frame.scopes.values():
            scope.open(3)
            for name in scope.children.keys() & {"half", "plain", "lying", "items", "mapping", "pair", "group", "text"}:
                for context in ("watch", "hover", "repl"):
                    frame.evaluate(name, context).open(2)


def _asked(session: Session) -> set[str]:
    assert session.wait_for_exit() == 0
    return {each.rpartition(":")[0] for each in ast.literal_eval(session.output("stdout").splitlines()[-1])}


def test_looking_asks_them_nothing_in_calls_and_traces(session: Session) -> None:
    """The stops are in ordinary Python, in a trace, after steps back, and in cached calls."""
    session.launch(WATCHFUL_OBJECTS, "call", "trace", "end", eager=True)
    for _ in range(3):
        for place in ("call", "trace", "end"):
            _look_at_all(session.wait_for_stop("breakpoint", at=place))
            if place == "end":
                session.resume("stepBack")
                _look_at_all(session.wait_for_stop())
                session.resume("next")
                session.wait_for_stop()
            session.resume()
    assert _asked(session) == OPENED_BY_DEBUGPY


@pytest.mark.parametrize("mode", ["run-time", "backward"])
def test_looking_asks_them_nothing_in(session: Session, mode: str) -> None:
    with session.launching(WATCHFUL_OBJECTS):
        session.set_breakpoints(
            WATCHFUL_OBJECTS, SourceBreakpoint(line=Fixture(WATCHFUL_OBJECTS).line("trace"), mode=mode)
        )
    for _ in range(2):
        _look_at_all(session.wait_for_stop("breakpoint"))
        session.resume("next")
        _look_at_all(session.wait_for_stop("step"))
        session.resume()
    session.wait_for_stop("breakpoint")
    session.set_breakpoints(WATCHFUL_OBJECTS)
    session.resume()
    assert _asked(session) <= OPENED_BY_DEBUGPY


def test_filters_ask_them_nothing(session: Session) -> None:
    """The filters ``nan`` and ``mismatch`` inspect all results, and the values that calls store."""
    with session.launching(WATCHFUL_OBJECTS):
        session.set_breakpoints(WATCHFUL_OBJECTS, "end")
        session.request("setExceptionBreakpoints", {"filters": [each for each in EXCEPTION_FILTERS if each != GUARD]})
    for reason in ("breakpoint", "exception", "breakpoint", "breakpoint"):
        _look_at_all(session.wait_for_stop(reason))
        session.resume()
    assert _asked(session) == set()
