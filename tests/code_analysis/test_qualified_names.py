"""Names of functions as Python 3.11 and newer know them, found in the file for those before."""

from __future__ import annotations

from pathlib import Path
from types import CodeType

import pytest

from dynamo_dap.debuggee.bytecode.line_table import name_in_file, qualified_name

SOURCE = """
import functools

def outer():
    def inner():
        return [i for i in (lambda: (1, 2))()]
    return inner

class Model:
    class Part:
        @functools.lru_cache
        def forward(self):
            return 1
    def forward(self):
        return 2
"""
NAMES = {
    "outer",
    "outer.<locals>.inner",
    "outer.<locals>.inner.<locals>.<lambda>",
    "Model.Part.forward",
    "Model.forward",
}


def _functions(code: CodeType) -> list[CodeType]:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    named = [one for one in inner if one.co_name in {"outer", "inner", "forward", "<lambda>"}]
    return named + [deeper for one in inner for deeper in _functions(one)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "module.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def test_functions_of_a_file(file: Path) -> None:
    functions = _functions(compile(SOURCE, str(file), "exec"))
    assert {name_in_file(one) for one in functions} == NAMES
    assert {qualified_name(one) for one in functions} == NAMES


def test_without_the_file_the_bare_name_is_reported(file: Path) -> None:
    functions = _functions(compile(SOURCE, str(file), "exec"))
    file.write_text("x = 1\n", encoding="utf-8")
    assert {name_in_file(one) for one in functions} == {"outer", "inner", "<lambda>", "forward"}
    file.unlink()
    assert {name_in_file(one) for one in functions} == {"outer", "inner", "<lambda>", "forward"}
