"""Writes the texts about the options of ``launch`` and ``attach``: the extension's schema, and a table in ``docs``.

``make generate`` runs it after a change of ``protocol/requests/options.py``; a test compares them with that module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msgspec import NODEFAULT, Struct, inspect, to_builtins

from dynamo_dap.protocol.requests.options import AttachArguments, LaunchArguments
from tests.structure.localization import localized
from tests.structure.sources import ROOT

MANIFEST = ROOT / "vscode-extension" / "package.json"
TEXTS = ROOT / "vscode-extension" / "package.nls.json"
PAGE = ROOT / "docs" / "options.md"

_HEAD = "| option | of | meaning | default |\n| --- | --- | --- | --- |\n"
_TABLE = re.compile(r"(# Launch options\n.*?\n)(\| option .*?\n)(?=\n)", re.DOTALL)


def manifest_texts() -> tuple[str, ...]:
    """Return the extension's package.json, with the schema of its configurations, and its package.nls.json."""
    manifest = json.loads(MANIFEST.read_text(encoding="utf-8"))
    (debugger,) = manifest["contributes"]["debuggers"]
    debugger["configurationAttributes"] = {
        "launch": {"properties": _properties(LaunchArguments)},
        "attach": {"properties": _properties(AttachArguments)},
    }
    manifest |= _addresses(manifest)
    known = json.loads(TEXTS.read_text(encoding="utf-8"))
    manifest, texts = localized(manifest, known)
    return tuple(json.dumps(each, indent=2, ensure_ascii=False) + "\n" for each in (manifest, texts))


def _addresses(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the addresses that galleries show and take pictures from, made of those in ``pyproject.toml``."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    urls = dict(re.findall(r'^(\w+) = "(https://[^"]+)"$', text, re.MULTILINE))
    files = f"{urls['Repository'].removesuffix('.git')}/raw/HEAD/vscode-extension"
    return {
        "homepage": urls["Homepage"],
        "repository": {**manifest["repository"], "url": urls["Repository"]},
        "bugs": {"url": urls["Issues"]},
        "qna": urls["Issues"],
        "vsce": {**manifest["vsce"], "baseImagesUrl": files},
    }


def page_text() -> str:
    """Return docs/options.md, with its table of options."""
    rows = [_row(option, "launch") for option in options_of(LaunchArguments) if option.is_own]
    rows += [_row(option, "attach") for option in options_of(AttachArguments) if option.is_own]
    rows += [_row(option, "both") for option in options_of(LaunchArguments) if not option.is_own]
    text, count = _TABLE.subn(lambda found: found[1] + _HEAD + "".join(rows), PAGE.read_text(encoding="utf-8"))
    assert count == 1, "docs/options.md has no table of launch options"
    return text


@dataclass(frozen=True)
class Option:
    """An option that users write."""

    name: str
    type: inspect.Type
    description: str
    choices: dict[str, str]
    default: object
    """None for an option without one."""
    editor_default: object
    is_required: bool
    is_own: bool
    """Whether only this request, or this part of it, has it."""


def options_of(of: type[Struct]) -> list[Option]:
    """Return the options of a struct, its own ones before the inherited ones."""
    options = [_option(field, of) for field in _fields(of) if isinstance(field.type, inspect.Metadata)]
    return sorted((one for one in options if one is not None), key=lambda one: not one.is_own)


def _fields(of: type[Struct]) -> Iterator[inspect.Field]:
    described = inspect.type_info(of)
    assert isinstance(described, inspect.StructType)
    yield from described.fields


def _option(field: inspect.Field, of: type[Struct]) -> Option | None:
    assert isinstance(field.type, inspect.Metadata)
    description = (field.type.extra_json_schema or {}).get("description")
    if description is None:
        return None
    extra: dict[str, Any] = field.type.extra or {}
    default = field.default if field.default_factory is NODEFAULT else field.default_factory()
    return Option(
        name=field.encode_name,
        type=field.type.type,
        description=description,
        choices=extra.get("choices", {}),
        default=None if default is NODEFAULT else default,
        editor_default=extra.get("editor"),
        is_required=field.required,
        is_own=field.name in of.__annotations__,
    )


def _properties(of: type[Struct]) -> dict[str, Any]:
    return {option.name: _schema(option) for option in options_of(of)}


def _schema(option: Option) -> dict[str, Any]:
    schema = _type_schema(option.type)
    if option.choices:
        schema |= {"enum": [*option.choices], "enumDescriptions": [*option.choices.values()]}
    schema["description"] = option.description
    default = option.default if option.editor_default is None else option.editor_default
    return schema if default is None else {**schema, "default": _whole(default)}


def _type_schema(kind: inspect.Type) -> dict[str, Any]:
    """Return the schema of a type without null, which means the same as no option."""
    if isinstance(kind, inspect.UnionType):
        schemas = [_type_schema(one) for one in kind.types if not isinstance(one, inspect.NoneType)]
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    if isinstance(kind, inspect.StructType):
        options = options_of(kind.cls)
        required = [option.name for option in options if option.is_required]
        return {"type": "object", "required": required, "properties": _properties(kind.cls)}
    if isinstance(kind, inspect.ListType):
        return {"type": "array", "items": _type_schema(kind.item_type)}
    if isinstance(kind, inspect.DictType):
        assert isinstance(kind.value_type, inspect.UnionType)
        names = ["null" if isinstance(one, inspect.NoneType) else _name(one) for one in kind.value_type.types]
        return {"type": "object", "additionalProperties": {"type": names}}
    if isinstance(kind, inspect.LiteralType):
        return {"enum": list(kind.values)}
    bounds = {"exclusiveMinimum": "gt", "minimum": "ge", "maximum": "le"}
    limits = {name: getattr(kind, bound, None) for name, bound in bounds.items()}
    return {"type": _name(kind)} | {name: limit for name, limit in limits.items() if limit is not None}


def _name(kind: inspect.Type) -> str:
    names = {
        inspect.BoolType: "boolean",
        inspect.FloatType: "number",
        inspect.IntType: "integer",
        inspect.StrType: "string",
    }
    return names[type(kind)]


def _whole(default: object) -> object:
    if isinstance(default, Struct):
        return {name: _whole(value) for name, value in to_builtins(default).items()}
    return int(default) if isinstance(default, float) and default.is_integer() else default


def _row(option: Option, request: str) -> str:
    choices = "".join(f" `{choice}`: {meaning}" for choice, meaning in option.choices.items())
    default = "" if option.default is None else f"`{_json(option.default)}`"
    if option.editor_default is not None:
        default = f"in VS Code `{_json(option.editor_default)}`"
    return f"| `{option.name}` | {request} | {option.description}{choices} | {default} |\n"


def _json(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(_whole(value))


if __name__ == "__main__":
    for path, text in zip((MANIFEST, TEXTS), manifest_texts(), strict=True):
        path.write_text(text, encoding="utf-8")
    PAGE.write_text(page_text(), encoding="utf-8")
