"""Runs the program with a tried edit: reads edited files from copies, and saves the program's results.

The results are those of calls of compiled functions, and the final values of ``__main__``. Each run starts with the
same random seeds. Runs on the main thread before and after the program; results are saved on whichever thread calls.
The files on disk are not touched; modules of a package are imported from copies, like the program's own file.
"""

from __future__ import annotations

import json
import linecache
import os
import random
import sys
import tokenize
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

from dynamo_dap.debuggee.bytecode.exact_types import is_a, is_exactly, is_one_of
from dynamo_dap.debuggee.torch_api.compiles.compiled_calls import report_results
from dynamo_dap.debuggee.torch_api.import_hooks import when_imported
from dynamo_dap.debuggee.torch_api.objects import Tensor
from dynamo_dap.debuggee.torch_api.torch_settings import add_to_config, set_config

_ITEMS = 200
_CALLS = 1000
_SEED = 0
_DEPTH = 3
_COMPILED = "_orig_mod."


def use_copies(copies: Mapping[str, str]) -> None:
    """Read files from their copies, in imports and tracebacks."""
    known = {os.path.realpath(path): copy for path, copy in copies.items()}
    read, stats = SourceFileLoader.get_data, SourceFileLoader.path_stats

    def get_data(self: SourceFileLoader, path: str) -> bytes:
        return read(self, known.get(os.path.realpath(path), path))

    def path_stats(self: SourceFileLoader, path: str) -> Any:
        if os.path.realpath(path) in known:
            # Python then neither reads nor writes bytecode files.
            raise OSError("an edit is tried")
        return stats(self, path)

    setattr(SourceFileLoader, "get_data", get_data)  # noqa: B010 (mypy knows it only from the base class)
    SourceFileLoader.path_stats = path_stats  # type: ignore[method-assign]  # a wrapper of it
    for path, copy in copies.items():
        with tokenize.open(copy) as file:
            text = file.read()
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)


def try_settings(settings: Mapping[str, object], added: Mapping[str, list[str]]) -> None:
    """Change torch settings, and add names of functions to settings that are sets. Runs when Dynamo is imported."""
    for key, value in settings.items():
        set_config(key, value)
    for key, names in added.items():
        for name in names:
            add_to_config(key, name)


class Results:
    """The program's results, each value as a few numbers."""

    def __init__(self) -> None:
        self._calls: list[object] = []
        self._left_out = 0

    def begin(self) -> None:
        """Note the results of compiled functions from now on."""
        random.seed(_SEED)
        when_imported("numpy.random", lambda: sys.modules["numpy.random"].seed(_SEED))
        when_imported("torch", lambda: sys.modules["torch"].manual_seed(_SEED))
        report_results(self._take)

    def _take(self, result: object) -> None:
        if len(self._calls) < _CALLS:
            self._calls.append(_reported(result, _DEPTH))
        else:
            self._left_out += 1

    def write(self, path: str) -> None:
        """Write the noted results, and the present values of the program's module."""
        module = vars(sys.modules["__main__"])
        names = [name for name in module if not name.startswith("__")][:_ITEMS]
        found = {name: _reported(module[name], _DEPTH) for name in names}
        values = {name: one for name, one in found.items() if one is not None}
        text = json.dumps({"values": values, "calls": self._calls, "more_calls": self._left_out})
        Path(path).write_text(text, encoding="utf-8")


def _reported(value: Any, depth: int) -> object:
    """Return a value as JSON; None if there is nothing to compare."""
    torch = sys.modules.get("torch")
    if is_exactly(value, (bool, int, float, str)):
        return value
    if depth and is_one_of(value, (list, tuple)):
        return [_reported(one, depth - 1) for one in list(value)[:_ITEMS]]
    if depth and is_a(value, dict):
        # The outputs of library models are dictionaries, too.
        return {str(key): _reported(one, depth - 1) for key, one in list(value.items())[:_ITEMS]}
    if torch is not None and is_a(value, torch.Tensor):
        return _tensor(value)
    if torch is not None and is_a(value, torch.nn.Module):
        # With torch.compile off, a compiled module is the module itself.
        return {name.replace(_COMPILED, ""): _tensor(one) for name, one in list(value.state_dict().items())[:_ITEMS]}
    return None


def _tensor(tensor: Tensor) -> Any:
    try:
        numbers = tensor.detach().to_dense().double().cpu()
        return [list(numbers.shape), float(numbers.sum()), float(numbers.abs().sum()), float(numbers.square().sum())]
    except (RuntimeError, TypeError, AttributeError):
        return str(tensor.dtype)
