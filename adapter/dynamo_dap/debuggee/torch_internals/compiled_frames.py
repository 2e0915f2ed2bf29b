"""Facts of a finished compile: guards with their expressions, resume functions, the times of its phases.

Compiling thread.
"""

from __future__ import annotations

import dis
import re
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.torch_internals.features import Feature
from dynamo_dap.debuggee.torch_internals.guards import inputs_in, places_of_conditions
from dynamo_dap.debuggee.torch_internals.sources import as_the_user_wrote
from dynamo_dap.debuggee.torch_internals.variable_trackers import Place, source_name, users_frame

_METRICS = "torch._dynamo.utils:get_compilation_metrics"
METRICS = Feature("the times of the phases of a compile", _METRICS)
_COUNTERS = "torch._dynamo.utils:counters"
COUNTERS = Feature("whether a compile was served by a cache", _COUNTERS)

_CHECK_OF_TENSOR = re.compile(r"check_tensor\((?P<name>.+?), [\w.<>]+, DispatchKeySet\(")
"""As ``torch._dynamo.guards.get_tensor_guard_code_part`` writes it."""

_PHASES = {
    "whole frame": "dynamo_cumulative_compile_time_us",
    "backend": "aot_autograd_cumulative_compile_time_us",
    "inductor": "inductor_cumulative_compile_time_us",
    "inductor code": "inductor_code_gen_cumulative_compile_time_us",
    "before restarts": "dynamo_compile_time_before_restart_us",
}


@dataclass(frozen=True, slots=True)
class BuiltGuard:
    """A guard of compiled code, in torch's words."""

    expressions: tuple[str, ...]
    check: str
    place: Place | None
    source: str | None


def built_guards(output: Any, checks: Sequence[str]) -> Iterator[BuiltGuard]:
    """Yield the guards of a compile whose guards have been built; ``checks`` is what its guard manager will check.

    A tensor's guard has only its lesser checks in its own list: that of dtype and sizes is the guard manager's alone.
    """
    of_tensors = {match["name"]: check for check in checks if (match := _CHECK_OF_TENSOR.match(check))}
    for guard in list(output.guards):
        create = guard.create_fn
        function = getattr(create, "func", create)
        check = str(getattr(function, "__name__", function))
        name = source_name(guard.originating_source) or ""
        stack = getattr(guard, "user_stack", None)
        expressions = [str(one) for one in guard.code_list or ()]
        if check == "SHAPE_ENV" and expressions:
            yield from _conditions_on_sizes(output, expressions)
            continue
        if check == "TENSOR_MATCH" and name in of_tensors:
            expressions.insert(0, of_tensors[name])
        yield BuiltGuard(
            expressions=tuple(expressions) or (f"{check} {name}".rstrip(),),
            check=check,
            place=users_frame(stack)[0] if stack else None,
            source=as_the_user_wrote(name) or None,
        )


def _conditions_on_sizes(output: Any, expressions: list[str]) -> Iterator[BuiltGuard]:
    """Yield a guard for each condition, with the line that compared these sizes first."""
    places = places_of_conditions(output)
    for expression in expressions:
        about = inputs_in(expression)
        place = next((place for inputs, place in places if inputs == about), None)
        yield BuiltGuard((expression,), "SHAPE_ENV", place, None)


def resume_codes(code: types.CodeType | None, f_globals: dict[str, Any]) -> list[types.CodeType]:
    """Return the resume functions that generated code calls."""
    names = () if code is None else code.co_names
    found = [getattr(f_globals.get(name), "__code__", None) for name in dict.fromkeys(names) if name in f_globals]
    return [one for one in found if isinstance(one, types.CodeType) and "torch_dynamo_resume_in" in one.co_name]


def output_files() -> list[str]:
    """Return the files of output code that Inductor has loaded in this process so far; it may not be there at all."""
    cache = getattr(sys.modules.get("torch._inductor.codecache"), "PyCodeCache", None)
    loaded = [getattr(module, "__file__", None) for module in list(getattr(cache, "modules", ()))]
    return [file for file in loaded if file]


def kernels_in(path: str) -> list[str]:
    """Return what a file of output code defines and calls: its fused kernels, then those of libraries."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_OUTPUT_CODE)
    except (OSError, UnicodeDecodeError):
        return []
    return list(dict.fromkeys([*_KERNEL.findall(text), *_EXTERN.findall(text)]))


_OUTPUT_CODE = 4 * 1024 * 1024
_KERNEL = re.compile(r"^(\w+) = async_compile\.\w+\(", re.MULTILINE)
_EXTERN = re.compile(r"\b(extern_kernels\.\w+|torch\.ops\.\w+\.\w+(?:\.\w+)?)\(")


def cache_counts() -> dict[str, int]:
    """Return how often the caches of compiled graphs were hit, missed and bypassed in this process so far."""
    if COUNTERS.problem is not None:
        return {}
    counters = COUNTERS.resolve(_COUNTERS)
    return {
        f"{cache} {event}": int(counters[group][f"{name}_{event}"])
        for cache, (group, name) in _CACHES.items()
        for event in ("hit", "miss", "bypass")
        if group in counters and f"{name}_{event}" in counters[group]
    }


_CACHES = {"FX graph cache": ("inductor", "fxgraph_cache"), "AOTAutograd cache": ("aot_autograd", "autograd_cache")}


def disassembled(code: types.CodeType, maximum: int) -> str:
    """Return the instructions of generated code, a line each, of ``maximum`` characters at most."""
    lines: list[str] = []
    room = maximum
    for instruction in dis.get_instructions(code):
        argument = instruction.argrepr or ("" if instruction.arg is None else str(instruction.arg))
        line = f"{instruction.offset:5} {instruction.opname} {argument}".rstrip()
        room -= len(line) + 1
        if room < 0:
            lines.append("…")
            break
        lines.append(line)
    return "\n".join(lines)


def phases_of(compile_id: str) -> dict[str, float]:
    """Return the seconds of each phase of the compile that has just ended; empty when torch did not note them."""
    if METRICS.problem is not None:
        return {}
    metrics = METRICS.resolve(_METRICS)()
    last = metrics[-1] if metrics else None
    if last is None or str(last.compile_id) != compile_id:
        return {}
    times = {name: getattr(last, field, None) for name, field in _PHASES.items()}
    return {name: microseconds / 1e6 for name, microseconds in times.items() if microseconds}
