"""Ways to start a program: what it sees of itself is what it sees under the plain interpreter.

Each way is run twice, by the interpreter and by what a server starts in its place. The program prints all that Python
sets up for it. Only a few ways are also run in a session: a server takes seconds.
"""

from __future__ import annotations

import json
import os
import py_compile
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.protocol.requests.contract import ENTRY, LAUNCH_VARIABLE
from tests.client import Session
from tests.client.timeline import DEADLINE

PROBE = """
import atexit, json, os, sys
import sibling  #@here
main = sys.modules["__main__"]
loader, spec = main.__loader__, main.__spec__
print(json.dumps({
    "names": sorted(name for name in vars(main) if name.startswith("__")),
    "attributes": {
        name: repr(getattr(main, name, "absent"))
        for name in ("__name__", "__file__", "__cached__", "__package__", "__doc__", "__annotations__")
    },
    "loader": [getattr(loader, "__name__", type(loader).__name__), getattr(loader, "path", 0)],
    "spec": spec and [spec.name, spec.origin, spec.parent, spec.cached, spec.has_location],
    "builtins": type(main.__builtins__).__name__,
    "is main": globals() is vars(main),
    "argv": sys.argv,
    "command": sys.orig_argv,
    "path": sys.path,
    "flags": repr(sys.flags),
    "options": repr(sys._xoptions),
    "warnings": sys.warnoptions,
    "folder": os.getcwd(),
    "code": sys._getframe().f_code.co_filename,
    "encodings": [sys.stdin.encoding, sys.stdout.encoding, sys.stdout.errors, sys.getfilesystemencoding()],
    "settings": [sys.dont_write_bytecode, sys.pycache_prefix, sys.getrecursionlimit()],
    "hash": hash("a text") if os.environ.get("PYTHONHASHSEED") else 0,
    "input": sys.stdin.read(),
}))
atexit.register(lambda: print(hasattr(main, "__file__"), sys.argv[1:]))
if "exit" in sys.argv:
    sys.exit(3)
if "raise" in sys.argv:
    raise ValueError("this program's own")
"""


@dataclass(frozen=True)
class Start:
    """A command line of Python, in the folder that ``_write`` makes."""

    program: str | None = None
    module: str | None = None
    code: str | None = None
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    """Of the interpreter."""
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = "."
    stdin: str = "typed\n"

    def command(self) -> list[str]:
        """What a user types."""
        if self.program is not None:
            target = [self.program]
        else:
            target = ["-m", self.module] if self.module is not None else ["-c", str(self.code)]
        return [sys.executable, *self.options, *target, *self.arguments]


STARTS = {
    "a script": Start("script.py"),
    "a script with arguments": Start("script.py", arguments=("a", "-b", "--c=d e", "", "-m", "--", "\u00e4")),
    "a script in this folder": Start("./script.py"),
    "a script in a folder": Start("bin/script.py"),
    "a script above": Start("../script.py", folder="bin"),
    "a script by a detour": Start("bin/../script.py"),
    "a script by its whole path": Start("{root}/script.py", folder="bin"),
    "a script by two slashes": Start("{root}//script.py"),
    "a script without a suffix": Start("plain"),
    "a script with another suffix": Start("script.txt"),
    "a script of Windows": Start("window.pyw"),
    "a script with a shebang": Start("shebang.py"),
    "a script with a space": Start("a b/my script.py"),
    "a script with umlauts": Start("\u00fcber.py"),
    "a script in Latin 1": Start("latin.py"),
    "a script with a mark of its encoding": Start("marked.py"),
    "a script of Windows lines": Start("carriage.py"),
    "a script with form feeds": Start("feeds.py"),
    "a script with the name of a module": Start("json_tool/tokenize_.py"),
    "a script that is empty": Start("empty.py"),
    "a script that does not parse": Start("broken.py"),
    "a script with a null byte": Start("null.py"),
    "a script that does not exist": Start("missing.py"),
    "a script that exits": Start("script.py", arguments=("exit",)),
    "a script that raises": Start("script.py", arguments=("raise",)),
    "a link to a script": Start("links/script.py"),
    "a link with a whole path": Start("links/whole.py"),
    "a link to a link": Start("links/twice.py"),
    "a link beside its script": Start("beside.py"),
    "a linked folder": Start("linked/script.py"),
    "a script from a linked folder": Start("script.py", folder="linked"),
    "a link that leads nowhere": Start("links/nowhere.py"),
    "bytecode": Start("compiled.pyc"),
    "bytecode without a suffix": Start("compiled"),
    "bytecode of another Python": Start("other.pyc"),
    "a folder": Start("folder"),
    "a folder by its whole path": Start("{root}/folder", arguments=("a",)),
    "a folder with a slash": Start("folder/"),
    "this folder": Start(".", folder="folder"),
    "a folder of bytecode": Start("folder_of_bytecode"),
    "a folder without a program": Start("bin"),
    "a zip file": Start("app.zip"),
    "a zip file of zipapp": Start("app.pyz", arguments=("a",)),
    "a zip file that raises": Start("app.pyz", arguments=("raise",)),
    "a pex": Start("app.pex", folder="."),
    "a wheel": Start("app-1.0-py3-none-any.whl"),
    "a zip file without a suffix": Start("bin/app"),
    "a link to a zip file": Start("links/app"),
    "a zip file without a program": Start("nothing.zip"),
    "a file that is only called zip": Start("script.zip"),
    "a module": Start(module="script", arguments=("a",)),
    "a module that exits": Start(module="script", arguments=("exit",)),
    "a module that raises": Start(module="script", arguments=("raise",)),
    "a module of a package": Start(module="package.inner"),
    "a package": Start(module="package", arguments=("-x",)),
    "a package's program": Start(module="package.__main__"),
    "a package without a program": Start(module="package.bare"),
    "a namespace package": Start(module="bin"),
    "a module from elsewhere": Start(module="script", folder="bin", environment={"PYTHONPATH": "{root}"}),
    "a module of the standard library": Start(module="base64", arguments=("-e",)),
    "a module that does not exist": Start(module="missing"),
    "a module with its suffix": Start(module="script.py"),
    "a module that is built in": Start(module="sys"),
    "code": Start(code=PROBE, arguments=("a", "-m")),
    "code that exits": Start(code=PROBE, arguments=("exit",)),
    "standard input": Start("-", arguments=("a",), stdin=PROBE),
    "-P": Start("script.py", options=("-P",), environment={"PYTHONPATH": "{root}"}),
    "-P and no sibling": Start("script.py", options=("-P",)),
    "-P with a module": Start(module="script", options=("-P",), environment={"PYTHONPATH": "{root}"}),
    "-P with a zip file": Start("app.pyz", options=("-P",)),
    "-P with code": Start(code=PROBE, options=("-P",)),
    "PYTHONSAFEPATH": Start("script.py", environment={"PYTHONSAFEPATH": "1", "PYTHONPATH": "{root}"}),
    "-I": Start("script.py", options=("-I",), environment={"PYTHONPATH": "{root}"}),
    "-I with a folder": Start("folder", options=("-I",)),
    "-E": Start("script.py", options=("-E",), environment={"PYTHONPATH": "bin", "PYTHONSAFEPATH": "1"}),
    "-s": Start("script.py", options=("-s",)),
    "-O": Start("script.py", options=("-O",)),
    "-OO with bytecode": Start("compiled.pyc", options=("-OO",)),
    "-B -q": Start("script.py", options=("-B", "-q")),
    "-bb": Start("script.py", options=("-bb",)),
    "-W error": Start("script.py", options=("-W", "error::UserWarning")),
    "-X utf8": Start("script.py", options=("-X", "utf8")),
    "-X dev": Start("script.py", options=("-X", "dev", "-X", "own=1")),
    "-u": Start("script.py", options=("-u",)),
    "PYTHONPATH": Start("bin/script.py", environment={"PYTHONPATH": "{root}:missing:"}),
    "PYTHONHASHSEED": Start("script.py", environment={"PYTHONHASHSEED": "7"}),
    "PYTHONIOENCODING": Start("script.py", environment={"PYTHONIOENCODING": "latin-1:replace"}),
    "PYTHONOPTIMIZE": Start("script.py", environment={"PYTHONOPTIMIZE": "1", "PYTHONWARNINGS": "ignore"}),
    "PYTHONPYCACHEPREFIX": Start(module="script", environment={"PYTHONPYCACHEPREFIX": "{root}/cache"}),
    "the locale C": Start("\u00fcber.py", environment={"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with a program of each kind."""
    root = tmp_path_factory.mktemp("starts")
    for name in ("bin", "a b", "json_tool", "folder", "folder_of_bytecode", "links", "package"):
        (root / name).mkdir()
        (root / name / "sibling.py").touch()
    (root / "sibling.py").touch()
    for name in (
        *("script.py", "script.txt", "script.zip", "window.pyw", "plain", "bin/script.py", "a b/my script.py"),
        *("\u00fcber.py", "json_tool/tokenize_.py", "folder/__main__.py", "package/__main__.py", "package/inner.py"),
    ):
        (root / name).write_text(PROBE, encoding="utf-8")
    for name, text in {
        "shebang.py": b"#!/usr/bin/env python\n" + PROBE.encode(),
        "latin.py": b"# coding: latin-1\nname = '\xfc'\nassert len(name) == 1\n" + PROBE.encode(),
        "marked.py": b"\xef\xbb\xbf" + PROBE.encode(),
        "carriage.py": PROBE.replace("\n", "\r\n").encode(),
        "feeds.py": b"\x0c\n" + PROBE.encode().replace(b"\nmain", b"\n\x0cmain"),
        "empty.py": b"",
        "broken.py": b"print(1)\nif\n",
        "null.py": b"print(1)\n\0\n",
        "package/__init__.py": b"",
        "package/bare/__init__.py": b"",
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(text)
    links: dict[str, str | Path] = {
        "links/script.py": "../script.py",
        "links/whole.py": root / "script.py",
        "links/twice.py": "script.py",
        "links/nowhere.py": "missing.py",
        "links/app": "../app.pyz",
        "beside.py": "script.py",
        "linked": "bin",
    }
    for link, target in links.items():
        (root / link).symlink_to(target)
    (root / "links" / "sibling.py").write_text("raise ImportError('of the link')", encoding="utf-8")
    for name in ("compiled.pyc", "compiled", "folder_of_bytecode/__main__.pyc"):
        py_compile.compile(str(root / "script.py"), cfile=str(root / name), doraise=True)
    (root / "other.pyc").write_bytes(b"\0\0\r\n" + (root / "compiled.pyc").read_bytes()[4:])
    with zipfile.ZipFile(root / "app.zip", "w") as archive:
        archive.write(root / "script.py", "__main__.py")
        archive.writestr("sibling.py", "")
    with zipfile.ZipFile(root / "nothing.zip", "w") as archive:
        archive.writestr("sibling.py", "")
    for name in ("app-1.0-py3-none-any.whl", "app.pex", "app.pyz", "bin/app"):
        beginning = b"" if name.endswith(".whl") else b"#!/usr/bin/env python\n"
        (root / name).write_bytes(beginning + (root / "app.zip").read_bytes())
    return root


@dataclass(frozen=True)
class Outcome:
    """What can be seen of a run from outside."""

    status: int
    seen: dict[str, object]
    output: list[str]
    last_error: str


def _run(command: list[str], start: Start, root: Path, **more: str) -> Outcome:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    given = {name: value.format(root=root) for name, value in start.environment.items()}
    # Files of bytecode may be written by neither run before the other.
    ran = subprocess.run(
        command,
        cwd=root / start.folder,
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1", **given, **more},
        input=start.stdin.encode(),
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )
    lines = ran.stdout.decode(errors="replace").splitlines()
    is_reported = lines[:1] and lines[0].startswith("{")
    seen = json.loads(lines.pop(0)) if is_reported else {}
    # Python words it in its own way for a file and for a text.
    errors = ran.stderr.decode(errors="replace").replace("source code string", "source code").splitlines()
    return Outcome(ran.returncode, seen, lines, errors[-1] if errors else "")


def _placed(start: Start, root: Path) -> Start:
    return Start(**{**vars(start), "program": start.program and start.program.format(root=root)})


QUICK = (
    *("a script by a detour", "a link to a script", "bytecode without a suffix", "a pex", "a package", "code"),
    *("a script that raises", "-I"),
)


@pytest.mark.parametrize("name", QUICK)
def test_a_few_ways_to_start(name: str, root: Path) -> None:
    _compare(name, root)


@pytest.mark.parametrize("name", [name for name in STARTS if name not in QUICK])
def test_a_program_sees_what_plain_python_shows_it(name: str, root: Path) -> None:
    _compare(name, root)


def _compare(name: str, root: Path) -> None:
    start = _placed(STARTS[name], root)
    if "-P" in start.options and sys.version_info < (3, 11):
        pytest.skip("this Python has no -P")
    description = {
        kind: value for kind in ("program", "module", "code") if (value := getattr(start, kind)) is not None
    } | {"args": start.arguments}
    expected = _run(start.command(), start, root)
    found = _run([sys.executable, *start.options, ENTRY], start, root, **{LAUNCH_VARIABLE: json.dumps(description)})
    assert found == expected


IN_SESSION = {
    "a script by a detour": "script.py",
    "a script in this folder": "script.py",
    "a link to a script": "script.py",
    "a link beside its script": "script.py",
    "bytecode": "script.py",
    "a folder": "folder/__main__.py",
    "a wheel": None,
    "a package": "package/__main__.py",
    "-P": "script.py",
}


@pytest.mark.parametrize("name", IN_SESSION)
def test_it_is_so_in_a_session_too(session: Session, name: str, root: Path) -> None:
    """With a breakpoint in the file that a user has open."""
    start = _placed(STARTS[name], root)
    start = Start(**{**vars(start), "stdin": ""})
    expected = _run([*start.command()], start, root)
    environment = {name: value.format(root=root) for name, value in start.environment.items()}
    launch: dict[str, Any] = {
        "python": [sys.executable, *start.options],
        "program": start.program,
        "module": start.module,
    }
    launch |= {"args": list(start.arguments), "cwd": str(root / start.folder)}
    launch["env"] = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1", "PYTHONUNBUFFERED": "", **environment}
    path = IN_SESSION[name]
    with session.configuring("launch", launch):
        if path is not None:
            session.set_breakpoints(root / path, "here")
    if path is not None:
        stop = session.wait_for_stop("breakpoint", at="here")
        assert stop.frame.path is not None
        assert stop.frame.path.samefile(root / path)
        session.resume()
    assert session.wait_for_exit() == expected.status
    lines = session.output("stdout").splitlines()
    assert json.loads(lines.pop(0)) == expected.seen
    assert lines == expected.output
