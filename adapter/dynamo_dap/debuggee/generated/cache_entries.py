"""Describes the cache entries of compiled functions, as a response's body and as text, and removes them.

Each request reads torch's tables, on the agent's reader thread or a thread of the program. ``CompileFacts`` has the
facts of other packages about a compile (its graphs, why an entry was missed).
"""

from __future__ import annotations

import linecache
import os
import re
import textwrap
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from dynamo_dap.debuggee.agent.engine import NoSuchEntry
from dynamo_dap.debuggee.bytecode.constants import without_addresses
from dynamo_dap.debuggee.generated.known_code import GeneratedCode, GeneratedCodes
from dynamo_dap.debuggee.torch_api.cache.cache_entries import (
    CannotForget,
    References,
    checks_of,
    family_of,
    forget_entry,
    forget_function,
    functions_with_entries,
    held_by,
    is_dynamos_file,
    references_of,
    traced_instructions,
)
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import resume_function, shown_names, user_function_name
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import live_entries, user_function_of
from dynamo_dap.debuggee.torch_api.compiles.compilation import name_of_backend
from dynamo_dap.debuggee.torch_api.features import FeatureMissing
from dynamo_dap.protocol.requests.cache_entries import (
    CachedFunction,
    CacheEntry,
    EntriesBody,
    EntryGraph,
    EntryGuard,
    EntryMemory,
    EntryMiss,
    EntryResume,
)
from dynamo_dap.protocol.texts import counted


@dataclass(frozen=True)
class CompileFacts:
    """Functions of other packages that return facts about compiles."""

    guard_text: Callable[[str], str]
    """Translates a guard to plain words."""
    graphs: Callable[[CodeType, str], list[EntryGraph]]
    """A compile's recorded graphs, by compiled code and compile id."""
    backend: Callable[[CodeType, str], str | None]
    """The backend of that compile, which may differ from the program's."""
    name: Callable[[CodeType, str], str | None]
    """The compiled function's name, as in reports: for a decorator's wrapper, the wrapped function's."""
    failed: Callable[[CodeType, str], list[str]]
    """The guards of that compile's entry that failed when later calls were compiled again, in torch's words."""
    last_miss: Callable[[CodeType, str], EntryMiss | None]
    """Why that compile's entry was missed, the last time a call was compiled again."""


class CacheEntries:
    """Reads and removes cache entries. Implements ``agent.engine.EntryReader``."""

    def __init__(self, codes: GeneratedCodes, known: CompileFacts, counted: Callable[[], bool]) -> None:
        """Take ``codes``, the generated codes; ``counted`` returns whether calls are being counted."""
        self._codes = codes
        self._known = known
        self._are_calls_counted = counted
        self._ids: dict[int, tuple[int, weakref.ref[CodeType]]] = {}
        """A number for each function, by ``id``."""
        self._count = 0

    def body(self, function: str | None = None) -> EntriesBody:
        """Return the cache entries of the functions called ``function``, or of all functions."""
        found = [code for code in functions_with_entries() if function is None or self._is_called(code, function)]
        return self._body_of(found)

    def of_function(self, code: CodeType) -> EntriesBody:
        """Return the cache entries of one function and of its resume functions."""
        return self._body_of(family_of(code))

    def _body_of(self, codes: list[CodeType]) -> EntriesBody:
        resumes: dict[int, list[EntryResume]] = {}
        for code in codes:
            for entry in live_entries(code):
                references = references_of(entry).resumes
                for one, (_, resumed) in zip(_resumes(references, code), references, strict=True):
                    resumes.setdefault(id(resumed), []).append(one)
        functions = [self._function(code, resumes.get(id(code), [])) for code in codes]
        return EntriesBody([one for one in functions if one.entries], text_of(functions))

    def forget(self, function_id: int, compile_id: str | None) -> int:
        """Remove an entry, or all entries of a function if ``compile_id`` is None; return how many.

        Raises:
            NoSuchEntry: the entry does not exist, or cannot be removed now.
        """
        code = next((reference() for number, reference in self._ids.values() if number == function_id), None)
        if code is None:
            raise NoSuchEntry("the function no longer exists")
        try:
            if compile_id is None:
                return forget_function(code)
            entry = next((one for one in live_entries(code) if str(one.compile_id) == compile_id), None)
            if entry is None:
                raise NoSuchEntry(f"{user_function_name(code)} has no cache entry {compile_id}")
            forget_entry(entry)
        except (CannotForget, FeatureMissing) as problem:
            raise NoSuchEntry(str(problem)) from None
        return 1

    def _id_of(self, code: CodeType) -> int:
        key = id(code)
        if key not in self._ids:
            self._count += 1
            self._ids[key] = (self._count, weakref.ref(code, lambda _: self._ids.pop(key, None)))
        return self._ids[key][0]

    def _function(self, code: CodeType, resumes: list[EntryResume]) -> CachedFunction:
        """Describe ``code``. If it is a resume function, ``resumes`` describes it for each entry that calls it."""
        path, line = _place_of(code)
        name, own_name = self._name_of(code), user_function_name(code)
        is_resumed = user_function_of(code) is not code
        return CachedFunction(
            id=self._id_of(code),
            name=name,
            path=path,
            line=line,
            entries=[one for entry in live_entries(code) if (one := self._entry(code, entry)) is not None],
            wrapper=None if is_resumed or name == own_name else own_name,
            is_resume_function=is_resumed,
            next_line=next((one.next_line for one in resumes), None),
            when=next((one.when for one in resumes), None),
            generated_names=[one.generated_name for one in resumes],
        )

    def _name_of(self, code: CodeType) -> str:
        names = [self._known.name(code, str(entry.compile_id)) for entry in live_entries(code)]
        return ", ".join(dict.fromkeys(name for name in names if name is not None)) or user_function_name(code)

    def _is_called(self, code: CodeType, name: str) -> bool:
        function = user_function_of(code)
        names = [*self._name_of(function).split(", "), user_function_name(function)]
        return any(known == name or known.endswith(f".{name}") for known in names)

    def _entry(self, original: CodeType, entry: Any) -> CacheEntry | None:
        """Describe an entry; return None if the program has dropped it meanwhile, for example at its end."""
        compile_id = str(entry.compile_id)
        references = references_of(entry)
        code = entry.code  # held: another thread may drop the entry
        generated = self._codes.add(code)
        if generated.code_if_alive is None:
            return None
        held = held_by(entry, [graph for _, graph in references.graphs])
        return CacheEntry(
            compile_id=compile_id,
            backend=self._known.backend(original, compile_id) or name_of_backend(entry.backend),
            guards=list(self._guards(entry, self._known.failed(original, compile_id))),
            code=generated.statements.text(),
            graphs=self._graphs(original, compile_id, references),
            resumes=_resumes(references.resumes, original),
            memory=EntryMemory(held.code, held.tensors, held.tensor_count, held.backend_code, held.is_whole),
            calls=self._calls(generated),
            last_miss=self._known.last_miss(original, compile_id),
        )

    def _calls(self, generated: GeneratedCode) -> int | None:
        if not self._are_calls_counted():
            return None
        return sum(version.hits for version in self._codes.versions(generated))

    def _guards(self, entry: object, failed: list[str]) -> Iterator[EntryGuard]:
        for check in checks_of(entry, failed):
            place = None if check.place is None or is_dynamos_file(check.place.path) else check.place
            yield EntryGuard(
                text=without_addresses(self._known.guard_text(check.expression)),
                expression=without_addresses(check.expression),
                path=None if place is None else place.path,
                line=None if place is None else place.line,
                failures=check.failures,
                object_failures=check.object_failures,
            )

    def _graphs(self, original: CodeType, compile_id: str, references: References) -> list[EntryGraph]:
        recorded = self._known.graphs(original, compile_id)
        names = [shown_names(name) for name, _ in references.graphs]
        if len(recorded) != len(names):
            return recorded or [EntryGraph(name) for name in names]
        return [EntryGraph(name, one.operations, one.code) for name, one in zip(names, recorded, strict=True)]


def _place_of(code: CodeType) -> tuple[str, int]:
    resumed = resume_function(code)
    return code.co_filename, code.co_firstlineno if resumed is None else resumed.line


def _resumes(resumes: Sequence[tuple[str, CodeType]], caller: CodeType) -> list[EntryResume]:
    """Return the resume functions that an entry of ``caller`` calls."""
    offsets = [int(match[1]) if (match := _OFFSET.match(name)) else -1 for name, _ in resumes]
    sides = _sides_of_branches(caller, set(offsets))
    return [
        _resume(name, code, *sides.get(at, (None, None))) for (name, code), at in zip(resumes, offsets, strict=True)
    ]


_OFFSET = re.compile(r"__resume_at_(\d+)")
"""The bytecode offset at which a resume function continues the compiled function."""
_WHEN = {
    "IF_FALSE": ("true", "false"),
    "IF_TRUE": ("false", "true"),
    "IF_NONE": ("not None", "None"),
    "IF_NOT_NONE": ("None", "not None"),
}
"""By the end of a jump's name: the tested value if the jump is not taken, and the value if it is taken."""


def _sides_of_branches(code: CodeType, offsets: set[int]) -> dict[int, tuple[int | None, str]]:
    """Return each side's line and tested value, for branches with both sides in ``offsets``."""
    try:
        instructions = traced_instructions(code)
    except FeatureMissing:
        return {}
    # Python 3.14 marks an untaken jump by an extra instruction, at the line of the condition.
    lines = {
        one.offset: following.line if one.name == "NOT_TAKEN" else one.line
        for one, following in zip(instructions, [*instructions[1:], *instructions[-1:]], strict=True)
    }
    found: dict[int, tuple[int | None, str]] = {}
    for at, one in enumerate(instructions[:-1]):
        sides = next((sides for ending, sides in _WHEN.items() if one.name.endswith(ending)), None)
        following = [each.offset for each in instructions[at + 1 : at + 3]]
        after = next((each for each in following if each in offsets), None)
        if (
            sides is None
            or after is None
            or one.jumps_to is None
            or one.jumps_to not in offsets
            or after == one.jumps_to
        ):
            continue
        found[after] = lines.get(after), sides[0]
        found[one.jumps_to] = lines.get(one.jumps_to), sides[1]
    return found


def _resume(generated_name: str, code: CodeType, next_line: int | None, when: str | None) -> EntryResume:
    path, line = _place_of(code)
    text = linecache.getline(path, line).strip()
    return EntryResume(
        user_function_name(code),
        path,
        line,
        text,
        len(live_entries(code)),
        generated_name,
        next_line if next_line != line else None,
        when,
    )


def _side(when: str | None, next_line: int | None, path: str) -> str:
    """Describe a resume function's side of a branch; empty if it belongs to no branch."""
    line = "" if next_line is None else f", continues at line {next_line}: {linecache.getline(path, next_line).strip()}"
    return "" if when is None else f", when the tested value is {when}{line}"


# -- as text -----------------------------------------------------------------------------------------------------------

NOTHING = "No function has cache entries.\n"
_GUARD_WIDTH = 76


def text_of(functions: list[CachedFunction]) -> str:
    """Return functions with their cache entries as text: plain, without colours."""
    lines = [line for one in functions if one.entries for line in (*_function_lines(one), "")]
    return "\n".join(lines) or NOTHING


def _function_lines(function: CachedFunction) -> Iterator[str]:
    count = len(function.entries)
    order = ", in the order in which they are tried" if count > 1 else ""
    entries = counted(count, "cache entry", "cache entries")
    own = function.name if function.wrapper is None else f"{function.name} in {function.wrapper}"
    name = ", ".join([own, *dict.fromkeys(function.generated_names)])
    side = _side(function.when, function.next_line, function.path)
    yield f"{name}  {function.path}:{function.line}  ({entries}{order}{side})"
    for entry in function.entries:
        yield ""
        yield from (f"  {line}" for line in _entry_lines(entry, function.path))


def _entry_lines(entry: CacheEntry, path: str) -> Iterator[str]:
    """Yield the lines of one entry of a function in the file ``path``."""
    calls = "" if entry.calls is None else f", {counted(entry.calls, 'call')} since counting began"
    yield f"[{entry.compile_id}] compiled by {entry.backend}{calls}"
    if (miss := entry.last_miss) is not None:
        yield f"  last miss: {_miss(miss)}"
    yield f"  {counted(len(entry.guards), 'guard')}:"
    yield from (f"    {_guard_line(guard, path)}" for guard in entry.guards)
    yield "  code:"
    yield from textwrap.indent(entry.code.rstrip(), "    ").splitlines()
    for graph in entry.graphs:
        size = "" if graph.operations is None else f" ({counted(graph.operations, 'operation')})"
        yield f"  graph {graph.name}{size}:"
        code = graph.code or "# unknown: it was compiled before the recording began"
        yield from textwrap.indent(code.rstrip(), "    ").splitlines()
    for resume in entry.resumes:
        entries = counted(resume.entries, "cache entry", "cache entries")
        side = _side(resume.when, resume.next_line, resume.path)
        yield f"  resumes at line {resume.line}: {resume.text}  ({resume.generated_name}, {entries}{side})"
    yield f"  keeps alive {_memory(entry.memory)}"


def _miss(miss: EntryMiss) -> str:
    now = miss.value_now or "something else"
    if miss.value_then is None or (miss.value_then in miss.text and now in miss.text):
        return miss.text
    return f"{miss.text} (was {miss.value_then}, is {now})"


def _guard_line(guard: EntryGuard, path: str) -> str:
    file = "" if guard.path is None else "line " if guard.path == path else f"{os.path.basename(guard.path)}:"
    at = f"{file}{guard.line or ''}"
    failed = f"missed {counted(guard.failures, 'time')}" if guard.failures else ""
    elsewhere = guard.object_failures
    perhaps = f"missed {counted(elsewhere, 'time')} by this or another check" if elsewhere else ""
    remark = ", ".join(part for part in (at, failed, perhaps) if part)
    return f"{guard.text:<{_GUARD_WIDTH}}  {remark}".rstrip()


def _memory(memory: EntryMemory) -> str:
    parts = [f"{memory.code} bytes of generated code"]
    if memory.tensor_count:
        parts.append(f"{memory.tensors} bytes in {counted(memory.tensor_count, 'tensor')}")
    if memory.backend_code:
        parts.append(f"{memory.backend_code} bytes of code that the backend wrote, and its kernels")
    return ("" if memory.is_whole else "at least ") + ", ".join(parts)
