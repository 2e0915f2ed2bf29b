"""``dynamo-dap doctor``: reports what works in an environment, and what to do about the rest.

Runs a self check in a child process of the program's interpreter. Then debugs a small program with a real server: the
program must stop while Dynamo traces it, and again in a cached call. Runs on the command's main thread.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from dynamo_dap import __version__
from dynamo_dap.protocol.access.consent import visible
from dynamo_dap.protocol.access.own_code import own_code
from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.requests.contract import LOG_VARIABLE, RECORDS_VARIABLE
from dynamo_dap.protocol.wire.local_sockets import address_of, connect_locally, listen_locally
from dynamo_dap.protocol.wire.messages import Event, to_builtins
from dynamo_dap.protocol.wire.types import InitializeRequestArguments, SourceBreakpoint
from dynamo_dap.records.folders import records_base
from dynamo_dap.terminal.client import Client, ServerProcess

_SELF_CHECK = "dynamo_dap.debuggee.torch_api.self_check"
_ASK = own_code(f"from {_SELF_CHECK} import main; main()", here=False)
_ASK_SECONDS = 180
_ANSWER = 1024 * 1024
"""Maximum bytes that are read from an interpreter's output."""
_SESSION_SECONDS = 120
_OLDEST_TORCH = (2, 12)
_PROGRAM = """\
import torch


@torch.compile(backend="eager")
def double(x):
    y = x * 2
    return y


double(torch.ones(2))
double(torch.ones(2) * 3)
"""
_LINE = 7
_OLDEST_DEBUGPY = (1, 8, 20)
_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_PTRACE_SCOPES = {
    "0": "may attach to your processes",
    "1": "may attach to processes that they start",
    "2": "may attach only as root",
    "3": "may not attach",
}
_EXTENSION = "dynamo-dap.dynamo-dap-"
_EXTENSION_FOLDERS = (
    ".vscode/extensions",
    ".vscode-insiders/extensions",
    ".vscode-oss/extensions",
    ".vscode-server/extensions",
    ".vscode-server-insiders/extensions",
    ".vscodium-server/extensions",
    ".cursor/extensions",
    ".cursor-server/extensions",
    ".windsurf/extensions",
    ".local/share/code-server/extensions",
)
_NO_EXECUTION = getattr(os, "ST_NOEXEC", 0)
_MARKS = {"ok": "✓", "warning": "!", "problem": "✗"}


class Check(msgspec.Struct):
    """The result of one check: ``ok``, ``warning`` or ``problem``."""

    name: str
    result: str
    text: str
    advice: str | None = None


class JsonDoctor(msgspec.Struct, rename="camel"):
    """What ``dynamo-dap doctor --json`` prints."""

    version: str
    checks: list[Check]


class _Facts(msgspec.Struct, rename="camel"):
    """The output of ``_SELF_CHECK``."""

    python: str
    executable: str
    free_threaded: bool
    packages: dict[str, str | None]
    torch_problem: str | None
    features: int
    off: list[str]
    cache_folder: str | None = None


def main(arguments: list[str]) -> int:
    """Print what works; return 1 if something does not."""
    options = _parser().parse_args(arguments)
    checks = []
    for check in _checks(options.python):
        checks.append(check)
        if not options.json:
            _print(check)
    if options.json:
        sys.stdout.write(msgspec.json.encode(JsonDoctor(__version__, checks)).decode() + "\n")
    problems = sum(check.result == "problem" for check in checks)
    if not options.json:
        sys.stdout.write(f"\n{problems or 'No'} {'problem' if problems == 1 else 'problems'} found.\n")
    return 1 if problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dynamo-dap doctor",
        description="Report what works in an environment and what does not. Paste the output into bug reports.",
    )
    parser.add_argument("--python", default=sys.executable, help="the program's interpreter; default: this one")
    parser.add_argument("--json", action="store_true", help="print JSON: one object")
    return parser


def _print(check: Check) -> None:
    # Folder names and an interpreter's output can contain control characters.
    sys.stdout.write(f"{_MARKS[check.result]} {check.name}: {visible(check.text)}\n")
    for line in (check.advice or "").splitlines():
        sys.stdout.write(f"    {visible(line.strip())}\n")
    sys.stdout.flush()


# -- the checks --------------------------------------------------------------------------------------------------------


def _checks(python: str) -> Iterator[Check]:
    yield Check("dynamo-dap", "ok", f"{__version__} in {Path(__file__).resolve().parents[1]}")
    facts, problem = _asked(python)
    if facts is None:
        yield Check(
            "Python", "problem", problem, "Choose another interpreter, or install the wheel of dynamo-dap there."
        )
        return
    yield _python(facts)
    yield from _torch(facts)
    yield _package(facts, "debugpy", "debugs ordinary Python", is_needed=True)
    yield _package(facts, "triton", "lets you debug Triton kernels", is_needed=False)
    yield _compiler()
    yield _connections()
    yield _ptrace(_PTRACE_SCOPE)
    yield _folder("records", records_base(), RECORDS_VARIABLE)
    if facts.cache_folder is not None:
        yield _cache(Path(facts.cache_folder))
    yield _editor(Path.home())
    if facts.packages.get("torch") is not None and facts.torch_problem is None:
        yield _session(python)


def _asked(python: str) -> tuple[_Facts | None, str]:
    """Run ``_SELF_CHECK`` in the interpreter; return its facts and "", or None and the problem."""
    # Files, because a process that the interpreter leaves behind may keep a pipe open forever.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            run = subprocess.run(
                [python, "-c", _ASK],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                timeout=_ASK_SECONDS,
                check=False,
            )
        except (OSError, ValueError) as error:
            return None, f"{python} cannot be run: {getattr(error, 'strerror', None) or error}"
        except subprocess.TimeoutExpired:
            return None, f"{python} imported torch for over {_ASK_SECONDS} s"
        answered, refusal = _last_line(output), _last_line(errors)
    try:
        return msgspec.json.decode(answered, type=_Facts), ""
    except msgspec.DecodeError:
        return None, f"{python} cannot run dynamo-dap: {refusal or f'exit status {run.returncode}'}"


def _last_line(file: BinaryIO) -> str:
    file.seek(max(file.seek(0, os.SEEK_END) - _ANSWER, 0))
    return file.read().decode(errors="replace").strip().rpartition("\n")[2]


def _python(facts: _Facts) -> Check:
    text = f"{facts.python} ({facts.executable})"
    if facts.free_threaded:
        return Check("Python", "problem", text, "The free-threaded build is not supported. Use the ordinary build.")
    return Check("Python", "ok", text)


def _torch(facts: _Facts) -> Iterator[Check]:
    version = facts.packages.get("torch")
    if version is None:
        yield Check("torch", "problem", "not installed", f"Run: {facts.executable} -m pip install torch")
        return
    if facts.torch_problem is not None:
        yield Check("torch", "problem", f"{version} cannot be imported: {facts.torch_problem}", "Install it again.")
        return
    if _numbers(version) < _OLDEST_TORCH:
        oldest = ".".join(map(str, _OLDEST_TORCH))
        yield Check("torch", "warning", version, f"It is older than {oldest}, the oldest supported version.")
    else:
        yield Check("torch", "ok", version)
    if facts.off:
        yield Check("features", "warning", f"{len(facts.off)} are off in this torch", "\n    ".join(facts.off))
    else:
        yield Check("features", "ok", f"torch has all {facts.features} private names that the debugger uses")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("+", maxsplit=1)[0].split(".")[:3] if part.isdigit())


def _package(facts: _Facts, name: str, use: str, *, is_needed: bool) -> Check:
    version = facts.packages.get(name)
    if version is not None and name == "debugpy" and _numbers(version) < _OLDEST_DEBUGPY:
        oldest = ".".join(map(str, _OLDEST_DEBUGPY))
        advice = f"It is older than {oldest}. Run: {facts.executable} -m pip install --upgrade debugpy"
        return Check(name, "warning", version, advice)
    if version is not None:
        return Check(name, "ok", version)
    advice = f"It {use}. Run: {facts.executable} -m pip install {name}"
    return Check(name, "problem" if is_needed else "warning", "not installed", advice)


def _compiler() -> Check:
    named = os.environ.get("CXX")
    found = next((path for path in map(shutil.which, filter(None, (named, "g++", "clang++", "c++"))) if path), None)
    if found is not None:
        return Check("C++ compiler", "ok", found)
    return Check("C++ compiler", "warning", "not found", "Inductor needs one for programs on the CPU: install g++.")


def _connections() -> Check:
    try:
        with listen_locally() as listening:
            connect_locally(*address_of(listening), timeout=10).close()
    except OSError as error:
        return Check("connections", "problem", str(error), "The debugger's processes must connect to each other.")
    return Check("connections", "ok", "the debugger's processes can connect to each other")


def _ptrace(scope_file: Path) -> Check:
    """Report who may attach a native debugger; dynamo-dap itself never needs to."""
    try:
        scope = scope_file.read_text(encoding="utf-8").strip()
    except OSError:
        return Check("ptrace", "ok", "dynamo-dap does not need it; this system states no limit for gdb and py-spy")
    limit = _PTRACE_SCOPES.get(scope, "have a limit that dynamo-dap does not know")
    return Check("ptrace", "ok", f"dynamo-dap does not need it; gdb and py-spy {limit} (ptrace_scope {scope})")


def _folder(name: str, folder: Path, variable: str) -> Check:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return Check(name, "problem", f"{folder}: {error.strerror or error}", f"Set {variable} to another folder.")
    return Check(name, "ok", str(folder))


def _cache(folder: Path) -> Check:
    """Check the folder where Inductor writes compiled kernels, which it loads as libraries."""
    variable = "TORCHINDUCTOR_CACHE_DIR"
    check = _folder("compile cache", folder, variable)
    if check.result == "ok" and os.statvfs(folder).f_flag & _NO_EXECUTION:
        advice = f"Inductor cannot load its kernels from there. Set {variable} to a folder on another file system."
        return Check("compile cache", "problem", f"{folder}: mounted with noexec", advice)
    return check


def _editor(home: Path) -> Check:
    """Look for the extension in the folders of VS Code and its relatives, here and for remote windows."""
    places = [home / folder for folder in _EXTENSION_FOLDERS]
    try:
        if not any(map(Path.is_dir, places)):
            return Check("VS Code", "ok", "not found here; the extension was not looked for")
        found = sorted(path for place in places for path in place.glob(f"{_EXTENSION}*"))
    except OSError as error:
        return Check("VS Code", "warning", f"the extension cannot be looked for: {error.strerror or error}")
    if not found:
        return Check("VS Code", "warning", "the extension is not installed", "Install the .vsix file of the release.")
    versions = {path.name.removeprefix(_EXTENSION) for path in found}
    text = ", ".join(map(str, found))
    if __version__ not in versions:
        return Check("VS Code", "warning", text, f"Install the .vsix file of the same release: {__version__}.")
    return Check("VS Code", "ok", text)


# -- a session ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Seen:
    """A stop: the frame's name, its line, and the sum of ``y`` there, as the debugger shows it."""

    frame: str
    line: int
    total: str


def _session(python: str) -> Check:
    """Debug the program: it must stop in a trace and in a cached call, with each call's values."""
    with tempfile.TemporaryDirectory(prefix="dynamo-dap-doctor-") as folder:
        program = Path(folder) / "program.py"
        program.write_text(_PROGRAM, encoding="utf-8")
        try:
            stops = _stops_of(python, program)
        except (OSError, RequestFailed, TimeoutError, msgspec.DecodeError) as error:
            return Check("a debug session", "problem", str(error), f"Run it again with {LOG_VARIABLE}=FILE for a log.")
    expected = [_Seen("double", _LINE, "4.0"), _Seen("double", _LINE, "12.0")]
    if stops == expected:
        return Check("a debug session", "ok", "stopped in a trace and in a cached call, with the values of each")
    seen = ", ".join(f"{one.frame}:{one.line} with {one.total}" for one in stops) or "no stop"
    return Check("a debug session", "problem", f"expected two stops at line {_LINE}, got: {seen}")


def _stops_of(python: str, program: Path) -> list[_Seen]:
    events: queue.Queue[Event | None] = queue.Queue()
    environment = {**os.environ, RECORDS_VARIABLE: str(program.parent / "records")}
    server = ServerProcess(environment=environment, standard_error=subprocess.DEVNULL)
    client = Client(server.stream, on_event=events.put, on_closed=lambda problem: events.put(None))
    found = []
    try:
        client.initialize(InitializeRequestArguments(adapter_id="dynamo", client_id="doctor", lines_start_at1=True))
        pending = client.begin("launch", {"program": str(program), "python": [python], "cwd": str(program.parent)})
        client.set_breakpoints(program, [SourceBreakpoint(line=_LINE)])
        client.configuration_done()
        pending.result(_SESSION_SECONDS)
        while (thread := _next_stop(events)) is not None:
            frame = client.stack_trace(thread, levels=1).stack_frames[0]
            total = client.evaluate("y.sum().item()", frame.id, "watch").result
            found.append(_Seen(frame.name.split(" ")[0], frame.line, total))
            client.resume("continue", thread)
    finally:
        client.close()
        server.end()
    return found


def _next_stop(events: queue.Queue[Event | None]) -> int | None:
    """Return the thread that stops next; None at the session's end.

    Raises:
        TimeoutError: nothing happened in time.
    """
    while True:
        try:
            event = events.get(timeout=_SESSION_SECONDS)
        except queue.Empty:
            raise TimeoutError(f"the program neither stopped nor ended within {_SESSION_SECONDS} s") from None
        if event is None or event.event == "terminated":
            return None
        if event.event == "stopped":
            return int(to_builtins(event.body)["threadId"])
