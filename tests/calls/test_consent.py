"""What ``replay --show`` prints of a forged folder is what would run; the rest is refused by name."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import operator
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from dynamo_dap.calls.consent import (
    _HOMES,
    _PACKAGES,
    _SINGLE,
    agree,
    is_agreed,
    is_allowed_home,
    is_allowed_name,
    shown,
    unusual,
)
from dynamo_dap.calls.folder import (
    VERSION,
    BadFolder,
    Class,
    Conditions,
    Function,
    Named,
    SavedCall,
    Scalar,
    Space,
    Value,
    read_snapshot,
    write_call,
)
from dynamo_dap.commands.saved_calls import replay
from dynamo_dap.debuggee.saved_calls.repeating import RepeatedCall

HARMLESS = "def f(x):\n    return x\n"


def forged(
    folder: Path,
    *values: Value,
    source: str = HARMLESS,
    line: int = 1,
    conditions: Conditions,
    arguments: dict[str, int] | None = None,
) -> Path:
    (folder / "sources").mkdir(parents=True)
    (folder / "sources" / "f.py").write_text(source, newline="")
    table: list[Value] = [Space("program"), Function(0, "f", "f", line, source="sources/f.py"), *values]
    call = SavedCall(VERSION, 1, "f", arguments or {}, conditions, table, {"sources/f.py": "f.py"}, has_data=False)
    write_call(folder, call)
    return folder


EAGER = Scalar("str", "'eager'")


def test_lines_are_numbered_as_python_numbers_them(tmp_path: Path) -> None:
    """A form feed or another separator of str.splitlines has shown harmless lines instead of those that run."""
    source = "#\x0c\x1c\u2028\n\ndef f(x):\n    return 'runs'\ndef g(x):\n    return 'harmless'\n"
    snapshot = read_snapshot(forged(tmp_path / "call", EAGER, source=source, line=3, conditions=Conditions(2)))
    assert "    4      return 'runs'" in shown(snapshot)
    assert "harmless" not in shown(snapshot)


def test_control_characters_are_visible(tmp_path: Path) -> None:
    source = "def f(x):\n    return '\x1b[2K'  # \u202e\n"
    text = shown(read_snapshot(forged(tmp_path / "call", EAGER, source=source, conditions=Conditions(2))))
    assert "\x1b" not in text
    assert "\\x1b[2K'  # \\u202e" in text


@pytest.mark.parametrize(
    ("module", "name"),
    [("os", "system"), ("torch", "load"), ("builtins", "eval"), ("subprocess", ""),
     ("torch.utils.cpp_extension", "load_inline"), ("operator", "methodcaller"), ("torch", "ops.load_library"),
     ("dataclasses", "_create_fn"), ("typing", "_eval_type"), ("typing", "get_type_hints"),
     ("typing", "ForwardRef._evaluate"), ("collections", "namedtuple.__globals__.get"), ("math", "sqrt.__self__"),
     ("enum", "EnumMeta.__call__.__code__.replace"), ("torch", "ops.load_library.__globals__.get"),
     ("torch", "os.system"), ("torch", "ops.aten.add.__globals__"), ("torch.nn.functional", "importlib.import_module"),
     ("numpy", "test"), ("torch", "PyTorchFileWriter"), ("torch._jit_internal", "createResolutionCallbackFromEnv"),
     ("torch.nn.utils._deprecation_utils", "lazy_deprecated_import"), ("torch.utils._pytree", "enum_object_hook"),
     ("torch.utils._pytree", "treespec_loads")],
)  # fmt: skip
def test_a_callable_outside_the_list_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], module: str, name: str
) -> None:
    folder = forged(tmp_path / "call", EAGER, Named(module, name), conditions=Conditions(2))
    full = f"{module}.{name}".rstrip(".")
    assert full in shown(read_snapshot(folder))
    assert replay(["--agree", str(folder)]) == 2
    assert full in capsys.readouterr().err


def test_a_setting_that_is_a_program_is_refused_and_shown(tmp_path: Path) -> None:
    conditions = Conditions(2, settings={"_inductor.cpp.cxx": 3, "_dynamo.recompile_limit": 4})
    values = EAGER, Scalar("str", "'/tmp/script'"), Scalar("int", "5")
    snapshot = read_snapshot(forged(tmp_path / "call", *values, conditions=conditions))
    assert unusual(snapshot.call) == ["_inductor.cpp.cxx"]
    assert "_inductor.cpp.cxx = '/tmp/script'" in shown(snapshot)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([Space("m", names={"__file__": 2})], "__file__"),
        ([Function(0, "f", "f", 1)], "no source file"),
        ([Function(0, "f", "f", 2, source="sources/f.py")], "at line 2"),
        ([Named("typing"), Function(3, "_eval_type", "Any", 1)], "does not end with the name"),
        ([Class(0, "C", 1, "sources/f.py")], "has no C"),
        ([Class(0, "f", 1, "sources/f.py", names={"a=print()": 2})], "an invalid name"),
    ],
)
def test_code_that_could_not_be_shown_is_refused(tmp_path: Path, values: list[Value], expected: str) -> None:
    with pytest.raises(BadFolder, match=expected):
        read_snapshot(forged(tmp_path / "call", EAGER, *values, conditions=Conditions(2)))


def test_a_source_that_nests_too_deep_is_refused(tmp_path: Path) -> None:
    source = f"def f(x):\n    return {'-' * 100_000}1\n"
    with pytest.raises(BadFolder, match=r"is not Python: \w"):
        read_snapshot(forged(tmp_path / "call", EAGER, source=source, conditions=Conditions(2)))


def test_a_folder_that_changes_after_it_was_shown_is_not_agreed_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = forged(tmp_path / "call", EAGER, conditions=Conditions(2))
    before = read_snapshot(folder)
    (folder / "sources" / "f.py").write_text("def f(x):\n    return 'another'\n")
    assert replay(["--agree", "--content", before.digest, str(folder)]) == 2
    assert "has changed" in capsys.readouterr().err
    agree(before)
    assert is_agreed(before)
    assert not is_agreed(read_snapshot(folder))


def test_code_of_an_installed_package_is_named(tmp_path: Path) -> None:
    values = EAGER, Named("torch.nn.functional"), Function(3, "relu", "relu", 1)
    text = shown(read_snapshot(forged(tmp_path / "call", *values, conditions=Conditions(2))))
    assert "Code of an installed package: torch.nn.functional.relu" in text


@pytest.mark.parametrize(
    ("home", "name", "is_allowed"),
    [
        ("posix", "system", False),
        ("os", "system", False),
        ("builtins", "eval", False),
        ("typing", "ForwardRef", False),
        ("torch.serialization", "load", False),
        ("torch.nn.utils._deprecation_utils", "lazy_deprecated_import", False),
        ("builtins", "len", True),
        ("_functools", "partial", True),
        ("torch._lowrank", "svd_lowrank", True),
    ],
)
def test_an_object_is_judged_by_where_it_is_from(home: str, name: str, *, is_allowed: bool) -> None:
    assert is_allowed_home(home, name) is is_allowed


def test_options_after_the_folder_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = forged(tmp_path / "call", EAGER, conditions=Conditions(2))
    replay([str(folder), "--show"])
    assert "Content: " in capsys.readouterr().out


RUNS_TEXTS = ("exec", "eval", "__import__", "import_module", "open", "run_path", "run_module")
KNOWN = {"namedtuple", "interpolate", "pad", "max_pool3d_with_indices"}
"""The first evaluates names that it has checked; the others import a module of torch that they name."""


def _functions_of_the_list() -> Iterator[tuple[str, str, FunctionType]]:
    modules = {*_HOMES, *_SINGLE, *_PACKAGES}
    for name in _PACKAGES:
        modules |= {each.name for each in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}.")}
    for module in sorted(modules):
        with contextlib.suppress(ImportError):
            for name, value in vars(importlib.import_module(module)).items():
                function = inspect.unwrap(value) if callable(value) else value
                if isinstance(function, FunctionType) and is_allowed_name(module, name):
                    yield module, name, function


def test_no_function_of_the_list_runs_or_imports_what_a_text_names() -> None:
    """What is called with which arguments is not shown: one such function would run anything."""
    checked, found = 0, set()
    for module, name, function in _functions_of_the_list():
        if is_allowed_home(function.__module__, name) and name not in KNOWN:
            checked += 1
            inner = (each for each in function.__code__.co_consts if isinstance(each, CodeType))
            used = set(function.__code__.co_names).union(*(each.co_names for each in inner))
            found |= {f"{module}.{name}" for each in RUNS_TEXTS if each in used}
    assert checked > 500
    assert not found


def test_code_of_a_package_is_that_of_its_name(tmp_path: Path) -> None:
    """A function inside of operator.attrgetter reads any attribute, and is not a function of operator."""
    line = next(at for at, text in enumerate(inspect.getsource(operator).splitlines(), 1) if "def func(obj):" in text)
    values = EAGER, Named("operator"), Function(3, "func", "func", line)
    folder = forged(tmp_path / "call", *values, conditions=Conditions(2), arguments={"x": 4})
    snapshot = read_snapshot(folder)
    assert not unusual(snapshot.call)
    with pytest.raises(BadFolder, match="is not func"):
        RepeatedCall(snapshot, print).run()
