"""Reads functions that ``aot_compile`` compiled and ``save_compiled_function`` wrote, without torch.

A file is a pickle, and may come from anybody: it is read as data (``inert_pickles``). Runs on one thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dynamo_dap.protocol.access.consent import visible
from dynamo_dap.protocol.user_files import open_regular
from dynamo_dap.records.artifacts.inert_pickles import Inert, read_inert
from dynamo_dap.records.file import UnreadableRecord
from dynamo_dap.records.model import Place

_LONGEST = 1024 * 1024 * 1024
_BEGINNING = b"\x8c\x09signature"
"""The first key of the pickle."""
_MAGIC = b"PT2AOT"
"""The beginning of a file of torch 2.15, before one byte for the format's version."""
_LONGEST_VALUE = 200
_GUARD = "_guards.Guard"
_TENSOR = "_utils._rebuild_meta_tensor_no_storage"
"""The ends of the names of torch's objects in a file."""
_TYPES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "bool": "b8"}
_TYPES |= {f"{name}{bits}": f"{name[0]}{bits}" for name in ("int", "uint") for bits in (8, 16, 32, 64)}
_MARK = re.compile(r"hasattr\((?P<tensor>.+), '_dynamo_")
_OF_TORCH = re.compile(r"^(?:not )?hasattr\(.*, '_dynamo_\w+'\)|^torch\._functorch\.|^utils_device\.")
"""Guards on torch's own attributes of tensors and on its global state."""
_TYPE = re.compile(r"^___check_type_id\((?P<object>.+), \d+\), type=<class '(?P<type>[^']+)'>$")
_GPUS = ("cuda", "xpu")


@dataclass
class CompiledFile:
    """A compiled function in a file."""

    function: str
    place: Place
    backend: str
    versions: dict[str, str]
    """The versions that torch compares when it loads the file."""
    inputs: dict[str, str] = field(default_factory=dict)
    """The arguments that it was compiled for, by parameter."""
    tensors: list[tuple[str, Place | None]] = field(default_factory=list)
    """The required type, sizes and device of each tensor; a size that may vary is ``…``."""
    guards: list[tuple[str, Place | None]] = field(default_factory=list)
    """The conditions on a call, each with the user's line that needs it."""
    has_global_state: bool = False
    """Whether a call also needs the global state of torch that the compile had."""
    sources: list[tuple[str, int, int]] = field(default_factory=list)
    """The traced code: module, first and last line."""


def is_compiled_function(path: Path) -> bool:
    """Return whether a file begins like one of ``save_compiled_function``."""
    try:
        with open_regular(path) as file:
            return _BEGINNING in file.read(64)
    except OSError:
        return False


def read_compiled_function(path: Path) -> CompiledFile:
    """Return the compiled function in a file.

    Raises:
        UnreadableRecord: the file cannot be read, or is not in torch's format.
    """
    try:
        with open_regular(path) as file:
            data = file.read(_LONGEST)
        return _read(read_inert(data[len(_MAGIC) + 1 :] if data.startswith(_MAGIC) else data))
    except OSError as error:
        raise UnreadableRecord(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableRecord(f"{path} has an unknown form for a compiled function: {visible(str(error))}") from None


def _read(content: dict[str, Any]) -> CompiledFile:
    code, device = content["original_code"].state, visible(str(content["device_type"]))
    found = CompiledFile(
        visible(str(code["co_qualname"] if "co_qualname" in code else code["co_name"])),
        Place(visible(str(code["co_filename"])), int(code["co_firstlineno"])),
        visible(str(content["backend_name"])),
        dict(_versions(content["system_info"].state, device)),
    )
    graph = read_inert(content["guards_state"]).state["output_graph"].state
    found.inputs = {visible(str(name)): _value(value) for name, value in graph["local_scope"].items()}
    sizes = {_identity(source): each["size"] for source, each in graph["input_source_to_sizes_strides"].items()}
    for guard in [each.state for each in _flat(graph["_guards"].state["inner"]) if each.made_by.endswith(_GUARD)]:
        texts, place = guard.get("code_list") or (), _place(guard)
        tensor = next((match["tensor"] for text in texts if (match := _MARK.search(text)) is not None), None)
        value = next((each.state["value"] for each in _flat(guard["create_fn"]) if "value" in each.state), None)
        if tensor is not None and value is not None:
            shown = _value(value, sizes.get(_identity(guard["originating_source"])))
            found.tensors.append((f"{visible(tensor)}: {shown}", place))
        found.has_global_state |= getattr(guard["create_fn"], "made_by", "").endswith(".GLOBAL_STATE")
        found.guards += [
            (visible(_TYPE.sub(r"type(\g<object>) is \g<type>", text)), place)
            for text in texts
            if not _OF_TORCH.match(text)
        ]
    # Torch writes some guards twice.
    found.guards = list(dict.fromkeys(found.guards))
    for source in content["source_info"].state["inlined_sources"]:
        part = source.state
        found.sources.append((visible(str(part["module"])), int(part["firstlineno"]), int(part["lastlineno"])))
    return found


def _versions(system: dict[str, object], device: str) -> Iterator[tuple[str, str]]:
    for name in ("torch", "python", *(("toolkit", "triton") if device in _GPUS else ())):
        value = system.get(f"{name}_version")
        value = value.arguments[0] if isinstance(value, Inert) and value.arguments else value
        if value not in (None, (0, 0)):
            yield name.capitalize(), visible(".".join(map(str, value)) if isinstance(value, tuple) else str(value))
    if device in _GPUS and system.get("gpu_name"):
        yield "GPU", visible(str(system["gpu_name"]))


def _place(guard: dict[str, object]) -> Place | None:
    frames = [each.state for each in _flat(guard.get("user_stack")) if "lineno" in each.state]
    return Place(visible(str(frames[-1]["filename"])), int(frames[-1]["lineno"])) if frames else None


def _flat(value: object, depth: int = 4) -> Iterator[Inert]:
    """Yield an object and the objects among its arguments, down to ``depth`` levels of lists."""
    if isinstance(value, Inert):
        yield value
        value = value.arguments
    if depth and isinstance(value, list | tuple | set):
        for each in value:
            yield from _flat(each, depth - 1)


def _identity(source: object) -> str:
    """Return a text that is the same for equal sources: a file may hold several copies of one."""
    if isinstance(source, Inert):
        return f"{source.made_by}{[*map(_identity, source.arguments), *map(_identity, source.state.values())]}"
    return repr(source)


def short_type(name: str) -> str:
    """Return ``f32`` for ``float32``."""
    return _TYPES.get(name, name)


def _value(value: object, sizes: Sequence[int | None] | None = None) -> str:
    if isinstance(value, list | tuple):
        return visible(f"({', '.join(map(_value, value))})")
    tensor = next((each for each in _flat(value) if each.made_by.endswith(_TENSOR)), None)
    if tensor is None:
        return "an object" if isinstance(value, Inert) else visible(repr(value)[:_LONGEST_VALUE])
    dtype, own = tensor.arguments[0].made_by.rpartition(".")[2], tensor.arguments[1]
    shown = ", ".join("…" if each is None else str(each) for each in (own if sizes is None else sizes))
    device = next((each.arguments for each in _flat(value) if each.made_by == "torch.device"), ())
    return visible(f"{short_type(dtype)}[{shown}] {':'.join(map(str, device))}")
