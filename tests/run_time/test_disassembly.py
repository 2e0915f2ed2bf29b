"""``disassemble``: rows, addresses, padding beyond both ends, and code that no longer exists."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

from dynamo_dap.debuggee.agent.engine import RequestError
from dynamo_dap.debuggee.generated.frames import listing_source
from dynamo_dap.debuggee.generated.scopes import graph_source
from dynamo_dap.protocol.wire.types import DisassembleArguments, InstructionBreakpoint
from tests.run_time.in_process import Recorder, ScriptedHost, debugging
from tests.run_time.programs import FIXTURE, compiled, programs, replay_arguments


def _disassemble(host: ScriptedHost, reference: str, count: int, first: int = 0, offset: int = 0) -> list[Any]:
    arguments = DisassembleArguments(
        memory_reference=reference, instruction_count=count, instruction_offset=first, offset=offset
    )
    return host.engine.disassemble(arguments).instructions


def _known(host: ScriptedHost) -> Any:
    host.request_pause()
    host.engine.update_hooks()
    compiled(programs.broken)(torch.ones(3), {})
    return next(iter(host.engine.codes))


def test_rows_are_the_instructions() -> None:
    with debugging(Recorder()) as host:
        generated = _known(host)
        rows = _disassemble(host, generated.reference(0), len(generated.table))
        code = generated.code.co_code
    assert [row.instruction for row in rows] == [str(one) for one in generated.table]
    addresses = [int(row.address, 16) for row in rows]
    assert addresses == [generated.base_address + one.start for one in generated.table]
    shown = [bytes.fromhex(row.instruction_bytes) for row in rows]
    assert shown == [code[one.start : one.offset + 2] for one in generated.table]
    assert all(len(one) == 2 for one in shown), "inline caches are left out"
    assert {row.location.path for row in rows if row.location} == {str(FIXTURE.path)}


@pytest.mark.parametrize(("first", "count"), [(-50, 20), (-3, 400), (1000, 30), (-10, 0), (5, 1)])
def test_as_many_rows_as_asked_for_with_padding_beyond_both_ends(first: int, count: int) -> None:
    with debugging(Recorder()) as host:
        generated = _known(host)
        rows = _disassemble(host, generated.reference(0), count, first)
    assert len(rows) == count
    addresses = [int(row.address, 16) for row in rows]
    assert addresses == sorted(set(addresses)), "addresses grow from row to row"
    for number, row in enumerate(rows, start=first):
        is_real = 0 <= number < len(generated.table)
        assert (row.presentation_hint == "invalid") != is_real
        assert bool(row.instruction) == is_real


def test_scrolling_on_from_padding() -> None:
    """VS Code continues from its last row, even if that row is padding."""
    with debugging(Recorder()) as host:
        generated = _known(host)
        before = _disassemble(host, generated.reference(0), 10, -10)
        further = _disassemble(host, before[0].address, 10, -10)
        again = _disassemble(host, further[0].address, 20)
        assert [row.address for row in again] == [row.address for row in (*further, *before)]
        end = _disassemble(host, generated.reference(len(generated.table) - 1), 10)
        behind = _disassemble(host, end[-1].address, 10)
        assert behind[0].address == end[-1].address
        assert all(row.presentation_hint == "invalid" for row in behind)


def test_an_offset_in_bytes() -> None:
    with debugging(Recorder()) as host:
        generated = _known(host)
        (row,) = _disassemble(host, generated.reference(0), 1, offset=generated.table[4].start)
    assert row.instruction == str(generated.table[4])


@pytest.mark.parametrize(
    ("reference", "count", "problem"),
    [
        ("nonsense", 1, "is not the address of an instruction"),
        ("0x7fff00000000", 1, "is not the address of generated code"),
        (None, -1, "cannot disassemble -1"),
        (None, 10**9, "at most"),
    ],
)
def test_bad_requests(reference: str | None, count: int, problem: str) -> None:
    with debugging(Recorder()) as host:
        generated = _known(host)
        with pytest.raises(RequestError, match=problem):
            _disassemble(host, reference or generated.reference(0), count)


def test_code_that_is_gone() -> None:
    with debugging(Recorder()) as host:
        function = compiled(lambda x: x + 1)
        host.request_pause()
        host.engine.update_hooks()
        function(torch.ones(1))
        generated = next(iter(host.engine.codes))
        reference, name = generated.reference(0), f"#{generated.number}"
        shown, graph, listing = graph_source(generated), graph_source(generated), listing_source(generated)
        assert shown is not None
        assert graph is not None
        text = shown.text()
        kept = weakref.ref(generated.record.graph)
        del generated, function
        torch._dynamo.reset()
        gc.collect()
        assert list(host.engine.codes) == []
        assert kept() is None, "documents and records keep its graph"
        assert shown.text() == text, "what was shown once is there still"
        for document in (graph, listing):
            with pytest.raises(RequestError, match="was freed"):
                document.text()
        with pytest.raises(RequestError, match=f"generated code {name} was freed"):
            _disassemble(host, reference, 1)
        (made,) = host.engine.set_instruction_breakpoints([InstructionBreakpoint(instruction_reference=reference)])
        assert not made.verified
        assert "was freed" in (made.message or "")
        other = compiled(programs.replay)
        host.request_pause()
        host.engine.update_hooks()
        other(*replay_arguments())
        assert next(iter(host.engine.codes)).number == 1, "numbers are never used again"
