"""Stops before, inside and after a trace: recompiles, failures of the backend, specializations, guards, the limit."""

from __future__ import annotations

import re
from pathlib import Path

from dynamo_dap.records.file import read_record
from dynamo_dap.records.folders import SUFFIX
from tests.client import Session
from tests.records.programs import AT_ONCE, GROWS, Case, write
from tests.records.test_graph_break_stops import info_of, launch

SPECIALIZES = Case(
    "sized",
    "y = x + 1\nif x.shape[0] == 4:  #@sized\n    y = y * 2\nreturn y",
    call="torch.ones(4)",
    options='backend="eager", dynamic=True',
)


def test_a_recompile_stops_before_the_new_trace(session: Session) -> None:
    launch(session, Path("recompiles"), "recompile")
    stop = session.wait_for_stop("exception")
    info = info_of(session, stop)
    assert info["exceptionId"] == "Recompile: select [0/1]"
    assert "A guard of 0/0 failed" in info["description"]
    assert "value then: 'double'" in info["description"], info
    assert "value now: 5" in info["description"], info
    assert "Advice (not tried): each value is " in info["description"], info
    trace = info["details"]["stackTrace"]
    assert re.fullmatch(r"at /\S+recompiles\.py:\d+", trace), "a client makes links of it"
    assert stop.frame.name == "select"
    assert stop.frame["Locals"]["mode"].text == "5"
    assert stop.frame.evaluate("mode + 1").text == "6"
    entry = stop.frame["Cache Entries"]["0/0"]
    assert entry["value then"].text == "'double'"
    assert entry["value now"].text == "5"
    assert "recompiles.py" in entry["user line"].text
    assert len(entry["guards"].children) > 1
    assert "main" in [frame.name for frame in stop.frames]
    stop = session.continue_to_stop()
    assert info_of(session, stop)["exceptionId"] == "Recompile: select [0/2]"
    assert set(stop.frame["Cache Entries"].children) == {"0/0", "0/1"}
    session.request("setExceptionBreakpoints", {"filters": []})
    assert session.run_to_end() == 0


def test_the_advice_is_about_the_newest_compile(session: Session, tmp_path: Path) -> None:
    """The size fails a guard of the first compile only; it is dynamic in the second. The list causes the third."""
    program = tmp_path / "program.py"
    program.write_text(GROWS, encoding="utf-8")
    launch(session, program, "recompile")
    first = info_of(session, session.wait_for_stop("exception"))["description"]
    assert "maybe_mark_dynamic(x, 0)" in first
    second = info_of(session, session.continue_to_stop())["description"]
    assert "expected 3, actual 6" in second
    assert "Advice (not tried): each length" in second
    assert "maybe_mark_dynamic" not in second
    session.request("setExceptionBreakpoints", {"filters": []})
    assert session.run_to_end() == 0


def test_a_call_that_another_thread_compiled_meanwhile(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(AT_ONCE, encoding="utf-8")
    launch(session, program, "recompile")
    assert "expected 10, actual 30" in info_of(session, session.wait_for_stop("exception"))["description"]
    stop = session.continue_to_stop()
    assert info_of(session, stop)["exceptionId"] == "Recompile: score [0/2]"
    assert "0/1 accepts the call now" in info_of(session, stop)["description"]
    assert "call it once with such arguments" in info_of(session, stop)["description"]
    session.request("setExceptionBreakpoints", {"filters": []})
    assert session.run_to_end() == 0


def test_a_condition_on_recompiles(session: Session) -> None:
    launch(session, Path("recompiles"), recompile="mode == 'other' and __count__ > 2")
    stop = session.wait_for_stop("exception")
    assert info_of(session, stop)["exceptionId"] == "Recompile: select [0/3]"
    session.request("setExceptionBreakpoints", {"filters": []})
    assert session.run_to_end() == 0


def test_recompiles_that_are_errors_stop_and_are_recorded(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        '"""Recompiles that torch refuses."""\nimport torch\nimport torch._dynamo.config\n\n'
        "@torch.compile\ndef fn(x, mode):\n    if mode == 1:\n        return x + 1\n    return x - 1\n\n"
        "def refused(mode):\n    try:\n        fn(torch.ones(3), mode)\n"
        "    except Exception as error:\n        print(type(error).__name__)\n\n"
        "fn(torch.ones(3), 1)\n"
        "with torch._dynamo.config.patch(error_on_recompile=True):\n    refused(2)\n"
        'with torch.compiler.set_stance("fail_on_recompile"):\n    refused(3)\n'
        "fn(torch.ones(3), 4)\n",
        encoding="utf-8",
    )
    launch(session, program, "recompile")
    for value, callers in ((2, ["refused", "<module>"]), (3, ["refused", "<module>"]), (4, ["<module>"])):
        stop = session.wait_for_stop("exception")
        info = info_of(session, stop)
        assert info["exceptionId"].startswith("Recompile: fn [0/"), info
        assert "value then: 1" in info["description"], info
        assert f"value now: {value}" in info["description"], info
        assert f"at {program}:7" in info["details"]["stackTrace"], info
        assert [frame.name for frame in stop.user_frames] == ["fn", *callers]
        session.resume()
    # Two recompiles failed, and the program continued.
    assert session.wait_for_exit() == 0
    assert session.output("stdout").split() == ["RecompileError", "RuntimeError"]
    record = read_record(next(tmp_path.rglob(f"*{SUFFIX}")))
    compiles = record.functions[0].compiles
    assert [len(one.failures) for one in compiles] == [0, 1, 1, 1]
    assert [one.state for one in compiles] == ["compiled", "failed", "failed", "compiled"]


def test_a_failing_backend(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        '"""A backend that fails."""\nimport torch\n\n'
        "def backend(module, inputs):\n    raise ValueError('no such kernel')  #@raised\n\n"
        "@torch.compile(backend=backend)\ndef fn(x):\n    return x * 2  #@line\n\n"
        "try:\n    fn(torch.ones(3))\nexcept Exception as error:\n    print(type(error).__name__)\n",
        encoding="utf-8",
    )
    launch(session, program, "backend-failure")
    stop = session.wait_for_stop("exception")
    info = info_of(session, stop)
    assert info["exceptionId"] == "Backend failure: the backend raised ValueError"
    assert "no such kernel" in info["description"]
    assert "program.py:5" in info["details"]["stackTrace"]
    assert stop.frame.name == "fn"
    assert stop.frame.marker == "line"
    assert "mul" in " ".join(stop.frame["Graph"].texts())
    assert session.run_to_end() == 0
    session.wait_for_output("BackendCompilerFailed")


def test_the_first_lines_of_a_long_failure_are_shown_and_the_whole_is_below(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n\n"
        "def backend(module, inputs):\n    raise ValueError('\\n\\n'.join(f'reason {i}' for i in range(40)))\n\n"
        "@torch.compile(backend=backend)\ndef fn(x):\n    return x * 2\n\n"
        "try:\n    fn(torch.ones(3))\nexcept Exception as error:\n    print(type(error).__name__)\n",
        encoding="utf-8",
    )
    launch(session, program, "backend-failure")
    info = info_of(session, session.wait_for_stop("exception"))
    assert "reason 2\n… 37 more lines below" in info["description"]
    assert len(info["description"].splitlines()) <= 6
    assert re.match(r"at \S+:\d+\n\n", info["details"]["stackTrace"])
    assert info["details"]["stackTrace"].endswith("reason 39")
    assert info["details"]["message"].endswith("reason 39")
    assert session.run_to_end() == 0


def test_a_failure_in_inductor_is_distinguished_from_one_in_the_backend(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        '"""A pass of Inductor that fails."""\nimport torch\nimport torch._inductor.config\n\n'
        "def failing(graph):\n    raise ValueError('bad pass')\n\n"
        "torch._inductor.config.post_grad_custom_pre_pass = failing\n\n"
        "@torch.compile\ndef fn(x):\n    return x * 2\n\n"
        "try:\n    fn(torch.ones(3))\nexcept Exception as error:\n    print(type(error).__name__)\n",
        encoding="utf-8",
    )
    launch(session, program, "backend-failure")
    stop = session.wait_for_stop("exception")
    assert info_of(session, stop)["exceptionId"].startswith("Backend failure: Inductor raised")
    assert session.run_to_end() == 0


def test_a_failure_in_autograd_is_distinguished_from_one_in_the_backend(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        '"""An operator whose gradient cannot be traced."""\nimport torch\n\n'
        '@torch.library.custom_op("tests::doubled", mutates_args=())\n'
        "def doubled(x: torch.Tensor) -> torch.Tensor:\n    return x * 2\n\n"
        "@doubled.register_fake\ndef _(x):\n    return torch.empty_like(x)\n\n"
        "def backward(context, gradient):\n    raise ValueError('no gradient')  #@raised\n\n"
        "doubled.register_autograd(backward)\n\n"
        '@torch.compile(backend="aot_eager")\ndef fn(x):\n    return doubled(x) + 1\n\n'
        "try:\n    fn(torch.ones(3, requires_grad=True))\nexcept Exception as error:\n    print('failed')\n",
        encoding="utf-8",
    )
    launch(session, program, "backend-failure")
    stop = session.wait_for_stop("exception")
    info = info_of(session, stop)
    assert info["exceptionId"] == "Backend failure: AOTAutograd raised ValueError"
    assert "no gradient" in info["description"]
    assert session.run_to_end() == 0


def test_a_failure_of_dynamo_itself(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        '"""A part of Dynamo that fails."""\nimport torch\nfrom torch._dynamo.variables import builtin\n\n'
        "def failing(*arguments, **keywords):\n    raise ValueError('out of order')\n\n"
        "builtin.BuiltinVariable.call_function = failing\n\n"
        '@torch.compile(backend="eager")\ndef fn(x):\n    return x * len([1, 2])\n\n'
        "try:\n    fn(torch.ones(3))\nexcept Exception as error:\n    print(type(error).__name__)\n",
        encoding="utf-8",
    )
    launch(session, program, "backend-failure")
    stop = session.wait_for_stop("exception")
    info = info_of(session, stop)
    assert info["exceptionId"] == "Backend failure: Dynamo raised ValueError"
    assert "out of order" in info["description"]
    assert stop.frame.name == "fn"
    assert session.run_to_end() == 0


def test_a_size_that_becomes_a_constant(session: Session, tmp_path: Path) -> None:
    program = write(tmp_path, [SPECIALIZES])
    launch(session, program, "specialize")
    stop = session.wait_for_stop("exception", at="sized")
    assert info_of(session, stop)["exceptionId"] == "Specialized: x.size()[0] == 4"
    compiled = session.request("dynamoCompiles", {})["functions"][0]["compiles"][0]
    (recorded,) = compiled["specializations"]
    assert recorded["expression"] == "x.size()[0] == 4"
    assert recorded["place"]["line"] == stop.frame.line
    assert session.run_to_end() == 0


def test_a_guard_on_a_chosen_source(session: Session, tmp_path: Path) -> None:
    case = Case(
        "guarded", "y = x + 1\nif mode == 'a':  #@guarded\n    y = y * 2\nreturn y", "torch.ones(4), 'a'", "x, mode"
    )
    program = write(tmp_path, [case])
    launch(session, program, guard="__source__ == 'mode'")
    stop = session.wait_for_stop("exception", at="guarded")
    assert "mode" in info_of(session, stop)["exceptionId"]
    session.request("setExceptionBreakpoints", {"filters": []})
    assert session.run_to_end() == 0


def test_the_recompile_limit(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        '"""Compiled too often."""\nimport torch\nimport torch._dynamo.config\n\n'
        "torch._dynamo.config.recompile_limit = 2\n\n"
        '@torch.compile(backend="eager")\ndef fn(x, n):\n    return x if n == "c" else x * len(n)\n\n'
        'for n in ("a", "bb", "ccc", "dddd"):\n    fn(torch.ones(3), n)\n',
        encoding="utf-8",
    )
    launch(session, program, "limit")
    stop = session.wait_for_stop("exception")
    assert info_of(session, stop)["exceptionId"] == "Recompile limit: fn exceeds recompile_limit"
    assert stop.frame["Locals"]["n"].text == "'ccc'"
    assert session.run_to_end() == 0
