"""Finds the torch settings that torch's own hints recommend.

A setting needs no edit, so it may also help with library code. Only a trial shows whether it does: see
``commands.fix``. This module has no side effects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dynamo_dap.records.model import GraphBreak, GuardFailure

_ASSIGNED = re.compile(
    r"torch\.(?P<module>_dynamo|_functorch|_inductor)\.config\.(?P<name>\w+)\s*(?:=|to)\s*(?P<value>True|False)\b"
)
_LOGGED = re.compile(r"^method: <\w+ .*?>\.(?P<method>\w+), args: ", re.DOTALL)
_IGNORED = "ignore_logging_functions"
_METHODS = frozenset({"debug", "info", "warning", "warn", "error", "critical", "exception", "log"})


@dataclass(frozen=True)
class Setting:
    """One torch setting, with the value to try."""

    key: str
    """As ``torchConfig`` has it: ``_dynamo.capture_scalar_outputs``."""
    value: bool | None = None
    """None if the setting is a set, to which ``adds`` is added."""
    adds: str | None = None
    """The added function: ``logging.Logger.info``."""

    @property
    def text(self) -> str:
        """Return the line of Python that makes the setting."""
        module, _, name = self.key.partition(".")
        where = f"torch.{module}.config.{name}"
        return f"{where} = {self.value}" if self.adds is None else f"{where}.add({self.adds})"


def settings_of_break(found: GraphBreak) -> list[Setting]:
    """Return the settings in torch's hints about a graph break."""
    settings = list(_assigned("\n".join(found.hints)))
    logged = _LOGGED.match(found.context or "")
    if logged is not None and logged["method"] in _METHODS and any(_IGNORED in hint for hint in found.hints):
        settings.append(Setting(f"_dynamo.{_IGNORED}", adds=f"logging.Logger.{logged['method']}"))
    return settings


def settings_of_failure(failure: GuardFailure) -> list[Setting]:
    """Return the settings in torch's hint about a failed guard."""
    return list(_assigned(failure.hint or ""))


def _assigned(text: str) -> Iterator[Setting]:
    for found in _ASSIGNED.finditer(text):
        yield Setting(f"{found['module']}.{found['name']}", found["value"] == "True")
