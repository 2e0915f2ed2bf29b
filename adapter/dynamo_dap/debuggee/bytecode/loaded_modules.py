"""Reads modules that the program has imported, without running their code.

A lazy module imports something when an attribute is missing, and may raise: ``getattr`` is not safe on modules. Nor is
everything in ``sys.modules`` a module. Runs on any thread.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator


def namespace_of(module: object) -> dict[str, object]:
    """Return the names in a module; empty for an object in ``sys.modules`` that is not a module."""
    if not issubclass(type(module), types.ModuleType):
        return {}
    # A subclass may override ``__getattribute__`` and ``__dict__``.
    namespace: dict[str, object] | None = types.ModuleType.__getattribute__(module, "__dict__")
    return namespace or {}


def file_of(module: object) -> str | None:
    """Return the path in a module's ``__file__``; None if it has none."""
    path = namespace_of(module).get("__file__")
    return path if isinstance(path, str) else None


def loaded_files() -> Iterator[tuple[str, str, dict[str, object]]]:
    """Yield name, path and names of each module that came from a file."""
    for name, module in list(sys.modules.items()):
        if (path := file_of(module)) is not None:
            yield name, path, namespace_of(module)
