"""Compares torch's own debugger (the peer) with ours, instruction by instruction, on the same programs.

Both must show the same instructions, local variables and value stacks. If torch's debugger is wrong, the test says
where and why, and checks ours in another way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dynamo_dap.debuggee.torch_api.code_objects.generated_code import value_stack
from tests.run_time.in_process import Recorder, SeenStop, debugging
from tests.run_time.programs import compiled, programs, replay_arguments
from tests.run_time.torch_debugger import PeerStop, TorchDebugger

PROGRAMS: dict[str, tuple[Callable[[], Any], Callable[[], tuple[Any, ...]]]] = {
    "replay": (lambda: programs.replay, replay_arguments),
    "broken": (lambda: programs.broken, lambda: (torch.ones(3), {})),
    "branching": (lambda: programs.branching, lambda: (torch.ones(3),)),
    "calling": (lambda: _calling, lambda: (torch.ones(3),)),
    "guarded": (lambda: programs.guarded, lambda: (torch.ones(3),)),
}


def _calling(x: torch.Tensor) -> tuple[torch.Tensor, list[Any]]:
    y = x + 1
    extra = sorted([3, 1, 2], key=lambda value: -value)
    programs.note({}, y)
    print("calling", extra, sep=" ")  # noqa: T201  (a graph break)
    return y, extra


def _own(function: Any, arguments: tuple[Any, ...]) -> list[PeerStop]:
    record = Recorder("in instruction", look=_as_peer)
    with debugging(record, stop_on_generated_code=True):
        function(*arguments)
    return record.seen


def _as_peer(stop: SeenStop) -> PeerStop:
    instruction = stop.generated.table[stop.index]
    name = stop.generated.code.co_name
    return PeerStop(name, instruction.offset, instruction.name, stop.stack, stop.locals)


def _reported(stops: list[PeerStop]) -> list[PeerStop]:
    """The stops that both debuggers report. The peer also stops at prefixes, and on some Pythons in the prologue."""
    prologue = ("RESUME", "COPY_FREE_VARS", "MAKE_CELL", "EXTENDED_ARG", "NOP")
    return [stop for stop in stops if stop.instruction not in prologue]


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_instructions_locals_and_stacks(name: str) -> None:
    make, arguments = PROGRAMS[name]
    function = compiled(make())
    programs.TOTAL = 0
    function(*arguments())
    peer = TorchDebugger()
    programs.TOTAL = 0
    peer.run(lambda: function(*arguments()))
    programs.TOTAL = 0
    ours = _reported(_own(function, arguments()))
    theirs = _reported(peer.stops)
    assert [_position(stop) for stop in ours] == [_position(stop) for stop in theirs]
    for own, other in zip(ours, theirs, strict=True):
        assert own.locals.keys() == other.locals.keys(), f"locals at {own.instruction} {own.offset}"
        if not _peer_is_wrong(other):
            assert _shapes(own.stack) == _shapes(other.stack), f"stack at {own.instruction} {own.offset}"


def _position(stop: PeerStop) -> tuple[str, int, str]:
    return stop.name, stop.offset, stop.instruction


def _peer_is_wrong(stop: PeerStop) -> bool:
    """On Python 3.11, the peer removes arguments at ``PRECALL``, as the compiler counts, but not as Python does.

    Its stack at ``CALL`` lacks them; see ``test_the_truth_about_calls``.
    """
    return sys.version_info[:2] == (3, 11) and stop.instruction == "CALL"


def _shapes(stack: list[Any]) -> list[str]:
    """The types, and plain contents: the two runs are two compiles, which have different temporary objects."""
    return [
        repr(value)
        if isinstance(value, (int, str, type(None))) and not isinstance(value, torch.Tensor)
        else type(value).__name__
        for value in stack
    ]


@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="only Python 3.11 and older keep the depth where it can be read"
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_truth_about_depths(name: str) -> None:
    """In a trace function of Python 3.11 the interpreter has written down the depth: ours is that, everywhere."""
    make, arguments = PROGRAMS[name]
    function = compiled(make())

    def look(stop: SeenStop) -> tuple[int, int | None]:
        everything = value_stack(stop.frame._running.frame, 10_000)
        return len(everything), stop.generated.depths.before(stop.index)

    record = Recorder("in instruction", look=look)
    with debugging(record, stop_on_generated_code=True):
        function(*arguments())
        function(*arguments())
    assert len(record.seen) > 80
    assert all(real == computed for real, computed in record.seen)


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="PRECALL is an instruction of Python 3.11")
def test_the_truth_about_calls() -> None:
    """Where the peer is wrong: at ``CALL`` the arguments are on the stack, and it does not show them."""
    function = compiled(programs.broken)
    function(torch.ones(3), {})
    peer = TorchDebugger()
    peer.run(lambda: function(torch.ones(3), {}))
    call = next(stop for stop in peer.stops if stop.instruction == "CALL" and stop.stack)
    before = peer.stops[peer.stops.index(call) - 1]
    assert before.instruction == "PRECALL"
    ours = _own(function, (torch.ones(3), {}))
    own_call = next(stop for stop in ours if (stop.name, stop.offset) == (call.name, call.offset))
    own_before = ours[ours.index(own_call) - 1]
    assert len(own_call.stack) == len(own_before.stack), "PRECALL takes nothing"
    calls = [
        (len(own.stack), len(other.stack))
        for own, other in zip(_reported(ours), _reported(peer.stops), strict=True)
        if own.instruction == "CALL"
    ]
    assert any(own > other for own, other in calls), "the peer is right by now: compare its CALLs as well"


def test_the_truth_in_the_middle_of_a_call() -> None:
    """Where the peer is wrong: of a caller it takes off what the call leaves over, not what the call takes.

    One slot of what a ``CALL`` uses stays on show. Checked against which slots the instruction takes.
    """
    function = compiled(programs.broken)
    function(torch.ones(3), {})
    peers: list[tuple[str, int]] = []
    peer = TorchDebugger()

    def look(stop: PeerStop) -> None:
        if "resume" in stop.name and not peers:
            outer = next(state for state in peer._context._frame_states.values() if "resume" not in state.code.co_name)
            instruction = outer.offset_to_inst[outer.current_offset].opname
            peers.append((instruction, peer._context._safe_stack_depth(outer, is_current_frame=False)))

    peer.look = look
    peer.run(lambda: function(torch.ones(3), {}))
    ours: list[tuple[str, int]] = []

    def script(stop: SeenStop) -> str | None:
        if "resumed" in stop.name and not ours:
            caller: Any = next(frame for frame in stop.frames[1:] if frame.name == "broken (generated #0)")
            values = caller._values
            ours.append((values.generated.table[values.index].name, len(values.stack())))
            expected = values.generated.depths.before(values.index) - values.operands_in_use
            assert len(values.stack()) == expected
        return "in instruction"

    with debugging(script, stop_on_generated_code=True):
        function(torch.ones(3), {})
    assert ours[0][0] == peers[0][0] == "CALL_FUNCTION_EX"
    assert ours[0][1] == 0
    assert peers[0][1] == 1, "the peer is right by now"


def test_the_truth_after_an_exception() -> None:
    """Where the peer is wrong: in a handler it counts on from the instruction that raised."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        with torch.no_grad():
            y = y * 2
            programs.missing({}, y)
        return y

    def run(one: Any) -> None:
        with pytest.raises(KeyError):
            one(torch.ones(2))

    peer = TorchDebugger()
    compiled_function = compiled(function)
    run(compiled_function)
    broken: BaseException | None = None
    try:
        if sys.version_info >= (3, 14):
            raise RuntimeError("there the depth that it counts ends the process")
        peer.run(lambda: run(compiled_function))
    except BaseException as error:  # noqa: BLE001  (it may even break down, as a depth gets negative)
        broken = error
    theirs = {(stop.name, stop.offset): stop.counted_depth for stop in peer.stops}
    ours = {(stop.name, stop.offset): stop for stop in _own_after_exception(compiled_function)}
    handler = [stop for stop in ours.values() if stop.instruction == "PUSH_EXC_INFO"]
    assert len(handler) == 1
    assert isinstance(handler[0].stack[-1], KeyError), "the exception is on top, as the interpreter puts it there"
    position = (handler[0].name, handler[0].offset)
    assert broken is not None or theirs.get(position) != len(handler[0].stack), "the peer is right by now"


def _own_after_exception(function: Any) -> list[PeerStop]:
    record = Recorder("in instruction", look=_as_peer)
    with debugging(record, stop_on_generated_code=True), pytest.raises(KeyError):
        function(torch.ones(2))
    return record.seen
