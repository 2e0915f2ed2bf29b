"""Makes the scope *Instruction* of a generated frame, in which the current instruction is patched.

Runs on the held thread.
"""

from __future__ import annotations

from collections.abc import Sequence

from dynamo_dap.debuggee.generated.known_code import CodeGone, GeneratedCode
from dynamo_dap.debuggee.patching.assembling import PatchRefused
from dynamo_dap.debuggee.patching.patches import patch, revert, runs_next
from dynamo_dap.debuggee.values.model import Children, Fixed, ScopeOfFrame, Value, Variable, WriteRefused

_WHOLE, _ARGUMENT, _RUNNING, _PATCHES = "instruction", "argument", "running now", "patches"


def instruction_scope(generated: GeneratedCode, index: int) -> ScopeOfFrame:
    """Return the scope for the instruction at ``index``."""
    return ScopeOfFrame("Instruction", _Instruction(generated, index))


class _Instruction(Children):
    """The current instruction in the next call: setting it patches the code."""

    def __init__(self, generated: GeneratedCode, index: int) -> None:
        self._generated = generated
        self._index = index

    def can_write(self, name: str) -> bool:
        return True

    def named(self) -> Sequence[Variable]:
        next_code = runs_next(self._generated)
        instruction = next_code.table[self._index]
        shown = [Variable(_WHOLE, Value(str(instruction), kind="data"))]
        if instruction.text:
            shown.append(Variable(_ARGUMENT, Value(instruction.text, kind="data")))
        if next_code is not self._generated:
            shown.append(_note(_RUNNING, str(self._generated.table[self._index])))
        if next_code.changes:
            patches = [
                _note(str(index), f"{next_code.table[index]}, was {was}") for index, was in next_code.changes.items()
            ]
            text = f"{len(patches)} of {next_code.unpatched.name}"
            shown.append(Variable(_PATCHES, Value(text, children=Fixed(tuple(patches)), kind="virtual")))
        return shown

    def write(self, name: str, expression: str) -> Value:
        try:
            if name == _PATCHES and expression.strip() in ("0", "None"):
                revert(self._generated)
                return Value("0")
            if name not in (_WHOLE, _ARGUMENT):
                raise WriteRefused(f"'{name}' is read-only: set '{_WHOLE}' or '{_ARGUMENT}', or '{_PATCHES}' to 0")
            current = runs_next(self._generated).table[self._index]
            text = expression if name == _WHOLE else f"{current.name} {expression.strip()}"
            instruction = patch(self._generated, self._index, text)
            return Value(str(instruction) if name == _WHOLE else instruction.text)
        except (PatchRefused, CodeGone) as problem:
            raise WriteRefused(str(problem)) from None


def _note(name: str, text: str) -> Variable:
    return Variable(name, Value(text, kind="virtual", attributes=("readOnly",)))
