"""The messages about saving a call: the request ``RECORD_CALL`` of ``contract``, and a run for it.

Structs; any thread.
"""

from __future__ import annotations

from msgspec import Struct


class RecordCallArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``RECORD_CALL``."""

    thread_id: int
    folder: str | None = None
    """Where to; missing: a new folder below ``saved-calls`` in the program's working directory."""
    has_data: bool = True
    """Whether what is in tensors is saved; else their shapes, types and strides."""


class LostValue(Struct, rename="camel"):
    """A part of a call that could not be saved."""

    path: str
    """Where it is, as the program would write it."""
    text: str
    """Its class."""
    reason: str


class RecordCallBody(Struct, rename="camel", omit_defaults=True):
    """Body of the response to ``RECORD_CALL``."""

    folder: str
    function: str
    lost: list[LostValue] = []
    notes: list[str] = []
    """What is not as it was when the call began."""
    bytes: int = 0
    """How large the folder is."""


class RecordingRun(Struct, rename="camel", omit_defaults=True):
    """A run of ``dynamo-dap record-call``."""

    result: str
    """Where to write a ``RecordingEnded``."""
    folder: str | None = None
    function: str | None = None
    """Of which function; of the first that is compiled if none is named."""
    compile: int = 1
    """For its which compile."""
    has_data: bool = True


class RecordingEnded(Struct, rename="camel", omit_defaults=True):
    """The report of a run of ``dynamo-dap record-call``."""

    saved: RecordCallBody | None = None
    problem: str | None = None
