"""Repeats a saved call for ``dynamo-dap replay``, alone or under the debugger.

Runs on the main thread of its own process. This process asks no question: its parent has asked the user.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from dynamo_dap.calls.consent import is_agreed
from dynamo_dap.calls.folder import BadFolder, read_snapshot
from dynamo_dap.debuggee.saved_calls.repeating import RepeatedCall

_MOST = 500
"""Characters of a result that are shown."""


def main(arguments: list[str]) -> int:
    """Repeat the call saved in a folder, and print its result."""
    folder = Path(arguments[0]).resolve()
    try:
        snapshot = read_snapshot(folder)
        call = snapshot.call
        if not is_agreed(snapshot):
            command = shlex.join(["dynamo-dap", "replay", str(folder)])
            sys.stderr.write(f"dynamo-dap: you have not agreed to run the code in {folder}: {command}\n")
            return 2
        result = RepeatedCall(snapshot, lambda text: _report(f"dynamo-dap: {text}")).run()
    except BadFolder as problem:
        sys.stderr.write(f"dynamo-dap: {problem}\n")
        return 2
    _report(f"{call.name} returned {_result_text(result)}")
    return 0


def _report(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _result_text(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
