"""Wrappers of functions: what hooks see and change, who may replace what, and what a failing hook does."""

from __future__ import annotations

import traceback
import types
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from dynamo_dap.debuggee.wrapping import patches as module
from dynamo_dap.debuggee.wrapping.patches import Given, Outcome, Patches, Refusal, Result, calling_frame


class Owner:
    """What is wrapped."""

    value = 1

    def add(self, one: int, other: int = 1) -> int:
        return one + other

    @staticmethod
    def double(one: int) -> int:
        return 2 * one

    @classmethod
    def named(cls, name: str) -> str:
        return f"{cls.__name__}.{name}"

    def fails(self) -> None:
        raise KeyError("the program's own")


class Child(Owner):
    """Has everything from ``Owner``."""


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(module, "reporters", [lines.append])
    return lines


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = dict(vars(Owner)), dict(vars(Child))
    yield
    assert (dict(vars(Owner)), dict(vars(Child))) == before
    assert not [key for key in module._places if key[0] in (id(Owner), id(Child))]


def test_hooks_of_two_features_share_a_function() -> None:
    first, second, seen = Patches("the first"), Patches("the second"), list[object]()
    first.before(Owner, "add", lambda _, *given: seen.append(given))
    wrapper = Owner.add
    second.after(Owner, "add", lambda result, *_, **__: seen.append(result))
    assert Owner.add is wrapper
    assert Owner().add(2, 3) == 5
    first.remove()
    assert Owner().add(2) == 3
    second.remove()
    assert seen == [(2, 3), 5, 3]


def test_a_hook_changes_arguments_and_result() -> None:
    def more(owner: Owner, one: int) -> Generator[Given, Outcome, Result]:
        outcome = yield Given((owner, one + 1), {"other": 10})
        return Result(outcome.result * 2)

    def instead(_: Owner, one: int) -> Generator[None, Outcome, Result | None]:
        if one == 0:
            return Result("answered")
        yield None
        return None

    patches = Patches("changing")
    patches.around(Owner, "add", instead)
    patches.around(Owner, "add", more)
    assert Owner().add(1) == 24
    answer: Any = Owner().add(0)
    assert answer == "answered"
    patches.remove()


def test_methods_of_each_kind_are_as_before_afterwards() -> None:
    patches, seen = Patches("looking"), list[object]()
    patches.before(Owner, "double", seen.append)
    patches.before(Owner, "named", lambda *given: seen.append(given))
    patches.before(Child, "add", lambda child, *_: seen.append(type(child)))
    assert (Owner.double(2), Owner().double(3), Child().add(1), Owner().add(1)) == (4, 6, 2, 2)
    assert seen == [2, 3, Child]
    assert Child.named("it") == "Child.it"
    assert seen[3:] == [(Child, "it")]
    patches.remove()


def test_what_somebody_else_has_put_there_stays() -> None:
    original, patches, seen = Owner.add, Patches("looking"), list[object]()

    def look() -> None:
        patches.before(Owner, "add", lambda *_: seen.append("seen"))

    look()
    ours = Owner.add
    Owner.add = theirs = lambda self, one: ours(self, one) + 100  # type: ignore[assignment,method-assign]
    patches.remove()
    assert Owner.add is theirs
    assert Owner().add(1) == 102
    assert not seen
    look()
    assert Owner().add(1) == 102
    assert seen == ["seen"]  # once, though two wrappers of ours are in the way
    patches.remove()
    assert Owner.add is theirs
    Owner.add = original  # type: ignore[method-assign]


def test_a_second_feature_comes_while_somebody_has_replaced_the_function() -> None:
    original, first, second, seen = Owner.add, Patches("the first"), Patches("the second"), list[str]()
    first.before(Owner, "add", lambda *_: seen.append("first"))
    Owner.add = lambda self, one: one  # type: ignore[assignment,method-assign]
    second.before(Owner, "add", lambda *_: seen.append("second"))
    assert Owner().add(7) == 7
    assert seen == ["first", "second"]
    first.remove()
    second.remove()
    Owner.add = original  # type: ignore[method-assign]


def test_a_value_is_put_back_unless_the_program_has_set_it() -> None:
    first, second = Patches("the first"), Patches("the second")
    first.replace(Owner, "value", 2)
    second.replace(Owner, "value", 3)
    first.remove()
    assert Owner.value == 3
    second.remove()
    assert Owner.value == 1
    first.replace(Owner, "value", 2)
    Owner.value = 7
    first.remove()
    assert Owner.value == 7
    Owner.value = 1


def _raises(*_: object, **__: object) -> None:
    raise ZeroDivisionError


def _begins_badly(*_: object) -> Generator[None, Outcome, None]:
    _raises()
    yield None


def _ends_badly(*_: object) -> Generator[None, Outcome, None]:
    yield None
    _raises()


@pytest.mark.parametrize(
    ("how", "hook"),
    [("before", _raises), ("after", _raises), ("around", _begins_badly), ("around", _ends_badly)],
)
def test_a_failing_hook_switches_its_feature_off_with_one_line(
    how: str, hook: Callable[..., Any], reports: list[str]
) -> None:
    ended = list[str]()
    failing, other, seen = Patches("this feature", lambda: ended.append("ended")), Patches("another"), list[object]()
    getattr(failing, how)(Owner, "add", hook)
    failing.before(Owner, "fails", seen.append)
    other.after(Owner, "add", lambda result, *_: seen.append(result))
    assert [Owner().add(1), Owner().add(2)] == [2, 3]
    assert seen == [2, 3]
    assert failing.is_off
    assert not failing.is_installed
    assert ended == ["ended"]
    assert len(reports) == 1
    assert "this feature" in reports[0]
    failing.before(Owner, "add", seen.append)
    assert not failing.is_installed
    other.remove()


def test_the_programs_exception_passes_as_it_is(reports: list[str]) -> None:
    seen = list[object]()

    def look(_: Owner) -> Generator[None, Outcome, Result]:
        outcome = yield None
        seen.append(outcome.error)
        return Result("not for a call that fails")

    patches = Patches("looking")
    patches.around(Owner, "fails", look)
    patches.around(Owner, "fails", _ends_badly)
    with pytest.raises(KeyError) as caught:
        Owner().fails()
    patches.remove()
    assert seen == [caught.value]
    assert caught.value.__context__ is None
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames == ["test_the_programs_exception_passes_as_it_is", "wrapped", "fails"]
    assert len(reports) == 1


class Ends(BaseException):
    """As ``TraceIsOver``."""


def test_what_is_meant_for_the_caller_passes(reports: list[str]) -> None:
    patches, seen = Patches("ending"), list[object]()

    def outer(*_: object) -> Generator[None, Outcome, None]:
        seen.append((yield None).error)

    def end(*_: object) -> Generator[None, Outcome, None]:
        raise Ends
        yield None

    def refuse(*_: object) -> Generator[None, Outcome, None]:
        raise Refusal(RuntimeError("for the program"))
        yield None

    patches.around(Owner, "add", outer)
    patches.around(Owner, "add", end)
    with pytest.raises(Ends):
        Owner().add(1)
    patches.remove()
    patches.around(Owner, "add", outer)
    patches.around(Owner, "add", refuse)
    with pytest.raises(RuntimeError, match="for the program"):
        Owner().add(1)
    patches.remove()
    assert [type(each) for each in seen] == [Ends, RuntimeError]
    assert not reports


def test_a_guarded_function_gives_the_other_answer_once_it_failed(reports: list[str]) -> None:
    patches = Patches("hearing")
    answers = iter((1, 2))
    guarded = patches.guarded(lambda: next(answers) if not patches.is_off else 3, 0)
    assert [guarded(), guarded(), guarded(), guarded()] == [1, 2, 0, 0]
    assert len(reports) == 1


def test_a_hook_finds_who_called() -> None:
    found = list[types.FrameType]()
    patches = Patches("asking")
    patches.before(Owner, "add", lambda *_: found.append(calling_frame()))
    Owner().add(1)
    patches.remove()
    assert found[0].f_code.co_name == "test_a_hook_finds_who_called"
