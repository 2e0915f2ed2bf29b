"""Finds why each size of an input is static or dynamic: marks, settings, earlier calls, guards, specializations.

Torch decides once per tensor which sizes are dynamic, in ``torch._dynamo.variables.builder``. It keeps the decision
(``DimDynamic``), but not the reason. The reason is derived from what torch decides by: the marks on the tensor, the
settings, the sizes of earlier calls. If these do not explain a decision, no reason is given. Reads only, on the
compiling thread; the results hold no object of torch.
"""

from __future__ import annotations

import os
import re
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.cache.guards import ShapeGuardFacts, compared_sizes
from dynamo_dap.debuggee.torch_api.declarations import SPEC_ARGUMENTS
from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import is_tensor
from dynamo_dap.debuggee.torch_api.isolation import metadata_reading
from dynamo_dap.debuggee.torch_api.objects import Output, Tensor
from dynamo_dap.debuggee.torch_api.traced.symbols import is_symbolic, size_text, value_of_symbol
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.translator import compile_identity
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place, source_name
from dynamo_dap.protocol.requests import sizes as names
from dynamo_dap.protocol.texts import in_user_terms

_STATIC_SHAPE = "torch._dynamo.utils:tensor_always_has_static_shape"
_POLICY = "torch.fx.experimental.symbolic_shapes:DimDynamic"
_AUTOMATIC = "torch.fx.experimental.symbolic_shapes:RelaxedUnspecConstraint"

SIZES = Feature("why a size is static or dynamic", _STATIC_SHAPE, _POLICY, _AUTOMATIC)

_MARKS = {
    "_dynamo_dynamic_indices": "mark_dynamic",
    "_dynamo_strict_unbacked_indices": "mark_unbacked",
    "_dynamo_unbacked_indices": "mark_unbacked",
    "_dynamo_weak_dynamic_indices": "maybe_mark_dynamic",
    "_dynamo_static_indices": "mark_static",
}
"""The attributes that the functions of ``torch._dynamo.decorators`` set on a tensor; dynamic ones first."""


class SizeReason(NamedTuple):
    """One reason for the state of a size; later reasons build on earlier ones."""

    kind: str
    """One of ``protocol.requests.sizes.SIZE_REASONS``."""
    text: str
    """For users: ``it was 3 in an earlier call``."""
    place: Place | None = None
    """The user's line."""


@dataclass(frozen=True, slots=True)
class SizeFacts:
    """A size of an input, or an input that is a number."""

    source: str
    """The size as guards write it: ``L['x'].size()[0]``."""
    state: str
    """One of ``protocol.requests.sizes.SIZE_STATES``."""
    symbol: str | None
    """``s77``; None for a size that never was a symbol."""
    value: str | None
    """The size in the compiled call."""
    reasons: tuple[SizeReason, ...]


class InputSizes:
    """The sizes of the inputs of one trace."""

    def __init__(self, output: Output, code: types.CodeType | None = None) -> None:
        """Take the trace's ``output`` (torch's ``OutputGraph``); after the trace also the function's ``code``."""
        self._output = output
        self._code = code or getattr(output.root_tx, "f_code", None)
        self._is_whole = code is not None
        self._shape_env = output.shape_env
        self._compared = compared_sizes(output)
        self._equal = {
            str(symbol): list(dict.fromkeys(filter(None, map(source_name, sources))))
            for symbol, sources in list(getattr(self._shape_env, "var_to_sources", {}).items())
        }

    @staticmethod
    def of_trace(frame: TracedFrame) -> InputSizes:
        """Return the sizes of the trace that a traced function belongs to."""
        return InputSizes(frame.translator.output)

    def all(self) -> list[SizeFacts]:
        """Return the size of every dimension of each input, and each input that is a symbolic number."""
        if SIZES.problem is not None:
            return []
        with metadata_reading():
            tensors = self._tensors()
            found = [facts for tracked in self._tracked() for facts in self._of(tracked, tensors)]
        if self._is_whole:
            _note_dynamic(self._code, found)
        return found

    def of_example(self, example: object) -> list[SizeFacts]:
        """Return the sizes of the input that a FakeTensor or SymInt represents; empty for any other value."""
        if SIZES.problem is not None:
            return []
        with metadata_reading():
            found = next((each for each in self._tracked() if each.fake is example), None)
            return [] if found is None else list(self._of(found, self._tensors()))

    def of_symbol(self, symbol: str) -> SizeFacts | None:
        """Return the first size that ``symbol`` represents."""
        return next((facts for facts in self.all() if facts.symbol == symbol), None)

    def of_unused(self, tensor: Tensor, source: object) -> list[list[SizeReason]]:
        """Return the known reasons for each size of an input that Dynamo has not used, and thus not decided on."""
        name = source_name(source)
        if SIZES.problem is not None or name is None:
            return []
        with metadata_reading():
            sizes = [size if type(size) is int else -1 for size in tensor.size()]
            earlier = _earlier_sizes(self._code, name)
            return [
                list(self._known_of_unused(source, tensor, position, size, earlier))
                for position, size in enumerate(sizes)
            ]

    def _known_of_unused(
        self, source: object, tensor: object, position: int, size: int, earlier: tuple[object, ...]
    ) -> Iterator[SizeReason]:
        config = _config()
        if (declared := _declared(config)) is not None:
            yield SizeReason(names.SETTING, f"declared by {declared}")
        elif (forced := self._forced(source, tensor, config)) is not None:
            yield forced
        elif (mark := _mark(tensor, position)) is not None:
            yield SizeReason(names.MARKED, f"marked with {mark}")
        elif not getattr(config, "assume_static_by_default", True):
            yield _dynamic_setting()
        elif not getattr(config, "automatic_dynamic_shapes", True):
            yield SizeReason(
                names.SETTING, "dynamic shapes are off (dynamic=False, or automatic_dynamic_shapes = False)"
            )
        elif position < len(earlier) and is_exactly(earlier[position], (int,)):
            then = "the same" if earlier[position] == size else str(earlier[position])
            yield SizeReason(names.AUTOMATIC, f"the size was {then} in the earlier calls that were compiled")
        elif position < len(earlier):
            yield SizeReason(names.AUTOMATIC, "the size varied in earlier calls")
        if size in (0, 1):
            yield SizeReason(names.ZERO_ONE, f"a size of {size} is a constant: torch specializes 0 and 1")

    def _tracked(self) -> list[Any]:
        return list(getattr(self._output, "tracked_fakes", None) or ())

    def _tensors(self) -> dict[int, object]:
        """Return the real tensors, each by the ``id`` of its policy."""
        context = getattr(self._output, "tracing_context", None)
        known = getattr(context, "tensor_to_context", None)
        return {} if known is None else {id(policy): tensor for tensor, policy in list(known.items())}

    def _of(self, tracked: Any, tensors: dict[int, object]) -> Iterator[SizeFacts]:
        name, policy = source_name(tracked.source), tracked.symbolic_context
        if name is None:
            return
        if is_symbolic(tracked.fake):
            # A float is an input tensor for torch, so its symbol has nothing to do with sizes.
            if type(tracked.fake).__name__ == "SymInt":
                yield self._number(name, tracked)
            return
        if not is_tensor(tracked.fake):
            return
        tensor = tensors.get(id(policy))
        policies = tuple(getattr(policy, "dynamic_sizes", None) or ())
        for position, size in enumerate(tracked.fake.size()):
            chosen = policies[position] if position < len(policies) else None
            source = f"{name}.size()[{position}]"
            first = self._why(tracked.source, tensor, policy, position, chosen, size)
            yield self._facts(source, size, first)

    def _facts(self, source: str, size: Any, first: list[SizeReason]) -> SizeFacts:
        # A size of 0 or 1 is a constant, even where torch lets the size vary.
        since = _since(self._code, source) if is_symbolic(size) else ""
        first = [one._replace(text=one.text + since) if one.kind == names.AUTOMATIC else one for one in first]
        expression = getattr(size.node, "_expr", None) if is_symbolic(size) else None
        if expression is None or not getattr(expression, "is_Symbol", False):
            state = names.STATIC if type(size) is int else names.DYNAMIC
            return SizeFacts(source, state, None, size_text(size), tuple(first))
        symbol = str(expression)
        constant = getattr(self._shape_env, "replacements", {}).get(expression)
        is_constant = bool(getattr(constant, "is_number", False))
        value = constant if is_constant else value_of_symbol(self._shape_env, expression)
        return SizeFacts(
            source,
            names.SPECIALIZED if is_constant else names.DYNAMIC,
            symbol,
            None if value is None else str(value),
            (*first, *self._equals(symbol, source), *self._conditions(symbol)),
        )

    def _number(self, name: str, tracked: Any) -> SizeFacts:
        if type(tracked.source).__name__ == "CallMethodItemSource":
            first = [SizeReason(names.OTHER, "torch always treats the number in a 0-dimensional tensor as dynamic")]
        elif not getattr(_config(), "assume_static_by_default", True):
            first = [_dynamic_setting()]
        elif _has_lists():
            first = []
        else:
            first = [SizeReason(names.AUTOMATIC, "the number differed in an earlier call")]
        return self._facts(name, tracked.fake, first)

    def _equals(self, symbol: str, source: str) -> Iterator[SizeReason]:
        for other in self._equal.get(symbol, ()):
            if other != source:
                yield SizeReason(names.EQUAL, f"has the same symbol as {written(other)}: both are equal in this call")

    def _conditions(self, symbol: str) -> Iterator[SizeReason]:
        mentioned = re.compile(rf"\b{re.escape(symbol)}\b")
        about = [condition for condition in self._compared if mentioned.search(condition.symbolic)]
        # A specialization also appears as the comparison that caused it, which has torch's line.
        became = next((each for each in about if _is_specialization(each, symbol)), None)
        asked = [each for each in about if became and each is not became and each.symbolic == became.symbolic]
        for condition in about:
            if condition is became and asked:
                place = became.place or asked[0].place
                yield _condition(replace(became, place=place, asked_by=asked[0].asked_by), symbol)
            elif condition not in asked:
                yield _condition(condition, symbol)

    # -- torch's decision, in its own order -----------------------------------------------------------------------

    def _why(
        self, source: object, tensor: object, policy: object, position: int, chosen: object, size: object
    ) -> list[SizeReason]:
        if chosen is None:
            return []
        kind = str(getattr(chosen, "name", chosen))
        if kind == "STATIC":
            reason = self._why_static(source, tensor, position)
            return [] if reason is None else [reason]
        found = self._why_dynamic(tensor, policy, position, kind)
        reasons = [] if found is None else [found]
        if type(size) is int and size in (0, 1):
            reasons.append(SizeReason(names.ZERO_ONE, f"a size of {size} is a constant: torch specializes 0 and 1"))
        return reasons

    def _why_static(self, source: object, tensor: object, position: int) -> SizeReason | None:
        config = _config()
        if (declared := _declared(config)) is not None:
            return SizeReason(names.SETTING, f"static by {declared}")
        forced = self._forced(source, tensor, config)
        if forced is not None:
            return forced
        if tensor is not None and (mark := _mark(tensor, position)) is not None:
            return SizeReason(names.MARKED, f"marked with {mark}") if mark == "mark_static" else None
        if tensor is None or not getattr(config, "assume_static_by_default", True):
            return None
        if not getattr(config, "automatic_dynamic_shapes", True):
            text = "static: dynamic shapes are off (dynamic=False, or automatic_dynamic_shapes = False)"
            return SizeReason(names.SETTING, text)
        return SizeReason(names.FIRST, "static until another size arrives")

    def _forced(self, source: object, tensor: object, config: object) -> SizeReason | None:
        is_static, why = SIZES.resolve(_STATIC_SHAPE)(tensor, tensor is not None, source)
        if not is_static:
            return None
        reason = str(getattr(why, "name", why))
        if reason == "PARAMETER":
            return SizeReason(names.PARAMETER, "static: a parameter or buffer (force_parameter_static_shapes)")
        if reason == "NN_MODULE_PROPERTY":
            text = "static: a tensor of a module (force_nn_module_property_static_shapes)"
            return SizeReason(names.MODULE, text)
        return None

    def _why_dynamic(self, tensor: object, policy: object, position: int, kind: str) -> SizeReason | None:
        config = _config()
        if (declared := _declared(config)) is not None:
            return SizeReason(names.SETTING, f"dynamic by {declared}")
        if tensor is not None and (mark := _mark(tensor, position)) is not None:
            return SizeReason(names.MARKED, f"marked with {mark}")
        if kind == "DUCK" and not getattr(config, "assume_static_by_default", True):
            return _dynamic_setting()
        constraints = tuple(getattr(policy, "constraint_sizes", None) or ())
        constraint = constraints[position] if position < len(constraints) else None
        if isinstance(constraint, SIZES.resolve(_AUTOMATIC)) and constraint.warn_only:
            return _changed(policy, position)
        return None


_dynamic_since: dict[tuple[str, int, str], dict[str, int]] = {}
"""By file, line and name of a function: the first compile in which a size was dynamic, by its source.

The key "" has the newest compile that was read.
"""


def _note_dynamic(code: types.CodeType | None, sizes: Sequence[SizeFacts]) -> None:
    """Remember in which compile of a function each size became dynamic, if all earlier compiles were read as well."""
    number = _number_of_compile()
    if number is None or code is None:
        return
    known = _dynamic_since.get(_place_of(code), {})
    if number > known.get("", -1) + 1:
        return
    if number == 0:
        known = {}  # after a reset, torch counts from 0 again
    for facts in sizes:
        if facts.state != names.STATIC:
            known.setdefault(facts.source, number)
    _dynamic_since[_place_of(code)] = {**known, "": max(number, known.get("", 0))}


def _since(code: types.CodeType | None, source: str) -> str:
    """Return since which compile a size is dynamic, as the end of a sentence about an earlier call."""
    number = _number_of_compile()
    known = {} if code is None else _dynamic_since.get(_place_of(code), {})
    # In the first compile, only torch's profile makes a size dynamic: from an earlier run, or from before a reset.
    if not number or number > known.get("", -1) + 1:
        return " or run"
    first = known.get(source, number)
    return ", and this call made it dynamic" if first >= number else f", and dynamic since compile {_named(first)}"


def _number_of_compile() -> int | None:
    """Return the number of the running or replayed compile of its function: 3 for ``0/3``; None outside a compile."""
    number = compile_identity().compile_id.rpartition("/")[2].partition("_")[0]
    return int(number) if number.isdigit() else None


def _named(number: int) -> str:
    return f"{compile_identity().compile_id.rpartition('/')[0]}/{number}"


def _changed(policy: object, position: int) -> SizeReason | None:
    before = tuple(getattr(policy, "excluded_sizes", None) or ())
    if position < len(before) and is_exactly(before[position], (int,)):
        return SizeReason(names.AUTOMATIC, f"the size was {before[position]} in an earlier call")
    return None if _has_lists() else SizeReason(names.AUTOMATIC, "the size differed in an earlier call")


def _place_of(code: types.CodeType) -> tuple[str, int, str]:
    return code.co_filename, code.co_firstlineno, code.co_name


def _earlier_sizes(code: types.CodeType | None, name: str) -> tuple[object, ...]:
    """Return the sizes of a tensor in earlier compiles of its function; a size that varied is torch's marker."""
    if code is None:
        return ()
    states = getattr(sys.modules.get("torch._dynamo.pgo"), "_CODE_STATE", None)
    for known, state in list(states.items()) if isinstance(states, dict) else ():
        place = tuple(getattr(known, each, None) for each in ("filename", "firstlineno", "name"))
        if place == _place_of(code):
            entry = dict(getattr(state, "automatic_dynamic", {})).get(name)
            size: Any = getattr(entry, "size", None)
            return tuple(size) if is_exactly(size, (tuple,)) else ()
    return ()


def _declared(config: object) -> str | None:
    """Return the argument of ``torch.compile`` that declares sizes; None if unset."""
    arguments = SPEC_ARGUMENTS.items()
    return next((argument for name, argument in arguments if getattr(config, name, None) is not None), None)


def _dynamic_setting() -> SizeReason:
    return SizeReason(names.SETTING, "dynamic by dynamic=True, or assume_static_by_default = False")


def _mark(tensor: object, position: int) -> str | None:
    # Reading an attribute of a tensor subclass may run code of the program.
    stored = object.__getattribute__(tensor, "__dict__")
    for attribute, function in _MARKS.items():
        marked = stored.get(attribute)
        if is_exactly(marked, (set, frozenset)) and position in marked:
            return function
    return None


def _config() -> object:
    return sys.modules.get("torch._dynamo.config")


def _has_lists() -> bool:
    """Return whether settings name sources or values that are dynamic: earlier calls may not be the reason then."""
    config = sys.modules.get("torch.compiler.config")
    return any(getattr(config, name, "") for name in ("dynamic_sources", "dynamic_values", "unbacked_sources"))


def written(name: str) -> str:
    """Return a size or condition as the user writes it: ``L['x'].size()[0]`` -> ``x.shape[0]``."""
    return re.sub(r"\.size\(\)\[(\d+)\]", r".shape[\1]", in_user_terms(name))


def _condition(condition: ShapeGuardFacts, symbol: str) -> SizeReason:
    text, kind = written(condition.expression), names.CONDITION
    if _is_specialization(condition, symbol):
        text, kind = f"became {condition.symbolic.partition(' == ')[2]}", names.SPECIALIZATION
    elif condition.symbolic.startswith(f"{symbol} == "):
        text, kind = f"found equal to {text.partition(' == ')[2]}", names.EQUAL
    asked = _asked(condition.asked_by)
    return SizeReason(kind, f"{text}, asked by {asked}" if asked else text, condition.place)


def _is_specialization(condition: ShapeGuardFacts, symbol: str) -> bool:
    return condition.reason == "specialized" and condition.symbolic.startswith(f"{symbol} == ")


def _asked(asked_by: tuple[str, int, str] | None) -> str | None:
    """Return the code of torch that caused a condition: ``torch/_refs/__init__.py:3821 in view``; None for Dynamo's."""
    if asked_by is None:
        return None
    torch: Any = sys.modules["torch"]
    folder = os.path.join(os.path.dirname(torch.__file__), "")
    path, line, function = asked_by
    if not path.startswith(folder):
        return None
    inside = path[len(folder) :].replace(os.sep, "/")
    return None if inside.startswith("_dynamo/") else f"torch/{inside}:{line} in {function}"


def merged(sizes: list[SizeFacts]) -> list[SizeFacts]:
    """Merge the sizes of parameters, and of modules' tensors, into one entry each: a model has thousands of them."""
    kept, counted = [], dict.fromkeys((names.PARAMETER, names.MODULE), 0)
    firsts: dict[str, SizeFacts] = {}
    for facts in sizes:
        kind = facts.reasons[0].kind if facts.reasons else ""
        if facts.state == names.STATIC and kind in counted:
            counted[kind] += 1
            firsts.setdefault(kind, facts)
        else:
            kept.append(facts)
    for kind, first in firsts.items():
        what = {names.PARAMETER: "parameters and buffers", names.MODULE: "tensors of modules"}[kind]
        kept.append(replace(first, source=f"{counted[kind]} sizes of {what}", value=None))
    return kept
