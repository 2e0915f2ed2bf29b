"""Replaces state in torch's objects, and restores it later.

A ``Swap`` notes each part before it changes it. ``revert`` restores the parts in reverse order, whatever they contain
by then. Containers stay the same objects, since others hold them. Runs on any thread; lives as long as the replacement.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any


def refill(container: Any, contents: Any) -> None:
    """Restore the contents of a container, which stays the same object."""
    container.clear()
    container.extend(contents) if isinstance(container, list | deque) else container.update(contents)


class Swap(ExitStack):
    """Changed parts of objects, and their state before. It is reverted at the end of its context."""

    def set(self, owner: object, name: str, value: object) -> None:
        """Set an attribute."""
        # Read from a class, a static method would be its function.
        before = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
        self.callback(setattr, owner, name, before)
        setattr(owner, name, value)

    def update(self, container: dict[str, Any], items: Mapping[str, object]) -> None:
        """Set items of a dictionary; its other items stay as they are."""
        before = {name: container[name] for name in items if name in container}
        self.callback(_restore, container, before, items.keys() - before.keys())
        container.update(items)

    def fill(self, container: object, contents: object) -> None:
        """Replace a container's contents."""
        self.keep(container)
        refill(container, contents)

    def keep(self, container: Any, *, levels: int = 1) -> None:
        """Restore a container's contents in the end; with two ``levels``, also those of the containers in it."""
        before = container.copy()
        self.callback(refill, container, before)
        if levels > 1:
            for each in before.values():
                self.keep(each, levels=levels - 1)

    def revert(self) -> None:
        """Restore all parts, and forget them; if one cannot be restored, the others still are."""
        self.close()


def _restore(container: dict[str, object], before: Mapping[str, object], added: set[str]) -> None:
    for name in added:
        container.pop(name, None)
    container.update(before)
