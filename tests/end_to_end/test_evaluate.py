"""Watches, hovers and the debug console over a paused trace."""

from __future__ import annotations

from pathlib import Path

from tests.client import Fixture, Session


def test_expressions_over_symbolic_values(session: Session) -> None:
    session.launch("containers", "total")
    stop = session.wait_for_stop("breakpoint", at="total")
    frame = stop.frame
    for expression, text in {
        "x.shape[0]": "4",
        "len(items)": "4",
        "items[3]": "'four'",
        "text == 'a' * 1000": "True",
        "local.rate * 4": "2.0",
        "account.balance > 1": "True",
        "table['nested']['deep'][1]": "2.5",
        "color is Color.RED": "True",
        "x.dtype": "torch.float32",
        "pair.right + 1": "8",
        "counts['seen']": "1",
        "[n for n in span if n > 3]": None,
    }.items():
        value = frame.evaluate(expression)
        if text is not None:
            assert value.text == text, expression
    table = frame.evaluate("table")
    assert table.children, "the answer's tree opens"
    assert frame.evaluate("items[0]").text == f"Tensor f32[4, 2] cpu = {[[1.0, 1.0]] * 4}"
    assert frame.evaluate("items[0]", context="hover").text == f"Tensor f32[4, 2] cpu = {[[1.0, 1.0]] * 4}"
    assert "no_such_name" in frame.refusal("no_such_name")
    assert frame.refusal("table['missing']")
    assert frame.refusal("items[")
    # Looking causes no side effects of the traced program.
    assert frame.evaluate("len(items)").text == "4"
    # The frame below is ordinary Python.
    main = stop.frame_called("main")
    assert main.evaluate("config['unused']['never'][1]").text == "'at'"
    assert session.run_to_end() == 0
    assert "total 1366.5 balance 12.0 ['deposit']" in session.output("stdout")


ITERATORS = """
import torch

def consume(x, times):
    left = (x * i for i in range(times))
    grad = torch.no_grad()
    total = next(left)
    with grad:
        total = total + next(left)  # @taken
    return total

compiled = torch.compile(consume, backend="eager")
for times in (3, 4):
    print(compiled(torch.ones(2), times).sum().item())
"""


def test_expressions_and_conditions_over_iterators_and_context_managers(session: Session, tmp_path: Path) -> None:
    """In a trace they are Dynamo's models; only expressions that would use them up are refused."""
    path = tmp_path / "iterators.py"
    path.write_text(ITERATORS, encoding="utf-8")
    program = Fixture(path)
    with session.launching(program, eager=True, mode="both"):
        session.set_breakpoints(
            program, "taken", condition="left is not None and isinstance(grad, torch.no_grad | object) and times == 4"
        )
    frame = session.wait_for_stop("breakpoint", at="taken").frame
    for expression, text in {
        "left is None": "False",
        "type(left)": "<class 'generator'>",
        "hasattr(left, 'send')": "True",
        "len([left, grad])": "2",
        "grad is left": "False",
        "times": "4",
    }.items():
        assert frame.evaluate(expression).text == text, expression
    assert frame.evaluate("(left, 1)").text.startswith("(generator <genexpr> (at line")
    assert "advance it" in frame.refusal("next(left)")
    assert "entering" in frame.refusal("exec('with grad: pass')", context="repl")
    assert session.run_to_end() == 0
    assert session.output("stdout") == "2.0\n2.0\n", "nothing was taken from the generator"


def test_the_debug_console_has_the_comptime_api(session: Session) -> None:
    session.launch("basic", "return")
    stop = session.wait_for_stop("breakpoint", at="return")
    frame = stop.frame
    frame.evaluate("ctx.print_graph()", context="repl")
    session.wait_for_output("def forward")
    assert "InstructionTranslator" in frame.evaluate("type(tx).__name__", context="repl").text
    frame.evaluate("saved = 1 + 1", context="repl")
    assert frame.evaluate("saved", context="repl").text == "2"
    assert frame.evaluate("ctx.graph()", context="repl").text
    assert session.finish() == 0
    assert session.output("stdout") == "result 87.0\nagain 87.0\n", (
        "what the console prints is not the program's output"
    )


def test_completions(session: Session) -> None:
    session.launch("basic", "return")
    stop = session.wait_for_stop("breakpoint", at="return")
    identifier = stop.frame.data.id

    def labels(text: str) -> list[str]:
        return [item.text or item.label for item in session.client.completions(text, len(text) + 1, identifier)]

    assert "shape" in labels("sha")
    assert any(label.endswith("print_graph") for label in labels("ctx.print_g"))
    assert any(label.endswith("requires_grad") for label in labels("z.req"))
    assert labels("no_such_name.") == []

    def kinds(text: str) -> dict[str, str | None]:
        return {item.label: item.type for item in session.client.completions(text, len(text) + 1, identifier)}

    expected = {"total": "variable", "scale": "function", "torch": "module", "len": "function", "list": "class"}
    everything = {name: kinds(name[:3])[name] for name in (*expected, "lambda")}
    assert everything == {**expected, "lambda": "keyword"}
    assert {name: kinds(f"z.{name}")[name] for name in ("reshape", "shape")} == {
        "reshape": "method",
        "shape": "property",
    }
    assert {name: kinds(f"torch.{name}")[name] for name in ("relu", "nn", "Tensor")} == {
        "relu": "function",
        "nn": "module",
        "Tensor": "class",
    }
    assert session.finish() == 0


def test_an_evaluation_that_does_not_end_is_ended(session: Session) -> None:
    session.launch("basic", "return", evaluationTimeout=1.0)
    stop = session.wait_for_stop("breakpoint", at="return")
    assert "1" in stop.frame.refusal("[n for n in iter(int, 1)]", context="repl")
    # Next, an evaluation that the user cancels.
    pending = session.client.send(
        "evaluate",
        {"expression": "[n for n in iter(int, 1)]", "frameId": stop.frame.data.id, "context": "repl"},
    )
    request = [entry for entry in session.timeline.entries if entry.sent][-1].message
    session.request("cancel", {"requestId": request["seq"]})
    session.timeline.wait_until(lambda: pending.has_failed, "answer to the cancelled evaluation")
    assert stop.frame.evaluate("x.shape[1]").text == "4", "the session continues"
    assert session.finish() == 0
