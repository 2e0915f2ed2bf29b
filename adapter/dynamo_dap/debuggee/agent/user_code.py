"""Classifies files: the user's own code, torch, and other installed packages.

Pure functions over paths, cached for the life of the process. They run on any thread.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import types

_OWN_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@functools.lru_cache(maxsize=4096)
def normalized_path(path: str) -> str:
    """Return a path by which files are compared: absolute, without symbolic links, in lower case on Windows.

    Names in angle brackets (``<string>``, ``<frozen ...>``) are not files; they stay as they are.
    """
    if path.startswith("<") and path.endswith(">"):
        return path
    try:
        return os.path.normcase(os.path.realpath(path))
    except ValueError:  # a null character, which no file's name has
        return path


_LAUNCH = normalized_path(os.path.join(_OWN_PACKAGE, "debuggee", "launch"))
_STARTING, _CALLING = os.path.join(_LAUNCH, "starting", ""), os.path.join(_LAUNCH, "runs", "program.py")


@functools.lru_cache(maxsize=1)
def _library_directories() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = {sysconfig.get_path(name) for name in names}
    return tuple(sorted(normalized_path(path) + os.sep for path in paths if path))


@functools.lru_cache(maxsize=4096)
def is_user_file(path: str) -> bool:
    """Return whether ``path`` (a ``co_filename``) is code that the user wrote.

    Installed packages, the standard library and the debugger are not.
    """
    if path.startswith("<"):
        return path == "<string>" or path.startswith("<ipython")
    real = normalized_path(path)
    if real.startswith(_OWN_PACKAGE + os.sep) or is_torch_file(path) or _is_of("triton", real):
        return False
    if f"{os.sep}site-packages{os.sep}" in real or f"{os.sep}dist-packages{os.sep}" in real:
        return False
    return not real.startswith(_library_directories())


@functools.lru_cache(maxsize=4096)
def is_package_file(path: str) -> bool:
    """Return whether ``path`` belongs to an installed package other than torch and the debugger."""
    real = normalized_path(path)
    is_installed = f"{os.sep}site-packages{os.sep}" in real or f"{os.sep}dist-packages{os.sep}" in real
    return is_installed and not is_torch_file(path) and not is_debugger_file(path)


@functools.lru_cache(maxsize=4096)
def replaces_builtin(path: str) -> bool:
    """Return whether ``path`` (a ``co_filename``) is Python code that replaces a builtin; steps skip it.

    Where the program calls ``any`` or ``itertools.chain``, Dynamo traces a polyfill. Polyfills call modules that are
    frozen into the interpreter.
    """
    if path.startswith("<frozen "):
        return True
    real = normalized_path(path)
    if os.path.basename(real) == "_collections_abc.py" and real.startswith(_library_directories()):
        return True  # frozen from Python 3.11 on
    directory = _directory_of("torch")
    return directory is not None and real.startswith(os.path.join(directory, "_dynamo", "polyfills") + os.sep)


def is_debugger_file(path: str) -> bool:
    """Return whether ``path`` is a file of the debugger."""
    return normalized_path(path).startswith(_OWN_PACKAGE + os.sep)


def starts_program(code: types.CodeType) -> bool:
    """Return whether ``code`` starts the program or its debuggers, in a launched process or a child process."""
    return normalized_path(code.co_filename).startswith(_STARTING)


def calls_program(code: types.CodeType) -> bool:
    """Return whether ``code`` is the function that calls the program's own code, in such a process."""
    return code.co_name == "run" and normalized_path(code.co_filename) == _CALLING


def is_torch_file(path: str) -> bool:
    """Return whether ``path`` belongs to the imported torch package."""
    return _is_of("torch", normalized_path(path))


def _is_of(package: str, real: str) -> bool:
    """Return whether ``real`` is in an imported package's folder, which may be a checkout of torch."""
    directory = _directory_of(package)
    return directory is not None and real.startswith(directory)


def _directory_of(package: str) -> str | None:
    file = getattr(sys.modules.get(package), "__dict__", {}).get("__file__")  # may be a lazy module, or None
    return normalized_path(os.path.dirname(file)) + os.sep if file else None
