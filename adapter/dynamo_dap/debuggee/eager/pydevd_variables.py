"""Makes debugpy show variables through a ``Presentation``, and answer the server's requests about tensors and watches.

Lives as long as the process. Runs on the threads that debugpy has stopped. Uses debugpy's private names, as
``pydevd_internals`` does.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import sys
import types
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from dynamo_dap.debuggee.eager import pydevd_objects, slow_rows
from dynamo_dap.debuggee.values.type_facts import qualified_name_of
from dynamo_dap.protocol.requests.contract import LOCALS_ALONG, TENSOR, WATCHED

_MOST_LOCALS_ALONG = 100
"""The maximum number of local variables that are sent with the scopes: of more, a client may want only a page."""


class Presentation(Protocol):
    """Decides how values are shown. Runs on the threads that debugpy has stopped, unless a method says otherwise."""

    def data(self, variable: object, context: str | None) -> dict[str, Any] | None:
        """Return the fields of a DAP variable that replace debugpy's; None to use debugpy's own."""

    def children(self, variable: object) -> list[tuple[str, object, str | None]] | None:
        """Return the name, object and expression of each requested child; None to use debugpy's own children."""

    def paging(self, only: str | None, start: int, count: int) -> AbstractContextManager[None]:
        """Return a context in which only one page of children is shown; with ``count`` 0 all from ``start`` on.

        ``only`` is DAP's ``filter``: ``named`` or ``indexed``.
        """

    def page(self, variables: list[object]) -> list[object]:
        """Return the variables of a scope that are on the requested page."""

    def runs_no_code(self, value: object) -> bool:
        """Return whether a value is shown without running code of the program."""

    def scope(self, frame: types.FrameType) -> tuple[str, object] | None:
        """Return name and object of a frame's extra scope, or None.

        Runs on debugpy's reader thread.
        """

    def look(self, variable: object, wanted: object) -> dict[str, object]:
        """Return the body of the answer to the server's request about a tensor: see ``backends.debugpy_side``."""

    def watched(self, variable: object, name: str) -> dict[str, object]:
        """Return the body of the answer to the server's request about a data breakpoint."""

    def left_to_debugpy(self, show: Callable[[], dict[str, object]], context: str | None) -> dict[str, object]:
        """Return the result of ``show``, by which debugpy itself shows a variable."""


_is_presentation_wanted: Callable[[], bool] | None = None


def present_values(presentation: Presentation, is_wanted: Callable[[], bool]) -> bool:
    """Make ``presentation`` show values while ``is_wanted``; return False if this debugpy does not support it.

    Lasts for the life of the process. A later call replaces ``is_wanted``, but not the presentation.
    """
    global _is_presentation_wanted
    if _is_presentation_wanted is not None:
        _is_presentation_wanted = is_wanted
        return True
    try:
        frames = importlib.import_module("_pydevd_bundle.pydevd_suspended_frames")
        variables, scopes = frames._ObjectVariable, frames._FrameVariable
        api: Any = importlib.import_module("_pydevd_bundle.pydevd_api")
        own_data, own_children = variables.get_var_data, variables.get_children_variables
        own_scope = scopes.get_children_variables
        own_child, own_request = variables.get_child_variable_named, api.internal_get_variable_json
    except (ImportError, AttributeError):
        return False
    _is_presentation_wanted = is_wanted
    _import_no_types()
    slow_rows.install()
    pydevd_objects.install()

    def get_var_data(self: Any, fmt: object = None, context: str | None = None, **attributes: Any) -> object:
        if not _wants_presentation():
            return own_data(self, fmt, context, **attributes)
        shown = presentation.data(self, context)
        if shown is None:
            own = functools.partial(pydevd_objects.data, own_data, self, fmt, context, **attributes)
            return _shown_by_debugpy(self, lambda: presentation.left_to_debugpy(own, context))
        name, expression = self.name, {} if self.evaluate_name is None else {"evaluateName": self.evaluate_name}
        if self._is_return_value:
            name = f"(return) {name}"
            shown.setdefault("presentationHint", {}).setdefault("attributes", []).append("readOnly")
        return {"name": name, **expression, **shown}

    def get_children_variables(self: Any, fmt: object = None, scope: object = None) -> object:
        found = presentation.children(self) if _wants_presentation() else None
        if found is None:
            return own_children(self, fmt, scope)
        return [
            variables(self.py_db, name, value, self._register_variable, evaluate_name=expression, frame=self.frame)
            for name, value, expression in found
        ]

    def get_scope_variables(self: object, fmt: object = None, scope: object = None) -> object:
        found = own_scope(self, fmt, scope)
        return presentation.page(found) if _wants_presentation() else found

    def get_child_variable_named(self: object, name: str, fmt: object = None, scope: object = None) -> object:
        page = presentation.paging("indexed", int(name), 1) if name.isdecimal() else contextlib.nullcontext()
        with page:
            found = own_child(self, name, fmt, scope)
        return found if found is not None else own_child(self, name, fmt, scope)

    def get_variable_reference(self: object) -> int:
        # Not the value's id, as in debugpy: two names of one value would share children and expressions.
        return id(self)

    variables.get_variable_reference = get_variable_reference
    variables.get_var_data, variables.get_children_variables = get_var_data, get_children_variables
    scopes.get_children_variables = get_scope_variables
    variables.get_child_variable_named = get_child_variable_named
    api.internal_get_variable_json = _in_pages(own_request, presentation)
    return True


def _shown_by_debugpy(variable: Any, make: Callable[[], dict[str, object]]) -> dict[str, object]:
    """Return the fields that debugpy makes for a variable. If they take too long, return fields that say so."""
    shown = slow_rows.show(variable.value, make)
    if not isinstance(shown, str):
        return shown
    kind = qualified_name_of(type(variable.value))
    fields = {"name": variable.name, "value": f"<{kind}: {shown}>", "type": kind}
    if variable.evaluate_name is not None:
        fields["evaluateName"] = variable.evaluate_name
    return {**fields, "variablesReference": variable.get_variable_reference()}


def _import_no_types() -> None:
    """Keep debugpy from importing Django's types into a program that does not use them."""
    shown: Any = importlib.import_module("_pydevd_bundle.pydevd_xml")
    types_of = getattr(shown, "_create_default_type_map", None)
    if not isinstance(types_of, types.FunctionType):
        return

    def import_module(name: str, *arguments: Any, **named: Any) -> object:
        if name.startswith("django.") and name not in sys.modules:
            raise ImportError(name)
        return __import__(name, *arguments, **named)

    names = {**vars(shown), "__builtins__": {**vars(builtins), "__import__": import_module}}
    shown._create_default_type_map = types.FunctionType(types_of.__code__, names)


def add_scopes(presentation: Presentation) -> bool:
    """Show the scopes of ``presentation`` next to locals and globals; return False if this debugpy does not support it.

    Lasts for the life of the process; later calls have no effect. Call ``present_values`` first.
    """
    try:
        processor = importlib.import_module("_pydevd_bundle.pydevd_process_net_command_json")
        handlers, scope_type = processor.PyDevJsonCommandProcessor, processor.Scope
        variables = importlib.import_module("_pydevd_bundle.pydevd_suspended_frames")._ObjectVariable
        own = handlers.on_scopes_request
    except (ImportError, AttributeError):
        return False
    if hasattr(own, "__wrapped__"):
        return True

    @functools.wraps(own)
    def on_scopes_request(self: object, py_db: Any, request: Any) -> object:
        command = own(self, py_db, request)
        of_frame = _variable_of(py_db, request.arguments.frameId)
        if of_frame is None or not _wants_presentation():
            return command
        answer = command.as_dict
        found = presentation.scope(of_frame.frame)
        if found is not None:
            name, value = found
            added = variables(py_db, name, value, of_frame._register_variable, frame=of_frame.frame)
            scope = scope_type(name, added.get_variable_reference(), False).to_dict(update_ids_to_dap=True)
            answer["body"]["scopes"].insert(1, scope)
        thread_id = py_db.suspended_frames_manager.get_thread_id_for_variable_reference(request.arguments.frameId)
        if thread_id is None or not getattr(request.arguments, "kwargs", {}).get(LOCALS_ALONG):
            return type(command)(command.id, command.seq, answer, is_json=True)
        arguments = request, answer["body"], presentation
        py_db.post_method_as_internal_command(thread_id, _answer_with_locals, *arguments)
        return None

    handlers.on_scopes_request = on_scopes_request
    return True


def _answer_with_locals(pydb: object, request: Any, body: dict[str, object], presentation: Presentation) -> None:
    """Answer ``scopes`` with ``body``, together with the local variables if these are few and run no code.

    Runs on the stopped thread.
    """
    of_frame = _variable_of(pydb, request.arguments.frameId)
    found = {} if of_frame is None else of_frame.frame.f_locals
    returned = importlib.import_module("_pydevd_bundle.pydevd_constants").RETURN_VALUES_DICT
    values = [*found.values(), *found.get(returned, {}).values()]
    if 0 < len(values) <= _MOST_LOCALS_ALONG and all(map(presentation.runs_no_code, values)):
        schema = importlib.import_module("_pydevd_bundle._debug_adapter.pydevd_schema")
        scope = importlib.import_module("_pydevd_bundle.pydevd_utils").ScopeRequest
        found = of_frame.get_children_variables(scope=scope(request.arguments.frameId, "locals"))
        shown = schema.VariablesResponseBody([each.get_var_data() for each in found])
        body = {**body, LOCALS_ALONG: shown.to_dict(update_ids_to_dap=True)}
    _answer(pydb, request, body)


def _in_pages(
    own_request: Callable[[object, object], None], presentation: Presentation
) -> Callable[[object, object], None]:
    """Return a handler of ``variables`` that returns pages, to replace debugpy's ``own_request``."""

    def internal_get_variable_json(pydb: object, request: Any) -> None:
        asked = request.arguments
        if _answers_ours(pydb, request, presentation):
            return
        with presentation.paging(asked.filter, asked.start or 0, asked.count or 0):
            own_request(pydb, request)

    return internal_get_variable_json


def _answers_ours(pydb: object, request: Any, presentation: Presentation) -> bool:
    """Answer the server's own request, if this request to debugpy contains one; return whether it does."""
    asked = getattr(request.arguments, "kwargs", {})
    if TENSOR not in asked and WATCHED not in asked:
        return False
    variable = _variable_of(pydb, request.arguments.variablesReference)
    if TENSOR in asked:
        _answer(pydb, request, presentation.look(variable, asked[TENSOR]))
    else:
        _answer(pydb, request, presentation.watched(variable, asked[WATCHED]))
    return True


def _variable_of(pydb: Any, reference: object) -> Any:
    """Return pydevd's variable or frame for a reference; None if it belongs to an earlier stop."""
    try:
        return pydb.suspended_frames_manager.get_variable(reference)
    except KeyError:
        return None


def _answer(pydb: Any, request: Any, body: dict[str, object]) -> None:
    command = importlib.import_module("_pydevd_bundle.pydevd_net_command").NetCommand
    number = importlib.import_module("_pydevd_bundle.pydevd_comm_constants").CMD_RETURN
    response = {"type": "response", "request_seq": request.seq, "success": True, "command": request.command}
    pydb.writer.add_command(command(number, 0, {**response, "body": body}, is_json=True))


def _wants_presentation() -> bool:
    return _is_presentation_wanted is not None and _is_presentation_wanted()
