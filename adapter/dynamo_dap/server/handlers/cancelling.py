"""``cancel``: passed on to whoever is serving the request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamo_dap.protocol.types import CancelArguments, Capabilities
from dynamo_dap.server.handling import handles

if TYPE_CHECKING:
    from dynamo_dap.server.session import Session


@handles("cancel", CancelArguments, brings=Capabilities(supports_cancel_request=True))
def cancel(session: Session, arguments: CancelArguments) -> None:
    """Cancel a request or a progress. Always a success: what has been answered meanwhile needs no cancelling."""
    if arguments.request_id is not None and not session.cancel_task(arguments.request_id):
        session.router.cancel(arguments.request_id)
    if arguments.progress_id is not None and not session.cancel_start(arguments.progress_id):
        session.router.cancel_progress(arguments.progress_id)
