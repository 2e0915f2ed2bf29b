"""A look at a tensor (`dynamoTensor`): pages, statistics and pictures, wherever the program is stopped."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from dynamo_dap.protocol.requests.contract import LOGGED_EVENT, TENSOR, TRACED, TRACED_TENSOR, VARIABLE_MENU
from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.client import Fixture, Session
from tests.client.environments import alone
from tests.client.session import INITIALIZE, Frame, Tree

PROGRAM = """
import torch

@torch.compile(backend="eager")
def attend(x, scale):
    scores = x @ x.transpose(-1, -2) * scale
    weights = scores.softmax(-1)
    return weights.sum() + torch.rand(1)  # @traced

torch.manual_seed(0)
big = torch.zeros(1).expand(10**9)
x = (torch.arange(24.0) / 24).reshape(2, 4, 3).requires_grad_()
attend(x, 2.0)  # @eager
attend(x * 2, 2.0)
total = torch.tensor(0.5)
print(x._version, x.grad_fn, torch.rand(1).item())  # @printed
"""
X = (torch.arange(24.0) / 24).reshape(2, 4, 3)


@pytest.fixture
def program(tmp_path: Path) -> Fixture:
    path = tmp_path / "attention.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return Fixture(path)


def look(session: Session, frame: Frame, name: str, **wanted: Any) -> dict[str, Any]:
    """Look at a local variable as a client does, by the reference of its children."""
    return by_reference(session, frame["Locals"][name], **wanted)


def by_reference(session: Session, tree: Tree, **wanted: Any) -> dict[str, Any]:
    assert tree.variable.variables_reference
    body = session.request(TENSOR, {"variablesReference": tree.variable.variables_reference, **wanted})
    assert isinstance(body, dict)
    return body


def computed(session: Session, frame: Frame, expression: str, **wanted: Any) -> dict[str, Any]:
    body = session.request(TENSOR, {"expression": expression, "frameId": frame.data.id, **wanted})
    assert isinstance(body, dict)
    return body


def numbers(body: dict[str, Any]) -> list[list[float]]:
    return [[float(text) for text in row] for row in body["elements"]]


def expected(x: torch.Tensor, scale: float) -> torch.Tensor:
    return (x @ x.transpose(-1, -2) * scale).softmax(-1)


def assert_is(session: Session, tree: Tree, tensor: torch.Tensor, index: int) -> None:
    """Look at every part of a three-dimensional tensor, and compare it with the expected one."""
    page = by_reference(session, tree, selection=[index, None, None], startRow=1, rowCount=2, columnCount=3)
    assert page["shape"] == [*tensor.shape]
    torch.testing.assert_close(torch.tensor(numbers(page)), tensor[index, 1:3, :3])
    found = by_reference(session, tree, show="statistics")["statistics"]
    assert (found["count"], found["of"]) == (tensor.numel(), "all")
    assert float(found["maximum"]) == pytest.approx(tensor.max().item())
    assert float(found["mean"]) == pytest.approx(tensor.mean().item(), rel=1e-5)
    assert float(found["deviation"]) == pytest.approx(tensor.std().item(), rel=1e-5)
    assert sum(found["histogram"]["counts"]) == tensor.numel()
    picture = by_reference(session, tree, show="picture", picture="tiles")["picture"]
    assert (picture["tiles"], picture["height"], picture["width"]) == (*tensor.shape,)
    drawn = torch.tensor(list(base64.b64decode(picture["data"]))).reshape(tensor.shape) / 252
    apart = picture["high"] - picture["low"]
    torch.testing.assert_close(picture["low"] + drawn * apart, tensor, atol=apart / 252, rtol=0)


def test_a_tensor_in_ordinary_python_in_a_trace_and_in_a_cached_call(session: Session, program: Fixture) -> None:
    session.launch(program, "eager", "traced")
    frame = session.wait_for_stop("breakpoint", at="eager").frame
    assert_is(session, frame["Locals"]["x"], X, 1)
    assert computed(session, frame, "x[1] * 24")["elements"][0] == ["12.0", "13.0", "14.0"]

    frame = session.continue_to_stop(at="traced").frame
    shown = frame["Locals"]["weights"].text
    assert shown.startswith("Tensor f32[2, 4, 4] cpu ")
    assert shown.endswith(", requires_grad")
    assert_is(session, frame["Locals"]["weights"], expected(X, 2.0), 0)
    assert_is(session, frame["Locals"]["x"], X, 1)
    assert_is(session, frame.evaluate("weights * 3"), expected(X, 2.0) * 3, 1)

    stop = session.continue_to_stop(at="traced")
    frame = stop.frame
    assert stop.description == "Call 2 of attend [0/0]"
    assert_is(session, frame["Locals"]["weights"], expected(X * 2, 2.0), 0)
    assert computed(session, frame, "x[0, :1] * 12")["elements"] == [["0.0", "1.0", "2.0"]]
    difference = by_reference(session, frame["Locals"]["scores"], minus="x @ x.mT * scale", frameId=frame.data.id)
    assert {text for row in difference["elements"] for text in row} == {"0.0"}
    assert session.run_to_end() == 0
    plain = alone(program.path)
    assert session.output("stdout") == plain.stdout, "versions, gradients and random numbers are as without a look"


def test_the_value_of_a_tensor_is_its_first_child(session: Session, program: Fixture) -> None:
    """In a trace and in a cached call; and in ordinary Python, where other tensors have their rows instead."""
    session.launch(program, "printed", "traced")
    for _ in range(2):
        found = session.wait_for_stop("breakpoint", at="traced").frame["Locals"]["weights"].children
        assert next(iter(found)) == "value"
        session.resume()
    found = session.wait_for_stop("breakpoint", at="printed").frame["Globals"]["total"].children
    assert next(iter(found.values())).texts() == {"value": "0.5"}
    assert session.run_to_end() == 0


def test_a_tensor_in_generated_code(session: Session, program: Fixture) -> None:
    # With this option a step into the second call stops in generated code.
    session.launch(program, "eager", cachedCalls="generated")
    session.wait_for_stop("breakpoint", at="eager")
    session.resume("next")
    session.wait_for_stop("step")
    session.resume("stepIn")
    frame = session.wait_for_stop("step").frame
    assert "generated" in frame.name
    assert_is(session, frame["Locals"]["x"], X * 2, 1)
    difference = computed(session, frame, "x", minus="x - x + x")
    assert {text for row in difference["elements"] for text in row} == {"0.0"}
    assert session.finish() == 0


@pytest.mark.parametrize(("client", "mark"), [("vscode", TENSOR), ("tests", None)])
def test_variables_that_are_tensors_are_marked_for_vs_code(
    session: Session, program: Fixture, client: str, mark: str | None
) -> None:
    session.initialize(msgspec.structs.replace(INITIALIZE, client_id=client))
    session.launch(program, "eager", "traced")

    def marked(frame: Frame) -> dict[str, Any]:
        reference = frame["Locals"].variable.variables_reference
        shown = session.request("variables", {"variablesReference": reference})["variables"]
        return {one["name"]: one.get(VARIABLE_MENU) for one in shown}

    in_module = marked(session.wait_for_stop("breakpoint", at="eager").frame)
    assert in_module["x"] == in_module["big"] == mark
    assert in_module["torch"] is None
    traced = marked(session.continue_to_stop(at="traced").frame)
    of_traced = (TRACED_TENSOR, TRACED) if mark else (None, None)
    assert traced["x"] == traced["weights"] == of_traced[0]
    assert traced["scale"] == of_traced[1]


def test_a_billion_elements(session: Session, program: Fixture) -> None:
    session.launch(program, "eager")
    frame = session.wait_for_stop("breakpoint", at="eager").frame
    page = look(session, frame, "big", startRow=10**9 - 2, rowCount=50)
    assert (page["shape"], page["elements"]) == ([10**9], [["0.0"], ["0.0"]])
    found = look(session, frame, "big", show="statistics")["statistics"]
    assert (found["of"], found["zeros"]) == ("sample", found["count"])
    picture = look(session, frame, "big", show="picture")["picture"]
    assert (picture["width"], picture["isSampled"]) == (256, True)


def test_a_value_that_cannot_be_shown_says_why(session: Session, program: Fixture) -> None:
    session.launch(program, "eager", "traced")

    def refused(frame: Frame, expression: str, **wanted: Any) -> str:
        return session.refusal(TENSOR, {"expression": expression, "frameId": frame.data.id, **wanted})

    frame = session.wait_for_stop("breakpoint", at="eager").frame
    for stopped in (frame, None):
        frame = stopped or session.continue_to_stop(at="traced").frame
        assert "not a tensor" in refused(frame, "[1]")
        assert "not a tensor" in refused(frame, "1")
        assert "name 'nothing' is not defined" in refused(frame, "nothing")
        assert "index 2 is out of range" in refused(frame, "x", selection=[2, None, None])
        assert "differs in shape from" in refused(frame, "x", minus="x[0]")
        assert "leaves 3 dimensions" in refused(frame, "x", selection=[None, None, None])
        assert "an image has 1, 3 or 4 channels" in refused(frame, "x", show="picture", picture="chw")
        assert "on the device meta" in refused(frame, "torch.ones(3, device='meta')")
    assert "variables reference" in session.refusal(TENSOR, {})
    assert "takes a variables reference" in session.refusal(TENSOR, {"frameId": frame.data.id})


ODD = {
    "torch.tensor([[1.0, float('nan')], [float('inf'), -2.0]])": [["1.0", "nan"], ["inf", "-2.0"]],
    "torch.tensor(7)": [["7"]],
    "torch.zeros(0, 3)": [],
    "torch.tensor([True, False])": [["True"], ["False"]],
    "torch.tensor([[1 + 2j, 3]])": [["(1+2j)", "(3+0j)"]],
    "torch.tensor([2**64 - 1], dtype=torch.uint64)": [["18446744073709551615"]],
    "torch.ones(1, 2).to(torch.float8_e4m3fn)": [["1.0", "1.0"]],
    "torch.arange(3.0).bfloat16() + 0.1": [["0.1001"], ["1.102"], ["2.094"]],
    "torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (2,))": [["3.0"], ["0.0"]],
    "torch.eye(2).to_sparse_csr()": [["1.0", "0.0"], ["0.0", "1.0"]],
    "torch.sparse_coo_tensor([[0], [9]], [5.0], (10**6, 10**6))": [["5.0"]],
    "torch.quantize_per_tensor(torch.tensor([[0.5, -0.25]]), 0.25, 0, torch.qint8)": [["0.5", "-0.25"]],
    "torch.quantize_per_channel(torch.ones(1, 2), torch.ones(1), torch.zeros(1), 0, torch.qint8)": [["1.0", "1.0"]],
    "torch.nested.nested_tensor([torch.ones(2), torch.zeros(1)], layout=torch.jagged)": [["1.0"], ["1.0"], ["0.0"]],
    "torch.nested.nested_tensor([torch.ones(2, 2), torch.zeros(1, 2)])": [
        ["1.0"],
        ["1.0"],
        ["1.0"],
        ["1.0"],
        ["0.0"],
        ["0.0"],
    ],
    "torch._to_functional_tensor(torch.ones(1))": [["1.0"]],
    "torch.nn.Parameter(torch.ones(1))": [["1.0"]],
}


def test_odd_kinds_have_a_page_statistics_and_a_picture(session: Session, program: Fixture) -> None:
    session.launch(program, "eager")
    frame = session.wait_for_stop("breakpoint", at="eager").frame
    nested = frame.evaluate("torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])")
    assert (nested.text, nested["shape"].text) == ("Tensor f32[2, ?, 3] cpu", "[2, ?, 3]")
    for expression, elements in ODD.items():
        page = computed(session, frame, expression)
        assert page["elements"] == elements, expression
        found = computed(session, frame, expression, show="statistics")["statistics"]
        assert found["count"] == sum(len(row) for row in elements), expression
        if elements:
            assert computed(session, frame, expression, show="picture")["picture"]["data"], expression
            by_first = computed(session, frame, expression, sortColumn=0, rowsWith="!= 99")["elements"]
            assert sorted(by_first) == sorted(elements), expression
    marked = computed(session, frame, next(iter(ODD)), show="statistics")["statistics"]
    assert (marked["nans"], marked["positiveInfs"], marked["negativeInfs"]) == (1, 1, 0)
    assert (marked["minimum"], marked["maximum"], marked["mean"]) == ("-2.0", "1.0", "-0.5")
    picture = computed(session, frame, next(iter(ODD)), show="picture")["picture"]
    assert list(base64.b64decode(picture["data"])) == [252, 255, 254, 0], "the highest, NaN, infinity, the lowest"


def test_rows_are_sorted_by_a_column_and_filtered(session: Session, program: Fixture) -> None:
    text = program.path.read_text(encoding="utf-8")
    program.path.write_text(text.replace("attend(x, 2.0)", ROWS + "attend(x, 2.0)"), encoding="utf-8")
    session.launch(program, "eager")
    frame = session.wait_for_stop("breakpoint", at="eager").frame
    by_last = computed(session, frame, "table", sortColumn=2)
    assert by_last["rows"] == [3, 0, 1, 2], "NaN is the largest, and equal rows keep their order"
    assert [row[2] for row in by_last["elements"]] == ["-1.0", "4.0", "4.0", "nan"]
    assert computed(session, frame, "table", sortColumn=2, isDescending=True)["rows"] == [2, 0, 1, 3]
    with_nan = computed(session, frame, "table", rowsWith="nan")
    assert (with_nan["rows"], with_nan["rowTotal"], with_nan["elements"][0][2]) == ([2], 1, "nan")
    both = computed(session, frame, "table", rowsWith="> 2", sortColumn=0, isDescending=True, startRow=1, rowCount=1)
    assert (both["rows"], both["rowTotal"]) == ([1], 3), "a page of what is left"
    assert computed(session, frame, "table", rowsWith="> 9")["rowTotal"] == 0
    assert "rows" not in computed(session, frame, "table")
    part = computed(session, frame, "x", selection=[1, None, None], sortColumn=1, isDescending=True)
    assert part["rows"] == [3, 2, 1, 0]
    assert computed(session, frame, "table[:, 2]", sortColumn=0)["rows"] == [3, 0, 1, 2], "one dimension"
    refused = session.refusal(TENSOR, {"expression": "big", "frameId": frame.data.id, "sortColumn": 0})
    assert "rows can be sorted" in refused


ROWS = """table = torch.tensor([[1.0, 0, 4], [2, 0, 4], [3, 0, float("nan")], [0, 0, -1]])
"""


def test_images_are_known_by_their_shape_and_drawn_in_their_colours(session: Session, program: Fixture) -> None:
    session.launch(program, "eager")
    frame = session.wait_for_stop("breakpoint", at="eager").frame
    red = "torch.zeros(2, 3, 9, 16).index_fill(1, torch.tensor(0), 1)"
    body = computed(session, frame, red, show="picture", picture="chw", selection=[1, None, None, None])
    assert body["pictures"][0] == "chw"
    picture = body["picture"]
    assert (picture["width"], picture["height"]) == (16, 9)
    assert base64.b64decode(picture["data"]) == bytes([255, 0, 0, 255]) * 144
    grey = "torch.full((600, 900, 1), 51, dtype=torch.uint8)"
    body = computed(session, frame, grey, show="picture", picture="hwc", width=300, height=300)
    assert body["pictures"][0] == "hwc"
    assert (body["picture"]["width"], body["picture"]["height"], body["picture"]["rowStep"]) == (300, 200, 3)
    assert set(base64.b64decode(body["picture"]["data"])) == {51, 255}
    assert computed(session, frame, "torch.rand(8, 32, 32)")["pictures"][0] == "tiles"
    assert computed(session, frame, "torch.rand(4, 15, 256)")["pictures"] == ["map", "tiles"], "vectors of a sequence"
    assert computed(session, frame, "torch.rand(4, 32, 32)")["pictures"] == ["tiles", "map", "chw"], "heads, or RGBA"


def test_statistics_say_where_extremes_and_nan_are(session: Session, program: Fixture) -> None:
    session.launch(program, "eager")
    frame = session.wait_for_stop("breakpoint", at="eager").frame
    made = "torch.arange(2 * 600 * 1000.).view(2, 600, 1000)"
    holes = f"{made}.index_put((torch.tensor([1]), torch.tensor([2]), torch.tensor([7])), torch.tensor(float('nan')))"
    places = computed(session, frame, holes, show="statistics", isWhole=True)["statistics"]["places"]
    assert places == {"minimum": [0, 0, 0], "maximum": [1, 599, 999], "nan": [1, 2, 7]}
    sample = computed(session, frame, "torch.rand(5, 1000, 1000)", show="statistics")["statistics"]
    assert "places" not in sample, "a sample knows no place"
    odd = computed(session, frame, "torch.tensor(float('-inf'))", show="statistics")["statistics"]
    assert odd["places"] == {"inf": []}


@pytest.mark.parametrize("client", ["vscode", "tests"])
def test_what_log_messages_gave_is_reported_to_vs_code(session: Session, program: Fixture, client: str) -> None:
    session.initialize(msgspec.structs.replace(INITIALIZE, client_id=client))
    line = program.line("traced")
    with session.launching(program):
        message = "{scale} {weights.max().item()} {{x}} {scale}"
        session.set_breakpoints(program, SourceBreakpoint(line=line, log_message=message))
    assert session.wait_for_exit() == 0
    reported = [event["body"] for event in session.timeline.events if event["event"] == LOGGED_EVENT]
    values = [{"scale": "2.0", "weights.max().item()": str(expected(x, 2.0).max().item())} for x in (X, X * 2)]
    for each in values:
        assert f"2.0 {each['weights.max().item()']} {{x}} 2.0\n" in session.output("console")
    if client == "vscode":
        assert reported == [{"path": str(program.path), "line": line, "values": each} for each in values]
    else:
        assert reported == []


TRANSFORMED = """
import torch
from torch.testing._internal.two_tensor import TwoTensor

pair = TwoTensor(torch.ones(2), torch.zeros(2))
large = torch.ones(3000, 2000)

def mapped(row):
    return row * 2  # @inside

print(torch.vmap(mapped)(torch.eye(2)))
print(torch.func.grad(lambda x: mapped(x).sum())(torch.ones(2)))
"""


def test_inside_transforms_the_data_is_shown_and_wrappers_name_their_parts(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "transformed.py"
    path.write_text(TRANSFORMED, encoding="utf-8")
    session.launch(path, "inside")
    for rows in ([["1.0", "0.0"], ["0.0", "1.0"]], [["1.0"], ["1.0"]]):
        frame = session.wait_for_stop("breakpoint").frame
        page = look(session, frame, "row")
        assert page["elements"] == rows
        assert "torch.func" in page["note"]
        assert computed(session, frame, "large", show="statistics")["statistics"]["of"] == "sample"
        assert computed(session, frame, "large", show="picture")["picture"]["isSampled"] is True
        refused = session.refusal(TENSOR, {"expression": "pair", "frameId": frame.data.id, "show": "picture"})
        assert "a TwoTensor wraps other tensors" in refused
        assert refused.endswith("show its parts, .a or .b")
        assert computed(session, frame, "pair.b")["elements"] == [["0.0"], ["0.0"]]
        session.resume()
    assert session.wait_for_exit() == 0


def test_statistics_of_every_element_and_of_the_beginning_of_too_many(session: Session, program: Fixture) -> None:
    session.launch(program, "eager")
    frame = session.wait_for_stop("breakpoint", at="eager").frame
    # The statistics are computed in pieces of rows, or in pieces of a row if a row is too large.
    for shape, order in (((5, 1000, 1000), ""), ((2, 2_500_000), ""), ((1000, 5000), ".T")):
        size = 5_000_000
        made = f"torch.arange({size}, dtype=torch.float64).reshape({shape}){order}"
        sample = computed(session, frame, made, show="statistics")["statistics"]
        assert (sample["of"], sample["count"]) == ("sample", 2**18)
        assert float(sample["mean"]) == pytest.approx((size - 1) / 2, rel=0.01)
        whole = computed(session, frame, made, show="statistics", isWhole=True)["statistics"]
        assert (whole["of"], whole["count"], whole["zeros"]) == ("all", size, 1)
        assert (whole["minimum"], whole["maximum"]) == ("0.0", f"{size - 1}.0")
        assert float(whole["deviation"]) == pytest.approx(
            torch.arange(size, dtype=torch.float64).std().item(), rel=1e-5
        )
        counts = whole["histogram"]["counts"]
        assert sum(counts) == size
        assert max(counts) - min(counts) <= 1
    begun = look(session, frame, "big", show="statistics", isWhole=True)["statistics"]
    assert begun["of"] in ("beginning", "all")
    assert begun["count"] == begun["zeros"] <= 10**9
