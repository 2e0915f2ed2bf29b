"""Writes a frame's local variables and the writable slots of its value stack. Runs on the held thread only.

The interpreter does not check the types of some slots: the list that ``LIST_EXTEND`` extends must be a list, the
iterator of a loop an iterator, an empty slot empty. A slot accepts any object if the instruction that consumes it does.
Otherwise it accepts only an object of exactly the same type, and nothing if even that could crash.
"""

from __future__ import annotations

import ctypes
import sys
from types import FrameType

from dynamo_dap.debuggee.bytecode.data_flow import Expression
from dynamo_dap.debuggee.bytecode.instructions import TAKES_ANY_OBJECT, Instruction
from dynamo_dap.debuggee.generated.frame_values import BARE_NUMBER, FrameValues
from dynamo_dap.debuggee.torch_api.code_objects.frame_memory import LayoutUnknown, write_slot_in_memory
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import is_null
from dynamo_dap.debuggee.values.model import WriteRefused
from dynamo_dap.debuggee.values.type_facts import name_of


def write_local(frame: FrameType, name: str, value: object) -> None:
    """Set the local variable or cell ``name`` of ``frame``, which must have one of that name."""
    if sys.version_info >= (3, 13):
        # PEP 667: f_locals writes through.
        frame.f_locals[name] = value
        return
    # Each access copies the variables into the dictionary f_locals. This call writes the changes back.
    copy = frame.f_locals
    copy[name] = value
    ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


def write_slot(values: FrameValues, index: int, value: object) -> None:
    """Put ``value`` into slot ``index``, counted from the bottom.

    Raises:
        WriteRefused: the slot cannot be changed, or not to ``value``; nothing was changed.
    """
    stack = values.stack()
    if stack[index] is BARE_NUMBER or value is BARE_NUMBER:
        raise WriteRefused(f"slot {index} cannot be changed: {BARE_NUMBER!r}")
    problem = refusal(values, stack, index, value)
    if problem is not None:
        raise WriteRefused(problem)
    try:
        write_slot_in_memory(values.frame, stack, index, value)
    except LayoutUnknown as unknown:
        raise WriteRefused(str(unknown)) from None


def refusal(values: FrameValues, stack: list[object], index: int, value: object) -> str | None:
    """Return why ``value`` cannot be put into slot ``index``; None if it can."""
    if not values.is_whole:
        return "the frame is in the middle of an instruction: its value stack cannot be changed"
    old = stack[index]
    if is_null(old):
        return f"slot {index} is empty (NULL), as the instruction that uses it expects: it cannot be filled"
    if is_null(value):
        return f"slot {index} holds a value and cannot be emptied"
    expression = _expression(values, index)
    if expression is None:
        return f"it is not known which instruction uses slot {index}: it cannot be changed"
    consumers = [values.generated.table[consumer] for consumer in expression.consumers]
    if any(_must_not_change(values, consumer, expression) for consumer in consumers):
        return f"slot {index} controls what {consumers[0].name} does and cannot be changed"
    if consumers and all(_takes_any(values, consumer, expression) for consumer in consumers):
        return None
    if type(value) is not type(old):
        user = consumers[0].name if consumers else "what follows"
        return (
            f"slot {index} is used by {user}, which relies on it being of type {name_of(type(old))}: "
            f"it cannot be set to a value of type {name_of(type(value))}"
        )
    return None


def _expression(values: FrameValues, index: int) -> Expression | None:
    expressions = values.generated.listing.flow.stack_before(values.index)
    return expressions[index] if index < len(expressions) else None


def _takes_any(values: FrameValues, consumer: Instruction, expression: Expression) -> bool:
    if consumer.name in TAKES_ANY_OBJECT:
        return True
    if consumer.name in ("CALL", "CALL_FUNCTION", "CALL_METHOD", "CALL_KW", "CALL_FUNCTION_KW"):
        operands = values.generated.listing.flow.operands(consumer.index)
        has_names = consumer.name in ("CALL_KW", "CALL_FUNCTION_KW")
        # The callee and its arguments may be anything; a method and its self belong together.
        return not (has_names and operands and operands[-1] is expression) and expression.role == "value"
    return False


def _must_not_change(values: FrameValues, consumer: Instruction, expression: Expression) -> bool:
    operands = values.generated.listing.flow.operands(consumer.index)
    if consumer.name in ("CALL_KW", "CALL_FUNCTION_KW"):
        return bool(operands) and operands[-1] is expression
    return consumer.name in ("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE", "RERAISE", "POP_EXCEPT", "MATCH_CLASS")
