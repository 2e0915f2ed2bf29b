"""Logs unexpected exceptions of the debugger inside the debugged program, to a file on request.

The environment variable ``DYNAMO_DAP_LOG`` names the file. Runs on any thread.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from dynamo_dap.debuggee.wrapping import patches
from dynamo_dap.protocol.log_file import LogFileHandler
from dynamo_dap.protocol.output_files import check_output
from dynamo_dap.protocol.requests.contract import LOG_VARIABLE

_logger = logging.getLogger("dynamo_dap.agent")
_logger.propagate = False
_logger.addHandler(logging.NullHandler())


def start_log() -> None:
    """Begin to log to the file that ``DYNAMO_DAP_LOG`` names; without this variable nothing is logged."""
    path = os.environ.get(LOG_VARIABLE)
    if path:
        try:
            check_output(Path(path))
        except OSError as problem:
            sys.stderr.write(f"dynamo-dap: no log: {problem}\n")
            return
        handler = LogFileHandler(path, encoding="utf-8", delay=True)
        handler.setFormatter(
            logging.Formatter("%(asctime)s agent %(process)d %(threadName)s %(levelname)s %(message)s")
        )
        _logger.addHandler(handler)


def log_problem(text: str) -> None:
    """Record a failure that no caller can handle."""
    _logger.error("%s", text)


def log_exception(doing: str) -> None:
    """Record the exception being handled; ``doing`` names the work in which it was raised."""
    _logger.exception("unexpected error while %s", doing)


def _log_switched_off(line: str) -> None:
    _logger.exception("%s", line)


patches.reporters.append(_log_switched_off)
