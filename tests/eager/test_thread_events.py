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


PARKED = """\
import sys
import threading

leaving = threading.Event()


def park():
    ready.release()
    leaving.wait()


ready = threading.Semaphore(0)
for _ in range(30):
    threading.Thread(target=park).start()
    ready.acquire()
debugger = sys.modules["pydevd"].get_global_debugger()
own = sys.modules["pydevd"].get_current_thread_id(threading.current_thread())
woken = debugger.get_internal_queue_and_event(own)[1]
wait = woken.wait
woken.wait = lambda timeout: wait()
print("parked")  #@stop
total = 0
for number in range(3):
    total += number
leaving.set()  #@last
print(total)
"""


def test_a_step_wakes_its_own_thread_among_many(session: Session, tmp_path: Path) -> None:
    """A stopped thread looks each 0.2 s whether it was resumed, here only when it is woken."""
    program = tmp_path / "parked.py"
    program.write_text(PARKED, encoding="utf-8")
    session.launch(program, "stop", "last")
    first = session.wait_for_stop("breakpoint", at="stop").frame.data.line
    lines = [session.next().frame.data.line for _ in range(6)]
    assert lines == [first + 1, first + 2, first + 3, first + 2, first + 3, first + 2]
    session.continue_to_stop(at="last")
    session.resume()
    assert session.wait_for_exit() == 0
