"""Prints facts about this interpreter as JSON, for ``dynamo-dap doctor``, which runs it in the program's environment.

Runs in the main thread of a separate process.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import pkgutil
import platform
import sys
import sysconfig
from typing import Any


def facts() -> dict[str, object]:
    """Return versions, and the features that torch's private names allow."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "freeThreaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "packages": {name: _version(name) for name in ("dynamo-dap", "torch", "debugpy", "triton", "bytecode")},
        "torchProblem": None,
        "features": 0,
        "off": [],
        "cacheFolder": None,
    }
    if found["packages"]["torch"] is None:
        return found
    try:
        importlib.import_module("torch._dynamo")
    except Exception as error:  # noqa: BLE001  (whatever a broken torch raises is what is reported)
        found["torchProblem"] = f"{type(error).__name__}: {error}"
        return found
    from dynamo_dap import debuggee
    from dynamo_dap.debuggee.torch_api import features

    for module in pkgutil.walk_packages(debuggee.__path__, f"{debuggee.__name__}."):
        importlib.import_module(module.name)
    found["features"] = len(features.needs())
    found["off"] = features.problems()
    found["cacheFolder"] = _cache_folder()
    return found


def _cache_folder() -> str | None:
    """Return Inductor's cache folder. Inductor's own function would make it."""
    named = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if named is not None:
        return os.path.abspath(named)
    try:
        found = importlib.import_module("torch._inductor.runtime.cache_dir_utils").default_cache_dir()
    except (ImportError, AttributeError):
        return None
    return str(found)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def main() -> None:
    """Print the facts as the last line, after anything that torch's import prints."""
    sys.stdout.write(f"\n{json.dumps(facts())}\n")
