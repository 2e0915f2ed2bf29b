"""Defines the purposes of instructions in generated code."""

from __future__ import annotations

import io
import tokenize
from dataclasses import dataclass
from enum import Enum

from dynamo_dap.debuggee.torch_api.compiles.compile_records import Statement


class Kind(Enum):
    """The kinds of purposes."""

    ENTER = "enter"
    MARKER = "breakpoint marker"
    BOOKKEEPING = "bookkeeping"
    INPUTS = "load graph inputs"
    GRAPH = "call the compiled graph"
    OUTPUTS = "unpack graph outputs"
    SIDE_EFFECT_OPERANDS = "prepare a side effect"
    SIDE_EFFECT = "apply a side effect"
    USER_OPERANDS = "prepare a statement of the user's"
    USER = "run a statement of the user's"
    CELLS = "cells"
    LOCALS = "restore local variables"
    RESUME_OPERANDS = "pack the frame"
    RESUME = "call a resume function"
    RETURNED = "build the returned value"
    RETURN = "return"
    CLEANUP = "clean up"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Purpose:
    """An instruction's purpose. Neighbours with equal purposes make one group."""

    kind: Kind
    title: str
    anchor: int
    """Index of the instruction that has the effect."""
    statements: tuple[Statement, ...] = ()
    """The user's statements that it carries out."""


PACKING = Purpose(Kind.RESUME_OPERANDS, "pack the frame for the resume function", -1)
PROFILING = Purpose(Kind.BOOKKEEPING, "for the profiler, if it is on", -1)
EMPTY_FRAME = Purpose(Kind.RESUME_OPERANDS, "an empty frame: nothing is resumed", -1)
DROPPING = Purpose(Kind.CLEANUP, "drop temporaries", -1)


def without_comment(line: str) -> str:
    """Return a line of Python without the comment at its end."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(line).readline):
            if token.type == tokenize.COMMENT:
                return line[: token.start[1]].rstrip()
    except (tokenize.TokenError, SyntaxError):
        # The statement continues on other lines; a comment on this line would have been found before.
        pass
    return line
