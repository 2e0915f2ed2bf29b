"""Runs a program as ``python`` would run it: a file, a module, or code, as ``__main__``.

Main thread. The program's traceback shows no frame of the debugger, and the user's file and lines for generated code;
it exits as it would without one.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from dynamo_dap.debuggee.torch_api.generated_names import users_path

CODE_FILENAME = "<string>"


@dataclass(frozen=True)
class Program:
    """What to run: exactly one of ``program`` (a file, directory or zip file), ``module`` and ``code``."""

    program: str | None
    module: str | None
    code: str | None
    args: list[str]


def run(
    program: Program, before: Callable[[str], None], on_end: Callable[[BaseException], None] = lambda error: None
) -> None:
    """Run ``program``. ``before`` is told the file name of its code right before it runs, ``on_end`` what ended it.

    Exceptions end the process as they would without a debugger.
    """
    try:
        code = _prepare(program)
        before(code.co_filename)
        exec(code, sys.modules["__main__"].__dict__)
    except BaseException as error:
        error.__traceback__ = _without_own_frames(error.__traceback__)
        on_end(error)
        if isinstance(error, KeyboardInterrupt):
            # The interpreter ends by the signal then, after it has told: only that is ours to do.
            sys.excepthook = _telling_without_own_frames(sys.excepthook)
        elif not isinstance(error, SystemExit):
            _end_with(error)
        raise


def _end_with(error: BaseException) -> NoReturn:
    """Report an uncaught exception as the interpreter would, and exit."""
    _telling_without_own_frames(sys.excepthook)(type(error), error, error.__traceback__)
    sys.exit(1)


_Hook = Callable[[type[BaseException], BaseException, "types.TracebackType | None"], object]


def _telling_without_own_frames(hook: _Hook) -> _Hook:
    def tell(kind: type[BaseException], error: BaseException, entry: types.TracebackType | None) -> None:
        shown = _without_own_frames(entry)
        error = error.with_traceback(shown)
        if hook is sys.__excepthook__ and any(users_path(name) != name for name in _files(shown)):
            _print(error)
        else:
            hook(kind, error, shown)

    return tell


def _print(error: BaseException) -> None:
    """Print an exception as the interpreter does, with generated code in the user's file as torch has it.

    The interpreter takes lines from files alone, and there is none of the name that the code has meanwhile.
    """
    told = traceback.TracebackException(type(error), error, error.__traceback__, compact=True)
    left: list[traceback.TracebackException | None] = [told]
    while left:
        each = left.pop()
        if each is not None:
            for frame in each.stack:
                frame.filename = users_path(frame.filename)
            left += [each.__cause__, each.__context__, *(getattr(each, "exceptions", None) or ())]
    sys.stderr.write("".join(told.format()))


def _files(entry: types.TracebackType | None) -> Iterator[str]:
    while entry is not None:
        yield entry.tb_frame.f_code.co_filename
        entry = entry.tb_next


def _without_own_frames(entry: types.TracebackType | None) -> types.TracebackType | None:
    """Leave out what ran the program, and what the debugger put between its functions and torch's."""
    entries: list[types.TracebackType] = []
    while entry is not None:
        if not _is_machinery(entry.tb_frame.f_code.co_filename, is_first=not entries):
            entries.append(entry)
        entry = entry.tb_next
    shown: types.TracebackType | None = None
    for each in reversed(entries):
        shown = types.TracebackType(shown, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return shown


_OWN_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


_OWN_MODULES = f"{__package__.partition('.')[0]}."


def _is_machinery(filename: str, *, is_first: bool) -> bool:
    return filename.startswith(_OWN_PACKAGE) or (
        is_first and filename.startswith(("<frozen importlib", "<frozen runpy"))
    )


def _prepare(program: Program) -> types.CodeType:
    """Set up ``sys.argv``, ``sys.path`` and ``__main__``, and return the code to run."""
    if program.module is not None:
        return _prepare_module(program.module, program.args)
    if program.code is not None:
        sys.argv = ["-c", *program.args]
        sys.path.insert(0, "")
        _new_main(None, None)
        return compile(program.code, CODE_FILENAME, "exec", dont_inherit=True)
    assert program.program is not None
    return _prepare_file(os.path.abspath(program.program), program.args)


def _prepare_file(path: str, args: list[str]) -> types.CodeType:
    sys.argv = [path, *args]
    if os.path.isdir(path) or path.endswith((".zip", ".pyz")):
        sys.path.insert(0, path)
        return _code_of_module("__main__", None)
    sys.path.insert(0, os.path.dirname(path))
    _new_main(path, None)
    # As the import of a module would: an edit that is tried is read in the file's place.
    source = importlib.machinery.SourceFileLoader("__main__", path).get_data(path)
    return compile(source, path, "exec", dont_inherit=True)


def _prepare_module(name: str, args: list[str]) -> types.CodeType:
    if not name.startswith(_OWN_MODULES):
        # A module of the debugger's imports nothing of the folder in which it happens to be started.
        sys.path.insert(0, os.getcwd())
    sys.argv = ["-m", *args]
    code = _code_of_module(name, name)
    sys.argv[0] = code.co_filename
    return code


def _code_of_module(name: str, asked_for: str | None) -> types.CodeType:
    # __main__ is this process's own entry script until now; it must not be taken for the program's.
    sys.modules.pop("__main__", None) if name == "__main__" else None
    spec = _find(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name += ".__main__"
        spec = _find(name)
    code = _code_of(spec)
    if spec is None or code is None:
        _new_main(None, None)
        sys.stderr.write(f"{sys.executable}: No module named {asked_for or name}\n")
        sys.exit(1)
    _new_main(spec.origin, spec)
    return code


def _find(name: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None


def _code_of(spec: importlib.machinery.ModuleSpec | None) -> types.CodeType | None:
    get_code = getattr(spec.loader, "get_code", None) if spec is not None else None
    return get_code(spec.name) if get_code is not None and spec is not None else None


def _new_main(path: str | None, spec: importlib.machinery.ModuleSpec | None) -> None:
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = __builtins__
    if sys.version_info < (3, 14):  # as Python/pylifecycle.c: add_main_module
        vars(module)["__annotations__"] = {}
    module.__spec__ = spec
    if spec is not None:
        module.__package__ = spec.parent
        module.__loader__ = spec.loader
    else:
        module.__package__ = None
    if path is not None:
        module.__file__ = path
        module.__dict__["__cached__"] = None
    sys.modules["__main__"] = module
