"""Values in debugpy's frames look as in a trace and in generated code, and showing them reads and runs no more."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.protocol.wire.types import Variable
from tests.client import Fixture, Session
from tests.client.session import Stop, Tree

SAME = Fixture("eager/same_values")
DEFAULT = {"eager": True, "mode": "both"}
"""The defaults of ``launch``; the client of the tests has other options."""

METADATA = ("shape", "stride", "dtype", "device", "layout", "requires_grad")


def shown(tree: Tree) -> dict[str, Any]:
    """The text, type and children of a value, without facts that only a trace knows, or that a trace lacks."""
    return {
        "text": tree.text.partition(" = ")[0],
        "type": tree.variable.type,
        "rows": None if tree.text.startswith("Tensor") else tree.variable.indexed_variables,
    }


def test_a_value_looks_the_same_in_ordinary_code_in_a_trace_and_in_generated_code(session: Session) -> None:
    # With the option a step into the second call is one into generated code.
    session.launch(SAME, "call", "traced", **DEFAULT, cachedCalls="generated")
    eager = session.wait_for_stop("breakpoint", at="call").frame["Locals"]
    names = ("x", "weight", "layer", "xs", "table", "batch", "outputs", "long", "half")
    in_eager = {name: shown(eager[name]) for name in names}
    below_eager = {name: [*eager[name].children] for name in ("layer", "xs", "table", "batch", "outputs")}
    metadata = {name: {fact: eager[name][fact].text for fact in METADATA} for name in ("x", "weight", "half")}
    assert in_eager["x"] == {"text": "Tensor f32[3, 4] cpu 0…11", "type": "Tensor", "rows": None}
    assert in_eager["weight"]["text"].startswith("Parameter f32[5, 2] cpu ")
    assert in_eager["weight"]["text"].endswith(", requires_grad"), "a narrow pane cuts the end off"
    assert in_eager["batch"]["text"] == "Batch(inputs=Tensor f32[3, 4] cpu, labels=[1, 2])"
    assert metadata["x"]["shape"] == "[3, 4]"
    assert eager["half"].text == "Tensor bf16[2, 3] cpu = [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]"

    stop = session.continue_to_stop(at="traced")
    traced = stop.frame["Locals"]
    assert {name: shown(traced[name])["text"] for name in names} == {name: in_eager[name]["text"] for name in names}
    assert {name: shown(traced[name])["type"] for name in names} == {name: in_eager[name]["type"] for name in names}
    for name, facts in metadata.items():
        assert {fact: traced[name][fact].text for fact in METADATA} == facts, name
    for name, children in below_eager.items():
        assert [child for child in traced[name].children if child in children] == children, name

    session.continue_to_stop(at="call")
    session.resume("stepIn")
    generated = session.wait_for_stop("step")
    assert "generated" in generated.frame.name
    values = generated.frame["Locals"]
    assert {name: shown(values[name]) for name in names} == in_eager
    for name, facts in metadata.items():
        assert {fact: values[name][fact].text for fact in METADATA} == facts, name
        assert [*values[name].children] == [*eager_children(generated, name)], name
    for name, children in below_eager.items():
        assert [*values[name].children] == children, name
    session.set_breakpoints(SAME)
    assert session.run_to_end() == 0
    assert "was slow" not in session.output()


def eager_children(stop: Stop, name: str) -> dict[str, Tree]:
    """The children of a local of the eager caller of generated code."""
    return stop.frame_called("main")["Locals"][name].children


def test_what_is_asked_of_an_ordinary_frame_is_shown_alike(session: Session) -> None:
    session.launch(SAME, "call", **DEFAULT)
    frame = session.wait_for_stop("breakpoint", at="call").frame
    for expression, text in {
        "x": "Tensor f32[3, 4] cpu 0…11",
        "x * 2": "Tensor f32[3, 4] cpu 0…22",
        "[x, 1]": "[Tensor f32[3, 4] cpu, 1]",
        "layer": "<Linear module>",
        "lazy.weight": "UninitializedParameter f32[0] cpu requires_grad",
        "main": "function main()",
        "holder": "<Holder object>",
        "call": "0",
        "xs[2]": "'two'",
    }.items():
        for context in ("watch", "hover", "repl", "variables"):
            assert frame.evaluate(expression, context).text == text, (expression, context)
    # An object describes itself. This reads its tensors only if the value is copied.
    assert frame.evaluate("described").text == "Described(Tensor f32[3, 4] cpu, Tensor f32[3, 4] cpu)"
    assert frame.evaluate("x", "clipboard").text.startswith("tensor([[")
    # Children have expressions, statistics on request, and pages of rows.
    x = frame["Locals"]["x"]
    assert x["shape"].variable.evaluate_name == "x.shape"
    assert x["2"].variable.evaluate_name == "x[2]"
    assert x["max"].text == "…"
    assert x["max"].variable.presentation_hint.lazy is True
    assert x["max"]["max"].text == "11.0"
    assert x["1"]["3"].text == "7.0"
    assert "_private" in frame["Locals"]["holder"].children
    assert not frame["Locals"]["call"].children
    many = frame["Locals"]["many"].variable
    assert many.indexed_variables == 250
    asked = {"variablesReference": many.variables_reference, "filter": "indexed", "start": 240, "count": 100}
    page = session.request("variables", asked)["variables"]
    assert [one["name"] for one in page] == [str(number) for number in range(240, 250)]
    session.request("setVariable", {"variablesReference": many.variables_reference, "name": "249", "value": "-1"})
    assert frame.evaluate("many[249]").text == "-1"
    session.set_breakpoints(SAME)
    assert session.run_to_end() == 0


TEXT_OF_DATA = """
import torch

class Watched(torch.Tensor):
    '''A tensor that must not be read or printed by anybody.'''

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        raise RuntimeError(f"{function} was called")

class Strange(torch.Tensor):
    '''A tensor whose class knows no attributes.'''

    def __getattribute__(self, name):
        raise RuntimeError(f"{name} was read")

def run():
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.ones(2, 3))
        inside = len([fake])
    meta = torch.ones(4, device="meta")
    watched = torch.ones(2).as_subclass(Watched)
    strange = torch.ones(2).as_subclass(Strange)
    sparse = torch.eye(3).to_sparse()
    storage = torch.ones(3).untyped_storage()
    number = torch.tensor(2.5)
    print("shown")  #@look

run()
"""


def test_subclasses_and_tensors_without_data(session: Session, tmp_path: Path) -> None:
    """The program imports torch long after the session has begun."""
    path = tmp_path / "subclasses.py"
    path.write_text(TEXT_OF_DATA, encoding="utf-8")
    session.launch(path, "look", **DEFAULT)
    frame = session.wait_for_stop("breakpoint", at="look").frame
    values = frame["Locals"]
    assert values["fake"].text == "Tensor f32[2, 3] cpu"
    assert values["meta"].text == "Tensor f32[4] meta"
    assert values["watched"].text == "Watched f32[2] cpu"
    assert values["watched"]["shape"].text == "[2]"
    assert values["strange"].text.startswith("Strange ") or "cannot be shown" in values["strange"].text
    assert values["sparse"].text == "Tensor f32[3, 3] cpu sparse_coo"
    assert values["storage"].text == "<UntypedStorage object>"
    assert values["number"].text == "Tensor f32[] cpu = 2.5"
    assert values["number"]["value"].text == "…"
    assert values["number"]["value"]["value"].text == "2.5"
    assert session.run_to_end() == 0
    assert session.output("stdout") == "shown\n"


def test_a_program_does_not_import_torch_or_forms_of_django(session: Session, tmp_path: Path) -> None:
    """When debugpy first shows a value, it imports Django's types, and Django is installed for these tests."""
    assert importlib.util.find_spec("django") is not None
    path = tmp_path / "plain.py"
    path.write_text(
        "import sys\nvalues = {'a': [1, (2,)]}\nprint({'torch', 'django.forms'} & {*sys.modules})  # @end\n",
        encoding="utf-8",
    )
    session.launch(path, "end", **DEFAULT)
    frame = session.wait_for_stop("breakpoint", at="end").frame
    assert frame["Locals"]["values"].text == "{'a': [1, (2,)]}"
    assert frame["Locals"]["values"]["['a']"]["1"]["0"].text == "2"
    assert frame.evaluate("object()").text == "<object object>"
    assert frame.evaluate("{1, 2}").text == "{1, 2}"
    assert session.run_to_end() == 0
    assert session.output("stdout") == "set()\n"


@pytest.mark.parametrize("mode", ["both", "compile-time", "run-time"])
def test_without_a_frame_the_programs_globals_are_meant(session: Session, mode: str) -> None:
    # With the option a step into the second call is one into generated code.
    session.launch(SAME, "call", "traced", eager=True, mode=mode, cachedCalls="generated")
    session.wait_for_stop("breakpoint", at="call")
    check_globals(session, "ordinary code")
    if mode != "run-time":
        session.continue_to_stop(at="traced")
        check_globals(session, "trace")
    session.continue_to_stop(at="call")
    if mode != "compile-time":
        session.resume("stepIn")
        assert "generated" in session.wait_for_stop("step").frame.name
        check_globals(session, "generated code")
    session.set_breakpoints(SAME)
    session.resume()
    assert session.wait_for_exit() == 0


def check_globals(session: Session, place: str) -> None:
    def evaluate(expression: str, context: str) -> str:
        return session.client.evaluate(expression, None, context).result

    assert evaluate("Outputs._fields", "watch") == "('logits', 'state')"
    assert evaluate("__name__", "hover") == "'__main__'"
    assert evaluate(f"written_at = {place!r}", "repl") == ""
    assert evaluate("written_at", "watch") == repr(place)
    session.request("setExpression", {"expression": "written_at", "value": "'again'"})
    assert evaluate("written_at", "watch") == "'again'"
    opened = session.client.evaluate("[torch.ones(2), 7]", None, "watch")
    assert opened.result == "[Tensor f32[2] cpu = [1.0, 1.0], 7]"
    assert [one.value for one in session.client.variables(opened.variables_reference)] == [
        "Tensor f32[2] cpu = [1.0, 1.0]",
        "7",
    ]
    labels = [item.label for item in session.client.completions("Outpu", 6, None)]
    assert "Outputs" in labels
    with pytest.raises(Exception, match=re.escape("'layer' is not defined")):
        evaluate("layer", "watch")


def test_a_page_of_a_scope_is_all_that_is_shown(session: Session, tmp_path: Path) -> None:
    """Values beyond the page are not even converted to text."""
    path = tmp_path / "many.py"
    path.write_text(
        "shown = []\n"
        "class Name:\n"
        "    def __init__(self, number):\n"
        "        self.number = number\n"
        "    def __repr__(self):\n"
        "        shown.append(self.number)\n"
        "        return f'name {self.number}'\n"
        "globals().update({f'name{number:05}': Name(number) for number in range(10_000)})\n"
        "print(len(shown))  #@here\n",
        encoding="utf-8",
    )
    session.launch(path, "here", **DEFAULT)
    stop = session.wait_for_stop("breakpoint", at="here")
    reference = stop.frame.scopes["Globals"].variable.variables_reference
    page = session.client.variables(reference, start=9_000, count=100)
    assert [one.name for one in page] == [
        f"name{number:05}" for number in range(page_begin(page), page_begin(page) + 100)
    ]
    assert session.client.variables(reference, only="indexed") == []
    assert [one.name for one in session.client.variables(reference, only="named", start=9_000, count=1)] == [
        page[0].name
    ]
    assert len(session.client.variables(reference, start=10_000)) < 20
    assert session.run_to_end() == 0
    assert int(session.output("stdout")) < 200


def page_begin(page: list[Variable]) -> int:
    """The number in the first name."""
    return int(page[0].name.removeprefix("name"))
