"""What ``make coverage`` counts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.coverage.extension import _numbers, _segments
from tests.coverage.marks import MarkedPackage
from tests.coverage.tables import Counted, tables

_MODULE = '''\
"""A module."""

from __future__ import annotations

import functools
import os
import signal


@functools.lru_cache
def in_a_forked_process(number):
    """Not a statement."""
    match number:
        case 1:
            os._exit(0)
        case 2:
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            return None


class Names:
    """Not a statement."""

    first = 1


for each in (1, 2):
    if os.fork() == 0:
        in_a_forked_process(each)
    os.wait()
try:
    raise ValueError
except TypeError:
    each = 3
except ValueError:
    each = 4
else:
    each = 5
'''
_NOT_RUN = {"        case _:", "            return None", "except TypeError:", "    each = 3", "    each = 5"}


def test_statements_of_forked_and_killed_processes_count(tmp_path: Path) -> None:
    folder = tmp_path / "measured"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""A package."""\n')
    (folder / "module.py").write_text(_MODULE)
    package = MarkedPackage(folder, tmp_path / "marks")
    package.begin()
    subprocess.run([sys.executable, "-c", "import measured.module"], cwd=tmp_path, check=True)
    lines = _MODULE.splitlines()
    executed = {lines[line - 1] for line in package.executed()[folder / "module.py"]}
    statements = {line for line in lines if line.strip() and '"""' not in line and line != "else:"}
    assert statements - executed == _NOT_RUN
    package.end()
    assert not list(folder.rglob("*.pyc"))


def test_a_module_that_changed_is_compiled_again(tmp_path: Path) -> None:
    folder = tmp_path / "measured"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    MarkedPackage(folder, tmp_path / "marks").begin()
    (folder / "__init__.py").write_text("print('changed')")
    command = [sys.executable, "-c", "import measured"]
    assert subprocess.run(command, cwd=tmp_path, check=True, capture_output=True).stdout == b"changed\n"


def test_a_package_counts_the_lines_of_its_modules() -> None:
    rows = list(tables({"debuggee/agent/a.py": Counted(10, 6), "debuggee/agent/b/c.py": Counted(10, 8)}))
    assert "| `debuggee/agent` | 20 | 70 % |" in rows
    assert rows[-1] == "| `debuggee/agent/a.py` | 10 | 60 % |"


def test_a_source_map_is_read() -> None:
    assert list(_numbers("AADhBCgB")) == [0, 0, -1, -16, 1, 16]
    assert list(_segments("AAAA,IACE;;CCDA")) == [(0, 0, 0, 0), (0, 4, 0, 1), (2, 1, 1, 0)]
