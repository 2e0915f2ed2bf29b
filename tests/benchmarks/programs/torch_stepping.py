"""Steps through generated code with torch's own debugger, its output thrown away, as often as it is asked to.

Reads a number of calls per line from standard input, and writes the thread's processor seconds of those calls and the
number of instructions it was prompted at. A process of its own: on Python 3.12 and newer, torch's debugger leaves its
events on when it ends.
"""

import builtins
import contextlib
import io
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[3]), str(Path(__file__).resolve().parents[3] / "adapter")]

import torch

from tests.run_time.programs import compiled, programs, replay_arguments

prompts = 0


def answer(prompt=""):
    global prompts
    prompts += 1
    return "s"


def call(function):
    programs.TOTAL = 0
    if sys.version_info >= (3, 12):
        # It reports every instruction only once, for all contexts together, unless asked to begin anew.
        sys.monitoring.restart_events()
    with torch._dynamo.bytecode_debugger.debug():
        function(*replay_arguments())


def main():
    results = sys.stdout
    builtins.input = answer
    function = compiled(programs.replay)
    function(*replay_arguments())
    with contextlib.redirect_stdout(io.StringIO()) as thrown_away:
        call(function)
        for line in sys.stdin:
            before, started = prompts, time.thread_time()
            for _ in range(int(line)):
                call(function)
            print(time.thread_time() - started, prompts - before, file=results, flush=True)
            thrown_away.truncate(0)


if __name__ == "__main__":
    main()
