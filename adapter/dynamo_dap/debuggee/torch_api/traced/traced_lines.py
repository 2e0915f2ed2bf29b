"""Notes the lines that Dynamo traces and the values that names are assigned, for the record.

A wrapper of ``starts_line`` notes lines; wrappers in the interpreter's table of instructions note what is stored in
local variables. Both only keep references; texts are made when the compile ends. Runs on compiling threads, under
Dynamo's compile lock. One ``TraceNotes`` per process.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.objects import Instruction, Translator
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.tracing_hooks import add_line_hook
from dynamo_dap.debuggee.torch_api.traced.translator import is_in_resume_prologue
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place, cell_contents
from dynamo_dap.debuggee.wrapping.patches import Patches

_BASE = "torch._dynamo.symbolic_convert:InstructionTranslatorBase"
_TABLE = "torch._dynamo.symbolic_convert:InstructionTranslatorBase.dispatch_table"
ASSIGNMENTS = Feature("the record of what names are assigned", _BASE, _TABLE)

_STORES = ("STORE_FAST", "STORE_DEREF")
MAXIMUM_VALUES = 6
"""Values kept of one assignment in a loop or a function that runs repeatedly."""


@dataclass(eq=False)
class TracedCode:
    """A code object in a trace."""

    code: types.CodeType
    lines: set[int] = field(default_factory=set)
    parameters: dict[str, object] = field(default_factory=dict)
    """The parameters' trackers at the first call."""
    stored: dict[tuple[str, Place], list[object]] = field(default_factory=dict)
    """Assigned trackers, by name and place."""


class Trace:
    """One attempt of a compile."""

    def __init__(self, is_wanted: Callable[[str], bool]) -> None:
        """Note assignments in the files that ``is_wanted`` selects by ``co_filename``."""
        self._is_wanted = is_wanted
        self._unwanted = TracedCode((lambda: None).__code__)
        self._by_id: dict[int, TracedCode] = {}
        self.frame: TracedFrame | None = None
        """One of the compile's functions, for reading trackers."""

    def clear(self) -> None:
        """Forget the lines: the analysis starts again."""
        self._by_id.clear()
        self.frame = None

    def line(self, translator: Translator) -> None:
        """Note the line that the translator is at."""
        traced = self._by_id.get(id(translator.f_code))
        if traced is None:
            traced = self._begin(translator)
        traced.lines.add(translator.lineno)

    def _begin(self, translator: Translator) -> TracedCode:
        code = translator.f_code
        self.frame = TracedFrame(translator)
        if not self._is_wanted(code.co_filename):
            # Lines of functions that are not the user's are collected in one place, and dropped.
            traced = self._unwanted
        else:
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            known = translator.symbolic_locals
            traced = TracedCode(code, parameters={name: known[name] for name in names if name in known})
        self._by_id[id(code)] = traced
        return traced

    def store(self, translator: Translator, instruction: Instruction) -> None:
        """Note the newest assignment."""
        traced = self._by_id.get(id(translator.f_code))
        if traced is None or traced is self._unwanted or is_in_resume_prologue(translator):
            return
        name = instruction.argval
        tracker = translator.symbolic_locals.get(name)
        if tracker is None or not str(name).isidentifier() or str(name).startswith("__"):
            return
        if instruction.opname == "STORE_DEREF":
            tracker = cell_contents(translator, tracker)
        positions = instruction.positions
        column = (getattr(positions, "col_offset", None) or 0) + 1
        place = Place(traced.code.co_filename, int(translator.lineno), column)
        values = traced.stored.setdefault((str(name), place), [])
        if tracker is not None and len(values) < MAXIMUM_VALUES and not any(tracker is value for value in values):
            values.append(tracker)

    @property
    def codes(self) -> list[TracedCode]:
        """The notes on the user's functions, in the order in which they were reached."""
        return [traced for traced in self._by_id.values() if traced is not self._unwanted]


class TraceNotes:
    """Takes notes of the running trace, while it is installed."""

    def __init__(self) -> None:
        self._running: list[Trace] = []
        self._trace: Trace | None = None
        self._patches = Patches(ASSIGNMENTS.name, self.remove)

    def install(self) -> None:
        """Take notes from now on; harmless if it is installed."""
        if self._patches.is_installed:
            return
        add_line_hook(self._patches, self._on_line)
        if ASSIGNMENTS.problem is not None:
            return
        for kind in _with_subclasses(ASSIGNMENTS.resolve(_BASE)):
            table = kind.__dict__.get("dispatch_table")
            for number in [dis.opmap[name] for name in _STORES if table is not None and name in dis.opmap]:
                self._patches.after(table, number, self._stored)

    def remove(self) -> None:
        """Stop taking notes, of compiles in progress too: their end may not be reported."""
        self._patches.remove()
        self._running, self._trace = [], None

    def begin(self, trace: Trace) -> None:
        """Begin a compile; compiles may be nested."""
        self._running.append(trace)
        self._trace = trace

    def end(self, trace: Trace) -> None:
        """End a compile."""
        if trace in self._running:
            self._running.remove(trace)
        self._trace = self._running[-1] if self._running else None

    def _on_line(self, translator: Translator) -> None:
        trace = self._trace
        if trace is not None:
            trace.line(translator)

    def _stored(self, _: object, translator: Translator, instruction: Instruction) -> None:
        trace = self._trace
        if trace is not None:
            trace.store(translator, instruction)


def _with_subclasses(kind: Any) -> list[object]:
    children: list[object] = kind.__subclasses__()
    return [kind, *(subclass for child in children for subclass in _with_subclasses(child))]
