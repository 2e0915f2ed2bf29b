"""Runs a script as a torch would that lacks a private name: ``python hiding.py SCRIPT``, with ``HIDDEN_NAME`` set.

The name is hidden from the debugger alone, where it is looked up; torch has it still, and needs it.
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any

from dynamo_dap.debuggee.torch_api import features

lookup, hidden = features._lookup, os.environ.pop("HIDDEN_NAME")


def lookup_of_others(need: str) -> Any:
    """As ``features._lookup``, which does not find one of them."""
    if need == hidden:
        raise AttributeError(need)
    return lookup(need)


features._lookup = lookup_of_others
del sys.argv[0]
sys.path[0] = os.path.dirname(sys.argv[0])  # noqa: PTH120
runpy.run_path(sys.argv[0], run_name="__main__")
