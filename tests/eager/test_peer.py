"""Compares scripted sessions with debugpy's own adapter and with ours: the transcripts must agree."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.client import FIXTURES
from tests.eager.peer import ADAPTERS, Peer

PROGRAM = FIXTURES / "eager" / "plain_python.py"

SCENARIOS: dict[str, Callable[[Peer], None]] = {}


def scenario(function: Callable[[Peer], None]) -> Callable[[Peer], None]:
    SCENARIOS[function.__name__] = function
    return function


def _run(peer: Peer, *arguments: str, at: tuple[str, ...] = (), **options: object) -> None:
    with peer.launching(args=list(arguments), **options):
        if at:
            peer.breakpoints(*at)


def _to_end(peer: Peer) -> None:
    peer.resume()
    peer.finish()


@scenario
def runs_to_its_end(peer: Peer) -> None:
    _run(peer, "hello")
    peer.finish()


@scenario
def breakpoint_in_a_function(peer: Peer) -> None:
    _run(peer, "twice", "4", at=("add",))
    peer.stop()
    _to_end(peer)


@scenario
def breakpoint_at_module_level(peer: Peer) -> None:
    _run(peer, "hello", at=("main", "end"))
    peer.stop()
    peer.resume()
    peer.stop()
    _to_end(peer)


@scenario
def conditional_breakpoint(peer: Peer) -> None:
    with peer.launching(args=["loop", "5"]):
        peer.breakpoints("loop", condition="i == 3")
    peer.stop()
    _to_end(peer)


@scenario
def hit_condition(peer: Peer) -> None:
    with peer.launching(args=["loop", "5"]):
        peer.breakpoints("loop", hitCondition="4")
    peer.stop()
    _to_end(peer)


@scenario
def log_point(peer: Peer) -> None:
    with peer.launching(args=["loop", "3"]):
        peer.breakpoints("end", logged={"loop": "i is {i}"})
    # The program's output uses another connection and could come in between, so the program prints after all log
    # messages.
    peer.stop()
    peer.note("logged", peer.output("stdout"))
    _to_end(peer)


@scenario
def function_breakpoint(peer: Peer) -> None:
    with peer.launching(args=["twice", "4"]):
        peer.function_breakpoints("add")
    peer.stop()
    _to_end(peer)


@scenario
def step_over(peer: Peer) -> None:
    _run(peer, "twice", "4", at=("twice",))
    peer.stop()
    peer.step("next")
    peer.step("next")
    _to_end(peer)


@scenario
def step_in_and_out(peer: Peer) -> None:
    _run(peer, "twice", "4", at=("twice",))
    peer.stop()
    peer.step("stepIn")
    peer.step("next")
    peer.step("stepOut")
    _to_end(peer)


@scenario
def step_through_a_loop(peer: Peer) -> None:
    _run(peer, "loop", "2", at=("loop",))
    peer.stop()
    for _ in range(4):
        peer.step("next")
    peer.resume("continue")
    peer.finish()


@scenario
def step_in_a_comprehension(peer: Peer) -> None:
    _run(peer, "comprehension", "2", at=("comprehension",))
    peer.stop()
    peer.step("stepIn")
    peer.breakpoints()
    _to_end(peer)


@scenario
def breakpoint_in_a_generator(peer: Peer) -> None:
    _run(peer, "generator", "3", at=("yield",))
    peer.stop()
    # On Python 3.12 and newer, debugpy would stop there each time that the generator continues.
    peer.breakpoints()
    _to_end(peer)


@scenario
def a_lambda(peer: Peer) -> None:
    _run(peer, "with_lambda", at=("lambda_call",))
    peer.stop()
    peer.step("stepIn")
    _to_end(peer)


@scenario
def stop_on_entry(peer: Peer) -> None:
    _run(peer, "hello", stopOnEntry=True)
    peer.stop()
    peer.step("next")
    _to_end(peer)


@scenario
def raised_exception(peer: Peer) -> None:
    with peer.launching(args=["catches"]):
        peer.exceptions("raised")
    peer.stop()
    _exception(peer)
    peer.resume()
    peer.stop()
    _to_end(peer)


@scenario
def uncaught_exception(peer: Peer) -> None:
    with peer.launching(args=["uncaught"]):
        peer.exceptions("uncaught")
    peer.stop()
    _exception(peer)
    _to_end(peer)


@scenario
def uncaught_exception_without_a_filter(peer: Peer) -> None:
    with peer.launching(args=["uncaught"]):
        peer.exceptions()
    peer.finish()


@scenario
def exit_code(peer: Peer) -> None:
    with peer.launching(args=["exits"]):
        peer.exceptions()
    peer.finish()


@scenario
def user_unhandled_exception(peer: Peer) -> None:
    with peer.launching(args=["catches"]):
        peer.exceptions("userUnhandled")
    peer.finish()


def _exception(peer: Peer) -> None:
    body = peer.ask("exceptionInfo", {"threadId": peer.thread_id})
    details = body.get("details") or {}
    peer.note("exception", [body.get("exceptionId"), body.get("description"), body.get("breakMode")])
    peer.note("details", [details.get("typeName"), details.get("message")])


@scenario
def nested_variables(peer: Peer) -> None:
    _run(peer, "nested", at=("nested",))
    peer.stop()
    scope = peer.ask("scopes", {"frameId": peer.frames[0]["id"]})["scopes"][0]
    values = {one["name"]: one for one in peer.children(scope["variablesReference"])}
    for name in ("values", "account"):
        found = peer.children(values[name]["variablesReference"])
        # debugpy's groups have no expression. Only debugpy has an entry for the length, and only ours has one for the
        # class.
        inside = [(one["evaluateName"], one.get("type")) for one in found if one.get("evaluateName")]
        peer.note(name, sorted(one for one in inside if not one[0].startswith(("len(", "type("))))
    _to_end(peer)


@scenario
def a_page_of_a_list(peer: Peer) -> None:
    _run(peer, "nested", at=("nested",))
    peer.stop()
    arguments = {"expression": "values['list']", "frameId": peer.frames[0]["id"], "context": "watch"}
    body = peer.ask("evaluate", arguments)
    page = peer.children(body["variablesReference"], start=10, count=5)
    # debugpy answers with the beginning of the list for any page.
    expressions = {one.get("evaluateName"): one["value"] for one in page}
    peer.note("page", [expressions.get(f"values['list'][{index}]") for index in range(10, 15)])
    _to_end(peer)


@scenario
def hexadecimal_values(peer: Peer) -> None:
    _run(peer, "nested", at=("nested",))
    peer.stop()
    body = peer.ask(
        "evaluate",
        {
            "expression": "values['number']",
            "frameId": peer.frames[0]["id"],
            "context": "watch",
            "format": {"hex": True},
        },
    )
    peer.note("hex", body.get("result"))
    _to_end(peer)


@scenario
def set_variable(peer: Peer) -> None:
    _run(peer, "twice", "4", at=("add_return",))
    peer.stop()
    scope = peer.ask("scopes", {"frameId": peer.frames[0]["id"]})["scopes"][0]
    body = peer.ask("setVariable", {"variablesReference": scope["variablesReference"], "name": "total", "value": "99"})
    peer.note("set", body.get("value"))
    peer.note("locals", peer.locals())
    _to_end(peer)


@scenario
def set_expression(peer: Peer) -> None:
    _run(peer, "nested", at=("nested",))
    peer.stop()
    body = peer.ask("setExpression", {"expression": "account.balance", "value": "7", "frameId": peer.frames[0]["id"]})
    peer.note("set", body.get("value"))
    peer.evaluate("account.balance")
    _to_end(peer)


@scenario
def evaluate_in_every_context(peer: Peer) -> None:
    _run(peer, "nested", at=("nested",))
    peer.stop()
    for context in ("watch", "hover", "repl", "clipboard"):
        peer.evaluate("values['dict']", context)
        peer.evaluate("len(values) + 1", context)
    peer.evaluate("no_such_name", "watch")
    peer.evaluate("later = 5", "repl")
    peer.evaluate("later + 1", "watch")
    peer.evaluate("name", "watch", frame=1)
    _to_end(peer)


@scenario
def completions(peer: Peer) -> None:
    _run(peer, "nested", at=("nested",))
    peer.stop()
    body = peer.ask("completions", {"frameId": peer.frames[0]["id"], "text": "account.dep", "column": 12})
    peer.note("completions", sorted(one["label"] for one in body.get("targets", [])))
    _to_end(peer)


@scenario
def goto_skips_a_line(peer: Peer) -> None:
    _run(peer, "jump", at=("jump_from", "jump_end"))
    peer.stop()
    line = peer.fixture.line("jump_to")
    targets = peer.ask("gotoTargets", {"source": {"path": str(peer.fixture.path)}, "line": line})["targets"]
    peer.note("targets", [one["line"] for one in targets])
    peer.ask("goto", {"threadId": peer.thread_id, "targetId": targets[0]["id"]})
    peer.stop()
    peer.resume()
    peer.stop()
    _to_end(peer)


@scenario
def step_in_targets(peer: Peer) -> None:
    _run(peer, "twice", "4", at=("twice",))
    peer.stop()
    targets = peer.ask("stepInTargets", {"frameId": peer.frames[0]["id"]})["targets"]
    peer.note("targets", [one["label"] for one in targets])
    peer.ask("stepIn", {"threadId": peer.thread_id, "targetId": targets[0]["id"]})
    peer.stop()
    _to_end(peer)


@scenario
def modules(peer: Peer) -> None:
    _run(peer, "hello", at=("hello",))
    peer.stop()
    body = peer.ask("modules", {})
    names = [(one["name"], Path(one["path"]).name) for one in body["modules"]]
    peer.note("modules", [name for name in names if name[0] != "runpy"])  # debugpy's launcher runs the program by it
    _to_end(peer)


@scenario
def a_thread(peer: Peer) -> None:
    _run(peer, "threads", at=("thread",))
    peer.stop()
    names = [one["name"] for one in peer.ask("threads")["threads"]]
    peer.note("threads", sorted(names))
    _to_end(peer)


@scenario
def stepping_over_the_end_of_a_thread(peer: Peer) -> None:
    with peer.launching(args=["threads"]):
        peer.breakpoints("joined")
    peer.stop()
    peer.step("next")
    _to_end(peer)


@scenario
def coroutines(peer: Peer) -> None:
    _run(peer, "gather", at=("coroutine", "gathered"))
    for _ in range(3):
        peer.stop()
        peer.resume()
    peer.finish()


def _look_at_child(peer: Peer) -> None:
    with peer.child() as child:
        child.breakpoints("child", "child_return")
        child.client.configuration_done()
        child.stop()
        child.evaluate("n * 2")
        child.step("next")
        child.resume()
        child.timeline.expect_event("terminated", unless=("stopped",))


@scenario
def a_forked_process(peer: Peer) -> None:
    _run(peer, "in_forked_process", at=("forked_process",))
    _look_at_child(peer)
    peer.stop()
    _to_end(peer)


@scenario
def a_command_of_python(peer: Peer) -> None:
    _run(peer, "in_command", at=("command",))
    _look_at_child(peer)
    peer.stop()
    _to_end(peer)


@scenario
def a_data_loader_worker(peer: Peer) -> None:
    _run(peer, "data_loader_with_worker", at=("worked",))
    _look_at_child(peer)
    peer.stop()
    _to_end(peer)


# Processes that multiprocessing spawns are not compared: debugpy also debugs the resource tracker, and then the program
# does not always end. test_child_processes tests ours.


@scenario
def child_processes_left_alone(peer: Peer) -> None:
    _run(peer, "processes", at=("processes",), subProcess=False)
    peer.stop()
    _to_end(peer)


@scenario
def data_loader_workers_left_alone(peer: Peer) -> None:
    _run(peer, "data_loader", at=("loaded",), subProcess=False)
    peer.stop()
    _to_end(peer)


@scenario
def a_breakpoint_in_a_template_of_jinja(peer: Peer) -> None:
    _stop_in_template(peer, "render", jinja=True)


@scenario
def a_breakpoint_in_a_template_of_django(peer: Peer) -> None:
    _stop_in_template(peer, "render_with_django", django=True)


def _stop_in_template(peer: Peer, function: str, **options: bool) -> None:
    template = FIXTURES / "eager" / "template.html"
    with peer.launching(args=[function], **options):
        body = peer.ask("setBreakpoints", {"source": {"path": str(template)}, "breakpoints": [{"line": 3}]})
        peer.note("verified", [one["verified"] for one in body["breakpoints"]])
    for _ in range(2):
        peer.stop()
        peer.evaluate("item")
        peer.resume()
    peer.finish()


@scenario
def code_without_a_file(peer: Peer) -> None:
    _run(peer, "made", at=("made",), justMyCode=False)
    peer.stop()
    peer.step("stepIn")
    source = peer.frames[0]["source"]
    peer.note("source", source.get("path"))
    body = peer.ask("source", {"source": source, "sourceReference": source.get("sourceReference", 0)})
    peer.note("content", body.get("content") or body.get("refused"))
    _to_end(peer)


@scenario
def pause(peer: Peer) -> None:
    _run(peer, "until_signal", at=("begins_waiting",))
    peer.stop()
    peer.step("next")
    peer.resume()
    peer.ask("pause", {"threadId": peer.thread_id})
    body = peer.timeline.expect_event("stopped")
    frames = peer.ask("stackTrace", {"threadId": peer.thread_id})["stackFrames"]
    peer.frames = [frame for frame in frames if frame["name"] == "until_signal"]
    peer.note("paused", (body["reason"], len(peer.frames)))
    peer.evaluate("signalled.append(True)", "repl")
    _to_end(peer)


@scenario
def disconnect(peer: Peer) -> None:
    _run(peer, "twice", "4", at=("add",))
    peer.stop()
    peer.note("disconnected", peer.ask("disconnect", {"terminateDebuggee": True}) or {})
    peer.note("stdout", peer.output("stdout"))


@scenario
def deep_stack(peer: Peer) -> None:
    _run(peer, "recursion", "30", at=("bottom",))
    peer.stop()
    page = peer.ask("stackTrace", {"threadId": peer.thread_id, "startFrame": 5, "levels": 3})
    peer.note("page", [(frame["name"], frame["line"]) for frame in page["stackFrames"]])
    peer.note("total", page.get("totalFrames"))
    _to_end(peer)


@scenario
def library_code_when_asked_for(peer: Peer) -> None:
    _run(peer, "threads", at=("thread",), justMyCode=False)
    peer.stop()
    peer.step("stepIn")
    _to_end(peer)


@scenario
def returned_values(peer: Peer) -> None:
    _run(peer, "twice", "4", at=("twice",), showReturnValue=True)
    peer.stop()
    peer.step("next")
    _to_end(peer)


@scenario
def a_breakpoint_where_no_code_is(peer: Peer) -> None:
    with peer.launching(args=["hello"]):
        body = peer.ask("setBreakpoints", {"source": {"path": str(peer.fixture.path)}, "breakpoints": [{"line": 2}]})
        peer.note("verified", [one["verified"] for one in body["breakpoints"]])
    peer.client.request("threads", {})


_MAIN = {
    a_forked_process,
    breakpoint_in_a_function,
    disconnect,
    evaluate_in_every_context,
    log_point,
    set_variable,
    step_over,
    uncaught_exception,
}
"""The scenarios that ``make test`` runs; the others take another minute."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if SCENARIOS[name] in _MAIN else pytest.mark.long) for name in sorted(SCENARIOS)],
)
def test_both_adapters_say_the_same(name: str) -> None:
    def transcript_of(adapter: str) -> list[Any]:
        peer = Peer(adapter, PROGRAM)
        try:
            SCENARIOS[name](peer)
        except BaseException:
            sys.stderr.write(f"with the adapter of {adapter}\n")
            raise
        finally:
            peer.close()
        return peer.transcript

    # Run both at once, because both mostly wait for their processes.
    with ThreadPoolExecutor() as threads:
        transcripts = dict(zip(ADAPTERS, threads.map(transcript_of, ADAPTERS), strict=True))
    assert len(transcripts["debugpy"]) > 0
    assert transcripts["dynamo"] == transcripts["debugpy"]
