"""Run a cross-section of the suite in each way in which a suite may be started.

``_CROSS_SECTION`` has a test of each kind of process that the suite starts: a server over stdio and over TCP, a forked
and a fresh program, ranks, a terminal, a command, a record, a compile with Inductor, a language server, an assistant's
server, a page of the docs, signals.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.structure.sources import ROOT

pytestmark = pytest.mark.long

_WITH_INDUCTOR = "tests/explore/test_explore.py::test_stages_in_a_debug_session"
_CROSS_SECTION = (
    "tests/assistants/test_schemas.py::test_a_schema_is_printed",
    "tests/client/test_zygote.py::test_a_forked_program_finds_what_it_would_find_in_the_real_interpreter",
    "tests/commands/test_paths.py::test_a_bad_path_gives_one_line",
    "tests/docs/test_pages.py::test_a_block_with_commands_is_run_or_says_why_not",
    "tests/eager/test_rank_output.py::test_what_ranks_print_is_left_alone",
    "tests/eager/test_session_control.py::test_pause_in_eager_code",
    "tests/end_to_end/test_hostile_programs.py::test_interrupts_are_reported_as_without_a_debugger",
    "tests/end_to_end/test_scopes.py::test_scopes_and_a_tensor",
    "tests/end_to_end/test_terminal.py::test_ctrl_c_pauses_the_program",
    "tests/end_to_end/test_terminal.py::test_program_arguments_and_its_exit_code",
    _WITH_INDUCTOR,
    "tests/language_server/test_stops.py::test_a_size_can_be_marked_at_the_stop_of_its_recompile",
    "tests/records/test_views.py::test_a_compile_in_progress",
    "tests/server/test_lost_connections.py::test_the_program_ends_with_a_server_that_is_asked_to_end",
    "tests/server/test_own_folder.py",
    "tests/server/test_terminal.py::test_the_end_is_reported_when_the_terminal_is_closed",
    "tests/server/test_tcp.py::test_a_client_needs_the_token_that_was_printed",
)
_DEADLINE = 1500.0
_FILES = ("adapter", "docs", "fixtures", "tests", "pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
_NOT_COPIED = shutil.ignore_patterns("node_modules", "output", "__pycache__")


@dataclass(frozen=True)
class Start:
    """How a run of the suite is started, where that differs from the usual."""

    environment: Mapping[str, str | None] = field(default_factory=dict)
    """Variables; None removes one."""
    prepare: Callable[[], object] | None = None
    """Called in the process before pytest."""
    copy_to: str = "checkout"
    """The folder of the copied checkout below the test's own folder."""
    is_read_only: bool = False
    workers: int = 2
    left_out: frozenset[str] = frozenset()
    """Tests of what fails without us, too."""


def _be_in_the_background() -> None:
    """Ignore interrupts and hang-ups, have no terminal, and let nobody else read what is written."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.setsid()
    os.umask(0o077)


# Differences that do not hide each other's failures share a run, which takes a minute.
_STARTS = {
    "a job in the background, with a strict umask and one worker": Start(
        {"TERM": None}, prepare=_be_in_the_background, workers=1
    ),
    "no home, an open umask, another locale and time zone, spaces in the path, eight workers": Start(
        {
            **dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME")),
            "LC_ALL": "C",
            "LANG": "C",
            # Without these, Python takes UTF-8 in this locale, not ASCII.
            "PYTHONUTF8": "0",
            "PYTHONCOERCECLOCALE": "0",
            "TZ": "Pacific/Chatham",
        },
        prepare=lambda: os.umask(0),
        copy_to="a check out/of ours",
        workers=8,
        # Inductor's templates are not ASCII, and torch reads them in the encoding of the locale.
        left_out=frozenset({_WITH_INDUCTOR}),
    ),
    "a checkout that is read-only": Start(is_read_only=True),
}


@pytest.mark.parametrize("name", _STARTS)
@pytest.mark.timeout(_DEADLINE + 60)
def test_a_cross_section_of_the_suite_passes(name: str, tmp_path: Path) -> None:
    start = _STARTS[name]
    root = tmp_path / start.copy_to  # of its own, so that its failures are not taken for those of this run
    for file in _FILES:
        _copy(ROOT / file, root / file)
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(start.workers), "--dist=worksteal", "-p", "no:randomly"]
    command += ["-o", f"cache_dir={tmp_path / 'cache'}", f"--basetemp={tmp_path / 'base'}"]
    command += [test for test in _CROSS_SECTION if test not in start.left_out]
    if start.is_read_only:
        command = _read_only(root, command)
    environment = {**os.environ, "PYTHONPATH": str(root / "adapter")}
    environment |= {key: value for key, value in start.environment.items() if value is not None}
    for key in [key for key, value in start.environment.items() if value is None]:
        environment.pop(key, None)
    # xdist's workers would think that they belong to this run.
    environment = {key: value for key, value in environment.items() if not key.startswith("PYTEST_")}
    run = subprocess.run(
        command,
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_DEADLINE,
        check=False,
        preexec_fn=start.prepare,
    )
    assert run.returncode == 0, run.stdout[-6000:]


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=_NOT_COPIED)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def _read_only(root: Path, command: list[str]) -> list[str]:
    """Have ``command`` find ``root`` read-only: by its mode bits, and for root by a mount of its own."""
    if os.geteuid() != 0:
        subprocess.run(["chmod", "-R", "a-w", str(root)], check=True)
        return command
    if shutil.which("unshare") is None:
        pytest.skip("root can write everywhere, and there is no unshare to mount a read-only folder")
    mount = 'mount --bind -o ro "$0" "$0" && mount -o remount,bind,ro "$0" && cd "$0" && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", mount, str(root), *command]
