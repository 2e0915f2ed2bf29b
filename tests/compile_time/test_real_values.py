"""Real values in a trace equal those of an eager run, and computing them at every line changes nothing."""

from __future__ import annotations

import collections
import gc
import random
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from dynamo_dap.debuggee.torch_api.graphs.graph_runs import GraphRun, Limits, NoRealValue
from dynamo_dap.debuggee.torch_api.graphs.real_values import limit_real_values
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.trackers.forms import Form, TensorForm
from tests.compile_time import programs
from tests.compile_time.observation import observe
from tests.compile_time.programs import PROGRAMS, Compiled
from tests.compile_time.test_looking_changes_nothing import assert_same, untouched

Place = tuple[str, int, str]
Program = Callable[[Compiled], list[Any]]


def in_eager_code(program: Program) -> dict[Place, list[Any]]:
    """Run the program uncompiled; return the values of each local tensor by function, line and name."""
    seen: dict[Place, list[Any]] = collections.defaultdict(list)

    def trace(frame: types.FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != programs.__file__ and "torch/nn/modules" not in frame.f_code.co_filename:
            return None
        if event == "line":
            for name, value in frame.f_locals.items():
                if isinstance(value, torch.Tensor) and type(value) in (torch.Tensor, torch.nn.Parameter):
                    with torch.no_grad():
                        seen[frame.f_code.co_name, frame.f_lineno, name].append(value.detach().clone())
        return trace

    torch.manual_seed(0)
    random.seed(0)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        program(lambda function: function)
    finally:
        sys.settrace(before)
    return seen


def tensors_of(frame: TracedFrame) -> Iterator[tuple[str, Any]]:
    """Yield name and node of each local variable that is a tensor of the graph."""
    for name, tracker in frame.locals():
        if isinstance(tracker, Form):  # an unread input, for which torch 2.15 keeps no tracker
            continue
        form = frame.form_of(tracker)
        if isinstance(form, TensorForm) and form.node is not None and form.number is None:
            yield name, form.node


def _is_same(value: torch.Tensor, other: torch.Tensor) -> bool:
    return value.shape == other.shape and torch.equal(value, other)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_values_are_those_of_an_eager_run(program: Program) -> None:
    eager = in_eager_code(program)
    seen, missing = list[tuple[Place, torch.Tensor]](), collections.Counter[str]()

    at: dict[int, tuple[int, int]] = {}  # by id, which does not keep frames alive

    def look(frame: TracedFrame) -> None:
        if frame.instructions[frame.index].name in ("PUSH_EXC_INFO", "POP_BLOCK", "POP_EXCEPT"):  # has another line
            return
        line, index = at.get(id(frame.interpreter), (0, 0))
        at[id(frame.interpreter)] = frame.line, frame.index
        if line == frame.line and frame.index > index:  # another part of the same line
            return
        for name, node in tensors_of(frame):
            key = frame.code.co_name, frame.line, name
            if key not in eager:
                continue
            try:
                value: Any = frame.real_value(node)
            except NoRealValue as problem:
                missing[str(problem)] += 1
                continue
            seen.append((key, value.detach().clone()))

    assert_same(untouched(program), observe(program, watch=look))
    different = [(key, value) for key, value in seen if not any(_is_same(value, each) for each in eager[key])]
    assert not different, different[:3]
    assert seen or program is programs.transforms
    reasons = ("made by a higher-order operator", "inside a transform")
    assert all(any(reason in text for reason in reasons) for text in missing), missing


def values_at_the_end(
    function: Callable[..., Any], *inputs: Any, limits: Limits | None = None, found: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Compile and call ``function``; return its tensors' real values at its last line, or why there are none.

    They are also added to ``found``, in case the call fails.
    """
    found = {} if found is None else found
    last = max(line for _, _, line in function.__code__.co_lines() if line)

    def look(frame: TracedFrame) -> None:
        if frame.code is not function.__code__ or frame.line != last:
            return
        if limits is not None:
            limit_real_values(limits)
        for name, node in tensors_of(frame):
            try:
                found[name] = frame.real_value(node)
            except NoRealValue as problem:
                found[name] = str(problem)

    observe(lambda compiled: [compiled(function)(*inputs)], watch=look)
    return found


@pytest.fixture(autouse=True)
def _usual_limits() -> Iterator[None]:
    yield
    limit_real_values(Limits())


def test_what_is_written_in_place_is_a_copy() -> None:
    def fn(x: torch.Tensor, view: torch.Tensor, norm: torch.nn.BatchNorm1d) -> torch.Tensor:
        y = x + 1
        view.mul_(10)
        z = norm(x)
        x[0] = 5
        return y + z

    x = torch.arange(4.0).reshape(2, 2)
    norm = torch.nn.BatchNorm1d(2)
    expected_x, expected_norm = x.clone(), torch.nn.BatchNorm1d(2)
    expected = eager_locals(fn, expected_x, expected_x[1], expected_norm)
    values: dict[str, Any] = {}
    before: list[Any] = []

    def look(frame: TracedFrame) -> None:
        if frame.code is fn.__code__ and frame.line == fn.__code__.co_firstlineno + 5:
            values.update((name, frame.real_value(node)) for name, node in tensors_of(frame))
            before.extend([x.clone(), norm.running_mean.clone()])

    observe(lambda compiled: [compiled(fn)(x, x[1], norm)], watch=look)
    for name, value in values.items():
        torch.testing.assert_close(value, expected[name].detach())
    assert values["view"].untyped_storage().data_ptr() == values["x"].untyped_storage().data_ptr()
    assert torch.equal(before[0], torch.arange(4.0).reshape(2, 2))
    assert torch.equal(before[1], torch.zeros(2))


def eager_locals(function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """Call the uncompiled ``function``; return its local variables at its return."""
    left: dict[str, Any] = {}

    def trace(frame: types.FrameType, event: str, _: Any) -> Any:
        if frame.f_code is function.__code__:
            if event == "return":
                left.update(frame.f_locals)
            return trace
        return None

    sys.settrace(trace)
    try:
        function(*arguments)
    finally:
        sys.settrace(None)
    return left


def test_random_numbers_are_those_the_call_draws() -> None:
    drawn: list[Any] = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        first = torch.nn.functional.dropout(x, 0.5)
        second = torch.rand(3)
        return first + second

    values = values_at_the_end(fn, torch.ones(3))
    torch.manual_seed(0)
    drawn += [torch.nn.functional.dropout(torch.ones(3), 0.5), torch.rand(3)]
    assert torch.equal(values["first"], drawn[0])
    assert torch.equal(values["second"], drawn[1])


def test_values_that_depend_on_unset_memory_are_not_proven() -> None:
    """Elements that no operation has set differ between the debugger's run and the program's."""

    def fn(x: torch.Tensor, count: int, at: torch.Tensor) -> torch.Tensor:
        padded = torch.empty(3, 8)
        padded[:, :count] = x
        used = padded[:, :count] * 2
        noisy = torch.nn.functional.dropout(used, 0.5)
        copied = torch.empty_like(x).copy_(x)
        typed = torch.Tensor(2, 3)
        sized = torch.ops.aten.empty.memory_format([2], dtype=torch.int32)
        flags = x.new_empty(16, dtype=torch.bool)
        total = padded.sum(1)
        filled = torch.empty(2, 2).fill_(1.5)
        picked = filled[at]
        known = torch.Tensor([2.0, 3.0])
        in_body = torch.utils.checkpoint.checkpoint(lambda z: z + 1, padded, use_reentrant=False)
        of_body = torch.utils.checkpoint.checkpoint(lambda z: z + torch.empty(3, 8), used.sum(), use_reentrant=False)
        sums = [each.sum() for each in (total, typed, sized, flags, picked, known, in_body, of_body)]
        return used + noisy + copied + sum(sums)

    reasons: dict[str, str | None] = {}

    def look(frame: TracedFrame) -> None:
        if frame.code is fn.__code__ and frame.line == fn.__code__.co_firstlineno + 15:
            reasons.update((name, frame.why_not_proven(node)) for name, node in tensors_of(frame))

    observe(lambda compiled: [compiled(fn)(torch.ones(3, 5), 5, torch.tensor([1]))], watch=look)
    unset = {name for name, reason in reasons.items() if reason is not None}
    assert unset == {"padded", "typed", "sized", "flags", "total", "in_body", "of_body"}
    assert {"x", "used", "noisy", "copied", "filled", "picked", "known"} <= reasons.keys()
    assert all("memory that no operation has set" in str(reasons[name]) for name in unset)


def test_values_that_may_depend_on_unset_memory_say_so() -> None:
    """The second run with other contents may take a quarter of the memory limit."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        made = torch.empty(1 << 18).fill_(2)
        twice = made * 2
        both = made + twice
        return both + x

    reasons: dict[str, str | None] = {}

    def look(frame: TracedFrame) -> None:
        if frame.code is fn.__code__ and frame.line == fn.__code__.co_firstlineno + 4:
            for limit in (Limits(bytes=4 << 20), Limits(bytes=16 << 20)):
                limit_real_values(limit)
                for name, node in tensors_of(frame):
                    assert frame.real_value(node) is not None
                    reasons.setdefault(f"{name} {limit.bytes >> 20}", frame.why_not_proven(node))

    observe(lambda compiled: [compiled(fn)(torch.ones(1))], watch=look)
    assert "not checked: computing it takes" in str(reasons["both 4"])
    assert reasons["both 16"] is None


def body(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    dropped = torch.nn.functional.dropout(x * scale, 0.5)
    return dropped + 1


def test_values_in_the_body_of_a_higher_order_operator() -> None:
    """They depend on captured values, and on the random numbers that are next when the operator runs."""

    def fn(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(64)
        made = torch.utils.checkpoint.checkpoint(body, x + noise, scale, use_reentrant=False)
        return torch.cond(made.sum() > 0, lambda made: made + 1, lambda made: made - 1, (made,))

    found: dict[str, Any] = {}

    def look(frame: TracedFrame) -> None:
        at_end = frame.code is body.__code__ and frame.line == body.__code__.co_firstlineno + 2
        if at_end or frame.code.co_name == "<lambda>":
            found.update((name, frame.real_value(node)) for name, node in tensors_of(frame))

    observe(lambda compiled: [compiled(fn)(torch.ones(64), torch.full((64,), 3.0))], watch=look)
    torch.manual_seed(0)
    x = torch.ones(64) + torch.rand(64)
    assert torch.equal(found["x"], x)
    dropped = torch.nn.functional.dropout(x * 3, 0.5)
    assert torch.equal(found["dropped"], dropped)
    assert torch.equal(found["made"], dropped + 1)


def test_what_an_operator_hands_to_its_body_has_no_value() -> None:
    """The gradient shares the FakeTensor of the output, whose value differs."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return programs.Square.apply(x, 2).sum()

    reported: set[str] = set()

    def look(frame: TracedFrame) -> None:
        if frame.code.co_name == "backward":
            for name, node in tensors_of(frame):
                if name == "grad":
                    with pytest.raises(NoRealValue, match="made by a higher-order operator") as problem:
                        frame.real_value(node)
                    reported.add(str(problem.value))

    observe(lambda compiled: [compiled(fn)(torch.full((3,), 3.0, requires_grad=True))], watch=look)
    assert reported


def test_an_operation_that_fails_is_reported_at_its_value_alone() -> None:
    def fn(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        good = x + 1
        bad = x[index]
        after = bad * 2
        return good + after

    values: dict[str, Any] = {}
    with pytest.raises(IndexError):
        values_at_the_end(fn, torch.ones(3), torch.tensor([7, 0, 0]), found=values)
    assert torch.equal(values["good"], torch.full((3,), 2.0))
    assert "getitem fails with these values: IndexError" in values["bad"]
    assert values["after"] == values["bad"]


def test_what_costs_too_much_says_so_and_can_be_asked_for_singly() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        a = x.repeat(1000)
        b = a + 1
        c = b.sum()
        return c * 1

    ones = torch.ones(1000)
    assert values_at_the_end(fn, ones)["c"].item() == 2_000_000
    singly = values_at_the_end(fn, ones, limits=Limits(bytes=6_000_000))  # a or b
    assert singly["c"].item() == 2_000_000
    refused = values_at_the_end(fn, ones, limits=Limits(bytes=3_000_000))
    assert "MiB" in refused["b"]
    late = values_at_the_end(fn, ones, limits=Limits(seconds=-1))
    assert "ask again" in late["c"]


def test_nothing_is_held_when_the_trace_is_over() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return y * 2

    held = weakref.ref(values_at_the_end(fn, torch.ones(3)).pop("y"))
    gc.collect()
    assert held() is None


def test_what_nothing_leads_to_any_more_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in eager code, a chain of operations keeps little more than its last tensor. A list keeps all its tensors."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        kept = [x + 1]
        for _ in range(50):
            x = x * 2
        kept.append(x)
        return kept[0] + x

    ones = torch.ones(1000)
    limits = Limits(bytes=6 * ones.nbytes)
    assert values_at_the_end(fn, ones, limits=limits)["x"][0].item() == 2.0**50

    def all_kept(x: torch.Tensor) -> torch.Tensor:
        kept = [x]
        for _ in range(50):
            kept.append(kept[-1] * 2)
        last = kept[-1]
        return last + kept[0]

    limit_real_values(Limits())
    assert values_at_the_end(all_kept, ones)["last"][0].item() == 2.0**50
    held: list[int] = []
    original = GraphRun.run_missing

    def run_missing(self: GraphRun, *arguments: Any) -> None:
        original(self, *arguments)
        held.append(self._bytes)

    monkeypatch.setattr(GraphRun, "run_missing", run_missing)

    def look(frame: TracedFrame) -> None:
        if frame.code.co_name in ("fn", "all_kept"):
            for _, node in tensors_of(frame):
                frame.real_value(node)

    observe(lambda compiled: [compiled(fn)(ones)], watch=look)
    assert max(held) <= 6 * ones.nbytes
    held.clear()
    observe(lambda compiled: [compiled(all_kept)(ones)], watch=look)
    assert max(held) >= 50 * ones.nbytes
