"""``python -m dynamo_dap``."""

import os
import sys

# Python puts the working folder first, and would run the workspace's msgspec.py. Keep a folder that has this package.
_HOME = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120  (pathlib could be theirs)
if sys.path and not getattr(sys.flags, "safe_path", False) and not sys.flags.isolated:
    first = os.path.realpath(sys.path[0])
    if first == os.path.realpath(os.curdir) and first != _HOME:
        del sys.path[0]

from dynamo_dap.command_line import main  # noqa: E402  (the path is set first)

if __name__ == "__main__":
    sys.exit(main())
