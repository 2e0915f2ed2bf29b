"""Blocks of two dimensions as heat maps, as *View Tensor* draws them, at stops in kernels."""

from __future__ import annotations

import base64
import math
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is an extra of the package, and is not installed")

from dynamo_dap.protocol.requests.contract import TENSOR, VARIABLE_MENU
from tests.client import Fixture, Session, zygote
from tests.client.session import INITIALIZE, Frame

TUTORIALS = Fixture("triton_programs/tutorials")
OPTIONS = {"triton": "interpret", "python": zygote.python(TRITON_INTERPRET="1")}
NUMBERS = np.sin(np.arange(64, dtype=np.float32) * np.float32(0.7)).reshape(8, 8)
TILE = (NUMBERS @ NUMBERS)[:4, :4]


def drawn(session: Session, **which: Any) -> tuple[list[str], Any]:
    """The kinds of picture offered of what ``which`` names, and the points of the heat map, as numbers."""
    body = session.request(TENSOR, {**which, "show": "picture", "picture": "map"})
    picture = body["picture"]
    points = np.frombuffer(base64.b64decode(picture["data"]), dtype=np.uint8)
    points = points.reshape(picture["height"], picture["width"])
    assert points.max() <= 252, "all are finite"
    return body["pictures"], picture["low"] + points / 252 * (picture["high"] - picture["low"])


def computed(session: Session, frame: Frame, expression: str) -> Any:
    return drawn(session, expression=expression, frameId=frame.data.id)[1]


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_a_block_of_a_kernel_is_a_heat_map(session: Session, how: str) -> None:
    session.launch(TUTORIALS, "matmul", **OPTIONS, args=[] if how == "eager" else ["--compiled"])
    frame = session.wait_for_stop("breakpoint", at="matmul").frame
    block = frame["Locals"]["total"]
    kinds, points = drawn(session, variablesReference=block.variable.variables_reference)
    assert kinds[0] == "map"
    np.testing.assert_allclose(points, TILE, atol=(TILE.max() - TILE.min()) / 252)

    # By expressions: a mask, a pointer by its elements, what is loaded, and the tensor of the launch.
    mask = computed(session, frame, "(rows[:, None] + inner[None, :]) < 8")
    np.testing.assert_array_equal(mask, [[column + row < 4 for column in range(4)] for row in range(4)])
    elements = computed(session, frame, "a_ptr + rows[:, None] * k + columns[None, :]")
    np.testing.assert_allclose(elements, [[row * 8 + column for column in range(4)] for row in range(4)], atol=27 / 252)
    argument = frame["Program"]["b_ptr"].variable.variables_reference
    np.testing.assert_allclose(drawn(session, variablesReference=argument)[1], NUMBERS, atol=2 / 252)

    # It is also of the stop when the kernel is stepped, and is gone with it.
    reference = block.variable.variables_reference
    session.set_breakpoints(TUTORIALS, "half")
    frame = session.continue_to_stop(at="half").frame
    assert session.refusal(TENSOR, {"variablesReference": reference, "show": "picture"})
    _, points = drawn(session, variablesReference=frame["Locals"]["narrow"].variable.variables_reference)
    wanted = 2 * NUMBERS.flatten()[:16].reshape(4, 4)[2:]
    np.testing.assert_allclose(points, wanted, atol=math.ldexp(1, -6))
    assert session.finish() == 0


def test_vs_code_offers_the_view_of_blocks(session: Session) -> None:
    session.initialize(msgspec.structs.replace(INITIALIZE, client_id="vscode"))
    with session.launching(TUTORIALS, **OPTIONS):
        session.set_breakpoints(TUTORIALS, "matmul")
    frame = session.wait_for_stop("breakpoint", at="matmul").frame
    scopes = (frame["Locals"].variable.variables_reference, frame["Program"].variable.variables_reference)
    bodies = [session.request("variables", {"variablesReference": one}) for one in scopes]
    marked = [{each["name"] for each in body["variables"] if VARIABLE_MENU in each} for body in bodies]
    assert {"a", "b", "total", "rows"} <= marked[0]
    assert marked[1] == {"a_ptr", "b_ptr", "c_ptr"}
    assert session.finish() == 0
