"""Wires what has Triton's kernels interpreted: the interpreter's hooks, stops in kernels, launches in compiled code.

In sessions with the option ``triton``; on the agent's reader thread, and on the thread that imports Triton.
"""

from __future__ import annotations

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.eager.kernel_programs import KernelPrograms
from dynamo_dap.debuggee.triton import opaque_launches
from dynamo_dap.debuggee.triton.interpreter import CannotInterpret, interpret


def interpret_kernels(agent: Agent) -> None:
    """Have kernels run in Triton's interpreter, and stop there."""
    programs = KernelPrograms(agent)

    def tell(problem: str) -> None:
        agent.print(f"dynamo-dap: {problem}\n", "important")

    def begin() -> None:
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
