"""Makes pydevd name and sort frames and variables as the agent does.

pydevd shows code objects by their bare names, and all locals and globals alike. Here its frames get the user's names
(``Model.forward``, ``fn (resumed at line 8)``), and variables that Dynamo added to locals and globals are put into one
group. pydevd's functions are wrapped once per process, when debugpy is loaded; they run on its reader thread and on the
threads that it has stopped.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.torch_internals.dynamo_names import (
    GROUP,
    dynamos_locals,
    is_dynamos_global,
    parted,
    user_function_name,
)

_has_installed = False


def install() -> None:
    """Wrap pydevd's functions, which are imported; harmless when they are."""
    global _has_installed
    if _has_installed:
        return
    _has_installed = True
    for wrap in (_name_frames, _group_variables):
        try:
            wrap()
        except AttributeError:
            log_exception(f"showing frames of debugpy ({wrap.__name__}): it is another version than expected")


def _name_frames() -> None:
    factory: Any = importlib.import_module("_pydevd_bundle.pydevd_net_command_factory_json").NetCommandFactoryJson
    frames_of = factory._iter_visible_frames_info

    def named_frames(self: Any, *arguments: Any, **options: Any) -> Iterator[tuple[Any, ...]]:
        for frame_id, frame, name, *rest in frames_of(self, *arguments, **options):
            yield (frame_id, frame, _name(frame.f_code, name), *rest)

    factory._iter_visible_frames_info = named_frames


def _name(code: Any, shown: str) -> str:
    """Return the name of a frame that pydevd would call ``shown``: the code's bare name, perhaps with words before."""
    if not isinstance(code, CodeType) or not shown.endswith(code.co_name):
        return shown  # a frame of a template, which is none of Python's
    return shown.removesuffix(code.co_name) + user_function_name(code)


def _group_variables() -> None:
    frames: Any = importlib.import_module("_pydevd_bundle.pydevd_suspended_frames")
    group: Any = importlib.import_module("_pydevd_bundle.pydevd_utils").DAPGrouper
    children_of = frames._FrameVariable.get_children_variables
    group_entries = frames._FrameVariable._group_entries

    def children(self: Any, fmt: Any = None, scope: Any = None) -> Any:
        name = getattr(scope, "scope", scope)
        self.is_dynamos = is_dynamos_global if name == "globals" else _locals_test(self.frame)
        return children_of(self, fmt=fmt, scope=scope)

    def entries(self: Any, variables: list[Any], handle_return_values: bool) -> tuple[list[Any], list[Any]]:
        is_dynamos = getattr(self, "is_dynamos", None)
        if is_dynamos is None:
            found: tuple[list[Any], list[Any]] = group_entries(self, variables, handle_return_values)
            return found
        users, dynamos = parted(variables, lambda variable: is_dynamos(variable[0]))
        shown, groups = group_entries(self, users, handle_return_values)
        if dynamos:
            own = group(GROUP)
            own.contents_debug_adapter_protocol.extend(dynamos)
            groups.append((GROUP, own, None))
        return shown, groups

    frames._FrameVariable.get_children_variables = children
    frames._FrameVariable._group_entries = entries


def _locals_test(frame: FrameType) -> Any:
    """Return what tells Dynamo's locals; at module level they are globals."""
    if frame.f_locals is frame.f_globals:
        return is_dynamos_global
    return dynamos_locals(frame.f_code)
