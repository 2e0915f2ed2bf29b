"""Runs commands at the same time, and names in the last lines what failed: ``python -m tests.side_by_side A B``.

The first command's output appears at once, the others' when they end. Each command that fails names its failed tests in
lines that begin with ``FAILED``, counts those that it does not name, and says where it has kept what is known of them
in a line that begins with ``KEPT``. These are repeated at the end, since only the end of a long log may be kept.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

_MARK = b"FAILED "
_UNNAMED = re.compile(rb"\.\.\. and (\d+) more")
_KEPT = b"KEPT "
_LISTED = 12
"""Failed tests that the end names, of all commands together: it has at most twenty lines."""


@dataclass(frozen=True)
class _Run:
    command: str
    status: int
    lines: Sequence[bytes]

    def end(self, listed: int) -> list[bytes]:
        """Name at most ``listed`` failed tests, and where more is known of them."""
        distinct = list(dict.fromkeys(self.lines))
        failed = [line for line in distinct if line.startswith(_MARK)]
        unnamed = len(failed[listed:]) + sum(int(found[1]) for found in map(_UNNAMED.fullmatch, self.lines) if found)
        more = [b"... and %d more" % unnamed] if unnamed else []
        kept = [line for line in distinct if line.startswith(_KEPT)]
        return [line + b"\n" for line in (*failed[:listed], *more, *kept)]


def run(commands: Sequence[str]) -> int:
    """Run the commands in shells, and return 0 if all succeed, otherwise 1."""
    printing = threading.Lock()
    with ThreadPoolExecutor(len(commands)) as pool:
        runs = list(pool.map(lambda each: _run(each, printing, is_shown_at_once=each is commands[0]), commands))
    ended = [each for each in runs if each.status]
    for each in ended:
        _write(f"\n{each.command}: exit status {each.status}\n".encode(), *each.end(_LISTED // len(ended)))
    return 1 if ended else 0


def _run(command: str, printing: threading.Lock, *, is_shown_at_once: bool) -> _Run:
    lines: list[bytes] = []
    with subprocess.Popen(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0) as process:
        assert process.stdout is not None
        rest = b""
        while part := process.stdout.read(1 << 16):
            if is_shown_at_once:
                with printing:
                    _write(part)
            *whole, rest = (rest + part).split(b"\n")
            lines += whole
        lines += [rest] if rest else []
    if not is_shown_at_once:
        with printing:
            _write(b"\n", *(line + b"\n" for line in lines))
    return _Run(command, process.returncode, lines)


def _write(*parts: bytes) -> None:
    sys.stdout.buffer.write(b"".join(parts))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
