"""The rows of ``make bench``: their targets and how to measure them. ``table`` runs each group of rows in a process.

Programs take turns in one run, so that other load of the machine affects all of them alike. Other debuggers that can do
the same work take their turns, too. Servers and programs are real, and have the default options, except for the options
that a row measures.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks import (
    breakpoints,
    cached_calls,
    compile_time,
    eager,
    examined_calls,
    forecasts,
    passed_calls,
    run_time_calls,
    run_time_instructions,
    tensors,
    time_travel,
    watched_attributes,
)
from tests.benchmarks.debugged import DebuggedProgram
from tests.benchmarks.figures import Measure, Measured, Row, ratios
from tests.benchmarks.peers import TerminalDebugger
from tests.benchmarks.turns import TurnTakers
from tests.client.fixtures import Fixture
from tests.eager.peer import Peer

PROGRAMS = Path(__file__).with_name("programs")
DEFAULTS: dict[str, Any] = {"eager": True, "mode": "both"}
"""The default launch options for which ``DebuggedProgram`` has other values."""
LLAMA = "Llama"
LAYERS = (1, 4, 16, 64)
COUNTS = (1, 100, 10_000)

_TRIED = {
    "first-stop.plain": (
        "The server already replaces debugpy's adapter process. The remaining time goes into starting Python twice, "
        "and into importing debugpy in the program."
    ),
    "first-stop.traced": (
        "Modules outside of the user's code are imported untraced, unless they have a breakpoint. The remaining time "
        "goes into importing debugpy and fetching variables."
    ),
    "encoder.elsewhere": (
        "Lines are looked up only in files with breakpoints. The remaining cost is the history for steps back "
        "(`travel.log`)."
    ),
    "encoder.false": (
        "A condition is compiled once. A comparison of plain constants runs without the protection that other "
        "evaluations need. The remaining cost is the history (`travel.log`)."
    ),
    "breaks.record": (
        "Each compile is read once, and the texts of guards are written once. A compile takes about 35 ms here. The "
        "record adds 1.3 ms: 0.3 for the text of generated code, 0.3 for writing the file, 0.2 for the graph, 0.2 for "
        "the traced lines and values, and smaller parts."
    ),
    "breaks.session": (
        "The server sends a client one message about changed compiles, and the next one only after the client has "
        "asked for them. The remaining cost is the record (`breaks.record`) and the history (`travel.log`)."
    ),
    "breaks.condition": (
        "Generated code is disassembled only if a breakpoint can stop in it. Guarded objects are looked up in "
        "modules, not searched for. The remaining cost is the record (`breaks.record`), the history (`travel.log`), "
        "and Python's trace function, which runs for torch's calls before and after a compile."
    ),
    "breaks.compile-time": "The remaining cost is the record (`breaks.record`) and the history (`travel.log`).",
    "calls.elsewhere": (
        "Once a call is known to have no breakpoint, the debugger only counts it. The remaining cost is one Python "
        "function, which torch calls before it runs generated code."
    ),
    "calls.nan": "The remaining cost is one reduction for each output, which the filter needs.",
    "steps.generated-p99": (
        "Generated code is described at its first stop, and the description is kept. Scopes are counted without their "
        "values. Two steps are slow: the first in a piece of code, which makes its listing (3 ms), and the step over "
        "the first call of a function that torch wraps with `disable` (1 ms without a debugger)."
    ),
    "instructions.stepped": (
        "Facts about a code object are cached by offset. The remaining cost is one event per instruction, handled in "
        "Python. It takes 3 µs: 0.4 for the program with an empty trace function, and most of the rest for this row's "
        "condition."
    ),
    "opening.names": "Values and texts are made only for the requested page.",
    "flat.breakpoints": (
        "Lines are looked up by file. With 100 breakpoints the ratio is equal, so the cost does not grow with their "
        "number."
    ),
    "travel.log": (
        "Most instructions store only themselves, data lies in flat lists, and functions that have ended share their "
        "unused parts. Recording only statements helped little (1.14 instead of 1.17). Most of the cost comes from "
        "the garbage collector, because functions, values and changes stay alive. One more full collection in a trace "
        "raises the measurements by a fifth."
    ),
}
"""What was done for figures that miss their target, and what causes the remaining cost."""

_ROWS = (
    Row("first-stop.plain", "time to the first stop without torch, relative to debugpy's adapter", "", 0.4),
    Row("first-stop.traced", "time to the first stop in a trace, relative to the plain program until there", "", 1.25),
    Row("encoder.idle", "compile of a 12-layer encoder without breakpoints, relative to plain", "", 1.02),
    Row("encoder.record", "compile of the encoder while recording, relative to plain", "", 1.03),
    Row("encoder.elsewhere", "compile of the encoder with 200 breakpoints elsewhere, relative to plain", "", 1.05),
    Row("encoder.false", "compile of the encoder with 200 false conditions in its code, relative to plain", "", 1.3),
    Row("breaks.record", "40 functions with 80 graph breaks under dynamo-dap run, relative to plain", "", 1.03),
    Row("breaks.session", "these 40 functions in a default session, relative to plain", "", 1.05),
    Row("breaks.condition", "these 40 functions with a false condition, relative to plain", "", 1.1),
    Row("breaks.compile-time", "the false condition in mode compile-time, relative to plain", "", 1.05),
    Row("calls.idle", "compiled calls without breakpoints, relative to plain", "", 1.01),
    Row("calls.elsewhere", "compiled calls with a breakpoint elsewhere, relative to plain", "", 1.02),
    Row("calls.nan", "calls of about 10 ms with the exception filter nan, relative to plain", "", 1.02),
    Row("steps.trace", "time from a step in a trace until its variables appear, p50", "ms", 3.0),
    Row("steps.trace-p99", "time from a step in a trace until its variables appear, p99", "ms", 10.0),
    Row("steps.ordinary", "time from a step in ordinary Python until its variables appear, p50", "ms", 3.0),
    Row("steps.ordinary-p99", "time from a step in ordinary Python until its variables appear, p99", "ms", 10.0),
    Row("steps.generated", "time from a step in generated code until its variables appear, p50", "ms", 3.0),
    Row("steps.generated-p99", "time from a step in generated code until its variables appear, p99", "ms", 10.0),
    Row(
        "instructions.stepped",
        "instructions of generated code per second, relative to torch's debugger",
        "",
        100.0,
        is_least=True,
    ),
    Row("opening.names", "first page of 10,000 names", "ms", 50.0),
    Row("opening.list", "first page of a list of a million", "ms", 50.0),
    Row("opening.graph", "first page of a graph of 5,000 nodes", "ms", 50.0),
    Row("opening.tensor", "first page of a tensor of a billion elements in ordinary Python", "ms", 50.0),
    Row("opening.tensor-trace", "first page of a tensor of a billion elements in a trace", "ms", 50.0),
    Row("opening.tensor-cached", "first page of a tensor of a billion elements in a cached call", "ms", 50.0),
    Row("opening.tensor-generated", "first page of a tensor of a billion elements in generated code", "ms", 50.0),
    Row("setting.first", "1,000 breakpoints in ten files, set for the first time", "ms", 300.0),
    Row("setting.more", "one more breakpoint in each of these ten files", "ms", 300.0),
    Row("setting.one-file", "10,000 breakpoints in one file, CPU time", "ms", 1000.0),
    Row("setting.growth", "time per breakpoint, 10,000 in a file relative to 2,000 in a file", "", 1.2),
    *(Row(kind.row, f"cost in a cached call: {name}", "ms", kind.aim) for name, kind in passed_calls.KINDS.items()),
    Row("stops.server", "a stop at each of 10,000 lines, all scopes opened: growth of the server", "%", 5.0),
    Row("stops.program", "a stop at each of 10,000 lines, all scopes opened: growth of the program", "%", 5.0),
    Row("flat.layers", "cost of a compile without breakpoints, 64 layers relative to 1 layer", "", 1.05),
    Row("flat.breakpoints", "compile with 10,000 breakpoints elsewhere, relative to one with 1 breakpoint", "", 1.05),
    Row("values.retrace", "replay of a cached call of Llama, relative to its compile", ""),
    Row("values.stop", "a cached call until it stops, relative to an eager call", ""),
    Row("values.condition", "a cached call with a false condition on data, relative to an eager call", ""),
    Row("values.elsewhere", "a cached call with a breakpoint elsewhere in its file, relative to plain", "", 1.02),
    Row("values.memory", "memory of all values at a stop, relative to an eager call's peak", "", 1.0),
    Row("travel.back", "a step back in the trace of Llama, p50", "ms", 100.0),
    Row("travel.back-cached", "a step back in a cached call of Llama, p50", "ms", 100.0),
    Row("travel.log", "a step over Llama with history, relative to one without", "", 1.05),
    Row("travel.step", "a step over Llama with history, relative to a trace without a debugger", ""),
    Row("watched.step", "a training step while an attribute of its model is watched, relative to plain", "", 1.2),
    Row("forecast.entries", "a forecast of 129 sizes with 20 cache entries", "s", 2.0),
    Row("profile.cost", "a program under dynamo-dap profile, relative to plain", ""),
    Row("profile.reported", "the cost that the profiler reports for itself, as a share of process time", "%", 5.0),
)
ROWS = tuple(replace(row, tried=_TRIED.get(row.key, "")) for row in _ROWS)


def _median(figures: list[float]) -> float:
    return statistics.median(figures)


def _p99(figures: list[float]) -> float:
    return sorted(figures)[int(len(figures) * 0.99)]


def _timed(work: Callable[[], object]) -> float:
    """Return milliseconds."""
    began = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began)


# -- first stops -------------------------------------------------------------------------------------------------------


def first_stops(is_quick: bool) -> Iterator[Measured]:
    """From ``launch`` to the first stop."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.py")
        script.write_text("value = 1\nprint(value)\n", encoding="utf-8")
        taken: dict[str, list[float]] = {"dynamo": [], "debugpy": []}
        for _ in range(1 if is_quick else 7):
            for adapter, seconds in taken.items():
                seconds.append(_to_stop(adapter, script, 2) / 1000)
    quotients = [ours / theirs for ours, theirs in zip(taken["dynamo"], taken["debugpy"], strict=True)]
    yield Measured("first-stop.plain", quotients, {f"{name} s": _median(each) for name, each in taken.items()})

    program = Fixture(PROGRAMS / "first_stop.py")
    plain, debugged, ordinary = [], [], []
    for _ in range(1 if is_quick else 5):
        plain.append(_plain_way(program.path) / 1000)
        began = time.perf_counter()
        with DebuggedProgram(program.path, breakpoints={program.path: [program.line("traced")]}, **DEFAULTS) as one:
            one.wait_for_stop()
            debugged.append(time.perf_counter() - began)
        ordinary.append(_to_stop("debugpy", program.path, program.line("call")) / 1000)
    beside = {"plain s": _median(plain), "dynamo s": _median(debugged), "debugpy, to the call, s": _median(ordinary)}
    yield Measured("first-stop.traced", [one / two for one, two in zip(debugged, plain, strict=True)], beside)


def _to_stop(adapter: str, script: Path, line: int) -> float:
    peers: list[Peer] = []

    def launch() -> None:
        peer = Peer(adapter, script, is_checked=False)
        peers.append(peer)
        with peer.launching():
            peer.ask("setBreakpoints", {"source": {"path": str(script)}, "breakpoints": [{"line": line}]})
        peer.stop()

    try:
        return _timed(launch)
    finally:
        for peer in peers:
            peer.close()


def _plain_way(program: Path) -> float:
    """Return the milliseconds until the program says that its function is traced."""
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        return _timed(process.stdout.readline)


# -- compiles and calls ------------------------------------------------------------------------------------------------


def encoder(is_quick: bool) -> Iterator[Measured]:
    """The compile of a 12-layer encoder."""
    taken = compile_time.measure_compiles(1 if is_quick else 9)
    plain = taken.pop(compile_time.PLAIN)
    rows = {
        compile_time.IDLE: "encoder.idle",
        compile_time.RECORD: "encoder.record",
        compile_time.ELSEWHERE: "encoder.elsewhere",
        compile_time.FALSE: "encoder.false",
    }
    peers = {name: _median(ratios(each, plain)) for name, each in taken.items() if name not in rows}
    for name, key in rows.items():
        beside = {"plain s": _median([one[1] for one in plain]), **(peers if key == "encoder.record" else {})}
        yield Measured(key, ratios(taken[name], plain), beside)


def breaks(is_quick: bool) -> Iterator[Measured]:
    """Many small functions, each with two graph breaks."""
    with tempfile.TemporaryDirectory() as folder:
        program, functions = Path(folder, "breaks.py"), Path(folder, "forty.py")
        program.write_text((PROGRAMS / "breaks.py").read_text(encoding="utf-8"), encoding="utf-8")
        functions.write_text(_forty_functions(), encoding="utf-8")
        line = 1 + functions.read_text(encoding="utf-8").splitlines().index("    z = y.sin()")
        with TurnTakers(program) as takers:
            one: dict[Path, list[int]] = {functions: [line]}
            commands = [sys.executable, "-m", "dynamo_dap", "run"]
            programs = {"plain": takers.start_plainly(), "breaks.record": takers.start_plainly(command=commands)}
            for key, set_lines, mode in (
                ("breaks.session", {}, None),
                ("breaks.condition", one, None),
                ("breaks.compile-time", one, "compile-time"),
            ):
                programs[key] = takers.start(
                    DebuggedProgram(
                        program,
                        [takers.port],
                        set_lines,
                        condition="1 > 2",
                        breakpoint_mode=mode,
                        record=True,
                        **DEFAULTS,
                    )
                )
            for each in programs.values():
                each.do("compile")
            taken: dict[str, list[list[float]]] = {key: [] for key in programs}
            for _ in range(1 if is_quick else 9):
                for key, each in programs.items():
                    taken[key].append(each.do("compile"))
    plain = taken.pop("plain")
    for key, found in taken.items():
        yield Measured(key, ratios(found, plain), {"plain s": _median([one[1] for one in plain])})


def _forty_functions() -> str:
    lines = ["import torch"]
    for number in range(40):
        lines += [f"def function{number}(x):", f"    y = x * {number} + 1", "    torch._dynamo.graph_break()"]
        lines += ["    z = y.sin()", "    torch._dynamo.graph_break()", "    return z - x"]
    names = ", ".join(f"function{number}" for number in range(40))
    return "\n".join([*lines, f"functions = [{names}]", ""])


def calls(is_quick: bool) -> Iterator[Measured]:
    """Calls of compiled functions."""
    taken = run_time_calls.measure(1 if is_quick else 5)
    plain = taken.pop("plain")
    for key, each in zip(("calls.idle", "calls.elsewhere"), taken.values(), strict=True):
        yield Measured(key, ratios(each, plain), {"plain us": _median([one[1] for one in plain]) * 1000})
    examined = examined_calls.measure(2 if is_quick else 30)["calls"]
    yield Measured("calls.nan", ratios(examined["nan"], examined["plain"]))


def flat(is_quick: bool) -> Iterator[Measured]:
    """Whether what a compile costs grows with the model, and with breakpoints that it does not come to."""
    program = compile_time.ENCODER
    with TurnTakers(program) as takers:
        plain = takers.start_plainly()
        idle = takers.start(DebuggedProgram(program, [takers.port], **DEFAULTS))
        found: dict[int, list[float]] = {layers: [] for layers in LAYERS}
        for turn in range(1 if is_quick else 5):
            for layers, quotients in found.items():
                what = f"compile {layers}"
                if turn == 0:
                    plain.do(what)
                    idle.do(what)
                ours, theirs = idle.do(what), plain.do(what)
                quotients.append(ours[1] / theirs[1])
    beside = {f"{layers} layers": _median(each) for layers, each in found.items()}
    growth = [one / other for one, other in zip(found[LAYERS[-1]], found[LAYERS[0]], strict=True)]
    yield Measured("flat.layers", growth, beside)
    with TurnTakers(program) as takers:
        programs = {}
        for count in COUNTS:
            debugged = DebuggedProgram(program, [takers.port], _lines_elsewhere(count), justMyCode=False, **DEFAULTS)
            programs[count] = takers.start(debugged)
        taken: dict[int, list[list[float]]] = {count: [] for count in programs}
        for turn in range(2 if is_quick else 8):
            for count, each in programs.items():
                seconds = each.do("compile")
                taken[count].extend([seconds] if turn else [])
    beside = {f"{count} breakpoints": _median(ratios(each, taken[COUNTS[0]])) for count, each in taken.items()}
    yield Measured("flat.breakpoints", ratios(taken[COUNTS[-1]], taken[COUNTS[0]]), beside)


def _lines_elsewhere(count: int) -> dict[Path, list[int]]:
    """Return ``count`` lines of torch that no compile of the encoder reaches, first in a file that is traced."""
    found = compile_time.lines_that_are_not_reached()
    found.pop(compile_time.ENCODER)
    package = Path(next(iter(found))).parents[1]
    others = sorted((package / "testing" / "_internal").glob("*.py"), key=lambda path: -path.stat().st_size)
    importlib.import_module("torch._dynamo.convert_frame")
    # Torch imports some of them itself, and calls their functions.
    imported = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    for path in (each for each in others if str(each) not in imported):
        with contextlib.suppress(SyntaxError):  # some are for newer versions of Python
            found[path] = compile_time.lines_of_functions(path, ("",))
        if sum(map(len, found.values())) >= count:
            break
    kept: dict[Path, list[int]] = {}
    for path, lines in found.items():
        kept[path] = lines[: count - sum(map(len, kept.values()))]
    return {path: lines for path, lines in kept.items() if lines}


# -- steps -------------------------------------------------------------------------------------------------------------


def steps(is_quick: bool) -> Iterator[Measured]:
    """A step, until the variables at its stop have come."""
    with TerminalDebugger(PROGRAMS / "comptime_pdb.py") as pdb:
        theirs = [pdb.stop() for _ in range(5 if is_quick else 100)]
    taken = [1000 * each for each in compile_time.measure_steps(20 if is_quick else 500)]
    yield Measured("steps.trace", taken, {"pdb in comptime.breakpoint(), to its locals, ms": _median(theirs)})
    yield Measured("steps.trace-p99", taken, figure=_p99(taken))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "steps.py")
        script.write_text(eager.STEPPED, encoding="utf-8")
        taken, other = [], []
        for _ in range(1 if is_quick else 3):
            taken += eager.step_latency("dynamo", script)
            other += eager.step_latency("debugpy", script)
    yield Measured("steps.ordinary", taken, {"debugpy's own adapter, ms": _median(other)})
    yield Measured("steps.ordinary-p99", taken, {"debugpy's own adapter, ms": _p99(other)}, _p99(taken))
    taken = _generated_steps(10 if is_quick else 200)
    yield Measured("steps.generated", taken)
    yield Measured("steps.generated-p99", taken, figure=_p99(taken))


def _generated_steps(count: int) -> list[float]:
    program = Fixture("generated_loop")
    found: list[float] = []
    while len(found) < count:
        with DebuggedProgram(program.path, mode="run-time", stopOnGeneratedCode=True) as one:
            thread = one.wait_for_stop().thread_id
            assert thread is not None

            def step(one: DebuggedProgram = one, thread: int = thread) -> None:
                client = one.client
                client.resume("next", thread, "instruction")
                one.wait_for_stop()
                frame = client.stack_trace(thread, levels=20).stack_frames[0]
                client.variables(client.scopes(frame.id)[0].variables_reference)

            found += [_timed(step) for _ in range(10)]
    return found


def instructions(is_quick: bool) -> Iterator[Measured]:
    """Instructions of generated code, beside torch's own debugger."""
    measured, peer = run_time_instructions.Measured(), run_time_instructions.TorchStepping()
    quotients, ours, theirs = [], [], []
    try:
        for _ in range(1 if is_quick else 9):
            theirs.append(peer.seconds_per_instruction(20))
            ours.append(run_time_instructions.ours(measured, 20) / (measured.instructions * 20))
            quotients.append(theirs[-1] / ours[-1])
    finally:
        peer.close()
    beside = {"ours a second": 1 / _median(ours), "bytecode_debugger a second": 1 / _median(theirs)}
    yield Measured("instructions.stepped", quotients, beside)


# -- what is large -----------------------------------------------------------------------------------------------------


def openings(is_quick: bool) -> Iterator[Measured]:
    """The first page of what is large."""
    found: dict[str, list[float]] = {"opening.names": [], "opening.list": [], "opening.graph": []}
    for _ in range(1 if is_quick else 7):
        for key, taken in _large_session():
            found[key].append(taken)
    for key, each in found.items():
        yield Measured(key, each)
    sessions = [tensors.session() for _ in range(1 if is_quick else 7)]
    for key, world in (
        ("opening.tensor", tensors.ORDINARY),
        ("opening.tensor-trace", tensors.TRACE),
        ("opening.tensor-cached", tensors.CACHED),
        ("opening.tensor-generated", tensors.GENERATED),
    ):
        yield Measured(key, [1000 * taken[world, "first page, 100 x 100"] for taken in sessions])


PAGE = 100


def _large_session() -> Iterator[tuple[str, float]]:
    """Yield what each first look took; each is the first of its kind at its stop, after ``stackTrace``."""
    program = Fixture(PROGRAMS / "large.py")
    lines = [program.line("names"), program.line("nodes")]
    with DebuggedProgram(program.path, breakpoints={program.path: lines}, **DEFAULTS) as one:
        client = one.client
        thread = one.wait_for_stop().thread_id
        assert thread is not None
        frame = client.stack_trace(thread, levels=1).stack_frames[0].id
        scopes = {scope.name: scope.variables_reference for scope in client.scopes(frame)}
        yield "opening.names", _timed(lambda: client.variables(scopes["Globals"], start=0, count=PAGE))
        million = next(each for each in client.variables(scopes["Locals"]) if each.name == "million")
        yield "opening.list", _timed(lambda: client.variables(million.variables_reference, start=0, count=PAGE))
        client.resume("continue", thread)
        one.wait_for_stop(300)
        frame = client.stack_trace(thread, levels=1).stack_frames[0].id
        graph = next(scope.variables_reference for scope in client.scopes(frame) if scope.name == "Graph")
        yield "opening.graph", _timed(lambda: client.variables(graph, start=0, count=PAGE))


def setting(is_quick: bool) -> Iterator[Measured]:
    """The answers to ``setBreakpoints`` while a program runs."""
    files = breakpoints.files_of_library()
    taken = list(breakpoints.measure(PROGRAMS / "waits.py", files, 1 if is_quick else 5))
    for index, key in enumerate(("setting.first", "setting.more")):
        yield Measured(key, [1000 * one[index] for one in taken])
    pairs = list(breakpoints.measure_many(PROGRAMS / "waits.py", 1 if is_quick else 5))
    beside = {
        "until the answer, ms": 1000 * statistics.median(many.seconds for _, many in pairs),
        f"{breakpoints.FEWER:,} breakpoints ms": 1000 * statistics.median(one.processor_seconds for one, _ in pairs),
    }
    yield Measured("setting.one-file", [1000 * many.processor_seconds for _, many in pairs], beside)
    times = breakpoints.MANY / breakpoints.FEWER
    yield Measured("setting.growth", [many.processor_seconds / few.processor_seconds / times for few, many in pairs])


def passed(is_quick: bool) -> Iterator[Measured]:
    """What a breakpoint that stops nowhere costs in a cached call."""
    for kind, taken in passed_calls.measure(1 if is_quick else 10).items():
        plain = statistics.median(without for without, _ in taken)
        costs = [1000 * (other - without) for without, other in taken]
        ratio = statistics.median(other / without for without, other in taken)
        beside = {"plain call ms": 1000 * plain, "call to a plain one": ratio}
        yield Measured(passed_calls.KINDS[kind].row, costs, beside)


def stops(is_quick: bool) -> Iterator[Measured]:
    """How much memory grows from the first tenth of many stops to the last, all at lines that differ."""
    count = 300 if is_quick else 10_000
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "lines.py")
        body = "\n".join(f"    a{number % 50} = {number}" for number in range(count + 10))
        program.write_text(f"import torch\n\ndef lines():\n{body}\n\nlines()\n", encoding="utf-8")
        with DebuggedProgram(program, breakpoints={program: [4]}, **DEFAULTS) as one:
            client = one.client
            thread = one.wait_for_stop().thread_id
            assert thread is not None
            sizes: list[tuple[float, float]] = []
            for number in range(count):
                frame = client.stack_trace(thread, levels=20).stack_frames[0]
                assert frame.line == 4 + number, "a step goes to the next line"
                for scope in client.scopes(frame.id):
                    client.variables(scope.variables_reference, start=0, count=PAGE)
                if number in (count // 10, count - 1):
                    server = psutil.Process(one.server_process_id)
                    sizes.append((_megabytes(server), sum(map(_megabytes, server.children(recursive=True)))))
                client.resume("next", thread)
                one.wait_for_stop()
    (server_then, program_then), (server_now, program_now) = sizes
    yield Measured("stops.server", [100 * (server_now / server_then - 1)], {"MiB": server_now})
    yield Measured("stops.program", [100 * (program_now / program_then - 1)], {"MiB": program_now})


def _megabytes(process: psutil.Process) -> float:
    return float(process.memory_info().rss / 2**20)


# -- what other issues ask for -----------------------------------------------------------------------------------------


def values(is_quick: bool) -> Iterator[Measured]:
    """Real values in calls of a Llama of two layers that hits the cache."""
    import torch

    torch.set_num_threads(1)
    last = [cached_calls.measure(LLAMA)[-1] for _ in range(1 if is_quick else 3)]
    yield Measured("values.retrace", [one.retraced / one.first_trace for one in last])
    yield Measured("values.stop", [one.costs.stop for one in last])
    yield Measured("values.condition", [one.costs.false_condition for one in last])
    yield Measured("values.elsewhere", [one.costs.set_elsewhere for one in last])
    yield Measured("values.memory", [one.costs.memory for one in last])


def travel(is_quick: bool) -> Iterator[Measured]:
    """Going back in a trace of a Llama of two layers."""
    model = time_travel.path_of_model()
    first, third = time_travel.moves_of_calls(model, 5 if is_quick else time_travel.SNAPSHOTS)
    yield Measured("travel.back", [1000 * each for each in first["step back"]])
    yield Measured("travel.back-cached", [1000 * each for each in third["step back"]])
    traces = time_travel.LoggedTraces(model)
    kinds = (time_travel.PLAIN, time_travel.WITHOUT_LOG, time_travel.WITH_LOG)
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    for turn in range(2 if is_quick else 16):
        for kind in kinds:
            seconds = traces.seconds(kind)
            taken[kind].extend([seconds] if turn else [])
    plain, without, with_log = taken.values()
    yield Measured("travel.log", [one / other for one, other in zip(with_log, without, strict=True)])
    yield Measured("travel.step", [one / other for one, other in zip(with_log, plain, strict=True)])


def profile(is_quick: bool) -> Iterator[Measured]:
    """What the profiler costs a program that compiles with Inductor, and what it says of that."""
    program = Fixture("model").path
    costs, reported, plain_seconds = [], [], []
    for _ in range(1 if is_quick else 3):
        plain = _timed(lambda: _run([sys.executable, str(program)]))
        with tempfile.TemporaryDirectory() as folder:
            stem = str(Path(folder, "profile"))
            command = [sys.executable, "-m", "dynamo_dap", "profile", "--output", stem, str(program)]
            began = time.perf_counter()
            printed = _run(command)
            costs.append(1000 * (time.perf_counter() - began) / plain)
        ((whole, own),) = re.findall(r"The process took ([\d.]+) s; ([\d.]+) s of it", printed)
        reported.append(100 * float(own) / float(whole))
        plain_seconds.append(plain / 1000)
    yield Measured("profile.cost", costs, {"plain s": _median(plain_seconds)})
    yield Measured("profile.reported", reported)


def _run(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout


MEASURES: dict[str, Measure] = {
    "first-stop": first_stops,
    "encoder": encoder,
    "breaks": breaks,
    "calls": calls,
    "steps": steps,
    "instructions": instructions,
    "opening": openings,
    "setting": setting,
    "passed": passed,
    "stops": stops,
    "flat": flat,
    "values": values,
    "travel": travel,
    "profile": profile,
    "watched": watched_attributes.watched,
    "forecast": forecasts.forecast,
}
