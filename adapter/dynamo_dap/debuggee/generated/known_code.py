"""Keeps the known code objects that Dynamo generated.

A ``GeneratedCode`` is made when its code first runs (or is first looked up) and lives as long as the code object. It
does not keep the code object alive. Expensive facts are computed at first use. Runs on any thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import CodeType
from typing import Protocol

from dynamo_dap.debuggee.agent.breakpoints import LineBreakpoint
from dynamo_dap.debuggee.agent.engine import RequestError
from dynamo_dap.debuggee.agent.user_code import normalized_path
from dynamo_dap.debuggee.bytecode.instructions import InstructionTable
from dynamo_dap.debuggee.bytecode.line_table import prologue_end, qualified_name
from dynamo_dap.debuggee.bytecode.stack_depth import StackDepths
from dynamo_dap.debuggee.generated.call_interfaces import CallFacts
from dynamo_dap.debuggee.generated.continuations import Continuation, continuation_of
from dynamo_dap.debuggee.generated.listing import Explanation, Listing
from dynamo_dap.debuggee.generated.purpose import Kind
from dynamo_dap.debuggee.generated.statements import StatementListing
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import (
    calls_resume_function,
    resume_function,
    user_function_name,
)
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import (
    compile_id_of,
    has_marker,
    is_marker,
    original_of,
    user_function_of,
    versions_of,
)
from dynamo_dap.debuggee.torch_api.compiles.compile_records import CompileRecord, CompileRecorder, lines_computed
from dynamo_dap.debuggee.values.model import ScopeOfFrame
from dynamo_dap.debuggee.wrapping.locks import Level, reentrant_lock
from dynamo_dap.protocol.requests.contract import STATEMENTS, ErrorId

ADDRESS_SHIFT = 24
"""An address is ``(number + 1) << ADDRESS_SHIFT | offset``: each code object has 16 MB of addresses."""


class Document(Protocol):
    """A listing of one code object, in one form. Lines are 1-based, instructions are given by their indices."""

    def text(self) -> str:
        """Return the whole text."""

    def line_of(self, index: int) -> int:
        """Return the line of an instruction."""

    def entry_of(self, line: int) -> int | None:
        """Return the instruction at which a line begins, or None."""

    def is_same_statement(self, one: int, other: int) -> bool:
        """Return whether no step by statement ends between two instructions."""

    def explanation(self, line: int) -> Explanation | None:
        """Return the full explanation of a line, or None."""


_OF_COMPILE = ("record", "continuation", "listing", "statements", "table", "depths")


class CodeGone(Exception):
    """A requested code object no longer exists; the message says so."""


class GeneratedCode:
    """One code object that Dynamo generated."""

    def __init__(self, number: int, code: CodeType, codes: GeneratedCodes) -> None:
        """Describe ``code``, the session's generated code number ``number``, from 0; ``codes`` has all of them."""
        self.number = number
        self.codes = codes
        self._code = weakref.ref(code)
        original = original_of(code)
        self.original_id = id(original)
        """``id`` of the original code, by which calls are counted."""
        user = user_function_of(original) if original is not None else code
        self.function = user.co_name
        """Name of the user's function, of which this code runs all or a part."""
        self.qualified_name = qualified_name(user)
        self.is_resume_function = user is not (original or code)
        resumed = resume_function(original) if original is not None else None
        self._resumed = f"resumed at line {resumed.line}, " if resumed is not None else ""
        self.user_name = user_function_name(original or code)
        """Its name in the stack if the user's file is shown: ``Model.forward``, ``fn (resumed at line 8)``."""
        self.path = user.co_filename
        self.first_line = user.co_firstlineno
        """The line where the user's function begins, 1-based."""
        self.has_marker = has_marker(code)
        self.facts: CallFacts | None = None
        """Facts that hold for every call that runs this code; None while unknown."""
        self.may_stop = False
        """Whether a call may have to stop before this code runs (``agent.engine.CachedCalls``)."""
        self.decided_at = -1
        """The version of the breakpoints for which ``may_stop`` holds."""
        self.leads_to_stop = False
        """Whether the code after its graph break may have to stop."""
        self.leading_decided_at = (-1, 0)
        """The version of the breakpoints and the number of known codes for which ``leads_to_stop`` holds."""
        self.backward_facts: CallFacts | None = None
        """Facts about the backward passes of all calls that run this code; None while unknown."""
        self.keeps_inputs = False
        """Whether the backward pass of a call may have to stop (``agent.engine.BackwardCalls``)."""
        self.keeping_decided_at = -1
        """The version of the breakpoints for which ``keeps_inputs`` holds."""
        self.cannot_be_kept = False
        """Whether keeping a call's inputs failed."""
        self.cannot_be_stopped = False
        """Whether stopping a call before this code ran has failed."""
        self.passes_for: tuple[object, ...] | None = None
        """The settings under which a call needed no work: later calls need none while these are unchanged."""
        self.only_counts = False
        """Whether breakpoints only count such calls, until a hit count makes one stop."""
        self.hits = 0
        """How often this code was about to run, while the engine counts calls."""
        self.stops: Mapping[int, tuple[LineBreakpoint, ...]] = {}
        """Its stops, by offset (``breakpoints.Plan.stops``): stored here because every instruction reads them."""

    def drop_facts(self, names: tuple[str, ...] = _OF_COMPILE) -> None:
        """Drop the facts of the compile, with its graph: the code is freed. Sources still refer to this object.

        This method reads no globals: at the end of the interpreter, those of this module may be gone.
        """
        for name in names:
            self.__dict__.pop(name, None)
        self.facts = self.backward_facts = None

    @property
    def after_break(self) -> Iterator[GeneratedCode]:
        """Yield the code that may run after its graph break: known resume functions of the same function."""
        code = self.code_if_alive
        if code is not None and calls_resume_function(code):
            for each in self.codes:
                is_same = (each.path, each.first_line, each.function) == (self.path, self.first_line, self.function)
                if each is not self and each.is_resume_function and is_same and each.code_if_alive is not None:
                    yield each

    @property
    def code(self) -> CodeType:
        """The code object.

        Raises:
            CodeGone: it has been freed.
        """
        code = self._code()
        if code is None:
            raise CodeGone(f"{self.name} was freed: Dynamo dropped it, or its function no longer exists")
        return code

    @property
    def code_if_alive(self) -> CodeType | None:
        """The code object; None if it has been freed."""
        return self._code()

    @property
    def original(self) -> CodeType | None:
        """The original code, if Dynamo still knows it."""
        return original_of(self.code)

    @property
    def name(self) -> str:
        """Its name in the stack: ``fn (generated #0)``, ``fn (generated #2: #0 patched)``."""
        unpatched = self.unpatched
        patched = "" if unpatched is self else f": #{unpatched.number} patched"
        return f"{self.function} ({self._resumed}generated #{self.number}{patched})"

    @property
    def unpatched(self) -> GeneratedCode:
        """The code as Dynamo generated it: itself, if it is not a patch of another."""
        return self.codes.versions(self)[0]

    @cached_property
    def changes(self) -> Mapping[int, str]:
        """Dynamo's original instructions in the places that a patch changed, by index."""
        if self.unpatched is self:
            return {}
        table, before = self.table, self.unpatched.table
        return {
            instruction.index: str(instruction)
            for instruction in before
            if table.comparable(instruction.index) != before.comparable(instruction.index)
        }

    @cached_property
    def table(self) -> InstructionTable:
        """Its instructions."""
        return InstructionTable(self.code)

    @cached_property
    def entry(self) -> int:
        """Index of the first instruction with reliable events: after ``RESUME`` and the creation of cells.

        Events of earlier ones depend on the version of Python and on whether the code has run before.
        """
        return self.table.index_at(prologue_end(self.code)) or 0

    @cached_property
    def entry_offset(self) -> int:
        """The offset of the instruction ``entry``."""
        return self.table[self.entry].start

    @cached_property
    def after_graph(self) -> frozenset[int]:
        """The offsets of the instructions right after calls of the compiled graph."""
        calls = [group.purpose.anchor for group in self.listing.groups_of(Kind.GRAPH)]
        return frozenset(self.table[index + 1].start for index in calls)

    @cached_property
    def depths(self) -> StackDepths:
        """The depth of the value stack before each of its instructions."""
        return StackDepths(self.code, self.table)

    @cached_property
    def compile_id(self) -> str | None:
        """The id of the compile that made it."""
        return compile_id_of(self.code)

    @cached_property
    def record(self) -> CompileRecord | None:
        """Dynamo's record of its compile; None if that was before the session."""
        return self.codes.recorder.record_of(self.code)

    @cached_property
    def computed_lines(self) -> frozenset[tuple[str, int]]:
        """Normalized paths and lines that its compiled graph computes."""
        lines = lines_computed(self.record.graph) if self.record is not None else ()
        return frozenset((normalized_path(path), line) for path, line in lines)

    @cached_property
    def functions(self) -> frozenset[tuple[str, int]]:
        """Normalized path and first line of the user's functions that it runs: its own, and the inlined ones."""
        traced = self.record.traced if self.record is not None else ()
        return frozenset((normalized_path(path), line) for path, line in (*traced, (self.path, self.first_line)))

    @cached_property
    def continuation(self) -> Continuation | None:
        """The rest of the user's function, if it runs as ordinary Python in this code."""
        return continuation_of(self.table, self.record.break_line if self.record is not None else None)

    def continued_line(self, index: int) -> int | None:
        """Return the user's line that the instruction ``index`` runs as ordinary Python, or None."""
        return self.continuation.line_of(index) if self.continuation is not None else None

    @cached_property
    def listing(self) -> Listing:
        """Its annotated listing."""
        return Listing(self.code, self.original, self.depths, self.record, self.changes, self.continuation)

    def document(self, form: str | None = None) -> Document:
        """Return the document that its frames show; ``form`` is one of ``LISTING_FORMS``, by default the present."""
        return self.statements if (form or self.form) == STATEMENTS else self.listing

    @property
    def form(self) -> str:
        """The present form of its listing, one of ``LISTING_FORMS``."""
        return self.codes.form()

    @cached_property
    def statements(self) -> StatementListing:
        """Its listing as Python."""
        return StatementListing(self.code, self.original, self.depths, self.listing)

    @cached_property
    def markers(self) -> frozenset[int]:
        """Indices of torch's breakpoint markers."""
        if not self.has_marker:  # and the code needs no analysis
            return frozenset()
        return frozenset(instruction.index for instruction in self.table if is_marker(instruction.value))

    @property
    def base_address(self) -> int:
        """The address of its first byte."""
        return (self.number + 1) << ADDRESS_SHIFT

    def address(self, index: int) -> int:
        """Return the address of the instruction ``index``."""
        return self.base_address | self.table[index].start

    def reference(self, index: int) -> str:
        """Return the address of the instruction ``index`` as DAP's memory reference."""
        return hex(self.address(index))


class GeneratedCodes:
    """Every known generated code object, by identity and by number."""

    def __init__(self, recorder: CompileRecorder, form: Callable[[], str]) -> None:
        """Collect generated code: ``recorder`` has Dynamo's records of compiles, ``form`` returns the present form."""
        self.recorder = recorder
        self.form = form
        self.more_scopes: list[Callable[[GeneratedCode, int], ScopeOfFrame]] = []
        """Functions that add scopes of other packages to a frame, given the code and the index of its instruction."""
        self.when_closed: list[Callable[[], object]] = []
        """Functions to call when the session ends."""
        self.count = 0
        """The number of known code objects, freed ones included."""
        self._by_id: dict[int, GeneratedCode] = {}
        self._by_number: dict[int, GeneratedCode] = {}
        self._references: dict[int, weakref.ref[CodeType]] = {}
        self._lock = reentrant_lock("generated code", Level.FEATURES)

    def get(self, code: CodeType) -> GeneratedCode | None:
        """Return the facts of ``code``, or None. Cheap: called at every instruction."""
        return self._by_id.get(id(code))

    def add(self, code: CodeType) -> GeneratedCode:
        """Return the facts of ``code``, which Dynamo generated."""
        known = self._by_id.get(id(code))
        if known is not None:
            return known
        with self._lock:
            known = self._by_id.get(id(code))
            if known is None:
                known = GeneratedCode(self.count, code, self)
                self.count += 1
                key, number = id(code), known.number
                self._references[key] = weakref.ref(code, lambda _: self._forget(key, number))
                self._by_id[key] = known
                self._by_number[number] = known
            return known

    def recognise(self, code: CodeType) -> GeneratedCode | None:
        """Return the facts of ``code``, known or new; None if Dynamo did not generate it."""
        known = self._by_id.get(id(code))
        if known is not None:
            return known
        return self.add(code) if original_of(code) is not None else None

    def versions(self, generated: GeneratedCode) -> list[GeneratedCode]:
        """Return the versions of ``generated``, oldest first: see ``versions_of``. The next call runs the last one."""
        code = generated.code_if_alive
        return [generated] if code is None else [self.add(version) for version in versions_of(code)]

    def at_address(self, address: int) -> GeneratedCode | None:
        """Return the code object that contains ``address`` or ends there, or None.

        Raises:
            CodeGone: the code has been freed.
        """
        number = (address >> ADDRESS_SHIFT) - 1
        generated = self._by_number.get(number)
        if generated is None and 0 <= number < self.count:
            raise CodeGone(f"generated code #{number} was freed: Dynamo dropped it, or its function no longer exists")
        return generated

    def instruction_at(self, address: int) -> tuple[GeneratedCode, int]:
        """Return the code that has an instruction at ``address``, and the instruction's index.

        Raises:
            BadAddress: no instruction begins there.
            CodeGone: the code has been freed.
        """
        generated = self.at_address(address)
        if generated is None:
            raise BadAddress(f"{hex(address)} is not the address of generated code")
        offset = address & ((1 << ADDRESS_SHIFT) - 1)
        index = generated.table.index_at(offset)
        if index is None:
            raise BadAddress(f"{hex(address)} is past the end of {generated.name}")
        instruction = generated.table[index]
        if offset not in (instruction.start, instruction.offset):
            begin = generated.reference(index)
            raise BadAddress(f"{hex(address)} is in the middle of {instruction.name}, which begins at {begin}")
        return generated, index

    def __iter__(self) -> Iterator[GeneratedCode]:
        return iter(list(self._by_number.values()))

    def _forget(self, key: int, number: int) -> None:
        self._references.pop(key, None)
        self._by_id.pop(key, None)
        known = self._by_number.pop(number, None)
        if known is not None:
            known.drop_facts()


def made_once(make: Callable[[], str]) -> Callable[[], str]:
    """Return a function that computes a document's text once, so that the text outlives the code.

    It raises ``RequestError`` if the code has been freed before.
    """
    known: list[str] = []

    def text() -> str:
        if not known:
            try:
                known.append(make())
            except CodeGone as gone:
                raise RequestError(str(gone), error_id=ErrorId.UNKNOWN_REFERENCE) from None
        return known[0]

    return text


class BadAddress(Exception):
    """The address does not belong to an instruction; the message says why."""


def parsed_address(reference: str) -> int:
    """Return the address of a memory reference.

    Raises:
        BadAddress: the reference is not a number.
    """
    try:
        return int(reference, 0)
    except ValueError:
        raise BadAddress(f"{reference!r} is not the address of an instruction") from None
