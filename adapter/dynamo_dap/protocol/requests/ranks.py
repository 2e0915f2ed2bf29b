"""Identifies a process of a distributed job, and defines the messages of ranks that stop together.

Also defines how a child process learns the address for a session. The structs and pure functions are for any process
and thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

import msgspec
from msgspec import Struct

_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
"""Variables that launchers of distributed jobs set for each process."""
_OF_SCHEDULERS = (
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
)
"""Variables that schedulers set. A process that a scheduler starts need not be a rank: it may be a launcher."""


class Rank(Struct, rename="camel", omit_defaults=True, frozen=True):
    """A process of a job, with its launcher's numbers."""

    number: int
    local: int | None = None
    """Its number on its machine."""
    of: int | None = None
    """The world size."""

    def __str__(self) -> str:
        return f"rank {self.number}" + ("" if self.local is None else f" (local {self.local})")


def rank_in(environment: Mapping[str, str], names: tuple[str, str, str] = _VARIABLES) -> Rank | None:
    """Return the rank that a launcher (torchrun, or a compatible one) set in the environment."""
    number, local, of = (int(text) if (text := environment.get(name, "")).isdecimal() else None for name in names)
    return None if number is None else Rank(number, local, of)


def scheduled_rank_in(environment: Mapping[str, str]) -> Rank | None:
    """Return the rank that a scheduler (``srun``, ``mpirun``) gave a process that it started."""
    return next((rank for names in _OF_SCHEDULERS if (rank := rank_in(environment, names)) is not None), None)


def job_in(environment: Mapping[str, str], parent: int) -> str:
    """Return a key that all ranks of one job share, on any machine; ``parent`` is the process that started this rank.

    On one machine the key contains ``parent``: consecutive jobs there may share their whole environment.
    """
    restart = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    of, of_machine = environment.get("WORLD_SIZE"), environment.get("LOCAL_WORLD_SIZE")
    if of is None or of == of_machine or "MASTER_PORT" not in environment:
        return f"{parent}/{restart}"
    return "/".join([*(environment.get(name, "") for name in _OF_JOB), restart])


_OF_JOB = ("SLURM_JOB_ID", "SLURM_STEP_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")


def invitation_text(file: str, rank: Rank | None) -> str:
    """Return the text for a child: the file of an ``Invitation``, and its rank if the parent knows it."""
    return file if rank is None else file + _MARK + msgspec.json.encode(rank).decode()


def read_invitation_text(text: str) -> tuple[str, Rank | None]:
    """Return the arguments of ``invitation_text``."""
    file, mark, rank = text.rpartition(_MARK)
    return (file, msgspec.json.decode(rank, type=Rank)) if mark else (text, None)


_MARK = "#rank="


# -- messages between the servers of ranks that stop together; no client gets them ------------------

RANK_RUNS = "rankRuns"
"""A session's program runs: it may be paused. No body."""
RANK_STOPPED = "rankStopped"
"""A request: a session's program has stopped. The session shows the stop when it has the answer, so that all ranks know
the stop before the user can act on it. All others are events."""
RANK_REQUEST = "rankRequest"
"""The user resumes or pauses a rank. The message goes to the other ranks too, and they do the same."""
PAUSE_RANK = "pauseRank"
"""Another rank has stopped. No body."""
WITHDRAW_RANK_PAUSE = "withdrawRankPause"
"""The user resumes: a rank whose pause is still pending must not stop. No body."""
PRINT_AT_RANK = "printAtRank"


class Place(Struct, frozen=True):
    """Where a rank is held."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{PurePath(self.path).name}:{self.line}"


class Newcomer(Struct):
    """The first message of a session's server to the others."""

    name: str


class RankStoppedBody(Struct):
    """Arguments of ``RANK_STOPPED``; ``reason`` is DAP's."""

    reason: str
    place: Place


class RankRequestBody(Struct, omit_defaults=True):
    """Body of ``RANK_REQUEST``: a DAP request, without its thread."""

    command: str
    granularity: str | None = None


class PrintAtRankBody(Struct):
    """Body of ``PRINT_AT_RANK``: a line for the session's console."""

    text: str
