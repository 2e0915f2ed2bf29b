"""Which of torch's private names a version has, found from its files alone: nothing of torch is imported or built.

``python -m tests.matrix.probe_sources PATH``, where ``PATH`` is a wheel (last night's, for instance), a folder with an
installed torch in it, or a checkout of its repository. Prints a sentence for each name that is missing and the feature
that is therefore off, and names those of compiled modules that no stub or source shows. Exits with 1 when
something is missing.

A name is looked for where Python would find it: through imports, in classes, their bases and what their methods set,
in what an instance has that a module makes.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import pkgutil
import re
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from dynamo_dap import debuggee
from dynamo_dap.debuggee.torch_api import features, objects

_COMPILED = "torch._C"
_NATIVE_SOURCES = "torch/csrc"
_OF_EARLIER_VERSIONS = {"torch._dynamo.guards:CLOSURE_VARS"}
"""Names that are read with ``getattr`` only if their successors are missing."""
_LIBRARY = re.compile(r"torch/(_C\.|lib/libtorch_python\.)")


class Answer(Enum):
    """What the files say of a name."""

    FOUND = "found"
    MISSING = "missing"
    UNKNOWN = "unknown"


class Sources:
    """The files of one torch, read once each."""

    def __init__(self, path: Path, replaced: dict[str, str] | None = None) -> None:
        """``path`` is a wheel or a folder that has ``torch/`` in it; ``replaced`` are other texts of some files.

        Raises:
            ValueError: there is no torch at ``path``.
        """
        self._archive = zipfile.ZipFile(path) if path.is_file() and zipfile.is_zipfile(path) else None
        self._folder = path
        self._replaced = replaced or {}
        self._trees: dict[str, ast.Module | None] = {}
        self._native: str | None = None
        if self.text("torch/__init__.py") is None:
            raise ValueError(f"{path} is neither a wheel of torch nor a folder with torch/ in it")

    def text(self, file: str) -> str | None:
        """The text of ``torch/...``; None when there is no such file."""
        if file in self._replaced:
            return self._replaced[file]
        try:
            content = self._archive.read(file) if self._archive else (self._folder / file).read_bytes()
        except (OSError, KeyError):
            return None
        return content.decode(errors="replace")

    def module(self, name: str) -> ast.Module | None:
        """The tree of a module, or of its stub; None when there is neither."""
        if name not in self._trees:
            stem = name.replace(".", "/")
            files = [f"{stem}{end}" for end in (".py", "/__init__.py", ".pyi", "/__init__.pyi", ".pyi.in")]
            text = next((text for file in files if (text := self.text(file)) is not None), None)
            try:
                self._trees[name] = None if text is None else ast.parse(text)
            except SyntaxError:
                self._trees[name] = None  # a template of a stub
        return self._trees[name]

    def is_package(self, name: str) -> bool:
        """Whether relative imports in the module begin at itself."""
        stem = name.replace(".", "/")
        return any(self.text(f"{stem}/__init__.{end}") is not None for end in ("py", "pyi"))

    def native_names(self) -> str:
        """Text in which the names of compiled modules stand in quotes: C++, or the strings of the libraries."""
        if self._native is None:
            self._native = "".join(self._native_texts())
        return self._native

    def _native_texts(self) -> Iterator[str]:
        if self._archive is not None:
            for name in self._archive.namelist():
                if _LIBRARY.match(name):
                    yield _quoted_strings(self._archive.read(name))
            return
        for path in (self._folder / _NATIVE_SOURCES).rglob("*.cpp"):
            yield path.read_text(errors="replace")
        for path in (self._folder / "torch").glob("**/*.so"):
            if _LIBRARY.match(path.relative_to(self._folder).as_posix()):
                yield _quoted_strings(path.read_bytes())


def _quoted_strings(library: bytes) -> str:
    return "".join(f'"{text.decode()}"\n' for text in re.findall(rb"[A-Za-z_][A-Za-z0-9_]{3,}(?=\0)", library))


@dataclass(frozen=True)
class _Class:
    """A class, and the module that it is in."""

    module: str
    node: ast.ClassDef


@dataclass(frozen=True)
class _Module:
    name: str


@dataclass(frozen=True)
class _Function:
    node: ast.FunctionDef | ast.AsyncFunctionDef


_Value = _Class | _Module | _Function | Answer
"""What a name stands for: an ``Answer`` when no more is known than that it is there, or that it is not."""


class Lookup:
    """Finds names in the files of one torch."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._busy: set[tuple[str, str]] = set()
        """Names that are being looked up: modules import one another in circles."""

    def find(self, need: str) -> Answer:
        """Look up ``module:attribute.path``."""
        value = self._find(need)
        return value if isinstance(value, Answer) else Answer.FOUND

    def parameters(self, need: str) -> tuple[str, ...] | None:
        """The names of the parameters that a function takes by position; None when no source shows it."""
        value = self._find(need)
        if not isinstance(value, _Function):
            return None
        given = value.node.args
        return tuple(one.arg for one in (*given.posonlyargs, *given.args))

    def _find(self, need: str) -> _Value:
        module, _, path = need.partition(":")
        value: _Value = _Module(module)
        if self._sources.module(module) is None:
            value = self._find_native(module.rpartition(".")[2]) if module.startswith(_COMPILED) else Answer.MISSING
        for part in filter(None, path.split(".")):
            if isinstance(value, _Module):
                value = self._in_module(value.name, part)
            elif isinstance(value, _Class):
                value = self._in_class(value, part)
            elif value is Answer.FOUND or isinstance(value, _Function):
                value = self._find_native(part) if module.startswith(_COMPILED) else Answer.UNKNOWN
        return value

    def _find_native(self, name: str) -> Answer:
        return Answer.FOUND if f'"{name}"' in self._sources.native_names() else Answer.UNKNOWN

    def _in_module(self, module: str, name: str) -> _Value:
        key = module, name
        if key in self._busy:
            return Answer.MISSING
        self._busy.add(key)
        try:
            return self._look(module, name)
        finally:
            self._busy.discard(key)

    def _look(self, module: str, name: str) -> _Value:
        tree = self._sources.module(module)
        if tree is None:
            return Answer.UNKNOWN
        found: _Value = Answer.MISSING
        for statement in _statements(tree.body):
            bound = self._bound_by(statement, module, name)
            if bound is not Answer.MISSING:
                found = bound
        if found is Answer.MISSING and self._sources.module(f"{module}.{name}") is not None:
            return _Module(f"{module}.{name}")
        if found is Answer.MISSING and (module.startswith(_COMPILED) or _fills_itself(tree)):
            return self._find_native(name)
        return found

    def _bound_by(self, statement: ast.stmt, module: str, name: str) -> _Value:
        """What ``statement`` of ``module`` binds ``name`` to; ``MISSING`` when it does not."""
        match statement:
            case ast.ClassDef(name=bound) if bound == name:
                return _Class(module, statement)
            case ast.FunctionDef(name=bound) | ast.AsyncFunctionDef(name=bound) if bound == name:
                return _Function(statement)
            case ast.ImportFrom():
                return self._imported(statement, module, name)
            case ast.Import(names=names):
                if any((one.asname or one.name.partition(".")[0]) == name for one in names):
                    return next((_Module(one.name) for one in names if one.asname == name), Answer.FOUND)
            case ast.Assign() | ast.AnnAssign() if name in _targets(statement):
                return self._assigned(statement.value, module)
        return Answer.MISSING

    def _assigned(self, value: ast.expr | None, module: str) -> _Value:
        """The class of an object that is made here, or what another name stands for."""
        made = value.func if isinstance(value, ast.Call) else value
        if isinstance(made, ast.Name):
            known = self._in_module(module, made.id)
            if isinstance(known, _Class | _Module):
                return known
        return Answer.FOUND

    def _imported(self, statement: ast.ImportFrom, module: str, name: str) -> _Value:
        source = statement.module or ""
        if statement.level:
            parts = module.split(".")
            keep = len(parts) - statement.level + self._sources.is_package(module)
            source = ".".join([*parts[:keep], *filter(None, [source])])
        for one in statement.names:
            if one.name == "*" and source.partition(".")[0] == "torch":
                known = self._in_module(source, name)
                if known not in (Answer.MISSING, Answer.UNKNOWN):
                    return known
            elif (one.asname or one.name) == name:
                if source.partition(".")[0] != "torch":
                    return Answer.FOUND
                known = self._in_module(source, one.name)
                return Answer.FOUND if known is Answer.UNKNOWN else known
        return Answer.MISSING

    def _in_class(self, owner: _Class, name: str) -> _Value:
        for statement in _statements(owner.node.body):
            bound = self._bound_by(statement, owner.module, name)
            if bound is not Answer.MISSING:
                return bound
        if name in _set_in_methods(owner.node) or self._is_set_from_outside(owner, name):
            return Answer.FOUND
        answers = [
            self._in_base(owner, base, name)
            for base in (*owner.node.bases, *(one.value for one in owner.node.keywords))
        ]
        found = next((one for one in answers if one not in (Answer.MISSING, Answer.UNKNOWN)), None)
        return found or (Answer.UNKNOWN if Answer.UNKNOWN in answers else Answer.MISSING)

    def _in_base(self, owner: _Class, base: ast.expr, name: str) -> _Value:
        base = base.value if isinstance(base, ast.Subscript) else base
        known: _Value = Answer.UNKNOWN
        if isinstance(base, ast.Name):
            known = self._in_module(owner.module, base.id)
        elif isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name):
            inside = self._in_module(owner.module, base.value.id)
            known = self._in_module(inside.name, base.attr) if isinstance(inside, _Module) else Answer.UNKNOWN
        # Classes of other libraries, of which torch's files tell nothing, have none of torch's names.
        return self._in_class(known, name) if isinstance(known, _Class) else Answer.MISSING

    def _is_set_from_outside(self, owner: _Class, name: str) -> bool:
        tree = self._sources.module(owner.module)
        return tree is not None and f"{owner.node.name}.{name}" in {
            target for statement in _statements(tree.body) for target in _targets(statement)
        }


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a block and of the blocks in it, without those of functions and classes."""
    for statement in body:
        yield statement
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for _, field in ast.iter_fields(statement):
                if isinstance(field, list):
                    blocks = [one for one in field if isinstance(one, ast.stmt)]
                    handlers = [inner for one in field if isinstance(one, ast.ExceptHandler) for inner in one.body]
                    yield from _statements([*blocks, *handlers])


def _targets(statement: ast.stmt) -> set[str]:
    """Names, also with dots, that a statement assigns."""
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        for one in statement.targets:
            targets += one.elts if isinstance(one, ast.Tuple | ast.List) else [one]
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
        targets = [statement.target]
    return {ast.unparse(one) for one in targets}


def _set_in_methods(node: ast.ClassDef) -> set[str]:
    """Attributes that methods set on ``self`` or ``cls``."""
    assigned = {target for one in ast.walk(node) if isinstance(one, ast.stmt) for target in _targets(one)}
    return {name.partition(".")[2] for name in assigned if name.startswith(("self.", "cls."))}


def _fills_itself(tree: ast.Module) -> bool:
    """Whether a module puts names into itself, while it is imported, that its text does not have."""
    for statement in _statements(tree.body):
        if isinstance(statement, ast.FunctionDef) and statement.name == "__getattr__":
            return True
        if not isinstance(statement, ast.Assign):
            continue
        for target in statement.targets:
            if isinstance(target, ast.Subscript) and ast.unparse(target.value) == "globals()":
                return True
    return False


def needs() -> dict[str, list[str]]:
    """What is needed of torch, as ``module:attribute.path``, and the features that need it."""
    for module in pkgutil.walk_packages(debuggee.__path__, f"{debuggee.__name__}."):
        importlib.import_module(module.name)
    return features.needs()


def differing_signatures(lookup: Lookup) -> dict[str, tuple[str, ...]]:
    """The functions whose first parameters are not those that hooks rely on, with the parameters that they have."""
    wanted = {need: names for need, names in features.signatures().items() if need in needs()}
    found = {need: lookup.parameters(need) for need in wanted}
    return {need: own for need, own in found.items() if own is not None and own[: len(wanted[need])] != wanted[need]}


def attributes() -> dict[str, list[str]]:
    """The attributes of torch's objects that are read, by the classes in ``objects``."""
    found: dict[str, list[str]] = {}
    for described, name in objects.CLASSES.items():
        own = {*inspect.get_annotations(described), *(one for one in vars(described) if one[0] != "_")}
        found |= {f"{name}.{one}": [f"reading a {described.__name__}"] for one in sorted(own)}
    return found


def lookups() -> dict[str, list[str]]:
    """What is looked up in imported modules without a feature: ``sys.modules["torch.x"].name``."""
    found: dict[str, list[str]] = {}
    for path in sorted(Path(debuggee.__path__[0]).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants: dict[str, object] = {
            name: one.value.value
            for one in tree.body
            if isinstance(one, ast.Assign) and isinstance(one.value, ast.Constant)
            for name in _targets(one)
        }
        for scope in (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)):
            for need in set(_names_read(scope, constants)) - _OF_EARLIER_VERSIONS:
                users = found.setdefault(need, [])
                if path.stem not in users:
                    users.append(path.stem)
    return found


def _names_read(scope: ast.FunctionDef, constants: dict[str, object]) -> Iterator[str]:
    modules = {
        name: module
        for one in ast.walk(scope)
        if isinstance(one, ast.Assign | ast.AnnAssign) and (module := _module_of(one.value, constants)) is not None
        for name in _targets(one)
    }
    for one in ast.walk(scope):
        if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load) and not one.attr.startswith("__"):
            known = modules.get(one.value.id) if isinstance(one.value, ast.Name) else None
            module = known or _module_of(one.value, constants)
            if module is not None:
                yield f"{module}:{one.attr}"
        match one:
            case ast.Call(func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(name)), *_]):
                known = modules.get(owner.id) if isinstance(owner, ast.Name) else None
                module = known or _module_of(owner, constants)
                if module is not None:
                    yield f"{module}:{name}"


def _module_of(value: ast.expr | None, constants: dict[str, object]) -> str | None:
    """The private module of torch that an expression takes from ``sys.modules``."""
    match value:
        case ast.Subscript(value=table, slice=key) if ast.unparse(table) == "sys.modules":
            pass
        case ast.Call(func=function, args=[key, *_]) if ast.unparse(function) == "sys.modules.get":
            pass
        case _:
            return None
    name = key.value if isinstance(key, ast.Constant) else constants.get(ast.unparse(key))
    return name if isinstance(name, str) and name.startswith("torch.") else None


def main() -> int:
    """Print what is missing; see the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="a wheel, a folder with an installed torch, or a checkout")
    try:
        lookup = Lookup(Sources(parser.parse_args().path))
    except ValueError as problem:
        parser.error(str(problem))
    wanted = {**attributes(), **lookups(), **needs()}
    answers = {need: lookup.find(need) for need in wanted}
    features_off = needs()
    for need, names in wanted.items():
        if answers[need] is Answer.MISSING:
            end = " is off" if need in features_off else " fails"
            print(f"no {need.replace(':', '.')}: {', '.join(names)}{end}")
        elif answers[need] is Answer.UNKNOWN:
            print(f"these files do not tell whether there is {need.replace(':', '.')} ({', '.join(names)})")
    changed = differing_signatures(lookup)
    for need, taken in changed.items():
        print(f"{need.replace(':', '.')} takes {', '.join(taken)}: {', '.join(features_off[need])} is off")
    missing = len(changed) + sum(answer is Answer.MISSING for answer in answers.values())
    print(f"{len(answers)} names looked up, {missing} missing")
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main())
