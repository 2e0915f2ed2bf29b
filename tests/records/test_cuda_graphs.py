"""CUDA graphs: why torch skips them, records them again, and overwrites outputs that the program keeps.

Skips are real: Inductor and the backend ``cudagraphs`` decide on CPU tensors as on any others. For recordings and
overwrites, ``fixtures/cuda_graphs.py`` runs torch's own tree of CUDA graphs without a device.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import torch
import torch._inductor.cudagraph_utils as utils
from rich.console import Console

from dynamo_dap.debuggee.torch_api.devices.cuda_graph_callers import CallSite
from dynamo_dap.debuggee.torch_api.devices.cuda_graph_texts import read_mismatch, read_reason
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place
from dynamo_dap.fixes.findings import Kind, findings_of
from dynamo_dap.protocol.requests import cuda_graphs as words
from dynamo_dap.records.events import Record
from dynamo_dap.records.file import read_record
from dynamo_dap.records.folders import SUFFIX
from dynamo_dap.records.report.html_report import html_report
from dynamo_dap.records.report.text_report import print_report
from tests.client import Session
from tests.client.environments import alone
from tests.client.fixtures import Fixture
from tests.records.test_graph_break_stops import info_of, launch

SKIPPED = '''"""A training step whose tensors are on the CPU, and torch's backend for CUDA graphs."""
import torch

@torch.compile(mode="reduce-overhead")
def step(x):
    y = x.sin()  #@first
    return y * 2

@torch.compile(backend="cudagraphs")
def other(x):
    y = x.cos()  #@other
    return y * 2

WHOLE = {"triton.cudagraphs": True, "graph_partition": False}

@torch.compile(dynamic=True, options={**WHOLE, "triton.cudagraph_skip_dynamic_graphs": True})
def varying(x):
    return x.sin() * 2  #@varying

@torch.library.custom_op("tests::unsafe", mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,))
def unsafe(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

@unsafe.register_fake
def _(x):
    return torch.empty_like(x)

@torch.compile(options=WHOLE)
def refused(x):
    y = x + 1
    return unsafe(y) * 2  #@refused

x = torch.ones(4, requires_grad=True)
for _ in range(2):
    step(x).sum().backward()
    other(torch.ones(4))
    varying(torch.ones(5))
    refused(torch.ones(4))
'''


def record_in(folder: Path) -> Record:
    """Return the record of the only program that ran in ``folder``."""
    return read_record(next(folder.rglob(f"*{SUFFIX}")))


def test_skipped_graphs_stop_and_are_recorded_with_the_line_that_cost_them(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SKIPPED, encoding="utf-8")
    launch(session, program, "cudagraph")
    lines = Fixture(program).markers
    functions = {"step": "first", "other": "other", "varying": "varying", "refused": "refused"}
    for function, place in functions.items():
        stop = session.wait_for_stop("exception")
        info = info_of(session, stop)
        assert stop.frame.name == function
        assert info["exceptionId"].startswith("CUDA graph: skipped"), info
        assert f"program.py:{lines[place]}" in info["description"], info
        assert "Advice (not tried): " in info["description"], info
        assert stop.frame["Locals"]["x"].text.startswith("Tensor f32[")
        session.resume()
    # The second calls are cache hits. The backward pass has no graph because its forward has none.
    assert session.wait_for_exit() == 0
    step, other, varying, refused = record_in(tmp_path).functions
    assert [one.cause for one in varying.compiles[0].cuda_graphs] == [words.DYNAMIC]
    assert [one.cause for one in refused.compiles[0].cuda_graphs] == [words.OPERATION]
    assert [(one.outcome, one.cause, one.is_backward) for one in step.compiles[0].cuda_graphs] == [
        (words.SKIPPED, words.CPU, False),
        (words.SKIPPED, words.FORWARD, True),
    ]
    first = step.compiles[0].cuda_graphs[0]
    assert first.place is not None
    assert first.place.line == lines["first"]
    (found,) = other.compiles[0].cuda_graphs
    assert (found.outcome, found.cause) == (words.SKIPPED, words.CPU)
    assert found.place is not None
    assert found.place.line == lines["other"]


def test_recordings_are_followed_through_torchs_own_tree(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "cuda_graphs.py"
    shutil.copy(Fixture("cuda_graphs").path, program)
    shutil.copytree(Fixture("cuda_graphs").path.with_name("site-packages"), tmp_path / "site-packages")
    plain = alone(program, cwd=tmp_path)
    launch(session, program, "cudagraph")
    stops = [
        ("sized", "main", "CUDA graph: recorded again: a size is 6", "sized"),
        ("model", "main", "CUDA graph: recorded again: input ", "weight"),
        ("writing", "main", "CUDA graph: skipped: mutated inputs", "written"),
        ("kept", "keeps", "CUDA graph: overwrites an output", "kept"),
        ("choosing", "main", "CUDA graph: recorded again: input ", "limited"),
        (
            "choosing",
            "main",
            "CUDA graph: skipped: recorded again more than 1 times, the limit; last because input",
            "limited",
        ),
        (None, "parts", "CUDA graph: some operations stay outside: CUDAGraph-unsafe custom ops", "outside"),
    ]
    lines = Fixture(program).markers
    for at, name, headline, cause in stops:
        stop = session.wait_for_stop("exception", at=at)
        info = info_of(session, stop)
        assert info["exceptionId"].startswith(headline), info
        assert f"cuda_graphs.py:{lines[cause]}" in info["description"], info
        assert stop.frame.name == name
        if at == "kept":
            # The output is not overwritten yet: its values differ at the end of the program.
            assert stop.frame.evaluate("[each.sum().item() for each in kept]").text.startswith("[0.0]")
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == plain.stdout
    assert plain.stdout.splitlines()[-1] == "tensor([0.8332, 0.8332, 0.8332, 0.8332])"

    record = record_in(tmp_path)
    functions = {function.name: function.compiles[0] for function in record.functions}
    outcomes = {name: [one.outcome for one in compiled.cuda_graphs] for name, compiled in functions.items()}
    assert outcomes == {
        "sized": [words.RECORDED, words.RERECORDED],
        "Model.forward": [words.RECORDED, words.RERECORDED],
        "writes": [words.SKIPPED],
        # The loop binds the same name again, and keeps no output.
        "doubled": [words.RECORDED, words.OVERWRITTEN],
        "halves": [words.RECORDED],
        "limited": [words.RECORDED, words.RERECORDED, words.SKIPPED],
        # One graph before, and one after, the operation that stays outside.
        "parts": [words.PARTIAL, words.RECORDED],
    }
    assert functions["parts"].cuda_graphs[-1].times == 2
    causes = {
        name: one.cause for name, compiled in functions.items() for one in compiled.cuda_graphs if one.cause is not None
    }
    assert causes == {
        "sized": words.SIZE,
        "Model.forward": words.ADDRESS,
        "writes": words.MUTATION,
        "doubled": words.KEPT,
        "limited": words.LIMIT,
        "parts": words.OPERATION,
    }
    printed = io.StringIO()
    print_report(record, Console(file=printed, width=200))
    page = "".join(html_report(record, {}, lambda _: None))
    for text in (printed.getvalue(), page):
        assert "x.shape[0] is 6, and was 4" in text
        assert "mutated inputs" in text
        assert "more than 1 times" in text
        # The operations inside the two recorded graphs, and the operation that stays outside.
        assert "recorded (2 times)" in text
        assert all(name in text for name in ("cpp_fused_add_outside_sin_0", "cpp_fused_cos_mul_1", "tests.outside"))
    found = [one for one in findings_of(record)[str(program)] if one.kind is Kind.CUDA_GRAPH]
    assert sorted(one.place.line for one in found) == sorted(lines[cause] for *_, cause in stops)


def test_a_look_at_an_output_is_not_taken_for_the_programs_reference(session: Session) -> None:
    """Up to Python 3.12 a frame keeps its variables in a dict once somebody has read them."""
    program = Fixture("cuda_graphs")
    with session.launching(program):
        session.request("setExceptionBreakpoints", {"filters": ["cudagraph"]})
        session.set_breakpoints(program, "bound")
    for place in ("sized", "model", "writing"):
        session.wait_for_stop("exception", at=place)
        session.resume()
    for _ in range(2):
        session.wait_for_stop("breakpoint", at="bound")
        session.resume()
    stop = session.wait_for_stop("breakpoint", at="bound")
    assert stop.frame["Locals"]["y"].text.startswith("Tensor f32[4]")
    session.set_breakpoints(program)
    session.resume()
    # The loop binds the name again, and keeps no output.
    session.wait_for_stop("exception", at="kept")


def test_torchs_own_sentences_are_read() -> None:
    """Torch's own functions make each sentence, from a graph that Dynamo made."""
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    def written(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x @ w
        x.copy_(y)  # @copy
        return y

    x, w = torch.ones(2, 2), torch.ones(2, 2)
    torch.compile(written, backend=backend)(x, w)
    nodes = list(graphs[0].graph.nodes)
    inputs = utils.get_placeholder_info(graphs[0].graph)
    path, line = __file__, written.__code__.co_firstlineno

    reason = read_reason(utils.get_mutation_stack_trace(inputs, [1, 0]))
    assert reason.cause == words.MUTATION
    assert "2 instances" in reason.text

    cpu, first, second = torch.device("cpu"), torch.device("cuda:0"), torch.device("cuda:1")
    reason = read_reason(str(utils.check_multiple_devices_or_any_cpu_nodes({cpu: nodes[0]})))
    assert (reason.cause, reason.text) == (words.CPU, f"cpu device ({nodes[0].name})")
    assert reason.place is not None
    assert reason.place[:2] == (path, line + 1)
    reason = read_reason(str(utils.check_multiple_devices_or_any_cpu_nodes({first: nodes[0], second: nodes[1]})))
    assert reason.cause == words.DEVICES

    status = utils.CheckInvariantStatus
    addresses = [x.data_ptr(), 1]
    moved = utils.log_data_ptr_mismatch(inputs, [x, w], addresses, [0, 1], status.StaticInputIdxMismatch)
    reason = read_mismatch(moved)
    assert reason.cause == words.ADDRESS
    assert inputs[1].name in reason.text
    assert reason.place is not None
    assert reason.place[:2] == (path, line + 1)
    # The address differs in each run.
    assert str(w.data_ptr()) not in reason.text
    assert read_mismatch(str(status.ExpectedDeadIndicesBeforeGraphMismatch)).cause == words.LIVENESS
    # Torch 2.15 logs this when the tree of graphs stops recording; no function makes the text.
    limit = "function 6 reaching the cudagraph-managed input re-recording threshold (=8) on cudagraph node 5"
    assert read_reason(f"skipping cudagraph due to {limit} for input indices [0].").cause == words.LIMIT


def test_each_cause_has_advice() -> None:
    assert words.ADVICE.keys() == set(words.CAUSES) - {words.OTHER, words.FORWARD}


def test_a_result_that_only_goes_into_names_is_not_kept() -> None:
    def site(text: str) -> CallSite:
        code = compile(text, "call.py", "exec")
        namespace = {"f": lambda: offsets.append(sys._getframe(1).f_lasti) or (1, 2), "kept": [], "g": lambda one: one}
        offsets: list[int] = []
        exec(code, namespace)
        return CallSite(code, offsets[0], Place("call.py", 1, 1), "<module>")

    assert site("y = f()").binds_a_name
    assert site("y, z = f()").binds_a_name
    assert not site("kept.append(f())").binds_a_name
    assert not site("y = [f()]").binds_a_name
    assert not site("y = g(f())").binds_a_name
    assert not site("f()").binds_a_name
