"""Showing objects at a stop calls none of their special methods, such as those for comparing and hashing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client import Fixture, Session
from tests.client.session import Stop

PROGRAM = """
import torch

calls = []

def counted(name, plain):
    def method(*given):
        calls.append(name)
        return plain(*given)
    return method

COMPARED = {name: counted(name, getattr(object, name)) for name in ("__eq__", "__ne__", "__hash__")}
ASKED = {
    "__bool__": counted("__bool__", lambda self: True),
    "__len__": counted("__len__", lambda self: 3),
    "__iter__": counted("__iter__", lambda self: iter(())),
    "__contains__": counted("__contains__", lambda self, one: False),
    "__getitem__": counted("__getitem__", lambda self, key: 1),
    "__getattr__": counted("__getattr__", lambda self, name: 1),
    "__class__": property(counted("__class__", type)),
}

class Kind(type):
    __eq__, __ne__ = COMPARED["__eq__"], COMPARED["__ne__"]
    __hash__ = counted("__hash__ of a class", type.__hash__)
    __instancecheck__ = counted("__instancecheck__", type.__instancecheck__)
    __subclasscheck__ = counted("__subclasscheck__", type.__subclasscheck__)
    __bool__ = counted("__bool__ of a class", lambda cls: True)

Compared = type("Compared", (), {**COMPARED, "__init__": lambda self: setattr(self, "inside", 1)})
Asked = type("Asked", (), {**ASKED, "__init__": lambda self: setattr(self, "inside", 2)})
OfKind = Kind("OfKind", (), {"inside": 3})
Number = type("Number", (int,), dict(COMPARED))
Items = type("Items", (list,), dict(COMPARED))

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.compared, self.of_kind, self.number = Compared(), OfKind(), Number(5)

    def forward(self, x, compared, of_kind, number, items):
        y = x * self.weight  #@trace
        kept = [compared, of_kind, items]
        z = y + 1
        return z.sum()  #@end

def main():
    model = torch.compile(Model(), backend="eager")
    compared, asked, of_kind, number, items = Compared(), Asked(), OfKind(), Number(7), Items([Compared(), 2])
    mapping, group = {compared: of_kind, "key": asked}, {compared, 1}
    for times in range(3):
        x = torch.ones(2) * times
        answer = model(x, compared, of_kind, number, items)
    print("over", flush=True)

main()
"""
NAMES = ("compared", "of_kind", "number", "items")


@pytest.fixture
def program(tmp_path: Path) -> Fixture:
    """Write the program."""
    path = tmp_path / "counted.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return Fixture(path)


def _look(stop: Stop) -> None:
    """Open, evaluate and hover everything in each frame of the program; no code of the program may be called."""
    before = stop.frame_called("main").evaluate("len(calls)").text
    for frame in stop.frames:
        if frame.path is None or frame.path.name != "counted.py":
            continue
        for scope in frame.scopes.values():
            scope.open(3)
        for name in set(NAMES) & set(next(iter(frame.scopes.values())).texts()):
            frame.evaluate(name)
    main = stop.frame_called("main")
    called = main.evaluate(f"sorted(set(calls[{before}:]))").text
    assert main.evaluate("len(calls)").text == before, f"{stop.frame.name}:{stop.frame.line}: called {called}"


@pytest.mark.parametrize("mode", [None, "run-time"])
def test_looking_calls_no_method_of_an_object(session: Session, program: Fixture, mode: str | None) -> None:
    """At each line of the function: while Dynamo traces it, in cached calls, and in generated code."""
    with session.launching(program, mode="both", eager=True):
        session.set_breakpoints(program, "trace", mode=mode)
    for _ in range(3):
        stop = session.wait_for_stop("breakpoint")
        for _ in range(3):
            _look(stop)
            stop = session.next()
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == "over\n"
