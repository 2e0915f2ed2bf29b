"""Advises on CUDA graphs that torch skips or records again, or whose outputs it overwrites. It has no side effects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dynamo_dap.protocol.requests.cuda_graphs import (
    ADVICE,
    FORWARD,
    OVERWRITTEN,
    PARTIAL,
    RECORDED,
    RERECORDED,
    SIZE,
    SKIPPED,
)
from dynamo_dap.records.advice.items import Item, Kind, called, caller_of, compiles_of
from dynamo_dap.records.model import Compile, CompiledFunction, CudaGraph

LINK = "https://docs.pytorch.org/docs/main/user_guide/torch_compiler/torch.compiler_cudagraph_trees.html"
_TITLES = {
    SKIPPED: "torch skips the CUDA graph of {name}",
    PARTIAL: "An operation of {name} stays outside of its CUDA graphs",
    RERECORDED: "torch records a CUDA graph of {name} again",
    OVERWRITTEN: "A run of {name} overwrites an output that this line keeps",
}


def cuda_graph_items(functions: Iterable[CompiledFunction]) -> Iterator[Item]:
    """Yield one item for each reason and line, but none for graphs that were only recorded."""
    found: dict[tuple[object, ...], Item] = {}
    for function, compiled in compiles_of(functions):
        for event in compiled.cuda_graphs:
            # A backward pass without a graph because its forward has none: the item of the forward is enough.
            if event.outcome == RECORDED or event.cause == FORWARD:
                continue
            key = (function.name, function.place, event.outcome, event.cause, event.place, event.is_backward)
            item = found.get(key)
            if item is None:
                item = found[key] = _item(function, compiled, event)
            item.compiles += [] if compiled.id in item.compiles else [compiled.id]
            item.callers = called([*item.callers, event.caller or caller_of(function, compiled)])
    yield from found.values()


def _item(function: CompiledFunction, compiled: Compile, event: CudaGraph) -> Item:
    name = f"the backward pass of {function.name}" if event.is_backward else function.name
    advice = ADVICE.get(event.cause or "")
    return Item(
        Kind.CUDA_GRAPH,
        f"{_TITLES[event.outcome].format(name=name)}: {_reason(compiled, event)}",
        [f"{event.times} times" if event.times > 1 else "once"] if event.outcome == RERECORDED else [],
        [] if advice is None else [advice],
        LINK,
        event.place or function.place,
        function=function.name,
        subject=f"{event.outcome}: {event.cause}",
    )


def _reason(compiled: Compile, event: CudaGraph) -> str:
    """Return the reason; if only one size may vary, name that size as the user wrote it."""
    if event.cause == SIZE and len(compiled.symbols) == 1:
        return event.text.replace("a size", compiled.symbols[0].source, 1)
    return event.text


def cuda_graph_text(compiled: Compile, event: CudaGraph) -> str:
    """Return what happened in one line: ``backward: skipped: mutated inputs (1 instances)``."""
    part = "backward: " if event.is_backward else ""
    times = f" ({event.times} times)" if event.times > 1 else ""
    if event.outcome == RECORDED:
        return f"{part}recorded{times}"
    return f"{part}{event.outcome}: {_reason(compiled, event)}{times}"
