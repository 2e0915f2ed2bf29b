"""Prints what the user sees, with rich: stops, source excerpts, stacks, values, the program's output.

Runs on the prompt's thread.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from dynamo_dap.protocol.requests.contract import TimelineBody
from dynamo_dap.protocol.texts import PROGRAM_MARK, with_visible_controls
from dynamo_dap.protocol.wire.types import Scope, StackFrame, Thread, Variable
from dynamo_dap.terminal.breakpoints import Breakpoint, shown_path

CONTEXT_LINES = 4
_OBVIOUS_TYPES = ("str", "int", "float", "bool", "NoneType", "tuple", "list", "dict")
_THEME = "ansi_dark"
_LINE_END = re.compile(r"(?:\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029])(?!\Z)")
"""Each character that may look like a line end, except at the end of a text."""
_ARROW, _DOT = "▶", "●"


class Screen:
    """Prints to a console."""

    def __init__(self, console: Console, *, marks_program: bool = False) -> None:
        """With ``marks_program``, the program's output lines begin with ``PROGRAM_MARK``, and no others."""
        self.console = console
        self._marks_program = marks_program
        self.printed: list[str] = []
        """The program's output, if it is marked."""
        self._is_mid_line = False
        self._category = ""
        """Category of the last output."""
        self.output_count = 0
        """How many pieces of output were shown; one ``print`` makes several pieces."""
        self.ask: Callable[[str], str | None] | None = None
        """Asks the user at the terminal; None if no user is there."""

    @contextlib.contextmanager
    def paged(self) -> Iterator[None]:
        """Page the output inside this context if a user reads it and it is longer than the screen."""
        if self.ask is None or not self.console.is_terminal:
            yield
            return
        with self.console.capture() as captured:
            yield
        width, height = self.console.size
        room = height - 1
        for line in captured.get().splitlines(keepends=True):
            needed = max(-(-cell_len(Text.from_ansi(line).plain) // width), 1)
            if needed > room:
                answer = self.ask("-- more: Enter continues, q ends --")
                if answer is None or answer.strip().lower().startswith("q"):
                    return
                room = height - 1
            room -= needed
            self.console.file.write(line)
        self.console.file.flush()

    # -- words -----------------------------------------------------------------------------------------------------

    def say(self, text: str | Text) -> None:
        """Print a line of the debugger."""
        self._begin_line()
        if self._marks_program:
            # A value or a message can contain lines that look like ours.
            text = Text("\n  ").join((Text(text) if isinstance(text, str) else text).split("\n", allow_blank=True))
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a side remark."""
        self.say(Text(text, style="dim"))

    def notes(self, texts: Iterable[str]) -> None:
        """Print several side remarks, one on each line."""
        for text in texts:
            self.note(text)

    def comment(self, text: str) -> None:
        """Print a script's comment."""
        self.say("")
        self.say(Text(text, style="italic blue"))

    def command(self, prompt: str, line: str) -> None:
        """Print a command that nobody typed at the terminal."""
        self.say(Text(prompt, "bold magenta").append(line, "bold"))

    def problem(self, text: str) -> None:
        """Print an error."""
        self.say(Text(text, style="bold red"))

    def program_output(self, text: str, category: str) -> None:
        """Print the program's output unchanged."""
        if category in ("telemetry",):
            return
        style = {"stderr": "red", "console": "cyan", "important": "bold yellow"}.get(category, "")
        if self._is_mid_line and category != self._category and category in ("console", "important"):
            self._begin_line()
        self._category = category
        self.output_count += 1
        if category not in ("stdout", "stderr"):
            text = with_visible_controls(text)
        elif self._marks_program:
            self.printed.append(text)
        if self._marks_program:
            text = self._marked(text)
        if style and self.console.is_terminal:
            self.console.print(Text(text, style=style), end="", soft_wrap=True)
        else:
            self.console.file.write(text)
            self.console.file.flush()
        self._is_mid_line = not text.endswith("\n")

    def _marked(self, text: str) -> str:
        """Return text with the mark before each line."""
        marked = _LINE_END.sub(f"\n{PROGRAM_MARK}", text)
        return marked if self._is_mid_line else f"{PROGRAM_MARK}{marked}"

    def _begin_line(self) -> None:
        if self._is_mid_line:
            self._is_mid_line = False
            self.console.print()

    # -- stops and sources -----------------------------------------------------------------------------------------

    def stop(self, why: str, frame: StackFrame | None, thread: str | None) -> None:
        """Print why and where a thread stopped; ``thread`` is its name, if needed."""
        line = Text()
        line.append(f"{_DOT} ", "bold red")
        headline, _, explanation = why.partition("\n")
        line.append(headline, "bold")
        # A listing has the name of its function, which ``why`` contains already.
        if frame is not None and (frame.source is None or frame.source.path or frame.name not in why):
            line.append(" in ").append(frame.name, "bold green")
            line.append(" at ").append(_place(frame), "cyan")
        if thread is not None:
            line.append(f"  [thread {thread}]", "dim")
        if explanation.strip():
            # ``say`` indents the later lines of one text; they may come from the program.
            line.append(f"\n{explanation.strip()}")
        self.say("")
        self.say(line)

    def excerpt(
        self,
        lines: Sequence[str],
        frame: StackFrame,
        breakpoints: Iterable[int],
        *,
        around: int | None = None,
        context: int = CONTEXT_LINES,
        only: tuple[int, int] | None = None,
    ) -> None:
        """Print the lines around ``around`` (default: the frame's line), or ``only`` these, with marks."""
        if not lines:
            self.note("(no source text)")
            return
        centre = min(max(around or frame.line, 1), len(lines))
        first, last = (centre - context, centre + context) if only is None else only
        first, last = max(first, 1), min(last, len(lines))
        if first > last:
            self.note(f"(no such lines: there are {len(lines)})")
        marked = set(breakpoints)
        code = Syntax("", "python", theme=_THEME).highlight("\n".join(lines)).split("\n", allow_blank=True)
        width = len(str(last))
        for number in range(first, last + 1):
            margin = Text(" ")
            margin.append(_DOT if number in marked else " ", "red")
            margin.append(_ARROW if number == frame.line else " ", "bold yellow")
            margin.append(f" {number:{width}} │ ", "bold yellow" if number == frame.line else "dim")
            self.say(margin + code[number - 1])
            if number == frame.line and (carets := _carets(lines[number - 1], frame)):
                self.say(Text(f"    {'':{width}} │ ", "dim").append(carets, "bold yellow"))

    def lines(self, lines: Sequence[str], first: int, last: int) -> None:
        """Print lines of a source with their numbers."""
        code = Syntax("", "python", theme=_THEME).highlight("\n".join(lines)).split("\n", allow_blank=True)
        width = len(str(last))
        for number in range(first, last + 1):
            self.say(Text(f"    {number:{width}} │ ", "dim") + code[number - 1])

    # -- the stack -------------------------------------------------------------------------------------------------

    def stack(self, frames: Sequence[StackFrame], selected: int, *, first: int = 0, total: int = 0) -> None:
        """Print a call stack, innermost frame first; ``first`` is the number of its first frame."""
        name_width = max((len(frame.name) for frame in frames), default=0)
        number_width = len(f"#{first + len(frames)}")
        for number, frame in enumerate(frames, start=first):
            style = "dim" if frame.presentation_hint in ("subtle", "label") else ""
            is_selected = number == selected
            line = Text(_ARROW if is_selected else " ", "bold yellow")
            line.append(f"  {f'#{number}':{number_width}}", "dim")
            line.append(f"  {frame.name:{name_width}}", style or ("bold green" if is_selected else "green"))
            line.append(f"  {_place(frame)}", style or "cyan")
            self.say(line)
        if total > first + len(frames):
            self.note(f"... {total - first - len(frames)} more frames")

    def timeline(self, timeline: TimelineBody, around: int = 12) -> None:
        """Print the statements visited around the shown one, with their numbers."""
        entries = timeline.entries
        here = max((at for at, entry in enumerate(entries) if entry.snapshot <= timeline.current), default=0)
        first, last = max(here - around, 0), min(here + around + 1, len(entries))
        if timeline.start + first:
            self.note(f"({timeline.start + first} before)")
        for at in range(first, last):
            entry = entries[at]
            if entry.mark:
                self.note(f"-- {entry.mark}")
            line = Text("→ " if at == here else "  ")
            line.append(f"{entry.snapshot:>6} ", "dim")
            line.append(_DOT if entry.has_breakpoint else " ", "red").append(
                "  " * entry.depth + entry.function, "green"
            )
            line.append(f" {shown_path(entry.path)}:{entry.line}", "cyan")
            self.say(line)
        if timeline.start + last < timeline.total:
            self.note(f"({timeline.total - timeline.start - last} after)")

    def threads(self, threads: Sequence[Thread], stopped: Iterable[int], current: int | None) -> None:
        """Print the program's threads."""
        held = set(stopped)
        for thread in threads:
            line = Text(f"{_ARROW if thread.id == current else ' '} ", "bold yellow")
            line.append(f"{thread.id}", "cyan").append(f"  {thread.name}", "bold")
            line.append("  stopped" if thread.id in held else "  running", "dim")
            self.say(line)

    def breakpoints(self, breakpoints: Sequence[Breakpoint]) -> None:
        """Print the list of breakpoints."""
        if not breakpoints:
            self.note("no breakpoints")
        for breakpoint in breakpoints:
            self.breakpoint(breakpoint)

    def breakpoint(self, breakpoint: Breakpoint) -> None:
        """Print one breakpoint and its state."""
        line = Text(f"{_DOT} " if breakpoint.answer.verified else "○ ", "red")
        line.append(f"{breakpoint.number}", "bold").append(f"  {breakpoint.place}", "cyan")
        if breakpoint.is_temporary:
            line.append("  (once)", "dim")
        if not breakpoint.is_enabled:
            line.append("  (disabled)", "dim")
        if breakpoint.ignored_hits:
            hits = "hit" if breakpoint.ignored_hits == 1 else "hits"
            line.append(f"  (ignores {breakpoint.ignored_hits} {hits})", "dim")
        if breakpoint.answer.line and breakpoint.place.line and breakpoint.answer.line != breakpoint.place.line:
            line.append(f"  moved to line {breakpoint.answer.line}", "dim")
        self.say(line)
        if breakpoint.answer.message:
            indent = " " * (len(f"{breakpoint.number}") + 4)
            self.say(Text(f"{indent}{breakpoint.answer.message}", "dim" if breakpoint.answer.verified else "yellow"))

    # -- values ----------------------------------------------------------------------------------------------------

    def scopes(self, scopes: Sequence[Scope]) -> None:
        """Print the names of a frame's scopes."""
        for scope in scopes:
            count = (scope.named_variables or 0) + (scope.indexed_variables or 0)
            self.say(Text(scope.name, "bold").append(f"  {count}" if count else "", "dim"))

    def variable(self, variable: Variable, depth: int = 0) -> None:
        """Print a name, its value and a mark if it has children, indented by ``depth`` levels."""
        line = Text("  " * depth)
        line.append("▸ " if variable.variables_reference else "  ", "dim")
        is_virtual = variable.presentation_hint is not None and variable.presentation_hint.kind == "virtual"
        line.append(variable.name, "italic" if is_virtual else "bold")
        if variable.value:
            line.append(" = ", "dim").append(variable.value)
        if variable.type and variable.type not in variable.value and variable.type not in _OBVIOUS_TYPES:
            line.append(f"  {variable.type}", "dim")
        self.say(line)

    def value_stack(self, variables: Sequence[Variable]) -> None:
        """Print a value stack in one line, top last."""
        self.say(
            Text("value stack: ", "dim").append(" | ".join(variable.value or variable.name for variable in variables))
        )

    def code(self, text: str) -> None:
        """Print Python code with colours."""
        self._begin_line()
        code = Syntax("", "python", theme=_THEME, background_color="default").highlight(text)
        self.console.print(code, soft_wrap=True)

    def help(self, rows: Sequence[tuple[str, str]]) -> None:
        """Print a table of names and their meanings."""
        table = Table(box=None, show_header=False, padding=(0, 2), pad_edge=False)
        for command, meaning in rows:
            table.add_row(Text(command, "bold"), meaning)
        self._begin_line()
        self.console.print(table)


def _place(frame: StackFrame) -> str:
    if frame.source is None:
        return ""
    name = shown_path(frame.source.path) if frame.source.path else (frame.source.name or "")
    return f"{name}:{frame.line}"


def _carets(line: str, frame: StackFrame) -> str:
    """Return carets below the current instruction's part of the line; empty for the whole line."""
    if frame.end_column is None or frame.end_line not in (None, frame.line):
        return ""
    start, end = frame.column - 1, frame.end_column - 1
    is_part = 0 <= start < end <= len(line) and line[start:end].strip() != line.strip()
    return " " * start + "^" * (end - start) if is_part else ""
