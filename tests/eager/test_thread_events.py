"""The ``thread`` events of threads that start while debugpy looks for threads that have ended."""

from __future__ import annotations

from pathlib import Path

from tests.client import Session

PROGRAM = """\
import sys
import threading

ready = threading.Event()
leaving = threading.Event()


def work():
    ready.set()
    leaving.wait()


worker = threading.Thread(target=work, name="worker")
debugger = sys.modules["pydevd"]
list_threads = debugger.threadingEnumerate


def list_threads_and_start():
    threads = list_threads()
    if not ready.is_set():
        worker.start()
        ready.wait()
    return threads


debugger.threadingEnumerate = list_threads_and_start
print("patched")  #@stop
print("running")  #@again
leaving.set()
worker.join()
print("ended")
"""


def test_a_thread_that_starts_while_threads_are_listed_has_not_exited(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "starting.py"
    program.write_text(PROGRAM, encoding="utf-8")
    session.launch(program, "stop", "again")
    session.wait_for_stop("breakpoint", at="stop")
    session.continue_to_stop(at="again")
    worker = next(thread.id for thread in session.client.threads() if thread.name == "worker")
    reasons = [event["body"]["reason"] for event in session.timeline.events if _is_about(event, worker)]
    assert reasons == ["started"]
    session.resume()
    assert session.wait_for_exit() == 0
    reasons = [event["body"]["reason"] for event in session.timeline.events if _is_about(event, worker)]
    assert reasons == ["started", "exited"]


def _is_about(event: dict[str, object], thread: int) -> bool:
    body = event.get("body")
    return event["event"] == "thread" and isinstance(body, dict) and body["threadId"] == thread
