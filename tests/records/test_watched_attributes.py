"""Data breakpoints on attributes: the program stops at the line of ordinary Python that changes a guarded value."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.client import Session, Stop
from tests.client.environments import alone, own_command
from tests.client.fixtures import Fixture
from tests.client.timeline import DEADLINE
from tests.records.test_data_breakpoints import watch
from tests.records.test_graph_break_stops import info_of

pytestmark = pytest.mark.timeout(300)

PROGRAM = """\
import torch
from torch import nn


class Adapter(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(4, 4)
        self.extra = nn.Linear(4, 4)
        self.active = False
        self.calls = 1

    def forward(self, x):
        y = self.base(x)  #@base
        if self.active:
            y = y + self.extra(x)
        return y * self.calls


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = Adapter()
        self.scale = 1.0
        self.names = {"first": 1}

    def forward(self, x):
        x = self.layer(x)  #@forward
        return x * self.scale * self.names["first"]


def count(module, *_):
    module._orig_mod.layer.calls += 1  #@hook


class Schedule:
    def __init__(self, model):
        self.model = model

    def step(self, epoch):
        value = 1.0 / (epoch + 1)
        setattr(self.model, "sc" + "ale", value)  #@schedule
        return value


def set_active(module, name, value):
    for one in module.modules():
        if hasattr(one, name):
            vars(one)[name] = value  #@active


torch.manual_seed(0)
model = Model()
compiled = torch.compile(model, backend="eager")
compiled.register_forward_hook(count)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = Schedule(model)
for epoch in range(3):
    loss = compiled(torch.ones(2, 4)).sum()
    loss.backward()
    optimizer.step()
    schedule.step(epoch)  #@loop
    if epoch == 1:
        set_active(model, "active", True)
        model.eval()  #@eval
    model.names["first"] += 0  #@same
    print(epoch, loss.item())
print(len(torch._dynamo.utils.counters["stats"]))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Write a training loop in which a hook, a scheduler and an adapter set attributes."""
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def info(session: Session, stop: Stop, name: str) -> dict[str, Any]:
    """Return the answer of ``dataBreakpointInfo`` about an attribute of ``self``."""
    found = session.request("evaluate", {"expression": "self", "frameId": stop.frame.data.id, "context": "watch"})
    arguments = {"variablesReference": found["variablesReference"], "name": name}
    answer: dict[str, Any] = session.request("dataBreakpointInfo", arguments)
    return answer


def test_the_line_that_changes_an_attribute_stops(session: Session, program: Path) -> None:
    plain = alone(program)
    session.launch(program, "forward", "base")
    reported = [info(session, session.wait_for_stop("breakpoint", at="forward"), "scale")]
    session.resume()
    stop = session.wait_for_stop("breakpoint", at="base")
    reported += [info(session, stop, name) for name in ("calls", "active", "training")]
    session.set_breakpoints(program)
    names = ["self.scale", "self.layer.calls", "self.layer.active", "self.layer.training"]
    for name, one in zip(names, reported, strict=True):
        assert one["description"].startswith(f"{name} in Model.forward")
    made = watch(session, *({"dataId": one["dataId"], "accessType": "write"} for one in reported))
    assert all(one["verified"] for one in made)
    lines = Fixture(program)
    changes = ["hook", "hook", "schedule", "active", "eval", "hook", "schedule"]
    of_change = {"schedule": 0, "hook": 1, "active": 2, "eval": 3}
    for change in changes:
        session.resume()
        stop = session.wait_for_stop("data breakpoint")
        text = info_of(session, stop)["exceptionId"]
        assert text.startswith(f"{names[of_change[change]]} was changed: "), text
        assert text.endswith(f", at train.py:{lines.line(change)}"), text
        assert stop.body["hitBreakpointIds"] == [made[of_change[change]]["id"]]
    assert session.run_to_end() == 0
    assert session.output("stdout") == plain.stdout


@pytest.mark.parametrize("place", ["schedule", "loop"])
def test_an_attribute_is_watched_from_ordinary_python(session: Session, program: Path, place: str) -> None:
    """At a stop of debugpy: in the running frame, and in a function that is called later."""
    session.launch(program, place)
    stop = session.wait_for_stop("breakpoint", at=place)
    whole = "model.scale" if place == "loop" else "self.model.scale"
    session.set_breakpoints(program)
    owner, _, name = whole.rpartition(".")
    found = session.request("evaluate", {"expression": owner, "frameId": stop.frame.data.id, "context": "watch"})
    session.request("variables", {"variablesReference": found["variablesReference"]})
    answer = session.request("dataBreakpointInfo", {"variablesReference": found["variablesReference"], "name": name})
    assert answer["description"].startswith(f"{whole} in "), answer
    typed = session.request("dataBreakpointInfo", {"frameId": stop.frame.data.id, "name": whole})
    assert typed == answer
    watch(session, {"dataId": answer["dataId"], "accessType": "write"})
    line = Fixture(program).line("schedule")
    for values in ("1.0 before, 0.5 now", "0.5 before, 0.3"):
        session.resume()
        stop = session.wait_for_stop("data breakpoint")
        text = info_of(session, stop)["exceptionId"]
        assert values in text
        assert text.endswith(f", at train.py:{line}")
    lines = Fixture(program)
    after_the_call = [lines.line("loop") + 1, lines.line("same")]
    # After a return, debugpy stops at the line of the call first on Python 3.12 and newer.
    steps = [lines.line("loop"), *after_the_call] if sys.version_info >= (3, 12) else after_the_call
    assert [session.next().frame.data.line for _ in steps] == steps
    watch(session)
    assert session.run_to_end() == 0


def test_what_cannot_be_watched_in_ordinary_python_is_refused(session: Session, program: Path) -> None:
    session.launch(program, "schedule")
    stop = session.wait_for_stop("breakpoint", at="schedule")
    for name in ("value", "epoch", "1 + 1", "self.model.scale + 1", "missing.scale"):
        answer = session.request("dataBreakpointInfo", {"frameId": stop.frame.data.id, "name": name})
        assert answer["dataId"] is None, name
    session.set_breakpoints(program)
    assert session.run_to_end() == 0


def test_the_terminal_watches_an_attribute(program: Path) -> None:
    line = Fixture(program).line("schedule")
    commands = ["watch self.scale", "watch 1 + 1", "clear 1", "c", "c"]
    ran = subprocess.run(
        [
            *own_command(),
            "debug",
            str(program),
            "--break",
            f"{program}:{Fixture(program).line('forward')}",
            *(part for one in commands for part in ("--command", one)),
        ],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "250"},
    )
    assert "changes of self.scale in Model.forward" in ran.stdout
    assert "1 + 1 cannot be watched" in ran.stdout
    assert ran.stdout.count("self.scale was changed: 1.0 before, 0.5 now") == 1
    assert f"at train.py:{line}" in ran.stdout
    assert ran.stdout.rindex("0.5 before, 0.3") > ran.stdout.index("0.5 now")


def test_a_part_of_a_dict_is_refused(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "settings.py"
    program.write_text(
        "import torch\n\n\n"
        "@torch.compile(backend='eager')\n"
        "def f(x, settings):\n    return x * settings['scale']  #@scaled\n\n\n"
        "f(torch.ones(2), {'scale': 2})\n",
        encoding="utf-8",
    )
    session.launch(program, "scaled")
    stop = session.wait_for_stop("breakpoint", at="scaled")
    found = session.request("evaluate", {"expression": "settings", "frameId": stop.frame.data.id, "context": "watch"})
    rows = session.request("variables", {"variablesReference": found["variablesReference"]})["variables"]
    for row in rows:
        arguments = {"variablesReference": found["variablesReference"], "name": row["name"]}
        assert session.request("dataBreakpointInfo", arguments)["dataId"] is None
    assert any("scale" in row["name"] for row in rows)
    assert session.run_to_end() == 0


HELD = """\
import threading
from string import capwords


class Settings:
    def __init__(self):
        self.scale = 1.0


def change(settings, value):
    settings.scale = value  #@change


def work(settings):
    first = 1  #@held
    settings.scale = 2.0  #@write
    second = first + 1
    print(capwords("library"), second)  #@library
    settings.scale = 3.0  #@again
    third = 1
    thread = threading.Thread(target=change, args=(settings, 4.0))
    thread.start()
    thread.join()  #@joined
    del thread
    third = 2
    settings.scale = 5.0  #@last
    return third


work(Settings())
"""


def test_the_held_frame_and_other_threads(session: Session, tmp_path: Path) -> None:
    """The line of a change is exact, or the text says that it may not be."""
    program = tmp_path / "held.py"
    program.write_text(HELD, encoding="utf-8")
    session.launch(program, "held")
    stop = session.wait_for_stop("breakpoint", at="held")
    session.set_breakpoints(program)
    found = session.request("dataBreakpointInfo", {"frameId": stop.frame.data.id, "name": "settings.scale"})
    watch(session, {"dataId": found["dataId"], "accessType": "write"})
    lines = Fixture(program)
    # Python 3.11 and older do not trace the frame that is held when the watch is set.
    is_exact = sys.version_info >= (3, 12)
    endings = [
        f"now, at held.py:{lines.line('write')}" if is_exact else f"now, at or before held.py:{lines.line('library')}",
        f"now, at held.py:{lines.line('again')}",
        f"now, at held.py:{lines.line('joined')} or by another thread",
        f"now, at held.py:{lines.line('last')} or by another thread",
    ]
    for number, ending in enumerate(endings, 2):
        session.resume()
        text = info_of(session, session.wait_for_stop("data breakpoint"))["exceptionId"]
        assert text.startswith(f"settings.scale was changed: {number - 1}.0 before, {number}.0"), text
        if number != 4:  # the thread may end before its starter continues
            assert text.endswith(ending), text
        else:
            assert text.endswith("or by another thread"), text
    assert session.run_to_end() == 0


def test_calls_of_the_function_are_not_replayed(session: Session, program: Path) -> None:
    """Only ordinary Python changes attributes, so cached calls are not replayed."""
    session.launch(program, "forward", cachedCalls="eager")
    stop = session.wait_for_stop("breakpoint", at="forward")
    reported = info(session, stop, "scale")
    session.set_breakpoints(program)
    watch(session, {"dataId": reported["dataId"], "accessType": "write"})
    for _ in range(2):
        session.resume()
        session.wait_for_stop("data breakpoint")
    assert session.run_to_end() == 0
    assert "as ordinary Python" not in session.output("important")
