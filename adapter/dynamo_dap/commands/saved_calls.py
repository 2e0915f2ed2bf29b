"""``dynamo-dap record-call`` saves a call of a compiled function to a folder; ``dynamo-dap replay`` replays the call.

The folder's code is shown, and runs only after the user has agreed, once per content. Runs on the command's main
thread.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dynamo_dap.calls.consent import agree, is_agreed, shown, unusual
from dynamo_dap.calls.folder import REPLAYING, BadFolder, Snapshot, first_line, read_snapshot, reported
from dynamo_dap.commands.failing import fail
from dynamo_dap.protocol.access.consent import ask, visible
from dynamo_dap.protocol.requests.contract import LaunchDescription
from dynamo_dap.protocol.requests.saved_calls import RecordingEnded, RecordingRun
from dynamo_dap.records.program import add_program, given_program, read_options, run_program

NOT_DONE, NOT_AGREED = 2, 1


def record_call(arguments: list[str]) -> int:
    """Run a program until a function is compiled, and save that call; return 2 if there is none."""
    parser = argparse.ArgumentParser(
        prog="dynamo-dap record-call",
        description="Run a program until it compiles a function, save that call to a folder, and end the program. The "
        "folder has the code, arguments, globals, torch's settings and versions. Replay it with: "
        "dynamo-dap replay FOLDER. In a debug session, 'record-call' saves the call at a stop.",
    )
    parser.add_argument("--function", metavar="NAME", help="the function: fn, Model.forward; default: the first")
    parser.add_argument("--compile", type=int, default=1, metavar="N", help="its N-th compile; default: the first")
    parser.add_argument("--folder", metavar="FOLDER", help="the target; default: a new folder in saved-calls")
    parser.add_argument(
        "--no-data", action="store_true", help="save only shapes, types and strides of tensors, not their data"
    )
    parser.add_argument("--json", action="store_true", help="print JSON: one object")
    add_program(parser)
    options = read_options(parser, arguments)
    program = given_program(parser, options)
    with tempfile.TemporaryDirectory(prefix="dynamo-dap-") as name:
        result = Path(name) / "result.json"
        asked = RecordingRun(str(result), options.folder, options.function, options.compile, not options.no_data)
        description = msgspec.structs.replace(program, recording=asked)
        status = run_program(options.python, description, prints_for_others=True)
        text = result.read_bytes() if result.exists() else None
    if text is None:
        wanted = "nothing" if options.function is None else f"no {options.function}"
        times = "once" if options.compile == 1 else f"{options.compile} times"
        return fail(f"the program has ended (status {status}), and {wanted} was compiled {times}")
    ended = msgspec.json.decode(text, type=RecordingEnded)
    if ended.saved is None:
        return fail(str(ended.problem))
    if options.json:
        sys.stdout.write(msgspec.json.encode(ended.saved).decode() + "\n")
    else:
        sys.stdout.write(reported(ended.saved))
    return 0


def replay(arguments: list[str]) -> int:
    """Debug or run a saved call; return 2 if the folder cannot be replayed, 1 if the user does not agree."""
    parser = argparse.ArgumentParser(
        prog="dynamo-dap replay",
        allow_abbrev=False,
        description="Replay a saved call in the debugger, stopped at its first line. This runs the folder's code, "
        "which is shown once for your consent. Other options are those of dynamo-dap debug.",
    )
    parser.add_argument("folder", help="a folder from 'record-call'")
    parser.add_argument("--run", action="store_true", help="make the call without the debugger, and print its result")
    parser.add_argument("--yes", action="store_true", help="agree to run the code in the folder")
    parser.add_argument("--show", action="store_true", help="only print the code that would run")
    parser.add_argument(
        "--agree", action="store_true", help="record your consent without running, and print the call's first line"
    )
    parser.add_argument("--python", default=sys.executable, help="the interpreter; default: this one")
    parser.add_argument(
        "--content", metavar="DIGEST", help="agree only if the content still has the digest that --show printed"
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="NAME",
        help="allow the call to use this name, which would be refused; repeatable",
    )
    options, debugging = parser.parse_known_args(arguments)
    folder = Path(options.folder).resolve()
    try:
        snapshot = read_snapshot(folder)
        first_line(snapshot)
    except BadFolder as problem:
        return fail(visible(str(problem)))
    if debugging and (options.run or options.show or options.agree):
        return fail(f"not valid with --run, --show and --agree: {shlex.join(debugging)}")
    if options.show:
        sys.stdout.write(f"{shown(snapshot)}\n")
        return 0 if is_agreed(snapshot) else NOT_AGREED
    if options.content not in (None, snapshot.digest):
        fail("the folder has changed since it was shown")
        return NOT_DONE if options.agree else NOT_AGREED
    if not may_run(snapshot, yes=options.yes or options.agree, allowed=options.allow):
        # With --agree nobody is asked: the reason for a refusal has been printed.
        return NOT_DONE if options.agree else NOT_AGREED
    if options.agree:
        path, line = first_line(snapshot)
        sys.stdout.write(f"{path}:{line}\n")
        return 0
    if options.run:
        description = LaunchDescription(module=REPLAYING, args=[str(folder)])
        return run_program(options.python, description, prints_for_others=False)
    return _debug(snapshot, options, debugging)


def _debug(snapshot: Snapshot, options: argparse.Namespace, debugging: list[str]) -> int:
    # Import a command only if it runs, as the registry does.
    from dynamo_dap.commands.debug import main

    path, line = first_line(snapshot)
    own = ["-m", REPLAYING, "--python", options.python, "--break", f"{path}:{line}"]
    return main([*own, *debugging, "--", str(snapshot.folder)])


def may_run(snapshot: Snapshot, *, yes: bool, allowed: Sequence[str] = ()) -> bool:
    """Return whether the user agrees to run a saved call; print why not."""
    if not yes and is_agreed(snapshot):
        return True
    if not yes:
        name = visible(snapshot.call.name)
        is_wanted = ask(shown(snapshot), f"Replaying the call of {name} runs this code.")
        if is_wanted is None:
            fail("cannot ask for consent without a terminal: give --yes to run it")
        if not is_wanted:
            return False
    refused = [each for each in unusual(snapshot.call) if each not in allowed]
    if refused:
        fail(
            f"the call uses names that a saved call may not use; allow each with --allow: {visible(', '.join(refused))}"
        )
        return False
    try:
        agree(snapshot)
    except OSError as error:
        fail(f"cannot save your consent: {error.strerror or error}")
        return False
    return True
