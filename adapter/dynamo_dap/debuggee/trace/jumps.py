"""Finds the statements to which the user may jump in a traced function. Runs on the held tracing thread."""

from __future__ import annotations

from dynamo_dap.debuggee.agent.stepping import Jump
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import user_function_name
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.trace.code_facts import CodeFacts
from dynamo_dap.debuggee.values.model import WriteRefused


def jump_in(frame: TracedFrame, facts: CodeFacts, path: str, line: int) -> Jump:
    """Return the jump to the start of ``line`` in the function.

    Raises:
        WriteRefused: the trace cannot continue there; the text says why.
    """
    name = user_function_name(frame.code)
    target = facts.first_of_line(line) if path == frame.path else None
    if target is None:
        raise WriteRefused(f"no line of {name}, which is traced, begins there")
    if frame.next_index is None:
        raise WriteRefused(f"{name} is returning: none of its lines can run again")
    here = frame.index
    begin = all(map(facts.begins_statement, (line, frame.line)))
    if not begin or facts.first_of_line(frame.line) != here:
        raise WriteRefused("a jump can only start and end at the beginning of a statement")
    if frame.blocks_around(here) != frame.blocks_around(target):
        raise WriteRefused(f"line {line} is in another block: a jump neither enters nor leaves a loop, 'with' or 'try'")
    return Jump(line, target)
