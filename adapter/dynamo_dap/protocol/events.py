"""Bodies of DAP events.

Generated once from the published schema (DAP 1.70), then kept by hand. Structs, used on any thread; enumerated strings
are typed ``str``, since an unknown value must reach the code that can say what is wrong with it.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from dynamo_dap.protocol.types import (
    Breakpoint,
    Capabilities,
    Module,
    Source,
)


class StoppedEventBody(Struct, rename="camel", omit_defaults=True):
    """Body of the ``stopped`` event."""

    reason: str
    description: str | None = None
    thread_id: int | None = None
    preserve_focus_hint: bool | None = None
    text: str | None = None
    all_threads_stopped: bool | None = None
    hit_breakpoint_ids: list[int] | None = None


class ContinuedEventBody(Struct, rename="camel", omit_defaults=True):
    """Body of the ``continued`` event."""

    thread_id: int
    all_threads_continued: bool | None = None


class ExitedEventBody(Struct, rename="camel", omit_defaults=True):
    """Body of the ``exited`` event."""

    exit_code: int


class TerminatedEventBody(Struct, rename="camel", omit_defaults=True):
    """Body of the ``terminated`` event."""

    restart: Any = None


class ThreadEventBody(Struct, rename="camel", omit_defaults=True):
    """Body of the ``thread`` event."""

    reason: str
    thread_id: int


class ProcessEventBody(Struct, rename="camel", omit_defaults=True):
    """Body of the ``process`` event."""

    name: str
    system_process_id: int | None = None
    is_local_process: bool | None = None
    start_method: str | None = None
    pointer_size: int | None = None


class ProgressStartEventBody(Struct, rename="camel", omit_defaults=True):
    """Body of the ``progressStart`` event."""

    progress_id: str
    title: str
    request_id: int | None = None
    cancellable: bool | None = None
    message: str | None = None
    percentage: float | None = None


class ProgressUpdateEventBody(Struct, rename="camel", omit_defaults=True):
    """Body of the ``progressUpdate`` event."""

    progress_id: str
    message: str | None = None
    percentage: float | None = None


class ProgressEndEventBody(Struct, rename="camel", omit_defaults=True):
    """Body of the ``progressEnd`` event."""

    progress_id: str
    message: str | None = None


class ModuleEventBody(Struct, rename="camel", omit_defaults=True):
    """Body of the ``module`` event."""

    reason: str
    module: Module


class InvalidatedEventBody(Struct, rename="camel", omit_defaults=True):
    """Body of the ``invalidated`` event."""

    areas: list[str] | None = None
    thread_id: int | None = None
    stack_frame_id: int | None = None


class OutputEventBody(Struct, rename="camel", omit_defaults=True):
    """Body of the ``output`` event."""

    output: str
    category: str | None = None
    group: str | None = None
    variables_reference: int | None = None
    source: Source | None = None
    line: int | None = None
    column: int | None = None
    data: Any = None
    location_reference: int | None = None


class BreakpointEventBody(Struct, rename="camel", omit_defaults=True):
    """Body of the ``breakpoint`` event."""

    reason: str
    breakpoint: Breakpoint


class LoadedSourceEventBody(Struct, rename="camel", omit_defaults=True):
    """Body of the ``loadedSource`` event."""

    reason: str
    source: Source


class CapabilitiesEventBody(Struct, rename="camel", omit_defaults=True):
    """Body of the ``capabilities`` event."""

    capabilities: Capabilities
