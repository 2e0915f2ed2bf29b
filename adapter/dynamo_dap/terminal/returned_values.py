"""Finds the value that a function returned to the selected frame in the last step. Runs on the prompt's thread.

In ordinary Python, the value is among the caller's variables. A trace has no such variable, but the caller stops right
after its call, whose value is then on top of the value stack.
"""

from __future__ import annotations

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.wire.types import DisassembleArguments, DisassembleResponseBody, StackFrame, Variable
from dynamo_dap.terminal.debugger import Debugger
from dynamo_dap.terminal.prompt_state import LeftFunction
from dynamo_dap.terminal.scopes import local_variables

_RETURNED = "(return) "
"""Prefix of a returned value's name among the variables."""
_TOP = " (top)"
"""Ends the name of the top of the value stack."""


def step_out(debugger: Debugger) -> None:
    """Run until the selected frame returns, and remember which function that was."""
    outermost = debugger.selected
    function = debugger.frame().name if debugger.thread_id is not None else ""
    callers = debugger.total_frames - outermost - 1 if debugger.thread_id is not None else 0
    debugger.resume("stepOut", count=outermost + 1)
    stop = debugger.stop
    if stop is not None and stop.reason == "step" and debugger.total_frames <= callers:
        debugger.prompt.left = LeftFunction(stop, function)


def returned_value(debugger: Debugger) -> Variable | None:
    """Return the value that the last step brought to the selected frame; None if it is not known."""
    returned = [one for one in local_variables(debugger) if one.name.startswith(_RETURNED)]
    return returned[-1] if returned else _value_of_call(debugger)


def _value_of_call(debugger: Debugger) -> Variable | None:
    left, frame = debugger.prompt.left, debugger.frame()
    if left is None or left.stop is not debugger.stop or debugger.selected or not _is_after_call(debugger, frame):
        return None
    method = left.function.rpartition(".")[2]
    if method.startswith("__") and method != "__call__":
        # The value of the call is not what such a method returned: the new object, for "__init__".
        return None
    scope = next((one for one in debugger.scopes() if one.name == "Value Stack"), None)
    stack = debugger.children(scope.variables_reference) if scope is not None else []
    top = next((one for one in stack if one.name.endswith(_TOP)), None)
    if top is not None:
        top.name = f"(returned to {frame.name})"
    return top


def _is_after_call(debugger: Debugger, frame: StackFrame) -> bool:
    """Return whether the instruction before the frame's next one is a call."""
    reference, source = frame.instruction_pointer_reference, frame.source
    if reference is None or source is None or not source.path:
        return False
    arguments = DisassembleArguments(reference, 1, instruction_offset=-1)
    try:
        body = debugger.client.ask("disassemble", arguments, DisassembleResponseBody)
    except RequestFailed:
        return False
    return any(one.instruction.startswith("CALL") for one in body.instructions)
