"""Finds why a call matches no cache entry: the failed guards, from torch's messages, and the lines that caused them.

A message of ``torch._dynamo.guards.get_guard_fail_reason`` has ``0/0: `` and the failed part of the guard, then perhaps
the user stack that installed it. Torch does not always report the line that caused the guard, so the recorder remembers
those of earlier compiles here. Runs on compiling threads, under Dynamo's compile lock.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import sys
import types
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place
from dynamo_dap.protocol.texts import in_user_terms

_COMPILE_ID = re.compile(r"^(?:\[)?(?P<id>!?\d+/\d+(?:_\d+)?)(?:\])?: ")
_STACK = "\nUser stack trace:\n"
_COMMENT = "# "
"""What torch writes before its remark on a check, after white space."""
_ADVICE = re.compile(r"\. (?P<hint>Guard failed on a parameter, consider using .+)$", re.DOTALL)
_HINT = re.compile(r"\(HINT: (?P<hint>.+?)\)\s*$", re.DOTALL)
_LOCATION = re.compile(r'File "(?P<path>[^"]+)", line (?P<line>\d+)')
_SHORT_LOCATION = re.compile(r"(?P<path>[^\s:,(]+\.py):(?P<line>\d+) in ")


@dataclass(frozen=True, slots=True)
class Failure:
    """One cache entry's guard that failed for a call."""

    compile_id: str
    expression: str
    """The failed part of its guards, without torch's comment."""
    reason: str
    """The whole sentence."""
    place: Place | None
    """The user's line that installed the guard, if torch reports it."""
    hint: str | None = None
    """Torch's own advice."""


def failures_of(code: types.CodeType, entries: Sequence[object], reasons: Sequence[str]) -> list[Failure]:
    """Return a failure for each reason; ``entries`` are torch's cache entries of ``code``, in the same order."""
    return [
        _failure(code, entries[index] if index < len(entries) else None, reason) for index, reason in enumerate(reasons)
    ]


NOT_KNOWN = object()
_TENSOR = re.compile(r"tensor '(?P<source>.+?)' (?:\w+ )+mismatch")
_LENGTH = re.compile(r"(?:not )?(?P<source>len\(.+?\)) [!=]= ")
_BY_IDENTITY = re.compile(r"___check_(obj|type)_id\(")
_EXPECTED = re.compile(r"expected (?P<then>.+?)[,.] actual (?P<now>.+?)\.?$")


def expected_and_actual(failure: Failure, frame: Any) -> tuple[str | None, object]:
    """Return the failed guard's expected value, as text, and the object in the call that ``frame`` is about to run.

    The object is ``NOT_KNOWN`` if the guard cannot be read. Only values that guards read are read.
    """
    expected = _EXPECTED.search(failure.expression)
    if expected is not None:
        return expected["then"], _Text(expected["now"])
    try:
        tree = ast.parse(failure.expression.partition(", type=")[0].strip(), mode="eval").body
    except SyntaxError:
        return None, NOT_KNOWN
    # Torch omits the ``L[...]`` around the names of locals.
    functions = {"len": len, "type": type, "list": list, "dict": dict}
    names = {**functions, **frame.f_locals, "L": frame.f_locals, "G": frame.f_globals}
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1:
        left, right = tree.left, tree.comparators[0]
        # Torch writes a bound before the size: ``2 <= x.size()[0]``.
        left, right = (right, left) if isinstance(left, ast.Constant) else (left, right)
        return ast.unparse(right), _read(left, names)
    if isinstance(tree, ast.Call) and tree.args:
        known = re.search(r"type=(.+)$", failure.expression)
        return (known[1] if known else None), _read(tree.args[0], names)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        return "something empty or false", _read(tree.operand, names)
    return None, NOT_KNOWN


def refused_object(failure: Failure, frame: Any) -> object:
    """Return the object that failed an identity guard, or the type that failed a type guard.

    ``NOT_KNOWN`` for any other guard.
    """
    found = _BY_IDENTITY.match(failure.expression)
    now = NOT_KNOWN if found is None else expected_and_actual(failure, frame)[1]
    return type(now) if found is not None and found[1] == "type" and now is not NOT_KNOWN else now


class _Text(str):
    """A value that torch has written already."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _read(tree: ast.expr, names: dict[str, object]) -> object:
    """Return the value of a path that starts at ``L`` or ``G``; call only harmless methods such as ``size``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in names:
            return NOT_KNOWN
        if isinstance(node, ast.Call) and not _is_harmless(node):
            return NOT_KNOWN
    try:
        return eval(compile(ast.Expression(tree), "<guard>", "eval"), {"__builtins__": {}}, names)
    except Exception:  # noqa: BLE001  (the object may have changed in any way since)
        return NOT_KNOWN


def _is_harmless(call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Name):
        return function.id in ("len", "type", "list", "dict")
    return isinstance(function, ast.Attribute) and function.attr in ("size", "stride", "storage_offset", "keys", "dim")


def _failure(code: types.CodeType, entry: object, reason: str) -> Failure:
    match = _COMPILE_ID.match(reason)
    text = reason[match.end() :] if match else reason
    sentence, _, stack = text.partition(_STACK)
    expression, comment = _without_comment(sentence)
    # Torch appends its advice to the message of a tensor's guard, and to the comment of others.
    hint = _ADVICE.search(expression) or _HINT.search(comment)
    expression = _ADVICE.sub("", expression)
    compile_id = match["id"] if match else str(getattr(entry, "compile_id", "?"))
    place = _place(stack) or _user_place(comment) or _remembered(code, compile_id, sentence)
    return Failure(compile_id, expression.strip(), reason.strip(), place, hint["hint"] if hint else None)


def split_check(text: str) -> tuple[str, Place | None]:
    """Return a check as guards are written, without torch's comment, and the user's line that the comment names."""
    expression, comment = _without_comment(text)
    return expression.lstrip(), _user_place(comment)


def expression_of_check(text: str) -> str:
    """Return a check as guards are written, without torch's comment."""
    return _without_comment(text)[0].lstrip()


def _without_comment(text: str) -> tuple[str, str]:
    """Return a check, and torch's comment on it, which begins with ``# `` after white space."""
    at = text.find(_COMMENT, 1)
    while at > 0 and not text[at - 1].isspace():
        at = text.find(_COMMENT, at + 1)
    return (text.rstrip(), "") if at < 0 else (text[:at].rstrip(), text[at + len(_COMMENT) :])


def _remembered(code: types.CodeType, compile_id: str, sentence: str) -> Place | None:
    """Return the remembered line: torch gives none for a tensor's or a length's failure."""
    about = _TENSOR.match(sentence) or _LENGTH.match(sentence)
    return _remembered_place(code, compile_id, in_user_terms(about["source"])) if about else None


def _place(stack: str) -> Place | None:
    locations = _LOCATION.findall(stack)
    return Place(locations[-1][0], int(locations[-1][1]), 1) if locations else None


@functools.lru_cache(maxsize=1024)  # one user line installs many checks
def _user_place(comment: str) -> Place | None:
    match = _SHORT_LOCATION.search(comment)
    path = _full_path(match["path"]) if match else None
    return Place(path, int(match["line"]), 1) if match and path else None


@functools.lru_cache(maxsize=1024)  # the checks of a compile name few different files
def _full_path(short: str) -> str | None:
    """Return the file that torch means: it omits the part of a path that it shares with its own package."""
    if os.path.isabs(short):
        return short
    directory = str(sys.modules["torch"].__path__[0])
    while True:
        path = os.path.join(directory, short)
        if os.path.isfile(path):
            return path
        parent = os.path.dirname(directory)
        if parent == directory:
            return _below_root(directory, short)
        directory = parent


def _below_root(root: str, short: str) -> str | None:
    """Return the file of a path that shares only ``root`` with torch: torch then cuts off one letter too many."""
    first, _, rest = short.partition(os.sep)
    try:
        paths = [os.path.join(root, name, rest) for name in os.listdir(root) if name[1:] == first]
    except OSError:
        return None
    found = [path for path in paths if os.path.isfile(path)]
    return found[0] if len(found) == 1 else None


_MAXIMUM_COMPILES = 2000

_Key = tuple[str, int, str, str]
_places: OrderedDict[_Key, dict[str, Place]] = OrderedDict()


def _place_key(code: types.CodeType, compile_id: str) -> _Key:
    return code.co_filename, code.co_firstlineno, code.co_name, compile_id


def remember_places(code: types.CodeType, compile_id: str, places: dict[str, Place]) -> None:
    """Remember the places of a compile's guards, by their subject: ``self.weight``."""
    _places[_place_key(code, compile_id)] = places
    if len(_places) > _MAXIMUM_COMPILES:
        _places.popitem(last=False)


def _remembered_place(code: types.CodeType, compile_id: str, source: str) -> Place | None:
    """Return the user's line that caused a guard on ``source``, or None."""
    return _places.get(_place_key(code, compile_id), {}).get(source)
