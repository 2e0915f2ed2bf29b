"""The ids of breakpoints, as the client knows them, over two backends and over a restart."""

from __future__ import annotations

import msgspec

from dynamo_dap.protocol.wire.messages import EMPTY, encode_body
from dynamo_dap.protocol.wire.types import Breakpoint, BreakpointEventBody, SetBreakpointsResponseBody, StoppedEventBody
from dynamo_dap.server.backends.breakpoints import BreakpointMemory, Remembered


class NamedBackend:
    """What the memory needs of a backend."""

    def __init__(self, name: str) -> None:
        self.name = name


AGENT, DEBUGPY = NamedBackend("agent"), NamedBackend("debugpy")


def _answer(*breakpoints: Breakpoint) -> msgspec.Raw:
    return encode_body(SetBreakpointsResponseBody(list(breakpoints)))


def _lines(count: int, key: str = "a.py") -> Remembered:
    return Remembered("setBreakpoints", key, EMPTY, count)


def _ids(
    memory: BreakpointMemory, remembered: Remembered, *answers: tuple[NamedBackend, msgspec.Raw]
) -> list[int | None]:
    return [one.id for one in memory.merge(remembered, answers).breakpoints or []]


def test_a_breakpoint_keeps_its_id_in_a_new_process() -> None:
    memory = BreakpointMemory()
    first, second = _lines(2, "a.py"), _lines(1, "b.py")
    before = _ids(memory, first, (AGENT, _answer(Breakpoint(True, id=7), Breakpoint(False, id=8))))
    before += _ids(memory, second, (AGENT, _answer(Breakpoint(True, id=9))))
    assert len(set(before)) == 3

    memory.forget_process()
    # The new process counts in another order.
    after = _ids(memory, first, (AGENT, _answer(Breakpoint(True, id=2), Breakpoint(True, id=3))))
    after += _ids(memory, second, (AGENT, _answer(Breakpoint(True, id=1))))
    assert after == before
    stopped = memory.translate_stop(AGENT, encode_body(StoppedEventBody("breakpoint", hit_breakpoint_ids=[1, 3])))
    assert isinstance(stopped, StoppedEventBody)
    assert stopped.hit_breakpoint_ids == [before[2], before[1]]
    changed = memory.translate_event(AGENT, encode_body(BreakpointEventBody("changed", Breakpoint(True, id=2))))
    assert changed.breakpoint.id == before[0]


def test_breakpoints_of_two_backends_are_one_breakpoint() -> None:
    memory = BreakpointMemory()
    answers = (
        (AGENT, _answer(Breakpoint(False, id=1, message="never traced"), Breakpoint(False, id=2, message="no code"))),
        (DEBUGPY, _answer(Breakpoint(True, id=2, line=5), Breakpoint(False, id=1, message="no file"))),
    )
    merged = memory.merge(_lines(2), answers).breakpoints
    assert merged is not None
    assert [one.verified for one in merged] == [True, False]
    assert merged[0].message is not None
    assert merged[0].message.startswith("stops in ordinary Python only")
    assert merged[0].message.endswith(": never traced")
    assert merged[1].message == "no code"
    for backend, hit in ((AGENT, 1), (DEBUGPY, 2)):
        stopped = memory.translate_stop(backend, encode_body(StoppedEventBody("breakpoint", hit_breakpoint_ids=[hit])))
        assert isinstance(stopped, StoppedEventBody)
        assert stopped.hit_breakpoint_ids == [merged[0].id]


def test_an_event_that_overtakes_the_answer_leaves_one_breakpoint() -> None:
    """A backend says of its breakpoint before the answers of all backends are there."""
    for early, late in ((AGENT, DEBUGPY), (DEBUGPY, AGENT)):
        memory = BreakpointMemory()
        memory.translate_event(early, encode_body(BreakpointEventBody("changed", Breakpoint(True, id=1))))
        answers = ((AGENT, _answer(Breakpoint(True, id=1))), (DEBUGPY, _answer(Breakpoint(True, id=1))))
        (set_id,) = _ids(memory, _lines(1), *answers)
        for backend in (early, late):
            stopped = memory.translate_stop(
                backend, encode_body(StoppedEventBody("breakpoint", hit_breakpoint_ids=[1]))
            )
            assert isinstance(stopped, StoppedEventBody)
            assert stopped.hit_breakpoint_ids == [set_id]


def test_a_stop_without_breakpoints_is_not_read() -> None:
    raw = msgspec.Raw(b'{"reason":"step","threadId":1,"custom":[1,2]}')
    assert BreakpointMemory().translate_stop(AGENT, raw) is raw


def test_breakpoints_without_ids_do_not_shift_the_others() -> None:
    memory = BreakpointMemory()
    remembered = _lines(3)
    before = _ids(
        memory, remembered, (AGENT, _answer(Breakpoint(True, id=4), Breakpoint(False), Breakpoint(True, id=5)))
    )
    assert before[1] is None
    memory.forget_process()
    answer = _answer(Breakpoint(True, id=5), Breakpoint(False), Breakpoint(True, id=4))
    assert _ids(memory, remembered, (AGENT, answer)) == before


def test_without_a_backend_nothing_is_verified() -> None:
    breakpoints = BreakpointMemory().merge(_lines(2), []).breakpoints
    assert breakpoints is not None
    assert [one.verified for one in breakpoints] == [False, False]
    assert all(one.message for one in breakpoints)


def test_only_the_latest_request_for_a_source_is_in_force() -> None:
    memory = BreakpointMemory()
    for key, count in (("a.py", 1), ("b.py", 1), ("a.py", 2)):
        memory.merge(_lines(count, key), [])
    assert [(one.key, one.count) for one in memory.in_force()] == [("a.py", 2), ("b.py", 1)]
