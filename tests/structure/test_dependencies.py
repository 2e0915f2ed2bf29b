"""Dependencies between rooms point downward only, as the package's ``__init__`` modules promise."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

from tests.structure.sources import ADAPTER, Module, adapter_modules

_FLOOR = {"protocol", "debuggee.code_analysis"}
_VALUES = _FLOOR | {"debuggee.torch_internals"}
_AGENT = _VALUES | {"debuggee.values"}
_ENGINE = _AGENT | {"debuggee.agent", "debuggee.engines"}

MAY_IMPORT = {
    "protocol": set[str](),
    "record": set[str](),
    "server": {"protocol", "record"},
    "terminal": {"protocol"},
    "language_server": {"record"},
    "debuggee.code_analysis": {"protocol"},
    "debuggee.torch_internals": _FLOOR,
    "debuggee.values": _VALUES,
    "debuggee.agent": _AGENT,
    "debuggee.compile_time": _ENGINE | {"record"},
    "debuggee.run_time": _ENGINE,
    "debuggee.eager": _ENGINE,
    "debuggee.recording": _ENGINE | {"record"},
    "debuggee.bootstrap": _ENGINE
    | {"debuggee.compile_time", "debuggee.run_time", "debuggee.eager", "debuggee.recording", "record"},
}
"""What each room may import of the others."""

_WRITTEN_BY_USERS = {
    "torch._dynamo.disable",
    "torch._dynamo.graph_break",
    "torch._dynamo.maybe_mark_dynamic",
    "torch._disable_dynamo",
    "torch._dynamo.config.reorderable_logging_functions",
}
"""Names written into, and looked for in, the text of the user's own files and of torch's hints."""

_PRIVATE_OF_TORCH = re.compile(r"torch(\.\w+)*\.(_[a-zA-Z]\w*|fx\.experimental)(\.\w+)*")


def room_of(name: str) -> str | None:
    """The room a dotted name is in; None for the modules that stand before all rooms, and for other packages."""
    parts = name.split(".")
    if parts[0] != "dynamo_dap" or len(parts) < 2:
        return None
    room = ".".join(parts[1:3]) if parts[1] == "debuggee" and len(parts) > 2 else parts[1]
    return room if (ADAPTER / "dynamo_dap" / room.replace(".", "/")).is_dir() else None


def test_rooms_import_only_what_is_below_them() -> None:
    wrong = []
    for module in adapter_modules():
        room = room_of(module.name)
        if room is None or room == "debuggee":
            continue
        assert room in MAY_IMPORT, f"the room {room} has no place in the order of rooms yet"
        for imported, line in module.imports():
            other = room_of(imported)
            if other is not None and other not in (room, "debuggee") and other not in MAY_IMPORT[room]:
                wrong.append(f"{module.path.relative_to(ADAPTER)}:{line}: {room} imports {imported}")
    assert not wrong, "\n".join(wrong)


def test_the_check_sees_a_wrong_import() -> None:
    """The rule above can fail: the two engines know nothing of each other, the server nothing of the debuggee."""
    assert room_of("dynamo_dap.debuggee.run_time.engine") == "debuggee.run_time"
    assert "debuggee.run_time" not in MAY_IMPORT["debuggee.compile_time"]
    assert not any(room.startswith("debuggee") for room in MAY_IMPORT["server"] | MAY_IMPORT["terminal"])


def test_only_torch_internals_names_private_parts_of_torch() -> None:
    wrong = []
    for module in adapter_modules():
        if room_of(module.name) == "debuggee.torch_internals":
            continue
        found = [(name, line) for name, line in module.imports() if _PRIVATE_OF_TORCH.fullmatch(name)]
        found += [(name, line) for name, line in _private_names(module) if name not in _WRITTEN_BY_USERS]
        wrong += [f"{module.path.relative_to(ADAPTER)}:{line}: {name}" for name, line in found]
    assert not wrong, "\n".join(wrong)


def test_importing_everything_of_ours_imports_no_torch() -> None:
    """The program imports torch, or nobody does: even with torch unusable all our modules can be imported."""
    names = [module.name for module in adapter_modules() if not module.name.endswith("__main__")]
    program = (
        "import importlib, sys\n"
        "sys.modules['torch'] = None\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "assert not [name for name in sys.modules if name.startswith('torch.')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def _private_names(module: Module) -> list[tuple[str, int]]:
    """Attribute chains such as ``torch._dynamo``, and strings that are nothing but such a name."""
    found = []
    for node in ast.walk(module.tree):
        text = None
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            text = node.value.replace(":", ".")
        if text is not None and _PRIVATE_OF_TORCH.fullmatch(text) and "\n" not in text:
            found.append((text, node.lineno))
    return found
