"""Counts the lines that a program executes: ``python executed.py RESULT PROGRAM [MODULE FUNCTION]``.

Runs in the program's own environment, with no package of ours.
"""

import importlib
import inspect
import json
import runpy
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any


def _lines_of(module: str, function: str) -> tuple[str | None, range]:
    """Return the file of a function and the numbers of its lines."""
    found: Any = importlib.import_module(module)
    for name in function.split("."):
        found = getattr(found, name)
    found = inspect.unwrap(found)
    source, first = inspect.getsourcelines(found)
    return inspect.getsourcefile(found), range(first, first + len(source))


def main() -> None:
    """Run the program and write its lines."""
    result, program, *also = sys.argv[1:]
    sys.path[0] = str(Path(program).parent)
    places: list[tuple[str | None, range]] = [(program, range(1, 1_000_000)), *([_lines_of(*also)] if also else [])]
    counts: Counter[tuple[str, int]] = Counter()

    def at_line(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            counts[frame.f_code.co_filename, frame.f_lineno] += 1
        return at_line

    def at_call(frame: FrameType, event: str, argument: Any) -> Any:
        path = frame.f_code.co_filename
        return at_line if any(path == file and frame.f_code.co_firstlineno in lines for file, lines in places) else None

    sys.argv = [program]
    sys.settrace(at_call)
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        sys.settrace(None)
        with Path(result).open("w") as file:
            json.dump([[path, line, count] for (path, line), count in counts.items()], file)


if __name__ == "__main__":
    main()
