"""Writes the server's log file: what a bug report needs, and the server's tracebacks.

Set up once, at the start.
"""

from __future__ import annotations

import logging
from pathlib import Path

from dynamo_dap.protocol.log_file import LogFileHandler

_FORMAT = "%(asctime)s %(levelname)s server %(name)s: %(message)s"


def set_up(path: Path | None) -> None:
    """Log everything to ``path``; None logs nothing. Raises ``OSError``."""
    logger = logging.getLogger("dynamo_dap")
    logger.propagate = False
    asyncio_logger = logging.getLogger("asyncio")
    asyncio_logger.propagate = False
    handler: logging.Handler = logging.NullHandler()
    if path is not None:
        handler = LogFileHandler(path, encoding="utf-8")
        handler.setFormatter(logging.Formatter(_FORMAT))
        logger.setLevel(logging.DEBUG)
    else:
        logger.setLevel(logging.CRITICAL)
    logger.addHandler(handler)
    asyncio_logger.addHandler(handler)
