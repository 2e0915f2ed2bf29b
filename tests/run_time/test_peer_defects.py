"""Four defects of torch's own debugger of generated code, and that ours does not have them.

Each test shows the defect, so that it says when torch has fixed it; in another process where it ends the process.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from dynamo_dap.debuggee.torch_api.code_objects.generated_code import Notifier
from tests.client.timeline import DEADLINE
from tests.run_time.in_process import Recorder, SeenStop, debugging
from tests.run_time.programs import compiled, programs, replay_arguments
from tests.run_time.torch_debugger import TorchDebugger

ROOT = Path(__file__).resolve().parents[2]


def _in_another_process(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'adapter'}:{ROOT}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


# -- it dies of an exception in its callback ---------------------------------------------------------------------------


def test_an_exception_in_the_callback_ends_a_process_without_us() -> None:
    ended = _in_another_process(
        """
        import torch
        def callback(code):
            raise ValueError("in the callback")
        function = torch.compile(lambda x: x + 1, backend="eager")
        function(torch.ones(2))
        torch._C._dynamo.eval_frame.set_bytecode_debugger_callback(callback)
        function(torch.ones(2))
        print("still alive")
        """
    )
    assert ended.returncode < 0, "torch survives it by now"
    assert "still alive" not in ended.stdout


@pytest.mark.parametrize("error", [ValueError, SystemExit, RecursionError])
def test_an_exception_of_ours_stays_here(error: type[BaseException]) -> None:
    reported: list[str] = []

    def broken(_code: object) -> None:
        raise error("in the callback")

    def broken_before(_code: object) -> None:
        raise error("in the callback that was there before")

    function = compiled(programs.branching)
    function(torch.ones(2))
    interface = torch._C._dynamo.eval_frame
    interface.set_bytecode_debugger_callback(broken_before)
    notifier = Notifier(broken, reported.append)
    notifier.install()
    try:
        assert function(torch.ones(2)).tolist() == [4.0, 4.0]
    finally:
        notifier.remove()
        assert interface.get_bytecode_debugger_callback() is broken_before
        interface.set_bytecode_debugger_callback(None)
    first, second = reported[:2]
    assert first == "reporting generated code"
    assert second.startswith("calling the hook for generated code")


def test_the_hook_that_was_there_is_called_as_well() -> None:
    seen: list[str] = []
    interface = torch._C._dynamo.eval_frame
    before = lambda code: seen.append(code.co_name)  # noqa: E731  (its identity is compared)
    function = compiled(programs.branching)
    function(torch.ones(2))
    interface.set_bytecode_debugger_callback(before)
    record = Recorder()
    try:
        with debugging(record, stop_on_generated_code=True):
            function(torch.ones(2))
        assert interface.get_bytecode_debugger_callback() is before
    finally:
        interface.set_bytecode_debugger_callback(None)
    assert seen[0] == "branching"
    assert len(seen) == len(record.seen) == 2


# -- it dies of code objects that cannot be hashed ---------------------------------------------------------------------


def _with_unhashable_code(function: Any) -> Any:
    """Compile with a hook that puts a dict into the constants of the generated code, as Dynamo itself does at times."""
    from torch._dynamo.convert_frame import register_bytecode_hook

    def hook(_original: object, code: Any) -> Any:
        return code.replace(co_consts=(*code.co_consts, {"a": "dictionary"}))

    return register_bytecode_hook(hook), compiled(function)


def test_unhashable_code() -> None:
    handle, function = _with_unhashable_code(programs.replay)
    try:
        function(*replay_arguments())
        with pytest.raises(TypeError, match="unhashable"):
            TorchDebugger().run(_as_the_callback_would)
        record = Recorder("in instruction", look=lambda stop: stop.instruction)
        with debugging(record, stop_on_generated_code=True) as host:
            function(*replay_arguments())
            (generated,) = host.engine.codes
            with pytest.raises(TypeError, match="unhashable"):
                hash(generated.code)
        assert record.seen[-1].startswith("RETURN")
    finally:
        handle.remove()


def _as_the_callback_would() -> None:
    """What torch's debugger does first with a code object, where the exception can be caught."""
    context = torch._C._dynamo.eval_frame.get_bytecode_debugger_callback().__self__
    original = next(iter(torch._dynamo.convert_frame.orig_code_map.refs.values()))()
    context._dynamo_code_callback(original)


# -- since Python 3.12 it stops once per instruction -------------------------------------------------------------------


def test_instructions_are_reported_at_every_call() -> None:
    function = compiled(programs.branching)
    function(torch.ones(2))

    def program() -> None:
        for _ in range(3):
            function(torch.ones(2))

    peer = TorchDebugger()
    peer.run(program)
    record = Recorder("in instruction", look=lambda stop: (stop.generated.number, stop.index))
    with debugging(record, stop_on_generated_code=True):
        program()
    once = record.seen[: len(record.seen) // 3]
    assert record.seen == once * 3
    if sys.version_info >= (3, 12):
        assert len({(stop.name, stop.offset) for stop in peer.stops}) == len(peer.stops), "torch tells again by now"


# -- since Python 3.12 it takes the tool id of debuggers --------------------------------------------------------------


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there are no tool ids before Python 3.12")
def test_the_debuggers_tool_id_is_left_alone() -> None:
    monitoring: Any = sys.__dict__["monitoring"]
    owner = "somebody's debugger"
    reported: list[int] = []
    function = compiled(programs.branching)
    function(torch.ones(2))
    monitoring.use_tool_id(monitoring.DEBUGGER_ID, owner)
    monitoring.register_callback(
        monitoring.DEBUGGER_ID, monitoring.events.INSTRUCTION, lambda code, offset: reported.append(offset)
    )

    def watched() -> int:
        return function(torch.ones(2)).numel()

    monitoring.set_local_events(monitoring.DEBUGGER_ID, watched.__code__, monitoring.events.INSTRUCTION)
    try:
        record = Recorder("in instruction")
        with debugging(record, stop_on_generated_code=True):
            assert monitoring.get_tool(monitoring.DEBUGGER_ID) == owner
            watched()
        alone = len(reported)
        assert monitoring.get_tool(monitoring.DEBUGGER_ID) == owner
        watched()
        assert len(reported) == 2 * alone > 0, "the other tool is told what it would be told without us"
        assert len(record.seen) > 50
        TorchDebugger("c").run(watched)
        assert monitoring.get_tool(monitoring.DEBUGGER_ID) != owner, "torch leaves the id alone by now"
    finally:
        if monitoring.get_tool(monitoring.DEBUGGER_ID) is not None:
            monitoring.free_tool_id(monitoring.DEBUGGER_ID)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there are no tool ids before Python 3.12")
def test_without_a_free_tool_id_we_say_so() -> None:
    monitoring: Any = sys.__dict__["monitoring"]
    for number in (3, 4):
        monitoring.use_tool_id(number, "somebody")
    try:
        record: Recorder = Recorder()
        with debugging(record, stop_on_generated_code=True) as host:
            assert compiled(programs.branching)(torch.ones(2)).tolist() == [4.0, 4.0]
            assert any("every tool id of sys.monitoring is taken" in text for text in host.printed)
        assert record.seen == []
    finally:
        for number in (3, 4):
            monitoring.free_tool_id(number)


def test_a_stop_that_fails_inside_leaves_the_program_alone() -> None:
    """An exception in the middle of our own handling is ours to keep."""

    def script(_stop: SeenStop) -> str | None:
        raise RuntimeError("the debugger is broken")

    function = compiled(programs.branching)
    with pytest.raises(RuntimeError, match="the debugger is broken"), debugging(script, stop_on_generated_code=True):
        assert function(torch.ones(2)).tolist() == [4.0, 4.0]
