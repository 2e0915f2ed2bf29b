"""Gives code that Dynamo generates a separate file name.

Generated code carries the user's file name and lines, so any Python debugger mistakes it for the user's function. While
a ``GeneratedNames`` is installed, new generated code is called ``<generated 3: model.py>``; ``linecache`` holds the
text of the user's file under that name, so tracebacks keep their lines. Code generated before keeps its name. The hook
runs on the compiling thread; names live as long as the process.
"""

from __future__ import annotations

import linecache
import os
import types
from collections.abc import Callable
from typing import Any

from dynamo_dap.debuggee.torch_api.code_objects.new_code import NEEDS, on_new_code
from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.debuggee.wrapping.patches import Patches

NAMING = Feature("keeping debugpy out of generated code", *NEEDS)

_lock = lock("names of generated files", Level.DATA)
_name_of_path: dict[str, str] = {}
_path_of_name: dict[str, str] = {}


def is_generated(file_name: str) -> bool:
    """Return whether ``file_name`` belongs to generated code."""
    return file_name in _path_of_name


def users_path(file_name: str) -> str:
    """Return the user's file of generated code's ``file_name``; any other name unchanged."""
    return _path_of_name.get(file_name, file_name)


class _Constants(tuple[Any, ...]):
    """Constants of a code object, made hashable; code that saves them sees an ordinary tuple."""

    __slots__ = ()

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> tuple[type[tuple[object, ...]], tuple[list[object]]]:
        return tuple, (list(self),)


def _hashable(code: types.CodeType) -> types.CodeType:
    """Make ``code`` hashable, as debuggers expect.

    Dynamo makes constants of slices, which cannot be hashed before Python 3.12, and the hash of code includes them.
    """
    try:
        hash(code)
    except TypeError:
        return code.replace(co_consts=_Constants(code.co_consts))
    return code


class GeneratedNames:
    """The hook that assigns the names."""

    def __init__(self, on_new_name: Callable[[str], None], is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Call ``on_new_name`` with each name before any code has it; rename only code for which ``is_wanted``."""
        self._on_new_name = on_new_name
        self._is_wanted = is_wanted
        self._patches = Patches(NAMING.name)

    def install(self) -> None:
        """Install the hook; harmless if it is installed. Runs on any thread.

        Raises:
            FeatureMissing: this torch lacks a name that the hook needs.
        """
        if not self._patches.is_installed:
            on_new_code(self._patches, self._rename)

    def remove(self) -> None:
        """Remove the hook; harmless if it is not installed. Runs on any thread."""
        self._patches.remove()

    def _rename(self, original: types.CodeType, generated: types.CodeType, _: object) -> types.CodeType | None:
        if not self._is_wanted():
            return None  # the hook then changes nothing
        return _hashable(generated.replace(co_filename=self._name_for(original.co_filename)))

    def _name_for(self, path: str) -> str:
        if path in _path_of_name:  # a resume function's own code was named after generated code
            return path
        with _lock:
            name = _name_of_path.get(path)
            if name is None:
                name = f"<generated {len(_name_of_path)}: {os.path.basename(path).strip('<>')}>"
                lines = linecache.getlines(path)
                linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
                self._on_new_name(name)
                _path_of_name[name] = path
                _name_of_path[path] = name
        return name
