"""Decides which programs an assistant may run: those below the roots that its client named.

Runs on the server's event loop; lives as long as the server.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib.machinery import FrozenImporter, PathFinder
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urlsplit

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import ListRoots, Resolve
from mcp_types import ListRootsResult

_LONGEST = 4096
"""Maximum characters of a path: a longer one would only fill the answer."""


def client_roots(context: Context) -> ListRoots | ListRootsResult:
    """Ask the client for its roots, if it supports them."""
    capabilities = context.client_capabilities
    return ListRootsResult(roots=[]) if capabilities is None or capabilities.roots is None else ListRoots()


Roots = Annotated[ListRootsResult, Resolve(client_roots)]


@dataclass(frozen=True)
class Program:
    """What to run, and where."""

    words: tuple[str, ...]
    """The arguments of our commands: a file, or ``-m`` and a module, then the program's arguments."""
    folder: Path
    file: Path
    module: str | None = None
    arguments: tuple[str, ...] = ()


class Workspace:
    """The folders of one client."""

    def __init__(self, python: str, folder: Path) -> None:
        """Run programs with ``python``; ``folder`` is the root if the client has none."""
        self.python = python
        self._own = folder
        self.roots = [folder]
        """Absolute paths without symbolic links."""

    def take(self, reported: ListRootsResult) -> None:
        """Use the roots that the client sent."""
        uris = [urlsplit(str(root.uri)) for root in reported.roots]
        found = [Path(os.path.realpath(unquote(uri.path))) for uri in uris if uri.scheme == "file"]
        # A root that is not a folder of this machine allows nothing.
        self.roots = found if reported.roots else [self._own]

    def folder(self, given: str | None) -> Path:
        """Return a folder below a root, by default the first root.

        Raises:
            ToolError: the path is outside of the roots, or is not a folder.
        """
        if given is None and self.roots:
            return self.roots[0]
        found = self._inside(given or ".")
        if not found.is_dir():
            raise ToolError(f"{found} is not a folder")
        return found

    def file(self, given: str, folder: Path | None = None) -> Path:
        """Return a file below a root; a relative path starts at ``folder`` or at a root.

        Raises:
            ToolError: the path is outside of the roots, or is not a file.
        """
        for start in [folder] if folder is not None else self.roots:
            if _is_file(start / given):
                return self._inside(str(start / given))
        found = self._inside(given)
        if not _is_file(found):
            raise ToolError(f"{found} is not a file")
        return found

    def existing(self, given: str, folder: Path) -> Path:
        """Return a file or folder below a root; a relative path starts at ``folder``.

        Raises:
            ToolError: the path is outside of the roots, or does not exist.
        """
        found = self._inside(str(folder / given))
        if not found.exists():
            raise ToolError(f"no file or folder has the path {found}")
        return found

    def source(self, given: str) -> Path:
        """Return a file to stop in.

        It may belong to an installed package, since a breakpoint runs and reads nothing.

        Raises:
            ToolError: the file does not exist.
        """
        if Path(given).is_absolute() and _is_file(Path(given)):
            return Path(os.path.realpath(given))
        return self.file(given)

    def program(
        self, program: str | None, module: str | None, arguments: tuple[str, ...], folder: str | None
    ) -> Program:
        """Return the program to run.

        Raises:
            ToolError: the program is not below a root, or not given.
        """
        cwd = self.folder(folder)
        if (program is None) == (module is None):
            raise ToolError("give a program (a Python file) or a module, and only one of them")
        if program is not None:
            file = self.file(program, cwd)
            return Program((str(file), *arguments), cwd, file, arguments=arguments)
        if len(str(module)) > _LONGEST:
            raise ToolError(f"no module has a name of {len(str(module)):,} characters")
        stem = cwd.joinpath(*str(module).split("."))
        found = [path for path in (stem.with_suffix(".py"), stem / "__main__.py") if path.is_file()]
        if not found:
            raise ToolError(f"{cwd} has no module {module}: only programs below the roots are run")
        file = self._inside(str(found[0]))
        _refuse_shadowed(str(module), cwd)
        return Program(("-m", str(module), *arguments), cwd, file, module, arguments)

    def has(self, path: str | Path) -> bool:
        """Return whether a path is below a root."""
        real = Path(os.path.realpath(path))
        return any(real.is_relative_to(root) for root in self.roots)

    def _inside(self, given: str) -> Path:
        start = self.roots[0] if self.roots else self._own
        if len(given) > _LONGEST:
            raise ToolError(f"no path has {len(given):,} characters: {given[:80]}...")
        try:
            found = Path(os.path.realpath(start / Path(given).expanduser()))
        except (OSError, ValueError, RuntimeError) as problem:
            raise ToolError(f"this is not a path: {problem}") from None
        if not self.has(found):
            known = ", ".join(map(str, self.roots)) or "none on this machine"
            raise ToolError(f"{found} is outside of the roots that the client named ({known}): it is not run or read")
        return found


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # no file can have this name
        return False


def _refuse_shadowed(module: str, folder: Path) -> None:
    """Refuse a module if Python would run an installed one of that name.

    Python prefers an installed package to a folder without ``__init__.py``.

    Raises:
        ToolError: Python would run the installed module.
    """
    first = module.partition(".")[0]
    is_frozen = first in sys.builtin_module_names or FrozenImporter.find_spec(first) is not None
    if not is_frozen and any((folder / name).is_file() for name in (f"{first}.py", f"{first}/__init__.py")):
        return
    other = PathFinder.find_spec(first)
    if is_frozen or (other is not None and other.origin is not None):
        raise ToolError(f"Python would run the installed {module} instead of the one in {folder}: it is not run")
