"""Make substitutes for the CUDA libraries that a CUDA build of torch is linked with, so that it can be imported.

``python stand_in_libraries.py TORCH_LIB_FOLDER`` writes one shared library for every library that torch's own ones need
and that cannot be loaded, into that folder, where torch looks first. Each function in it returns 100, which is
``cudaErrorNoDevice``: torch then says that there is no GPU, and works on the CPU. For tests on machines without a GPU.

Needs ``cc``, ``nm`` and ``readelf``. Linux only.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

_NO_DEVICE = 100
# The interpreter itself defines these.
_PYTHON_SYMBOLS = ("Py", "_Py")


class TorchLibraries:
    """The shared libraries of a torch, as ``nm`` and ``readelf`` show them."""

    def __init__(self, folder: Path) -> None:
        self.files = [path for path in sorted(folder.glob("*.so*")) if path.is_file()]
        self._own = {path.name for path in self.files}

    def missing(self) -> list[str]:
        """Names of the libraries that are needed and cannot be loaded."""
        needed = {name for path in self.files for name in re.findall(r"NEEDED.*\[(.+)\]", _run("readelf", "-d", path))}
        return sorted(name for name in needed - self._own if not _is_loadable(name))

    def versions_of(self) -> dict[str, str]:
        """For every symbol version that is asked for, the library that it is asked of."""
        found: dict[str, str] = {}
        for path in self.files:
            library = ""
            for line in _run("readelf", "-VW", path).splitlines():
                if match := re.search(r"Version: \d+\s+File: (\S+)", line):
                    library = match[1]
                elif match := re.search(r"Name: (\S+)\s+Flags", line):
                    found[match[1]] = library
        return found

    def undefined(self) -> set[tuple[str, str]]:
        """Symbols that are used and that no library of torch's defines, each with its version, ``""`` for none."""
        defined = {name for path in self.files for name, _ in _symbols(path, "--defined-only")}
        used = {symbol for path in self.files for symbol in _symbols(path, "--undefined-only")}
        return {
            (name, version)
            for name, version in used
            if (version or name not in defined) and not name.startswith(_PYTHON_SYMBOLS)
        }


def make_stand_ins(folder: Path) -> list[str]:
    """Write the substitutes into ``folder`` and return their names."""
    torch = TorchLibraries(folder)
    missing = torch.missing()
    if not missing:
        return []
    library_of_version = torch.versions_of()
    contents: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in missing}
    for name, version in torch.undefined():
        # A symbol without a version is found in whichever library has it, so the first substitute can have it.
        library = library_of_version.get(version) if version else missing[0]
        if library in contents:
            contents[library][version].add(name)
    for library, symbols in contents.items():
        _compile(folder / library, symbols)
    return missing


def _compile(library: Path, symbols: dict[str, set[str]]) -> None:
    """Compile a library with functions by version."""
    functions = sorted({name for names in symbols.values() for name in names})
    with tempfile.TemporaryDirectory() as scratch:
        source, versions = Path(scratch, "stand_in.c"), Path(scratch, "stand_in.map")
        source.write_text(
            "".join(f"long {name}() {{ return {_NO_DEVICE}; }}\n" for name in functions) or "int nothing;\n"
        )
        script = "".join(
            f"{version} {{ global: {' '.join(f'{name};' for name in sorted(names))} }};\n"
            for version, names in symbols.items()
            if version
        )
        versions.write_text(script)
        options = ["-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{library.name}"]
        if script:
            options.append(f"-Wl,--version-script={versions}")
        _run("cc", *options, "-o", library, source)


def _symbols(library: Path, which: str) -> set[tuple[str, str]]:
    found = set()
    for line in _run("nm", "-D", which, library).splitlines():
        *_, kind, symbol = line.split()
        name, _, version = symbol.partition("@")
        if which == "--defined-only" or kind == "U":
            found.add((name, version.lstrip("@")))
    return found


def _is_loadable(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _run(command: str, *arguments: str | Path) -> str:
    if shutil.which(command) is None:
        raise SystemExit(f"{command} is not installed; it is needed to make stand-ins for the CUDA libraries")
    return subprocess.run([command, *arguments], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    print("stand-ins for", ", ".join(make_stand_ins(Path(sys.argv[1]))) or "nothing")
