"""Line tables: which lines have code, checked against what really runs."""

from __future__ import annotations

import json
import sys
import textwrap
import types
import warnings
from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.debuggee.bytecode.line_table import LineTableError, line_table, line_table_of_text

TEXT = textwrap.dedent(
    '''\
    """Module."""
    import os

    @decorate(
        1)
    def outer(a):
        """What it does,

        at length."""
        # a comment
        b = [x
             for x in a]

        def inner(): return b
        pick = lambda v: (
            v + 1)
        class Local:
            field = 1
        return inner
        # the end

    # before the class
    class Model:
        """Doc."""
        size: int = 3
        def forward(self):
            try:
                yield 1
            except ValueError:
                pass
            # below the body

        # between methods
        async def later(self): await self
    '''
)


def test_lines_by_function() -> None:
    table = line_table_of_text(TEXT)
    by_name = {function.qualified_name: function for function in table.functions}
    assert set(by_name) == {
        "outer",
        "outer.<locals>.inner",
        "outer.<locals>.<lambda>",
        "Model.forward",
        "Model.later",
    }
    outer = by_name["outer"]
    assert (outer.first_line, table.last_line(outer)) == (4, 20)
    assert outer.lines == {11, 12, 14, 15, 17, 18, 19}
    assert by_name["outer.<locals>.inner"].lines == {14}
    assert 16 in by_name["outer.<locals>.<lambda>"].lines
    assert by_name["Model.forward"].lines == {27, 28, 29, 30}
    assert {2, 4, 6, 23, 25, 26, 34} <= table.module_level_lines
    assert not table.module_level_lines & {7, 11, 18, 28, 30}


def test_a_breakpoint_without_code_moves_down_inside_its_function() -> None:
    table = line_table_of_text(TEXT)
    assert table.next_executable_line(10) == 11
    assert table.next_executable_line(11) == 11
    assert table.next_executable_line(13) == 14
    assert table.next_executable_line(20) is None, "must not leave the function"
    assert table.next_executable_line(31) is None, "a comment indented as the body belongs to the function"
    assert table.next_executable_line(22) == 23
    assert table.next_executable_line(33) == 34
    assert table.next_executable_line(99) is None


def test_function_at() -> None:
    table = line_table_of_text(TEXT)

    def name_at(line: int) -> str | None:
        function = table.function_at(line)
        return function.qualified_name if function else None

    assert name_at(2) is None
    assert name_at(5) == "outer", "decorator lines belong to the function"
    assert name_at(14) == "outer.<locals>.inner"
    assert name_at(16) == "outer.<locals>.<lambda>"
    assert name_at(20) == "outer"
    assert name_at(25) is None
    assert [function.qualified_name for function in table.functions_running(14)] == ["outer", "outer.<locals>.inner"]


def test_statement_starts() -> None:
    starts = line_table_of_text(TEXT).statement_starts
    assert {2, 4, 6, 11, 14, 15, 17, 19, 27, 28, 29, 30} <= starts
    assert not starts & {5, 12, 16, 20}
    case = line_table_of_text("match 1:\n    case 1 | 2:\n        pass\n")
    assert case.statement_starts == {1, 2, 3}


def test_every_line_that_runs_is_in_the_table() -> None:
    """The truth by another way: the ``line`` events of real calls, against the tables of the files they are in."""
    seen: dict[str, set[tuple[str, int]]] = {}

    def tracer(frame: types.FrameType, event: str, _argument: Any) -> Any:
        code = frame.f_code
        if event == "line" and not code.co_filename.startswith("<") and Path(code.co_filename).is_file():
            seen.setdefault(code.co_filename, set()).add((code.co_name, frame.f_lineno))
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        json.dumps(json.loads('{"a": [1, 2.5, null, "x"]}'), indent=2, sort_keys=True)
        textwrap.fill("a few words " * 30, 40)
        dict_of_warnings = warnings.WarningMessage("m", UserWarning, "f", 1)
        str(dict_of_warnings)
    finally:
        sys.settrace(before)
    assert len(seen) >= 3
    for path, lines in seen.items():
        table = line_table(path)
        for name, line in lines:
            assert line in table.executable_lines, f"{path}:{line} ran"
            assert table.next_executable_line(line) == line
            names = {function.qualified_name.rpartition(".")[2] for function in table.functions_running(line)}
            assert name in names or name.startswith("<"), f"{path}:{line} ran in {name}, table says {names}"


def test_whole_standard_library() -> None:
    directory = Path(textwrap.__file__).parent
    paths = [*directory.glob("*.py"), *(directory / "asyncio").glob("*.py"), *(directory / "email").glob("*.py")]
    assert len(paths) > 150
    for path in paths:
        table = line_table(str(path))
        assert table.executable_lines or not path.read_text("utf-8").strip() or not table.functions
        for function in table.functions:
            assert all(function.first_line <= line <= table.last_line(function) for line in function.lines), (
                path,
                function,
            )
            assert table.function_at(function.first_line) is not None


def test_the_next_line_with_code_is_in_the_same_function() -> None:
    """Found from a function alone as from the whole file."""
    directory = Path(textwrap.__file__).parent
    for path in [*directory.glob("[a-h]*.py"), *(directory / "asyncio").glob("*.py")]:
        table = line_table(str(path))
        for line in range(1, len(path.read_text("utf-8").splitlines()) + 2):
            function = table.function_at(line)
            candidates = function.lines if function is not None else table.module_level_lines
            expected = min((one for one in candidates if one >= line), default=None)
            found = table.next_executable_line(line)
            assert found == (line if line in table.executable_lines else expected), (path, line)


def test_the_line_of_a_breakpoint_near_a_lambda() -> None:
    """A lambda has no head from which a breakpoint would move into it."""
    table = line_table_of_text(
        "values = [1]\n"
        "results = list(map(lambda v:\n"
        "    v * 2,\n"
        "    values))\n"
        "@decorated(\n"
        "    lambda v: (\n"
        "        v * 2\n"
        "    )\n"
        ")\n"
        "def function(x):\n"
        "    return x\n"
    )
    lines = {line: table.line_of_breakpoint(line) for line in (1, 2, 3, 5, 7, 10, 11)}
    assert lines == {1: 1, 2: 2, 3: 3, 5: 11, 7: 7, 10: 11, 11: 11}


def test_cache_follows_the_file(tmp_path: Path) -> None:
    path = tmp_path / "changing.py"
    path.write_text("x = 1\n")
    first = line_table(str(path))
    assert line_table(str(path)) is first
    path.write_text("\n\ny = 22\n")
    assert line_table(str(path)).executable_lines == {3}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"def f(:\n", "line 1: invalid syntax"),
        (b"x = 1\n\0\n", "null byte"),
        (b"# coding: no-such-code\n", "encoding"),
        (b"x = '\xff'\n", "encoding"),
        (b"x = " + b"(" * 5000 + b")" * 5000, "nested"),
    ],
)
def test_bad_files_say_why(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.py"
    path.write_bytes(content)
    with pytest.raises(LineTableError, match=message):
        line_table(str(path))


def test_missing_file() -> None:
    with pytest.raises(LineTableError, match=r"cannot read /no/such/file\.py: No such file"):
        line_table("/no/such/file.py")


def test_declared_encoding(tmp_path: Path) -> None:
    path = tmp_path / "latin.py"
    path.write_bytes("# coding: latin-1\nname = 'é'\n".encode("latin-1"))
    assert line_table(str(path)).executable_lines == {2}


def test_compiling_warns_nobody_and_leaves_the_filters_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        filters = list(warnings.filters)
        table = line_table_of_text("x = '\\d'\ny = x is 3\nassert (x, 'always')\n")
        assert list(warnings.filters) == filters
    assert caught == []
    assert table.executable_lines == {1, 2, 3}
    assert capsys.readouterr().err == ""


def test_warnings_as_errors_do_not_make_it_fail() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert line_table_of_text("x = '\\d'\n").executable_lines == {1}
