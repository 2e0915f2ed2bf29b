"""Generated code in debugpy's memory: it is never the user's, and is freed with what torch drops."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.client import Fixture, Session

DROPS = """\
import gc
import weakref

import torch


def fn(x):
    return x + 1


torch.compile(fn, backend="eager")(torch.ones(2))  #@call
torch.compile(fn, backend="eager")(torch.ones(2))
entries = torch._dynamo.eval_frame._debug_get_cache_entry_list(fn)
compiled = [weakref.ref(entry.code) for entry in entries]
del entries
torch.compiler.reset()
gc.collect()
kept = [one() for one in compiled if one() is not None]
print("kept", kept, "of", len(compiled))  #@end
"""

FROZEN = """\
import gc
import sys

from dynamo_dap.debuggee.eager import pydevd_internals, pydevd_memory
from dynamo_dap.debuggee.torch_api.code_objects import generated_names

pydevd_internals.load()
gc.freeze()
pydevd_memory.install()
code = compile("frame = sys._getframe()", "<generated 0: model.py>", "exec")
generated_names._path_of_name[code.co_filename] = "model.py"
exec(code)
pydb = sys.modules["pydevd"].PyDB
print(pydb.get_file_type(None, frame), pydb.in_project_scope(None, frame))
"""


def test_generated_code_that_torch_drops_is_freed(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "drops.py"
    path.write_text(DROPS, encoding="utf-8")
    program = Fixture(path)
    with session.launching(program):
        session.set_breakpoints(program, "call", "end", mode="eager")
    session.wait_for_stop("breakpoint", at="call")
    session.next()
    session.continue_to_stop(at="end")
    assert session.run_to_end() == 0
    assert "kept [] of 1" in session.output("stdout")


@pytest.mark.parametrize("frozen", [False, True])
def test_generated_code_is_no_users_where_the_collector_is_frozen(frozen: bool) -> None:
    """``gc.freeze()`` hides debugpy's dictionaries from the search for them."""
    program = FROZEN if frozen else FROZEN.replace("gc.freeze()\n", "")
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["1", "False"], ran.stderr
