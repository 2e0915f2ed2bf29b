"""Puts this environment's torch into another one, as if it were installed there: torch, Triton and what they require.

Nothing else of this environment can be imported there, so that a requirement that the wheel forgets is missed.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path


def link(environment: Path) -> None:
    """Link the packages into the environment, but for those that it has."""
    (site_packages,) = environment.glob("lib/python*/site-packages")
    for distribution in _required("torch", "triton", "numpy"):
        for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            target = site_packages / name
            if not target.exists():
                target.symlink_to(Path(str(distribution.locate_file(name))))


def _required(*names: str) -> list[metadata.Distribution]:
    """Return the distributions that are installed, with all that they require."""
    found: dict[str, metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # For another platform, or an extra.
        if found.setdefault(name, distribution) is distribution:
            requirements = [each for each in distribution.requires or () if "extra ==" not in each]
            waiting += [match[0] for each in requirements if (match := re.match(r"[\w.-]+", each))]
            waiting = [each for each in waiting if each not in found]
    return list(found.values())


if __name__ == "__main__":
    link(Path(sys.argv[1]))
