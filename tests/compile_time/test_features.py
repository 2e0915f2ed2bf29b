"""Whether this version of torch has all that the debugger needs of it: the first test to run on another one."""

from __future__ import annotations

import importlib
import pkgutil

import torch._dynamo  # noqa: F401  (what is probed)

from dynamo_dap.debuggee import torch_internals
from dynamo_dap.debuggee.torch_internals import features


def test_no_feature_is_off() -> None:
    for module in pkgutil.walk_packages(torch_internals.__path__, f"{torch_internals.__name__}."):
        importlib.import_module(module.name)
    assert not features.problems(), "\n".join(features.problems())
