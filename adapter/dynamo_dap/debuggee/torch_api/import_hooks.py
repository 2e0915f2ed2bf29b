"""Reports when the program imports a module of torch, without importing it.

Torch takes seconds to import, and a program may set environment variables first: the debugger waits until the program
imports the module that it hooks into. A finder at the front of ``sys.meta_path`` watches for that module, and removes
itself once it is imported. Runs on whichever thread imports.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., object])

_IMPORTLIB = "<frozen importlib._bootstrap>"
"""The name by which CPython recognizes its own frames, to leave them out of tracebacks (``remove_importlib_frames``).
"""


def when_imported(name: str, callback: Callable[[], object]) -> Callable[[], None]:
    """Call ``callback`` once the module ``name`` has been executed, at once if it already was.

    A second request with the same arguments has no effect, so each debugger that attaches may make it.

    Returns:
        A function that ends the notification.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        callback()
        return lambda: None
    known = (each for each in sys.meta_path if isinstance(each, _Watcher) and each.watches_for(name, callback))
    watcher = next(known, None)
    if watcher is None:
        watcher = _Watcher(name, callback)
        sys.meta_path.insert(0, watcher)
    return watcher.stop


def while_torch_is_imported(report: Callable[[str, bool], None]) -> None:
    """Call ``report`` with the name of a slow part of torch when its import begins, and with True at its end.

    Parts that are imported already are not reported.
    """
    for name in ("torch", "torch._dynamo"):
        if name not in sys.modules:
            sys.meta_path.insert(0, _Watcher(name, lambda: None, functools.partial(report, name)))


def while_modules_are_imported(report: Callable[[str, bool], None]) -> Callable[[], None]:
    """Call ``report`` with the name of each module when its import begins, and with True at its end.

    Modules that are imported already are not reported. ``report`` must not raise.

    Returns:
        A function that ends the reports.
    """
    importlib_itself: Any = sys.modules["_frozen_importlib"]
    original = importlib_itself._find_and_load

    @_as_part_of_imports
    def _find_and_load(name: str, import_: object) -> object:
        report(name, False)
        try:
            return original(name, import_)
        finally:
            report(name, True)

    def end() -> None:
        if importlib_itself._find_and_load is _find_and_load:
            importlib_itself._find_and_load = original

    importlib_itself._find_and_load = _find_and_load
    return end


def when_dynamo_is_imported(callback: Callable[[], object]) -> Callable[[], None]:
    """Call ``callback`` once, when the program has imported the module that compiles frames (``when_imported``)."""
    return when_imported("torch._dynamo.convert_frame", callback)


def when_all_of_dynamo_is_imported(callback: Callable[[], None]) -> None:
    """Call ``callback`` once, when all of Dynamo is imported. Other parts of torch may not be complete then."""
    when_imported(_DYNAMO, callback)


def is_dynamo_imported() -> bool:
    """Return whether the program has completely imported Dynamo."""
    module = sys.modules.get(_DYNAMO)
    return module is not None and not getattr(module.__spec__, "_initializing", False)


_DYNAMO = "torch._dynamo"


class _Watcher(importlib.abc.MetaPathFinder):
    """Finds one module with the other finders, and wraps its loader to report when the import begins and ends."""

    def __init__(
        self, name: str, callback: Callable[[], object], report: Callable[[bool], None] = lambda is_done: None
    ) -> None:
        self._name = name
        self._callback = callback
        self._report = report
        self._searching = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Answer only for the watched module, and only once."""
        if fullname != self._name or getattr(self._searching, "active", False):
            return None
        self._searching.active = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching.active = False
        if spec is None or spec.loader is None:
            return None
        spec.loader = _ReportingLoader(spec.loader, self._report, self._imported)
        return spec

    def watches_for(self, name: str, callback: Callable[[], object]) -> bool:
        """Return whether it watches for this module, and calls this function."""
        return (self._name, self._callback) == (name, callback)

    def stop(self) -> None:
        """Stop watching."""
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)

    def _imported(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._callback()


def _as_part_of_imports(function: F) -> F:
    """Leave ``function`` out of tracebacks of failing imports, as Python leaves out its own frames around it."""
    assert isinstance(function, types.FunctionType)
    function.__code__ = function.__code__.replace(co_filename=_IMPORTLIB)
    return function


class _ReportingLoader(importlib.abc.Loader):
    """Reports the import of a module, calls the module's own loader, and then restores it as the module's loader."""

    def __init__(
        self, loader: importlib.abc.Loader, report: Callable[[bool], None], imported: Callable[[], None]
    ) -> None:
        self._loader = loader
        self._report = report
        self._imported = imported

    def __getattr__(self, name: str) -> object:
        # Libraries with optional support for torch read its spec first, and then attributes of the original loader.
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)

    @_as_part_of_imports
    def exec_module(self, module: types.ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._report(False)
        try:
            self._loader.exec_module(module)
        finally:
            self._report(True)
        self._imported()
