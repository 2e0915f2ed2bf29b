"""``threads``: those of all backends; none for a program that runs without debugging."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dynamo_dap.protocol.types import Thread
from dynamo_dap.server.handling import Answers, Merge, NoArguments, broadcasts

if TYPE_CHECKING:
    from dynamo_dap.server.session import Session


class _ThreadsBody(msgspec.Struct):
    threads: list[Thread] = []


@broadcasts("threads", NoArguments, after_end=True)
def threads(session: Session, raw: msgspec.Raw, arguments: NoArguments) -> Merge:
    """List them."""
    return _merge


def _merge(answers: Answers) -> object:
    if len(answers) == 1:
        return answers[0][1]
    # Both name the same threads; debugpy, which comes last, does so in the order in which they were started.
    known: dict[int, Thread] = {}
    for _, raw in reversed(answers):
        for thread in msgspec.json.decode(bytes(raw), type=_ThreadsBody).threads:
            known.setdefault(thread.id, thread)
    return _ThreadsBody(list(known.values()))
