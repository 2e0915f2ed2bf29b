"""Runs the console blocks of a page in a folder of their own, and compares what they print with the page.

A page's blocks, from top to bottom:

- ```` ```python title="train.py" ```` writes a file.
- ```` ```console ```` has commands (``$ dynamo-dap …``, ``$ git …``) with their output. A line ``...`` is any number of
  lines, and ``…`` any text within a line. Seconds, the page's folder and runs of spaces are compared by form only.
- A command may set variables in front (``NAME=value dynamo-dap …``), read a file (``… < FILE``), or what ``printf``
  writes (``printf 'TEXT' | dynamo-dap …``).
- Lines ``(dynamo) …`` are typed into the debugger that the last command started, also in later blocks of the page. Its
  output is compared in order only, since pages leave out the source that each stop shows.
- ``<!-- not run: REASON -->`` above a block says why that is not run. An indented block has no commands.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.client.environments import own_command
from tests.structure.sources import ROOT

HOME = "/project"
_BLOCK = re.compile(r"(?P<above>[^\n]*)\n+^```(?P<language>\w*)(?P<rest>[^\n]*)\n(?P<text>.*?)^```$", re.M | re.S)
_INDENTED = re.compile(r"\n\n(?P<text>(?: {4}[^\n]*\n)+)(?=\n)")
_TITLE = re.compile(r'title="([\w./-]+)"')
_REASON = re.compile(r"<!-- not run: .{10,} -->")
_LOOKS_LIKE_A_COMMAND = re.compile(r"^(?:\$ |\(dynamo\) |dynamo-dap |make |pip |python )", re.M)
_TYPED = re.compile(r"^\((?:dynamo|com)\) ?(.*)$")
_DEADLINE = 300.0


@dataclass
class Command:
    """A command of a page, with what is typed into it and what it prints."""

    text: str
    line: int
    expected: list[str] = field(default_factory=list)

    @property
    def is_session(self) -> bool:
        """Whether it starts the terminal debugger."""
        return bool(self.typed) or self.text.startswith("dynamo-dap debug")

    @property
    def typed(self) -> list[str]:
        """Return what the user types, line by line."""
        return [found[1] for line in self.expected if (found := _TYPED.match(line))]


@dataclass
class Page:
    """What a page has for this: files, commands, and blocks that look like commands and are not run."""

    path: Path
    files: dict[str, str] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)


def read_page(path: Path) -> Page:
    """Read the blocks of a page."""
    text, page = path.read_text(encoding="utf-8"), Page(path)
    for block in _BLOCK.finditer("\n" + text):
        line = text.count("\n", 0, max(block.start("text") - 1, 0)) + 1
        title = _TITLE.search(block["rest"])
        if title:
            page.files[title[1]] = block["text"]
        elif block["language"] == "console":
            _read_console(page, block["text"], line)
        elif _is_shell(block) and not _REASON.search(block["above"]):
            page.unexplained.append(f"{path.relative_to(ROOT)}:{line}")
    for block in _INDENTED.finditer(_BLOCK.sub(lambda fenced: "\n" * fenced[0].count("\n"), "\n" + text)):
        if _LOOKS_LIKE_A_COMMAND.search(textwrap.dedent(block["text"])):
            page.unexplained.append(f"{path.relative_to(ROOT)}: indented, so it cannot be run: {block['text'].strip()}")
    return page


def _is_shell(block: re.Match[str]) -> bool:
    is_plain = block["language"] in ("", "sh", "bash", "text")
    return is_plain and _LOOKS_LIKE_A_COMMAND.search(block["text"]) is not None


def _read_console(page: Page, text: str, line: int) -> None:
    for number, row in enumerate(text.splitlines(), start=line):
        if row.startswith("$ "):
            page.commands.append(Command(row[2:], number))
        elif not page.commands:
            page.unexplained.append(f"{page.path.relative_to(ROOT)}:{number}: no command comes before this")
        else:
            page.commands[-1].expected.append(row)


_GIT = ("git", "-c", "user.name=A", "-c", "user.email=a@example.com")


def run_page(
    page: Page, folder: Path, command: Sequence[str] | None = None, variables: Mapping[str, str] = os.environ
) -> list[str]:
    """Run a page's commands; return the places where the page says something else.

    ``command`` is ``dynamo-dap`` as it is installed, this checkout's when None; ``variables`` are those of the shell.
    """
    command = own_command() if command is None else command
    for name, text in page.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    if any("fixtures/" in command.text for command in page.commands):
        shutil.copytree(ROOT / "fixtures", folder / "fixtures", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {**variables, "NO_COLOR": "1", "COLUMNS": "120", "TERM": "dumb", "PYTHONHASHSEED": "0"}
    environment |= {"XDG_CACHE_HOME": str(folder / ".cache"), "XDG_STATE_HOME": str(folder / ".state")}
    wrong = []
    for number, shown in enumerate(page.commands):
        arguments, settings, given = _parse(shown.text, folder)
        program = {"dynamo-dap": command, "git": _GIT}.get(arguments.pop(0))
        assert program is not None, f"{page.path}:{shown.line}: only dynamo-dap and git are run"
        if shown.is_session:
            script = folder / f".typed-{number}"
            script.write_text("".join(f"{line}\n" for line in shown.typed), encoding="utf-8")
            arguments += ["-x", str(script)]
        ran = subprocess.run(
            [*program, *arguments],
            cwd=folder,
            env={**environment, **settings},
            input=given,
            capture_output=True,
            text=True,
            timeout=_DEADLINE,
            check=False,
        )
        printed = [normal(line, folder) for line in ran.stdout.splitlines()]
        expected = [normal(line, folder) for line in shown.expected]
        missing = _not_in_order(printed, expected) if shown.is_session else _difference(printed, expected)
        if missing is not None:
            where = f"{page.path.relative_to(ROOT)}:{shown.line}: $ {shown.text}"
            wrong.append(f"{where}\nthe page has: {missing}\nprinted:\n{ran.stdout}{ran.stderr[-2000:]}")
    return wrong


def _parse(text: str, folder: Path) -> tuple[list[str], dict[str, str], str]:
    """Return the arguments of a command, the variables that it sets, and its input."""
    words, given = shlex.split(text), ""
    if words[0] == "printf":
        given = words[1].encode().decode("unicode_escape")
        assert words[2] == "|", text
        words = words[3:]
    if len(words) > 2 and words[-2] == "<":
        given = (folder / words[-1]).read_text(encoding="utf-8")
        words = words[:-2]
    settings = {}
    while found := re.fullmatch(r"([A-Z_]+)=(.*)", words[0]):
        settings[found[1]] = found[2]
        words = words[1:]
    return words, settings, given


def normal(line: str, folder: Path) -> str:
    """Return a line without what differs from run to run."""
    line = line.replace(str(folder.resolve()), HOME).replace(str(folder), HOME)
    line = re.sub(r"\b\d+(?:\.\d+)? (ms|s)\b", r"# \1", line)
    line = re.sub(r"[─━]+", "─", line)
    return re.sub(r" +", " ", line).strip()


def _matches(expected: str, printed: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, expected.split("…"))), printed) is not None


def _not_in_order(printed: list[str], expected: list[str]) -> str | None:
    """Return the first line that does not follow those before it."""
    lines = iter(printed)
    for row in expected:
        if row and row != "..." and not any(_matches(row, line) for line in lines):
            return row
    return None


def _difference(printed: list[str], expected: list[str]) -> str | None:
    """Return the first line of the page that is not printed where it should be; empty lines do not count."""
    rows, lines = [row for row in expected if row], [line for line in printed if line]
    if not rows:
        return None  # The page does not show what it prints.
    position, is_open = 0, False
    for row in rows:
        if row == "...":
            is_open = True
            continue
        here = range(position, len(lines) if is_open else min(position + 1, len(lines)))
        found = next((index for index in here if _matches(row, lines[index])), None)
        if found is None:
            return row
        position, is_open = found + 1, False
    return None if is_open or position == len(lines) else f"(nothing more, but there is {lines[position]!r})"
