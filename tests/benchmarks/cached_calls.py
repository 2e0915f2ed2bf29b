"""Cached calls: which lines are stopped at, whether values are those of eager code, and what it costs.

``python tests/benchmarks/cached_calls.py [MODEL ...]``, part of ``make bench``. Models are those of the libraries that
are installed (transformers, torch_geometric), tiny and with random weights, compiled with the backend eager. Each is
called twice with one size and three times with another. A cached call is replayed, and its lines
and values are compared with those of an eager call of the same arguments, visit by visit. Values are tensors, numbers,
texts. In this process, with the real engine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch._dynamo
from rich.console import Console
from rich.table import Table
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dynamo_dap.debuggee.agent.engine import NoEagerDebugger
from dynamo_dap.debuggee.composition.compile_time_engine import CompileTimeEngine
from dynamo_dap.debuggee.generated.engine import RunTimeEngine
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import GraphRun
from dynamo_dap.debuggee.torch_api.traced.replays import replayed_call
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.trackers.forms import Known, TensorForm
from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.benchmarks.compared_lines import ComparedLines
from tests.compile_time.test_cached_calls import EveryCall, every_cached_call
from tests.run_time.in_process import ScriptedHost

LIBRARIES = ("/transformers/", "/torch_geometric/")
SIZES = (6, 6, 9, 9, 9)

Call = dict[str, Any]
Visits = dict[tuple[str, int], list[dict[str, Any]]]
"""By file and line, the values of local variables at each visit."""


def _transformers_model(name: str, **settings: Any) -> tuple[Any, Callable[[int], Call]]:
    import transformers

    config = getattr(transformers, settings.pop("config"))(vocab_size=64, **settings)
    model = getattr(transformers, name)(config)

    def arguments(size: int) -> Call:
        ids = torch.arange(size).reshape(1, size) % 50
        found: Call = {"decoder_input_ids" if config.is_encoder_decoder else "input_ids": ids}
        if name.startswith("Whisper"):
            found["input_features"] = torch.randn(1, 8, 32, generator=torch.Generator().manual_seed(0))
        elif config.is_encoder_decoder:
            found["input_ids"] = ids
        return found

    return model, arguments


def _image_model() -> tuple[Any, Callable[[int], Call]]:
    import transformers

    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[2, 2], layer_type="basic")

    def arguments(size: int) -> Call:
        return {"pixel_values": torch.randn(1, 3, 8 * size, 8 * size, generator=torch.Generator().manual_seed(size))}

    return transformers.ResNetModel(config), arguments


def _graph_model(name: str) -> tuple[Any, Callable[[int], Call]]:
    from torch_geometric.nn import models

    def arguments(size: int) -> Call:
        generator = torch.Generator().manual_seed(size)
        edges = torch.randint(0, size, (2, 3 * size), generator=generator)
        return {"x": torch.randn(size, 8, generator=generator), "edge_index": edges}

    return getattr(models, name)(8, 16, 2, 4), arguments


_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_WIDER = {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 1408}
"""So that an eager call takes about 10 ms, as a call of a real model does."""
MODELS: dict[str, Callable[[], tuple[Any, Callable[[int], Call]]]] = {
    "Llama": lambda: _transformers_model("LlamaForCausalLM", config="LlamaConfig", **_SMALL),
    "Llama of 512": lambda: _transformers_model("LlamaForCausalLM", config="LlamaConfig", **_WIDER),
    "BERT": lambda: _transformers_model("BertModel", config="BertConfig", **_SMALL),
    "GPT-2": lambda: _transformers_model(
        "GPT2LMHeadModel", config="GPT2Config", n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2
    ),
    "T5": lambda: _transformers_model(
        "T5ForConditionalGeneration", config="T5Config", d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4
    ),
    "Whisper": lambda: _transformers_model(
        "WhisperForConditionalGeneration",
        config="WhisperConfig",
        d_model=32,
        num_mel_bins=8,
        max_source_positions=16,
        max_target_positions=64,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_layers=2,
        decoder_layers=2,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    ),
    "ResNet": _image_model,
    "GCN": lambda: _graph_model("GCN"),
    "GAT": lambda: _graph_model("GAT"),
}


@dataclass
class Costs:
    """Ratios of cached calls whose cache entry is known."""

    set_elsewhere: float
    """A call with a breakpoint on a line of the file that it does not come to, to one without a debugger."""
    false_condition: float
    """A call with a condition on data that is false, to an eager call."""
    stop: float
    """From the call to the stop, to an eager call."""
    memory: float
    """What computing all values in view at the stop holds at most, to the peak of an eager call."""


@dataclass
class Comparison(ComparedLines):
    """One cached call beside an eager one."""

    first_trace: float = 0.0
    """Seconds of the call that was compiled last, backend and guards included."""
    retraced: float = 0.0
    """Seconds of tracing the cached call again."""
    eager: float = 0.0
    """Seconds of an eager call that nobody traces."""
    costs: Costs = field(default_factory=lambda: Costs(0, 0, 0, 0))


def _is_of_library(path: str) -> bool:
    return any(part in path for part in LIBRARIES)


def _kept(values: dict[str, Any]) -> dict[str, Any]:
    plain = (int, float, str, bool, type(None))
    return {
        name: value.detach().clone() if isinstance(value, torch.Tensor) else value
        for name, value in values.items()
        if isinstance(value, (torch.Tensor, *plain))
    }


def eager_visits(model: Any, arguments: Call) -> Visits:
    """Call the model uncompiled, and note every line of the libraries."""
    visits: Visits = defaultdict(list)

    def on_event(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            visits[frame.f_code.co_filename, frame.f_lineno].append(_kept(frame.f_locals))
        return on_event if _is_of_library(frame.f_code.co_filename) else None

    sys.settrace(on_event)
    try:
        model(**arguments)
    finally:
        sys.settrace(None)
    return visits


@contextmanager
def traced_visits(visits: Visits) -> Iterator[None]:
    """Note every line of the libraries that the trace of a cached call comes to."""
    original = InstructionTranslatorBase.starts_line
    last: list[tuple[int, int]] = [(0, 0)]

    def starts_line(self: Any, line: int) -> None:
        original(self, line)
        if replayed_call() is None or not _is_of_library(self.f_code.co_filename) or last[0] == (id(self), line):
            return
        last[0] = (id(self), line)
        visits[self.f_code.co_filename, line].append(_kept(dict(_values(TracedFrame(self)))))

    InstructionTranslatorBase.starts_line = starts_line
    try:
        yield
    finally:
        InstructionTranslatorBase.starts_line = original


def _values(frame: TracedFrame) -> Iterator[tuple[str, Any]]:
    for name, tracker in frame.locals():
        form = frame.form_of(tracker)
        if isinstance(form, Known):
            yield name, form.value
        elif isinstance(form, TensorForm) and form.node is not None:
            yield name, frame.real_value(form.node)


def compared(traced: Visits, eager: Visits) -> Comparison:
    """Compare lines, and values at the lines that both came to equally often.

    Where a graph breaks, Dynamo traces the lines before it twice.
    """
    found = Comparison(len(eager), len(eager.keys() & traced.keys()))
    for place in eager.keys() & traced.keys():
        if len(traced[place]) != len(eager[place]):
            continue
        for ours, theirs in zip(traced[place], eager[place], strict=True):
            for name in ours.keys() & theirs.keys():
                if _is_equal(ours[name], theirs[name]):
                    found.equal += 1
                else:
                    found.different.append(f"{Path(place[0]).name}:{place[1]} {name}")
    return found


def _is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))
    return bool(one == other)


def measure(name: str) -> list[Comparison]:
    """Compare each call of a model that hits the cache."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, arguments = MODELS[name]()
    model.eval()
    found: list[Comparison] = []
    visits: Visits = defaultdict(list)
    with torch.no_grad(), every_cached_call(EveryCall), traced_visits(visits):
        compiled = torch.compile(model, backend="eager")
        first_trace = 0.0
        for size in SIZES:
            visits.clear()
            seconds, is_compiled = _timed_call(compiled, arguments(size))
            if is_compiled:
                first_trace = seconds
                continue
            one = compared(visits, eager_visits(model, arguments(size)))
            one.first_trace = first_trace
            found.append(one)
    found[-1].costs = _costs(compiled, model, arguments(SIZES[-1]), visits.keys())
    with torch.no_grad(), every_cached_call(EveryCall):
        # Apart, since noting the values costs more than the trace.
        compiled(**arguments(SIZES[-1]))
        found[-1].retraced, _ = _timed_call(compiled, arguments(SIZES[-1]))
        started = time.perf_counter()
        model(**arguments(SIZES[-1]))
        found[-1].eager = time.perf_counter() - started
    return found


def _costs(compiled: Any, model: Any, call: Call, traced: Collection[tuple[str, int]]) -> Costs:
    """Measure cached calls with a breakpoint at the last line of the library's that has a tensor of floats.

    So the whole graph is run for a condition on that tensor, and all that leads to the line is traced for a stop.
    """
    with torch.no_grad():
        visited = eager_visits(model, call)
        (path, line), name = [
            (place, name)
            for place, visits in visited.items()
            for name, value in visits[-1].items()
            if place in traced and isinstance(value, torch.Tensor) and value.is_floating_point()
        ][-1]
        eager = min(_seconds(model, call) for _ in range(10))
        plain = min(_seconds(compiled, call) for _ in range(20))
        elsewhere = next(number for number in range(1, 10_000) if (path, number) not in visited)
        set_lines = _cached(compiled, call, path, SourceBreakpoint(line=elsewhere))
        condition = f"{name}.isnan().sum() > 1e9"
        false = _cached(compiled, call, path, SourceBreakpoint(line=line, condition=condition))
        stop = _cached(compiled, call, path, SourceBreakpoint(line=line), stops=True)
        held = _held_bytes(compiled, call, path, line)
        return Costs(set_lines / plain, false / eager, stop / eager, held / _eager_bytes(model, call))


def _held_bytes(compiled: Any, call: Call, path: str, line: int) -> int:
    """Return how many bytes of results the run for a stop's values holds at most."""
    peak = 0

    def bytes_of(run: GraphRun) -> int:
        return int(run.__dict__.get("held", 0))

    def set_bytes(run: GraphRun, held: int) -> None:
        nonlocal peak
        run.__dict__["held"] = held
        peak = max(peak, held)

    def look(stop: Any) -> None:
        for variable in stop.frames[0].scopes()[0].children.named():
            if variable.value.text.startswith("Tensor"):
                stop.frames[0].evaluate(f"{variable.name}.sum().item()", "watch")

    GraphRun._bytes = property(bytes_of, set_bytes)  # type: ignore[assignment]
    try:
        _cached(compiled, call, path, SourceBreakpoint(line=line), stops=True, look=look)
    finally:
        del GraphRun._bytes
    return peak


class _Storages(TorchDispatchMode):
    """Counts the bytes of the memory that results have, and the most that there were at once."""

    def __init__(self, given: Iterable[torch.Tensor]) -> None:
        """``given`` is there before."""
        super().__init__()
        self.bytes = self.peak = 0
        self._known = {each.untyped_storage()._cdata for each in given}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if isinstance(each, torch.Tensor):
                self._note(each.untyped_storage())
        return result

    def _note(self, storage: Any) -> None:
        address, size = storage._cdata, storage.nbytes()
        if address not in self._known:
            self._known.add(address)
            self.bytes += size
            self.peak = max(self.peak, self.bytes)
            weakref.finalize(storage, self._forget, address, size)

    def _forget(self, address: int, size: int) -> None:
        self._known.discard(address)
        self.bytes -= size


def _eager_bytes(model: Any, call: Call) -> int:
    given = (*model.parameters(), *model.buffers(), *(each for each in call.values() if isinstance(each, torch.Tensor)))
    with _Storages(given) as storages:
        model(**call)
    return storages.peak


def _cached(
    compiled: Any,
    call: Call,
    path: str,
    breakpoint: SourceBreakpoint,
    *,
    stops: bool = False,
    look: Callable[[Any], None] = lambda stop: None,
) -> float:
    """Return the seconds of a cached call, or of what of it comes before its stop, once its entry is known."""
    stopped: list[float] = []

    def stop_here(stop: Any) -> None:
        stopped.append(time.perf_counter())
        look(stop)

    host: Any = ScriptedHost(stop_here, mode="both", just_my_code=False)  # the models are in installed packages
    host.eager_debugger = NoEagerDebugger()
    tracing = CompileTimeEngine(host)
    host.engine = RunTimeEngine(host, None, tracing.cached_calls)
    host.breakpoints.set_lines(path, [breakpoint], host.options)
    tracing.update_hooks()
    host.engine.update_hooks()
    try:
        compiled(**call)
        compiled(**call)
        if not stops:
            assert not stopped, "the condition is false"
            return min(_seconds(compiled, call) for _ in range(20))
        times = []
        for _ in range(3):
            started = time.perf_counter()
            compiled(**call)
            assert host.failure is None, host.failure
            times.append(stopped[-1] - started)
        return min(times)
    finally:
        host.engine.close()
        tracing.close()


def seconds_of_one_value(nodes: int) -> tuple[float, float]:
    """Return how long the last value of a graph takes to be computed at a stop, and the same in eager code."""

    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(nodes):
            x = x + 1
        return x  # the value is read here

    taken: list[float] = []
    last = chain.__code__.co_firstlineno + 3

    def look(translator: Any) -> None:
        if translator.f_code is chain.__code__ and translator.lineno == last and not taken:
            frame = TracedFrame(translator)
            started = time.perf_counter()
            dict(_values(frame))
            taken.append(time.perf_counter() - started)

    original = InstructionTranslatorBase.starts_line

    def starts_line(self: Any, line: int) -> None:
        original(self, line)
        look(self)

    InstructionTranslatorBase.starts_line = starts_line
    try:
        torch.compile(chain, backend="eager")(torch.ones(8))
    finally:
        InstructionTranslatorBase.starts_line = original
    return taken[0], min(_seconds(chain, {"x": torch.ones(8)}) for _ in range(5))


def _seconds(function: Any, call: Call) -> float:
    started = time.perf_counter()
    function(**call)
    return time.perf_counter() - started


def _timed_call(compiled: Any, arguments: Call) -> tuple[float, bool]:
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    started = time.perf_counter()
    compiled(**arguments)
    return time.perf_counter() - started, torch._dynamo.utils.counters["stats"]["unique_graphs"] > graphs


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], help="those to measure; all if none is named")
    names = parser.parse_args().models or [*MODELS]
    # Of tiny models the threads would be all that is measured.
    torch.set_num_threads(1)
    table = Table("cached calls of", "lines hit / of an eager call", "values equal", "different")
    costs = Table(
        "cached calls of", "retrace / compile", "stop / eager", "false condition / eager", "armed elsewhere", "memory"
    )
    for name in names:
        try:
            found = measure(name)
        except ImportError as problem:
            table.add_row(name, f"not installed: {problem.name}")
            continue
        last = found[-1]
        table.add_row(
            name,
            ", ".join(f"{each.hit}/{each.lines}" for each in found),
            str(statistics.median(each.equal for each in found)),
            ", ".join(dict.fromkeys(text for each in found for text in each.different)) or "0",
        )
        costs.add_row(
            name,
            f"{last.retraced / last.first_trace:.2f}",
            f"{last.costs.stop:.0f}",
            f"{last.costs.false_condition:.1f}",
            f"{last.costs.set_elsewhere:.2f}",
            f"{last.costs.memory:.2f}",
        )
    Console().print(table)
    Console().print(costs)
    value, eager = seconds_of_one_value(5000)
    print(f"one value in a graph of 5,000 nodes: {value / eager:.1f} of the eager function's time")


if __name__ == "__main__":
    main()
