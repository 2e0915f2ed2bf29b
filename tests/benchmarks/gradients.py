"""Gradients of what is traced: whether they are those of eager code with ``retain_grad``, line by line.

``python tests/benchmarks/gradients.py [MODEL ...]``, part of ``make bench``. Models are those of the libraries that are
installed (transformers, torch_geometric), tiny, with random weights, in training mode with dropout, compiled with a
backend that draws eager's random numbers. Each makes three steps of training; in the backward pass of each, all lines
of the call are inspected, and the gradient of every local variable is compared with that of an eager run with the same
random numbers, visit by visit. Lines that are not hit ran as ordinary Python around a graph break. In this process,
with the real engines.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch._dynamo
from rich.console import Console
from rich.table import Table
from torch._dynamo.symbolic_convert import InstructionTranslatorBase

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dynamo_dap.debuggee.numerics.gradients.gradient_run import GradientRun
from dynamo_dap.debuggee.numerics.stops.backward_passes import KeptCall
from dynamo_dap.debuggee.torch_api.traced.replays import replayed_call
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.trackers.forms import TensorForm
from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.benchmarks.compared_lines import ComparedLines
from tests.compile_time.backward import EveryLine, backward_breakpoints, every_backward_pass

LIBRARIES = ("/transformers/", "/torch_geometric/")
STEPS = 3

Call = dict[str, Any]
Visits = dict[tuple[str, int], list[dict[str, Any]]]
"""By file and line, the gradients of local variables at each visit."""


def _transformers_model(name: str, **settings: Any) -> tuple[Any, Call]:
    import transformers

    config = getattr(transformers, settings.pop("config"))(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, **settings
    )
    ids = torch.arange(12).reshape(2, 6) % 50
    given: Call = {"input_ids": ids}
    if name.endswith(("LM", "MaskedLM")):
        given["labels"] = ids
    return getattr(transformers, name)(config), given


def _image_model() -> tuple[Any, Call]:
    import transformers

    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[2, 2], layer_type="basic")
    return transformers.ResNetForImageClassification(config), {"pixel_values": torch.randn(4, 3, 32, 32)}


def _graph_model() -> tuple[Any, Call]:
    from torch_geometric.nn import models

    given: Call = {"x": torch.randn(9, 8), "edge_index": torch.randint(0, 9, (2, 27))}
    return models.GCN(8, 16, 2, 4, dropout=0.5), given


MODELS: dict[str, Callable[[], tuple[Any, Call]]] = {
    "Llama": lambda: _transformers_model("LlamaForCausalLM", config="LlamaConfig", attention_dropout=0.1),
    "BERT": lambda: _transformers_model("BertForMaskedLM", config="BertConfig"),
    "GCN": _graph_model,
    "ResNet": _image_model,
}


@dataclass
class Comparison(ComparedLines):
    """One step of training beside an eager one: lines at which a local variable has a gradient."""

    largest: float = 0.0
    """The largest difference, relative to the largest number of its gradient."""


def is_of_library(path: str) -> bool:
    """Whether lines of a file are inspected."""
    return any(part in path for part in LIBRARIES)


def loss_of(outputs: Any) -> Any:
    """Return a number that depends on everything that a model returns, in different ways."""
    found = outputs if isinstance(outputs, torch.Tensor) else list(outputs.values())
    tensors = [found] if isinstance(found, torch.Tensor) else [each for each in found if isinstance(each, torch.Tensor)]
    return sum((each.float().square().mean() * (number + 1) for number, each in enumerate(tensors)), torch.zeros(()))


def eager_gradients(model: Any, given: Call, wanted: Callable[[str], bool] = is_of_library) -> Visits:
    """Make a step uncompiled, and return the gradients of local variables at every line.

    They are what ``retain_grad`` keeps, but of the tensors as they were at the line: a hook is not moved on when its
    tensor is written to.
    """
    visits: Visits = defaultdict(list)

    def on_event(frame: FrameType, event: str, _: object) -> Any:
        if not wanted(frame.f_code.co_filename):
            return None
        if event == "line":
            found: dict[str, Any] = {}
            for name, value in frame.f_locals.items():
                if isinstance(value, torch.Tensor) and value.requires_grad:
                    value.register_hook(functools.partial(found.__setitem__, name))
            visits[frame.f_code.co_filename, frame.f_lineno].append(found)
        return on_event

    sys.settrace(on_event)
    try:
        outputs = model(**given)
    finally:
        sys.settrace(None)
    loss_of(outputs).backward()
    return visits


class Looking(EveryLine):
    """Notes the gradients of local variables."""

    by_call: dict[int, Visits]
    """By the number of the call: a backward pass comes to the last one first."""
    wanted: Callable[[str], bool] = staticmethod(is_of_library)

    def visits(self) -> Visits:
        """Return what was noted, in the order of the calls."""
        found: Visits = defaultdict(list)
        for _, visits in sorted(self.by_call.items()):
            for place, here in visits.items():
                found[place] += here
        return found

    def _stop_in(self, kept: KeptCall, run: GradientRun) -> None:
        self.noted = self.by_call[kept.number] = defaultdict(list)
        super()._stop_in(kept, run)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note them in the traces made inside."""
        original = InstructionTranslatorBase.starts_line
        last: dict[int, int] = {}

        def starts_line(translator: Any, line: int) -> None:
            original(translator, line)
            call, path = replayed_call(), translator.f_code.co_filename
            if call is None or call.in_backward is None or not self.wanted(path) or last.get(id(translator)) == line:
                return  # it continues with the line, after a call
            last[id(translator)] = line
            self.noted[path, line].append(dict(_gradients(TracedFrame(translator))))

        InstructionTranslatorBase.starts_line = starts_line
        try:
            yield
        finally:
            InstructionTranslatorBase.starts_line = original


def _gradients(frame: TracedFrame) -> Iterator[tuple[str, Any]]:
    for name, tracker in frame.locals():
        form = frame.form_of(tracker)
        if isinstance(form, TensorForm) and form.node is not None and form.node.graph is frame.graphs()[-1]:
            yield name, frame.gradient(form.node)


def compared(ours: Visits, theirs: Visits, tolerance: float = 0.0) -> Comparison:
    """Compare lines, and gradients at the lines that both came to equally often."""
    with_gradient = {place for place, visits in theirs.items() if any(visits)}
    found = Comparison(len(with_gradient), len(with_gradient & ours.keys()))
    for place in with_gradient & ours.keys():
        if len(ours[place]) != len(theirs[place]):
            continue
        for mine, other in zip(ours[place], theirs[place], strict=True):
            for name in mine.keys() & other.keys():  # an input that nothing has used yet is not a part of the graph
                difference = _difference(mine[name], other[name])
                found.largest = max(found.largest, difference)
                if difference <= tolerance:
                    found.equal += 1
                else:
                    found.different.append(f"{Path(place[0]).name}:{place[1]} {name}")
    return found


def _difference(one: Any, other: Any) -> float:
    if one is None:
        return float("inf")
    scale = float(other.abs().max()) or 1.0
    return float((one - other).abs().max()) / scale


def measure(name: str, backend: str) -> list[Comparison]:
    """Compare each step of training a model."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, given = MODELS[name]()
    model.train()
    found: list[Comparison] = []
    with every_backward_pass(Looking) as looking, looking.noting():
        compiled = torch.compile(model, backend=backend)
        for step in range(STEPS):
            looking.by_call = {}
            model.zero_grad()
            before = {key: value.clone() for key, value in model.state_dict().items()}
            torch.manual_seed(step)
            loss_of(compiled(**given)).backward()
            model.load_state_dict(before)
            model.zero_grad()
            torch.manual_seed(step)
            found.append(compared(looking.visits(), eager_gradients(model, given)))
    return found


def costs(name: str, backend: str) -> tuple[float, float]:
    """Return what a step costs with a breakpoint whose condition on the gradient is false, and with a stop.

    As ratios to a step without a debugger. The breakpoint is on the line of the library in the middle of those that
    have a gradient.
    """
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, given = MODELS[name]()
    compiled = torch.compile(model.train(), backend=backend)

    def seconds(count: int) -> float:
        times = []
        for _ in range(count):
            started = time.perf_counter()
            loss_of(compiled(**given)).backward()
            times.append(time.perf_counter() - started)
        return min(times[1:])

    plain = seconds(12)
    stops: list[object] = []
    places = [place for place in _places_with_gradient(compiled, given) if is_of_library(place[0])]
    path, line = places[len(places) // 2]
    options: Any = {"just_my_code": False, "script": stops.append}
    false = SourceBreakpoint(line=line, mode="backward", condition="__grad__.isnan().any()")
    with backward_breakpoints(path, false, **options):
        with_condition = seconds(12)
    assert not stops, "no gradient has a NaN"
    with backward_breakpoints(path, SourceBreakpoint(line=line, mode="backward"), **options):
        with_stop = seconds(4)
    return with_condition / plain, (with_stop - plain) / (len(stops) / 4) / plain


def _places_with_gradient(compiled: Any, given: Call) -> list[tuple[str, int]]:
    """Return the lines whose result has a gradient, in the order of the backward pass."""
    found: list[tuple[str, int]] = []

    class Places(EveryLine):
        def _stop_in(self, kept: KeptCall, run: GradientRun) -> None:
            found.extend(visit.place for visit in reversed(kept.lines.visits) if set(visit.nodes) & run.names)

    with every_backward_pass(Places):
        loss_of(compiled(**given)).backward()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], help="those to measure; all if none is named")
    parser.add_argument("--backend", default="aot_eager", help="one that draws the random numbers of eager code")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    priced = Table("gradients of", "step with a false condition / step", "a stop / step")
    table = Table("gradients of", "lines hit / of an eager call", "gradients equal", "largest difference", "different")
    for name in arguments.models or [*MODELS]:
        try:
            found = measure(name, arguments.backend)
        except ImportError as problem:
            table.add_row(name, f"not installed: {problem.name}")
            continue
        table.add_row(
            name,
            ", ".join(f"{each.hit}/{each.lines}" for each in found),
            str(statistics.median(each.equal for each in found)),
            f"{max(each.largest for each in found):.1e}",
            ", ".join(dict.fromkeys(text for each in found for text in each.different)) or "0",
        )
        priced.add_row(name, *(f"{ratio:.1f}" for ratio in costs(name, arguments.backend)))
    Console().print(table)
    Console().print(priced)


if __name__ == "__main__":
    main()
