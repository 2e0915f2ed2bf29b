"""Defines a run of ``dynamo-dap minify``, and its report. The structs are for any process and thread."""

from __future__ import annotations

from msgspec import Struct

OUTCOME = "outcome.json"
"""The file in the folder of the run that holds a ``MinifiedBody``."""


class MinifyingRun(Struct, rename="camel", omit_defaults=True):
    """One run of a program by ``dynamo-dap minify``."""

    folder: str
    """Where torch's minifier writes."""


class MinifiedBody(Struct, rename="camel", omit_defaults=True):
    """The minifier's result for the first failed compile."""

    error: str
    """The error of the compile."""
    problem: str | None = None
    """Why the minifier did not finish."""
