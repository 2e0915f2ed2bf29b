"""Reads pipes, given as descriptor numbers, to their end, and discards the data.

Runs as its own process for a launched program that outlives the session and still writes to our pipes.
"""

from __future__ import annotations

import os
import sys
import threading


def _discard(descriptor: int) -> None:
    while os.read(descriptor, 65536):
        pass


def main() -> None:
    """Read every pipe on a thread of its own."""
    for argument in sys.argv[1:]:
        threading.Thread(target=_discard, args=(int(argument),)).start()


if __name__ == "__main__":
    main()
