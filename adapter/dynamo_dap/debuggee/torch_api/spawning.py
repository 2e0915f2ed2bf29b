"""Reads the rank that ``torch.multiprocessing`` gives each process. Runs on the thread that starts the process."""

from __future__ import annotations

import types

from dynamo_dap.protocol.requests.ranks import Rank

_MODULE = "torch.multiprocessing.spawn"


def rank_of_spawned(maker: types.FrameType | None) -> Rank | None:
    """Return the rank of the process that ``maker`` starts; None if torch does not number it.

    ``spawn`` and ``start_processes`` pass the number to the function that they run; nearly every program uses it as
    the rank.
    """
    number = of = None
    while maker is not None:
        if maker.f_globals.get("__name__") == _MODULE:
            # An inner function starts the process; the outer one knows the number of processes.
            number = maker.f_locals.get("i") if number is None else number
            of = maker.f_locals.get("nprocs", of)
        maker = maker.f_back
    return Rank(number, number, of if type(of) is int else None) if type(number) is int else None
