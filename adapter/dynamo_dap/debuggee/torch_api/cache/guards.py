"""Reads the guards of a trace so far, and those that the shape environment will add. Reading changes nothing.

A ``Guard`` names a check of ``GuardBuilder`` and a source. Torch makes the expression of a guard only after the trace,
so ``GuardFacts`` has none. The guards of a finished compile have torch's expressions. Runs on the compiling thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dynamo_dap.debuggee.torch_api.cache.guard_checks import SIZES, GuardCheck, checked_tensor
from dynamo_dap.debuggee.torch_api.cache.recompiles import expression_of_check
from dynamo_dap.debuggee.torch_api.objects import Output, Translator
from dynamo_dap.debuggee.torch_api.traced.symbols import range_text, relation_text
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import (
    Place,
    is_torchs,
    node_of,
    source_name,
    unwrapped,
    users_frame,
)
from dynamo_dap.protocol.texts import in_user_terms


@dataclass(frozen=True, slots=True)
class GuardFacts:
    """One guard of a trace."""

    check: str
    """The method of ``GuardBuilder``: ``TYPE_MATCH``, ``CONSTANT_MATCH`` ..."""
    name: str
    """The guarded expression: ``L['x']``; empty for global state."""
    source: object
    argument: object
    """The check's additional argument: an attribute's name, a key, another source; usually None."""
    place: Place | None
    """The user's line that caused it."""
    function: str
    """The function of that line."""
    inside: Place | None
    """The line of torch or another library that installed it, if the user's line called into one."""


def guards_of(tx: Translator) -> list[GuardFacts]:
    """Return the guards of the frame being compiled, in the order of installation."""
    return [_facts(guard) for guard in list(tx.output.guards)]


def _facts(guard: Any) -> GuardFacts:
    create = guard.create_fn
    keywords: dict[str, object] = dict(getattr(create, "keywords", None) or {})
    positional = tuple(getattr(create, "args", None) or ())
    argument = next(iter((*positional, *keywords.values())), None)
    function = getattr(create, "func", create)
    stack = getattr(guard, "user_stack", None)
    place, name, inside = users_frame(stack) if stack else (None, "", None)
    return GuardFacts(
        check=str(getattr(function, "__name__", function)),
        name=source_name(guard.originating_source) or "",
        source=guard.originating_source,
        argument=argument,
        place=place,
        function=name,
        inside=inside,
    )


def example_of_input(tx: Translator, source: object) -> object:
    """Return the FakeTensor of a source's graph input, or None."""
    tracker = tx.output.input_source_to_var.get(source)
    node = None if tracker is None else node_of(unwrapped(tracker))
    return None if node is None else node.meta.get("example_value")


@dataclass(frozen=True, slots=True)
class ShapeGuardFacts:
    """A condition on sizes that the shape environment will check."""

    expression: str
    """With the inputs: ``L['x'].size()[0] > 4``."""
    symbolic: str
    """With symbols: ``s77 > 4``."""
    place: Place | None
    reason: str
    asked_by: tuple[str, int, str] | None = None
    """The file, line and function of torch that caused it, as torch keeps them."""


def shape_guards_of(tx: Translator) -> list[ShapeGuardFacts]:
    """Return the conditions on sizes: those that comparisons caused, then the ranges and equalities of symbols."""
    shape_env = tx.output.shape_env
    names = _symbol_names(shape_env)
    return [*_compared(tx.output, names), *_same_symbol(shape_env), *_ranges(shape_env, names)]


def compared_sizes(output: Output) -> list[ShapeGuardFacts]:
    """Return the conditions that comparisons caused, and the sizes that became numbers or equal to others."""
    return _compared(output, _symbol_names(output.shape_env))


def places_of_conditions(output: Output) -> list[tuple[frozenset[str], Place]]:
    """Return the traced code's comparisons: each condition's inputs, as guards write them, and the line."""
    comparisons = _compared(output, _symbol_names(output.shape_env))
    return [
        (inputs_in(comparison.expression), comparison.place)
        for comparison in comparisons
        if comparison.place is not None
    ]


def inputs_in(expression: str) -> frozenset[str]:
    """Return the sizes, strides and numbers in a condition: ``L['x'].size()[0]``."""
    return frozenset(_INPUT.findall(expression))


_INPUT = re.compile(r"[LG]\['\w+'\](?:\.\w+(?:\(\))?|\[[^\]]*\])*")


def _compared(output: Output, names: dict[str, str]) -> list[ShapeGuardFacts]:
    """Return the effects of comparisons: conditions, then symbols that became equal to others, or to numbers."""
    shape_env = output.shape_env
    files: set[str] = set()
    shape_guards = [_shape_guard(guard, names, files, output) for guard in list(getattr(shape_env, "guards", ()))]
    return [*shape_guards, *_replacements(shape_env, names, files, output)]


def _symbol_names(shape_env: object) -> dict[str, str]:
    known = getattr(shape_env, "var_to_sources", {})
    return {str(symbol): source_name(sources[0]) or str(symbol) for symbol, sources in known.items() if sources}


def _shape_guard(guard: Any, names: dict[str, str], files: set[str], output: Output) -> ShapeGuardFacts:
    symbolic = relation_text(guard.expr)
    place = _parsed_place(getattr(guard, "sloc", None), files, output)
    asked_by = _asked_by(getattr(guard, "sloc", None))
    return ShapeGuardFacts(in_inputs(symbolic, names), symbolic, place, "compared by the traced code", asked_by)


def _asked_by(sloc: object) -> tuple[str, int, str] | None:
    found = getattr(sloc, "framework_loc", None)
    if found is None or isinstance(found, str):
        return None
    return str(found.filename), int(found.lineno), str(found.name)


def in_inputs(symbolic: str, names: dict[str, str]) -> str:
    """Return an expression with each symbol replaced by the input that it represents."""
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda match: names.get(match[0], match[0]), symbolic)


_LOCATION = re.compile(r"(?:.*  # )?(?P<path>.+?):(?P<line>\d+) in ", re.DOTALL)


def _parsed_place(sloc: object, files: set[str], output: Output) -> Place | None:
    """Return the place in a text as torch keeps it: ``if x.shape[0] > 4:  # folder/file.py:4 in fn``.

    Torch omits the beginning of the path that torch's own files share. ``files`` gets the traced files at the first
    use.
    """
    location = getattr(sloc, "maybe_user_loc", None)
    match = _LOCATION.match(str(location)) if location else None
    if match is None:
        return None
    if not files:
        stacks = (getattr(guard, "user_stack", None) or () for guard in list(output.guards))
        files.update(str(frame.filename) for stack in stacks for frame in stack)
        code = getattr(getattr(output, "root_tx", None), "f_code", None)
        files.update([code.co_filename] if code is not None else [])
    matching = [path for path in files if path.endswith(match["path"])]
    return _users_line(Place(min(matching, key=len), int(match["line"]), 1), output) if matching else None


def _users_line(place: Place, output: Output) -> Place:
    """Return the line outside torch that called a line of torch, if it is the same for all guards of that line."""
    if not is_torchs(place.path):
        return place
    found: set[tuple[str, int]] = set()
    for guard in list(output.guards):
        stack = [(str(frame.filename), frame.lineno) for frame in getattr(guard, "user_stack", None) or ()]
        if (place.path, place.line) in stack:
            callers = stack[: stack.index((place.path, place.line))]
            found.update([caller for caller in callers if not is_torchs(caller[0])][-1:])
    return Place(*found.pop(), 1) if len(found) == 1 else place


def _replacements(
    shape_env: object, names: dict[str, str], files: set[str], output: Output
) -> Iterator[ShapeGuardFacts]:
    for symbol, value in list(getattr(shape_env, "replacements", {}).items()):
        symbolic = f"{symbol} == {value}"
        sloc = getattr(shape_env, "replacements_slocs", {}).get(symbol)
        place = _parsed_place(sloc, files, output)
        reason = "specialized" if getattr(value, "is_number", False) else "found equal"
        yield ShapeGuardFacts(in_inputs(symbolic, names), symbolic, place, reason, _asked_by(sloc))


def _same_symbol(shape_env: object) -> Iterator[ShapeGuardFacts]:
    for symbol, sources in list(getattr(shape_env, "var_to_sources", {}).items()):
        first, *others = dict.fromkeys(filter(None, (source_name(source) for source in sources))) or [""]
        for other in others:
            yield ShapeGuardFacts(f"{other} == {first}", str(symbol), None, "the same symbol")


_ANY_INTEGER = "-∞ … ∞"
"""A range without a guard: torch 2.12 has symbols for numbers about which it knows nothing."""


def _ranges(shape_env: object, names: dict[str, str]) -> Iterator[ShapeGuardFacts]:
    replaced = getattr(shape_env, "replacements", {})
    for symbol, bounds in list(getattr(shape_env, "var_to_range", {}).items()):
        bounds_text = range_text(bounds)
        if symbol not in replaced and str(symbol) in names and bounds_text != _ANY_INTEGER:
            text = f"{names[str(symbol)]} in {bounds_text}"
            yield ShapeGuardFacts(text, f"{symbol} in {bounds_text}", None, "range of the symbol")


@dataclass(frozen=True, slots=True)
class RequestedGuard:
    """A guard that has just been installed."""

    check: str
    name: str
    """As guards write it: ``L['self'].scale``."""
    readable: str
    """As the user wrote it: ``self.scale``."""


def requested_guard(guard: object) -> RequestedGuard:
    """Return the facts about a guard that was just installed."""
    facts = _facts(guard)
    return RequestedGuard(facts.check, facts.name, in_user_terms(facts.name))


class BuiltGuard(NamedTuple):
    """A guard of compiled code, in torch's words."""

    expressions: tuple[str, ...]
    """The checks that calls must pass. Empty if an earlier guard has the same ones, or if this guard has no check."""
    check: str
    place: Place | None
    source: str | None


def built_guards(output: Output, checks: Sequence[GuardCheck]) -> Iterator[BuiltGuard]:
    """Yield the guards of a finished compile; ``checks`` are the checks that calls must pass.

    A check that several guards caused belongs to the first of them. Checks without a guard come last.
    """
    left = {check.parts[0]: check for check in checks}
    of_tensors = {name: text for text in left if (name := checked_tensor(text)) is not None}
    for guard in list(output.guards):
        create = guard.create_fn
        function = getattr(create, "func", create)
        check = str(getattr(function, "__name__", function))
        name = source_name(guard.originating_source) or ""
        stack = getattr(guard, "user_stack", None)
        texts = [expression_of_check(str(text)) for text in guard.code_list or ()]
        if check == "TENSOR_MATCH" and name in of_tensors:
            texts.insert(0, of_tensors[name])
        if check == SIZES:
            texts += [text for text, one in left.items() if one.kind == SIZES]
        found = tuple(left.pop(text).expression for text in texts if text in left)
        if check == SIZES:
            yield from _conditions_on_sizes(output, found)
            continue
        place = users_frame(stack)[0] if stack else None
        yield BuiltGuard(found, check, place, in_user_terms(name) or None)
    for one in left.values():
        yield BuiltGuard((one.expression,), one.kind, one.place, None)


def _conditions_on_sizes(output: Output, expressions: Sequence[str]) -> Iterator[BuiltGuard]:
    """Yield a guard for each condition, with the line that compared these sizes first."""
    places = places_of_conditions(output)
    for expression in expressions:
        about = inputs_in(expression)
        place = next((place for inputs, place in places if inputs == about), None)
        yield BuiltGuard((expression,), SIZES, place, None)
