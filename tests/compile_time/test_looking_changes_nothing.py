"""Rule 1, looking changes nothing: an inspected trace has the same results as an untouched one.

The tests inspect all new values at each line, in loops in the first two iterations. ``make walks`` inspects everything
each time.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import itertools
import sys
from collections.abc import Callable
from typing import Any

import pytest
from torch._dynamo import bytecode_transformation

from tests.compile_time import programs
from tests.compile_time.observation import Observation, observe
from tests.compile_time.programs import PROGRAMS, containers, dynamic_shapes, modules, objects
from tests.compile_time.watching import EachLine, Looker, TensorLooker, Watcher

Program = Callable[..., list[Any]]
BY_NAME = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
pytestmark = pytest.mark.timeout(600)


def assert_same(alone: Observation, watched: Observation) -> None:
    """Compare two runs part by part, so that a failure names the part that differs."""
    assert alone.graphs, "the program compiled nothing"
    assert watched.graphs == alone.graphs
    assert watched.guards == alone.guards
    assert watched.bytecode == alone.bytecode
    assert watched.compiles == alone.compiles
    assert (watched.steps, watched.lines) == (alone.steps, alone.lines)
    assert watched.results == alone.results
    assert watched.random_state == alone.random_state


@functools.cache
def untouched(program: Program) -> Observation:
    """Run the program twice without inspection, and check that both runs are equal.

    An earlier run lets torch mark its own functions that are not worth compiling, which it does only once.
    """
    observe(program)
    first, second = observe(program), observe(program)
    assert_same(first, second)
    return second


def test_runs_are_alike_whatever_torch_has_numbered_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run has its own globals: torch adds globals with numbered names, which must not collide."""
    spec = importlib.util.spec_from_file_location("programs_again", programs.__file__)
    assert spec is not None
    assert spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, again.__name__, again)
    spec.loader.exec_module(again)
    observe(programs.rare_values)
    monkeypatch.setattr(bytecode_transformation, "_unique_id_counter", itertools.count(960))
    assert_same(observe(again.rare_values), observe(again.rare_values))


@BY_NAME
def test_every_scope_open_at_every_line(program: Program) -> None:
    looker = Looker()
    assert_same(untouched(program), observe(program, watch=EachLine(looker, most=2)))
    assert looker.shown
    assert not [name for name, text in looker.shown.items() if "cannot be shown" in text]


@pytest.mark.parametrize("program", [containers, dynamic_shapes], ids=lambda program: program.__name__)
def test_every_scope_open_at_every_instruction(program: Program) -> None:
    assert_same(untouched(program), observe(program, watch=Looker(depth=2, lazy=True)))


@BY_NAME
def test_watches_at_every_line(program: Program) -> None:
    watcher = Watcher()
    assert_same(untouched(program), observe(program, watch=EachLine(watcher, most=2)))
    assert watcher.results


@BY_NAME
def test_a_look_at_every_tensor_at_every_line(program: Program) -> None:
    looker = TensorLooker()
    assert_same(untouched(program), observe(program, watch=EachLine(looker, most=2)))
    assert [text for text in looker.seen.values() if text.startswith(("Tensor", "Parameter"))]


@pytest.mark.parametrize(
    "program", [containers, dynamic_shapes, objects, modules], ids=lambda program: program.__name__
)
def test_what_the_interpreter_is_asked_is_taken_back(program: Program) -> None:
    """``ctx`` realizes the values that it reads, and the evaluation reverts that."""
    watcher = Watcher(interpreter=True)
    assert_same(untouched(program), observe(program, watch=EachLine(watcher, most=2)))


@pytest.mark.parametrize("program", [containers, objects], ids=lambda program: program.__name__)
def test_looking_leaves_no_garbage(program: Program) -> None:
    """A reference cycle of the debugger would keep the program's tensors alive until a later collection."""
    left: list[str] = []
    looker, watcher = Looker(depth=2), Watcher(most_names=2)

    def look(frame: Any) -> None:
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            looker(frame)
            watcher(frame)
            gc.collect()
            left.extend(type(each).__name__ for each in gc.garbage if type(each).__module__.startswith("dynamo_dap"))
        finally:
            gc.set_debug(0)
            gc.garbage.clear()

    lines = EachLine(look)
    # Existing objects are not our garbage, so exclude them from the collections. They stay frozen, because otherwise
    # all collections of later tests would examine torch's own objects.
    gc.freeze()
    observe(program, watch=lambda frame: lines(frame) if len(frame.with_callers()) == 1 else None)
    assert not left
