"""Finds the values that changed from call to call and so caused recompiles, and advises on them.

Torch reports one failed guard of each earlier compile. This module merges the values of one object over all calls. It
has no side effects.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from dynamo_dap.protocol.texts import NOT_PYTHON, in_user_terms, kinds_of_tensors, roots_of
from dynamo_dap.records.advice.constant_sizes import about_constant
from dynamo_dap.records.advice.items import Item, Kind, called, caller_of
from dynamo_dap.records.advice.raced_compiles import is_raced
from dynamo_dap.records.advice.settings import Setting, settings_of_failure
from dynamo_dap.records.advice.superseded import is_superseded
from dynamo_dap.records.model import Compile, CompiledFunction, GuardFailure, Place

_SIZE = re.compile(
    r"tensor '(?P<name>.+)' size mismatch at index (?P<index>\d+)\. expected (?P<then>\d+), actual (?P<now>\d+)"
)
_MISMATCH = re.compile(
    r"tensor '(?P<name>.+)' (?P<what>[\w ]+) mismatch\b.*?expected (?P<then>.+?), actual (?P<now>.+)"
)
_KEY_SETS = "dispatch key set"
_GRADIENT = re.compile(r"tensor '(?P<name>.+)' requires_grad mismatch")
_NO_TENSOR = re.compile(
    r"expected type of '(?P<name>.+)' to be (?:a tensor type|<class 'torch\.[^']+'>, but .*'NoneType')"
)
"""The first alternative is for torch up to 2.14, the second for torch 2.15."""
_EQUAL = re.compile(r"(?P<name>.+?) (?:==|is) (?P<then>.+)")
_CACHE = re.compile(
    r"^(?P<root>.*?(?:cache|past_key|\bkv\b|\bpast(?=[\[)]))\w*(?:'\])?)|\.(?:keys|values)\b", re.IGNORECASE
)
_SIZE_OF = re.compile(r"(?P<name>.+)\.size\(\)\[(?P<index>\d+)\]")
_SIZE_IN = re.compile(r"\.size\(\)\[(\d+)\]")
_INTERMEDIATE = re.compile(r"___stack\d+")
_CALLED = re.compile(r"^(\w+\()+")
"""The functions around a value: ``len(`` of ``len(self.log)``."""
_COMPUTED = re.compile(r" [-+%] |\*|//")
_COMPARED = re.compile(r"(?P<name>.*\.size\(\)\[\d+\].*) (?P<how>[=!]=|[<>]=?) (?P<last>-?\d+)")
_WORDS = {"==": "", "!=": "not ", "<=": "at most ", "<": "less than ", ">=": "at least ", ">": "more than "}
_EMPTY = re.compile(r"not (?P<name>[\w.\[\]'\"]+)")
_KEYS = re.compile(r"list\(dict\.keys\((?P<name>.+)\)\)\[\d+\] == (?P<then>.+)")
_PRESENT = re.compile(r"(?P<key>'[^']*'|\d+) is (?P<absent>not )?in (?P<name>[\w.\[\]']+)")
_BOUND = re.compile(r"(?:(?P<first>\d+) (?P<less><=?) )?(?P<name>[^\s<>=]+)(?: (?P<more>[<>]=?|!=) (?P<last>\d+))?")
_RATE = re.compile(r"param_groups\[\d+\]\['lr'\]")
_ADAPTER = re.compile(r"lora|adapter|\bmerged\b|offload|_hf_hook", re.IGNORECASE)
_GRAD_MODE = "grad mode"
_RESUMED = re.compile(r" \(resumed at line \d+\)$")
VALUES = 8

PAGES = "https://docs.pytorch.org/docs/main/user_guide/torch_compiler/"
RECOMPILATION = f"{PAGES}compile/programming_model.recompilation.html"
DYNAMIC = f"{PAGES}compile/programming_model.recompilation.html#is-dynamic-shapes-enabled"
MODULES = f"{PAGES}torch.compiler_nn_module.html"
CONSTANTS = f"{PAGES}compile/programming_model.recompilation.html#wrapping-constants-with-tensors"


def subject_of(expression: str) -> str:
    """Return the ``subject`` of an item about a specialized expression: ``size 0 of x``."""
    size = _SIZE_OF.fullmatch(expression)
    return _shown(expression if size is None else f"size {size['index']} of {size['name']}")


def listed(names: list[str]) -> str:
    """Return the first ``VALUES`` names in one line, and the number of the others."""
    more = f" and {len(names) - VALUES} more" if len(names) > VALUES else ""
    return ", ".join(names[:VALUES]) + more


@dataclass
class _Change:
    """A guarded value, or the values of one KV cache, that differed from earlier compiles."""

    subjects: dict[str, list[str]] = field(default_factory=dict)
    """For each subject (``size 2 of cache``, ``dtype of x``), its values in the order of the calls."""
    advice: list[str] = field(default_factory=list)
    link: str = RECOMPILATION
    settings: list[Setting] = field(default_factory=list)
    compiles: dict[str, float] = field(default_factory=dict)
    places: list[Place | None] = field(default_factory=list)
    callers: list[Place | None] = field(default_factory=list)
    cause: str = ""
    """The ``cause`` of the item."""


def merged(items: list[Item]) -> list[Item]:
    """Merge items about sizes with the same values: every function that gets a changing size has an item about it."""
    merged: dict[object, list[Item]] = {}
    for number, item in enumerate(items):
        is_size = item.subject.startswith("size ") and len(item.values) > 1
        is_size = is_size and all(value.isdigit() and int(value) > 1 for value in item.values)
        # Sizes with different causes need different advice: a parameter's size, say, or one that a line specializes.
        merged.setdefault((item.cause, *item.values) if is_size else number, []).append(item)
    return [_one_of(same) if len(same) > 1 else same[0] for same in merged.values()]


def _one_of(items: list[Item]) -> Item:
    outermost = min(items, key=lambda one: one.depth)
    by_subject: dict[str, list[str]] = {}
    for one in items:
        by_subject.setdefault(one.subject, []).append(one.function)
    return replace(
        outermost,
        title=f"A size changed from call to call: {', '.join(outermost.values)}",
        facts=[f"{subject} in {listed(functions)}" for subject, functions in by_subject.items()],
        callers=called(place for one in [outermost, *items] for place in one.callers),
        compiles=list(dict.fromkeys(identifier for one in items for identifier in one.compiles)),
        seconds=sum(item.seconds for item in items),
    )


def changes_of(function: CompiledFunction) -> list[Item]:
    """Return the changes between a function's calls, in the order of the recompiles that they caused."""
    found: dict[str, _Change] = {}
    specialized = {
        subject_of(subject := one.expression.rpartition(" == ")[0]): (subject, one.place)
        for compiled in function.compiles
        for one in compiled.specializations
    }
    for compiled in function.compiles:
        # Torch reports the newest compile first. Reversed, the values are in the order of the calls.
        for failure in reversed(causes_of(compiled, function)):
            read = _read(failure)
            change = found.setdefault(read.root, _Change())
            values = change.subjects.setdefault(read.subject, [])
            values += [one for one in (read.then, read.now) if one is not None and one not in values]
            change.link = read.link
            if failure.hint is None or _is_about(failure.hint, read):
                change.settings += [one for one in settings_of_failure(failure) if one not in change.settings]
            if read.subject in specialized:
                change.cause, settings = about_constant(function.compiles, *specialized[read.subject])
                change.advice = [change.cause]
                change.settings += [one for one in settings if one not in change.settings]
            elif failure.hint is not None and _is_about(failure.hint, read):
                change.cause = f"torch's own hint: {failure.hint}"
                change.advice = [change.cause]
            else:
                is_computed = _is_computed_before_break(read.name, compiled, function)
                change.advice = [_BEFORE_BREAK if is_computed else _advice(read, values)]
            if read.subject not in specialized:
                change.advice += _about_counting(values, _modules_of(function), read)
            change.compiles[compiled.id] = compiled.seconds or 0.0
            change.places.append(failure.place)
            change.callers.append(caller_of(function, compiled))
    return [_changed(function, root, change) for root, change in found.items()]


def causes_of(compiled: Compile, function: CompiledFunction) -> list[GuardFailure]:
    """Return the failed guards that caused a recompile."""
    failures = [] if is_raced(compiled) else compiled.failures
    subjects = {(failure.compile_id, _read(failure).subject) for failure in failures}
    return [
        failure
        for failure in failures
        if not is_superseded(failure, _read(failure).subject, compiled, function, subjects)
    ]


def _is_about(hint: str, read: _Read) -> bool:
    """Return whether torch's hint fits: torch also gives its hint on static shapes if a parameter changed otherwise."""
    return "static_shapes" not in hint or read.subject.startswith(("size ", "stride "))


def _modules_of(function: CompiledFunction) -> int:
    """Return the number of modules for which the method was compiled, or 0 if they did not cause its compiles.

    The modules share one code object and its recompile limit. They caused the compiles if there are more than
    ``_COUNTED`` of them, and if most compiles were the first of their module.
    """
    modules = len({one.module for one in function.compiles if one.module is not None})
    return modules if modules > _COUNTED and 2 * modules > len(function.compiles) else 0


def _about_counting(values: list[str], modules: int, read: _Read) -> list[str]:
    """Explain a number that differs in each module, or grows by one in each call."""
    if modules > 1 and not read.name.startswith("___"):
        limit = f"torch._dynamo.config.recompile_limit = {max(16, 2 * modules)}"
        return [f"{modules} modules share this code, and their compiles count together; to allow more: {limit}"]
    whole = [int(value) for value in values if value.isdigit()]
    steps = {later - earlier for earlier, later in itertools.pairwise(whole)}
    is_counting = len(values) == len(whole) > _COUNTED and steps == {1}
    if is_counting and not read.subject.startswith(("size ", "len(")):
        return ["its values count up, like a step number: keep it outside the compiled function, or in a tensor"]
    return []


_COUNTED = 2


def _changed(function: CompiledFunction, root: str, change: _Change) -> Item:
    reported = [_with_values(in_user_terms(subject), values) for subject, values in change.subjects.items()]
    title, facts = (reported[0], []) if len(reported) == 1 else (in_user_terms(root), reported)
    place = next((one for one in change.places if one is not None), None)
    return Item(
        Kind.CHANGE,
        f"Changed from call to call of {function.name}: {title}",
        facts,
        list(dict.fromkeys(change.advice)),
        change.link,
        place,
        called(change.callers),
        list(change.compiles),
        sum(change.compiles.values()),
        function.name,
        next(iter(change.subjects)),
        [] if facts else next(iter(change.subjects.values())),
        min(len(one.stack) for one in function.compiles),
        change.settings,
        change.cause,
    )


def _with_values(subject: str, values: list[str]) -> str:
    more = ", …" if len(values) > VALUES else ""
    return f"{subject}: {', '.join(values[:VALUES])}{more}" if values else subject


@dataclass(frozen=True)
class _Read:
    """The subject of a failed guard."""

    name: str
    """The guarded expression."""
    subject: str
    then: str | None
    now: str | None
    advice: str
    link: str = RECOMPILATION

    @property
    def root(self) -> str:
        """The key that groups subjects: the keys, values and lengths of one KV cache change together."""
        if _COMPUTED.search(self.name):
            return self.subject
        # A number named "past" is not a cache. A tensor may belong to one, and None may replace it in the first call.
        is_number = not self.subject.startswith("size ") and any(
            text.lstrip("-").isdigit() for text in (self.then, self.now) if text
        )
        cache = _CACHE.search(self.name if is_number else f"{self.name}[")
        if cache is not None:
            return f"the cache {cache['root'] or self.name.rpartition('.')[0]}"
        return self.subject


_BEFORE_BREAK = "it was computed before a graph break: fix that break, or torch.compile(..., dynamic=True)"


def _is_computed_before_break(name: str, compiled: Compile, function: CompiledFunction) -> bool:
    """Return whether a value was computed before a graph break: the user cannot mark its sizes before the call."""
    if _INTERMEDIATE.search(name):
        return True
    [root] = roots_of([_CALLED.sub("", name)])
    if not _RESUMED.search(compiled.name) or root in ("self", "G") or name == _GRAD_MODE:
        return False
    whole = [one for one in function.compiles if not _RESUMED.search(one.name)]
    parameters = {value.name for one in whole for value in one.values if value.is_parameter}
    return bool(parameters) and root not in parameters


def _advice(read: _Read, values: list[str]) -> str:
    """Return the advice on a failed guard; ``values`` are all values of its subject."""
    if read.root != read.subject:
        return (
            "a growing cache differs in each call: use a static one, of one length for all calls (transformers: "
            "generate(..., past_key_values=StaticCache(config, max_cache_len=N))), or torch.compile(..., dynamic=True)"
        )
    sizes = [int(value) for value in values if value.isdigit()]
    if read.subject.startswith("size ") and min(sizes, default=2) < 2:
        others = len([size for size in sizes if size > 1])
        alone = "sizes 0 and 1 are always compiled separately: expect one compile for them, or pad them away"
        return f"{alone}; for the others: {read.advice}" if others > 1 else alone
    return read.advice


def _read(failure: GuardFailure) -> _Read:
    expression = failure.expression
    then, now = failure.value_then, failure.value_now
    size = _SIZE.match(expression)
    if size is not None:
        subject = f"size {size['index']} of {_shown(size['name'])}"
        advice = _about_size(size["name"], size["index"])
        return _Read(size["name"], subject, size["then"], size["now"], advice, DYNAMIC)
    gradient = _GRADIENT.match(expression)
    if gradient is not None:
        advice = "it requires a gradient in some calls only: expect a compile for each case, or always detach() it"
        required = "requires_grad=1" in expression
        subject = f"requires_grad of {_shown(gradient['name'])}"
        return _Read(gradient["name"], subject, str(required), str(not required), advice)
    mismatch = _MISMATCH.match(expression)
    if mismatch is not None:
        kinds = kinds_of_tensors(mismatch["then"], mismatch["now"]) if mismatch["what"] == _KEY_SETS else None
        if kinds is not None:
            advice = "inference_mode() makes other tensors than no_grad(): make it in one of the modes for all calls"
            return _Read(mismatch["name"], f"kind of {_shown(mismatch['name'])}", *kinds, advice)
        advice = f"each {mismatch['what']} is compiled separately: call it with one, or expect a compile for each"
        subject = f"{mismatch['what']} of {_shown(mismatch['name'])}"
        return _Read(mismatch["name"], subject, mismatch["then"], mismatch["now"], advice)
    absent = _NO_TENSOR.match(expression)
    if absent is not None:
        advice = "it is a tensor in some calls and None in others: give it a value before the first call"
        return _Read(absent["name"], _shown(absent["name"]), "a tensor", now or "None", advice)
    hooks = _EMPTY.fullmatch(expression)
    if hooks is not None and hooks["name"].endswith("_hooks"):
        advice = "a hook was registered or removed after the first call: register all hooks before it"
        return _Read(hooks["name"], hooks["name"], "no hooks", now, advice)
    return _read_value(failure, then, now)


def _read_value(failure: GuardFailure, then: str | None, now: str | None) -> _Read:
    expression = failure.expression
    if "___check_obj_id" in expression or "___check_type_id" in expression:
        subject = (failure.text or expression).partition(" is ")[0]
        advice = "each call passes a new object: make it once, outside the function (a lambda, a partial, a module)"
        if subject.endswith(".__code__"):  # equal for the lambdas that one line makes
            advice = "the calls are for different functions, each compiled separately: compile these functions instead"
        return _Read(subject, subject, then, now, advice)
    empty = _EMPTY.fullmatch(expression)
    if empty is not None and (now or "").startswith(("[", "{", "(")):
        # Torch guards an empty container by its truth, and others by their length.
        expression, then, now = f"len({empty['name']}) == 0", "0", _length(now or "")
    keys = _KEYS.match(expression)
    if keys is not None:
        subject = f"keys of {keys['name']}"
        advice = (
            "the keys of a dictionary and their order are guarded: give the same keys in the same order in each call"
        )
        return _Read(subject, subject, then or keys["then"], now, advice)
    present = _PRESENT.fullmatch(failure.text or "")
    if present is not None:
        advice = (
            "only some calls have the key, and each case is compiled separately: always pass it, with None or a tensor"
        )
        subject = f"{present['name']}[{present['key']}]"
        there = ("there", "missing") if present["absent"] is None else ("missing", "there")
        return _Read(subject, subject, *there, advice)
    if expression.startswith(("len(", "not len(")):
        subject, _, length = expression.removeprefix("not ").replace(" != ", " == ").partition(" == ")
        advice = "each length is compiled separately: stack its items into one tensor, or keep the length fixed"
        if subject == "len(kwargs)":
            advice = "the calls pass different keyword arguments, and each set is compiled separately: always pass all"
        return _Read(subject, subject, then or length or None, now, advice)
    if "grad_mode" in expression.lower():
        advice = (
            "it is compiled separately with and without gradients, once each; no_grad() holds in its own thread only"
        )
        return _Read(_GRAD_MODE, _GRAD_MODE, then, now, advice)
    return _read_comparison(failure, expression, then, now)


def _read_comparison(failure: GuardFailure, expression: str, then: str | None, now: str | None) -> _Read:
    compared = _COMPARED.fullmatch(expression)
    if compared is not None and _COMPUTED.search(compared["name"]):
        name = _without_outer_parentheses(_SIZE_IN.sub(r".shape[\1]", compared["name"]))
        advice = "the code compares it with this value: expect a compile for each side, or remove the comparison"
        return _Read(name, name, f"{_WORDS[compared['how']]}{compared['last']}", now, advice, DYNAMIC)
    equal = _EQUAL.match(expression)
    if equal is not None:
        name, value = equal["name"], then or equal["then"]
        is_number = re.fullmatch(r"-?\d+(?:\.\d*)?(?:e-?\d+)?", value) is not None
        page = MODULES if name.startswith("self.") else CONSTANTS if is_number else RECOMPILATION
        return _Read(name, _shown(name), value, now, _about_value(name, value), page)
    bound = _BOUND.fullmatch(expression)
    if bound is not None and (bound["less"] or bound["more"]):
        name = subject_of(bound["name"])
        size = _SIZE_OF.fullmatch(bound["name"])
        if size is not None and now in ("0", "1") and expression.startswith("2 <= ") and bound["more"] is None:
            # Torch installs this guard for every dynamic size, since it makes constants of 0 and 1.
            return _Read(bound["name"], name, None, now, _about_size(size["name"], size["index"]), DYNAMIC)
        then = " and ".join(_bounds(bound))
        advice = "the code compares it with this range: expect a compile for each side, or remove the comparison"
        return _Read(bound["name"], name, then, now, advice, DYNAMIC)
    subject = failure.text or expression
    return _Read(subject, subject, then, now, "keep the guarded value the same in each call")


def _without_outer_parentheses(expression: str) -> str:
    try:
        return ast.unparse(ast.parse(expression, mode="eval"))
    except NOT_PYTHON:
        return expression


def _bounds(bound: re.Match[str]) -> Iterator[str]:
    if bound["less"]:
        yield f"{'at least' if bound['less'] == '<=' else 'more than'} {bound['first']}"
    if bound["more"]:
        yield f"{_WORDS[bound['more']]}{bound['last']}"


def _length(shown: str) -> str | None:
    """Return the length of a container from its text ``[1, 2, …] (3 items)``."""
    counted = re.search(r"\((\d+) items\)$", shown)
    return counted[1] if counted is not None else None


def _shown(name: str) -> str:
    return _INTERMEDIATE.sub(lambda match: f"intermediate value {match[0].removeprefix('___stack')}", name)


def _about_size(name: str, index: str) -> str:
    if re.split(r"[.\[]", name, maxsplit=1)[0] == name:
        mark = f"torch._dynamo.maybe_mark_dynamic({name}, {index})"
        # Another call may pass None or a number, which torch cannot mark.
        guarded = f"if isinstance({name}, torch.Tensor): {mark}"
        return f"{guarded} before the first call, or torch.compile(..., dynamic=True)"
    return "mark the size as dynamic (torch._dynamo.maybe_mark_dynamic) before the first call, or pad it to one length"


def _about_value(name: str, value: str) -> str:
    if _RATE.search(name):
        return "Dynamo makes a constant of the learning rate: give the optimizer a tensor, lr=torch.tensor(0.1)"
    if _ADAPTER.search(name):
        return (
            "adapters or offloading change the module between calls, and each state is compiled separately: choose the "
            "state before the first call, or compile one module for each"
        )
    if name.endswith(".training"):
        return "the model is called in training and in evaluation mode: each is compiled separately, once"
    if re.fullmatch(r"-?\d+", value):
        if name.startswith("self."):
            return "Dynamo makes a constant of a module's number: keep it in a tensor, or count outside of the module"
        return "Dynamo makes a constant of the first number: torch.compile(..., dynamic=True), or give it as a tensor"
    if re.fullmatch(r"-?\d+\.\d*(?:e-?\d+)?", value):
        return "Dynamo makes a constant of the first number: give it as a tensor"
    return "each value is compiled separately: expect one compile for each, or take the choice out of the function"
