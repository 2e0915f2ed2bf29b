"""``threads``: those of all backends; none for a program that runs without debugging."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dynamo_dap.server.handling import Answers, Merge, NoArguments, broadcasts

if TYPE_CHECKING:
    from dynamo_dap.server.session import Session


class _ThreadsBody(msgspec.Struct):
    threads: list[msgspec.Raw] = []


@broadcasts("threads", NoArguments, after_end=True)
def threads(session: Session, raw: msgspec.Raw, arguments: NoArguments) -> Merge:
    """List them."""
    return _merge


def _merge(answers: Answers) -> object:
    if len(answers) == 1:
        return answers[0][1]
    bodies = [msgspec.json.decode(bytes(raw), type=_ThreadsBody) for _, raw in answers]
    return _ThreadsBody([thread for body in bodies for thread in body.threads])
