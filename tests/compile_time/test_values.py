"""Real Python objects as values: their texts and pages of children. None of their code runs."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import math
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from dynamo_dap.debuggee.values.model import EvaluationError, Value, Variable
from dynamo_dap.debuggee.values.python_values import globals_of, locals_of, present, preview
from dynamo_dap.debuggee.values.tensor_parts import part_of_tensor
from dynamo_dap.debuggee.values.tensors import STATISTICS, tensor_text
from dynamo_dap.protocol.requests.tensor_requests import TensorArguments
from tests.client.timeline import DEADLINE


class Colour(enum.IntEnum):
    """An enum whose members are integers."""

    RED = 1


@dataclasses.dataclass
class Point:
    """Shown by its fields."""

    x: int
    y: Any = None


class Pair(NamedTuple):
    """Shown by its fields."""

    left: int
    right: Any


class Touchy:
    """Every access runs code that must not run."""

    def __init__(self) -> None:
        self.stored = 1

    def __repr__(self) -> str:
        raise SystemExit("repr ran")

    def __getattr__(self, name: str) -> Any:
        raise SystemExit(f"__getattr__({name}) ran")

    @property
    def computed(self) -> Any:
        raise SystemExit("a property ran")


class TouchyList(list[Any]):
    """Overrides the methods that reading a list would call."""

    def __getitem__(self, index: Any) -> Any:
        raise SystemExit("__getitem__ ran")

    def __iter__(self) -> Any:
        raise SystemExit("__iter__ ran")

    def __len__(self) -> int:
        raise SystemExit("__len__ ran")


class Slotted:
    """Has no ``__dict__``."""

    __slots__ = ("filled", "never")

    def __init__(self) -> None:
        self.filled = 1


def documented(a: int, b: int = 2, *rest: int, key: int, other: int = 5, **options: int) -> int:
    """A function with every kind of parameter."""
    return a + b + key + other + len(rest) + len(options)


def named(value: Value) -> dict[str, Value]:
    """Return the named children by name."""
    assert value.children is not None
    return {variable.name: variable.value for variable in value.children.named()}


def indexed(value: Value, start: int, count: int) -> list[str]:
    """Return the texts of a page of indexed children."""
    assert value.children is not None
    return [variable.value.text for variable in value.children.indexed(start, count)]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (True, "True"),
        (10**30, "1" + "0" * 30),
        (0.1, "0.1"),
        ("it's", '"it\'s"'),
        (b"\x00", "b'\\x00'"),
        ((1,), "(1,)"),
        ([], "[]"),
        ({}, "{}"),
        (set(), "set()"),
        ({"a": [1, 2]}, "{'a': [1, 2]}"),
        (Colour.RED, "Colour.RED"),
        (Point(1, "b"), "Point(x=1, y='b')"),
        (Pair(1, None), "Pair(left=1, right=None)"),
        (collections.deque([1]), "deque([1])"),
        (collections.Counter("aa"), "Counter({'a': 2})"),
        (range(3), "range(0, 3)"),
        (ValueError("bad", 2), "ValueError('bad', 2)"),
        (documented, "function documented(a, b, *rest, key, other, **options)"),
        (len, "built-in len"),
        (functools.partial(len, [1]), "partial(built-in len, [1])"),
        (Point, f"<class '{__name__}.Point'>"),
        (collections, "<module collections>"),
        (torch.float32, "torch.float32"),
        (torch.Size([2, 3]), "torch.Size([2, 3])"),
        (np.float32(1.5), "1.5"),
        (np.zeros((2, 3)), "ndarray float64[2, 3]"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_text(value: Any, text: str) -> None:
    assert present(value).text == text


def test_code_of_the_object_does_not_run() -> None:
    for value in (Touchy(), TouchyList([1, 2])):
        shown = present(value, "v")
        named(shown)
        indexed(shown, 0, 10)
        assert "cannot be shown" not in shown.text
    assert named(present(Touchy()))["stored"].text == "1"
    assert indexed(present(TouchyList([1, 2])), 0, 10) == ["1", "2"]


def test_slots_are_attributes() -> None:
    children = named(present(Slotted(), "s"))
    assert children["filled"].text == "1"
    assert "never" not in children


def test_a_cycle_ends() -> None:
    items: list[Any] = [1]
    items.append(items)
    value = present(items)
    for _ in range(50):
        assert value.children is not None
        value = value.children.indexed(1, 1)[0].value
    assert value.text == "[1, [1, [1, […]]]]"


def test_long_things_are_bounded() -> None:
    for value in ("x" * 10**6, [0] * 10**6, dict.fromkeys(range(10**5)), 10**10**4, b"x" * 10**6, {1: "x" * 10**6}):
        assert len(present(value).text) <= 400
    assert present([0] * 1000).text.endswith("(1000 items)")
    assert present("x" * 1000).text.endswith("(1000 characters)")


def test_lists_are_paged_by_index() -> None:
    value = present(list(range(10**6)), "xs")
    assert value.children is not None
    assert value.children.indexed_count == 10**6
    page = value.children.indexed(10**6 - 2, 100)
    assert [variable.name for variable in page] == ["999998", "999999"]
    assert page[0].evaluate_name == "xs[999998]"


def test_dictionaries_are_paged_in_groups() -> None:
    value = present({f"k{number}": number for number in range(12_345)}, "d")
    assert value.children is not None
    first = value.children.named()
    assert first[0].name == "['k0']"
    assert first[0].evaluate_name == "d['k0']"
    assert len(first) <= 250
    seen: list[str] = []

    def walk(variables: Any) -> None:
        for variable in variables:
            if " … " in variable.name:
                assert variable.value.children is not None
                walk(variable.value.children.named())
            else:
                seen.append(variable.value.text)

    walk(first)
    assert seen == [str(number) for number in range(12_345)]


def test_names_of_children_are_unique() -> None:
    class Same:
        def __repr__(self) -> str:
            return "same"

    value = present({Same(): 1, Same(): 2, Same(): 3})
    assert value.children is not None
    names = [variable.name for variable in value.children.named()]
    assert len(set(names)) == 3


def test_functions_classes_and_modules_say_where_they_are() -> None:
    here = present(documented).location
    assert here is not None
    assert here.path == __file__
    assert here.line == documented.__code__.co_firstlineno
    place = present(Touchy).location
    assert place is not None
    assert place.path == __file__
    module = present(collections).location
    assert module is not None
    assert str(module.path).endswith("__init__.py")


def test_locals_stand_in_the_order_of_the_code() -> None:
    def fn(b: int, a: int) -> Any:
        z, y = a, b
        free = [here for here in (z, y)]  # noqa: C416
        return locals_of(sys._getframe()), free

    children, _ = fn(1, 2)
    assert [variable.name for variable in children.named()][:4] == ["b", "a", "z", "y"]


def test_globals_that_the_code_uses_come_first() -> None:
    def fn() -> Any:
        return globals_of(sys._getframe()), np, documented

    children, *_ = fn()
    names = [variable.name for variable in children.named()]
    used = [name for name in ("globals_of", "sys", "np", "documented") if name in names[:4]]
    assert len(used) == 4


def tensor_children(tensor: Any) -> dict[str, Variable]:
    """Return a tensor's named children."""
    children = present(tensor, "t").children
    assert children is not None
    return {variable.name: variable for variable in children.named()}


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (torch.zeros(3, 4, requires_grad=True), "Tensor f32[3, 4] cpu requires_grad"),
        (torch.nn.Parameter(torch.zeros(2, dtype=torch.bfloat16)), "Parameter bf16[2] cpu = [0.0, 0.0], requires_grad"),
        (torch.zeros(2, dtype=torch.bool), "Tensor b8[2] cpu = [False, False]"),
        (torch.tensor(3), "Tensor i64[] cpu = 3"),
        (torch.eye(3)[:, :2], "Tensor f32[3, 2] cpu = [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]"),
        (torch.arange(9), "Tensor i64[9] cpu"),
        (torch.empty(0), "Tensor f32[0] cpu"),
        (torch.eye(2).to_sparse(), "Tensor f32[2, 2] cpu sparse_coo"),
        (torch.empty(2, device="meta"), "Tensor f32[2] meta"),
        (torch.zeros(2, dtype=torch.complex64), "Tensor c64[2] cpu = [0j, 0j]"),
    ],
)
def test_tensor_text(tensor: Any, text: str) -> None:
    assert present(tensor).text == text


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("tensor", "data"),
    [
        (torch.linspace(0, 1, 60).view(4, 15), " 0…1"),
        (torch.arange(12.0).view(3, 4).t() / 7, " 0…1.571"),
        (torch.full((20,), 1.00001), " all 1.00001"),
        (torch.arange(50000), " 0…49999"),
        (torch.arange(20) < 12, " 12 of 20 True"),
        (torch.zeros(20, dtype=torch.bool), " all False"),
        (torch.tensor([NAN, 1.0, INF] * 5), " 1…inf, 5 NaN"),
        (torch.full((20,), NAN), " all NaN"),
        (torch.zeros(600, 600), ""),
        (torch.zeros(20, dtype=torch.complex64), ""),
        (torch.zeros(20, device="meta"), ""),
    ],
)
def test_a_row_of_a_larger_tensor_shows_its_range_and_its_text_does_not(tensor: Any, data: str) -> None:
    shown = present(tensor)
    assert shown.row == shown.text + data
    assert shown.text == tensor_text(tensor)


@pytest.mark.parametrize(
    ("find", "after", "index", "number", "count"),
    [
        ("nan", -1, [0, 3], 1, 2),
        ("nan", 3, [2, 3], 2, 2),
        ("NaN", 11, [0, 3], 1, 2),
        ("inf", -1, [1, 0], 1, 1),
        (">= 9", -1, [1, 0], 1, 3),
        ("< 2", 1, [0, 0], 1, 2),
        ("0.1", -1, [0, 1], 1, 1),
        ("!=0.1", 0, [0, 2], 2, 11),
    ],
)
def test_elements_are_searched_behind_a_position(
    find: str, after: int, index: list[int], number: int, count: int
) -> None:
    tensor = torch.arange(12.0).view(3, 4)
    tensor[0, 1], tensor[0, 3], tensor[2, 3], tensor[1, 0] = 0.1, NAN, NAN, INF
    found = part_of_tensor(tensor, TensorArguments("match", find=find, after=after)).match
    assert found is not None
    assert (found.index, found.number, found.count) == (index, number, count)


@pytest.mark.parametrize(("find", "problem"), [("> 99", "no element matches"), ("x + 1", "search for nan, inf")])
def test_a_search_without_a_match_says_so(find: str, problem: str) -> None:
    with pytest.raises(EvaluationError, match=problem):
        part_of_tensor(torch.ones(3), TensorArguments("match", find=find))


def test_a_search_goes_through_all_parts_of_a_large_tensor() -> None:
    tensor = torch.zeros(3, 2**20 + 5, 1)
    tensor[2, 7] = 1
    found = part_of_tensor(tensor, TensorArguments("match", find="1")).match
    assert found is not None
    assert (found.index, found.position) == ([2, 7, 0], 2 * (2**20 + 5) + 7)


def test_numbers_of_a_tensor_in_a_container_are_whole_or_left_out() -> None:
    number = torch.full((3,), 0.8414709848078965)
    for value in ([number], [[number]], {"first": [number, number]}):
        text = present(value).text
        assert "Tensor f32[3] cpu" in text
        assert text.count("[") == text.count("]")
        assert not re.search(r"\d…", text)


def test_statistics_are_computed_only_when_asked_for() -> None:
    children = tensor_children(torch.tensor([1.0, float("nan"), -2.5]))
    assert children["shape"].value.text == "[3]"
    assert children["shape"].evaluate_name == "t.shape"
    minimum, nan = children["min"].value, children["NaNs"].value
    assert minimum.lazy
    assert minimum.text == "…"
    assert minimum.children is not None
    assert nan.children is not None
    assert [each.value.text for each in nan.children.named()] == ["1"]
    children = tensor_children(torch.tensor([0.1, -2.5, 0.0, float("inf")]))
    assert statistics_of(children, "min", "NaNs", "Infs", "zeros") == ["-2.5", "0", "1", "1"]
    numbers = torch.arange(1, 5)
    expected = [str(numbers.double().mean().item()), str(numbers.double().std().item())]
    assert statistics_of(tensor_children(numbers), "mean", "std") == expected


def statistics_of(children: dict[str, Variable], *names: str) -> list[str]:
    """Return the texts of computed statistics."""
    texts = []
    for name in names:
        below = children[name].value.children
        assert below is not None
        texts.append(below.named()[0].value.text)
    return texts


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([True, False]),
        torch.arange(3),
        torch.empty(0),
        torch.zeros(2, dtype=torch.complex64),
        torch.eye(3).to_sparse(),
        torch.ones(2).to(torch.float8_e4m3fn),
    ],
    ids=lambda tensor: str(tensor.dtype),
)
def test_statistics_of_any_tensor_are_a_value_or_say_why_not(tensor: Any) -> None:
    for name in STATISTICS:
        below = tensor_children(tensor)[name].value.children
        assert below is not None
        text = below.named()[0].value.text
        assert text
        assert "\n" not in text


def test_elements_are_paged() -> None:
    vector = present(torch.arange(10_000, dtype=torch.float32), "t")
    assert vector.children is not None
    assert vector.children.indexed_count == 10_000
    assert indexed(vector, 9_998, 100) == ["9998.0", "9999.0"]
    assert indexed(present(torch.tensor([0.1])), 0, 1) == ["0.1"]
    matrix = present(torch.zeros(3, 2), "t")
    assert indexed(matrix, 1, 1) == ["Tensor f32[2] cpu = [0.0, 0.0]"]
    assert matrix.children is not None
    assert matrix.children.indexed(1, 1)[0].evaluate_name == "t[1]"


def test_the_data_of_a_fake_tensor_is_never_read() -> None:
    with torch._subclasses.FakeTensorMode():
        fake = torch.zeros(3)
    children = present(fake, "t").children
    assert children is not None
    assert children.indexed_count == 0
    assert not any(variable.value.lazy for variable in children.named())


def test_a_subclass_is_read_past_its_torch_function() -> None:
    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
            raise SystemExit("__torch_function__ ran")

    loud = torch.ones(2).as_subclass(Loud)
    shown = present(loud, "t")
    assert shown.text == "Loud f32[2] cpu"
    named(shown)
    assert indexed(shown, 0, 2) == ["1.0", "1.0"]


def test_looking_at_a_tensor_draws_and_records_nothing() -> None:
    tensor = torch.ones(3, requires_grad=True) * 2
    state, version = torch.get_rng_state(), tensor._version
    shown = present(tensor, "t")
    for variable in named(shown).values():
        if variable.children is not None:
            variable.children.named()
    indexed(shown, 0, 3)
    assert torch.equal(state, torch.get_rng_state())
    assert tensor._version == version
    assert torch.is_grad_enabled()


def test_modules_show_parameters_and_submodules() -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2)
    children = named(present(layer, "m"))
    assert children["linear1"].text == "<Linear module>"
    below = named(children["linear1"])
    assert below["weight"].text == "Parameter f32[2048, 8] cpu requires_grad"
    assert "_parameters" not in below


def test_preview_is_bounded_and_deep() -> None:
    assert preview([[[[1]]]], 40) == "[[[[…]]]]"
    assert len(preview(list(range(1000)), 30)) <= 30


def test_torch_is_not_imported_for_looking() -> None:
    program = (
        "import sys; from dynamo_dap.debuggee.values.python_values import present;"
        "[present(each).text for each in (1, [2], {'a': object()}, sys, len)];"
        "sys.exit(int('torch' in sys.modules or 'numpy' in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=DEADLINE).returncode == 0


def _with_attribute() -> torch.Tensor:
    tensor = torch.ones(2)
    tensor.note = "kept"
    return tensor


def _with_gradient() -> torch.Tensor:
    tensor = torch.ones(2, 3, requires_grad=True)
    tensor.sum().backward()
    return tensor


def _fake() -> torch.Tensor:
    with torch._subclasses.FakeTensorMode() as mode:
        return mode.from_tensor(_with_attribute())


@pytest.mark.parametrize(
    "make",
    [
        _with_attribute,
        _with_gradient,
        _fake,
        lambda: torch.tensor(1.0),
        lambda: torch.ones(2, requires_grad=True) * 2,
        lambda: torch.eye(2).to_sparse(),
        lambda: torch.nn.Parameter(torch.ones(2)),
    ],
)
def test_the_count_of_what_is_below_a_tensor(make: Callable[[], torch.Tensor]) -> None:
    children = present(make(), "x").children
    assert children is not None
    assert children.named_count == len(children.named())
