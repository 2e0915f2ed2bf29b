"""``dynamo-dap schema``: prints the JSON Schema of a command's ``--json`` output, made from the output's types.

Runs on the command's main thread.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import itertools
import sys
import textwrap
from typing import Any

import msgspec

from dynamo_dap.checking.formats import JsonReport
from dynamo_dap.commands.doctor import JsonDoctor
from dynamo_dap.commands.minify import JsonMinified
from dynamo_dap.commands.profile import JsonProfile
from dynamo_dap.diff.model import JsonCaches, JsonDiff
from dynamo_dap.explore.model import Explored
from dynamo_dap.fixes.trial import JsonTrial
from dynamo_dap.protocol.requests.cache_entries import CachedFunction
from dynamo_dap.protocol.requests.comparisons import ComparisonBody
from dynamo_dap.protocol.requests.forecasts import ForecastBody
from dynamo_dap.protocol.requests.saved_calls import RecordCallBody
from dynamo_dap.records.report.bisection_text import Verdict
from dynamo_dap.records.report.output import JsonRecord

PRINTED: dict[str, tuple[Any, str]] = {
    "report": (JsonRecord, "one object: the whole record"),
    "check": (JsonReport, "one object: the findings and counts of a check"),
    "fix": (list[JsonTrial], "one array: the tried fixes"),
    "compare": (ComparisonBody, "one object per line: a compared call"),
    "bisect": (Verdict | None, "one object: the wrong stage; null if every stage is right"),
    "profile": (JsonProfile, "one object: the profile of compile time"),
    "forecast": (ForecastBody, "one object: which sizes compile next"),
    "diff": (JsonDiff, "one object: where two runs differ"),
    "diff-caches": (JsonCaches, "one object: with diff --caches, what the second run compiles again"),
    "entries": (list[CachedFunction], "one array: the functions with cache entries"),
    "explore": (list[Explored], "one array: the compiles with all their stages"),
    "minify": (JsonMinified, "one object: the minimized program"),
    "doctor": (JsonDoctor, "one object: what works in an environment"),
    "record-call": (RecordCallBody, "one object: the saved call"),
}
"""What each command prints with ``--json``: its type and its layout."""


def main(arguments: list[str]) -> int:
    """Print a schema; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="dynamo-dap schema",
        description="Print the JSON Schema (2020-12) of what a command prints with --json.",
        epilog="\n".join(f"{name:11} {layout}" for name, (_, layout) in PRINTED.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=PRINTED)
    schema = schema_of(parser.parse_args(arguments).command)
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n")
    return 0


def schema_of(command: str) -> dict[str, object]:
    """Return the schema of a command's output."""
    of, layout = PRINTED[command]
    (schema,), components = msgspec.json.schema_components([of], ref_template="#/$defs/{name}")
    structs = {struct.__name__: struct for struct in _structs_in(of)}
    for name, component in components.items():
        _describe(component, structs[name])
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"dynamo-dap {command} --json",
        "description": layout,
    }
    return {**head, **schema, "$defs": components}


def _structs_in(of: object) -> list[Any]:
    found: list[object] = []
    waiting = [msgspec.inspect.type_info(of)]
    while waiting:
        kind = waiting.pop()
        struct = getattr(kind, "cls", None)
        if struct is not None and struct not in found:
            found.append(struct)
            waiting += [field.type for field in getattr(kind, "fields", ())]
        waiting += getattr(kind, "types", ())
        parts = (getattr(kind, name, None) for name in ("item_type", "key_type", "value_type", "type"))
        waiting += [part for part in parts if isinstance(part, msgspec.inspect.Type)]
    return found


def _describe(component: dict[str, Any], struct: Any) -> None:
    """Add the docstring of each field, read from the source, as its description."""
    names = (
        {field.name: field.name for field in dataclasses.fields(struct)}
        if dataclasses.is_dataclass(struct)
        else {field.name: field.encode_name for field in msgspec.structs.fields(struct)}
    )
    for name, text in _texts_of_fields(struct).items():
        known = component.get("properties", {}).get(names.get(name, ""))
        if known is not None:
            known["description"] = " ".join(text.split()).replace("``", "`")


def _texts_of_fields(struct: Any) -> dict[str, str]:
    (defined,) = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(defined, ast.ClassDef)
    return {
        field.target.id: text.value.value
        for field, text in itertools.pairwise(defined.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
