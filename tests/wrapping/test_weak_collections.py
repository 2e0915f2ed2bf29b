"""Callbacks of weak collections of ours are code of ours, which Dynamo skips without counting."""

from __future__ import annotations

import re
import weakref

import pytest

from dynamo_dap.debuggee.wrapping import weak_collections
from tests.structure.sources import ADAPTER

_KINDS = ["WeakSet", "WeakKeyDictionary", "WeakValueDictionary"]


class _Thing:
    pass


@pytest.mark.parametrize("kind", _KINDS)
def test_an_entry_goes_with_its_object_in_code_that_the_library_does_not_share(kind: str) -> None:
    ours, theirs = (getattr(module, kind)() for module in (weak_collections, weakref))
    assert ours._remove.__code__ is not theirs._remove.__code__
    assert ours._remove.__code__.co_filename == weak_collections.__file__
    kept, gone = _Thing(), _Thing()
    for thing in (kept, gone):
        if kind == "WeakSet":
            ours.add(thing)
        elif kind == "WeakKeyDictionary":
            ours[thing] = 1
        else:
            ours[id(thing)] = thing
    assert len(ours) == 2
    del gone, thing
    assert len(ours.data) == 1


def test_the_debuggee_uses_no_weak_collection_of_the_library() -> None:
    inside = ADAPTER / "dynamo_dap" / "debuggee"
    found = [
        str(path.relative_to(inside))
        for path in inside.rglob("*.py")
        if path.name != "weak_collections.py" and re.search(r"weakref(\.| import .*)Weak", path.read_text("utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [*zip(_KINDS, ["_remove_from_set", "_remove_key", "_remove_value"], strict=True)],
)
def test_a_python_that_keeps_its_callback_elsewhere_keeps_it(
    kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weak_collections, name, weak_collections._own_copy(object()))
    ours, theirs = (getattr(module, kind)() for module in (weak_collections, weakref))
    assert ours._remove.__code__ is theirs._remove.__code__
