"""``python -m dynamo_dap``."""

import sys

from dynamo_dap.command_line import main

if __name__ == "__main__":
    sys.exit(main())
