"""``dynamo-dap record-call`` saves a call of a compiled function as a folder; ``dynamo-dap replay`` makes it again.

What a folder would run is shown, and run only when the user has agreed, once for each content of the folder. Main
thread of the command.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import msgspec

from dynamo_dap.calls.folder import BadFolder, SavedCall, agree, code_of, first_line, is_agreed, read_call, told
from dynamo_dap.protocol.contract import LaunchDescription
from dynamo_dap.protocol.saved_calls import RecordingEnded, RecordingRun
from dynamo_dap.records.program import add_program, given_program, run_program

REPLAYING = "dynamo_dap.debuggee.launch.replaying"
"""The module that makes a call again; the folder is its argument."""
NOT_DONE, NOT_AGREED = 2, 1


def record_call(arguments: list[str]) -> int:
    """Run a program until a function is compiled, and save that call; 2 when there is none."""
    parser = argparse.ArgumentParser(
        prog="dynamo-dap record-call",
        description="Run a program until it compiles a function, save that call as a folder (code, arguments, the "
        "globals that it reads, torch's settings, versions), and end the program. Make it again with: "
        "dynamo-dap replay FOLDER. In a debug session, 'record-call' saves the call at a stop.",
    )
    parser.add_argument("--function", metavar="NAME", help="the function: fn, Model.forward; default: the first")
    parser.add_argument("--compile", type=int, default=1, metavar="N", help="its N-th compile; default: the first")
    parser.add_argument("--folder", metavar="FOLDER", help="where to; default: a new folder in saved-calls")
    parser.add_argument("--no-data", action="store_true", help="save what tensors are like, and not what is in them")
    parser.add_argument("--json", action="store_true", help="print one object")
    add_program(parser)
    options = parser.parse_args(arguments)
    program = given_program(parser, options)
    with tempfile.TemporaryDirectory(prefix="dynamo-dap-") as name:
        result = Path(name) / "result.json"
        asked = RecordingRun(str(result), options.folder, options.function, options.compile, not options.no_data)
        description = msgspec.structs.replace(program, recording=asked)
        status = run_program(options.python, description, prints_for_others=True)
        text = result.read_bytes() if result.exists() else None
    if text is None:
        wanted = "nothing" if options.function is None else f"no {options.function}"
        return _fail(f"the program has ended (status {status}), and {wanted} was compiled {options.compile} times")
    ended = msgspec.json.decode(text, type=RecordingEnded)
    if ended.saved is None:
        return _fail(str(ended.problem))
    if options.json:
        sys.stdout.write(msgspec.json.encode(ended.saved).decode() + "\n")
    else:
        sys.stdout.write(told(ended.saved))
    return 0


def replay(arguments: list[str]) -> int:
    """Debug or run a saved call; 2 when the folder holds none, 1 when the user does not agree."""
    parser = argparse.ArgumentParser(
        prog="dynamo-dap replay",
        description="Make a saved call again, in the debugger, stopped at its first line. It runs the code that is in "
        "the folder: that is shown, and asked for once.",
    )
    parser.add_argument("folder", help="what 'record-call' has written")
    parser.add_argument("--run", action="store_true", help="make the call without the debugger, print what it returns")
    parser.add_argument("--yes", action="store_true", help="agree to run the code in the folder")
    parser.add_argument("--show", action="store_true", help="only print the code that would run")
    parser.add_argument("--agree", action="store_true", help="only agree to it, and print where it begins")
    parser.add_argument("--python", default=sys.executable, help="the interpreter; default: this one")
    parser.add_argument("debugging", nargs=argparse.REMAINDER, help="options of dynamo-dap debug")
    options = parser.parse_args(arguments)
    folder = Path(options.folder).resolve()
    try:
        call = read_call(folder)
    except BadFolder as problem:
        return _fail(str(problem))
    if options.show:
        sys.stdout.write(f"{code_of(folder, call)}\n")
        return 0 if is_agreed(folder, call) else NOT_AGREED
    if not _is_agreed(folder, call, yes=options.yes or options.agree):
        return NOT_AGREED
    if options.agree:
        path, line = first_line(folder, call)
        sys.stdout.write(f"{path}:{line}\n")
        return 0
    if options.run:
        description = LaunchDescription(module=REPLAYING, args=[str(folder)])
        return run_program(options.python, description, prints_for_others=False)
    return _debug(folder, call, options)


def _debug(folder: Path, call: SavedCall, options: argparse.Namespace) -> int:
    # Imported only now: as the commands themselves are.
    from dynamo_dap.commands.debug import main

    path, line = first_line(folder, call)
    own = ["-m", REPLAYING, "--python", options.python, "--break", f"{path}:{line}"]
    return main([*own, *options.debugging, "--", str(folder)])


def _is_agreed(folder: Path, call: SavedCall, *, yes: bool) -> bool:
    if not yes and is_agreed(folder, call):
        return True
    if not yes:
        sys.stdout.write(f"{code_of(folder, call)}\n\nTo make the call of {call.name} again, this code is run.\n")
        sys.stdout.flush()
        if not sys.stdin.isatty():
            _fail("nobody can be asked here: give --yes to run it")
            return False
        if input("Run it? [y/N] ").strip().lower() not in ("y", "yes"):
            return False
    agree(folder, call)
    return True


def _fail(text: str) -> int:
    sys.stderr.write(f"dynamo-dap: {text}\n")
    return NOT_DONE
