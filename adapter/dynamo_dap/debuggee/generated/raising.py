"""Keeps the operands of an instruction that raises in generated code, and reports each exception once.

An instruction that raises has consumed its operands when the exception is reported. While the exception filter is on,
they are kept from just before the instruction to just before the next: no longer than the instruction itself holds
them. Runs on the held thread, or the thread that runs the code.
"""

from __future__ import annotations

import threading
from types import FrameType

from dynamo_dap.debuggee.agent.stepping import RaisedException
from dynamo_dap.debuggee.bytecode.constants import without_addresses
from dynamo_dap.debuggee.generated.known_code import GeneratedCode
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import VALUE_STACK, value_stack
from dynamo_dap.protocol.wire.types import ExceptionDetails

_LOOP_INSTRUCTIONS = frozenset({"FOR_ITER", "SEND", "YIELD_FROM"})
_RERAISES = frozenset({"RERAISE", "CLEANUP_THROW", "END_ASYNC_FOR"})
_NEVER_RAISES = frozenset({"POP_TOP", "STORE_FAST", "RETURN_VALUE", "SWAP", "COPY", "PRECALL"})
"""No operands are kept for these: an object may die as soon as they drop it."""


class RaisedExceptions:
    """Keeps, per thread, the raising instruction's operands and the last reported exception."""

    def __init__(self) -> None:
        self._threads = threading.local()

    def before_instruction(self, generated: GeneratedCode, frame: FrameType, index: int) -> None:
        """Keep the operands of an instruction that is about to be executed."""
        self._threads.reported = None
        self._threads.kept = None
        if generated.table[index].name in _NEVER_RAISES or VALUE_STACK.problem is not None:
            return
        before, below = generated.depths.before(index), generated.depths.below_operands(index)
        if before is not None and below is not None and before > below:
            self._threads.kept = (frame, index, tuple(value_stack(frame, before)[below:]))

    def frame_ended(self, frame: FrameType) -> None:
        """Release the kept operands."""
        self._threads.kept = None

    def operands_of(self, frame: FrameType, index: int) -> tuple[object, ...] | None:
        """Return the operands of the raising instruction; None if they were not kept."""
        kept = getattr(self._threads, "kept", None)
        if kept is None or kept[0] is not frame or kept[1] != index:
            return None
        operands: tuple[object, ...] = kept[2]
        return operands

    def is_new(self, generated: GeneratedCode, index: int, exception: BaseException) -> bool:
        """Return whether to report an exception. Ends of loops, and exceptions already reported, do not count."""
        name = generated.table[index].name
        if name in _RERAISES or (name in _LOOP_INSTRUCTIONS and isinstance(exception, StopIteration)):
            return False
        if getattr(self._threads, "reported", None) == id(exception):
            return False
        self._threads.reported = id(exception)
        return True


def raised_exception(exception: BaseException) -> RaisedException:
    """Return an exception as DAP describes it."""
    kind = type(exception)
    text = _text(exception)
    module = kind.__module__
    full_name = kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"
    details = ExceptionDetails(message=text, type_name=kind.__name__, full_type_name=full_name)
    return RaisedException(exception_id=full_name, description=text, details=details)


def _text(exception: BaseException) -> str:
    try:
        return without_addresses(str(exception)[:2000])
    except BaseException as error:  # noqa: BLE001  (the program's own __str__)
        return f"<no text: __str__ raised {type(error).__name__}>"
