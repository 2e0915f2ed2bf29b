"""Names the module whose forward made an operation, as the user writes it. Runs on any thread, without state."""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Mapping

from dynamo_dap.debuggee.torch_api.objects import Node

_ROOT = re.compile(r"[LG]\['([^']*)'\]")
_ITEM = re.compile(r"\._modules\['([^']*)'\]|\['([^']*)'\]")


def module_path(node: Node) -> str | None:
    """Return the innermost module whose forward made the node, as the user writes it: ``self.layers.1``."""
    modules = list((node.meta.get("nn_module_stack") or {}).values())
    if not modules:
        return None
    path = _ROOT.sub(r"\1", str(modules[-1][0]), count=1)
    return _ITEM.sub(lambda match: f".{match[1] or match[2]}", path)


def with_other_paths(path: str, variables: Mapping[str, object]) -> str:
    """Return a module's path with the other paths of the same module: ``self.first (also self.last)``.

    ``variables`` are those of the traced function; the path begins with one of them.
    """
    name, *names = path.split(".")
    root = found = variables.get(name)
    for each in names:
        found = _submodules(found).get(each)
    others: list[str] = []
    left, seen = deque([(name, root)]), 0
    while found is not None and names and left:
        begin, module = left.popleft()
        seen += 1
        if seen > _MOST_MODULES:
            return path
        for each, below in _submodules(module).items():
            if below is found and f"{begin}.{each}" != path:
                others.append(f"{begin}.{each}")
            elif below is not found:
                left.append((f"{begin}.{each}", below))
    more = [f"{len(others) - _SHOWN_PATHS} more"] if len(others) > _SHOWN_PATHS else []
    return f"{path} (also {', '.join([*others[:_SHOWN_PATHS], *more])})" if others else path


_MOST_MODULES = 20_000
"""Other paths are not looked for in a model with more modules, or with a module that contains itself."""
_SHOWN_PATHS = 3


def _submodules(module: object) -> Mapping[str, object]:
    """Return the modules that a module contains, by name; none for another object."""
    if not issubclass(type(module), sys.modules["torch"].nn.Module):
        return {}
    known: object = object.__getattribute__(module, "__dict__").get("_modules")  # runs no code of the program
    return known if type(known) is dict else {}
