"""Dependencies between rooms point downward only, as the package's ``__init__`` modules promise."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import pytest

from tests.structure.sources import ADAPTER, Module, adapter_modules

_FLOOR = {"protocol", "debuggee.code_analysis"}
_VALUES = _FLOOR | {"debuggee.torch_internals"}
_TRITON = _VALUES | {"debuggee.triton"}
_AGENT = _TRITON | {"debuggee.values"}
_ENGINE = _AGENT | {"debuggee.agent"}

MAY_IMPORT = {
    "protocol": set[str](),
    "records": {"protocol"},
    "profile": {"protocol", "records"},
    "explore": {"protocol", "records"},
    "server": {"protocol", "records"},
    "checking": {"protocol", "records", "debuggee.bootstrap", "debuggee.torch_internals"},
    "calls": {"protocol", "records"},
    "terminal": {"protocol", "records", "calls"},
    "language_server": {"protocol", "records"},
    "assistants": {"protocol", "records", "profile", "explore", "checking", "terminal"},
    "debuggee.code_analysis": {"protocol"},
    "debuggee.torch_internals": _FLOOR,
    "debuggee.triton": _VALUES,
    "debuggee.values": _TRITON,
    "debuggee.agent": _AGENT,
    "debuggee.compile_time": _ENGINE | {"records"},
    "debuggee.run_time": _ENGINE,
    "debuggee.eager": _ENGINE,
    "debuggee.recording": _ENGINE | {"records", "profile", "explore", "calls"},
    "debuggee.bootstrap": _ENGINE
    | {"debuggee.compile_time", "debuggee.run_time", "debuggee.eager", "debuggee.recording"}
    | {"records", "profile", "explore", "calls"},
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


def _wrong_imports(modules: Iterable[Module]) -> list[str]:
    wrong = []
    for module in modules:
        room = room_of(module.name)
        if room is None or room == "debuggee":
            continue
        assert room in MAY_IMPORT, f"the room {room} has no place in the order of rooms yet"
        for imported, line in module.imports():
            other = room_of(imported)
            if other is not None and other not in (room, "debuggee") and other not in MAY_IMPORT[room]:
                wrong.append(f"{module.path.relative_to(ADAPTER)}:{line}: {room} imports {imported}")
    return wrong


def test_rooms_import_only_what_is_below_them() -> None:
    wrong = _wrong_imports(adapter_modules())
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("room", "wrong", "right"),
    [
        ("debuggee.compile_time", "debuggee.run_time.engine", "debuggee.values.model"),
        ("debuggee.run_time", "debuggee.compile_time.engine", "debuggee.agent.frames"),
        ("debuggee.values", "debuggee.agent.agent", "debuggee.torch_internals.features"),
        ("server", "debuggee.bootstrap.launch", "records.run"),
        ("terminal", "server.session", "protocol.messages"),
        ("language_server", "server.session", "records.model"),
        ("protocol", "records.model", "protocol.framing"),
    ],
)
def test_the_check_sees_a_wrong_import(room: str, wrong: str, right: str) -> None:
    """Whether it imports the module or a name of it, at the top or in a function."""
    for line in (
        f"import dynamo_dap.{wrong}",
        "def f():\n    from dynamo_dap.{} import {}".format(*wrong.rsplit(".", 1)),
    ):
        module = _Written(ADAPTER / "dynamo_dap" / room.replace(".", "/") / "written.py", f"{line}\n")
        assert [one.partition(": ")[2] for one in _wrong_imports([module])] == [f"{room} imports dynamo_dap.{wrong}"]
    module = _Written(ADAPTER / "dynamo_dap" / room.replace(".", "/") / "written.py", f"import dynamo_dap.{right}\n")
    assert _wrong_imports([module]) == []


@dataclass(frozen=True)
class _Written(Module):
    """A module that is in no file."""

    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The tree of the text."""
        return ast.parse(self.text)


def _private_parts(modules: Iterable[Module]) -> list[str]:
    wrong = []
    for module in modules:
        if room_of(module.name) == "debuggee.torch_internals":
            continue
        found = [(name, line) for name, line in module.imports() if _PRIVATE_OF_TORCH.fullmatch(name)]
        found += [(name, line) for name, line in _private_names(module) if name not in _WRITTEN_BY_USERS]
        wrong += [f"{module.path.relative_to(ADAPTER)}:{line}: {name}" for name, line in found]
    return wrong


def test_only_torch_internals_names_private_parts_of_torch() -> None:
    wrong = _private_parts(adapter_modules())
    assert not wrong, "\n".join(wrong)


def test_the_check_sees_a_private_part_of_torch() -> None:
    for text in (
        "import torch._dynamo",
        "torch._C._x",
        "name = 'torch._dynamo.utils:counters'",
        "torch.fx.experimental",
    ):
        engine = _Written(ADAPTER / "dynamo_dap" / "debuggee" / "run_time" / "written.py", f"{text}\n")
        internals = _Written(ADAPTER / "dynamo_dap" / "debuggee" / "torch_internals" / "written.py", f"{text}\n")
        assert len(_private_parts([engine])) >= 1, text
        assert _private_parts([internals]) == []


_INSIDE_DYNAMO = set(
    re.findall(
        r"\w+",
        """
        translator symbolic_locals symbolic_cellvars post_prune_cell_and_freevars symbolic_stack instruction_pointer
        current_instruction current_speculation indexof is_tracing_resume_prologue inline_depth generator_exhausted
        generated_items error_on_graph_break exn_vt_stack root_tx output_graph tracers tracing_context
        input_source_to_var installed_globals variable_tracker_cache local_scope global_scope shape_env fake_mode
        compiler_fn dynamo_compile_id id_to_variable store_attr_mutations save_for_backward mutation_user_stacks
        mutation_type is_modified source_location parents_tracker proxy sym_num class_type raw_value _base_vt
        originating_source create_fn user_stack var_to_range var_to_sources replacements maybe_user_loc logged
        real_stack restart_reason gb_type guard_manager guarded_code code_parts
        """,
    )
)
"""Attributes of Dynamo's own objects: what a paused trace is made of."""
_WITHOUT_DYNAMO = (
    "debuggee.torch_internals",
    "assistants",
    "language_server",
    "server",
    "terminal",
    "records",
    "profile",
    "explore",
    "calls",
    "protocol",
)
"""The room that may read them, and rooms that never have one in their process."""


def _attributes_of_dynamo(modules: Iterable[Module]) -> list[str]:
    wrong = []
    for module in modules:
        if room_of(module.name) in _WITHOUT_DYNAMO:
            continue
        for node in ast.walk(module.tree):
            name = (
                node.attr if isinstance(node, ast.Attribute) else node.value if isinstance(node, ast.Constant) else None
            )
            is_chain = isinstance(node, ast.Attribute) and re.search(r"(^|\.)tx$|\.output$", ast.unparse(node.value))
            if is_chain or (isinstance(name, str) and name in _INSIDE_DYNAMO):
                wrong.append(f"{module.path.relative_to(ADAPTER)}:{getattr(node, 'lineno', 0)}: {name}")
    return wrong


def test_only_torch_internals_reads_what_a_trace_is_made_of() -> None:
    """The other rooms see a ``TracedFrame``: alternative names of other versions of torch are behind it."""
    wrong = _attributes_of_dynamo(adapter_modules())
    assert not wrong, "\n".join(wrong)


def test_the_check_sees_an_attribute_of_dynamo() -> None:
    for text in (
        "x = f.symbolic_locals",
        "x = tx.stack",
        "x = f.output.graph",
        "x = getattr(f, 'instruction_pointer')",
    ):
        engine = _Written(ADAPTER / "dynamo_dap" / "debuggee" / "compile_time" / "written.py", f"{text}\n")
        internals = _Written(ADAPTER / "dynamo_dap" / "debuggee" / "torch_internals" / "written.py", f"{text}\n")
        assert len(_attributes_of_dynamo([engine])) == 1, text
        assert _attributes_of_dynamo([internals]) == []


def _circles(modules: Iterable[Module]) -> list[str]:
    """The groups of modules that import each other, directly or not, anywhere in them."""
    names = {module.name for module in modules}
    imports = {
        module.name: {
            found for found, _ in module.imports() for found in (found, found.rpartition(".")[0]) if found in names
        }
        - {module.name}
        for module in modules
    }
    reached = {name: _reached(name, imports) for name in names}
    groups = {frozenset(other for other in reached[name] if name in reached[other]) for name in names}
    return sorted(" <-> ".join(sorted(group)) for group in groups if len(group) > 1)


def _reached(name: str, imports: Mapping[str, set[str]]) -> set[str]:
    found, pending = set[str](), [name]
    while pending:
        new = imports[pending.pop()] - found
        found |= new
        pending += new
    return found


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """Under ``TYPE_CHECKING`` neither."""
    assert _circles(adapter_modules()) == []


def test_the_check_sees_a_circle() -> None:
    folder = ADAPTER / "dynamo_dap" / "debuggee" / "compile_time"
    other = _Written(folder / "other.py", "def f():\n    from dynamo_dap.debuggee.trace.written import g\n")
    written = _Written(folder / "written.py", "from dynamo_dap.debuggee.trace.other import f\n")
    assert _circles([other, written]) == ["dynamo_dap.debuggee.trace.other <-> dynamo_dap.debuggee.trace.written"]
    assert _circles([other]) == []


def test_importing_everything_of_ours_imports_no_torch() -> None:
    """The program imports torch, or nobody does: even with torch unusable all our modules can be imported."""
    names = [module.name for module in adapter_modules() if not module.name.endswith("__main__")]
    # Its SDK is an extra, which not every environment has.
    if importlib.util.find_spec("mcp") is None:
        names = [name for name in names if room_of(name) != "assistants"]
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
