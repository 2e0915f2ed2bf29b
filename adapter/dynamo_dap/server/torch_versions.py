"""Warnings about the program's version of torch. Pure functions on version strings: torch is never imported here."""

from __future__ import annotations

import re

from dynamo_dap.protocol.contract import ProcessInformation

_OLDEST = (2, 0)


def version_warning(information: ProcessInformation) -> str | None:
    """Return what to tell the user about the program's torch, None when all is well."""
    python = information.executable or "the program's Python"
    if information.torch_version is None:
        return (
            f"{python} has no torch: the program runs, but nothing will be traced or compiled in it. "
            'Set "python" in the configuration to the interpreter that has torch.'
        )
    found = re.match(r"(\d+)\.(\d+)", information.torch_version)
    if found is not None and (int(found[1]), int(found[2])) < _OLDEST:
        return (
            f"{python} has torch {information.torch_version}, which has no torch.compile: the program runs, but "
            "nothing will be traced or compiled in it. Dynamo came with torch 2.0; use a newer torch."
        )
    return None
