"""Runs typed lines: a command, an expression, a statement, or a block of them.

A line is Python if its first word is not a command, or if the line is a call or an assignment. A variable hides a
command of the same name that pdb lacks. Runs on the prompt's thread.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.terminal.breakpoints import UsageError
from dynamo_dap.terminal.command_table import PDB_NAMES, Command, commands, find
from dynamo_dap.terminal.completion import complete_expression
from dynamo_dap.terminal.debugger import Debugger
from dynamo_dap.terminal.python_text import continues, is_complete, is_python
from dynamo_dap.terminal.scopes import local_variables
from dynamo_dap.terminal.value_commands import evaluate

CONTINUATION = "...      "

_FIRST_WORD = re.compile(r"(?P<name>[A-Za-z_]\w*(?:-call)?|\?)(?P<rest>.*)", re.DOTALL)
_ASSIGNS = re.compile(r"\s*(?:=(?!=)|(?:[-+*/%&|^@]|//|\*\*|<<|>>)=|:=)")
_TAKES_EXPRESSION = ("p", "pp", "whatis")
"""Commands whose argument may follow without a space, as in pdb: p(x)."""
_BYTECODE = "'listing instructions' shows bytecode where generated code is stopped"
_VARIABLES = "'locals' shows the variables, 'scopes' lists further groups"
_INSTEAD = {
    "cache": "'entries' shows torch's cache entries",
    "code": "'entries FUNCTION' shows the code that Dynamo generated, 'll' and 'source FUNCTION' show yours",
    "debug": "'step' steps into a call, 'b FUNCTION' stops in one",
    "dis": _BYTECODE,
    "disas": _BYTECODE,
    "disassemble": _BYTECODE,
    "info": "type 'locals', 'breakpoints', 'threads' or 'where'",
    "inspect": "'expand PATH' and 'pp EXPRESSION' show what is in a value",
    "kill": "'quit' ends the program",
    "vars": _VARIABLES,
    "variables": _VARIABLES,
}
"""The hint for a word that is a command in other debuggers."""


def execute(debugger: Debugger, text: str) -> None:
    """Run a typed line, several commands separated by ``;;``, or a block; an empty line repeats the last.

    Raises:
        UsageError: the command is impossible now.
    """
    text = text.strip() or debugger.prompt.last_line
    if not text:
        return
    debugger.prompt.last_line = text if _is_repeated(text) else ""
    if "\n" in text:
        _execute_block(debugger, text)
        return
    for line in _split(text):
        _execute_line(debugger, line)
    _run_commands_of_breakpoints(debugger)


def complete_line(debugger: Debugger, text: str) -> list[tuple[str, int]]:
    """Complete the text before the cursor: what to insert, and how many characters it replaces."""
    line = text.rpartition(";;")[2].lstrip()
    name, space, argument = line.partition(" ")
    found = find(name) if space else None
    try:
        if found is not None:
            return list(found.complete(debugger, argument)) if found.complete is not None else []
        names = [] if space else [(one.names[0] + " ", len(name)) for one in commands if one.names[0].startswith(name)]
        expression = line.removeprefix("!")
        return [*names, *_in_frame(debugger, expression)] if expression else names
    except (UsageError, RequestFailed, TimeoutError):
        return []


def _in_frame(debugger: Debugger, expression: str) -> list[tuple[str, int]]:
    try:
        return complete_expression(debugger, expression) if debugger.thread_id is not None else []
    except (RequestFailed, TimeoutError):
        return []


def read_block(debugger: Debugger, line: str, read: Callable[[str], str | None], unread: Callable[[str], None]) -> str:
    """Read the rest of the statement that begins with ``line``, up to an empty line or one outside it."""
    found = _find_command(debugger, line.strip())
    if not line.strip() or (found is not None and found[0].complete is not complete_expression):
        return line
    lines = [found[1] if found is not None else line.strip().removeprefix("!").lstrip()]
    while lines[0] and not is_complete(lines):
        further = read(CONTINUATION)
        if further is None:
            break
        if not continues(lines, further):
            # An empty line ends the block; any other line is the next one to run.
            if further.strip():
                unread(further)
            break
        lines.append(further)
    return "\n".join([line, *lines[1:]])


def _execute_line(debugger: Debugger, line: str) -> None:
    line = _replace_alias(debugger, line)
    found = _find_command(debugger, line)
    if found is None:
        _run_python(debugger, line)
        return
    chosen, argument = found
    if chosen.names[0] != "list":
        debugger.prompt.next_listed = None
    chosen.run(debugger, argument)


def _execute_block(debugger: Debugger, text: str) -> None:
    """Run a block of Python as one statement, and other lines one by one."""
    lines = text.split("\n")
    if _find_command(debugger, lines[0]) is None and is_python(text):
        _run_python(debugger, text)
        return
    waiting = lines[::-1]
    while waiting:
        line = waiting.pop()
        if line.strip():
            block = read_block(debugger, line, lambda _: waiting.pop() if waiting else None, waiting.append)
            _execute_line(debugger, block.strip())
            _run_commands_of_breakpoints(debugger)


def _run_commands_of_breakpoints(debugger: Debugger) -> None:
    """Run the commands of the breakpoints that were hit. A new stop replaces the remaining commands by its own."""
    waiting = debugger.prompt.pending_commands
    while waiting:
        _execute_line(debugger, waiting.pop(0))


def _find_command(debugger: Debugger, line: str) -> tuple[Command, str] | None:
    """Split a line into its command and the argument; None for Python."""
    match = _FIRST_WORD.fullmatch(line)
    found = None if match is None else find(match["name"])
    if match is None or found is None:
        return None
    name, rest = match["name"], match["rest"]
    has_argument_at_once = name in _TAKES_EXPRESSION and rest[:1] in ("(", "[", "{", '"', "'")
    if (rest and not rest[0].isspace() and name != "?" and not has_argument_at_once) or _ASSIGNS.match(rest):
        return None
    if name not in PDB_NAMES and is_python(line) and _is_variable(debugger, name):
        return None
    return found, rest.strip()


def _is_variable(debugger: Debugger, name: str) -> bool:
    if debugger.thread_id is None:
        return False
    try:
        return any(variable.name == name for variable in local_variables(debugger))
    except RequestFailed:
        return False


def _run_python(debugger: Debugger, text: str) -> None:
    code = text[1:].strip() if text.startswith("!") else text
    word = code.split(maxsplit=1)[0] if code.split() else ""
    if debugger.thread_id is None:
        raise UsageError(f"unknown command {word!r}: {_advice(word)}; the program {debugger.state.value}")
    try:
        evaluate(debugger, code)
    except RequestFailed as failed:
        if text.startswith("!") or not (code.isidentifier() or not is_python(code)):
            raise
        raise UsageError(f"{failed}, and {word!r} is not a command: {_advice(word)}") from None


def _advice(word: str) -> str:
    """Suggest a command instead of an unknown word."""
    if word in _INSTEAD:
        return _INSTEAD[word]
    similar = difflib.get_close_matches(word, [one.names[0] for one in commands], n=1, cutoff=0.6)
    begun = [one.names[0] for one in commands if len(word) > 1 and one.names[0].startswith(word)]
    meant = [*begun, *similar][:1]
    return f"did you mean '{meant[0]}'? 'help' lists all" if meant else "'help' lists them"


def _is_repeated(text: str) -> bool:
    """Return whether Enter may repeat this. Commands that ask a question or restart the program are not repeated."""
    found = _FIRST_WORD.fullmatch(text.partition("\n")[0])
    command = find(found["name"]) if found is not None else None
    return command is None or command.repeats


def _replace_alias(debugger: Debugger, line: str) -> str:
    """Substitute a line's words into its alias: ``%1``, ``%2``, and ``%*`` for all."""
    name, *words = line.split()
    replaced = debugger.prompt.aliases.get(name)
    if replaced is None:
        return line
    rest = line[len(name) :].strip()
    for number, word in enumerate(words, start=1):
        replaced = replaced.replace(f"%{number}", word)
    return replaced.replace("%*", rest)


def _split(text: str) -> list[str]:
    """Cut a line at ``;;`` outside of strings."""
    if ";;" not in text or text.split(maxsplit=1)[0] == "alias":
        return [text]
    parts, begin, quote = [], 0, ""
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif text.startswith(";;", at) and at >= begin:
            parts.append(text[begin:at])
            begin = at + 2
    parts.append(text[begin:])
    return [part.strip() for part in parts if part.strip()]
