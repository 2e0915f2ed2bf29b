"""The environment of the debugged program: ``envFile``, ``env``, and what is needed to capture its output.

Pure functions. An environment *change* maps a name to its new value, or to None when the variable is to be removed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from dynamo_dap.protocol.contract import ErrorId
from dynamo_dap.server.errors import StartRefused

Changes = dict[str, "str | None"]

_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(.*?)\s*$")
_QUOTED = re.compile(r"""(?:'([^']*)'|"((?:[^"\\]|\\.)*)")\s*(?:#.*)?$""")
_COMMENT = re.compile(r"(?:^|\s+)#.*$")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def changes(env: Mapping[str, str | None], env_file: str | None, cwd: Path) -> Changes:
    """Return the changes that the user asked for; ``env`` wins over the file.

    Raises:
        StartRefused: the file cannot be read, or a name is not possible.
    """
    merged: Changes = {}
    if env_file:
        merged.update(_read_env_file(cwd / env_file))
    merged.update(env)
    for name, value in merged.items():
        if not name or "=" in name or "\0" in name or (value is not None and "\0" in value):
            raise StartRefused(ErrorId.INVALID_OPTION, f'"env": {name!r} cannot be an environment variable')
    return merged


def apply(base: Mapping[str, str], changed: Mapping[str, str | None]) -> dict[str, str]:
    """Return ``base`` with the changes made."""
    result = {name: value for name, value in base.items() if name not in changed}
    result.update({name: value for name, value in changed.items() if value is not None})
    return result


def _read_env_file(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise StartRefused(ErrorId.INVALID_OPTION, f'"envFile": cannot read {path}: {reason}') from None
    assignments = (_ASSIGNMENT.match(line) for line in lines if not line.lstrip().startswith("#"))
    return {found[1]: _value(found[2]) for found in assignments if found is not None}


def _value(written: str) -> str:
    quoted = _QUOTED.match(written)
    if quoted is None:
        return _COMMENT.sub("", written)
    if quoted[1] is not None:
        return quoted[1]
    return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), quoted[2])
