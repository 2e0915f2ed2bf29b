"""A sample contains all constructs of the programs from which it is chosen."""

from __future__ import annotations

import pytest

from tests.compile_time import samples
from tests.compile_time.samples import Once, constructs_of, sample

SOURCES = {
    "adds": "x = 1 + y",
    "loops": "for each in x:\n    x = 1 + y",
    "subtracts": "x = 1 - y",
    "catches": "try:\n    x()\nexcept ValueError:\n    pass",
    "loops again": "for each in y:\n    pass",
}


@pytest.fixture
def everyday(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "WALKS", 0)


@pytest.mark.usefixtures("everyday")
def test_a_sample_has_every_construct() -> None:
    chosen = sample(SOURCES)
    assert chosen == ["loops", "subtracts", "catches"]
    constructs = set[str]().union(*(constructs_of(SOURCES[name]) for name in chosen))
    assert constructs == set[str]().union(*map(constructs_of, SOURCES.values()))


@pytest.mark.usefixtures("everyday")
def test_what_failed_once_is_taken() -> None:
    assert sample(SOURCES, always=["adds"]) == ["adds", "loops", "subtracts", "catches"]


@pytest.mark.usefixtures("everyday")
def test_once_is_once_for_each_kind() -> None:
    once = Once()
    assert [once.is_new(kind) for kind in ("a", "b", "a")] == [True, True, False]


def test_walks_take_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "WALKS", 1)
    once = Once()
    assert sample(SOURCES) == list(SOURCES)
    assert [once.is_new(kind) for kind in ("a", "a")] == [True, True]
