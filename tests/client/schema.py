"""Checks messages against the published DAP schema, by the models that ``dap-types`` generates from it.

Wrong types, missing fields, unknown enumerators and unknown fields are problems. The project's own names (custom
requests and events, launch options) start with ``dynamo``, those of VS Code with ``__vscode``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import dap_types
from pydantic import BaseModel, ValidationError

CUSTOM_PREFIX = "dynamo"
VS_CODES_PREFIX = "__vscode"

_OPEN_MODELS = ("LaunchRequestArguments", "AttachRequestArguments", "RestartArguments", "ErrorResponseBody", "Module")
"""Models with free fields: each adapter defines its own launch options and columns of modules."""


def problems_of(message: dict[str, Any]) -> list[str]:
    """Return each problem of ``message`` as a sentence; none if the message agrees with DAP."""
    model = _model_of(message)
    if isinstance(model, str):
        return [model]
    try:
        checked = model.model_validate(message, strict=True)
    except ValidationError as error:
        return [
            f"{_title(message)}: {'.'.join(map(str, one['loc']))}: {one['msg']} (got {one['input']!r})"
            for one in error.errors()
        ]
    return [f"{_title(message)}: {path} is not a field of DAP" for path in _extras(checked, "")]


def _title(message: dict[str, Any]) -> str:
    return f"{message.get('type')} {message.get('command') or message.get('event')}"


def _model_of(message: dict[str, Any]) -> type[BaseModel] | str:
    kind = message.get("type")
    name = message.get("event") if kind == "event" else message.get("command")
    if kind not in ("request", "response", "event") or not isinstance(name, str):
        return f"not a DAP message: {message!r}"
    if kind == "response" and message.get("success") is False:
        return dap_types.ErrorResponse
    if name.startswith(CUSTOM_PREFIX):
        return getattr(dap_types, kind.capitalize())
    model = _model_called(name[:1].upper() + name[1:] + kind.capitalize())
    return model if model is not None else f"{_title(message)} is not in the schema"


@cache
def _model_called(name: str) -> type[BaseModel] | None:
    return getattr(dap_types, name, None)


def _extras(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, BaseModel):
        if type(value).__name__ not in _OPEN_MODELS:
            for name in value.model_extra or {}:
                if name.startswith(VS_CODES_PREFIX):
                    continue
                yield f"{path}.{name}".lstrip(".")
        for name in type(value).model_fields:
            yield from _extras(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _extras(item, f"{path}[{index}]")
