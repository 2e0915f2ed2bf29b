"""Reads pickles as data: an ``Inert`` with arguments and state represents each object that a pickle would make.

Reading imports no module and calls no function that a pickle names, so a pickle may come from anybody. Runs on one
thread.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from typing import Any


class Inert:
    """Represents an object that a pickle would make by calling ``made_by``, a class or function."""

    made_by = ""
    """The module and name of the class or function."""

    arguments: tuple[Any, ...]
    state: dict[str, Any]

    def __new__(cls, *arguments: object) -> Inert:
        """Keep the arguments: pickles make most objects without ``__init__``."""
        made = super().__new__(cls)
        made.arguments, made.state = arguments, {}
        return made

    def __setstate__(self, state: object) -> None:
        """Keep the attributes; those of a frozen dataclass with slots are a list, and become arguments."""
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                self.state = {**self.state, **part}
            elif isinstance(part, list):
                self.arguments = (*self.arguments, *part)

    def __call__(self, *arguments: object) -> Inert:
        """Represent the result of a call."""
        return Inert(self, *arguments)

    def append(self, item: object) -> None:
        """Keep an item of a list."""
        self.arguments = (*self.arguments, item)

    def extend(self, items: Iterable[object]) -> None:
        """Keep items of a list."""
        self.arguments = (*self.arguments, *items)

    def __setitem__(self, key: object, value: object) -> None:
        """Keep an item of a dictionary."""
        self.state[str(key)] = value


class _InertUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type[Inert]:
        """Return a class that does nothing, instead of importing the named one."""
        return type("Inert", (Inert,), {"made_by": f"{module}.{name}"})

    def persistent_load(self, key: object) -> Inert:
        """Represent an object that is stored outside of the pickle."""
        return Inert(key)


def read_inert(data: bytes) -> Any:
    """Return the content of a pickle.

    Raises:
        ValueError: the data is not a pickle.
    """
    try:
        return _InertUnpickler(io.BytesIO(data)).load()
    except Exception as error:  # noqa: BLE001  (a broken pickle may raise anything)
        raise ValueError(f"not a pickle: {error}") from None
