"""Translates one log's entries into the events of a record. Runs on one thread.

The record has the same form as one of our own files: reports, advice, checks and views treat both alike. What
torch's log lacks (values of names, lines traced) stays empty. Details are left out beyond a bound, so that a log of
gigabytes fits into memory.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import msgspec

from dynamo_dap.records.events import (
    AttemptRestarted,
    BreakFound,
    CacheAnswered,
    CompileBegan,
    CompileEnded,
    Event,
    GraphMade,
    GuardsMade,
    LimitReached,
    Recompiled,
    Record,
    SizeSpecialized,
    Truncated,
)
from dynamo_dap.records.model import CacheLookup, Compile, Place, ShapeEvent, Specialization, StackLine, Symbol
from dynamo_dap.trace_logs.draft_exports import EXPORT_KINDS, DraftExports
from dynamo_dap.trace_logs.entries import Context, Entry, Frame, harmless
from dynamo_dap.trace_logs.event_texts import (
    FULL_GRAPH,
    SKIPPED,
    as_written,
    break_of,
    parsed_break,
    parsed_failures,
    parsed_guards,
    resumed,
)
from dynamo_dap.trace_logs.graph_texts import SourceText, parsed_graph

UNWANTED = frozenset({"chromium_event", "describe_storage", "describe_tensor", "describe_source", "dump_file"})
"""Kinds of entries that a record does not contain; they make up most of a log."""
DETAILS_BOUND = 64 * 1024 * 1024
"""Bytes of the log's graphs and guards that are kept as nodes and guards."""
_COMPILES = 200_000
_SHAPES = 2000
_PROBLEM = 4000
_COMPONENT = 2000
_COMPONENTS = 1000
_BREAKS = frozenset({"Unsupported", "UserError", "StepUnsupported"})
_LIMIT = re.compile(r"\b(?P<name>(?:accumulated_)?(?:recompile|cache_size)_limit)\b")
_PHASES = {
    "whole frame": ("entire_frame_compile_time_s", "dynamo_cumulative_compile_time_us"),
    "backend": ("backend_compile_time_s", "aot_autograd_cumulative_compile_time_us"),
    "inductor": ("inductor_compile_time_s", "inductor_cumulative_compile_time_us"),
    "inductor code": ("code_gen_time_s", "inductor_code_gen_cumulative_compile_time_us"),
}
_CACHES = {"fx_graph_cache_": "FX graph cache", "aotautograd_cache_": "AOTAutograd cache"}
_REMOTE = {
    "inductor_fx_remote_cache_{}_count": "remote FX graph cache",
    "aotautograd_remote_cache_{}_count": "remote AOTAutograd cache",
}
_SETTINGS = ("_dynamo", "_functorch", "_inductor", "compiler")
"""Packages of torch whose settings it logs."""
_KERNEL = re.compile(r"^(\w+) = async_compile\.\w+\(", re.MULTILINE)
_EXTERN = re.compile(r"\b(extern_kernels\.\w+)\(")
_RUNNABLE_VERSION = re.compile(r"^# torch version: (?P<version>\S+)", re.MULTILINE)
_KERNELS = 500
_TORCH = re.compile(r"(?:^|/)(?:site|dist)-packages/(?:torch|torchgen|functorch)/")


class _Start(Context):
    dynamo_start: dict[str, list[Frame]] = msgspec.field(default_factory=dict)


class _Interned(msgspec.Struct):
    path: tuple[str, int] = msgspec.field(name="str")


class _Metrics(Context):
    compilation_metrics: dict[str, Any] | None = None
    bwd_compilation_metrics: dict[str, object] | None = None


class _Shape(msgspec.Struct, gc=False):
    symbol: str | None = None
    val: str | None = None
    vr: str | None = None
    source: str | None = None
    sources: list[str] = []
    value: str | None = None
    reason: str | None = None
    expr: str | None = None
    result: str | None = None
    op: str | None = None
    user_stack: list[Frame] | None = None
    stack: list[Frame] | None = None


class _Shapes(Context):
    create_symbol: _Shape | None = None
    create_unbacked_symbol: _Shape | None = None
    guard_added: _Shape | None = None
    guard_added_fast: _Shape | None = None
    propagate_real_tensors: _Shape | None = None
    propagate_real_tensors_provenance: _Shape | None = None
    symbolic_shape_specialization: _Shape | None = None
    guard_on_data_dependent_error: _Shape | None = None
    missing_fake_kernel: _Shape | None = None
    mismatched_fake_kernel: _Shape | None = None


_SHAPE_KINDS = frozenset(_Shapes.__struct_fields__) - frozenset(Context.__struct_fields__)


class _Code(Context):
    inductor_output_code: dict[str, object] = msgspec.field(default_factory=dict)


class _Lookup(msgspec.Struct):
    key: str | None = None
    cache_state: str | None = None
    components: list[str] | None = None
    cache_bypass_reason: str | None = None
    time_saved_ns: float | None = None


class _Version(msgspec.Struct):
    pytorch_version: str | None = None


@dataclass
class _InProgress:
    """A compile whose beginning is in the log."""

    id: str
    """Its id in the record."""
    attempt: int = 0
    reasons: list[str] = field(default_factory=list)
    """Kinds of logged breaks that ended an attempt."""
    broke: bool = False
    is_skipped: bool = False
    symbols: dict[str, Symbol] = field(default_factory=dict)
    kernels: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


class Translation:
    """Fills a record from a log's entries, in order."""

    def __init__(self, record: Record, mapped: Callable[[str], str], details_bound: int = DETAILS_BOUND) -> None:
        """Fill ``record``; ``mapped`` maps a path of the log's machine to a local one."""
        self.record = record
        self.torch: str | None = None
        self.rank: int | None = None
        self.outermost: str | None = None
        """The file of the outermost frame: the program."""
        self.quoted: defaultdict[str, dict[int, str]] = defaultdict(dict)
        """The user's lines that the log quotes, by path and line."""
        self.unreadable = 0
        self._has_settings = False
        self._mapped = mapped
        self._details = details_bound
        self._names: dict[int, str] = {}
        self._by_end: dict[str, str | None] = {}
        self._ongoing: dict[str, _InProgress] = {}
        self._waiting: dict[str, Recompiled] = {}
        """Why earlier compiles could not be used, by the id of a compile that has not begun yet."""
        self._functions: dict[tuple[str, str], Place] = {}
        self._exports = DraftExports(record, self._stack, mapped)
        self._handlers = {
            "str": self._interned,
            "dynamo_start": self._began,
            "dynamo_output_graph": self._graph,
            "dynamo_cpp_guards_str": self._guards,
            "compilation_metrics": self._ended,
            "bwd_compilation_metrics": self._backward_ended,
            "inductor_output_code": self._code,
            "artifact": self._artifact,
            **dict.fromkeys(_SHAPE_KINDS, self._shape),
            **dict.fromkeys(EXPORT_KINDS, self._exports.take),
        }

    def take(self, entry: Entry) -> None:
        """Translate an entry; count and skip a malformed one."""
        handler = self._handlers.get(entry.kind)
        if handler is None:
            return
        try:
            handler(entry)
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError, UnicodeDecodeError, ValueError):
            self.unreadable += 1

    # -- names and places ------------------------------------------------------------------------------------------

    def _interned(self, entry: Entry) -> None:
        path, number = msgspec.json.decode(entry.metadata, type=_Interned).path
        self._names[number] = path

    def _path(self, filename: int | str) -> str:
        path = filename if isinstance(filename, str) else self._names.get(filename, "?")
        self._know(path)
        return self._mapped(path)

    def _know(self, path: str) -> None:
        name = PurePath(path).name
        self._by_end[name] = path if self._by_end.get(name, path) == path else None

    def _full(self, short: str) -> str | None:
        """Return the full path of a shortened one: torch omits the part that a path shares with its own files."""
        path = self._by_end.get(PurePath(short).name)
        return self._mapped(path) if path is not None and path.endswith(short) else None

    def _place(self, place: Place | None) -> Place | None:
        if place is None:
            return None
        self._know(place.path)
        return Place(self._mapped(place.path), place.line)

    def _stack(self, frames: list[Frame] | None) -> list[StackLine]:
        found = []
        for frame in frames or ():
            path = self._path(frame.filename)
            if _TORCH.search(path):
                continue
            place = Place(path, max(1, frame.line))
            name = resumed(frame.name)
            found.append(StackLine(place, frame.name if name is None else name[0]))
            if frame.loc:
                self.quoted[path][place.line] = frame.loc.strip()
        return found

    def _quote(self, lines: list[SourceText]) -> None:
        for line in lines:
            self.quoted[self._mapped(line.place.path)][line.place.line] = line.text

    # -- compiles --------------------------------------------------------------------------------------------------

    def _began(self, entry: Entry) -> None:
        start = msgspec.json.decode(entry.metadata, type=_Start)
        identifier = start.compile_id
        frames = start.dynamo_start.get("stack") or []
        if identifier is None or not frames or len(self._ongoing) > _COMPILES:
            return
        self.rank = start.rank if start.rank is not None else self.rank
        frame = frames[-1]
        stack = self._stack(frames[:-1])
        if self.outermost is None and stack:
            self.outermost = stack[0].place.path
        self._begin(identifier, frame.name, Place(self._path(frame.filename), max(1, frame.line)), stack)

    def _begin(self, identifier: str, name: str, place: Place, stack: list[StackLine]) -> None:
        unused, number = identifier, 2
        while self.record.has(unused):
            unused, number = f"{identifier}#{number}", number + 1
        rest = resumed(name)
        function = name if rest is None else rest[0]
        shown = name if rest is None else f"{rest[0]} (resumed at line {rest[1]})"
        function_place = place if rest is None else self._functions.get((place.path, function), place)
        self._functions.setdefault((place.path, function), function_place)
        caller = stack[-1].place if stack else None
        self._take(
            CompileBegan(unused, shown, function, place, function_place, 0.0, caller=caller, stack=stack),
        )
        self._ongoing[identifier] = _InProgress(unused)
        waiting = self._waiting.pop(identifier, None)
        if waiting is not None:
            self._take(msgspec.structs.replace(waiting, id=unused))

    def _take(self, event: Event, size: int = 0) -> None:
        self._details -= size
        if self._details < 0:
            if not self.record.is_truncated:
                self.record.apply(Truncated())
            event = event.without_details()
        self.record.apply(event)

    def compile_of(self, entry: Entry) -> str | None:
        """Return the id, in the record, of the compile that an entry is about."""
        try:
            context = msgspec.json.decode(entry.metadata, type=Context)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None
        compiled = self._ongoing.get(context.compile_id or "")
        return None if compiled is None else compiled.id

    def _of(self, context: Context) -> _InProgress | None:
        compiled = self._ongoing.get(context.compile_id or "")
        if compiled is not None and context.attempt > compiled.attempt:
            while compiled.attempt < context.attempt:
                self._take(AttemptRestarted(compiled.id, compiled.attempt + 1, self._why_restarted(compiled)))
                compiled.attempt += 1
            compiled.symbols.clear()
        return compiled

    @staticmethod
    def _why_restarted(compiled: _InProgress) -> str:
        return compiled.reasons.pop(0) if compiled.reasons else ""

    def _compiled(self, context: Context) -> tuple[_InProgress, Compile] | None:
        compiled = self._of(context)
        found = None if compiled is None else self.record.find(compiled.id)
        return None if compiled is None or found is None else (compiled, found)

    def _graph(self, entry: Entry) -> None:
        known = self._compiled(msgspec.json.decode(entry.metadata, type=Context))
        if known is not None:
            compiled, found = known
            parsed = parsed_graph(entry.payload, len(found.graphs))
            self._quote(parsed.lines)
            graph = parsed.graph
            graph.nodes = [_moved(node, self._place(node.place)) if node.place else node for node in graph.nodes]
            self._take(GraphMade(compiled.id, graph), len(entry.content))

    def _guards(self, entry: Entry) -> None:
        known = self._compiled(msgspec.json.decode(entry.metadata, type=Context))
        if known is not None:
            compiled, _ = known
            parsed = parsed_guards(entry.payload, self._full)
            self._quote(parsed.lines)
            symbols = list(compiled.symbols.values())
            self._take(GuardsMade(compiled.id, parsed.count, parsed.guards, symbols), len(entry.content))

    def _shape(self, entry: Entry) -> None:
        shapes = msgspec.json.decode(entry.metadata, type=_Shapes)
        known = self._compiled(shapes)
        shape: _Shape | None = getattr(shapes, entry.kind)
        if shapes.compile_id is None and entry.kind == "guard_added":
            self._exports.take(entry)
        if known is None or shape is None:
            return
        compiled, found = known
        # A symbol that the backend makes has no user stack, only torch's own lines.
        stack = self._stack(shape.user_stack)
        place = stack[-1].place if stack else None
        if entry.kind == "create_symbol" and shape.symbol:
            source = as_written(shape.source or "?")
            bounds = None if shape.vr is None else shape.vr.strip("[]").replace(", ", " … ").replace("int_oo", "∞")
            compiled.symbols[shape.symbol] = Symbol(shape.symbol, source, shape.val, bounds)
        if entry.kind == "symbolic_shape_specialization":
            expression = f"{' = '.join(map(as_written, shape.sources)) or shape.symbol} == {shape.value}"
            self._take(SizeSpecialized(compiled.id, Specialization(expression, place)))
        if len(found.shapes) < _SHAPES and self._details > 0:
            self._details -= 200
            found.shapes.append(ShapeEvent(entry.kind, _shape_text(shape), place))

    def _ended(self, entry: Entry) -> None:
        metrics = msgspec.json.decode(entry.metadata, type=_Metrics)
        facts = metrics.compilation_metrics or metrics.bwd_compilation_metrics or {}
        if metrics.compile_id is not None and metrics.compile_id not in self._ongoing:
            self._begin_late(metrics.compile_id, facts)
        known = self._compiled(metrics)
        if known is None:
            return
        compiled, found = known
        kind, reason = facts.get("fail_type"), facts.get("fail_reason")
        limit = _LIMIT.search(str(reason)) if not isinstance(facts.get("co_filename"), str) else None
        found.began = _number(facts.get("start_time")) or found.began
        # Torch's own number counts some checks twice, and each mark of a tensor.
        found.guard_count = found.guard_count or int(_number(facts.get("guard_count")) or 0)
        version = facts.get("pytorch_version")
        if self.torch is None and isinstance(version, str):
            # Torch before 2.13 logs its version only here.
            self.torch = harmless(version)
        self._count_remote(found, facts)
        self._take_settings(facts)
        self._name_restarts(found, facts.get("restart_reasons"))
        at = self._problem_place(facts)
        if kind in _BREAKS and not compiled.broke and limit is None:
            effect = SKIPPED if compiled.is_skipped else FULL_GRAPH
            broken = break_of(str(reason), at)
            broken.effect = effect
            self._take(BreakFound(compiled.id, broken))
        if limit is not None:
            compiled.is_skipped = True
            self._take(LimitReached(compiled.id, limit["name"]))
        phases = {name: value for name, keys in _PHASES.items() if (value := _seconds(facts, keys)) is not None}
        ended = CompileEnded(
            compiled.id,
            self._state(facts, compiled),
            seconds=_seconds(facts, _PHASES["whole frame"]) or 0.0,
            problem=None if not reason else str(reason)[:_PROBLEM],
            problem_place=at,
            phases=phases,
            artifacts=compiled.files,
            kernels=compiled.kernels,
            caches=found.caches,
            generated=found.generated,
        )
        self._take(ended)

    def _take_settings(self, facts: dict[str, object]) -> None:
        for package in _SETTINGS:
            text = facts.get(f"{package.lstrip('_')}_config")
            if isinstance(text, str) and not self._has_settings:
                for name, value in msgspec.json.decode(text, type=dict[str, msgspec.Raw]).items():
                    self.record.torch_settings[f"torch.{package}.config.{harmless(name)}"] = harmless(
                        bytes(value).decode()
                    )
        self._has_settings = True

    @staticmethod
    def _count_remote(found: Compile, facts: dict[str, object]) -> None:
        """Add the answers of remote caches: torch logs their counts without the keys."""
        for key, cache in _REMOTE.items():
            for result in ("hit", "miss"):
                count = int(_number(facts.get(key.format(result))) or 0)
                if count:
                    found.caches[f"{cache} {result}"] = count

    def _begin_late(self, identifier: str, facts: dict[str, Any]) -> None:
        """Begin a compile whose beginning is missing in the log: the log was cut off, or had reached its limit."""
        path, line = facts.get("co_filename"), facts.get("co_firstlineno")
        if isinstance(path, str):
            self._begin(identifier, str(facts.get("co_name") or "?"), Place(self._path(path), max(1, line or 1)), [])
            return
        # Compiles of one frame have the same number before the slash.
        frame = identifier.partition("/")[0] + "/"
        earlier = next((one for name, one in reversed(self._ongoing.items()) if name.startswith(frame)), None)
        found = None if earlier is None else self.record.find(earlier.id)
        if found is not None and found.place is not None:
            self._begin(identifier, found.name.partition(" (resumed")[0], found.place, [])

    @staticmethod
    def _state(facts: dict[str, object], compiled: _InProgress) -> str:
        kind = facts.get("fail_type")
        if kind is None:
            return "skipped" if facts.get("has_guarded_code") is False else "compiled"
        is_skip = compiled.is_skipped or kind in ("SkipFrame", "SkipCodeRecursiveException")
        return "skipped" if is_skip else "failed"

    def _problem_place(self, facts: dict[str, object]) -> Place | None:
        path, line = facts.get("fail_user_frame_filename"), facts.get("fail_user_frame_lineno")
        if not isinstance(path, str) or not isinstance(line, int):
            return None
        return self._place(Place(path, max(1, line)))

    @staticmethod
    def _name_restarts(found: Compile, reasons: object) -> None:
        """Assign the remaining reason to attempts without one: torch logs the reasons as a set."""
        known = [str(reason).partition("\n")[0].strip() for reason in reasons] if isinstance(reasons, list) else []
        unnamed = [attempt for attempt in found.attempts[:-1] if not attempt.restarted]
        named = {attempt.restarted for attempt in found.attempts}
        rest = [reason for reason in known if reason not in named] or known
        for attempt in unnamed:
            attempt.restarted = rest[0] if len(rest) == 1 else ("one of: " + "; ".join(rest) if rest else "not logged")

    def _backward_ended(self, entry: Entry) -> None:
        metrics = msgspec.json.decode(entry.metadata, type=_Metrics)
        known = self._compiled(metrics)
        facts = metrics.bwd_compilation_metrics or {}
        if known is None and facts.get("fail_type") == "RecompileLimitExceeded":
            # Torch 2.6 writes a reached limit as a backward pass.
            self._ended(entry)
        seconds = _seconds(facts, ("inductor_compile_time_s", "duration_us"))
        if known is not None and seconds is not None:
            known[1].phases["backward"] = known[1].phases.get("backward", 0.0) + seconds

    def _code(self, entry: Entry) -> None:
        code = msgspec.json.decode(entry.metadata, type=_Code)
        known = self._compiled(code)
        if known is None:
            return
        compiled, found = known
        path = code.inductor_output_code.get("filename")
        text = entry.payload
        compiled.kernels = list(dict.fromkeys([*compiled.kernels, *_KERNEL.findall(text), *_EXTERN.findall(text)]))
        del compiled.kernels[_KERNELS:]
        if isinstance(path, str) and path not in compiled.files:
            compiled.files.append(path)
        # The code of a backward pass may follow the end of the compile, whose event sets these fields.
        found.kernels, found.artifacts = compiled.kernels, compiled.files

    # -- artifacts -------------------------------------------------------------------------------------------------

    def _artifact(self, entry: Entry) -> None:
        if entry.name == "torch_version":
            self.torch = msgspec.json.decode(entry.payload.encode(), type=_Version).pytorch_version
        elif entry.name == "fx_graph_runnable" and self.torch is None:
            # Torch 2.6 to 2.9 log their version only here.
            found = _RUNNABLE_VERSION.search(entry.payload)
            self.torch = None if found is None else found["version"]
        elif entry.name == "dynamo_graph_break_reason":
            self._broke(entry)
        elif entry.name == "recompile_reasons":
            self._recompiled(entry)
        elif entry.name.startswith(tuple(_CACHES)):
            self._cache_answered(entry)
        elif entry.name.endswith("MODIFIED_BYTECODE"):
            known = self._compiled(msgspec.json.decode(entry.metadata, type=Context))
            if known is not None and self._details > 0:
                self._details -= len(entry.content)
                known[1].generated = entry.payload

    def _broke(self, entry: Entry) -> None:
        known = self._compiled(msgspec.json.decode(entry.metadata, type=Context))
        if known is None:
            return
        compiled, whole = known
        found, lines = parsed_break(entry.payload)
        self._quote(lines)
        found.place = self._place(found.place)
        stack = [StackLine(self._place(one.place) or one.place, one.function) for one in found.stack]
        path = None if whole.place is None else whole.place.path
        inside = next((at for at, one in enumerate(stack) if one.place.path == path and one.function in whole.name), 0)
        found.stack = stack[inside:]
        if inside and not whole.stack:
            # Torch logs the first compile without callers.
            whole.stack, whole.caller = stack[:inside], stack[inside - 1].place
            self.outermost = self.outermost or stack[0].place.path
        compiled.broke = True
        if found.effect == SKIPPED:
            compiled.is_skipped = True
        else:
            compiled.reasons.append(found.reason)
        self._take(BreakFound(compiled.id, found))

    def _recompiled(self, entry: Entry) -> None:
        identifier = msgspec.json.decode(entry.metadata, type=Context).compile_id
        if identifier is not None and len(self._waiting) < _COMPILES:
            failures, lines = parsed_failures(entry.payload, self._full)
            self._quote(lines)
            # Torch logs the reasons before the compile begins.
            self._waiting[identifier] = Recompiled(identifier, failures)

    def _cache_answered(self, entry: Entry) -> None:
        known = self._compiled(msgspec.json.decode(entry.metadata, type=Context))
        if known is None:
            return
        compiled, found = known
        cache, result = next(
            (_CACHES[name], entry.name[len(name) :]) for name in _CACHES if entry.name.startswith(name)
        )
        facts = msgspec.json.decode(entry.content.replace(b"\n\t", b"\n").lstrip(), type=_Lookup)
        components = [harmless(one[:_COMPONENT]) for one in (facts.components or [])[:_COMPONENTS]]
        saved = None if facts.time_saved_ns is None else facts.time_saved_ns / 1e9
        reason = None if facts.cache_bypass_reason is None else harmless(facts.cache_bypass_reason[:_PROBLEM])
        lookup = CacheLookup(cache, result, facts.key and harmless(facts.key), reason, components, saved)
        found.caches[f"{cache} {result}"] = found.caches.get(f"{cache} {result}", 0) + 1
        self._take(CacheAnswered(compiled.id, lookup), len(entry.content))


def _moved(node: Any, place: Place | None) -> Any:
    return msgspec.structs.replace(node, place=place)


def _shape_text(shape: _Shape) -> str:
    if shape.symbol is not None:
        value = shape.val or shape.value
        parts = [shape.symbol + (f" = {value}" if value else ""), shape.source or ", ".join(shape.sources), shape.vr]
        return ", ".join(part for part in parts if part)
    text = shape.expr or shape.op or "?"
    result = shape.result or shape.reason
    return f"{text} → {result}" if result else text


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _seconds(facts: dict[str, object], keys: tuple[str, ...]) -> float | None:
    for key in keys:
        value = _number(facts.get(key))
        if value is not None:
            return value / 1e6 if key.endswith("_us") else value
    return None
