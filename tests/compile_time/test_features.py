"""Checks that this torch has all private names that the debugger needs. Run this test first on a new version."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import sysconfig

import pytest
import torch._dynamo  # noqa: F401  (what is probed)

from dynamo_dap.debuggee import torch_api
from dynamo_dap.debuggee.launch.starting.process_agent import unsupported_build
from dynamo_dap.debuggee.torch_api import features
from dynamo_dap.debuggee.torch_api.isolation import copy_of_counter


def test_no_feature_is_off() -> None:
    for module in pkgutil.walk_packages(torch_api.__path__, f"{torch_api.__name__}."):
        importlib.import_module(module.name)
    assert not features.problems(), "\n".join(features.problems())


def test_a_counter_is_copied_without_drawing_from_it() -> None:
    """Torch numbers its names with such a counter, and Python 3.14 has no ``copy.copy`` for it."""
    counter = itertools.count(7, 2)
    assert next(copy_of_counter(counter)) == 7
    assert next(counter) == 7


def test_a_free_threaded_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unsupported_build() is None
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: int(name == "Py_GIL_DISABLED"))
    assert "free-threaded" in (unsupported_build() or "")
