"""A debugger for ``torch.compile`` that speaks the Debug Adapter Protocol.

A program that wants to be debugged calls ``listen``, ``connect``, ``wait_for_client``, ``is_client_connected`` and
``breakpoint``, as in debugpy. ``describe`` lists what torch has compiled, and ``record`` what it compiles meanwhile.
Importing this package imports neither torch nor the agent.

PYTEST_DONT_REWRITE: a debugged pytest would warn that it cannot rewrite a package that is imported already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynamo_dap.checking.compiles import Recording, record
    from dynamo_dap.debuggee.launch.starting.attaching import (
        breakpoint,
        connect,
        describe,
        is_client_connected,
        listen,
        wait_for_client,
    )

__version__ = "0.2.0"

__all__ = [
    "Recording",
    "__version__",
    "breakpoint",
    "connect",
    "describe",
    "is_client_connected",
    "listen",
    "record",
    "wait_for_client",
]


def __getattr__(name: str) -> Any:
    if name in ("Recording", "record"):
        from dynamo_dap.checking import compiles

        return getattr(compiles, name)
    if name in __all__:
        from dynamo_dap.debuggee.launch.starting import attaching

        return getattr(attaching, name)
    raise AttributeError(f"module 'dynamo_dap' has no attribute {name!r}")
