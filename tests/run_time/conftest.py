"""Makes every test begin without compiled code, and end without hooks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType

import pytest

pytest.importorskip("torch")

import torch
from torch._C._dynamo import eval_frame
from torch._C._dynamo.eval_frame import get_bytecode_debugger_callback

_marked: list[CodeType] = []
"""Generated code with a breakpoint marker, which must stay alive: torch keeps its address for ever, and starts its own
debugger for any code at that address."""


@pytest.fixture(autouse=True, scope="session")
def _marked_code_is_kept() -> Iterator[None]:
    register: Callable[[CodeType], None] | None = getattr(eval_frame, "register_breakpoint_code", None)
    with pytest.MonkeyPatch.context() as patch:
        if register is not None:
            patch.setattr(eval_frame, "register_breakpoint_code", lambda code: (_marked.append(code), register(code)))
        yield


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    before = sys.gettrace()
    yield
    assert get_bytecode_debugger_callback() is None, "a hook for generated code was left behind"
    assert sys.gettrace() is before, "a trace function was left behind"
    if sys.version_info >= (3, 12):
        assert all(sys.monitoring.get_tool(number) is None for number in (3, 4)), "a tool id was left taken"
