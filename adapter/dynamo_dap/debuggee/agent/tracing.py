"""``sys.settrace`` as it was before any other debugger of this process put a warning in its place.

Imported with the agent, which is before debugpy. Acts on the calling thread.
"""

from __future__ import annotations

import sys

set_trace = sys.settrace
