"""Removes addresses, times and other parts that vary between processes from the texts of a run.

It has no side effects.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePath

from dynamo_dap.records.events import Record
from dynamo_dap.records.model import Compile, Graph, Guard, Node, Place

_OBJECT_IDS = re.compile(r"(?P<before>___check_(?:obj|type)_id\(.*, )\d+(?=\))")
_MODULE_FILE = re.compile(r"(?P<module><module '[^']*') from '[^']*'>")
_TYPE = re.compile(r"(?<=, \.\.\.\)), type=.*", re.DOTALL)
_MARKER = re.compile(r"^(?:not )?hasattr\(.*, '_dynamo_\w+'\)")
"""A guard on one of torch's own marks on tensors."""
_ADDRESSES = re.compile(r"\b0x[0-9a-f]{5,}\b")
_GENERATED = re.compile(r"(?P<name>__builtins_dict___|__compiled_fn_|__resume_at_)[\da-f_]+")
_LINE = re.compile(r"at line \d+")
_TIME = re.compile(r"\b\d+(?:\.\d+)?(?:e-?\d+)?\s?(?:s|ms|us|\u00b5s|ns|sec|secs|seconds|it/s)\b")
_TEMPORARY = re.compile(r"/tmp/[\w./-]+")

PROGRAM = "the program"
"""Replaces the path of the program's file."""


def normal_guard(guard: Guard) -> str:
    """Return a guard's expression without object ids; keep the numbers of the user's own comparisons."""
    text = _OBJECT_IDS.sub(r"\g<before>...", guard.expression)
    # The file of a module differs between environments.
    text = _MODULE_FILE.sub(r"\g<module>>", text)
    return _GENERATED.sub(r"\g<name>...", _ADDRESSES.sub("0x...", text))


def guard_of_any_torch(guard: Guard) -> str | None:
    """Return a guard's expression without parts whose wording depends on torch's version; None if nothing is left."""
    if guard.expression.startswith("___check_global_state(") or _MARKER.search(guard.expression):
        return None
    return _TYPE.sub("", normal_guard(guard))


def normal_name(compiled: Compile) -> str:
    """Return a compile's name without the line at which a function is resumed."""
    return _LINE.sub("at a line", compiled.name)


def normal_text(text: str) -> str:
    """Return a torch message without lines and addresses."""
    return _LINE.sub("at a line", _ADDRESSES.sub("0x...", text))


def normal_output(line: str) -> str:
    """Return a line that the program printed, without times, addresses and temporary paths."""
    return _TEMPORARY.sub("/tmp/...", _ADDRESSES.sub("0x...", _TIME.sub("# s", line)))


def normal_path(record: Record, path: str, *, is_program_known: bool = True) -> str:
    """Return a path relative to the program's folder, which is equal in two checkouts.

    The program's own file gets one name if both runs know it, since two versions of it may have different names.
    """
    started = record.started
    folder = started.cwd if started is not None else ""
    if is_program_known and started is not None and started.program and str(Path(folder, started.program[0])) == path:
        return PROGRAM
    if folder and path.startswith(folder.rstrip(os.sep) + os.sep):
        return path[len(folder.rstrip(os.sep)) + 1 :]
    return PurePath(path).name


def line_identity(record: Record, place: Place | None) -> str | None:
    """Return the digest of a line's text, so that moved lines are the same; None if it was not recorded."""
    if place is None:
        return None
    digests = record.sources.get(place.path, [])
    return digests[place.line - 1] if 0 < place.line <= len(digests) else None


def graph_lines(graph: Graph) -> list[tuple[str, Node]]:
    """Return a line of Python for each node, with readable names."""
    return [(_node_line(node), node) for node in graph.nodes]


def _node_line(node: Node) -> str:
    value = f"  # {node.value}" if node.value else ""
    if node.operation == "placeholder":
        return f"input {node.user_name or node.name}{value}"
    if node.operation == "output":
        return node.expression or "return"
    return f"{node.name} = {_ADDRESSES.sub('0x...', node.expression or node.target)}{value}"


def code_lines(text: str) -> list[str]:
    """Return generated code without comment lines, empty lines and temporary paths."""
    lines = (_TEMPORARY.sub("/tmp/...", line).rstrip() for line in text.splitlines())
    return [line for line in lines if line and not line.lstrip().startswith(("#", "//"))]
