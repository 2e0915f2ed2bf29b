"""Describes torch's cache entries, with facts from the record of compiles and the texts of guards.

In a debug session it runs on the agent's reader thread; for ``dynamo_dap.describe``, on the thread that calls that
function; for ``dynamo-dap entries``, at the end of the program.
"""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import msgspec

from dynamo_dap.debuggee.agent.engine import EntryReader
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.generated.cache_entries import NOTHING, CacheEntries, CompileFacts
from dynamo_dap.debuggee.generated.known_code import GeneratedCodes
from dynamo_dap.debuggee.recording.function_names import own_function
from dynamo_dap.debuggee.recording.guard_texts import guard_text
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import NOTIFICATION, Notifier
from dynamo_dap.debuggee.torch_api.compiles.compile_records import CompileRecorder
from dynamo_dap.debuggee.torch_api.import_hooks import is_dynamo_imported, when_dynamo_is_imported
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.protocol.requests.cache_entries import EntriesBody, EntryGraph, EntryMiss
from dynamo_dap.protocol.requests.contract import STATEMENTS
from dynamo_dap.records.advice.raced_compiles import accepts_now
from dynamo_dap.records.events import Record
from dynamo_dap.records.model import Compile, CompiledFunction, GuardFailure
from dynamo_dap.records.texts import readable_graph


def facts_of(record: Record) -> CompileFacts:
    """Return a record's facts about cache entries."""
    return CompileFacts(
        guard_text=guard_text,
        graphs=lambda code, compile_id: record.read(lambda _: _graphs(_compile(record, code, compile_id))),
        backend=lambda code, compile_id: record.read(lambda _: _backend(_compile(record, code, compile_id))),
        failed=lambda code, compile_id: record.read(
            lambda _: [one.expression for one in _failures(_function(record, code, compile_id), compile_id)]
        ),
        last_miss=lambda code, compile_id: record.read(
            lambda _: _last_miss(_function(record, code, compile_id), compile_id)
        ),
        name=lambda code, compile_id: record.read(lambda _: _name(_compile(record, code, compile_id))),
    )


def _function(record: Record, code: CodeType, compile_id: str) -> CompiledFunction | None:
    name, place = own_function(code)
    found = [one for one in record.functions if one.place == place]
    # A decorator's wrapper is recorded under the function that it wraps; all wrappers of a decorator share their code.
    found = found or [one for one in reversed(record.functions) if _newest(one, compile_id) is not None]
    return next((one for one in found if one.name == name), found[0] if found else None)


def _newest(function: CompiledFunction, compile_id: str) -> Compile | None:
    """Return the newest compile with that id: ids repeat after torch is reset."""
    return next((one for one in reversed(function.compiles) if one.id.partition("#")[0] == compile_id), None)


def _compile(record: Record, code: CodeType, compile_id: str) -> Compile | None:
    function = _function(record, code, compile_id)
    return None if function is None else _newest(function, compile_id)


def _name(compiled: Compile | None) -> str | None:
    return None if compiled is None else compiled.name


def _graphs(compiled: Compile | None) -> list[EntryGraph]:
    graphs = compiled.graphs if compiled is not None else []
    return [EntryGraph(one.name, one.operation_count, readable_graph(one, compiled.name)) for one in graphs if compiled]


def _backend(compiled: Compile | None) -> str | None:
    return None if compiled is None else compiled.backend


def _failures(function: CompiledFunction | None, compile_id: str) -> list[GuardFailure]:
    failures = [failure for one in function.compiles for failure in one.failures] if function is not None else []
    return [one for one in failures if one.compile_id == compile_id and not accepts_now(one.expression)]


def _last_miss(function: CompiledFunction | None, compile_id: str) -> EntryMiss | None:
    last = next(reversed(_failures(function, compile_id)), None)
    if last is None:
        return None
    return EntryMiss(last.text or last.expression, last.value_then, last.value_now)


class CountedEntries(CacheEntries):
    """The cache entries in a debug session; their calls are counted from the first request on."""

    def __init__(self, codes: GeneratedCodes, known: CompileFacts, engine: Any) -> None:
        """Take ``engine``, the run-time engine, which counts the calls."""
        super().__init__(codes, known, lambda: engine.counts_calls)
        self._engine = engine

    def body(self, function: str | None = None) -> EntriesBody:
        """Return the cache entries of the named function, or of all, and count calls from now on."""
        found = super().body(function)
        self._engine.count_calls()
        return found


# -- in a program without the debugger ---------------------------------------------------------------------------------


class _OwnEntries:
    """The record and the counts of calls for ``describe`` and ``dynamo-dap entries``."""

    def __init__(self) -> None:
        # Imported only now: see ``process_agent``.
        from dynamo_dap.debuggee.launch.runs.recording import make_recorder

        recorder = make_recorder(lambda: None, lambda: False, lambda text: None)
        recorder.update_hooks()
        compiles = CompileRecorder(log_exception)
        compiles.install()
        self._codes = GeneratedCodes(compiles, lambda: STATEMENTS)
        self._notifier = Notifier(self._about_to_run, log_exception)
        if NOTIFICATION.problem is None:
            self._notifier.install()
        self.entries = CacheEntries(self._codes, facts_of(recorder.record), lambda: self._notifier.is_installed)

    def _about_to_run(self, code: CodeType) -> None:
        self._codes.add(code).hits += 1


_lock = lock("own entries", Level.PROCESS)
_own: _OwnEntries | None = None


def _begin() -> CacheEntries:
    global _own
    with _lock:
        if _own is None:
            _own = _OwnEntries()
        return _own.entries


def describe(function: Callable[..., object] | None = None, session: EntryReader | None = None) -> str:
    """Describe the cache entries of ``function``, or of all; ``session`` reads them if a debug session is running."""
    code = None if function is None else _code_of(function)
    if session is None and not is_dynamo_imported():
        when_dynamo_is_imported(_begin)
        return NOTHING
    entries = session or _begin()
    return (entries.body() if code is None else entries.of_function(code)).text


_WRAPPERS = 32


def _code_of(function: object) -> CodeType:
    """Return the code of a function, a method, a module's ``forward``, or a compiled one of these."""
    asked = function
    for _ in range(_WRAPPERS):
        inner = _inside(function)
        if inner is None:
            break
        function = inner
    code = getattr(function, "__code__", None)
    if isinstance(code, CodeType):
        return code
    raise TypeError(f"describe() takes a function, a method or a module, not {type(asked).__name__}")


def _inside(function: object) -> object:
    """Return the function inside torch's wrapper, a bound method or a module; None for a function itself."""
    attributes = getattr(function, "__dict__", {})
    compiled = attributes.get("_torchdynamo_orig_callable") or attributes.get("_modules", {}).get("_orig_mod")
    if compiled is not None or hasattr(function, "__code__"):
        return compiled
    method = getattr(function, "__func__", None)
    kind = vars(type(function))
    return method or getattr(type(function), "forward", None) or kind.get("__call__")


def write_entries_at_end(path: str, function: str | None) -> None:
    """Write the cache entries when this process ends, for ``dynamo-dap entries``. Called when Dynamo is imported."""
    entries = _begin()
    atexit.register(functools.partial(_write, entries, function, Path(path), os.getpid()))


def _write(entries: CacheEntries, function: str | None, path: Path, process: int) -> None:
    if os.getpid() == process:
        path.write_bytes(msgspec.json.encode(entries.body(function)))
