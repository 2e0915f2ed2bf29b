"""Requests of DAP and our own, each field drawn from what its type allows and from what it does not.

Pure functions of a random generator, so that a seed determines all. ``ids`` are those that a stop has shown: a request
that names none of them is refused early and shows little.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import msgspec.inspect as kinds

from dynamo_dap.debuggee.agent.requests import HANDLERS
from dynamo_dap.server.client.capabilities import EAGER_ARGUMENTS, FORWARDED_REQUESTS
from dynamo_dap.server.sessions.session import handlers

Ids = Mapping[str, Sequence[Any]]
"""Values that a stop has shown, by the name of the field that takes them."""

LONG = "x" * 70_000
DEEP = "-" * 3_000 + "1"
TEXTS: tuple[str, ...] = (
    *("", " ", "\0", "\n", "\u2028", "\x1b[31m", "ä🦊", "number", "1 +", "a.b[0]", "__stack__", "lambda: 0"),
    *(DEEP, "(" * 3_000, LONG, "%s{0}", "{number}", "{{", "= 3", "% 0", "9" * 5_000, "file:///x", "/", "nowhere.py"),
)
NUMBERS: tuple[int, ...] = (-(2**63), -(2**31), -1, 0, 1, 2, 3, 7, 200, 2**31 - 1, 2**31, 2**53, 2**63, 2**64, 2**70)
WORDS: Mapping[str, tuple[str, ...]] = {
    "granularity": ("statement", "line", "instruction", "paragraph"),
    "context": ("watch", "repl", "hover", "clipboard", "variables", "elsewhere"),
    "filter": ("indexed", "named", "both"),
    "mode": ("compile-time", "run-time", "eager", "backward", "lowering", "sideways"),
    "accessType": ("read", "write", "readWrite", "none"),
    "hitCondition": ("5", ">= 3", "% 2", "% 0", "often", "9" * 5_000),
    "condition": ("number == 3", "1 / 0", DEEP, "number =", LONG, "number\nnumber"),
    "logMessage": ("{number}", "{", "{}", "{" + DEEP + "}", LONG),
    "filters": ("uncaught", "raised", "nan", "graph-break", "nobody"),
}
"""Texts that a field of this name takes, and some that it does not."""
OTHERS: tuple[Any, ...] = (None, True, -1, 1.5, 1e308, "text", [], {}, [None], [[]], {"": {}})
"""JSON of any type."""
NO_JSON = {"float": b"1e999", "below": b"-1e999", "not": b"NaN", "long": b"1" + b"0" * 5_000, "many": b"[" * 300}
"""What no JSON library writes, instead of a number."""


def argument_types() -> dict[str, Any]:
    """Return the type of the arguments of each request, DAP's and ours, that the server or the agent knows."""
    found: dict[str, Any] = {command: handler.arguments_type for command, handler in HANDLERS.items()}
    found |= {command: handler.arguments for command, handler in handlers.items()}
    found |= {**FORWARDED_REQUESTS, **EAGER_ARGUMENTS}
    return dict(sorted(found.items()))


def arguments(dice: random.Random, kind: Any, ids: Ids) -> Any:
    """Draw arguments of the type ``kind``: most fields are right, so that the others are reached."""
    if kind is msgspec.Raw:
        return {name: dice.choice(values) for name, values in ids.items() if dice.random() < 0.3}
    return _value(dice, kinds.type_info(kind), "", ids, wrong=0.1)


def _value(dice: random.Random, kind: Any, name: str, ids: Ids, wrong: float) -> Any:
    if dice.random() < wrong:
        return dice.choice(OTHERS)
    if name in ids and ids[name] and dice.random() < 0.7:
        return dice.choice(ids[name])
    if isinstance(kind, kinds.UnionType):
        return _value(dice, dice.choice(kind.types), name, ids, wrong)
    if isinstance(kind, kinds.StructType):
        drawn = {
            field.encode_name: _value(dice, field.type, field.encode_name, ids, wrong / 2)
            for field in kind.fields
            if dice.random() < (0.95 if field.required else 0.4)
        }
        return drawn | ({"surplus": 1} if dice.random() < 0.05 else {})
    if isinstance(kind, kinds.ListType | kinds.VarTupleType | kinds.SetType):
        return [_value(dice, kind.item_type, name, ids, wrong / 2) for _ in range(dice.choice((0, 1, 1, 2, 5)))]
    if isinstance(kind, kinds.DictType):
        return {dice.choice(TEXTS[:8]): _value(dice, kind.value_type, name, ids, wrong / 2) for _ in range(2)}
    return _scalar(dice, kind, name)


def _scalar(dice: random.Random, kind: Any, name: str) -> Any:
    if isinstance(kind, kinds.IntType):
        return dice.choice(NUMBERS)
    if isinstance(kind, kinds.FloatType):
        return dice.choice((0.0, -0.0, 1e308, 5e-324, 3))
    if isinstance(kind, kinds.BoolType):
        return dice.random() < 0.5
    if isinstance(kind, kinds.StrType):
        return dice.choice(WORDS[name] if name in WORDS and dice.random() < 0.8 else TEXTS)
    if isinstance(kind, kinds.EnumType):
        return dice.choice(list(kind.cls)).value
    if isinstance(kind, kinds.LiteralType):
        return dice.choice(kind.values)
    return None if isinstance(kind, kinds.NoneType) else dice.choice(OTHERS)
