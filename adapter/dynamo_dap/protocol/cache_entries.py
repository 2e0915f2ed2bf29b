"""Requests and answers about torch's cache entries: the requests ``ENTRIES`` and ``FORGET`` of ``contract``.

Structs; any thread.
"""

from __future__ import annotations

from msgspec import Struct


class EntriesArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``ENTRIES``."""

    function: str | None = None
    """The name of a function, or the end of it (``forward``); missing for all."""


class EntryGuard(Struct, rename="camel", omit_defaults=True):
    """A check that an entry makes of each call."""

    text: str
    """As a person says it."""
    expression: str
    """In torch's words."""
    path: str | None = None
    line: int | None = None
    """The user's line that asked for it."""
    failures: int | None = None
    """How often it did not pass, as far as that is known of it alone."""
    object_failures: int | None = None
    """How often it or another check of the same object did not pass, where torch does not say which."""


class EntryMiss(Struct, rename="camel", omit_defaults=True):
    """Why a call failed this entry's guards, so that torch compiled again."""

    text: str
    value_then: str | None = None
    value_now: str | None = None
    """In that call."""


class EntryGraph(Struct, rename="camel", omit_defaults=True):
    """A graph that the code of an entry calls."""

    name: str
    operations: int | None = None
    code: str | None = None
    """As Python; missing where it was compiled before anything was recorded."""


class EntryResume(Struct, rename="camel", omit_defaults=True):
    """A resume function that the code of an entry calls."""

    name: str
    path: str
    line: int
    """Where it resumes."""
    text: str
    """That line."""
    entries: int
    """How many cache entries it has."""
    generated_name: str = ""
    """As the code of the entry calls it: the two of a branch may resume at one line."""
    next_line: int | None = None
    """Where it goes on, if that is another line: the first of this side of a branch."""
    when: str | None = None
    """Of the two of a branch: what the tested value is then. ``true``, ``false``, ``None`` or ``not None``."""


class EntryMemory(Struct, rename="camel", omit_defaults=True):
    """The memory that an entry keeps alive, in bytes."""

    code: int
    tensors: int
    """Constants and buffers of the compiled graph; parameters are its inputs."""
    tensor_count: int
    backend_code: int
    """What the backend wrote, as Python holds it; compiled kernels come on top."""
    is_whole: bool = True
    """Whether everything was looked at; if not, it is at least this."""


class CacheEntry(Struct, rename="camel", omit_defaults=True):
    """One compiled version of a function, for calls that pass its guards."""

    compile_id: str
    backend: str
    guards: list[EntryGuard]
    code: str
    """The generated code as Python."""
    graphs: list[EntryGraph]
    resumes: list[EntryResume]
    memory: EntryMemory
    calls: int | None = None
    """How many calls it has served since they are counted."""
    last_miss: EntryMiss | None = None


class CachedFunction(Struct, rename="camel", omit_defaults=True):
    """A function with cache entries: the user's, or a resume function of it."""

    id: int
    """For ``FORGET``."""
    name: str
    """``Model.forward``, ``fn (resumed at line 8)``; of a decorator's wrapper, the functions that it wraps."""
    path: str
    line: int
    """Where it begins, or resumes."""
    entries: list[CacheEntry]
    """In the order in which they are tried."""
    wrapper: str | None = None
    """The name of the decorator's wrapper, if that is what was compiled."""
    is_resume_function: bool = False
    next_line: int | None = None
    """The line at which it goes on, as in ``EntryResume``."""
    when: str | None = None
    """The condition under which it runs, as in ``EntryResume``."""
    generated_names: list[str] = []
    """As the code of entries calls a resume function, each by a name of its own."""


class EntriesBody(Struct, rename="camel", omit_defaults=True):
    """Body of the response to ``ENTRIES``."""

    functions: list[CachedFunction]
    text: str
    """The whole result as readable text."""


class ForgetArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``FORGET``."""

    function_id: int
    compile_id: str | None = None
    """Of the entry; missing for all of the function and of its resume functions."""


class ForgetBody(Struct, rename="camel"):
    """Body of the response to ``FORGET``."""

    count: int
    """How many entries no longer serve a call."""
