"""Gives advice at a stop about failed guards, as reports do later. Runs on the compiling thread."""

from __future__ import annotations

from collections.abc import Sequence

from dynamo_dap.debuggee.recording.facts import guard_failure
from dynamo_dap.debuggee.recording.function_names import name_of_compile
from dynamo_dap.debuggee.torch_api.compile_hooks import FrameCompile
from dynamo_dap.debuggee.torch_api.recompiles import Failure
from dynamo_dap.records.advice import changes_of
from dynamo_dap.records.model import Compile, CompiledFunction


def advice_about(compiling: FrameCompile, failures: Sequence[Failure]) -> list[str]:
    """Return advice against a recompile, judged by the values of all earlier compiles and of this call."""
    name = name_of_compile(compiling)
    failed = [guard_failure(failure, compiling.frame) for failure in failures]
    known = CompiledFunction(name, None, [Compile(str(compiling.compile_id), name, failures=failed)])
    return list(dict.fromkeys(text for change in changes_of(known) for text in change.advice))
