"""Sets up Triton kernels' interpretation: the interpreter's hooks, stops in kernels, launches in compiled code.

With the option ``triton`` every launch is interpreted, without it only the launches that the user inspects. Runs on the
agent's reader thread, and on the thread that imports Triton.
"""

from __future__ import annotations

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.eager.kernel_launches import KernelLaunches
from dynamo_dap.debuggee.eager.kernel_programs import KernelPrograms
from dynamo_dap.debuggee.triton import opaque_launches, real_launches
from dynamo_dap.debuggee.triton.interpreter import CannotInterpret, interpret

_programs: KernelPrograms | None = None
_has_begun = False
"""Whether Triton's interpreter has been imported."""


def debugpy_has_started() -> None:
    """Let debugpy step in kernels, if they run in the interpreter already."""
    if _programs is not None and (_has_begun or _programs.is_following):
        _programs.begin()


def watch_launches(agent: Agent) -> None:
    """Watch launches of compiled kernels, once the program has imported Triton."""
    global _programs
    if _programs is None:
        _programs = KernelPrograms(agent)
        real_launches.watch(KernelLaunches(agent, _programs), _programs)


def interpret_kernels(agent: Agent) -> None:
    """Make kernels run in Triton's interpreter, and stop there."""
    global _programs
    _programs = programs = KernelPrograms(agent)

    def report(problem: str) -> None:
        agent.print(f"dynamo-dap: {problem}\n", "important")

    def begin() -> None:
        global _has_begun
        _has_begun = True
        try:
            opaque_launches.install()
            programs.begin()
        except Exception as error:  # noqa: BLE001  (this runs inside the program's own import of Triton)
            log_exception("hooking into Triton")
            report(f"cannot debug kernels of this Triton: {type(error).__name__}: {error}")

    try:
        interpret(programs, begin, report)
    except CannotInterpret as problem:
        report(str(problem))
