"""Extends how long the ranks of a distributed job wait for each other, and reports the waits in progress.

While a rank is held, others may already wait for it, and a wait cannot be extended once it has begun. So every group
waits up to a day while a debugger is attached, and gets the program's timeout again afterwards. Functions of torch are
wrapped once, when the program has imported them. Runs on whichever thread makes a group; ``waiting`` and
``restore_timeouts`` on the debugger's own.
"""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import msgspec

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.import_hooks import when_imported
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.debuggee.wrapping.patches import Given, Outcome, Patches, Result

STRETCHED = dt.timedelta(days=1)

Hook = Generator[Given | None, Outcome, Result | None]

_MODULE = "torch.distributed.distributed_c10d"
_MAKE, _MEET, _BARRIER, _DEFAULT, _SET, _WORLD = (
    f"{_MODULE}:{name}"
    for name in (
        "_new_process_group_helper",
        "rendezvous",
        "_store_based_barrier",
        "_get_default_timeout",
        "_set_pg_timeout",
        "_world.pg_map",
    )
)
_DUMP = "torch._C._distributed_c10d:_dump_fr_trace_json"
_stretching = Feature("waiting longer for a rank that is held", _MAKE, _MEET, _BARRIER, _DEFAULT, _SET, _WORLD)
_flight_recorder = Feature("finding what a rank waits for", _DUMP)


@dataclass(frozen=True)
class _Extension:
    is_in_force: Callable[[], bool]
    on_stretched: Callable[[dt.timedelta], None]
    """Receives the program's timeout of each group whose wait was extended."""


@dataclass(frozen=True)
class Waiting:
    """An operation that has waited for other ranks longer than the program's timeout."""

    number: int
    """The flight recorder's number of the operation, which is unique."""
    name: str
    """``gloo:all_reduce``"""
    group: str
    sizes: list[list[int]]
    seconds: float
    timeout: dt.timedelta
    thread: int
    """Python's identifier of the thread that began it."""


_extension: _Extension | None = None
_hooks = Patches(_stretching.name)
_lock = lock("timeouts of groups", Level.HOOKS)
_timeouts: dict[str, dt.timedelta] = {}
"""The program's timeouts, by the name of the group."""
_default: dt.timedelta | None = None
"""The timeout of groups for which the program gives none."""


def stretch(
    is_in_force: Callable[[], bool], on_stretched: Callable[[dt.timedelta], None], on_problem: Callable[[], None]
) -> None:
    """Make existing and new groups wait longer while ``is_in_force()`` is true.

    ``on_problem`` logs the exception being handled: the program did not raise it.
    """
    global _extension
    _extension = _Extension(is_in_force, on_stretched)

    def begin() -> None:
        try:
            _begin()
        except Exception:  # noqa: BLE001  (this runs inside the program's own import of torch)
            on_problem()

    when_imported(_MODULE, begin)


def _begin() -> None:
    if _extension is None or _stretching.problem is not None:
        return
    with _lock:
        if not _hooks.is_installed:
            _around(_MEET, _timeout_in_keywords)
            _around(_BARRIER, _timeout_in_arguments)
            _around(_MAKE, _made)
            _around(_DEFAULT, _long_default)
    for group in list(_stretching.resolve(_WORLD)):
        program = _timeout_of(group)
        if program is not None and program < STRETCHED and group.size() > 1:
            _stretching.resolve(_SET)(STRETCHED, group)
            _remember(group, program)


def restore_timeouts(is_in_force: Callable[[], bool]) -> None:
    """Restore the program's timeout of each group, unless other code has extended it since."""
    if _extension is None or _extension.is_in_force is not is_in_force:
        return
    for group in list(_stretching.resolve(_WORLD)):
        program = _timeouts.pop(group.group_name, None)
        if program is not None:
            _stretching.resolve(_SET)(program, group)


def _around(need: str, change: Callable[[inspect.BoundArguments], Hook]) -> None:
    module = inspect.getmodule(_stretching.resolve(_MAKE))
    name = need.partition(":")[2]
    signature = inspect.signature(getattr(module, name))

    def hook(*arguments: object, **keywords: object) -> Hook:
        try:
            bound = signature.bind(*arguments, **keywords)
        except TypeError:  # the program itself must get the error for wrong arguments
            bound = None
        if bound is None or _extension is None or not _extension.is_in_force():
            yield None
            return None
        return (yield from change(bound))

    _hooks.around(module, name, hook)


def _longer(timeout: object) -> object:
    return max(timeout, STRETCHED) if isinstance(timeout, dt.timedelta) else timeout


def _timeout_in_keywords(bound: inspect.BoundArguments) -> Hook:
    keywords = dict(bound.kwargs)
    if "timeout" in keywords:
        keywords["timeout"] = _longer(keywords["timeout"])
    yield Given(bound.args, keywords)
    return None


def _timeout_in_arguments(bound: inspect.BoundArguments) -> Hook:
    if "timeout" in bound.arguments:
        bound.arguments["timeout"] = _longer(bound.arguments["timeout"])
    yield Given(bound.args, bound.kwargs)
    return None


def _long_default(_: inspect.BoundArguments) -> Hook:
    global _default
    outcome = yield None
    if outcome.error is not None:
        return None
    _default = outcome.result
    return Result(_longer(_default))


def _made(bound: inspect.BoundArguments) -> Hook:
    timeout, size = bound.arguments.get("timeout"), bound.arguments.get("group_size")
    if not isinstance(timeout, dt.timedelta) or size == 1:
        yield None
        return None
    program = _default if timeout == STRETCHED and _default is not None else timeout
    bound.arguments["timeout"] = _longer(timeout)
    store: object = bound.arguments.get("store")
    if hasattr(store, "set_timeout"):
        store.set_timeout(_longer(timeout))
    outcome = yield Given(bound.args, bound.kwargs)
    if outcome.error is None and hasattr(outcome.result[0], "group_name") and program < STRETCHED:
        _remember(outcome.result[0], program)
    return None


def _remember(group: Any, program: dt.timedelta) -> None:
    _timeouts[group.group_name] = program
    if _extension is not None:
        _extension.on_stretched(program)


def _timeout_of(group: Any) -> dt.timedelta | None:
    """Return how long operations of a group wait, or None if unknown."""
    for device in group._device_types:
        timeout = getattr(getattr(group._get_backend(device), "options", None), "_timeout", None)
        if isinstance(timeout, dt.timedelta):
            return timeout
    return None


class _Entry(msgspec.Struct):
    """The flight recorder's entry for an operation."""

    record_id: int
    profiling_name: str
    process_group: list[str]
    time_created_ns: int
    retired: bool = False
    thread_id: str = ""
    input_sizes: list[list[int]] = []


class _Entries(msgspec.Struct):
    entries: list[_Entry] = []


def waiting(now: float) -> list[Waiting]:
    """Return the operations that wait longer than the program's timeout; ``now`` is a ``time.time()``.

    Also empty if this torch does not record operations.
    """
    if _flight_recorder.problem is not None:
        return []
    try:
        reported = msgspec.json.decode(_flight_recorder.resolve(_DUMP)(True, False), type=_Entries)
    except (msgspec.DecodeError, TypeError, RuntimeError):
        return []
    found = []
    # Do not take its list of active operations, which is longer: gloo only reports that an operation has ended.
    for entry in (one for one in reported.entries if not one.retired):
        timeout = _timeouts.get(entry.process_group[0]) if entry.process_group else None
        seconds = now - entry.time_created_ns / 1e9
        if timeout is not None and seconds > timeout.total_seconds():
            thread = int(entry.thread_id) if entry.thread_id.isdecimal() else 0
            group = entry.process_group[-1]
            found.append(
                Waiting(entry.record_id, entry.profiling_name, group, entry.input_sizes, seconds, timeout, thread)
            )
    return found
