"""Completes at the prompt: commands, names and attributes, files and lines, breakpoints.

Each function gets an argument's typed text, and returns what to insert and how many characters before the cursor it
replaces. Runs on the prompt's thread.
"""

from __future__ import annotations

import re
from pathlib import Path

from dynamo_dap.protocol.requests.contract import LISTING_FORMS
from dynamo_dap.protocol.wire.types import Source
from dynamo_dap.terminal.breakpoints import find_file
from dynamo_dap.terminal.debugger import Debugger
from dynamo_dap.terminal.functions_in_source import function_names, statement_lines
from dynamo_dap.terminal.scopes import find_reference

Completions = list[tuple[str, int]]


def complete_expression(debugger: Debugger, expression: str) -> Completions:
    """Complete names and attributes of the selected frame, through the server."""
    targets = debugger.client.completions(expression, len(expression) + 1, debugger.frame_id())
    word = re.search(r"\w*$", expression)
    length = len(word[0]) if word else 0
    return [(target.text or target.label, length if target.length is None else target.length) for target in targets]


def complete_path(debugger: Debugger, path: str) -> Completions:
    """Complete names of scopes and locals, or of children behind a slash."""
    *above, begun = path.split("/")
    if above:
        names = [child.name for child in debugger.children(find_reference(debugger, above))]
    else:
        scopes = debugger.scopes()
        names = [scope.name.lower().replace(" ", "_") for scope in scopes]
        names += [child.name for child in debugger.children(scopes[0].variables_reference)] if scopes else []
    return _beginning(names, begun)


def complete_place(debugger: Debugger, place: str) -> Completions:
    """Complete a file, a line after its colon, or a function of the current file; then a condition."""
    words = re.match(r"\S+(?:,|\s+if)\s+(?P<condition>.*)", place)
    if words is not None:
        return complete_expression(debugger, words["condition"])
    path, colon, begun = place.rpartition(":")
    current = debugger.current_path()
    if colon:
        found = find_file(path, current)
        numbers = statement_lines(_lines(debugger, found)) if found is not None else []
        return _beginning([str(number) for number in numbers], begun)
    names = function_names(_lines(debugger, current)) if current is not None else []
    return [*_beginning(sorted(set(names)), place), *_files(place)]


def complete_breakpoints(debugger: Debugger, argument: str) -> Completions:
    """Complete the number of a breakpoint."""
    begun = argument.rpartition(" ")[2]
    return _beginning([str(one.number) for one in debugger.breakpoints.all], begun)


def complete_filters(debugger: Debugger, argument: str) -> Completions:
    """Complete the name of an exception filter."""
    offered = debugger.client.capabilities.exception_breakpoint_filters or []
    return _beginning([one.filter for one in offered], argument.rpartition(" ")[2])


def complete_listing_form(debugger: Debugger, argument: str) -> Completions:  # noqa: ARG001  (as every completion)
    """Complete the forms of generated code."""
    return _beginning(list(LISTING_FORMS), argument)


def _files(begun: str) -> Completions:
    """Complete Python files, and folders to continue with."""
    folder, slash, name = begun.rpartition("/")
    try:
        entries = sorted(Path(folder or slash or ".").expanduser().iterdir())
    except OSError:
        return []
    shown = [f"{entry.name}/" if entry.is_dir() else f"{entry.name}:" for entry in entries if _is_shown(entry)]
    return _beginning(shown, name)


def _is_shown(entry: Path) -> bool:
    return not entry.name.startswith(".") and (entry.suffix == ".py" or entry.is_dir())


def _lines(debugger: Debugger, path: str) -> list[str]:
    return debugger.sources.lines(debugger.client, Source(path=path))


def _beginning(names: list[str], begun: str) -> Completions:
    return [(name, len(begun)) for name in names if name.startswith(begun)]
