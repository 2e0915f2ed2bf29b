"""Finds edits of the program's files that may let compiles hit torch's caches.

The cause of a miss is torch's reason, or the part of the cache key that differs. The place comes from the syntax trees
of the user's files. An edit must keep the key safe: a hash of the file replaces a part that varies from run to run. The
program's files are only read; edits are written to copies.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from dynamo_dap.commands.fix import diff_of
from dynamo_dap.diff.cache_trials import MOST, CacheTrial
from dynamo_dap.diff.caches import NUMBER, is_of_pass
from dynamo_dap.diff.model import JsonCaches, NotCached
from dynamo_dap.diff.sides import Run
from dynamo_dap.fixes.document import Document, real_path
from dynamo_dap.fixes.edits import (
    Edit,
    Fix,
    edited,
    insert_lines,
    is_in_library,
    knows_torch,
    still_parses,
)
from dynamo_dap.fixes.source_files import encoded_source, read_source_file

_FILES = 200
"""The most files of a program to read."""
_HASH = "get_hash_for_files((__file__,))"
_IMPORT = "from torch._inductor.custom_graph_pass import {}"
_FUNCTION = re.compile(r"Function module: (?P<module>[\w.]+),\s*Function name: (?P<name>\w+)")
_GRAPH_PASSES = re.compile(r"(?:post_grad_custom|joint_custom)_(?:pre|post)_pass")
"""Settings whose pass gets one argument, the graph."""
_WRAPPER = (
    _IMPORT.format("CustomGraphPass, get_hash_for_files"),
    "",
    "",
    "class PassWithUuid(CustomGraphPass):",
    "    def __init__(self, function):",
    "        self.function = function",
    "",
    "    def __call__(self, graph):",
    "        self.function(graph)",
    "",
    "    def uuid(self):",
    f"        return {_HASH}",
    "",
    "",
)


def files_of(run: Run) -> list[Document]:
    """Return a program's files: the script, the files with compiled functions, and the files that they import."""
    roots = []
    for record in run.records:
        started = record.started
        roots += [Path(started.cwd, started.program[0])] if started is not None and started.program else []
        roots += [Path(path) for path in record.sources if path not in record.libraries]
    folders = list(dict.fromkeys(path.parent for path in roots))
    found: dict[str, Document] = {}
    left = [str(path) for path in roots]
    while left and len(found) < _FILES:
        path = real_path(left.pop())
        if path in found or is_in_library(path):
            continue
        document = _document(path)
        if document is not None:
            found[path] = document
            left += [str(file) for file in _imported(document, folders)]
    return list(found.values())


def _document(path: str) -> Document | None:
    try:
        return Document(path, Path(path).as_uri(), read_source_file(path).lines, ())
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None


def _imported(document: Document, folders: Sequence[Path]) -> Iterator[Path]:
    names: set[str] = set()
    for node in ast.walk(document.tree) if document.tree else ():
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [node.module] if node.module else []
            names.update(base, (".".join([*base, alias.name]) for alias in node.names))
    for name in sorted(names):
        for folder in dict.fromkeys([Path(document.path).parent, *folders]):
            path = folder.joinpath(*name.split("."))
            yield from (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file())


def edits_to_try(found: JsonCaches, settings: Sequence[CacheTrial], run: Run, folder: Path) -> list[CacheTrial]:
    """Return a trial for each edit that may help a missed compile which no trial in ``settings`` covers.

    ``run`` is the second run. The edited copies are written to ``folder``.
    """
    is_served = {compiled for trial in settings for compiled in trial.compiles}
    documents = files_of(run)
    trials: dict[str, CacheTrial] = {}
    for missed in found.not_cached:
        fix = None if (missed.function, missed.compile) in is_served else edit_for(missed, documents)
        if fix is None or (fix.title not in trials and len(trials) + len(settings) >= MOST):
            continue
        if fix.title not in trials:
            copies = {}
            for number, document in enumerate({edit.document.path: edit.document for edit in fix.edits}.values()):
                copy = folder / f"edit-{len(trials)}-{number}.py"
                copy.write_bytes(encoded_source(edited(document, fix.edits)))
                copies[document.path] = str(copy)
            trials[fix.title] = CacheTrial(copies=copies, title=fix.title, edit=diff_of(fix), is_of_both=True)
        trials[fix.title].compiles.add((missed.function, missed.compile))
    return list(trials.values())


def edit_for(missed: NotCached, documents: Sequence[Document]) -> Fix | None:
    """Return the edit that may let a compile hit the cache; None if no edit is known for its causes."""
    parts = [part.name for part in missed.parts if is_of_pass(part.name)]
    reasons = "\n".join(missed.reasons)
    fixes: list[Fix] = []
    if "custom pass" in reasons:
        fixes += [fix for document in documents for fix in _with_uuid(document)]
    if parts or "pickle" in reasons:
        classes = {name for document in documents for name in _classes_of_passes(document, parts)}
        fixes += [fix for document in documents for fix in _with_hash(document, classes)]
    fixes += [
        fix
        for match in _FUNCTION.finditer(reasons)
        for document in documents
        for fix in _cacheable(document, match["module"], match["name"])
    ]
    if NUMBER in missed.advice and missed.place is not None:
        here = [document for document in documents if document.path == real_path(missed.place.path)]
        fixes += [fix for document in here for fix in _as_tensor(document, missed.place.line)]
    edits: list[Edit] = []
    for fix in fixes:
        # Two edits of a file may need the same import.
        edits += [edit for edit in fix.edits if edit not in edits]
    whole = Fix("; ".join(dict.fromkeys(fix.title for fix in fixes)), tuple(edits))
    return whole if still_parses(whole) else None


# -- passes ------------------------------------------------------------------------------------------------------------


def _passes(document: Document) -> Iterator[tuple[str, ast.expr]]:
    """Yield a file's settings for passes, with their values: in assignments, keyword arguments and dictionaries."""
    for node in ast.walk(document.tree) if document.tree else ():
        if isinstance(node, ast.Assign):
            found = [(target.attr, node.value) for target in node.targets if isinstance(target, ast.Attribute)]
        elif isinstance(node, ast.Call):
            found = [(keyword.arg or "", keyword.value) for keyword in node.keywords]
        elif isinstance(node, ast.Dict):
            keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
            found = [(str(key), value) for key, value in zip(keys, node.values, strict=True)]
        else:
            found = []
        yield from ((name, value) for name, value in found if is_of_pass(name))


def _with_uuid(document: Document) -> Iterator[Fix]:
    """Wrap each pass that is a function of this file in a class with a ``uuid``, so that torch can cache its graphs."""
    own = {function.name for function in document.functions}
    for name, value in _passes(document):
        is_own = isinstance(value, ast.Lambda) or (isinstance(value, ast.Name) and value.id in own)
        if is_own and _GRAPH_PASSES.fullmatch(name):
            title = f"Give the pass {name} a uuid: the hash of its file"
            wrapped = _replaced(document, value, f"PassWithUuid({document.source(value)})")
            yield Fix(title, (insert_lines(document, _below_imports(document), *_WRAPPER), wrapped))


def _classes_of_passes(document: Document, parts: Sequence[str]) -> Iterator[str]:
    """Yield the classes of the passes that ``parts`` of a key name; of all passes if there are no parts."""
    wanted = {part.partition("[")[2].removesuffix("]") or part for part in parts}
    for name, value in _passes(document):
        made = _class_of(value, document)
        if made is not None and (name in wanted or not wanted):
            yield made


def _with_hash(document: Document, names: Collection[str]) -> Iterator[Fix]:
    """Make ``uuid()`` of the named classes return the hash of their file.

    Skip a class with ``__init__``: its arguments may change what it does, and the hash does not cover them.
    """
    classes = [node for node in ast.walk(document.tree) if isinstance(node, ast.ClassDef)] if document.tree else []
    for each in classes:
        methods = {method.name: method for method in each.body if isinstance(method, ast.FunctionDef)}
        method = methods.get("uuid")
        if each.name not in names or method is None or "__init__" in methods or _HASH in document.source(method):
            continue
        first, last = method.body[0], method.body[-1]
        edit = Edit(
            document,
            first.lineno,
            document.column(first.lineno, first.col_offset),
            last.end_lineno or last.lineno,
            document.column(last.end_lineno or last.lineno, last.end_col_offset or 0),
            f"return {_HASH}",
        )
        imported = insert_lines(document, _below_imports(document), _IMPORT.format("get_hash_for_files"))
        yield Fix(f"Return the hash of its file as uuid() of {each.name}", (imported, edit))


def _class_of(value: ast.expr, document: Document) -> str | None:
    """Return the name of the class that a value instantiates without arguments; None for other values."""
    if isinstance(value, ast.Name) and document.tree is not None:
        assigned = (node for node in document.tree.body if isinstance(node, ast.Assign))
        made = (node.value for node in assigned if any(ast.unparse(each) == value.id for each in node.targets))
        value = next(made, value)
    if not isinstance(value, ast.Call) or value.args or value.keywords:
        return None
    return ast.unparse(value.func).rpartition(".")[2]


# -- functions and numbers of a graph ----------------------------------------------------------------------------------


def _cacheable(document: Document, module: str, name: str) -> Iterator[Fix]:
    """Mark a function of the file as cacheable while the file is unchanged."""
    is_here = module == "__main__" or module.rpartition(".")[2] == Path(document.path).stem
    if is_here and document.tree and any(getattr(node, "name", None) == name for node in document.tree.body):
        lines = (
            "import torch._inductor.config",
            _IMPORT.format("get_hash_for_files"),
            f'torch._inductor.config.unsafe_marked_cacheable_functions |= {{"{module}.{name}": {_HASH}.hex()}}',
        )
        title = f"Mark {name} as cacheable while its file is unchanged"
        yield Fix(title, (insert_lines(document, _below_imports(document), *lines),))


def _as_tensor(document: Document, line: int) -> Iterator[Fix]:
    """Turn a global number into a tensor, if a call computes the number and the line calculates with it."""
    statement, function = document.statement_at(line), document.function_around(line)
    local = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)} if function is not None else set()
    local |= _assigned(function) if function is not None else set()
    used = {
        name.id
        for node in (ast.walk(statement) if statement is not None else ())
        if isinstance(node, ast.BinOp)
        for name in (node.left, node.right)
        if isinstance(name, ast.Name)
    }
    for node in document.tree.body if document.tree else ():
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1:
            name = ast.unparse(node.targets[0])
            if name in used - local and knows_torch(document, node.lineno):
                yield Fix(
                    f"Make {name} a tensor",
                    (_replaced(document, node.value, f"torch.tensor({document.source(node.value)})"),),
                )


def _assigned(function: ast.AST) -> set[str]:
    names = (node for node in ast.walk(function) if isinstance(node, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def _replaced(document: Document, node: ast.expr, text: str) -> Edit:
    last = node.end_lineno or node.lineno
    start, end = document.column(node.lineno, node.col_offset), document.column(last, node.end_col_offset or 0)
    return Edit(document, node.lineno, start, last, end, text)


def _below_imports(document: Document) -> int:
    """Return the line below the last of the imports at the file's beginning."""
    line = 1
    for number, node in enumerate(document.tree.body if document.tree else ()):
        is_docstring = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not isinstance(node, ast.Import | ast.ImportFrom):
            break
        line = (node.end_lineno or node.lineno) + 1
    return line
