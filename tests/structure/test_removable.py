"""Rarely used features stand apart: each is one folder, and few modules import it."""

from __future__ import annotations

import pytest

from tests.structure.sources import adapter_modules

REMOVABLE = {
    "debuggee.patching": {"debuggee.launch.starting.entry", "debuggee.launch.starting.process_agent"},
    "debuggee.kernel_races": {"debuggee.eager.kernel_programs"},
    "debuggee.eager.watching": {"debuggee.launch.starting.process_agent"},
    "debuggee.launch.forecasts": {"debuggee.launch.starting.launch"},
    "debuggee.saved_calls": {"debuggee.launch.starting.launch", "debuggee.launch.starting.process_agent"},
}
"""The folder of each feature, and the modules that import it: to remove the feature, remove both."""


@pytest.mark.parametrize("folder", REMOVABLE)
def test_a_rarely_used_feature_is_imported_only_where_it_is_added(folder: str) -> None:
    importing = {
        module.name
        for module in adapter_modules()
        if not f"{module.name}.".startswith(f"dynamo_dap.{folder}.")
        and any(f"{name}.".startswith(f"dynamo_dap.{folder}.") for name, _ in module.imports())
    }
    assert {name.removeprefix("dynamo_dap.") for name in importing} == REMOVABLE[folder]
