"""Shows the code that replaying a saved call runs, and remembers which content the user agreed to.

The text, the digest and the replay come from one ``Snapshot``. Names and settings outside an allow list are refused,
until the user allows them by name. Imports nothing that a folder names. Runs in any process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from dynamo_dap.calls.folder import Class, Function, Items, Named, Pairs, SavedCall, Scalar, Snapshot, nodes_of
from dynamo_dap.protocol.access.consent import agree_to, has_agreed, visible

_MODULES = frozenset(
    """
    abc builtins cmath collections contextlib copy dataclasses enum functools itertools logging math numbers numpy
    operator random re string time torch typing typing_extensions warnings weakref
    """.split()  # noqa: SIM905  (a list of names is shorter so)
)
"""Packages whose modules a folder's code may import: the shown text lists them."""
_BUILTINS = frozenset(
    """
    abs all any bool bytearray bytes callable chr complex dict divmod enumerate filter float format frozenset
    hasattr hash id int isinstance issubclass iter len list map max min next object ord pow print property range
    repr reversed round set slice sorted staticmethod classmethod str sum super tuple type zip
    """.split()  # noqa: SIM905  (a list of names is shorter so)
)
_HOMES = frozenset(
    """
    abc cmath collections copy enum functools itertools math numbers operator string
    numpy numpy.linalg numpy.fft numpy.random torch torch._C torch._C._nn torch._C._fft
    torch._C._linalg torch._C._special torch._VF torch._tensor torch.functional torch.fft
    torch.linalg torch.special torch.amp torch.amp.autocast_mode torch.autograd torch.autograd.function
    torch.autograd.grad_mode torch.random torch.return_types torch.utils._contextlib torch.utils.checkpoint
    torch.utils._pytree torch.func torch._functorch.apis torch._functorch.eager_transforms
    torch._higher_order_ops.cond
    """.split()  # noqa: SIM905  (a list of names is shorter so)
)
"""Modules whose functions and classes a folder may name."""
_PACKAGES = ("torch.nn", "torch.distributions", "torch.optim")
_REFUSED = ("load", "save", "import_", "_import_", "from", "memmap", "DataSource", "genfromtxt", "methodcaller",
            "attrgetter", "compile_", "_load", "_save", "test", "lazy_deprecated_import", "enum_object_hook",
            "treespec_loads", "str_to_pytree", "PyTorchFile", "createResolutionCallback")  # fmt: skip
"""Beginnings of names that read or write files, import a module by name, or look up an attribute by name."""
_SINGLE = {
    "dataclasses": frozenset({"asdict", "astuple", "dataclass", "field", "fields", "is_dataclass", "replace"}),
    "typing": frozenset({"Any", "Callable", "Generic", "Mapping", "NamedTuple", "Optional", "Sequence", "Union"}),
}
"""For some modules, the only allowed functions: their other functions run text as code."""
_IMPLEMENTATIONS = frozenset(
    {"_abc", "_bisect", "_collections", "_functools", "_operator", "_random", "_thread", "types"}
)
"""The modules in which Python defines the objects of the modules above."""
_OPERATORS = "ops"
_OF_REGISTRY = ("import_module", "load_library", "loaded_libraries")
"""Attributes of ``torch.ops`` that are not namespaces of operators."""
_PLAIN = ("bool", "int", "float", "NoneType")


def is_allowed_name(module: str, name: str) -> bool:
    """Return whether the allow list has this module, or this function or class of the module."""
    if not name:
        return module.partition(".")[0] in _MODULES
    parts = name.split(".")
    if module == "torch" and parts[0] == _OPERATORS:
        return _is_operator(parts)
    # A private name can lead anywhere. So can a name inside anything but a class.
    if any(part.startswith(("_", *_REFUSED)) for part in parts) or (len(parts) > 1 and not _is_member(module, parts)):
        return False
    if module == "builtins":
        return name in _BUILTINS or name.endswith(("Error", "Exception", "Warning", "Iteration"))
    if module in _SINGLE:
        return name in _SINGLE[module]
    below = next((module[len(each) :] for each in _PACKAGES if module == each or module.startswith(f"{each}.")), None)
    return module in _HOMES or (below is not None and "._" not in below)


def is_allowed_home(home: str, name: str) -> bool:
    """Return whether an object with an allowed name may be defined as ``name`` in the module ``home``."""
    package = home.partition(".")[0]
    if package == "builtins" or home in _SINGLE:
        return is_allowed_name(home, name)
    # Torch and numpy export objects under shorter names, so the defining module need not be in the list.
    is_known = package in _MODULES or package in _IMPLEMENTATIONS
    return is_known and not any(part.startswith(_REFUSED) for part in name.split("."))


def _is_operator(parts: list[str]) -> bool:
    """Return whether ``parts`` are ``ops.NAMESPACE.NAME`` or ``ops.NAMESPACE.NAME.OVERLOAD``."""
    return len(parts) in (3, 4) and parts[1] not in _OF_REGISTRY and not any(part.startswith("__") for part in parts)


def _is_member(module: str, parts: list[str]) -> bool:
    """Return whether ``parts`` name a member of a torch class."""
    return len(parts) == 2 and module.partition(".")[0] == "torch" and parts[0][:1].isupper()


def unusual(call: SavedCall) -> list[str]:
    """Return the modules, callables and settings that are outside the allow list, by name."""
    found = {_full(*each) for each in _named(call) if not is_allowed_name(*each)}
    found |= {key for key, number in _settings(call) if not _is_plain(call, number)}
    return sorted(found)


def _named(call: SavedCall) -> Iterator[tuple[str, str]]:
    for each in call.values:
        if isinstance(each, Named):
            yield each.module, each.name
    yield from _installed(call)


def _installed(call: SavedCall) -> Iterator[tuple[str, str]]:
    """Yield the functions whose code is in an installed package, not in the folder."""
    for each in call.values:
        if isinstance(each, Function) and each.source is None:
            owner = call.values[each.module]
            assert isinstance(owner, Named), "the folder's reader has checked it"
            yield owner.module, each.qualified_name


def _full(module: str, name: str) -> str:
    return f"{module}.{name}" if name else module


def _settings(call: SavedCall) -> Iterator[tuple[str, int]]:
    yield from call.conditions.settings.items()
    yield from ((f"options.{key}", number) for key, number in call.conditions.options.items())


def _is_plain(call: SavedCall, number: int) -> bool:
    """Return whether a setting is a number or a boolean: torch may run a text as a program."""
    value = call.values[number]
    return isinstance(value, Scalar) and value.type in _PLAIN


# -- shown -------------------------------------------------------------------------------------------------------------


def shown(snapshot: Snapshot) -> str:
    """Return a text on what a replay runs: code, modules, callables by name, settings."""
    call = snapshot.call
    lines: list[str] = []
    for name, origin in call.sources.items():
        text = snapshot.texts[name]
        wanted = _wanted_lines(call, name, text)
        lines.append(f"# {snapshot.folder / name} (was {origin})")
        previous = 0
        # Python's own rule for lines: str.splitlines also splits at form feeds.
        for number, line in enumerate(text.split("\n"), 1):
            if number in wanted:
                if previous and number != previous + 1:
                    lines.append("       ...")
                lines.append(f"{number:5}  {line}")
                previous = number
        lines.append("")
    named = sorted(set(_named(call)))
    lines += [
        f"Imports: {', '.join(sorted({module for module, _ in named} - {'builtins'})) or 'nothing'}",
        f"Callables by name: {', '.join(_full(*each) for each in named if each[1]) or 'none'}",
        *(f"Code of an installed package: {_full(*each)}" for each in sorted(set(_installed(call)))),
        f"Backend: {_text(call, call.conditions.compiled_by)}",
        *(f"Setting: {key} = {_text(call, number)}" for key, number in _settings(call)),
        *(f"Refused without --allow: {name}" for name in unusual(call)),
        f"Content: {snapshot.digest}",
    ]
    return "\n".join(map(visible, lines))


def _text(call: SavedCall, number: int, depth: int = 4) -> str:
    value = call.values[number]
    match value:
        case Scalar():
            return value.text
        case Named():
            return _full(value.module, value.name)
        case Function() | Class():
            return value.qualified_name
        case Items() if depth:
            return f"{value.type}({', '.join(_text(call, each, depth - 1) for each in value.items)})"
        case Pairs() if depth:
            pairs = (f"{_text(call, key, depth - 1)}: {_text(call, each, depth - 1)}" for key, each in value.pairs)
            return f"{value.type}({', '.join(pairs)})"
    return f"<{type(value).__name__}>"


def _wanted_lines(call: SavedCall, source: str, text: str) -> set[int]:
    """Return the lines of the call's functions and classes in a source file."""
    wanted: set[int] = set()
    for value in call.values:
        if isinstance(value, Function | Class) and value.source == source:
            for first, node in nodes_of(text, value):
                wanted |= set(range(first, (getattr(node, "end_lineno", None) or first) + 1))
    return wanted


# -- agreed ------------------------------------------------------------------------------------------------------------


def is_agreed(snapshot: Snapshot) -> bool:
    """Return whether the user has agreed to run this content, and to each of its names outside the allow list."""
    return has_agreed(snapshot.digest, unusual(snapshot.call))


def agree(snapshot: Snapshot) -> None:
    """Remember that the user agrees to the content and its names outside the allow list."""
    agree_to(snapshot.digest, os.path.realpath(snapshot.folder), unusual(snapshot.call))
