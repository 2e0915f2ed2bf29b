"""Makes debugpy show values, frames and variables as the agent does.

debugpy has an extension point for the text and the children of a type's values. But it supports no pages, no values
without children, and no children that are computed on demand, and it groups names that begin with ``_``. So this module
patches debugpy's variable classes instead. Numbers, strings, and objects with their own ``__repr__`` are still shown by
debugpy, with two changes: the text has no addresses, and has tensors' metadata instead of their data. debugpy also
provides the text for the clipboard, in which a tensor has its data.

pydevd names a frame by its code object's bare name, and does not separate Dynamo's variables. Here a frame gets the
user's name (``Model.forward``, ``fn (resumed at line 8)``), and the variables that Dynamo added to locals and globals
form a group.

pydevd's functions are wrapped once per process, when debugpy is loaded. They run on its reader thread and on the
threads that it has stopped.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from msgspec import ValidationError, convert, to_builtins

from dynamo_dap.debuggee.agent.frames import EagerFrame
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.user_code import is_user_file
from dynamo_dap.debuggee.bytecode.constants import without_addresses
from dynamo_dap.debuggee.bytecode.exact_types import find_in_type, is_exactly
from dynamo_dap.debuggee.eager import pydevd_variables
from dynamo_dap.debuggee.eager.pydevd_objects import runs_its_own_code
from dynamo_dap.debuggee.eager.watched_expressions import watched_expression
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import (
    GROUP,
    dynamos_locals,
    is_dynamos_global,
    split_by_owner,
    user_function_name,
)
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import facts_of
from dynamo_dap.debuggee.torch_api.isolation import dynamo_off, tensor_texts
from dynamo_dap.debuggee.torch_api.objects import Tensor
from dynamo_dap.debuggee.values.model import EvaluationError, Value, View, family_of, text_of_raised
from dynamo_dap.debuggee.values.objects import ObjectFamily, dataclass_fields
from dynamo_dap.debuggee.values.tensor_parts import part_of_tensor
from dynamo_dap.debuggee.values.triton_blocks import program_scope
from dynamo_dap.debuggee.values.type_facts import module_of
from dynamo_dap.protocol.requests.contract import TENSOR, VARIABLE_MENU, WATCHED
from dynamo_dap.protocol.requests.tensor_requests import TensorArguments, TensorBody

_LITERALS: frozenset[type] = frozenset({type(None), bool, int, float, complex, str, bytes})
"""Types that debugpy shows: it can show more of a long string, and integers in hexadecimal."""


@dataclass(frozen=True, slots=True)
class _LeftToDebugpy(Value):
    """A child that debugpy shows, of a value that this module shows."""

    object: Any = None


class _Shown:
    """A variable in debugpy's table that is not an object of the program: a tensor's shape, a group of items."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


class _EagerView(View):
    """Shows values in ordinary frames."""

    def value(self, value: object, expression: str | None = None) -> Value:
        """Return a value in displayed form; ``_LeftToDebugpy`` lets debugpy show the value."""
        if _is_left_to_debugpy(value):
            return _LeftToDebugpy(self.text(value), object=value)
        return super().value(value, expression)


_VIEW = _EagerView()


def _is_left_to_debugpy(value: object) -> bool:
    cls = type(value)
    package = module_of(cls).partition(".")[0]
    if is_exactly(value, _LITERALS) or package.startswith(("_pydev", "pydev")):
        return True
    if type(family_of(value)) is not ObjectFamily or package == "torch" or dataclass_fields(value) is not None:
        return False
    return find_in_type(value, "__repr__") is not object.__repr__


class Presentation(pydevd_variables.Presentation):
    """Provides the texts and children of debugpy's variables. Runs on the threads that debugpy has stopped."""

    def __init__(self, marks_tensors: Callable[[], bool]) -> None:
        """Mark tensors for the client's menu while ``marks_tensors`` returns true."""
        self._asked = threading.local()
        self._marks_tensors = marks_tensors

    def data(self, variable: Any, context: str | None) -> dict[str, object] | None:
        """Return the fields of a DAP variable that replace debugpy's; None lets debugpy show the variable."""
        value = None if context == "clipboard" else self._value(variable)
        if value is None:
            return None
        children = value.children
        text = value.printed if context == "repl" else value.row
        data: dict[str, object] = {"value": text, "type": value.type_name or ""}
        data["variablesReference"] = variable.get_variable_reference() if children is not None else 0
        if children is not None and not value.lazy and children.indexed_count:
            data |= {"namedVariables": children.named_count, "indexedVariables": children.indexed_count}
        if children is not None and not value.lazy and children.is_of_tensor and self._marks_tensors():
            data[VARIABLE_MENU] = TENSOR
        hint = {"kind": value.kind, "attributes": list(value.attributes), "lazy": value.lazy}
        if any(hint.values()):
            data["presentationHint"] = {name: value for name, value in hint.items() if value}
        return data

    def children(self, variable: Any) -> list[tuple[str, object, str | None]] | None:
        """Return the name, object and expression of each requested child; None lets debugpy show the children."""
        value = self._value(variable)
        if value is None and runs_its_own_code(variable.value):
            value = View.value(_VIEW, variable.value, variable.evaluate_name)
        if value is None:
            return None
        only, start, count = getattr(self._asked, "page", (None, 0, 0))
        page = value.children.page(only, start, count) if value.children is not None else ()
        return [(each.name, _object_of(each.value), each.evaluate_name) for each in page]

    def runs_no_code(self, value: object) -> bool:
        """Return whether a value is shown without calling a ``__repr__`` of the program."""
        return is_exactly(value, _LITERALS) or not _is_left_to_debugpy(value)

    def scope(self, frame: FrameType) -> tuple[str, object] | None:
        """Return name and object of the extra scope of a Triton kernel's frame; None for other frames."""
        try:
            scope = program_scope(frame, is_user_file)
        except Exception:  # noqa: BLE001  (debugpy must not notice our failure)
            log_exception("looking for the program of a kernel")
            return None
        return None if scope is None else (scope.name, _Shown(Value("", children=scope.children)))

    @contextlib.contextmanager
    def paging(self, only: str | None, start: int, count: int) -> Iterator[None]:
        """Return a context in which ``children`` and ``page`` return one page."""
        self._asked.page = only, start, count
        try:
            yield
        finally:
            del self._asked.page

    def page(self, variables: list[object]) -> list[object]:
        """Return the requested page of a scope's variables, which are all named children."""
        only, start, count = getattr(self._asked, "page", (None, 0, 0))
        if only == "indexed":
            return []
        return variables[start : start + count if count else None]

    def look(self, variable: object, wanted: object) -> dict[str, object]:
        """Return a part of the tensor ``variable``, or of the tensor to which an expression evaluates in its frame."""
        try:
            return {TENSOR: to_builtins(self._part_of(variable, convert(wanted, TensorArguments)))}
        except (EvaluationError, ValidationError) as problem:
            return {"problem": str(problem)}
        except Exception as error:  # noqa: BLE001  (the user's expression may raise anything)
            return {"problem": text_of_raised(error)}

    def watched(self, variable: Any, name: str) -> dict[str, object]:
        """Return whether a data breakpoint is possible on the part ``name`` of ``variable``, or on an expression."""
        expression: str | None = name
        frame = getattr(variable, "frame", None)
        if getattr(variable, "value", frame) is not frame:
            parts = self.children(variable)
            own = None if variable.evaluate_name is None else f"{variable.evaluate_name}.{name}"
            expression = own if parts is None else next((each for part, _, each in parts if part == name), None)
        return {WATCHED: to_builtins(watched_expression(frame, expression))}

    def _part_of(self, variable: object, wanted: TensorArguments) -> TensorBody:
        if variable is None:
            raise EvaluationError("this belongs to an earlier stop: the thread has resumed since")
        frame = getattr(variable, "frame", None)
        tensor = self._tensor_of(variable) if wanted.expression is None else _computed(frame, wanted.expression)
        return part_of_tensor(tensor, wanted, None if wanted.minus is None else _computed(frame, wanted.minus))

    def _tensor_of(self, variable: object) -> Tensor:
        value = None if not hasattr(variable, "value") else self._value(variable)
        if value is None or value.children is None:
            raise EvaluationError("this is not a tensor")
        return value.children.tensor().data

    def left_to_debugpy(self, show: Callable[[], dict[str, Any]], context: str | None) -> dict[str, object]:
        """Let debugpy show a variable by the user's ``__repr__``; read tensor data only for the clipboard."""
        with contextlib.nullcontext() if context == "clipboard" else tensor_texts(lambda one: facts_of(one).text):
            data = show()
        if data.get("type") not in ("str", "bytes"):
            data["value"] = without_addresses(data["value"])
        return data

    @staticmethod
    def _value(variable: Any) -> Value | None:
        held = variable.value
        value = held.value if type(held) is _Shown else _VIEW.value(held, variable.evaluate_name)
        return None if isinstance(value, _LeftToDebugpy) else value


def _computed(frame: FrameType | None, expression: str) -> Tensor:
    """Return the tensor to which an expression evaluates in ``frame``."""
    if frame is None:
        raise EvaluationError(f"no frame to evaluate {expression!r} in")
    with dynamo_off():
        return EagerFrame(frame, lambda text: None).tensor(expression).data


def _object_of(value: Value) -> object:
    return value.object if isinstance(value, _LeftToDebugpy) else _Shown(value)


_has_installed = False


def install_names() -> None:
    """Wrap pydevd's functions, if they are not wrapped yet."""
    global _has_installed
    if _has_installed:
        return
    _has_installed = True
    for wrap in (_name_frames, _group_variables):
        try:
            wrap()
        except AttributeError:
            log_exception(f"showing frames of debugpy ({wrap.__name__}): unknown version")


def _name_frames() -> None:
    factory = importlib.import_module("_pydevd_bundle.pydevd_net_command_factory_json").NetCommandFactoryJson
    frames_of = factory._iter_visible_frames_info

    def named_frames(self: object, *arguments: object, **options: object) -> Iterator[tuple[object, ...]]:
        for frame_id, frame, name, *rest in frames_of(self, *arguments, **options):
            yield (frame_id, frame, _name(frame.f_code, name), *rest)

    factory._iter_visible_frames_info = named_frames


def _name(code: object, shown: str) -> str:
    """Return the user's name of a frame. pydevd's name ``shown`` ends with the code's bare name; keep its prefix."""
    if not isinstance(code, CodeType) or not shown.endswith(code.co_name):
        return shown  # a template's frame, which Python does not run
    return shown.removesuffix(code.co_name) + user_function_name(code)


def _group_variables() -> None:
    frames = importlib.import_module("_pydevd_bundle.pydevd_suspended_frames")
    group = importlib.import_module("_pydevd_bundle.pydevd_utils").DAPGrouper
    children_of = frames._FrameVariable.get_children_variables
    group_entries = frames._FrameVariable._group_entries

    def children(self: Any, fmt: object = None, scope: object = None) -> object:
        name = getattr(scope, "scope", scope)
        self.is_dynamos = is_dynamos_global if name == "globals" else _locals_test(self.frame)
        return children_of(self, fmt=fmt, scope=scope)

    def entries(self: object, variables: list[Any], handle_return_values: bool) -> tuple[list[object], list[object]]:
        is_dynamos = getattr(self, "is_dynamos", None)
        if is_dynamos is None:
            found: tuple[list[object], list[object]] = group_entries(self, variables, handle_return_values)
            return found
        users, dynamos = split_by_owner(variables, lambda variable: is_dynamos(variable[0]))
        shown, groups = group_entries(self, users, handle_return_values)
        if dynamos:
            own = group(GROUP)
            own.contents_debug_adapter_protocol.extend(dynamos)
            groups.append((GROUP, own, None))
        return shown, groups

    frames._FrameVariable.get_children_variables = children
    frames._FrameVariable._group_entries = entries


def _locals_test(frame: FrameType) -> object:
    """Return the function that recognizes Dynamo's variables among the locals of ``frame``, by name."""
    if frame.f_locals is frame.f_globals:
        return is_dynamos_global
    return dynamos_locals(frame.f_code)
