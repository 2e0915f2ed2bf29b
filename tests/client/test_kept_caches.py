"""A run of the tests does not load incomplete files that a killed program left in the cache."""

from __future__ import annotations

import _ctypes
from pathlib import Path

from tests.kept_caches import forget_torn_libraries


def test_torn_libraries_are_removed_and_whole_ones_stay(tmp_path: Path) -> None:
    whole = Path(_ctypes.__file__).read_bytes()
    for name, part in (("whole", whole), ("empty", b""), ("header", whole[:64]), ("torn", whole[:-64])):
        (tmp_path / f"{name}.so").write_bytes(part)
    forget_torn_libraries(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["whole.so"]
