"""Prints the path of a Python that forks programs, for tests in other languages, and keeps it until stdin ends.

``python -m tests.client.forking_python NAME=VALUE...`` takes further variables for the programs. ``zygote`` describes
forked programs. ``PATH -m dynamo_dap`` is a debugger that launches programs with the same Python.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from tests.client import zygote
from tests.client.environments import own_command

_SCRIPT = """\
#!/bin/sh
if [ "$1 $2" = "-m dynamo_dap" ]; then
    shift 2
    exec {debugger} "$@"
fi
exec {python} "$@"
"""


def main() -> None:
    """Print the path, and wait."""
    variables = dict(each.split("=", 1) for each in sys.argv[1:])
    (python,) = zygote.python(**variables)
    path = Path(python).with_name("python-or-debugger")
    path.write_text(
        _SCRIPT.format(python=shlex.quote(python), debugger=shlex.join(own_command(python))), encoding="utf-8"
    )
    path.chmod(0o755)
    sys.stdout.write(f"{path}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
