"""No module of the debuggee runs the program's code to learn the type of an object.

A metaclass may define ``==`` without a hash, and ``__class__`` may be a property. ``bytecode.exact_types`` uses
neither. ``tests/end_to_end/test_hostile_objects.py`` tries such objects.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.structure.sources import ADAPTER, adapter_modules

_OURS = {
    # These are structures of the record, Dynamo's trackers, torch's settings, and numbers.
    "debuggee/recording/answers.py": 2,
    "debuggee/history/snapshots.py": 1,
    "debuggee/numerics/faults/stored_state.py": 1,
    "debuggee/torch_api/torch_settings.py": 1,
}
"""The number of such questions in each module about objects that are not the program's."""
_COMPARING = (ast.In, ast.NotIn, ast.Eq, ast.NotEq)


def _is_type(node: ast.expr) -> bool:
    if not (isinstance(node, ast.Call) and getattr(node.func, "id", None) == "type" and len(node.args) == 1):
        return False
    return not isinstance(node.args[0], ast.Constant)  # type(None)


def _questions(tree: ast.Module) -> Iterator[int]:
    """Yield the lines that compare or hash ``type(value)``, or read ``value.__class__``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            asks = any(isinstance(one, _COMPARING) for one in node.ops) and any(
                map(_is_type, (node.left, *node.comparators))
            )
        elif isinstance(node, ast.Subscript):
            asks = _is_type(node.slice)
        elif isinstance(node, ast.Call):
            is_lookup = isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "setdefault", "pop", "add")
            asks = is_lookup and any(map(_is_type, node.args[:1]))
        elif isinstance(node, ast.Dict):
            asks = any(each is not None and _is_type(each) for each in node.keys)
        elif isinstance(node, ast.Set):
            asks = any(map(_is_type, node.elts))
        else:
            asks = isinstance(node, ast.Attribute) and node.attr == "__class__"
        if asks:
            yield getattr(node, "lineno", 0)


def test_types_are_compared_by_identity() -> None:
    found = {
        str(module.path.relative_to(ADAPTER / "dynamo_dap")): lines
        for module in adapter_modules()
        if "debuggee" in module.path.parts and (lines := list(_questions(module.tree)))
    }
    assert {path: lines for path, lines in found.items() if len(lines) != _OURS.get(path, 0)} == {}


ASKED = "type(a) in b; c == type(d); e[type(f)]; g.get(type(h)); {type(i): 1}; {type(i)}; j.__class__; k.add(type(f))"
NOT_ASKED = "type(a) is b; type(a); c is not type(d); e[f]; g.get(h); {i: 1}; {i}; j.cls; isinstance(k, a); type(l)"


def test_each_question_is_found() -> None:
    assert list(_questions(ast.parse(f"{ASKED}\n{NOT_ASKED}"))) == [1] * len(ASKED.split(";"))
