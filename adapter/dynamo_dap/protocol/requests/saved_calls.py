"""Defines the messages for saving a call: the request ``RECORD_CALL``, and a run of ``dynamo-dap record-call``.

Any thread may use the structs.
"""

from __future__ import annotations

from msgspec import Struct


class RecordCallArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``RECORD_CALL``."""

    thread_id: int
    folder: str | None = None
    """The target; by default a new folder below ``saved-calls`` in the program's working directory."""
    has_data: bool = True
    """Whether to save the data of tensors, not only their shapes, types and strides."""


class LostValue(Struct, rename="camel"):
    """A part of a call that could not be saved."""

    path: str
    """Its place, as the program would write it."""
    text: str
    """The class of the value."""
    reason: str


class RecordCallBody(Struct, rename="camel", omit_defaults=True):
    """Body of the response to ``RECORD_CALL``."""

    folder: str
    function: str
    lost: list[LostValue] = []
    notes: list[str] = []
    """What has changed since the call began."""
    bytes: int = 0
    """The size of the folder."""


class RecordingRun(Struct, rename="camel", omit_defaults=True):
    """A run of ``dynamo-dap record-call``."""

    result: str
    """Where to write a ``RecordingEnded``."""
    folder: str | None = None
    function: str | None = None
    """The function; by default the first one that is compiled."""
    compile: int = 1
    """The number of its compile."""
    has_data: bool = True


class RecordingEnded(Struct, rename="camel", omit_defaults=True):
    """The report of a run of ``dynamo-dap record-call``."""

    saved: RecordCallBody | None = None
    problem: str | None = None
