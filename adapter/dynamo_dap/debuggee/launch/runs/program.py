"""Runs a program as ``python`` would: a file, a module, or code, as ``__main__``.

Runs on the main thread. The program's traceback shows no frame of the debugger, and the user's file and lines for
generated code. The program exits as without a debugger.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import io
import os
import pkgutil
import runpy
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from dynamo_dap.debuggee.torch_api.code_objects.generated_names import users_path
from dynamo_dap.protocol.requests.contract import ENTRY

CODE_FILENAME = "<string>"

_CACHED: dict[str, object] = {"__cached__": None} if sys.version_info < (3, 15) else {}
"""Names that Python before 3.15 also puts into ``__main__``."""


@dataclass(frozen=True)
class Program:
    """The program of Python's command line: exactly one of ``program``, ``module`` and ``code``.

    ``program`` is a file, a directory, a zip file, or ``-`` for standard input.
    """

    program: str | None
    module: str | None
    code: str | None
    args: list[str]


def run(
    program: Program, before: Callable[[str], None], on_end: Callable[[BaseException], None] = lambda error: None
) -> None:
    """Run ``program``. ``before`` gets its code's file name before the run, ``on_end`` the final exception.

    Exceptions end the process as they would without a debugger.
    """
    uncaught: BaseException | None = None
    try:
        code = _prepare(program)
        before(code.co_filename)
        exec(code, sys.modules["__main__"].__dict__)
    except BaseException as error:
        error.__traceback__ = _without_own_frames(error.__traceback__)
        on_end(error)
        if isinstance(error, KeyboardInterrupt):
            # The interpreter prints the traceback, then ends by the signal: only the traceback is changed here.
            sys.excepthook = _reporting_without_own_frames(sys.excepthook)
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        uncaught = error
    if uncaught is not None:
        # Outside the handler: otherwise sys.excepthook would see the error as the context of its own exceptions.
        _end_with(uncaught)


def _end_with(error: BaseException) -> NoReturn:
    """Report an uncaught exception as the interpreter would, and exit."""
    problem: Exception | None = None
    try:
        _reporting_without_own_frames(sys.excepthook)(type(error), error, error.__traceback__)
    except Exception as raised:  # noqa: BLE001  (as Python/pythonrun.c: _PyErr_PrintEx)
        problem = raised
    if problem is not None:
        report = _reporting_without_own_frames(sys.__excepthook__)
        sys.stderr.write("Error in sys.excepthook:\n")
        report(type(problem), problem, problem.__traceback__)
        sys.stderr.write("\nOriginal exception was:\n")
        report(type(error), error, error.__traceback__)
    main = sys.modules.get("__main__")
    if isinstance(main, types.ModuleType) and getattr(main, "__spec__", main) is None:
        # A script: the interpreter removes the name before functions of atexit run.
        vars(main).pop("__file__", None)
    sys.exit(1)


_Hook = Callable[[type[BaseException], BaseException, "types.TracebackType | None"], object]


def _reporting_without_own_frames(hook: _Hook) -> _Hook:
    def report(kind: type[BaseException], error: BaseException, entry: types.TracebackType | None) -> None:
        shown = _without_own_frames(entry)
        error = error.with_traceback(shown)
        if hook is sys.__excepthook__ and any(users_path(name) != name for name in _files(shown)):
            _print(error)
        else:
            hook(kind, error, shown)

    return report


def _print(error: BaseException) -> None:
    """Print an exception as the interpreter does, with generated code in the user's file, as torch shows it.

    The interpreter reads lines only from files, and the code's own file name has none.
    """
    reported = traceback.TracebackException(type(error), error, error.__traceback__, compact=True)
    left: list[traceback.TracebackException | None] = [reported]
    while left:
        each = left.pop()
        if each is not None:
            for frame in each.stack:
                frame.filename = users_path(frame.filename)
            left += [each.__cause__, each.__context__, *(getattr(each, "exceptions", None) or ())]
    sys.stderr.write("".join(reported.format()))


def _files(entry: types.TracebackType | None) -> Iterator[str]:
    while entry is not None:
        yield entry.tb_frame.f_code.co_filename
        entry = entry.tb_next


def _without_own_frames(entry: types.TracebackType | None) -> types.TracebackType | None:
    """Leave out frames that ran the program, and the debugger's frames between its functions and torch's."""
    entries: list[types.TracebackType] = []
    while entry is not None:
        if not _is_machinery(entry.tb_frame.f_code.co_filename, is_first=not entries):
            entries.append(entry)
        entry = entry.tb_next
    shown: types.TracebackType | None = None
    for each in reversed(entries):
        shown = types.TracebackType(shown, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return shown


_RUNNERS = frozenset(str(one.__file__) for one in (runpy, importlib.util, pkgutil))
"""The files of modules that run programs, if the standard library's modules are not frozen."""
_THAWED = ["-X", "frozen_modules=off"]
"""The server's additional options for the interpreter; ``Job.debugged_command``."""
_OWN_PACKAGE = os.path.join(os.path.dirname(str(sys.modules[__name__.partition(".")[0]].__file__)), "")
_OWN_MODULES = f"{__package__.partition('.')[0]}."


def _is_machinery(filename: str, *, is_first: bool) -> bool:
    return filename.startswith(_OWN_PACKAGE) or (
        is_first and (filename.startswith(("<frozen importlib", "<frozen runpy")) or filename in _RUNNERS)
    )


def _prepare(program: Program) -> types.CodeType:
    """Set up ``sys.argv``, ``sys.path`` and ``__main__``, and return the code to run.

    The steps and their order are those of ``pymain_run_python`` in CPython's ``Modules/main.c``.
    """
    _restore_command_line(program)
    main = _empty_main()
    if program.module is not None:
        sys.argv = ["-m", *program.args]
        if not program.module.startswith(_OWN_MODULES):
            # A module of the debugger imports nothing from the current folder.
            _add_path(os.getcwd())
        code = _code_of_module(program.module)
        sys.argv[0] = code.co_filename
        return code
    if program.code is not None:
        sys.argv = ["-c", *program.args]
        _add_path("")
        return compile(program.code, CODE_FILENAME, "exec", dont_inherit=True)
    assert program.program is not None
    sys.argv = [program.program, *program.args]
    if program.program == "-":
        _add_path("")
        vars(main).update(__file__="<stdin>", **_CACHED)
        return compile(sys.stdin.buffer.read(), "<stdin>", "exec", dont_inherit=True)
    path = os.getcwd() if program.program == "." else os.path.join(os.getcwd(), program.program)
    if pkgutil.get_importer(path) is not None:  # a directory or a zip file, whatever its name
        sys.path.insert(0, path)
        return _code_of_module(None)
    _add_path(os.path.dirname(os.path.realpath(path)))
    return _code_of_file(path)


def _restore_command_line(program: Program) -> None:
    """Make ``sys.orig_argv`` a command that starts this program again: programs run it with other options."""
    for index, argument in enumerate(sys.orig_argv):
        if argument == ENTRY:
            own = sys.orig_argv[:index]
            if own[-2:] == _THAWED and "frozen_modules" not in sys._xoptions:
                own = own[:-2]
            kind = ["-m", program.module] if program.module is not None else ["-c", program.code]
            target = [program.program] if program.program is not None else kind
            sys.orig_argv = [*own, *(one for one in target if one is not None), *program.args]
            return


def _add_path(folder: str) -> None:
    """Put the program's folder first, unless this interpreter was asked not to (``-P``, ``-I``)."""
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):
        sys.path.insert(0, folder)


def _code_of_file(path: str) -> types.CodeType:
    loader: type[importlib.machinery.SourceFileLoader] | type[importlib.machinery.SourcelessFileLoader]
    loader = importlib.machinery.SourceFileLoader
    try:
        # Read it like an imported module: a tried edit replaces the file.
        content = loader("__main__", path).get_data(path)
    except OSError as error:
        sys.stderr.write(f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}\n")
        sys.exit(2)
    is_compiled = path.endswith(".pyc") or content[:2] == importlib.util.MAGIC_NUMBER[:2]
    if is_compiled:
        loader = importlib.machinery.SourcelessFileLoader
    vars(sys.modules["__main__"]).update(__file__=path, **_CACHED, __loader__=loader("__main__", path))
    if not is_compiled:
        return compile(content, path, "exec", dont_inherit=True)
    code = pkgutil.read_code(io.BytesIO(content))
    if code is None:
        raise RuntimeError("Bad magic number in .pyc file")
    assert isinstance(code, types.CodeType)
    return code


def _code_of_module(name: str | None) -> types.CodeType:
    """Return a module's code; without a name, that of ``__main__`` in the first directory on ``sys.path``."""
    # runpy has no public function that finds a module without running it.
    private: Any = runpy
    try:
        if name is None:
            _, spec, code = private._get_main_module_details(private._Error)
        else:
            _, spec, code = private._get_module_details(name, private._Error)
    except private._Error as error:
        sys.exit(f"{sys.executable}: {error}")
    # At its end, the interpreter removes __file__ from a script's module only.
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    vars(main).update(_names_of_new_main())
    nothing = compile("", spec.origin, "exec")
    private._run_code(nothing, vars(main), None, "__main__", spec)  # sets the module's attributes
    assert isinstance(code, types.CodeType)
    return code


def _empty_main() -> types.ModuleType:
    """Return the interpreter's ``__main__`` in its state before the script."""
    main = sys.modules["__main__"]
    vars(main).clear()
    vars(main).update(
        __name__="__main__",
        __doc__=None,
        __package__=None,
        __loader__=importlib.machinery.BuiltinImporter,
        __spec__=None,
        **_names_of_new_main(),
    )
    return main


def _names_of_new_main() -> dict[str, object]:
    """Return the interpreter's names in each ``__main__`` (Python/pylifecycle.c: add_main_module)."""
    annotations: dict[str, object] = {} if sys.version_info >= (3, 14) else {"__annotations__": {}}
    return {**annotations, "__builtins__": builtins}
