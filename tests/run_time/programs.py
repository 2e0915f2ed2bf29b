"""The functions of ``fixtures/generated_code.py``, compiled, in the test's own process."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Any

import torch

from tests.client.fixtures import Fixture

FIXTURE = Fixture("generated_code")


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generated_code", FIXTURE.path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


programs: Any = _load()


def line(marker: str) -> int:
    """The line of a marker."""
    return FIXTURE.line(marker)


def compiled(function: Any) -> Any:
    """Compile with a backend that generates no code of its own."""
    return torch.compile(function, backend="eager")


def replay_arguments() -> tuple[torch.Tensor, dict[str, Any], list[int], Any]:
    """Arguments of ``replay``."""
    return torch.ones(3), {"before": 1}, [1], programs.State()
