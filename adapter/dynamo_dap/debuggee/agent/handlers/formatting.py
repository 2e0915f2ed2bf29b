"""DAP's ``ValueFormat``: integers in hexadecimal if the client asks for it. Pure functions, any thread."""

from __future__ import annotations

import re

from dynamo_dap.debuggee.values.model import Value
from dynamo_dap.protocol.types import ValueFormat

_INTEGER = re.compile(r"-?\d+")


def formatted_text(value: Value, wanted: ValueFormat | None) -> str:
    """Return the text of ``value``, as ``wanted``."""
    if wanted is not None and wanted.hex and value.type_name == "int" and _INTEGER.fullmatch(value.text):
        return hex(int(value.text))
    return value.text
