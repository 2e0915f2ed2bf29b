"""Puts other state into an object, and restores the previous state."""

from __future__ import annotations

from collections import Counter, defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from dynamo_dap.debuggee.torch_api.swaps import Swap


def test_an_attribute_has_its_value_again_whatever_it_got_meanwhile() -> None:
    owner = SimpleNamespace(value=1)
    with Swap() as swap:
        swap.set(owner, "value", 2)
        swap.set(owner, "value", 3)
        owner.value = 4
    assert owner.value == 1


def test_a_static_method_stays_one() -> None:
    class Owner:
        @staticmethod
        def answer() -> int:
            return 1

    with Swap() as swap:
        swap.set(Owner, "answer", staticmethod(lambda: 2))
        assert Owner().answer() == 2
    assert Owner().answer() == 1


def test_items_that_were_absent_are_absent_again() -> None:
    fields = {"one": 1, "other": 5}
    swap = Swap()
    swap.update(fields, {"one": 2, "two": 2})
    assert fields == {"one": 2, "two": 2, "other": 5}
    fields["other"] = 6
    swap.revert()
    assert fields == {"one": 1, "other": 6}
    swap.revert()
    assert fields == {"one": 1, "other": 6}


@pytest.mark.parametrize("container", [[3, 1, 2], {"b": 1, "a": 2}, {1, 2}, Counter({"a": 2})])
def test_a_container_stays_the_same_object(container: Any) -> None:
    before = container.copy()
    with Swap() as swap:
        swap.fill(container, type(container)())
        assert not container
    assert container == before
    assert list(container) == list(before)


def test_containers_in_a_container_have_their_contents_again() -> None:
    counters: defaultdict[str, Counter[str]] = defaultdict(Counter)
    counters["frames"]["ok"] = 2
    frames = counters["frames"]
    with Swap() as swap:
        swap.keep(counters, levels=2)
        counters["frames"]["ok"] += 1
        counters["breaks"]["new"] = 1
        del counters["frames"]
    assert counters == {"frames": {"ok": 2}}
    assert counters["frames"] is frames


def test_one_part_that_fails_leaves_no_other_behind() -> None:
    class Refusing:
        value = 1

        def __setattr__(self, name: str, value: object) -> None:
            if value == 1:
                raise ValueError("not again")
            super().__setattr__(name, value)

    owner = SimpleNamespace(value=1)
    swap = Swap()
    swap.set(owner, "value", 2)
    swap.set(Refusing(), "value", 2)
    with pytest.raises(ValueError, match="not again"):
        swap.revert()
    assert owner.value == 1
