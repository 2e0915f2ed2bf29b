"""Lets torchvision and torchaudio of PyPI, which are built for CUDA, be imported beside a torch without CUDA.

Writes substitutes for the libraries of CUDA and of torch that these two are linked with, and a ``.pth`` file that loads
them. Their functions return 100, "no device"; nothing calls them on a CPU. Runs in the zoo's environment:
``python stand_ins.py``. Needs ``cc``, ``nm`` and ``readelf``. Linux only.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

_PACKAGES = ("torchvision", "torchaudio")


def _lines(*command: object) -> list[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )


def _is_usable(package: str) -> bool:
    command = [sys.executable, "-c", f"import torch, {package}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _write(folder: Path, name: str, symbols: list[str], *, is_versioned: bool) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        source, versions = Path(temporary, "stand_in.c"), Path(temporary, "versions")
        source.write_text("".join(f"int {each}(void) {{ return 100; }}\n" for each in symbols))
        versions.write_text(f"{name} {{ global: *; }};\n")
        options = [f"-Wl,--version-script={versions}"] if is_versioned else []
        _lines("cc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", *options, source, "-o", folder / name)


def main() -> None:
    """Write the libraries that are missing."""
    found = [spec for name in _PACKAGES if (spec := importlib.util.find_spec(name)) is not None]
    libraries = [path for spec in found for path in Path(spec.origin or "").parent.rglob("*.so")]
    if all(_is_usable(spec.name) for spec in found):
        return
    symbols: dict[str, set[str]] = {}
    for library in libraries:
        needed = re.findall(r"NEEDED.*\[(.*(?:cudart|_cuda).*)\]", "\n".join(_lines("readelf", "-d", library)))
        for line in _lines("nm", "-D", "--undefined-only", library):
            name, _, version = line.strip().removeprefix("U ").strip().partition("@")
            if "cuda" in name.lower():
                for each in needed:
                    symbols.setdefault(each, set()).update(
                        {name} if (version.strip("@") == each) == ("cudart" in each) else ()
                    )
    site = Path(sysconfig.get_path("purelib"))
    folder = site / "zoo_stand_ins"
    folder.mkdir(exist_ok=True)
    for name, own in symbols.items():
        _write(folder, name, sorted(own), is_versioned="cudart" in name)
    loads = "; ".join(f"ctypes.CDLL({str(folder / name)!r}, ctypes.RTLD_GLOBAL)" for name in sorted(symbols))
    (site / "zoo_stand_ins.pth").write_text(f"import ctypes; {loads}\n")
    for spec in found:
        if not _is_usable(spec.name):
            sys.stderr.write(f"{spec.name} cannot be imported: programs with it are not measured\n")


if __name__ == "__main__":
    main()
