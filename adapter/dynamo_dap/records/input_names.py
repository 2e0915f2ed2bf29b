"""Reads the user's names from torch's names of graph inputs. It has no side effects."""

from __future__ import annotations

import re

_OF_MODULE = re.compile(r"[lL]_self_(?:modules_|_modules_)(?P<path>\w+?)_(?:parameters|buffers)_(?P<name>\w+?)_$")
_LOCAL = re.compile(r"[lL]_(?P<name>[a-z]\w*?)_$")


def user_name(name: str) -> str | None:
    """Return an input as the user wrote it, if torch's name is unambiguous: ``self.fc.weight``."""
    parameter = _OF_MODULE.match(name)
    if parameter is not None:
        path = parameter["path"].replace("_modules_", ".")
        return f"self.{path}.{parameter['name']}"
    local = _LOCAL.match(name)
    return local["name"] if local is not None and "self" not in name else None
