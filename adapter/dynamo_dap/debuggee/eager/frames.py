"""Decides which running frames are the user's own eager code. Only looks at frames; any thread."""

from __future__ import annotations

import types

from dynamo_dap.debuggee.agent.frames import walk
from dynamo_dap.debuggee.agent.user_code import is_debugger_file, is_user_file


def innermost_user_frame(top: types.FrameType | None) -> tuple[types.FrameType | None, types.FrameType | None]:
    """Return the innermost eager frame of the user's from ``top`` down, and the frame that it called."""
    callee = None
    for frame in walk(top):
        file_name = frame.f_code.co_filename
        if is_user_file(file_name) and not is_debugger_file(file_name):
            return frame, callee
        callee = frame
    return None, None
