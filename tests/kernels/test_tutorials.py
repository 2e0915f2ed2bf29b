"""Kernels of the kinds that Triton's tutorials have: each stepped line by line, its values compared with NumPy's."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is an extra of the package, and is not installed")

from tests.client import Fixture, Session, zygote
from tests.client.session import Frame, Stop

TUTORIALS = Fixture("triton_programs/tutorials")
OPTIONS = {"triton": "interpret", "python": zygote.python(TRITON_INTERPRET="1")}
Numbers = Any
"""An array of NumPy's."""


def numbers(*shape: int) -> Numbers:
    """What the program computes with."""
    return np.sin(np.arange(int(np.prod(shape)), dtype=np.float32) * np.float32(0.7)).reshape(shape)


def softmax(x: Numbers) -> Numbers:
    exponents = np.exp(x - x.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


def normal(x: Numbers) -> Numbers:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def normal_backward(x: Numbers, dy: Numbers, weight: Numbers) -> Numbers:
    weighted, of_x = weight * dy, normal(x)
    along = (of_x * weighted).mean(-1, keepdims=True)
    return (weighted - of_x * along - weighted.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def attention() -> Numbers:
    q, k, v = numbers(8, 4), numbers(8, 4) + 0.5, numbers(8, 4) - 0.25
    return softmax(q @ k.T * 0.5) @ v


KERNELS: dict[str, tuple[str, Callable[[], Numbers]]] = {
    "softmax": ("result", lambda: softmax(numbers(3, 6))[0]),
    "matmul": ("total", lambda: (numbers(8, 8) @ numbers(8, 8))[:4, :4]),
    "layer_norm": ("centred", lambda: (numbers(2, 6) - numbers(2, 6).mean(1, keepdims=True))[0]),
    "layer_norm_backward": ("dx", lambda: normal_backward(numbers(2, 6), numbers(2, 6), numbers(6))[0]),
    "grouped": ("product", lambda: numbers(4, 4) @ numbers(4, 4)),
    "attention": ("result", lambda: attention()[:4]),
    "atomic_sum": ("part", lambda: np.sum(numbers(20)[:8])),
    "row_sum": ("result", lambda: np.sum(numbers(18)[:7])),
    "half": ("x", lambda: numbers(4, 4)[2:]),
}
"""By the marker at the end of a kernel: a variable there, and what it is in the first program."""
OTHERS: dict[str, tuple[Fixture, str, str, Callable[[], Numbers]]] = {
    "add_kernel": (
        *(Fixture("triton_programs/vector_add"), "store", "total"),
        lambda: np.arange(4, dtype=np.float32) + np.ones(4, dtype=np.float32) * 6,
    ),
    "double_kernel": (Fixture("triton_programs/out_of_bounds"), "store", "x", lambda: np.ones(8, dtype=np.float32)),
}
"""Kernels of other programs: the program, the marker at the end, a variable there, and what it is."""


def data_of(frame: Frame, name: str) -> Numbers:
    """The elements of a block, as *Variables* shows them in pages."""
    variable = frame["Locals"][name]
    if "[" not in variable.text:
        return float(variable.text.partition(" = ")[2])
    rows = {name: row for name, row in variable.children.items() if name.isdecimal()}
    found = [[float(each.text) for key, each in row.children.items() if key.isdecimal()] for row in rows.values()]
    return np.array(found if any(found) else [float(row.text) for row in rows.values()])


def first_line(marker: str, program: Fixture = TUTORIALS) -> int:
    """The first line of the body of the kernel that has the marker."""
    return lines_of_kernel(marker, program)[0]


def lines_of_kernel(marker: str, program: Fixture = TUTORIALS) -> list[int]:
    """The lines of the statements of the kernel that has the marker."""
    tree = ast.parse(program.path.read_text(encoding="utf-8"))
    line = program.line(marker)
    kernel = next(
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    )
    return sorted(node.lineno for node in ast.walk(kernel) if isinstance(node, ast.stmt) and node is not kernel)


def step_through(session: Session, stop: Stop, kernel: str, marker: str) -> set[int]:
    """Step over every line to the marker, and out of the kernel; return the lines that were stopped at."""
    lines, path = set(), stop.frame.path
    name, expected = KERNELS.get(marker, ("", None)) if path == TUTORIALS.path else OTHERS[kernel][2:]
    for _ in range(60):
        if stop.frame.name != kernel:
            break
        lines.add(stop.frame.line)
        if stop.marker == marker and expected is not None:
            found, wanted = data_of(stop.frame, name), expected()
            size = np.size(wanted)
            # Lanes behind the last number are masked.
            found = found if np.ndim(wanted) != 1 else found[:size]
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=marker)
            expected = None
        session.resume("next")
        # A loop comes back to its first line, which may have the breakpoint.
        stop = session.wait_for_stop()
    assert expected is None, f"{kernel} did not come to {marker}"
    assert (stop.frame.path, stop.reason) == (path, "step")
    return lines


def test_each_kernel_is_stepped_line_by_line(session: Session) -> None:
    markers = [*KERNELS, "dropout"]
    session.launch(TUTORIALS, *map(first_line, markers), **OPTIONS)
    seen = []
    for _ in markers:
        stop = session.wait_for_stop("breakpoint")
        kernel = stop.frame.name
        marker = kernel.removesuffix("_kernel")
        assert stop.frame.line == first_line(marker)
        program = stop.frame["Program"].texts()
        assert (program["kernel"], program["program_id(0)"]) == (kernel, "0")
        lines = step_through(session, stop, kernel, marker)
        assert lines == set(lines_of_kernel(marker)), marker
        seen.append(marker)
        session.resume()
    assert session.wait_for_exit() == 0
    assert sorted(seen) == sorted(markers)
    results = session.output("stdout").split()
    assert len(results) == 2 * 9
    assert set(results[1::2]) == {"True"}


@pytest.mark.parametrize("kernel", OTHERS)
def test_the_kernels_of_other_programs_are_stepped_line_by_line(session: Session, kernel: str) -> None:
    program, marker, _, _ = OTHERS[kernel]
    session.launch(program, first_line(marker, program), **OPTIONS)
    stop = session.wait_for_stop("breakpoint")
    assert step_through(session, stop, kernel, marker) == set(lines_of_kernel(marker, program))
    session.set_breakpoints(program)
    assert session.finish() == 0


def test_values_are_shown_as_what_they_are(session: Session) -> None:
    session.launch(TUTORIALS, "matmul", "dropout", "grouped", "half", **OPTIONS)
    frame = session.wait_for_stop("breakpoint", at="matmul").frame
    values, facts = frame["Locals"], frame["Program"].texts()
    assert values["a"].text == "f32[4, 4]"
    assert values["a_ptr"].text == "pointer f32 into a_ptr: 0"
    assert values["a"]["shape"].text == "[4, 4]"
    assert (facts["kernel"], facts["program_id(1)"], facts["num_programs(1)"]) == ("matmul_kernel", "0", "2")
    assert facts["BK"] == "4"
    assert facts["c_ptr"].startswith("Tensor f32[8, 8] cpu ")

    frame = session.continue_to_stop(at="dropout").frame
    out, x = data_of(frame, "out"), data_of(frame, "x")
    assert set(out) == {0.0, 2.0}
    assert set(x) == {1.0}
    assert frame["Locals"]["is_kept"].text == f"i1[8]: {int((out > 0).sum())} of 8 are true"
    assert frame["Locals"]["seed"].text == "i32 = 123"

    values = session.continue_to_stop(at="grouped").frame["Locals"]
    assert values["a_ptr"].text.startswith("pointer f32 into memory outside")

    session.set_breakpoints(TUTORIALS, "half")
    values = session.continue_to_stop(at="half").frame["Locals"]
    assert values["block"].text == "pointer to a block f32[2, 4] of x_ptr at (2, 0)"
    assert values["narrow"].text.startswith("bf16[2, 4] = [[")
    assert session.finish() == 0


def test_what_is_compiled_computes_the_same(session: Session) -> None:
    session.launch(TUTORIALS, "attention", **OPTIONS, args=["--compiled"])
    stop = session.wait_for_stop("breakpoint", at="attention")
    np.testing.assert_allclose(data_of(stop.frame, "result"), attention()[:4], rtol=1e-4, atol=1e-5)
    assert session.finish() == 0
    results = session.output("stdout").split()
    assert results == [
        word
        for name in ("softmax", "matmul", "layer_norm", "dropout", "attention", "atomic_sum", "row_sum", "half")
        for word in (name, "True")
    ]
