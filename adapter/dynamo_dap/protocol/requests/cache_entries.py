"""Defines requests and answers about torch's cache entries: ``ENTRIES`` and ``FORGET`` of ``contract``.

Any thread may use the structs.
"""

from __future__ import annotations

from msgspec import Struct


class EntriesArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``ENTRIES``."""

    function: str | None = None
    """The name of a function, or its end (``forward``); missing for all."""


class EntryGuard(Struct, rename="camel", omit_defaults=True):
    """A check that an entry makes in each call."""

    text: str
    """In plain words."""
    expression: str
    """In torch's words."""
    path: str | None = None
    line: int | None = None
    """The user's line that caused it."""
    failures: int | None = None
    """How often it failed; missing if that is not known for this check alone."""
    object_failures: int | None = None
    """How often it or another check of the same object failed, if torch does not say which."""


class EntryMiss(Struct, rename="camel", omit_defaults=True):
    """Why a call failed this entry's guards, so that torch compiled again."""

    text: str
    value_then: str | None = None
    value_now: str | None = None
    """The value in that call."""


class EntryGraph(Struct, rename="camel", omit_defaults=True):
    """A graph that an entry's code calls."""

    name: str
    operations: int | None = None
    code: str | None = None
    """As Python; missing if it was compiled before recording began."""


class EntryResume(Struct, rename="camel", omit_defaults=True):
    """A resume function that an entry's code calls."""

    name: str
    path: str
    line: int
    """Where it resumes."""
    text: str
    """The text of that line."""
    entries: int
    """How many cache entries it has."""
    generated_name: str = ""
    """The name in the entry's code: the two functions of a branch may resume at one line."""
    next_line: int | None = None
    """The line at which it continues, if that differs: the first one of its side of the branch."""
    when: str | None = None
    """For the two functions of a branch, the tested value: ``true``, ``false``, ``None`` or ``not None``."""


class EntryMemory(Struct, rename="camel", omit_defaults=True):
    """The memory that an entry keeps alive, in bytes."""

    code: int
    tensors: int
    """Constants and buffers of the compiled graph; parameters are its inputs."""
    tensor_count: int
    backend_code: int
    """The backend's Python code; compiled kernels are not included."""
    is_whole: bool = True
    """Whether everything was measured; otherwise these are lower bounds."""


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
    """How many calls have hit it since counting began."""
    last_miss: EntryMiss | None = None


class CachedFunction(Struct, rename="camel", omit_defaults=True):
    """A function with cache entries: the user's, or one of its resume functions."""

    id: int
    """For ``FORGET``."""
    name: str
    """``Model.forward``, ``fn (resumed at line 8)``; for a decorator's wrapper, the functions that it wraps."""
    path: str
    line: int
    """The line at which it begins or resumes."""
    entries: list[CacheEntry]
    """In the order in which torch tries them."""
    wrapper: str | None = None
    """The name of the decorator's wrapper, if torch compiled that."""
    is_resume_function: bool = False
    next_line: int | None = None
    """The line at which it continues, as in ``EntryResume``."""
    when: str | None = None
    """The condition under which it runs, as in ``EntryResume``."""
    generated_names: list[str] = []
    """Its names in the code of entries that call it as a resume function."""


class EntriesBody(Struct, rename="camel", omit_defaults=True):
    """Body of the response to ``ENTRIES``."""

    functions: list[CachedFunction]
    text: str
    """The whole result as readable text."""


class ForgetArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``FORGET``."""

    function_id: int
    compile_id: str | None = None
    """The entry's id; missing for all entries of the function and its resume functions."""


class ForgetBody(Struct, rename="camel"):
    """Body of the response to ``FORGET``."""

    count: int
    """How many entries were removed."""
