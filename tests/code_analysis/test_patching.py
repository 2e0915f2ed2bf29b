"""Patched bytecode: read from text, assembled, and refused when the interpreter could not run it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from dynamo_dap.debuggee.bytecode.instructions import InstructionTable
from dynamo_dap.debuggee.patching.assembling import PatchRefused, patched
from tests.code_analysis import test_patching
from tests.code_analysis.standard_library import standard_library_codes


def compute(x: int, y: int) -> int:
    """Take two numbers."""
    z = x - y
    if z > 0:
        return z
    z = len([x, y])
    return -z


def collect(first: int, *rest: int, last: Any = None) -> Any:
    """Have an exception, a closure, a call by name and containers."""
    found: list[Any] = [first, *rest]
    try:
        found.append(int(last))
    except TypeError:
        found = [*found, 0]
    make = lambda: {"all": found, "n": len(found)}  # noqa: E731  (code that makes a function)
    return sorted(make()["all"], reverse=True)  # type: ignore[call-overload]  # as users write it


def _index(code: types.CodeType, name: str, number: int = 0) -> int:
    return [one.index for one in InstructionTable(code) if one.name.startswith(name)][number]


def _run(code: types.CodeType, *arguments: Any) -> Any:
    return types.FunctionType(code, globals())(*arguments)


def _subtraction() -> int:
    return _index(compute.__code__, "BINARY_")


MULTIPLY = "BINARY_OP *" if sys.version_info >= (3, 11) else "BINARY_MULTIPLY"


def test_an_instruction_is_replaced_and_nothing_else() -> None:
    code = compute.__code__
    made = patched(code, _subtraction(), MULTIPLY)
    assert _run(made, 3, 4) == 12
    before, after = InstructionTable(code), InstructionTable(made)
    changed = [index for index in range(len(before)) if before.comparable(index) != after.comparable(index)]
    assert changed == [_subtraction()]
    assert [one.place for one in before] == [one.place for one in after]
    assert (made.co_varnames, made.co_name, made.co_flags) == (code.co_varnames, code.co_name, code.co_flags)
    assert patched(made, _subtraction(), "POP_TOP").co_code != code.co_code
    assert _run(patched(made, _subtraction(), "POP_TOP"), 3, 4) == 3


def test_several_instructions_and_an_exchange() -> None:
    negative = _index(compute.__code__, "UNARY_NEGATIVE")
    assert _run(patched(compute.__code__, negative, "NOP"), 1, 2) == 2
    assert _run(patched(compute.__code__, negative - 1, "LOAD_CONST ';'; NOP"), 1, 2) == ";"
    code = collect.__code__
    load = next(one.index for one in InstructionTable(code) if one.text == "sorted" or "sorted" in one.text)
    with pytest.raises(PatchRefused, match=r"underflow|empty slot"):
        patched(code, load, "NOP")
    if sys.version_info < (3, 13):  # which loads both with one instruction
        exchanged = patched(compute.__code__, _subtraction() - 2, "swap")
        assert _run(exchanged, 3, 4) == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("NOP", "more values would be left on the stack|two depths|would get"),
        ("POP_TOP; POP_TOP; POP_TOP", "underflow"),
        ("LOAD_FAST other", "'other' is not a local variable of this code: it has x, y, z"),
        ("LOAD_CONST print()", "is not a literal"),
        ("JUMP_FORWARD to 1", "is not where an instruction begins"),
        ("COMPARE_OP ~", "is not a comparison"),
        ("BUILD_LIST many", "is not a number"),
        ("BUILD_LIST", "needs an argument"),
        ("POP_TOP 1", "takes no argument"),
        ("MAKE_FUNCTION 0", "cannot be inserted"),
        ("LIST_APPEND 0", "stack slots that do not exist"),
        ("SUBTRACT", "is not an instruction of this Python"),
        (";".join(["NOP"] * 99), "there are only"),
    ],
)
def test_refused(text: str, why: str) -> None:
    with pytest.raises(PatchRefused, match=why):
        patched(compute.__code__, _subtraction(), text)


def test_a_jump_is_replaced_as_it_is_written() -> None:
    code = compute.__code__
    table = InstructionTable(code)
    (jump,) = [one for one in table if one.target is not None]
    assert jump.text == f"to {jump.target}"
    assert _run(patched(code, jump.index, str(jump)), 3, 4) == _run(code, 3, 4)
    other = jump.name.replace("FALSE", "TRUE")
    assert _run(patched(code, jump.index, f"{other} {jump.text}"), 5, 4) == -2


def test_a_variable_that_may_not_be_set_is_not_read() -> None:
    load = "LOAD_FAST_LOAD_FAST x, z" if sys.version_info >= (3, 13) else "LOAD_FAST z"
    with pytest.raises(PatchRefused, match="'z', which may not be set"):
        patched(compute.__code__, _subtraction() - 1, load)


def test_a_function_that_would_run_off_its_end_or_swap_with_nothing_is_refused() -> None:
    last = len(InstructionTable(compute.__code__)) - 1
    with pytest.raises(PatchRefused, match="run past its end"):
        patched(compute.__code__, last, "POP_TOP")
    with pytest.raises(PatchRefused, match="the last instruction has no next"):
        patched(compute.__code__, last, "swap")


def test_code_with_a_constant_set_again_is_the_same_code() -> None:
    tried = 0
    for code in list(standard_library_codes())[::40]:
        table = InstructionTable(code)
        # Python 3.15 loads None by another instruction.
        constant = next((one for one in table if one.name == "LOAD_CONST" and isinstance(one.value, str | None)), None)
        if constant is None:
            continue
        tried += 1
        made = InstructionTable(patched(code, constant.index, f"LOAD_CONST {constant.value!r}"))
        assert [made.comparable(one.index) for one in table] == [table.comparable(one.index) for one in table], code
        if sys.version_info >= (3, 11):  # before, ``bytecode`` loses the lines of code that begins without one
            assert [one.place for one in made] == [one.place for one in table], code
        ranges = [(table.index_at(one.start), one.depth, table.index_at(one.handler)) for one in table.protected]
        assert [(made.index_at(one.start), one.depth, made.index_at(one.handler)) for one in made.protected] == ranges
    assert tried > 50


def test_no_patch_that_is_accepted_ends_the_process() -> None:
    command = [sys.executable, "-c", f"import {test_patching.__name__} as t; t.try_everything()"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"died of {done.returncode} after {done.stdout[-200:]}"
    accepted = int(done.stdout.split()[-1])
    assert accepted > 300


def try_everything() -> None:
    """Run each patch of two functions that is accepted: any instruction of theirs instead of any other, and more."""
    accepted = 0
    tries: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [(compute, (5, 3)), (collect, (1, 2)), (collect, ())]
    for function, arguments in tries:
        code = function.__code__
        table = InstructionTable(code)
        texts = {str(one) for one in table} | {"NOP", "POP_TOP", "PUSH_NULL", "swap", "SWAP 2", "COPY 1", "ROT_TWO"}
        texts |= {f"JUMP_FORWARD to {one.start}" for one in table} | {"LOAD_CONST 7; NOP", "DELETE_FAST z"}
        for index in range(4, len(table)):
            for text in sorted(texts):
                try:
                    made = patched(code, index, text)
                except PatchRefused:
                    continue
                if "BACKWARD" in text or (text.startswith("JUMP") and "ABSOLUTE" in text):
                    continue
                accepted += 1
                # The last line shows what was tried, if the process dies.
                sys.stdout.write(f"{function.__name__} {index} {text}\n")
                sys.stdout.flush()
                with contextlib.suppress(Exception):
                    _run(made, *arguments)
    sys.stdout.write(f"{accepted}\n")
