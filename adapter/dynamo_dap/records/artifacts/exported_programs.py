"""Reads programs that ``torch.export.save`` wrote, without torch: their operations, and the inputs that they accept.

The file is an archive with JSON, and may come from anybody: no part of it is unpickled or run. Runs on one thread.
"""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from dynamo_dap.protocol.access.consent import visible
from dynamo_dap.protocol.user_files import open_regular
from dynamo_dap.records.file import UnreadableRecord

_MODEL = re.compile(r"(?:[^/]+/)?models/[^/]+\.json$")
_LONGEST = 512 * 1024 * 1024
_SYMBOL = re.compile(r"Symbol\('(\w+)'[^)]*\)")
_TYPES = dict(
    enumerate(
        ("?", "u8", "i8", "i16", "i32", "i64", "f16", "f32", "f64", "c32", "c64", "c128", "b8", "bf16"),
    )
)
"""Short names of dtypes, by torch's number for each in such a file."""
_UNBOUNDED = 2**31
_OPERATIONS = 12


@dataclass
class ExportedProgram:
    """One program of a file."""

    name: str
    torch: str
    inputs: dict[str, str] = field(default_factory=dict)
    """The requirement for each input, by its name."""
    ranges: dict[str, str] = field(default_factory=dict)
    """The range of each size that may vary."""
    guards: list[str] = field(default_factory=list)
    weights: dict[str, str] = field(default_factory=dict)
    operations: Counter[str] = field(default_factory=Counter)


def is_exported_program(path: Path) -> bool:
    """Return whether a file is an archive with an exported program."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            return any(_MODEL.match(name) for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def read_exported_programs(path: Path) -> list[ExportedProgram]:
    """Return the programs of a file.

    Raises:
        UnreadableRecord: the file cannot be read, or is not in torch's format.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            members = [each for each in archive.infolist() if _MODEL.match(each.filename)]
            if sum(each.file_size for each in members) > _LONGEST:
                raise UnreadableRecord(f"{path} is too large to be read")
            return [_program(each.filename, archive.read(each)) for each in members]
    except OSError as error:
        raise UnreadableRecord(f"cannot read {path}: {error.strerror or error}") from None
    except (zipfile.BadZipFile, msgspec.MsgspecError, LookupError, TypeError, AttributeError, ValueError) as error:
        raise UnreadableRecord(f"{path} is not in the format of torch.export: {error}") from None


def _program(name: str, text: bytes) -> ExportedProgram:
    model: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
    graph = model["graph_module"]["graph"]
    tensors = graph["tensor_values"]
    program = ExportedProgram(
        visible(name.rpartition("/")[2].removesuffix(".json")),
        visible(str(model.get("torch_version") or "?")),
        guards=[visible(str(each)) for each in model.get("guards_code") or ()],
    )
    for spec in model["graph_module"]["signature"]["input_specs"]:
        ((kind, given),) = spec.items()
        if kind == "user_input":
            ((of, argument),) = given["arg"].items()
            named = argument.get("name") if isinstance(argument, dict) else None
            known = tensors.get(named)
            label = visible(str(named or f"input {len(program.inputs)}"))
            program.inputs[label] = _tensor(known) if known is not None else visible(f"{of} {argument}")
        elif kind == "constant_input":
            program.inputs[visible(given["name"])] = f"the constant {_constant(given['value'])}, and no other value"
        elif kind in ("parameter", "buffer"):
            known = tensors.get(given["arg"]["name"])
            program.weights[visible(given[f"{kind}_name"])] = "?" if known is None else _tensor(known)
    for symbol, bounds in model["range_constraints"].items():
        program.ranges[visible(symbol)] = _range(bounds)
    program.operations = Counter(visible(str(node["target"]).removeprefix("torch.ops.")) for node in graph["nodes"])
    return program


def _constant(value: dict[str, object]) -> str:
    ((kind, found),) = value.items()
    return "None" if kind == "as_none" else visible(repr(found))


def _tensor(known: dict[str, Any]) -> str:
    sizes = ", ".join(_size(each) for each in known["sizes"])
    device = known["device"]["type"]
    return f"{_TYPES.get(known['dtype'], '?')}[{sizes}] {visible(str(device))}"


def _size(size: dict[str, Any]) -> str:
    if "as_int" in size:
        return str(size["as_int"])
    return visible(_SYMBOL.sub(r"\1", str(size["as_expr"]["expr_str"])))


def _range(bounds: dict[str, Any]) -> str:
    least, most = bounds.get("min_val"), bounds.get("max_val")
    return f"{'any' if least is None else least} … {'any' if most is None or most > _UNBOUNDED else most}"
