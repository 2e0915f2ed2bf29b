"""Patches generated code: other instructions replace its own, from the next call on.

A patch is separate code that the same cache entry runs, under the same guards; a running frame ends unpatched. Runs on
any thread. The user, or the end of the session, reverts patches.
"""

from __future__ import annotations

import contextlib
import re
from types import CodeType

from dynamo_dap.debuggee.bytecode.instructions import Instruction
from dynamo_dap.debuggee.generated.known_code import GeneratedCode, GeneratedCodes
from dynamo_dap.debuggee.patching.assembling import PatchRefused, patched
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import CannotReplace, run_instead
from dynamo_dap.debuggee.torch_api.features import FeatureMissing

_NUMBERED = re.compile(r"\s*(\d+)\s*:\s*")


def runs_next(generated: GeneratedCode) -> GeneratedCode:
    """Return the code that later cached calls of ``generated`` run: itself, or its latest patch."""
    return generated.codes.versions(generated)[-1]


def patch(generated: GeneratedCode, index: int, text: str) -> Instruction:
    """Replace the instructions from ``index`` on by those of ``text``; return the first one.

    ``text``: see ``assembling.patched``. It may begin with the number of another instruction (``7: NOP``). Other
    patches of the same code stay.

    Raises:
        PatchRefused: the patch is impossible; nothing was changed.
    """
    numbered = _NUMBERED.match(text)
    if numbered is not None:
        index, text = int(numbered[1]), text[numbered.end() :]
    if index >= len(generated.table):
        raise PatchRefused(f"the last instruction of {generated.name} is {len(generated.table) - 1}")
    if index < generated.entry:
        raise PatchRefused("the instructions that set up the frame cannot be patched")
    _run(generated, patched(runs_next(generated).code, index, text))
    if not runs_next(generated).changes:
        # If no instruction differs any longer, run Dynamo's own code, not a copy.
        _run(generated, generated.unpatched.code)
    return runs_next(generated).table[index]


def revert(generated: GeneratedCode) -> int:
    """Make calls run Dynamo's own code; return how many instructions were patched.

    Raises:
        PatchRefused: it cannot be done; nothing was changed.
    """
    count = len(runs_next(generated).changes)
    if count:
        _run(generated, generated.unpatched.code)
    return count


def revert_all(codes: GeneratedCodes) -> int:
    """Make every patched call run Dynamo's own code; return how many instructions were patched."""
    count = 0
    for generated in codes:
        # Code that Dynamo has dropped since does not run.
        with contextlib.suppress(PatchRefused):
            count += revert(generated)
    return count


def _run(generated: GeneratedCode, instead: CodeType) -> None:
    try:
        run_instead(generated.code, instead)
    except (CannotReplace, FeatureMissing) as problem:
        raise PatchRefused(f"{generated.name} cannot be patched: {problem}") from None
