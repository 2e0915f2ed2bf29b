"""Every test here compiles afresh and leaves no hook behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

import torch
from torch._C._dynamo.eval_frame import get_bytecode_debugger_callback


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    before = sys.gettrace()
    yield
    assert get_bytecode_debugger_callback() is None, "a hook for generated code was left behind"
    assert sys.gettrace() is before, "a trace function was left behind"
    if sys.version_info >= (3, 12):
        assert all(sys.monitoring.get_tool(number) is None for number in (3, 4)), "a tool id was left taken"
