"""Dependencies between packages point downward only, as the package's ``__init__`` modules promise."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import pytest

from tests.client.timeline import DEADLINE
from tests.structure.sources import ADAPTER, Module, adapter_modules

_DEBUGGEE = (
    "wrapping",
    "bytecode",
    "torch_api",
    "triton",
    "values",
    "agent",
    "generated",
    "recording",
    "trace",
    "inductor",
    "replay",
    "numerics",
    "history",
    "kernel_races",
    "eager",
    "composition",
    "patching",
    "saved_calls",
    "launch",
)
"""The packages of the debuggee in order: each may import those before it."""
_DATA = {"records", "profile", "explore", "calls"}
"""The data of records: the debuggee writes it, and commands read it."""
_WRITES_DATA = {"recording", "inductor", "saved_calls", "launch"}

MAY_IMPORT = {
    "protocol": set[str](),
    "records": {"protocol"},
    "profile": {"protocol", "records"},
    "explore": {"protocol", "records"},
    "calls": {"protocol", "records"},
    "trace_logs": {"protocol", "records", "explore"},
    "diff": {"protocol", "records", "trace_logs", "calls"},
    "server": {"protocol", "records"},
    "checking": {"protocol", "records", "debuggee.launch", "debuggee.torch_api"},
    "terminal": {"protocol", *_DATA},
    "fixes": {"protocol", "records"},
    "language_server": {"protocol", "records", "trace_logs", "fixes"},
    "assistants": {"protocol", "checking", "terminal", "trace_logs", "fixes", *_DATA},
    "commands": {
        *("protocol", "checking", "terminal", "language_server", "assistants", "trace_logs", "diff", "fixes"),
        *_DATA,
    },
    **{
        f"debuggee.{name}": {
            "protocol",
            *(f"debuggee.{below}" for below in _DEBUGGEE[:number] if (name, below) != ("agent", "torch_api")),
        }
        | (_DATA if name in _WRITES_DATA else set())
        for number, name in enumerate(_DEBUGGEE)
    },
}
"""The other packages that each package may import."""

_WITHIN = {
    "protocol": ("wire", "requests", "access"),
    "records": ("artifacts", "advice", "report"),
    "server": ("client", "launching", "backends", "programs", "sessions"),
    "debuggee.numerics": ("graphs", "faults", "gradients", "comparing", "stops"),
    "debuggee.launch": ("children", "runs", "forecasts", "starting"),
}
"""The folders of large packages in order: each may import those before it."""

_MAXIMUM_MODULES = 25
"""How many modules a folder has at most: a newcomer looks through their names."""

_STILL_TOUCH_TORCH: set[str] = {
    "history.changed_traces",
    "history.saved_traces",
    "history.snapshots",
    "history.trace_changes",
    "history.state_log",
    "inductor.explored_stages",
    "numerics.gradients.gradient_run",
}
"""Modules of features that still use private parts of torch; only ``torch_api`` should."""

_STILL_ASSIGN_FUNCTIONS = {
    "eager.own_tracers": 3,
    "eager.presentation": 3,
    "eager.pydevd_ending": 4,
    "eager.pydevd_guards": 14,
    "eager.pydevd_internals": 6,
    "eager.pydevd_memory": 1,
    "eager.pydevd_messages": 1,
    "eager.pydevd_objects": 2,
    "eager.pydevd_passing": 6,
    "eager.pydevd_pauses": 1,
    "eager.pydevd_requests": 3,
    "eager.pydevd_variables": 4,
    "eager.slow_rows": 1,
    "launch.children.child_processes": 1,
    "launch.runs.recording": 1,
    "launch.runs.trial": 1,
    "launch.starting.green_threads": 1,
    "launch.starting.stops": 2,
    "numerics.faults.eager_runs": 1,
    "torch_api.compiles.compiled_calls": 1,
    "torch_api.compiles.minifying": 5,
    "torch_api.graphs.accuracy": 1,
    "torch_api.import_hooks": 1,
    "torch_api.traced.abandoned_attempts": 1,
    "torch_api.traced.data_dependence": 1,
    "torch_api.traced.replays": 1,
    "torch_api.traced.traced_frame": 1,
    "triton.interpreter": 5,
    "triton.real_launches": 2,
}
"""How many functions each module still replaces without ``Patches``. Numbers may only get smaller.

Those in ``eager`` are debugpy's, replaced once for the rest of the process. Most others are attributes of one object.
"""

_WRITTEN_BY_USERS = {
    "torch._dynamo.disable",
    "torch._dynamo.graph_break",
    "torch._dynamo.maybe_mark_dynamic",
    "torch._disable_dynamo",
    "torch._dynamo.config.reorderable_logging_functions",
}
"""Names in edits of the user's files, and in torch's hints: texts, not uses of private parts."""

_PRIVATE_OF_TORCH = re.compile(r"torch(\.\w+)*\.(_[a-zA-Z]\w*|fx\.experimental)(\.\w+)*")


def package_of(name: str) -> str | None:
    """Return the package of a dotted name; None for modules directly in ``dynamo_dap``, and for other projects."""
    parts = name.split(".")
    if parts[0] != "dynamo_dap" or len(parts) < 2:
        return None
    package = ".".join(parts[1:3]) if parts[1] == "debuggee" and len(parts) > 2 else parts[1]
    return package if (ADAPTER / "dynamo_dap" / package.replace(".", "/")).is_dir() else None


def _wrong_imports(modules: Iterable[Module]) -> list[str]:
    wrong = []
    for module in modules:
        package = package_of(module.name)
        if package is None or package == "debuggee":
            continue
        assert package in MAY_IMPORT, f"the package {package} has no place in the order of packages yet"
        for imported, line in module.imports():
            other = package_of(imported)
            if other is not None and other not in (package, "debuggee") and other not in MAY_IMPORT[package]:
                wrong.append(f"{module.path.relative_to(ADAPTER)}:{line}: {package} imports {imported}")
    return wrong


def _below_package(name: str) -> str:
    return name.removeprefix("dynamo_dap.").removeprefix("debuggee.")


def test_packages_import_only_what_is_below_them() -> None:
    wrong = _wrong_imports(adapter_modules())
    assert not wrong, "\n".join(wrong)


def _folder_within(name: str, package: str) -> str:
    return name.removeprefix(f"dynamo_dap.{package}.").partition(".")[0] if f"dynamo_dap.{package}." in name else ""


def _wrong_within(modules: Iterable[Module], package: str) -> list[str]:
    """Return the imports that point up between the folders of a package."""
    order = _WITHIN[package]
    return [
        f"{module.name}:{line}: {imported}"
        for module in modules
        if (own := _folder_within(module.name, package)) in order
        for imported, line in module.imports()
        if (other := _folder_within(imported, package)) in order and order.index(other) > order.index(own)
    ]


@pytest.mark.parametrize("package", _WITHIN)
def test_folders_of_a_package_import_only_what_is_below_them(package: str) -> None:
    assert _wrong_within(adapter_modules(), package) == []
    order = _WITHIN[package]
    path = ADAPTER / "dynamo_dap" / package.replace(".", "/") / order[0] / "written.py"
    wrong = _Written(path, f"from dynamo_dap.{package}.{order[1]}.some import name\n")
    assert len(_wrong_within([wrong], package)) == 1
    folders = {each.name for each in path.parents[1].iterdir() if (each / "__init__.py").is_file()}
    assert folders == set(order)


def test_no_folder_has_more_modules_than_a_newcomer_looks_through() -> None:
    counts = Counter(module.path.parent for module in adapter_modules() if module.path.name != "__init__.py")
    large = {str(folder.relative_to(ADAPTER)): count for folder, count in counts.items() if count > _MAXIMUM_MODULES}
    assert large == {}


def test_no_exception_outlives_its_import() -> None:
    names = {module.name.removeprefix("dynamo_dap.debuggee.") for module in _that_touch_torch(adapter_modules())}
    assert names == _STILL_TOUCH_TORCH


@pytest.mark.parametrize(
    ("package", "wrong", "right"),
    [
        ("debuggee.trace", "debuggee.launch.runs.program", "debuggee.values.model"),
        ("debuggee.generated", "debuggee.trace.stepping", "debuggee.agent.frames"),
        ("debuggee.values", "debuggee.agent.agent", "debuggee.torch_api.features"),
        ("server", "debuggee.launch.starting.launch", "records.model"),
        ("terminal", "server.sessions.session", "protocol.wire.messages"),
        ("language_server", "server.sessions.session", "records.model"),
        ("protocol", "records.model", "protocol.wire.framing"),
    ],
)
def test_the_check_sees_a_wrong_import(package: str, wrong: str, right: str) -> None:
    """The check finds an import of a module or of a name in it, at the top or in a function."""
    for line in (
        f"import dynamo_dap.{wrong}",
        "def f():\n    from dynamo_dap.{} import {}".format(*wrong.rsplit(".", 1)),
    ):
        module = _Written(ADAPTER / "dynamo_dap" / package.replace(".", "/") / "written.py", f"{line}\n")
        assert [one.partition(": ")[2] for one in _wrong_imports([module])] == [f"{package} imports dynamo_dap.{wrong}"]
    module = _Written(ADAPTER / "dynamo_dap" / package.replace(".", "/") / "written.py", f"import dynamo_dap.{right}\n")
    assert _wrong_imports([module]) == []


@dataclass(frozen=True)
class _Written(Module):
    """A module whose text is not in a file."""

    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree of the text."""
        return ast.parse(self.text)


def _may_touch_torch(module: Module) -> bool:
    return package_of(module.name) == "debuggee.torch_api" or _below_package(module.name) in _STILL_TOUCH_TORCH


def _that_touch_torch(modules: Iterable[Module]) -> list[Module]:
    """Return the modules of features that name private parts of torch, or read Dynamo's objects."""
    return [
        module
        for module in modules
        if package_of(module.name) not in (*_WITHOUT_DYNAMO, "debuggee.torch_api")
        and (_named_parts(module) or _read_attributes(module))
    ]


def _private_parts(modules: Iterable[Module]) -> list[str]:
    wrong = []
    for module in modules:
        if _may_touch_torch(module):
            continue
        wrong += [f"{module.path.relative_to(ADAPTER)}:{line}: {name}" for name, line in _named_parts(module)]
    return wrong


def _named_parts(module: Module) -> list[tuple[str, int]]:
    found = [(name, line) for name, line in module.imports() if _PRIVATE_OF_TORCH.fullmatch(name)]
    return found + [(name, line) for name, line in _private_names(module) if name not in _WRITTEN_BY_USERS]


def test_only_torch_api_names_private_parts_of_torch() -> None:
    wrong = _private_parts(adapter_modules())
    assert not wrong, "\n".join(wrong)


def test_the_check_sees_a_private_part_of_torch() -> None:
    for text in (
        "import torch._dynamo",
        "torch._C._x",
        "name = 'torch._dynamo.utils:counters'",
        "torch.fx.experimental",
    ):
        engine = _Written(ADAPTER / "dynamo_dap" / "debuggee" / "generated" / "written.py", f"{text}\n")
        internals = _Written(ADAPTER / "dynamo_dap" / "debuggee" / "torch_api" / "written.py", f"{text}\n")
        assert len(_private_parts([engine])) >= 1, text
        assert _private_parts([internals]) == []


def _about_torch(modules: Iterable[Module]) -> list[str]:
    """Return what the agent's modules import or look up of torch."""
    wrong = []
    for module in modules:
        if package_of(module.name) == "debuggee.agent":
            wrong += [
                f"{module.name}:{line}: {name}"
                for name, line in (*module.imports(), *_names_read(module))
                if re.match(r"(dynamo_dap\.debuggee\.torch_api|torch)(\.|$)", name)
            ]
    return wrong


def _names_read(module: Module) -> Iterator[tuple[str, int]]:
    """Yield the names of the modules that a module imports or reads by a string."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "sys.modules":
            found = node.slice
        elif isinstance(node, ast.Call) and node.args and ast.unparse(node.func).endswith(_TAKE_MODULES):
            found = node.args[0]
        else:
            continue
        if isinstance(found, ast.Constant) and isinstance(found.value, str):
            yield found.value, found.lineno


_TAKE_MODULES = ("sys.modules.get", "import_module", "__import__", "find_spec")


def test_the_agent_knows_nothing_of_torch() -> None:
    """Features register with the agent what it needs: see ``launch.starting.process_agent``."""
    assert _about_torch(adapter_modules()) == []


@pytest.mark.parametrize(
    "text",
    [
        "import torch",
        "import torch.fx",
        "from dynamo_dap.debuggee.torch_api.objects import Tensor",
        "import sys\nx = sys.modules['torch']",
        "import sys\nx = sys.modules.get('torch.distributed')",
        "import importlib\nimportlib.import_module('torch')",
    ],
)
def test_the_check_sees_torch_in_the_agent(text: str) -> None:
    module = _Written(ADAPTER / "dynamo_dap" / "debuggee" / "agent" / "written.py", f"{text}\n")
    assert len(_about_torch([module])) >= 1


def test_only_the_run_of_a_trace_says_why_it_runs() -> None:
    """Features ask ``trace.runs.current_run``; no feature starts a trace without a ``TraceRun``."""
    asked = {
        _below_package(module.name)
        for module in adapter_modules()
        for imported, _ in module.imports()
        if imported.endswith((".replayed_call", ".current_replay")) and package_of(module.name) != "debuggee.torch_api"
    }
    assert asked == {"trace.runs"}


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
"""Attributes of Dynamo's own objects, which make up a paused trace."""
_WITHOUT_DYNAMO = (
    "assistants",
    "commands",
    "language_server",
    "fixes",
    "server",
    "terminal",
    "records",
    "profile",
    "explore",
    "calls",
    "trace_logs",
    "protocol",
)
"""Packages whose process never has a trace."""


def _attributes_of_dynamo(modules: Iterable[Module]) -> list[str]:
    wrong = []
    for module in modules:
        if package_of(module.name) not in _WITHOUT_DYNAMO and not _may_touch_torch(module):
            wrong += [f"{module.path.relative_to(ADAPTER)}:{line}: {name}" for name, line in _read_attributes(module)]
    return wrong


def _read_attributes(module: Module) -> list[tuple[str, int]]:
    found = []
    for node in ast.walk(module.tree):
        name = node.attr if isinstance(node, ast.Attribute) else node.value if isinstance(node, ast.Constant) else None
        is_chain = isinstance(node, ast.Attribute) and re.search(r"(^|\.)tx$|\.output$", ast.unparse(node.value))
        if is_chain or (isinstance(name, str) and name in _INSIDE_DYNAMO):
            found.append((str(name), getattr(node, "lineno", 0)))
    return found


def test_only_torch_api_reads_what_a_trace_is_made_of() -> None:
    """Other packages use a ``TracedFrame``, which knows the names in each version of torch."""
    wrong = _attributes_of_dynamo(adapter_modules())
    assert not wrong, "\n".join(wrong)


def test_the_check_sees_an_attribute_of_dynamo() -> None:
    for text in (
        "x = f.symbolic_locals",
        "x = tx.stack",
        "x = f.output.graph",
        "x = getattr(f, 'instruction_pointer')",
    ):
        engine = _Written(ADAPTER / "dynamo_dap" / "debuggee" / "trace" / "written.py", f"{text}\n")
        internals = _Written(ADAPTER / "dynamo_dap" / "debuggee" / "torch_api" / "written.py", f"{text}\n")
        assert len(_attributes_of_dynamo([engine])) == 1, text
        assert _attributes_of_dynamo([internals]) == []


def _circles(modules: Iterable[Module]) -> list[str]:
    """Return the groups of modules that import each other, directly or indirectly."""
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
    """Imports under ``TYPE_CHECKING`` count as well."""
    assert _circles(adapter_modules()) == []


def test_the_check_sees_a_circle() -> None:
    folder = ADAPTER / "dynamo_dap" / "debuggee" / "trace"
    other = _Written(folder / "other.py", "def f():\n    from dynamo_dap.debuggee.trace.written import g\n")
    written = _Written(folder / "written.py", "from dynamo_dap.debuggee.trace.other import f\n")
    assert _circles([other, written]) == ["dynamo_dap.debuggee.trace.other <-> dynamo_dap.debuggee.trace.written"]
    assert _circles([other]) == []


def _assigned_functions(module: Module) -> list[str]:
    """Return the attributes of other objects to which a module assigns one of its functions."""
    own = {node.name for node in ast.walk(module.tree) if isinstance(node, ast.FunctionDef)}
    return [
        ast.unparse(target)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Assign)
        and (isinstance(node.value, ast.Lambda) or (isinstance(node.value, ast.Name) and node.value.id in own))
        for target in node.targets
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) not in ("self", "cls")
    ]


def test_only_patches_replace_functions_of_other_packages() -> None:
    """``Patches`` restores what it replaced, and keeps a wrapper that other code has installed meanwhile."""
    found = {
        _below_package(module.name): len(assigned)
        for module in adapter_modules()
        if "debuggee" in module.name and (assigned := _assigned_functions(module))
    }
    assert found == _STILL_ASSIGN_FUNCTIONS


def test_the_check_sees_a_function_that_replaces_another() -> None:
    for text, count in (
        ("def f(): ...\ntorch._dynamo.reset = f", 1),
        ("m.f = lambda: 1", 1),
        ("def f(): ...\nself.f = f", 0),
        ("m.f = 1", 0),
    ):
        module = _Written(ADAPTER / "dynamo_dap" / "debuggee" / "trace" / "written.py", f"{text}\n")
        assert len(_assigned_functions(module)) == count, text


def test_only_commands_parse_arguments() -> None:
    found = {_below_package(module.name) for module in adapter_modules() if "ArgumentParser(" in _text(module)}
    assert {name for name in found if not name.startswith("commands.")} == {"command_line", "records.program"}


def test_every_page_has_the_one_shell() -> None:
    """One module writes the page's policy, so no page can do without it."""
    found = {
        _below_package(module.name)
        for module in adapter_modules()
        if re.search(r"Content-Security-Policy|<!doctype(?!\\)|<html(?!\\)", _text(module))
    }
    assert found == {"records.report.html_shell"}


def _text(module: Module) -> str:
    return module.path.read_text(encoding="utf-8")


def test_importing_everything_of_ours_imports_no_torch() -> None:
    """Only the program imports torch: all our modules can be imported even if torch is unusable."""
    names = [module.name for module in adapter_modules() if not module.name.endswith("__main__")]
    # The SDK of MCP is an extra, which not every environment has.
    if importlib.util.find_spec("mcp") is None:
        names = [name for name in names if package_of(name) not in ("assistants", "commands")]
    program = (
        "import importlib, sys\n"
        "sys.modules['torch'] = None\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "assert not [name for name in sys.modules if name.startswith('torch.')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=DEADLINE)


def _private_names(module: Module) -> list[tuple[str, int]]:
    """Return attribute chains such as ``torch._dynamo``, and strings that consist of such a name."""
    found = []
    for node in ast.walk(module.tree):
        text = None
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            text = node.value.replace(":", ".")
        if text is not None and _PRIVATE_OF_TORCH.fullmatch(text) and "\n" not in text:
            found.append((text, getattr(node, "lineno", 0)))
    return found
