"""Observes a program's run, to compare two runs: graphs, guards, generated code, recompiles, results.

A program is a function with the parameter ``compiled``. It makes new functions, compiles them with ``compiled``, calls
them, and returns the results. ``observe`` runs it with hooks that only take notes. Names that torch makes unique
(counters, ids, hashes) are normalised.
"""

from __future__ import annotations

import collections
import dis
import gc
import itertools
import random
import re
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._dynamo
from torch._dynamo import bytecode_transformation, pgo
from torch._dynamo.convert_frame import register_bytecode_hook
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.utils import CleanupManager, counters
from torch.fx.graph_module import _loader

from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame

# The objects of torch's modules are not garbage. Frozen, they do not slow down the many collections of these tests.
gc.collect()
gc.freeze()


@dataclass
class Observation:
    """The observable facts of one run of a program."""

    graphs: list[str] = field(default_factory=list)
    guards: list[str] = field(default_factory=list)
    bytecode: list[str] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    compiles: dict[str, int] = field(default_factory=dict)
    counters: Any = None
    """Torch's other counters and numbers, and its memory of sizes."""
    steps: int = 0
    lines: int = 0
    random_state: Any = None


_COUNTED = ("frames", "stats", "graph_break", "unimplemented", "recompile_limit", "inline_call")
"""Groups of torch's counters about compiles. Other groups count hits of caches that outlive a run."""

_UNIQUE = [
    (re.compile(r"__compiled_fn_\d+(_[0-9a-f_]+)?"), "__compiled_fn"),
    (re.compile(r"__resume_at_(\d+)_\d+"), r"__resume_at_\1"),
    (re.compile(r"__gen_rand_values_\d+"), "__gen_rand_values"),
    (re.compile(r"(___context_manager|__optimizer)_\d+_\d+"), r"\1"),
    (re.compile(r"0x[0-9a-f]+"), "0x"),
    (re.compile(r"\b\d{9,}\b"), "<id>"),
    (re.compile(r"(__builtins_dict___|__import_\w+?_c|___unnamed_scope_|_obj_|_c)\d+"), r"\1"),
    (re.compile(r"<\w+ object at 0x>"), "<object>"),
]


def normalised(text: str) -> str:
    """Return a text without the names that torch makes unique."""
    for pattern, replacement in _UNIQUE:
        text = pattern.sub(replacement, text)
    return text


def observe(
    program: Callable[..., list[Any]],
    watch: Callable[[TracedFrame], None] | None = None,
    *,
    runs: int = 1,
    **options: Any,
) -> Observation:
    """Run ``program(compiled)`` and note everything; ``watch(frame)`` is called at every traced line.

    ``compiled(function)`` compiles with a backend that runs the graph unchanged. It passes ``options``, and its own
    options, to ``torch.compile``. With several ``runs``, the calls of later ones hit the cache if possible.
    """
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    random.seed(0)
    _have_numbers_of_one_width()
    number, graph_number, cleanups = _next_number(), _loader.next_id, CleanupManager.count
    seen = Observation()
    codes: list[types.CodeType] = []
    results: list[Any] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        shapes = [str(getattr(each, "shape", each)) for each in inputs]
        nodes = [
            f"{node.format_node()} {node.meta.get('stack_trace', '')} {_example(node)}" for node in module.graph.nodes
        ]
        seen.graphs.append(normalised("\n".join([module.code, *nodes, *shapes])))
        return module.forward

    def note_bytecode(old: types.CodeType, new: types.CodeType) -> None:
        codes.append(old)
        seen.bytecode.append(f"{old.co_name}:{old.co_firstlineno}\n{_listing(new)}")

    handle = register_bytecode_hook(note_bytecode)
    try:
        with _hooks(seen, watch):
            for _ in range(runs):
                results += program(
                    lambda function, **own: torch.compile(function, backend=backend, **{**options, **own})
                )
    finally:
        handle.remove()
    seen.results = [_plain(each) for each in results]
    seen.random_state = (torch.get_rng_state().tolist(), random.getstate())
    seen.compiles = {
        normalised(f"{group}.{name}"): count for group in _COUNTED for name, count in counters[group].items()
    }
    seen.counters = (
        normalised(repr({group: dict(each) for group, each in counters.items()})),
        _next_number() - number,
        _loader.next_id - graph_number,
        CleanupManager.count - cleanups,
        repr(pgo.get_code_state()),
    )
    # Torch drops the guards of dead objects. Objects in cycles would otherwise die at an unknown time.
    gc.collect()
    for code in dict.fromkeys(codes):
        for entry in torch._dynamo.eval_frame._debug_get_cache_entry_list(code):
            seen.guards.append(normalised(f"{code.co_name}: {entry.guard_manager}"))
    return seen


def _have_numbers_of_one_width() -> None:
    """Give all numbers the same width: torch sorts guards by the length of names, so 1000 would change the order."""
    if _next_number() < _FIRST_NUMBER:
        bytecode_transformation._unique_id_counter = itertools.count(_FIRST_NUMBER)


_FIRST_NUMBER = 1_000_000
"""A first number with enough digits: all tests of a run together never reach a number with one digit more."""


def _next_number() -> int:
    """Return the number of the next name that torch generates."""
    return int(repr(bytecode_transformation._unique_id_counter)[len("count(") : -1])


def _example(node: Any) -> str:
    example = node.meta.get("example_value")
    if isinstance(example, torch.Tensor):
        return (
            f"{example.dtype} {tuple(str(size) for size in example.shape)} {example.stride()} {example.requires_grad}"
        )
    return str(example)


@contextmanager
def _hooks(seen: Observation, watch: Callable[[TracedFrame], None] | None) -> Iterator[None]:
    base = InstructionTranslatorBase
    step, starts_line = base.step, base.starts_line

    def counting_step(self: Any) -> bool:
        seen.steps += 1
        return step(self)

    def watching_line(self: Any, lineno: int) -> None:
        starts_line(self, lineno)
        seen.lines += 1
        if watch is not None:
            watch(TracedFrame(self))

    base.step, base.starts_line = counting_step, watching_line
    try:
        yield
    finally:
        base.step, base.starts_line = step, starts_line


def _listing(code: types.CodeType) -> str:
    lines = []
    for instruction in dis.get_instructions(code):
        argument = instruction.argval
        if isinstance(argument, types.CodeType):
            argument = f"code {argument.co_name}"
        lines.append(normalised(f"{instruction.offset} {instruction.opname} {argument!r}"))
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    names = normalised(f"{code.co_varnames}\n{code.co_freevars}")
    return "\n".join([*lines, names, *(_listing(each) for each in inner)])


def _plain(value: Any) -> Any:
    """Return a result as a value that can be compared with ``==``."""
    if isinstance(value, torch.Tensor):
        return ("tensor", str(value.dtype), tuple(value.shape), value.detach().tolist(), value.requires_grad)
    if isinstance(value, dict):
        return [(key, _plain(item)) for key, item in value.items()]
    if isinstance(value, list | tuple | collections.deque | set):
        return [type(value).__name__, *(_plain(item) for item in value)]
    return value if isinstance(value, int | float | str | bool | type(None)) else type(value).__name__
