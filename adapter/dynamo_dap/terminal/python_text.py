"""Checks whether typed text is Python, and whether a statement is complete.

Any thread may call its functions; they have no side effects.
"""

from __future__ import annotations

import ast
import codeop
import io
import re
import tokenize
import warnings
from collections.abc import Sequence

from dynamo_dap.protocol.texts import NOT_PYTHON

_CONTINUATION = re.compile(r"[ \t]|(?:else|elif|except|finally|case)\b")


def is_python(text: str) -> bool:
    """Return whether ``text`` can be compiled, as an expression or as statements."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except NOT_PYTHON:
        return False
    return True


def is_complete(lines: Sequence[str]) -> bool:
    """Return whether a statement ends with these lines; invalid Python counts as ended."""
    text = "\n".join(lines)
    if len(lines) == 1 and is_python(text):
        return True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return codeop.compile_command(text, symbol="single") is not None
    except (*NOT_PYTHON, OverflowError):
        return True


def continues(lines: Sequence[str], further: str) -> bool:
    """Return whether ``further`` continues the incomplete statement in ``lines``."""
    text = "\n".join(lines)
    if _is_within_brackets(text):
        return True
    return bool(further.strip()) and (not is_python(text) or _CONTINUATION.match(further) is not None)


def _is_within_brackets(text: str) -> bool:
    try:
        for _ in tokenize.generate_tokens(io.StringIO(text).readline):
            pass
    except (tokenize.TokenError, SyntaxError):
        return True
    return False
