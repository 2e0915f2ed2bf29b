"""Calls hooks with each code object that Dynamo has generated, before anything else gets it.

Torch's own ``register_bytecode_hook`` times each hook: the program would find ``bytecode_hooks_0`` among its compile
times. So the hooks run where the result of a compile is made. Runs on the compiling thread.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.isolation import is_dynamo_off
from dynamo_dap.debuggee.wrapping.patches import Patches, calling_frame

_COMPILE_FRAME = "torch._dynamo.convert_frame:compile_frame"
_RESULT = "torch._dynamo.convert_frame:DynamoOutput"

NEEDS = (_COMPILE_FRAME, _RESULT)
"""Private names for the features that have such hooks."""
_NEW_CODE = Feature("noticing generated code", *NEEDS)


def on_new_code(patches: Patches, hook: Callable[[CodeType, CodeType, Any], CodeType | None]) -> None:
    """Call ``hook`` with each code compiled for the program from now on, as one of ``patches``.

    It gets the original code, the generated code and torch's ``OutputGraph``, and may return other code to run.

    Raises:
        FeatureMissing: this torch lacks a name.
    """
    compiling = _NEW_CODE.code_of(_COMPILE_FRAME)

    def made(_: None, result: Any, *_arguments: object, **_named: object) -> None:
        frame = calling_frame()
        if frame.f_code is not compiling or is_dynamo_off():
            return
        variables = frame.f_locals
        if variables["frame_state"] is None:  # an export, which makes no cache entry
            return
        other = hook(variables["code"], result.bytecode, result.tracer_output.output_graph)
        if other is not None:
            result.bytecode = other

    patches.after(_NEW_CODE.resolve(_RESULT), "__init__", made)
