"""A condition on data in a library: the stop and the fixes are at the user's line that calls the library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.protocol.requests.sizes import FIXES_SCOPE
from tests.client import Session
from tests.client.environments import alone
from tests.client.fixtures import Fixture
from tests.records.test_graph_break_stops import info_of, launch

pytestmark = pytest.mark.timeout(300)

LIBRARY = """\
def crop(image, size):
    if size > image.shape[0] // 2:
        return image[: image.shape[0] // 2]
    return image
"""

PROGRAM = """\
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "site-packages"))
import cropping
import torch

torch._dynamo.config.capture_scalar_outputs = True


@torch.compile(backend="eager", fullgraph=True)
def fn(x):
    count = (x > 1).sum().item()  #@made
    return cropping.crop(x, count).sum()  #@called


print(fn(torch.arange(6.0)).item())
"""


def test_the_users_line_comes_first(session: Session, tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "cropping.py"
    library.parent.mkdir()
    library.write_text(LIBRARY, encoding="utf-8")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    lines = Fixture(program)
    session.expects_program_traceback = True
    launch(session, program, "unsupported")
    stop = session.wait_for_stop("exception", at="called")
    info: dict[str, Any] = info_of(session, stop)
    assert info["exceptionId"].partition(" [")[0] == "Graph break: Data-dependent condition: count > 3"
    described = info["description"]
    assert f"item at program.py:{lines.line('made')}." in described
    assert "calls crop at cropping.py:2" in described
    assert "In this call: count = 4." in described
    tried = stop.frame[FIXES_SCOPE].texts()
    assert list(tried) == ["torch._check(count > 3)"]
    assert tried["torch._check(count > 3)"].startswith("passes: ")
    session.resume()
    assert session.wait_for_exit() == 1
    fixed = PROGRAM.replace("    return cropping", "    torch._check(count > 3)\n    return cropping")
    program.write_text(fixed, encoding="utf-8")
    assert alone(program).stdout == "3.0\n"
