"""``dynamo-dap debug``: reads the command line, then debugs the program at a prompt.

Runs on the main thread of the command's process; the server and the program have their own processes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.requests.options import BOTH, MODES, TRITON
from dynamo_dap.protocol.texts import why_refused
from dynamo_dap.protocol.user_files import read_regular
from dynamo_dap.terminal.breakpoints import Quit, UsageError, parse_place
from dynamo_dap.terminal.commands import CONTINUATION, complete_line, execute, read_block
from dynamo_dap.terminal.debugger import Debugger
from dynamo_dap.terminal.input import PROMPT, GivenLines, LineSource, standard_lines
from dynamo_dap.terminal.own_terminal import OwnTerminal
from dynamo_dap.terminal.screen import Screen

EXIT_USAGE = 2
_INTERNAL, _TERMINAL = "internal", "terminal"


def main(argv: list[str]) -> int:
    """Debug a program at a prompt; return its exit code, or 0 if it has not ended by itself."""
    options, program_arguments = read_options(argv)
    screen = Screen(Console(highlight=False), marks_program=options.mark_output)
    try:
        debugger = _make_debugger(options, program_arguments, screen)
        lines = GivenLines(_given_lines(options), standard_lines(lambda text: complete_line(debugger, text)))
        return _debug(debugger, lines, starts_at_once=_has_stops(options))
    except UsageError as error:
        screen.problem(str(error))
        return EXIT_USAGE
    except (RequestFailed, TimeoutError) as error:
        screen.problem(str(error))
        return 1
    except OSError as error:
        screen.problem(why_refused(error))
        return 1


def _debug(debugger: Debugger, lines: LineSource, *, starts_at_once: bool) -> int:
    try:
        debugger.begin()
        if starts_at_once:
            debugger.resume("continue")
        else:
            debugger.drain()
            debugger.screen.note("'break' sets a breakpoint, 'continue' starts the program, 'help' lists all commands")
        _read_and_execute(debugger, lines)
        return debugger.exit_code or 0
    finally:
        debugger.end()


class _Prompt:
    """Reads lines, and echoes those that nobody typed at the terminal."""

    def __init__(self, debugger: Debugger, lines: LineSource) -> None:
        self._debugger = debugger
        self._lines = lines
        self._waiting: list[str] = []
        """Lines that were read after a block, but do not belong to it."""
        debugger.prompt.read = self.read_further

    def read(self) -> str | None:
        """Return the next line with the rest of its statement, or a comment; None at the end."""
        is_interactive = not self._lines.echoes
        self._debugger.prompt.is_interactive = is_interactive
        self._debugger.screen.ask = self.read_further if is_interactive else None
        line = self._read_raw(PROMPT)
        self._debugger.drain()
        echoes = self._lines.echoes
        if line is None or line.startswith("#"):
            return line
        text = read_block(self._debugger, line, self._read_raw, self._waiting.append)
        if echoes:
            for at, shown in enumerate(text.split("\n")):
                self._debugger.screen.command(CONTINUATION if at else PROMPT, shown)
        return text

    def read_further(self, prompt: str) -> str | None:
        """Return the running command's next line."""
        line = self._read_raw(prompt)
        if line is not None and self._lines.echoes:
            self._debugger.screen.command(prompt, line)
        return line

    def _read_raw(self, prompt: str) -> str | None:
        return self._waiting.pop() if self._waiting else self._lines.read(prompt)


def _read_and_execute(debugger: Debugger, lines: LineSource) -> None:
    """Run commands until the input ends."""
    prompt = _Prompt(debugger, lines)
    while True:
        try:
            text = prompt.read()
            if text is None:
                if debugger.is_at_uncaught():
                    # After a script's last command, the program ends with its own traceback and exit code.
                    debugger.resume("continue")
                return
            if text.startswith("#"):
                debugger.screen.comment(text)
                continue
            execute(debugger, text)
        except Quit:
            return
        except KeyboardInterrupt:
            debugger.screen.note("'quit' leaves")
        except (UsageError, RequestFailed, TimeoutError) as error:
            debugger.screen.problem(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dynamo-dap debug",
        description="Debug a torch.compile program in the terminal.",
        epilog="A script's arguments follow after '--', a module's after its name: '-m pytest test_a.py -q'. "
        "'help' at the prompt lists the commands.",
    )
    parser.add_argument("program", nargs="?", help="the script to debug")
    parser.add_argument("--module", "-m", metavar="NAME", help="debug a module, as python -m does")
    parser.add_argument("--attach", metavar="HOST:PORT", help="attach to a program that called dynamo_dap.listen()")
    parser.add_argument(
        "--break",
        "-b",
        dest="breakpoints",
        metavar="PLACE",
        action="append",
        default=[],
        help="stop at FILE:LINE or FUNCTION; may end in 'if EXPRESSION'",
    )
    parser.add_argument(
        "--catch",
        metavar="FILTER",
        action="append",
        default=[],
        help="stop at an event: graph-break, recompile, nan, ...; 'catch' at the prompt lists all",
    )
    parser.add_argument(
        "--mode",
        choices=tuple(MODES),
        default=BOTH,
        help="what to debug in compiled functions: Dynamo's tracing, the generated code, or both (default)",
    )
    parser.add_argument(
        "--eager", action=argparse.BooleanOptionalAction, default=None, help="debug ordinary Python, too"
    )
    parser.add_argument(
        "--all-code", action="store_true", help="stop in installed packages, too, and show their frames"
    )
    parser.add_argument("--stop-on-entry", action="store_true", help="stop at the program's first line")
    parser.add_argument(
        "--triton", choices=tuple(TRITON), help="run Triton kernels in Triton's interpreter, not on a GPU"
    )
    parser.add_argument("--python", metavar="PATH", help="the interpreter to run the program with")
    parser.add_argument("--cwd", metavar="FOLDER", help="the folder to run the program in")
    parser.add_argument(
        "--console",
        choices=(_INTERNAL, _TERMINAL),
        default=_INTERNAL,
        help="'terminal': the program runs in this terminal, and reads what you type while it runs",
    )
    parser.add_argument("--input", metavar="FILE", help="the program's standard input")
    parser.add_argument("--mark-output", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--command", "-c", metavar="TEXT", action="append", default=[], help="run this command first")
    parser.add_argument(
        "--execute",
        "-x",
        metavar="FILE",
        action="append",
        default=[],
        help="run the commands of a file first; a line '# text' is printed, '## text' is not",
    )
    return parser


def read_options(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options, and the program's arguments.

    A module's arguments begin with the first word that is not an option, as in ``-m pytest tests/test_a.py -q``. A
    script's arguments follow ``--``, because options of this command may follow the script.
    """
    own, arguments = _split(argv)
    parser = _parser()
    module = next((at for at, each in enumerate(own) if each.startswith(("-m", "--module"))), None)
    if module is None or parser.parse_known_args(own[:module])[0].program is not None:
        return parser.parse_args(own), arguments
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args(own)
    if options.program is not None:
        arguments = [options.program, *options.arguments, *arguments]
        options.program = None
    return options, arguments


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Cut off the program's arguments, which follow the first ``--``."""
    if "--" not in argv:
        return argv, []
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]


def _make_debugger(options: argparse.Namespace, program_arguments: list[str], screen: Screen) -> Debugger:
    request, configuration = _configuration(options, program_arguments)
    debugger = Debugger(screen, request, configuration, terminal=_terminal(options))
    for text in options.breakpoints:
        debugger.breakpoints.add(parse_place(text, debugger.current_path()))
    debugger.filters.names = options.catch
    debugger.filters.has_uncaught = True
    return debugger


def _terminal(options: argparse.Namespace) -> OwnTerminal | None:
    """Return the terminal in which the program reads typed input; None for a program with another input."""
    if options.input is not None and options.attach is not None:
        raise UsageError("--input is for a program that this command starts, not for --attach")
    if options.input is not None and not Path(options.input).is_file():
        raise UsageError(f"{options.input} does not exist")
    if options.input is not None or options.console == _INTERNAL:
        return None
    if not sys.stdin.isatty():
        raise UsageError("the standard input has the debugger's commands: give the program its input with --input FILE")
    return OwnTerminal()


def _configuration(options: argparse.Namespace, program_arguments: list[str]) -> tuple[str, dict[str, object]]:
    """Return the DAP request (``launch`` or ``attach``) and its arguments."""
    if sum(given is not None for given in (options.program, options.module, options.attach)) != 1:
        raise UsageError("give exactly one of: a script, --module NAME, --attach HOST:PORT")
    configuration: dict[str, object] = {
        "mode": options.mode,
        "justMyCode": not options.all_code,
        "stopOnEntry": options.stop_on_entry,
        # For the command 'retval'.
        "showReturnValue": True,
    }
    if options.triton is not None:
        configuration["triton"] = options.triton
    if options.eager is not None:
        configuration["eager"] = options.eager
    if options.attach is not None:
        host, colon, port = options.attach.rpartition(":")
        if not colon or not port.isdigit():
            raise UsageError(f"--attach takes HOST:PORT, not {options.attach!r}")
        return "attach", {**configuration, "connect": {"host": host or "127.0.0.1", "port": int(port)}}
    if options.program is not None:
        configuration["program"] = str(Path(options.program).resolve())
    else:
        configuration["module"] = options.module
    configuration |= {"args": program_arguments, "cwd": options.cwd or str(Path.cwd())}
    if options.input is not None:
        configuration |= {"console": "internalConsole", "inputFile": str(Path(options.input).resolve())}
    else:
        configuration |= {"console": "integratedTerminal" if options.console == _TERMINAL else "internalConsole"}
    configuration |= {"python": [options.python or sys.executable]}
    return "launch", configuration


def _has_stops(options: argparse.Namespace) -> bool:
    return bool(options.breakpoints or options.catch or options.stop_on_entry or options.attach)


def _given_lines(options: argparse.Namespace) -> list[str]:
    lines: list[str] = []
    for file in options.execute:
        try:
            text = read_regular(file).decode()
        except OSError as error:
            raise UsageError(f"{file}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise UsageError(f"{file} is not a text file: {error}") from None
        lines += [line for line in text.splitlines() if line.strip() and not line.startswith("##")]
    return [*lines, *options.command]
