"""dynamo-dap: a debugger for ``torch.compile`` that speaks the Debug Adapter Protocol.

What a program that wants to be debugged calls, as in debugpy: ``listen``, ``connect``, ``wait_for_client``,
``is_client_connected`` and ``breakpoint``. Importing this package imports neither torch nor the agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynamo_dap.debuggee.bootstrap.attaching import (
        breakpoint,
        connect,
        is_client_connected,
        listen,
        wait_for_client,
    )

__version__ = "0.1.0"

__all__ = ["__version__", "breakpoint", "connect", "is_client_connected", "listen", "wait_for_client"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from dynamo_dap.debuggee.bootstrap import attaching

        return getattr(attaching, name)
    raise AttributeError(f"module 'dynamo_dap' has no attribute {name!r}")
