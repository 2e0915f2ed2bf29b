"""The variable of a data breakpoint, as DAP's ``dataId``, which is valid in the next run of the program as well."""

from __future__ import annotations

import types
from dataclasses import dataclass

import msgspec

from dynamo_dap.debuggee.code_analysis.qualified_names import qualified_name

GUARDED = "read"
"""DAP's access type for "when a guard on it is asked for"."""
CHANGED = "write"
"""DAP's access type for "when it is rebound or mutated"."""
ANY_ACCESS = "readWrite"


@dataclass(frozen=True, slots=True)
class WatchedVariable:
    """A local variable of a function."""

    name: str
    function: str
    path: str
    line: int
    """Where the function begins, 1-based."""

    @classmethod
    def of(cls, name: str, code: types.CodeType) -> WatchedVariable:
        """Return the variable ``name`` of the function with ``code``."""
        return cls(name, qualified_name(code), code.co_filename, code.co_firstlineno)

    @classmethod
    def parse(cls, data_id: str) -> WatchedVariable | None:
        """Return what a ``dataId`` stands for; None for one that is not ours."""
        try:
            name, function, path, line = msgspec.json.decode(data_id, type=tuple[str, str, str, int])
        except msgspec.DecodeError:
            return None
        return cls(name, function, path, line)

    @property
    def data_id(self) -> str:
        """DAP's ``dataId``."""
        return msgspec.json.encode((self.name, self.function, self.path, self.line)).decode()

    def belongs_to(self, code: types.CodeType) -> bool:
        """Whether ``code`` is that of the variable's function."""
        return code.co_firstlineno == self.line and code.co_filename == self.path

    def is_source(self, source: str) -> bool:
        """Whether a guard on ``source``, as the user wrote it, is one on the variable."""
        return source == self.name or source.startswith((f"{self.name}.", f"{self.name}[", f"len({self.name})"))
