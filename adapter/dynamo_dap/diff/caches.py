"""Finds the compiles of a second run that miss the caches which a first run filled, and why their keys differ.

It has no side effects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from dynamo_dap.diff.comparing import side_of_run, unified
from dynamo_dap.diff.model import JsonCaches, KeyPart, NotCached
from dynamo_dap.diff.normal import graph_lines, normal_name
from dynamo_dap.diff.sides import CannotCompare, Run
from dynamo_dap.records.model import CacheLookup, Compile, Place

_PART = re.compile(r"\[(?P<digest>\w+)\] (?P<name>\w+(?:\[[^\n]*?\](?=: ))?): (?P<value>.*)", re.DOTALL)
_FIELD = re.compile(r"(?P<name>\w+)=(?P<value>.*?)(?=, \w+=|\)?$)")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?\b(?!\])")
_UNREADABLE = re.compile(r"[\x00-\x08\x0e-\x1f\ufffd]")
_MOST_PARTS = 40
GRAPH = "gm"
"""Torch's name of the part that is the graph."""
_GRAPH_CACHES = frozenset({"FX graph cache", "AOTAutograd cache"})
_REFUSALS = frozenset({"bypass", "refused", "error"})
_TRAINS, _IS_BACKWARD = "fx_kwargs[is_inference]", "fx_kwargs[is_backward]"

_ADVICE = (
    ("inductor_config[", "Set torch._inductor.config.{item} to the same value in both runs."),
    ("autograd_config", "A setting of torch._functorch.config differs: set it to the same value in both runs."),
    ("cpp_runtime_thread_count", "Give both runs the same number of threads: torch.set_num_threads, OMP_NUM_THREADS."),
    ("default_dtype", "Call torch.set_default_dtype with the same type in both runs."),
    ("deterministic_algorithms", "Call torch.use_deterministic_algorithms with the same arguments in both runs."),
    ("cuda_matmul_settings", "Set torch.backends.cuda.matmul to the same values in both runs."),
    ("grad_enabled", "Call the function under the same torch.no_grad() or torch.enable_grad() in both runs."),
    ("example_inputs[", "The inputs differ: give the call the same shapes, strides, types and devices."),
    ("cache_key_tag", "Set torch.compiler.config.cache_key_tag to the same text in both runs."),
    ("torch_version", "The sources of torch differ: use the same build in both runs."),
    ("system_info[", "The device, driver or version of Triton differs: each needs its own cache."),
    ("provenance_tracking_level", "Set INDUCTOR_PROVENANCE and TORCH_COMPILE_DEBUG to the same values in both runs."),
    ("region_activation_memory_budget", "Use the same activation memory budget in both runs."),
    ("saved_tensors_hooks", "The hooks on saved tensors differ."),
    ("triton_option[", "Compile the Triton kernel with the same {item} in both runs."),
    ("triton_constant[", "The constant {item} of the Triton kernel differs: pass the same one in both runs."),
    ("triton_signature[", "The type of {item} of the Triton kernel differs."),
    ("triton_environment[", "Set the environment variable {item} to the same value in both runs."),
    ("triton_source", "The source of the Triton kernel differs."),
    ("triton_backend", "The device or ptxas differs: each needs its own kernels."),
    ("triton_version", "Install the same version of Triton in both environments."),
    ("autotune_backend", "The device or the version of Triton differs: tune once on each."),
    ("autotune_code", "The generated code differs: the cause is that of the FX graph cache."),
    (
        "autotune_configs",
        "The kernel's configurations differ: compare max_autotune and size hints of both runs.",
    ),
    ("precompile_line", "Torch looks up a precompiled function by its name and first line: the line moved."),
    ("precompile_function", "Torch looks up a precompiled function by its name and first line: the name differs."),
)
_PASSES = re.compile(r"\w*(?:custom\w*pass|fusion_custom_pass|partitioner_fn|backend_passes|solver_uuids)\w*")
_GUARD_FAILS = "guard of the saved function fails"
_REASONS = (
    ("Source code changes", "The code of a traced function has changed since then: compile it again."),
    (
        _GUARD_FAILS,
        "A saved function is valid for the values of its compile: call it with these in the first run, too.",
    ),
    ("different PyTorch version", "Compile it again with this torch: entries are valid for one version only."),
    ("different Python version", "Compile it again with this Python: entries are valid for one version only."),
    ("custom pass", "Give the pass a uuid(): derive it from torch._inductor.custom_graph_pass.CustomGraphPass."),
    (
        "pickle",
        "Something that the key depends on cannot be pickled: keep it out of options and of custom passes.",
    ),
    ("freezing enabled", "Turn torch._inductor.config.freezing off for this cache."),
    ("HigherOrderOperator", "This operator cannot be cached: leave it out of the compiled function."),
    (
        "Unsupported call_function",
        "If the function always does the same, name it in torch._inductor.config.unsafe_marked_cacheable_functions.",
    ),
)
_FUNCTION = re.compile(r"Function name: (?P<name>\w+)")
NUMBER = "A number in the graph differs in each run: pass it as a tensor."


def what_is_not_cached(one: Run, other: Run) -> JsonCaches:
    """Return what ``other`` compiled again although ``one`` had filled the caches.

    Raises:
        CannotCompare: neither run compiled anything, or the second one reports no caches.
    """
    compiles = [list(_compiles(run)) for run in (one, other)]
    if not compiles[1] and not compiles[0]:
        raise CannotCompare("neither run compiled anything")
    if compiles[1] and not any(compiled.lookups for _, compiled in compiles[1]):
        raise CannotCompare(
            "the second run reports no caches: its backends have none, the caches are off "
            "(TORCHINDUCTOR_FORCE_DISABLE_CACHES), or it is a record, which lacks keys: give a trace log or a command"
        )
    found = [each for name, compiled in compiles[1] if (each := _not_cached(name, compiled, compiles[0])) is not None]
    hits = sum(bool(compiled.lookups) for _, compiled in compiles[1]) - len(found)
    return JsonCaches(side_of_run(one), side_of_run(other), hits, found)


def _compiles(run: Run) -> Iterator[tuple[str, Compile]]:
    for record in run.records:
        for function, compiled in sorted(record.compiles(), key=lambda each: each[1].began or 0.0):
            if compiled.state == "compiled":
                yield function.name, msgspec.structs.replace(compiled, lookups=_with_parts(compiled.lookups))


def _with_parts(lookups: Sequence[CacheLookup]) -> list[CacheLookup]:
    """Copy the parts of each local lookup to the remote ones with the same key."""
    parts = {each.key: each.components for each in lookups if each.components}
    return [
        each if each.components else msgspec.structs.replace(each, components=parts.get(each.key, []))
        for each in lookups
    ]


def _not_cached(function: str, compiled: Compile, filled: Sequence[tuple[str, Compile]]) -> NotCached | None:
    missed = [lookup for lookup in compiled.lookups if lookup.result != "hit"]
    if not missed:
        return None
    refused = {lookup.cache for lookup in missed if lookup.result == "refused"}
    answers = [each for each in compiled.lookups if each.result != "hit" or each.cache not in refused]
    results = [f"{lookup.cache} {lookup.result}" for lookup in answers]
    reasons = list(
        dict.fromkeys(each.reason for each in missed if each.reason is not None and each.result in _REFUSALS)
    )
    of_graphs = [each for each in missed if each.cache in _GRAPH_CACHES]
    others = [each for each in missed if each.cache not in _GRAPH_CACHES]
    lookup, match, counterpart = _nearest(function, compiled, of_graphs or others[:1], filled)
    parts = [] if match is None or lookup is None else _differing(match, lookup)
    for each in others:
        _, nearest, _ = _nearest(function, compiled, [each], filled)
        known = {part.name for part in parts}
        parts += [] if nearest is None else [one for one in _differing(nearest, each) if one.name not in known]
    advice, explanation, diff = list(_advice_for_reasons(reasons)), None, list[str]()
    place = _place_of_function(compiled, reasons)
    if any(part.name == GRAPH for part in parts) and counterpart is not None:
        diff, place = _graph_diff(counterpart, compiled)
        if diff and _only_numbers(diff) and not any(_GUARD_FAILS in reason for reason in reasons):
            advice.append(NUMBER)
        explanation = (
            "the graph differs"
            if diff
            else "the graph differs in facts that the record lacks: a constant tensor, or names"
        )
    elif lookup is not None and match is None and any(lookup.components for lookup in missed):
        explanation = "the first run made no similar lookup"
    elif match is not None and not parts and any(each.reason == "guard_miss" for each in missed):
        explanation, place = _of_sizes(compiled, counterpart)
    elif match is not None and not parts:
        explanation = _of_same_key(lookup, reasons, counterpart)
    if explanation is _NO_BACKWARD:
        advice.append("Run the backward pass in the run that fills the caches, or call it under torch.no_grad().")
    for part in parts:
        advice += [text for text in [_advice_for(part.name)] if text is not None]
    return NotCached(
        function,
        compiled.id,
        list(dict.fromkeys(results)),
        round(compiled.seconds or 0.0, 3),
        place or compiled.place,
        reasons,
        [part for part in parts if part.name != GRAPH][:_MOST_PARTS],
        explanation,
        diff,
        list(dict.fromkeys(advice)),
    )


def _of_sizes(compiled: Compile, counterpart: Compile | None) -> tuple[str, Place | None]:
    """Return a sentence on guards that only the cache entry has, and the line of a guard that only this compile has."""
    of_one, of_other = (
        {guard.expression: guard for guard in (each.guards if each is not None else ()) if guard.type == "SHAPE_ENV"}
        for each in (counterpart, compiled)
    )
    lacking = [guard.text or guard.expression for key, guard in of_one.items() if key not in of_other]
    which = f": {', '.join(lacking)}" if lacking else ""
    places = (guard.place for key, guard in of_other.items() if key not in of_one)
    text = f"the key is the same, but the sizes of this call do not meet the guards of the entry{which}"
    return text, next((place for place in places if place is not None), None)


def _of_same_key(lookup: CacheLookup | None, reasons: Sequence[str], counterpart: Compile | None) -> str | None:
    if lookup is not None and lookup.cache == "AOTAutograd cache" and _lacks_backward(counterpart):
        return _NO_BACKWARD
    return None if reasons else "the key is the same, but the first run has stored no entry for it"


_NO_BACKWARD = (
    "the key is the same, but the first run has stored no entry for it: AOTAutograd stores one after it has compiled "
    "the backward pass, and the first run has not"
)


def _lacks_backward(compiled: Compile | None) -> bool:
    """Return whether graphs were compiled for training, but no backward pass was, as the lookups show."""
    graphs = [_parts(each) for each in compiled.lookups if each.components] if compiled is not None else []
    forward = [each for each in graphs if each.get(_TRAINS, ("", ""))[1] == "False"]
    return bool(forward) and not any(each[_IS_BACKWARD][1] == "True" for each in forward if _IS_BACKWARD in each)


def _nearest(
    function: str, compiled: Compile, missed: Sequence[CacheLookup], filled: Sequence[tuple[str, Compile]]
) -> tuple[CacheLookup | None, CacheLookup | None, Compile | None]:
    """Return a missed lookup, the first run's lookup with the fewest differing parts, and the latter's compile."""
    for lookup in missed:
        if not lookup.components:
            continue
        candidates = [
            (
                (name, normal_name(there)) != (function, normal_name(compiled)),
                len(_differing(earlier, lookup)),
                number,
                earlier,
                there,
            )
            for number, (name, there) in enumerate(filled)
            for earlier in there.lookups
            if earlier.cache == lookup.cache and earlier.components
        ]
        if candidates:
            *_, earlier, there = min(candidates, key=lambda each: each[:3])
            return lookup, earlier, there
        return lookup, None, None
    return None, None, None


def _differing(one: CacheLookup, other: CacheLookup) -> list[KeyPart]:
    of_one, of_other = _parts(one), _parts(other)
    names = dict.fromkeys([*of_one, *of_other])
    differing = [name for name in names if of_one.get(name, ("", ""))[0] != of_other.get(name, ("", ""))[0]]
    if "triton_backend" in differing:
        # The options differ because Triton chooses them for the device.
        differing = [name for name in differing if not name.startswith("triton_option[")]
    return [
        KeyPart(name, *_shown(of_one.get(name, (None, None))[1], of_other.get(name, (None, None))[1]))
        for name in differing
    ]


def _parts(lookup: CacheLookup) -> dict[str, tuple[str, str]]:
    matches = filter(None, map(_PART.match, lookup.components))
    return {match["name"]: (match["digest"], match["value"]) for match in matches}


def _shown(one: str | None, other: str | None) -> tuple[str | None, str | None]:
    """Return two values for users: only the differing fields of tensors, and nothing for bytes."""
    if one is None or other is None or one == other or _UNREADABLE.search(one + other):
        return None if one is None else "", None if other is None else ""
    fields = [{match["name"]: match[0] for match in _FIELD.finditer(each)} for each in (one, other)]
    names = [name for name in fields[0] if fields[0][name] != fields[1].get(name)]
    if not names or len(fields[0]) == 1 or fields[0].keys() != fields[1].keys():
        return one, other
    return ", ".join(fields[0][name] for name in names), ", ".join(fields[1][name] for name in names)


def _graph_diff(one: Compile, other: Compile) -> tuple[list[str], Place | None]:
    lines = [[line for graph in compiled.graphs for line in graph_lines(graph)] for compiled in (one, other)]
    texts = [[text for text, _ in each] for each in lines]
    at = next((at for at, (text, node) in enumerate(lines[1]) if texts[0][at : at + 1] != [text]), None)
    return unified(*texts), None if at is None else lines[1][at][1].place


def _only_numbers(diff: Sequence[str]) -> bool:
    """Return whether only numbers differ."""
    changed = [line for line in diff if line[:1] in "-+"]
    return len({_NUMBER.sub("#", line[1:]) for line in changed}) * 2 == len(changed)


def is_of_pass(name: str) -> bool:
    """Return whether a part of a key is a custom pass, or a setting that holds one."""
    return any(_PASSES.fullmatch(one) for one in (name.partition("[")[0], name.partition("[")[2].removesuffix("]")))


def _advice_for(name: str) -> str | None:
    if _PASSES.fullmatch(name.partition("[")[0]):
        return f"The uuid() of {name} differs: return the same one while the pass does the same."
    item = name.partition("[")[2].removesuffix("]")
    return next((text.format(item=item) for prefix, text in _ADVICE if name.startswith(prefix)), None)


def _advice_for_reasons(reasons: Sequence[str]) -> Iterator[str]:
    for reason in reasons:
        yield from (text for part, text in _REASONS if part in reason)


def _place_of_function(compiled: Compile, reasons: Sequence[str]) -> Place | None:
    """Return the line of the operation that AOTAutograd cannot cache, which its message names."""
    names = {match["name"] for reason in reasons if (match := _FUNCTION.search(reason)) is not None}
    nodes = (node for graph in compiled.graphs for node in graph.nodes)
    return next((node.place for node in nodes if node.target.rpartition(".")[2] in names), None)
