"""Gives advice at a stop about failed guards, as reports do later. Runs on the compiling thread."""

from __future__ import annotations

from collections.abc import Sequence

from dynamo_dap.debuggee.recording.facts import guard_failure
from dynamo_dap.debuggee.recording.function_names import name_of_compile
from dynamo_dap.debuggee.torch_api.compile_hooks import FrameCompile
from dynamo_dap.debuggee.torch_api.recompiles import Failure
from dynamo_dap.records.advice import changes_of
from dynamo_dap.records.items import Item
from dynamo_dap.records.model import Compile, CompiledFunction, GuardFailure


def advice_about(compiling: FrameCompile, failures: Sequence[Failure]) -> list[str]:
    """Return advice against a recompile, judged by the values of all earlier compiles and of this call.

    Only about what failed in the newest of them: a size that is dynamic there is still refused by older ones.
    """
    name = name_of_compile(compiling)
    failed = [guard_failure(failure, compiling.frame) for failure in failures]
    newest = max(failed, key=lambda one: _number_of(one.compile_id), default=None)
    about = [] if newest is None else _changes(compiling, name, [newest])
    subjects = {change.subject for change in about}
    changes = [change for change in _changes(compiling, name, failed) if change.subject in subjects] or about
    return list(dict.fromkeys(text for change in changes for text in change.advice))


def _changes(compiling: FrameCompile, name: str, failed: list[GuardFailure]) -> list[Item]:
    return changes_of(CompiledFunction(name, None, [Compile(str(compiling.compile_id), name, failures=failed)]))


def _number_of(compile_id: str) -> int:
    """Return which compile of its function it is: 3 for ``0/3``."""
    number = compile_id.rpartition("/")[2].partition("_")[0]
    return int(number) if number.isdigit() else -1
