"""Finds the lines that change a guarded value: assignments to the attribute, key or global variable.

It reads syntax only, so a line may change another object's attribute of the same name. Files that have changed since
the recording are left out. Runs on any thread.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from dynamo_dap.protocol.texts import NOT_PYTHON
from dynamo_dap.records.model import Place
from dynamo_dap.records.texts import digest_of_line, source_lines

_ATTRIBUTE = re.compile(r"\.(?P<name>\w+)$")
_KEY = re.compile(r"\[(?P<quote>['\"])(?P<key>[^'\"]+)(?P=quote)\]$")
_ITEM = re.compile(r"\[-?\d+\]$")
_GLOBAL = re.compile(r"G\['(?P<name>\w+)'\]$")
_OF_CONTAINER = re.compile(r"(?:len|keys of|list\(dict\.keys)\s*\(?(?P<name>[^()]+)\)*(?:\[\d+\])?")
_MODULES = re.compile(r"\._modules\['[^']+'\]")
_MUTATORS = frozenset(
    {"append", "extend", "insert", "pop", "popitem", "remove", "clear", "update", "setdefault", "add"}
)
_LIBRARY = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d")
_GRAD_MODES = frozenset({"no_grad", "enable_grad", "set_grad_enabled", "inference_mode"})
_TRAINING = frozenset({"train", "eval"})
_OF_PARAMETER = re.compile(r"(?:dtype|device) of .*\._(?:parameters|buffers)\['[^']+'\]")
_CASTS = frozenset({"to", "type", "double", "float", "half", "bfloat16", "cuda", "cpu", "to_empty"})
_HOOKS = re.compile(r"_hooks\b")
_HOOK_CALLS = re.compile(r"register\w*_hook|remove")

Changes = Callable[[ast.AST], bool]
"""Whether a node of the syntax tree may change the value."""


def lines_that_change(subject: str, sources: Mapping[str, Sequence[str]]) -> list[Place]:
    """Return the lines that may change the value of a failed guard, except those in ``__init__``.

    ``sources`` has the digests of the lines of each recorded file.
    """
    changes = _changes(subject)
    if changes is None:
        return []
    paths = [path for path in sources if not _LIBRARY.search(path)]
    return [Place(path, line) for path in paths for line in _lines_of(path, tuple(sources[path]), changes)]


def _changes(subject: str) -> Changes | None:
    if subject == "grad mode":
        return lambda node: _is_call_of(node, _GRAD_MODES)
    if _HOOKS.search(subject):
        return lambda node: isinstance(node, ast.Call) and bool(_HOOK_CALLS.fullmatch(_called(node)))
    if _OF_PARAMETER.fullmatch(subject):
        # A statement that ignores the result casts a module: a tensor's method would only return a new tensor.
        return lambda node: isinstance(node, ast.Expr) and _is_call_of(node.value, _CASTS)
    of_container = _OF_CONTAINER.fullmatch(subject)
    if of_container is not None:
        return _of_container(of_container["name"])
    if _ITEM.search(subject):
        return _of_container(_ITEM.sub("", subject))
    return _of_part(_MODULES.sub("", subject))


def _of_part(subject: str) -> Changes | None:
    """Return a matcher for assignments to a global variable, to an item with a string key, or to an attribute."""
    if (named := _GLOBAL.search(subject)) is not None:
        return _of_name(named["name"])
    if (key := _KEY.search(subject)) is not None:
        wanted = key["key"]
        return lambda node: _is_store(node) and isinstance(node, ast.Subscript) and _constant(node.slice) == wanted
    if (attribute := _ATTRIBUTE.search(subject)) is None:
        return None
    if attribute["name"] == "training":
        return lambda node: _is_call_of(node, _TRAINING) or _is_attribute(node, "training")
    return functools.partial(_is_attribute, name=attribute["name"])


def _of_container(name: str) -> Changes | None:
    """Return a matcher for lines that rebind a container, store into it, or call a method that changes it."""
    found = _ATTRIBUTE.search(name) or _GLOBAL.search(name)
    if found is None:
        return None
    short = found["name"]

    def changes(node: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            return (
                isinstance(node.func, ast.Attribute) and node.func.attr in _MUTATORS and _ends(node.func.value, short)
            )
        return _is_store(node) and (
            _ends(node, short) or (isinstance(node, ast.Subscript) and _ends(node.value, short))
        )

    return changes


def _of_name(name: str) -> Changes:
    return lambda node: _is_store(node) and isinstance(node, ast.Name) and node.id == name


def _is_attribute(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Call):
        return _called(node) == "setattr" and len(node.args) > 1 and _constant(node.args[1]) == name
    return _is_store(node) and isinstance(node, ast.Attribute) and node.attr == name


def _is_store(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)


def _is_call_of(node: ast.AST, names: frozenset[str]) -> bool:
    return isinstance(node, ast.Call) and _called(node) in names


def _called(node: ast.Call) -> str:
    return _last(node.func)


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _ends(node: ast.AST, name: str) -> bool:
    return _last(node) == name


def _constant(node: ast.AST) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _lines_of(path: str, digests: tuple[str, ...], changes: Changes) -> list[int]:
    tree = _tree_of(path, digests)
    return [] if tree is None else list(dict.fromkeys(_found(tree, changes, is_first=False)))


def _found(node: ast.AST, changes: Changes, *, is_first: bool) -> Iterator[int]:
    """Yield the changing lines below a node; ``is_first`` says whether the node is in ``__init__``."""
    for child in ast.iter_child_nodes(node):
        if not is_first and changes(child):
            yield int(getattr(child, "lineno", 0))
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        inside = child.name == "__init__" if isinstance(child, ast.FunctionDef) else False
        yield from _found(child, changes, is_first=inside if is_function else is_first)


@functools.lru_cache(maxsize=8)
def _tree_of(path: str, digests: tuple[str, ...]) -> ast.Module | None:
    lines = source_lines(path)
    if [digest_of_line(line) for line in lines] != list(digests[: len(lines)]):
        return None
    try:
        return ast.parse("\n".join(lines))
    except NOT_PYTHON:
        return None
