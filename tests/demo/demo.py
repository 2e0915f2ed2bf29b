"""``make demo``: a session in the terminal debugger as a person has it, its commands given beforehand.

Runs the command ``dynamo-dap debug`` on a program of ``fixtures/``, with comments between the commands.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).parent


def main() -> int:
    """Run the sessions one after the other; return the first exit code that is not 0."""
    for script in sorted(SCRIPTS.glob("*.session")):
        title, arguments = _head_of(script)
        command = [sys.executable, "-m", "dynamo_dap", "debug", *arguments, "-x", str(script.relative_to(ROOT))]
        shown_title = f"\033[1m{title}\033[0m" if sys.stdout.isatty() else title
        print(f"\n{shown_title}\n\n$ dynamo-dap {' '.join(command[3:])}", flush=True)
        environment = {**os.environ, **({"FORCE_COLOR": "1"} if sys.stdout.isatty() else {})}
        code = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=False).returncode
        if code != 0:
            return code
    return 0


def _head_of(script: Path) -> tuple[str, list[str]]:
    """The title and the arguments, which stand in the first two lines: ``## Title`` and ``## dynamo-dap debug ...``."""
    title, command, *_ = script.read_text(encoding="utf-8").splitlines()
    return title.removeprefix("## "), command.removeprefix("## dynamo-dap debug ").split()


if __name__ == "__main__":
    sys.exit(main())
