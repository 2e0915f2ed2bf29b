"""Instructions, operands, depths and data flow over every code object of the standard library."""

from __future__ import annotations

import dis
import opcode
import sys
from collections.abc import Iterator
from types import CodeType

import pytest

from dynamo_dap.debuggee.bytecode.data_flow import DataFlow
from dynamo_dap.debuggee.bytecode.instructions import Instruction, InstructionTable
from dynamo_dap.debuggee.bytecode.stack_depth import StackDepths, effect, left, taken
from tests.code_analysis.standard_library import standard_library_codes

NOT_FOR_CODE = {"RESERVED", "ENTER_EXECUTOR", "INTERPRETER_EXIT", "TRACE_RECORD", "<0>"}


@pytest.fixture(scope="module")
def codes() -> list[CodeType]:
    found = list(standard_library_codes())
    assert len(found) > 8000
    return found


def test_instructions_are_those_of_dis_without_gaps(codes: list[CodeType]) -> None:
    for code in codes[::7]:
        table = InstructionTable(code)
        expected = [(raw.offset, raw.opname, raw.arg) for raw in _plain(code)]
        assert [(one.offset, one.name, one.argument) for one in table] == expected
        ends = [0, *(one.end for one in table)]
        assert [one.start for one in table] == ends[:-1], "every byte belongs to one instruction"
        assert ends[-1] == len(code.co_code)
        for instruction in table:
            for offset in range(instruction.start, instruction.end, 2):
                assert table.index_at(offset) == instruction.index
        assert table.index_at(len(code.co_code)) is None
        assert table.at(-2) is None


def _plain(code: CodeType) -> Iterator[dis.Instruction]:
    return (raw for raw in dis.get_instructions(code) if raw.opname not in ("EXTENDED_ARG", "CACHE"))


def test_places_are_those_of_the_interpreter(codes: list[CodeType]) -> None:
    for code in codes[2::7]:
        expected = _places(code)
        for one in InstructionTable(code):
            found = one.place
            place = None if found is None else (found.lineno, found.end_lineno, found.col_offset, found.end_col_offset)
            assert place == expected[one.offset // 2], f"{code} {one}"


def _places(code: CodeType) -> list[tuple[int | None, ...] | None]:
    if sys.version_info >= (3, 11):
        return [place if place[0] else None for place in code.co_positions()]
    lines = [line for begin, end, line in code.co_lines() for _ in range(begin, end, 2)]
    return [(line, None, None, None) if line else None for line in lines]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has blocks and no exception table")
def test_exception_tables_are_those_of_dis(codes: list[CodeType]) -> None:
    ranges = 0
    for code in codes:
        found = [
            (one.start, one.end, one.handler, one.depth, one.pushes_offset) for one in InstructionTable(code).protected
        ]
        parsed = dis._parse_exception_table(code)  # type: ignore[attr-defined]
        assert found == [(one.start, one.end, one.target, one.depth, one.lasti) for one in parsed]
        ranges += len(found)
    assert ranges > 5000


def test_arguments_are_resolved_as_dis_does(codes: list[CodeType]) -> None:
    for code in codes[3::11]:
        for instruction, raw in zip(InstructionTable(code), _plain(code), strict=True):
            if raw.opcode not in opcode.hasconst:
                assert instruction.value == raw.argval or instruction.text == raw.argrepr
            else:
                assert instruction.value is code.co_consts[raw.arg or 0]


def test_effects_agree_with_the_interpreter(codes: list[CodeType]) -> None:
    """What is taken and what is left never contradict ``dis.stack_effect``; every instruction met is known."""
    seen: set[tuple[str, int | None]] = set()
    for code in codes:
        for instruction in InstructionTable(code):
            if (instruction.name, instruction.argument) in seen:
                continue
            seen.add((instruction.name, instruction.argument))
            for jump in (False, True):
                assert left(instruction, jump=jump) >= 0, f"{instruction} takes {taken(instruction)}"
                if not _is_counted_otherwise(instruction):
                    expected = dis.stack_effect(instruction.opcode, instruction.argument, jump=jump)
                    assert effect(instruction, jump=jump) == expected
    assert len({name for name, _ in seen}) > 80


def _is_counted_otherwise(instruction: Instruction) -> bool:
    return instruction.name == "RETURN_GENERATOR" or (
        sys.version_info[:2] == (3, 11) and instruction.name in ("PRECALL", "CALL")
    )


def test_every_instruction_of_this_python_is_known() -> None:
    """Also those that no code of the standard library has."""
    names = {name for name, code in opcode.opmap.items() if code < 256 and "INSTRUMENTED" not in name}
    for name in sorted(names - NOT_FOR_CODE):
        instruction = Instruction(0, 0, 0, 2, opcode.opmap[name], name, 1, None, "", None, None)
        assert taken(instruction) >= 0


def test_depths_are_consistent_and_reach_exactly_the_stack_size(codes: list[CodeType]) -> None:
    """All paths agree (or ``InconsistentStack`` is raised), and the deepest is what the compiler computed.

    The compiler's figure is a bound: it may come from code that it removed afterwards.
    """
    exact = 0
    for code in codes:
        depths = StackDepths(code)
        known = [depth for index in range(len(depths.table)) if (depth := depths.before(index)) is not None]
        deepest = max(known, default=0)
        assert min(known, default=0) >= 0
        assert deepest <= code.co_stacksize
        exact += deepest == code.co_stacksize
        for index in range(len(depths.table)):
            below = depths.below_operands(index)
            assert (below is None) == (depths.before(index) is None)
            assert below is None or 0 <= below <= (depths.before(index) or 0)
    assert exact / len(codes) > (0.97 if sys.version_info >= (3, 13) else 0.999)


def test_data_flow_has_an_expression_for_every_slot(codes: list[CodeType]) -> None:
    for code in codes[5::9]:
        depths = StackDepths(code)
        flow = DataFlow(depths)
        for instruction in depths.table:
            depth = depths.before(instruction.index)
            assert len(flow.stack_before(instruction.index)) == (depth or 0), f"{code} {instruction}"
            if depth is not None:
                assert len(flow.operands(instruction.index)) == taken(instruction)


def test_an_analysis_does_not_keep_the_code_alive() -> None:
    import weakref

    space: dict[str, object] = {}
    exec("def function(a):\n    return [a, 'constant']\n", space)
    code = space.pop("function").__code__  # type: ignore[attr-defined]
    reference = weakref.ref(code)
    depths = StackDepths(code)
    flow = DataFlow(depths)
    space.clear()
    del code
    assert reference() is None
    assert flow.stack_before(0) == ()
