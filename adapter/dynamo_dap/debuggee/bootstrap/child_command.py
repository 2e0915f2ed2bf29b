"""The command line of a child process, rewritten so that the child begins as a debugged program. Pure functions."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

Argument = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_PYTHON = re.compile(r"(python|pypy)[\d.]*")
_WITH_VALUE = "WX"
"""Short options of the interpreter that take a value, in the same argument or the next."""
_LONG_WITH_VALUE = frozenset({"--check-hash-based-pycs"})
_NOT_THE_USERS = re.compile(
    r"""
    from\ multiprocessing\.(resource_tracker|semaphore_tracker)\ import  # bookkeeping of multiprocessing
    | (^|/)torch[./]_inductor[./]compile_worker                          # Inductor's compilers
    """,
    re.VERBOSE,
)


def debugged_command(command: Sequence[Argument], entry: str, invitation_file: str) -> list[str] | None:
    """Return ``command`` with the script ``entry`` in front of what it runs.

    None when it is to stay as it is: it does not start Python, or nothing of the user's, or reads its program from
    stdin.
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
    if target in (["-c"], ["-m"]) or target[-1] == entry or _NOT_THE_USERS.search(target[-1]):
        return None
    return [*own, entry, "--child", invitation_file, *target, *rest]


def _read_short_options(argument: str) -> tuple[list[str], str, str]:
    """Split ``-qmNAME`` into the options before (``-q``), ``-m`` or ``-c``, and what follows in the same argument.

    The kind is ``value`` for another option with a value, and empty when there is none.
    """
    for index, letter in enumerate(argument[1:], start=1):
        rest = argument[index + 1 :]
        if letter in "cm":
            return [argument[:index]] if index > 1 else [], f"-{letter}", rest
        if letter in _WITH_VALUE:
            return [], "value", rest
    return [], "", ""
