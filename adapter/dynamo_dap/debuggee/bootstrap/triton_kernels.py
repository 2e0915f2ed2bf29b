"""Wires what has Triton's kernels interpreted: the interpreter's hooks, stops in kernels, launches in compiled code.

In sessions with the option ``triton``; on the agent's reader thread, and on the thread that imports Triton.
"""

from __future__ import annotations

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.eager.kernel_programs import KernelPrograms
from dynamo_dap.debuggee.triton import opaque_launches
from dynamo_dap.debuggee.triton.interpreter import CannotInterpret, interpret

_programs: KernelPrograms | None = None
_has_begun = False
"""Whether Triton's interpreter has been imported."""


def debugpy_has_started() -> None:
    """Have debugpy step in kernels, where these are run already."""
    if _programs is not None and _has_begun:
        _programs.begin()


def interpret_kernels(agent: Agent) -> None:
    """Have kernels run in Triton's interpreter, and stop there."""
    global _programs
    _programs = programs = KernelPrograms(agent)

    def tell(problem: str) -> None:
        agent.print(f"dynamo-dap: {problem}\n", "important")

    def begin() -> None:
        global _has_begun
        _has_begun = True
        try:
            opaque_launches.install()
            programs.begin()
        except Exception as error:  # noqa: BLE001  (this runs inside the program's own import of Triton)
            log_exception("hooking into Triton")
            tell(f"cannot debug kernels of this Triton: {type(error).__name__}: {error}")

    try:
        interpret(programs, begin, tell)
    except CannotInterpret as problem:
        tell(str(problem))
