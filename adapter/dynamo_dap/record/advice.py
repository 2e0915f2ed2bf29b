"""What was another from call to call, so that functions were compiled again, and what a user may do about it. Pure.

Torch tells one failed guard at a time; here the values of one thing are put together over all the calls.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from dynamo_dap.record.model import CompiledFunction, GuardFailure, Place

_SIZE = re.compile(
    r"tensor '(?P<name>.+)' size mismatch at index (?P<index>\d+)\. expected (?P<then>\d+), actual (?P<now>\d+)"
)
_MISMATCH = re.compile(
    r"tensor '(?P<name>.+)' (?P<what>[\w ]+) mismatch\b.*?expected (?P<then>.+?), actual (?P<now>.+)"
)
_EQUAL = re.compile(r"(?P<name>.+?) (?:==|is) (?P<then>.+)")
_CACHE = re.compile(r"cache|past_key|\bkv\b|\.keys\b|\.values\b", re.IGNORECASE)

RECOMPILATION = (
    "https://docs.pytorch.org/docs/main/user_guide/torch_compiler/compile/programming_model.recompilation.html"
)
MODULES = "https://docs.pytorch.org/docs/main/user_guide/torch_compiler/torch.compiler_nn_module.html"


@dataclass
class Change:
    """One thing that was another than it had been compiled for."""

    function: str
    subject: str
    """``size 2 of cache``, ``mode``, ``dtype of x``"""
    values: list[str]
    """In the order of the calls."""
    advice: str
    link: str
    compiles: list[str] = field(default_factory=list)
    """Ids of those that it caused."""
    place: Place | None = None
    """The line that asked for the guard."""
    caller: Place | None = None
    """The user's line that called with another value."""


def changes_of(function: CompiledFunction) -> list[Change]:
    """Return what changed between the calls of a function, in the order of the compiles that it caused."""
    found: dict[str, Change] = {}
    first = next((one.caller for one in function.compiles if one.caller is not None), None)
    for compiled in function.compiles:
        # The newest compile comes first: what it was compiled for is what the call before had.
        for failure in reversed(compiled.failures):
            subject, then, now, advice, link = _read(failure)
            caller = compiled.caller or first
            change = found.get(subject)
            if change is None:
                change = Change(function.name, subject, [], advice, link, place=failure.place, caller=caller)
                found[subject] = change
            change.values += [one for one in (then, now) if one is not None and one not in change.values]
            if compiled.id not in change.compiles:
                change.compiles.append(compiled.id)
    return list(found.values())


def _read(failure: GuardFailure) -> tuple[str, str | None, str | None, str, str]:
    """Return what a failure is about, the value then and now, the advice and torch's page."""
    expression = failure.expression
    size = _SIZE.match(expression)
    if size is not None:
        subject = f"size {size['index']} of {size['name']}"
        advice = _about_size(size["name"], size["index"])
        if {size["then"], size["now"]} & {"0", "1"}:
            advice = "sizes 0 and 1 are always compiled for themselves: expect one compile for them, or pad them away"
        return subject, size["then"], size["now"], advice, RECOMPILATION
    mismatch = _MISMATCH.match(expression)
    if mismatch is not None:
        advice = f"each {mismatch['what']} is compiled for itself: call it with one, or expect a compile for each"
        return f"{mismatch['what']} of {mismatch['name']}", mismatch["then"], mismatch["now"], advice, RECOMPILATION
    equal = _EQUAL.match(expression)
    then, now = failure.value_then, failure.value_now
    if "___check_obj_id" in expression or "___check_type_id" in expression:
        subject = (failure.text or expression).partition(" is ")[0]
        advice = (
            "it is another object in each call: make it once, outside of the function (a lambda, a partial, a module)"
        )
        return subject, then, now, advice, RECOMPILATION
    if expression.startswith(("len(", "not len(")):
        advice = "each length is compiled for itself: stack what it holds into one tensor, or keep the length fixed"
        return expression.partition(" == ")[0], then, now, advice, RECOMPILATION
    if equal is not None:
        return (
            equal["name"],
            then or equal["then"],
            now,
            _about_value(equal["name"], then or equal["then"]),
            _page(equal["name"]),
        )
    if "GRAD_MODE" in expression or "grad_mode" in expression.lower():
        advice = "it is called with and without gradients: each is compiled for itself, once"
        return "grad mode", then, now, advice, RECOMPILATION
    return (
        failure.text or expression,
        then,
        now,
        "see what Dynamo guards on, and keep it the same in each call",
        RECOMPILATION,
    )


def _page(name: str) -> str:
    return MODULES if name.startswith("self.") else RECOMPILATION


def _about_size(name: str, index: str) -> str:
    root = re.split(r"[.\[]", name, maxsplit=1)[0]
    if _CACHE.search(name):
        return "the cache grows with each call: use a static cache (of a fixed length), or mark its length as dynamic"
    if root == name:
        mark = f"torch._dynamo.maybe_mark_dynamic({name}, {index})"
        return f"{mark} before the first call, or torch.compile(..., dynamic=True)"
    return "mark the size as dynamic (torch._dynamo.maybe_mark_dynamic) before the first call, or pad it to one length"


def _about_value(name: str, value: str) -> str:
    if re.fullmatch(r"-?\d+", value):
        if name.startswith("self."):
            return "Dynamo makes a constant of a module's number: keep it in a tensor, or count outside of the module"
        return "Dynamo makes a constant of the first number: torch.compile(..., dynamic=True), or give it as a tensor"
    if re.fullmatch(r"-?\d+\.\d*(?:e-?\d+)?", value):
        return "Dynamo makes a constant of the first number: give it as a tensor"
    return "each value is compiled for itself: expect one compile for each, or take the choice out of the function"
