"""A run of ``dynamo-dap minify``, and its report. Structs; any process, any thread."""

from __future__ import annotations

from msgspec import Struct

OUTCOME = "outcome.json"
"""The file in the folder of the run that holds a ``MinifiedBody``."""


class MinifyingRun(Struct, rename="camel", omit_defaults=True):
    """How a program is run once by ``dynamo-dap minify``."""

    folder: str
    """Where torch's minifier writes."""


class MinifiedBody(Struct, rename="camel", omit_defaults=True):
    """The minifier's result for the first failed compile."""

    error: str
    """How it failed."""
    problem: str | None = None
    """Why the minifier did not reach its end."""
