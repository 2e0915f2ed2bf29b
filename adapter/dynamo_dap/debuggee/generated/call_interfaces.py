"""Defines the interfaces to the features that stop in calls of generated code: in cached calls, and in backward passes.

The engine of generated code calls them; ``composition`` and ``numerics`` implement them.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping
from typing import Protocol

from dynamo_dap.debuggee.agent.stepping import Step
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall


class CallFacts(Protocol):
    """Facts that hold for every call of one cache entry."""

    @property
    def lines(self) -> Mapping[str, frozenset[int]]:
        """The lines that each of these calls runs, by file."""


class CachedCalls(Protocol):
    """Stops in cached calls of compiled functions."""

    def are_wanted(self) -> bool:
        """Return whether any cached call may have to stop. Called after each change of breakpoints, on any thread."""

    def may_stop(self, lines: Mapping[str, frozenset[int]], functions: Collection[str]) -> bool:
        """Return whether a breakpoint is on these lines, by file, or on these functions (qualified names)."""

    def prepare(self, code: types.CodeType, *, may_stop: bool) -> None:
        """Prepare for calls of the compiled ``code``, for which ``may_stop`` has changed. Runs on any thread."""

    def release(self) -> None:
        """Let all cached calls run without a stop. Runs on any thread."""

    def are_traced(self) -> bool:
        """Return whether cached calls stop in a replay (``stop_in``). If not, only ``prepare`` affects them."""

    def wants_step(self, step: Step) -> bool:
        """Return whether a step in progress may end in a cached call."""

    def only_counts(self, code: types.CodeType, known: CallFacts | None) -> bool:
        """Return whether all breakpoints in calls of generated ``code`` only count hits, for any input.

        The answer holds until breakpoints change. ``known`` is as for ``stop_in``.
        """

    def count(self, known: CallFacts) -> bool:
        """Count the breakpoint hits of the call that is about to run. If it has to stop, count none and return False.

        Runs on the call's thread, which is not held.
        """

    def stop_in(self, call: CachedCall, known: CallFacts | None) -> CallFacts | None:
        """Stop at the call's breakpoints before it begins; return the facts about the cache entry's calls.

        Return None if the call cannot stop. ``known`` is the result for an earlier call of the same cache entry. Runs
        on the thread that makes the call.
        """

    def may_replay_compiled(self) -> bool:
        """Return whether a call that was compiled just now may need a replay. Runs on any thread."""

    def must_replay_compiled(self, code: types.CodeType) -> bool:
        """Return whether to replay the call whose compile has generated ``code``. Runs on the call's thread."""

    def replay_compiled(self, call: CachedCall) -> CallFacts | None:
        """Replay the call up to its graph break, without a stop, for its history. Returns the result of ``stop_in``."""

    def has_begun(self, code: types.CodeType) -> bool:
        """Return whether ``ended`` must be called for a call of generated ``code``. Runs on any thread."""

    def ended(self, frame: types.FrameType) -> None:
        """Note that the call that ``frame`` ran has ended. Runs on the thread that made the call."""


class BackwardCalls(Protocol):
    """Stops in the backward passes of compiled calls."""

    def are_wanted(self) -> bool:
        """Return whether any backward pass may have to stop. Called after each change of settings, on any thread."""

    def may_stop(self, lines: Mapping[str, frozenset[int]]) -> bool:
        """Return whether the backward pass of a call that runs these lines (by file) may have to stop."""

    def release(self) -> None:
        """Let all backward passes run without a stop. Runs on any thread."""

    def begins(self, call: CachedCall, known: CallFacts | None) -> CallFacts | None:
        """Note the inputs of a call before it begins; return the facts about the cache entry's calls.

        Return None if the call's backward pass cannot stop. ``known`` is the result for an earlier call of the same
        cache entry. Runs on the thread that makes the call.
        """

    def computed(self, frame: types.FrameType, outputs: object) -> None:
        """Keep the compiled graph's ``outputs`` for the backward pass of the call that began in ``frame``."""

    def ended(self, frame: types.FrameType) -> None:
        """Note that the call that began in ``frame`` has returned or raised."""
