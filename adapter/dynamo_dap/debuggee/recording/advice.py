"""Gives advice at a stop about failed guards, as reports do later. Runs on the compiling thread."""

from __future__ import annotations

from collections.abc import Sequence

from dynamo_dap.debuggee.recording.facts import guard_failure
from dynamo_dap.debuggee.recording.function_names import name_of_compile
from dynamo_dap.debuggee.torch_api.cache.recompiles import Failure
from dynamo_dap.debuggee.torch_api.compiles.compile_hooks import FrameCompile
from dynamo_dap.records.advice.changes import changes_of
from dynamo_dap.records.advice.items import Item
from dynamo_dap.records.advice.raced_compiles import accepts_now, raced_items
from dynamo_dap.records.model import Compile, CompiledFunction, GuardFailure


def failed_guard_line(failure: Failure) -> str:
    """Return ``A guard of 0/0 failed: ...``, in torch's words."""
    if accepts_now(failure.expression):
        return f"{failure.compile_id} accepts the call now: another thread may have compiled it at the same time"
    return f"A guard of {failure.compile_id} failed: {failure.expression}"


def advice_about(compiling: FrameCompile, failures: Sequence[Failure]) -> list[str]:
    """Return advice about the failed guards of the newest compile, judged by the values of all earlier compiles.

    Guards that only older compiles failed do not count: they refuse sizes that the newest compile made dynamic.
    """
    name = name_of_compile(compiling)
    failed = [guard_failure(failure, compiling.frame) for failure in failures]
    newest = max(failed, key=lambda one: _number_of(one.compile_id), default=None)
    about = [] if newest is None else _changes(compiling, name, [newest])
    subjects = {change.subject for change in about}
    changes = [change for change in _changes(compiling, name, failed) if change.subject in subjects] or about
    return list(dict.fromkeys(text for change in changes for text in change.advice))


def _changes(compiling: FrameCompile, name: str, failed: list[GuardFailure]) -> list[Item]:
    function = CompiledFunction(name, None, [Compile(str(compiling.compile_id), name, failures=failed)])
    return [*changes_of(function), *raced_items([function])]


def _number_of(compile_id: str) -> int:
    """Return which compile of its function it is: 3 for ``0/3``."""
    number = compile_id.rpartition("/")[2].partition("_")[0]
    return int(number) if number.isdigit() else -1
