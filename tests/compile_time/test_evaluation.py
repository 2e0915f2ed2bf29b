"""Expressions in a paused trace: their results, their errors, and that they change nothing."""

from __future__ import annotations

import copy
import itertools
import random
import threading
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from dynamo_dap.debuggee.torch_api.graphs.graph_runs import Limits
from dynamo_dap.debuggee.torch_api.graphs.real_values import limit_real_values
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import unwrapped
from dynamo_dap.debuggee.trace.evaluation import evaluate, evaluate_to_python
from dynamo_dap.debuggee.trace.paths import completions
from dynamo_dap.debuggee.values.model import EvaluationError, Value
from dynamo_dap.debuggee.values.python_values import present
from tests.compile_time.observation import observe
from tests.compile_time.programs import PROGRAMS
from tests.compile_time.stopping import at, below

Compiled = Callable[[Any], Any]
CONFIGURATION = {"scale": 2, "names": ["a", "b"]}


def helper(n: Any) -> Any:
    """A user function that expressions call."""
    return n * 10


@torch.compile(backend="eager")
def compiled_helper(x: torch.Tensor) -> torch.Tensor:
    """Must not be compiled when an expression calls it."""
    return x + 1


class Settings:
    """An object that the traced code changes."""

    def __init__(self) -> None:
        self.values = [1, 2]
        self.bonus = 0

    @property
    def total(self) -> int:
        return sum(self.values) + self.bonus

    def times(self, n: int) -> int:
        return self.total * n


class Model(nn.Module):
    """The module in whose frame expressions are evaluated."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.settings = Settings()
        self.calls = 0

    def describe(self) -> str:
        return f"called {self.calls} times"

    def forward(self, x: torch.Tensor, mode: str, d: dict[str, Any], untouched: Any) -> torch.Tensor:
        self.calls += 1
        self.settings.values.append(3)
        self.settings.bonus = 100
        z = self.fc(x)
        xs = [z, 1, (2, None)]
        d["z"] = z
        made = Settings()
        made.bonus = 7
        n = x.shape[0]
        k = 2

        def inner(v: torch.Tensor) -> torch.Tensor:
            return v * k

        if mode == "add":
            z = z + CONFIGURATION["scale"]
        late = inner(z)  # @stop
        return late + n + made.total + len(xs) + len(untouched)


def program(compiled: Compiled) -> list[Any]:
    model = Model()
    return [compiled(model)(torch.ones(5, 4), "add", {"k": 1}, [torch.ones(2), 5])]


program.__wrapped__ = Model  # type: ignore[attr-defined]  # markers are looked up in the class

Evaluate = Callable[..., Any]


def stopped(look: Callable[[Any], Any]) -> Any:
    """Inspect the paused frame, and check that the trace is unchanged."""

    def checked(frame: Any) -> Any:
        before = frame.state()
        result = look(frame)
        assert before.changes() == []
        return result

    return at("stop", program, checked, dynamic=True)


def values_of(*expressions: str, context: str = "watch") -> list[str]:
    """Return the texts of expressions, errors as ``Type: text``."""

    def look(frame: Any) -> list[str]:
        return [text_of(frame, expression, context) for expression in expressions]

    return list(stopped(look))


def text_of(frame: Any, expression: str, context: str = "watch") -> str:
    """Return the text of one expression, or of its error."""
    try:
        return evaluate(frame, expression, context, console=lambda text: None).text
    except (Exception, SystemExit) as problem:  # noqa: BLE001  (what an expression raises is its result)
        return f"{type(problem).__name__}: {problem}"


@pytest.mark.parametrize(
    "expected",
    [
        {
            "x": "Tensor f32[s77, 4] cpu",
            "x.shape": "torch.Size([s77, 4])",
            "x.shape[0]": "s77 (5 in this call)",
            "z.shape[1]": "3",
            "x.dtype": "torch.float32",
            "xs[2][0]": "2",
            "xs[-1]": "(2, None)",
            "d['k']": "1",
            "d['z']": "Tensor f32[s77, 3] cpu requires_grad",
            "self.fc.weight": "Parameter f32[3, 4] cpu requires_grad",
            "self.fc.weight.shape": "torch.Size([3, 4])",
            "self.calls": "1",
            "self.settings.values": "[1, 2, 3]",
            "untouched[1]": "5",
            "CONFIGURATION['names']": "['a', 'b']",
            "mode": "'add'",
        },
        {
            "len(xs)": "3",
            "mode == 'add'": "True",
            "n * 2 + 1": "2*s77 + 1 (11 in this call)",
            "n > 3": "s77 > 3 (True in this call)",
            "n == 5 and mode": "'add'",
            "[t.shape for t in xs if hasattr(t, 'shape')]": "[torch.Size([s77, 3])]",
            "f'{mode}-{k}'": "'add-2'",
            "sorted(d)": "['k', 'z']",
            "max(xs[2][0], 7)": "7",
            "(lambda q: q + k)(1)": "3",
            "{name: len(name) for name in CONFIGURATION}": "{'scale': 5, 'names': 5}",
            "helper(3)": "30",
            "helper(n)": "10*s77 (50 in this call)",
            "isinstance(x, torch.Tensor)": "True",
        },
        {
            "inner(z).shape": "torch.Size([s77, 3])",
            "self.fc(x)": "Tensor f32[s77, 3] cpu requires_grad",
            "(z + 1).sum(0)": "Tensor f32[3] cpu requires_grad",
            "torch.zeros(n, 2)": "Tensor f32[s77, 2] cpu",
            "compiled_helper(x).shape": "torch.Size([s77, 4])",
            "x.add(1).add_(2).shape": "torch.Size([s77, 4])",
        },
        {
            "self.describe()": "'called 1 times'",
            "self.settings.total": "106",
            "self.settings.times(2)": "212",
            "made.total": "10",
            "made.times(3)": "30",
            "made.bonus": "7",
        },
    ],
    ids=["paths", "constants", "tensors", "pending changes"],
)
def test_value(expected: dict[str, str]) -> None:
    assert dict(zip(expected, values_of(*expected), strict=True)) == expected


def test_a_path_opens_as_the_tracker() -> None:
    def look(frame: Any) -> Value:
        return evaluate(frame, "d['z']", "hover", console=lambda text: None)

    shown = stopped(lambda frame: {name: each.value.text for name, each in below(look(frame)).items()})
    assert shown["tracker"] == "TensorVariable"
    assert "linear" in shown["FX node"]


def test_a_computed_value_that_is_a_trackers_own_opens_as_the_tracker() -> None:
    def look(frame: Any) -> Value:
        return evaluate(frame, "[z][0]", "watch", console=lambda text: None)

    assert stopped(lambda frame: below(look(frame))["tracker"].value.text) == "TensorVariable"


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("1 +", "not a Python expression"),
        ("", "nothing to evaluate"),
        ("y = 1", "not a Python expression"),
        ("late", "'late' has no value here"),
        ("z.add_(1)", "would change its argument"),
        ("z.view(-1).add_(1)", "would change its argument"),
        ("xs.append(1)", "changed a copy"),
        ("ctx.graph_break()", "would end or restart the trace"),
    ],
)
def test_refusal(expression: str, error: str) -> None:
    (text,) = values_of(expression)
    assert text.startswith("EvaluationError: ")
    assert error in text


def iterating(x: torch.Tensor) -> torch.Tensor:
    """Holds objects that exist in a trace only as Dynamo's models."""
    generator = (v for v in [1, 2, 3])
    next(generator)
    pairs, numbered, counted = zip([1], [2], strict=False), enumerate([5]), itertools.count(2)
    items, values = iter({"a": 1}.items()), {"a": 1}.values()
    listed = iter([1, 2])
    storage = x.untyped_storage()
    held = [generator, 1]
    grad = torch.no_grad()
    with grad:
        y = x + 1  # @iterating
    kept = (pairs, numbered, counted, items, values, storage)
    return y + next(generator) + len(list(listed)) + len(held) + len(kept)


def iterating_program(compiled: Compiled) -> list[Any]:
    return [compiled(iterating)(torch.ones(3))]


iterating_program.__wrapped__ = iterating  # type: ignore[attr-defined]

MODELLED = {
    "generator": types.GeneratorType,
    "pairs": zip,
    "numbered": enumerate,
    "counted": itertools.count,
    "items": type(iter({}.items())),
    "values": type({}.values()),
    "listed": type(iter([])),
    "storage": torch.UntypedStorage,
    "grad": torch.autograd.grad_mode.set_grad_enabled,
}
"""Variables of ``iterating``, and their classes as traced code sees them."""


def while_iterating(look: Callable[[Any], Any]) -> Any:
    def checked(frame: Any) -> Any:
        before = frame.state()
        result = look(frame)
        assert before.changes() == []
        return result

    return at("iterating", iterating_program, checked)


def test_what_cannot_be_used_up_is_computed_with_iterators_storages_and_context_managers() -> None:
    def look(frame: Any) -> None:
        for name, cls in MODELLED.items():
            shown = text_of(frame, name)
            for expression, expected in {
                f"{name} is None": "False",
                f"type({name})": present(cls).text,
                f"{name}.__class__": present(cls).text,
                f"isinstance({name}, type(None))": "False",
                f"isinstance({name}, (int, type({name})))": "True",
                f"hasattr({name}, '__next__')": str(hasattr(cls, "__next__")),
                f"len([{name}])": "1",
                f"helper.__name__ if {name} is not x else 0": "'helper'",
                f"(lambda v: v is {name})({name})": "True",
                f"{name} in [{name}]": "True",
                f"[v for v in ({name},) if v is not None] == [{name}]": "True",
            }.items():
                assert text_of(frame, expression) == expected, expression
                assert evaluate_to_python(frame, f"({expression}) == 3") is False
            if name != "listed":  # a copy of the remaining items, which can be used up
                assert text_of(frame, f"({name}, 1)") == f"({shown}, 1)"
            if name not in ("listed", "values"):
                assert text_of(frame, f"f'<{{{name}}}>'") == repr(f"<{shown}>")
        assert text_of(frame, "len(held)") == "2"
        assert text_of(frame, "held[1] + len(values)") == "2"
        assert text_of(frame, "list(listed)") == "[1, 2]"
        below_pair = evaluate(frame, "(generator, 1)", "watch", console=lambda text: None).children
        assert below_pair is not None
        assert "yielded so far" in below(below_pair.indexed(0, 1)[0].value)

    while_iterating(look)


@pytest.mark.parametrize(
    "expression",
    [
        "next(generator)",
        "list(generator)",
        "sum(pairs)",
        "next(items)",
        "[v for v in numbered]",
        "generator.send(1)",
        "generator.close()",
        "storage.resize_(0)",
        "storage[0]",
        "grad.__enter__()",
        "setattr(grad, 'prev', 1)",
        "copy.copy(generator)",
    ],
)
def test_what_would_advance_or_change_them_is_refused(expression: str) -> None:
    def look(frame: Any) -> None:
        with pytest.raises(EvaluationError, match="while tracing"):
            evaluate(frame, expression, "watch", lambda text: None, {"copy": copy})

    while_iterating(look)


def test_every_local_of_every_program_can_be_asked_what_it_is() -> None:
    """Check each local variable of each line, but each name with the same kind of tracker only once."""
    seen: set[tuple[types.CodeType, str, str]] = set()
    refused: list[str] = []

    def look(frame: Any) -> None:
        for name, tracker in list(frame.translator.symbolic_locals.items()):
            kind = type(unwrapped(tracker)).__name__
            # The names of an inlined comprehension (PEP 709) have no value afterwards.
            if not name.isidentifier() or kind == "NullVariable" or (frame.code, name, kind) in seen:
                continue
            seen.add((frame.code, name, kind))
            before = frame.state()
            for expression in (f"{name} is None", f"({name}, 1)", f"len([{name}])", f"(lambda v: v is {name})({name})"):
                text = text_of(frame, expression)
                if (
                    text.partition(":")[0] in ("EvaluationError", "TypeError")
                    and "len" not in frame.translator.f_locals
                ):
                    refused.append(f"{expression} of a {kind}: {text}")
            assert before.changes() == []

    for each in PROGRAMS:
        observe(each, watch=look)
    assert len(seen) > 500
    assert not refused, "\n".join(refused)


def test_errors_of_the_expression_are_its_own() -> None:
    assert values_of("no_such_name", "1 / 0", "xs[10]", "self.no_such_attribute", "exit()") == [
        "NameError: name 'no_such_name' is not defined",
        "ZeroDivisionError: division by zero",
        "IndexError: list index out of range",
        "AttributeError: 'Model' object has no attribute 'no_such_attribute'",
        "SystemExit: None",
    ]


def test_conditions_have_a_truth() -> None:
    def look(frame: Any) -> list[object]:
        return [
            evaluate_to_python(frame, each) for each in ("n > 4", "n < 4", "mode == 'add'", "len(xs)", "xs", "[]", "k")
        ]

    assert stopped(look) == [True, False, True, 3, True, False, 2]


def test_what_asks_for_data_is_computed_on_the_real_values() -> None:
    torch.manual_seed(0)  # as ``observe`` does
    z = nn.Linear(4, 3)(torch.ones(5, 4)).detach() + CONFIGURATION["scale"]
    (total, rounded, kept, symbolic) = values_of(
        "z.sum().item()", "[round(float(v), 4) for v in z[0]]", "z[z > z.mean()]", "z.sum()"
    )
    assert float(total) == pytest.approx(z.sum().item(), rel=1e-6)
    assert rounded == str([round(float(v), 4) for v in z[0]])
    assert kept == f"Tensor f32[{len(z[z > z.mean()])}] cpu"
    assert symbolic.startswith("Tensor f32[] cpu")
    assert stopped(lambda frame: evaluate_to_python(frame, "z.sum() > 0")) is True
    assert stopped(lambda frame: evaluate_to_python(frame, "z.isnan().any()")) is False


def test_real_values_can_be_turned_off() -> None:
    limit_real_values(None)
    try:
        (text,) = values_of("z.sum().item()")
    finally:
        limit_real_values(Limits())
    assert text == 'EvaluationError: real values are turned off ("realValues": "off")'


def test_real_values_cannot_be_written_to() -> None:
    (text,) = values_of("z.add_(z.sum().item())")
    assert "would change its argument" in text


def test_statements_keep_names_of_the_debugger() -> None:
    def look(frame: Any) -> list[str]:
        scratch: dict[str, object] = {}

        def run(text: str) -> str:
            return evaluate(frame, text, "repl", console=lambda each: None, scratch=scratch).text

        first = run("import math\nsquares = [i * k for i in range(3)]\ndef twice(v):\n    return v * 2")
        shown = [run("squares"), run("twice(n)"), run("math.floor(2.5)"), run("squares[0] = 9\nsquares")]
        return [first, *shown, *sorted(scratch)]

    assert stopped(look) == [
        "",
        "[0, 2, 4]",
        "2*s77 (10 in this call)",
        "2",
        "[9, 2, 4]",
        "math",
        "squares",
        "twice",
    ]


def test_statements_that_assign_to_the_frame_ask_for_a_trace_of_their_own() -> None:
    for statement in ("z = 1", "z += 1", "d['k'] = 2", "self.calls = 3", "del xs", "CONFIGURATION = {}"):
        (text,) = values_of(statement, context="repl")
        assert text.startswith("ChangesTrace")


def test_what_is_printed_goes_to_the_console(capsys: pytest.CaptureFixture[str]) -> None:
    printed: list[str] = []
    stopped(lambda frame: evaluate(frame, "print('hello', k)", "repl", console=printed.append))
    stopped(lambda frame: evaluate(frame, "ctx.print_graph()", "repl", console=printed.append))
    text = "".join(printed)
    assert text.startswith("hello 2\n")
    assert "def forward(self" in text
    assert "hello" not in capsys.readouterr().out


def test_other_threads_print_where_they_did(capsys: pytest.CaptureFixture[str]) -> None:
    def look(frame: Any) -> None:
        thread = threading.Thread(target=lambda: print("from another thread"))  # noqa: T201
        scratch: dict[str, object] = {"thread": thread}
        evaluate(frame, "thread.start()\nthread.join()", "repl", console=lambda text: None, scratch=scratch)

    at("stop", program, look, dynamic=True)
    assert "from another thread" in capsys.readouterr().out


def test_what_the_interpreter_is_asked_is_reverted_and_reported() -> None:
    reported: list[str] = []

    def look(frame: Any) -> tuple[str, str]:
        shown = evaluate(frame, "ctx.get_local('untouched').python_type()", "repl", console=reported.append)
        return shown.text, text_of(frame, "ctx.get_local('untouched').python_type()", "watch")

    shown, watched = stopped(look)
    assert shown == "<class 'list'>"
    assert "would have changed the trace" in "".join(reported)
    assert "reverted" in watched


def test_random_states_and_switches_are_put_back() -> None:
    def look(frame: Any) -> list[bool]:
        states = torch.get_rng_state(), random.getstate()
        for expression in (
            "random.random()",
            "torch.manual_seed(3)",
            "torch.rand(3)",
            "torch.set_grad_enabled(False)",
            "torch.set_default_dtype(torch.float64)",
            "torch.use_deterministic_algorithms(True)",
        ):
            scratch: dict[str, object] = {"random": random, "torch": torch}
            evaluate(frame, expression, "repl", console=lambda text: None, scratch=scratch)
        return [
            torch.equal(states[0], torch.get_rng_state()),
            states[1] == random.getstate(),
            torch.is_grad_enabled(),
            torch.get_default_dtype() is torch.float32,
            not torch.are_deterministic_algorithms_enabled(),
        ]

    assert stopped(look) == [True] * 5


def test_an_interrupted_evaluation_puts_everything_back() -> None:
    class Interrupt(BaseException):
        pass

    def look(frame: Any) -> bool:
        scratch: dict[str, object] = {"Interrupt": Interrupt}
        with pytest.raises(Interrupt):
            evaluate(frame, "torch.zeros(2)\nraise Interrupt", "repl", console=lambda text: None, scratch=scratch)
        return type(torch.zeros(2)) is torch.Tensor

    assert stopped(look) is True


def test_the_clipboard_gets_the_whole_value() -> None:
    def look(frame: Any) -> tuple[str, str]:
        expression = "list(range(500))"
        pane = evaluate(frame, expression, "watch", console=lambda text: None).text
        return pane, evaluate(frame, expression, "clipboard", console=lambda text: None).text

    pane, clipboard = stopped(look)
    assert pane.endswith("(500 items)")
    assert clipboard == str(list(range(500)))


def labels(frame: Any, text: str, column: int | None = None) -> list[str]:
    """Return the labels completed at the end of ``text``."""
    return [item.label for item in completions(frame, text, column or len(text) + 1)]


def test_completions() -> None:
    def look(frame: Any) -> dict[str, list[str]]:
        return {
            text: labels(frame, text)
            for text in (
                "self.c",
                "xs[0].resh",
                "d['z'].sha",
                "1 + mo",
                "made.b",
                "self.settings.",
                "ctx.print_g",
                "CONF",
            )
        }

    found = stopped(look)
    assert found["self.c"][0] == "calls"
    assert found["xs[0].resh"] == ["reshape", "reshape_as"]
    assert found["d['z'].sha"][0] == "shape"
    assert found["1 + mo"][0] == "mode"
    assert found["made.b"] == ["bonus"]
    assert found["self.settings."] == ["values", "bonus", "times", "total"]
    assert found["ctx.print_g"] == ["print_graph", "print_guards"]
    assert found["CONF"][0] == "CONFIGURATION"


def test_completion_replaces_what_was_typed() -> None:
    item, *_ = stopped(lambda frame: completions(frame, "1 + mode + 2", 7))
    assert (item.label, item.start, item.length) == ("mode", 4, 2)
