"""The call stack: inlined functions, the frame being compiled, the eager callers; and several threads."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.client import FIXTURES, Fixture, Session


def test_inlined_functions_then_the_compiled_one_then_the_callers(session: Session) -> None:
    session.launch("basic", "in_helper")
    stop = session.wait_for_stop("breakpoint", at="in_helper")
    shown = stop.user_frames
    assert [(frame.name, frame.marker) for frame in shown[:3]] == [
        ("scale", "in_helper"),
        ("compute", "call"),
        ("main", "eager_call"),
    ]
    assert shown[3].name == "<module>"
    assert len(shown) == 4
    assert all(frame.path == FIXTURES / "basic.py" for frame in shown)
    # The callers have real values.
    main = shown[2]
    assert main["Locals"]["x"].text.startswith("Tensor f32[3, 4]")
    assert main.evaluate("y.requires_grad").text == "True"
    assert not [frame for frame in shown if frame.path and "torch" in frame.path.parts]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10's code knows no columns")
def test_columns_are_those_of_the_expression(session: Session) -> None:
    session.launch("basic", "in_helper")
    helper, caller, *_ = session.wait_for_stop("breakpoint", at="in_helper").user_frames
    lines = Fixture("basic").path.read_text().splitlines()
    # `doubled = tensor * factor`
    assert lines[helper.line - 1][helper.data.column - 1] != " "
    assert helper.data.end_column is not None
    call = caller.data
    assert call.end_column is not None
    assert lines[call.line - 1][call.column - 1 : call.end_column - 1] == "scale(z, 2)"
    assert session.finish() == 0


def test_paging(session: Session) -> None:
    session.launch("basic", "in_helper", justMyCode=False)
    stop = session.wait_for_stop("breakpoint", at="in_helper")
    everything = session.client.stack_trace(stop.thread_id)
    total = everything.total_frames
    assert total == len(everything.stack_frames)
    pages = []
    for start in range(0, total, 3):
        page = session.client.stack_trace(stop.thread_id, start=start, levels=3)
        assert page.total_frames == total or len(page.stack_frames) == 3
        pages += page.stack_frames
    assert [(frame.id, frame.name) for frame in pages] == [(frame.id, frame.name) for frame in everything.stack_frames]
    # With justMyCode off, the stack has torch's own frames, marked as not the user's.
    torch_frames = [frame for frame in everything.stack_frames if frame.source and "torch" in (frame.source.path or "")]
    assert all(frame.presentation_hint == "subtle" for frame in torch_frames)
    assert session.client.stack_trace(stop.thread_id, start=total + 5, levels=3).stack_frames == []
    assert session.finish() == 0


def test_modules_by_qualified_names(session: Session) -> None:
    session.launch("model", "block_return")
    stop = session.wait_for_stop("breakpoint", at="block_return")
    names = [frame.name for frame in stop.user_frames]
    assert names == ["Block.forward", "Model.forward", "main", "<module>"]
    assert "_call_impl" not in str(names)
    session.set_breakpoints("model")
    assert session.run_to_end() == 0


def test_threads_stop_one_by_one(session: Session) -> None:
    """One thread is paused in its trace; another one, which does not compile, continues to run."""
    session.launch("threads", "first", "second")
    stop = session.wait_for_stop("breakpoint")
    first_marker = stop.marker
    threads = {thread.id: thread.name for thread in session.client.threads()}
    assert "busy" in threads.values()
    assert "MainThread" in threads.values()
    assert threads[stop.thread_id] == f"worker-{first_marker}"
    assert stop.body.get("allThreadsStopped") is not True
    # In the paused thread, each look at the other thread's counter finds a higher value.
    caller = stop.frame_called(f"{first_marker}_worker")
    seen = int(caller.evaluate("len(counted)").text)
    for _ in range(3000):
        if int(caller.evaluate("len(counted)").text) > seen:
            break
    else:
        raise AssertionError("the thread that is not paused does not run")
    session.resume("continue", thread_id=stop.thread_id)
    second = session.wait_for_stop("breakpoint")
    assert {first_marker, second.marker} == {"first", "second"}
    assert threads.get(second.thread_id, second.marker).endswith(second.marker or "")
    assert session.run_to_end() == 0
    assert "counted True" in session.output("stdout")


def test_threads_of_torch_are_not_listed(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "pools.py"
    path.write_text(POOLS, encoding="utf-8")
    session.launch(Fixture(path), "done")
    stop = session.wait_for_stop("breakpoint", at="done")
    running = stop.frame.evaluate("[thread.name for thread in threading.enumerate()]")
    listed = sorted(thread.name for thread in session.client.threads())
    # The list has the program's own pool and a thread that runs a torch module, but no thread of Inductor's pool.
    assert listed == ["MainThread", "linear", "mine_0"]
    assert "ThreadPoolExecutor-" in running.text
    assert session.run_to_end() == 0


POOLS = """
import concurrent.futures
import threading

import torch
import torch._inductor.config

ready = threading.Event()
mine = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="mine")
mine.submit(int)
waiting = torch.nn.Identity()
waiting.register_forward_hook(lambda *given: ready.wait())
linear = threading.Thread(target=waiting._call_impl, args=(1,), name="linear")
linear.start()
with torch._inductor.config.patch(force_disable_caches=True):
    print(torch.compile(lambda x: x.sin() + 1)(torch.ones(9)).sum())
ready.set()  # @done
"""
