"""Decides which child processes to debug, and rewrites their command lines to start under the debugger.

The functions only read commands and stacks. They run on the thread that starts the process.
"""

from __future__ import annotations

import os
import re
import sys
import types
from collections.abc import Sequence

Argument = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_PYTHON = re.compile(r"(python|pypy)[\d.]*")
_WITH_VALUE = "WX"
"""Short options of the interpreter that take a value, in the same argument or the next."""
_LONG_WITH_VALUE = frozenset({"--check-hash-based-pycs"})
_WORKER = re.compile(r"from multiprocessing\.spawn import spawn_main")
"""Multiprocessing's command for a function of the program; other code on a command line belongs to a tool."""
_COMPILE_WORKER = re.compile(r"(^|/)torch[./]_inductor[./]compile_worker")
_TOOLS = frozenset({"pip", "ensurepip", "venv"})
"""Modules that run as programs without user code."""

_OWN = frozenset({"dynamo_dap", "debugpy", "pydevd", "_pydev_bundle", "_pydevd_bundle"})
_PROCESS_STARTERS = frozenset(
    {"os", "subprocess", "multiprocessing", "concurrent", "asyncio", "threading", "pty", "contextlib"}
)
"""Modules that start processes for their callers."""
_COMPILERS = frozenset({"torch", "functorch", "triton"})
_RUNNERS = ("torch.utils.data", "torch.multiprocessing", "torch.distributed", "torch.backends.xeon")
"""Parts of torch whose processes run the program: data loading workers, ranks, launchers."""


def is_for_program(maker: types.FrameType | None, *, is_fork: bool) -> bool:
    """Return whether the process that the frame ``maker`` starts runs the user's program.

    torch, Triton and the standard library start processes for their own purposes: probes, compile workers, bookkeeping.
    A process that the standard library forks runs the program's code, whichever module started it.
    """
    while maker is not None:
        name = str(maker.f_globals.get("__name__", ""))
        top = name.partition(".")[0]
        maker = maker.f_back
        if top in _OWN or top in _PROCESS_STARTERS or (is_fork and top in sys.stdlib_module_names):
            continue
        if top in _COMPILERS:
            return name.startswith(_RUNNERS)
        return top not in sys.stdlib_module_names
    return True


def debugged_command(command: Sequence[Argument], entry: str, invitation_file: str) -> list[str] | None:
    """Return ``command`` with the script ``entry`` in front of its program.

    Return None to leave a command unchanged: it does not start Python, runs no user code, or reads its program from
    stdin. Scripts, modules and workers of multiprocessing count as user code; other ``-c`` code does not.
    """
    arguments = [os.fsdecode(argument) for argument in command]
    if not arguments or not _PYTHON.fullmatch(os.path.basename(arguments[0])):
        return None
    position = 1
    while position < len(arguments):
        argument = arguments[position]
        if argument in _LONG_WITH_VALUE:
            position += 2
            continue
        if argument == "-" or argument.startswith("--"):
            return None
        if not argument.startswith("-"):
            own, target, rest = arguments[:position], [argument], arguments[position + 1 :]
            break
        options, kind, value = _read_short_options(argument)
        if kind in ("-c", "-m"):
            own, rest = [*arguments[:position], *options], arguments[position + 1 :]
            target = [kind, value] if value else [kind, *rest[:1]]
            rest = rest if value else rest[1:]
            break
        position += 2 if kind == "value" and not value else 1
    else:
        return None
    if target in (["-c"], ["-m"]) or target[-1] == entry or not _is_users(target):
        return None
    # The server also reads the child's output, so the child must not buffer it.
    unbuffered = ["-u"] if getattr(sys.__stdout__, "write_through", False) else []
    return [*own, *unbuffered, entry, "--child", invitation_file, *target, *rest]


def _is_users(target: Sequence[str]) -> bool:
    if target[0] == "-c":
        return bool(_WORKER.match(target[1]))
    return target[-1] not in _TOOLS and not _COMPILE_WORKER.search(target[-1])


def _read_short_options(argument: str) -> tuple[list[str], str, str]:
    """Split ``-qmNAME`` into the options before (``-q``), ``-m`` or ``-c``, and the rest of the argument.

    The kind is ``value`` for another option with a value, and empty if there is none.
    """
    for index, letter in enumerate(argument[1:], start=1):
        rest = argument[index + 1 :]
        if letter in "cm":
            return [argument[:index]] if index > 1 else [], f"-{letter}", rest
        if letter in _WITH_VALUE:
            return [], "value", rest
    return [], "", ""
