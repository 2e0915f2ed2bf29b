"""Names of files and of variables as a person reads them: the same from the debugged program as from commands. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath


def short_paths(paths: Iterable[str]) -> dict[str, str]:
    """Return for each path its name, with as many of its folders as tell it from the others: ``a/model.py``."""
    parts = {path: PurePath(path).parts for path in paths}
    return {path: _shortest(path, parts) for path in parts}


def _shortest(path: str, parts: dict[str, tuple[str, ...]]) -> str:
    own = parts[path]
    others = [other for key, other in parts.items() if key != path]
    for length in range(1, len(own) + 1):
        tail = own[-length:]
        if all(other[-length:] != tail for other in others):
            return "/".join(tail)
    return path


def roots_of(names: Iterable[str]) -> list[str]:
    """Return the variables that some expressions begin with, each once: ``self`` for ``self.fc.weight``."""
    return list(dict.fromkeys(_ROOT.sub("", name) for name in names))


_ROOT = re.compile(r"\W.*", re.DOTALL)


_LONGEST = 2000


def shortened(text: str) -> str:
    """Return ``text``, its middle left out if it is longer than a person reads."""
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} ... {text[-half:]}"
