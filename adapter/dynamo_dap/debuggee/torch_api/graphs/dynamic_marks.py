"""Finds the marks of dynamic sizes that a compiled graph has left on its own inputs.

AOTAutograd marks the symbolic sizes of what a graph saves for its backward pass and of what it returns, so that the
next graph treats these sizes as dynamic. Some of these tensors are inputs of the graph. Its own trace saw them without
the marks, and so must a replay, which would otherwise use another symbol for each marked size.

Runs on the program's thread that calls the graph.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import NamedTuple

from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import is_tensor

_ATTRIBUTES = ("_dynamo_propagated_dynamic_indices", "_dynamo_weak_dynamic_indices")
"""The attributes that AOTAutograd sets; older versions of torch set the second one."""


class Mark(NamedTuple):
    """An attribute of a tensor that a graph has changed."""

    tensor: object
    name: str
    before: frozenset[int]
    """The marked dimensions before the graph's first call with this tensor."""


class OwnMarks:
    """The marks that one graph has left on its inputs. Does not keep the tensors alive."""

    def __init__(self) -> None:
        self._before: dict[tuple[int, str], tuple[weakref.ref[object], frozenset[int]]] = {}

    def present(self, inputs: Sequence[object]) -> list[Mark]:
        """Return the marks of ``inputs`` before a call; none if no size is an input, since then all are constants."""
        if not any(type(each) is int for each in inputs):
            return []
        return [
            Mark(each, name, frozenset(getattr(each, name, ())))
            for each in inputs
            if is_tensor(each)
            for name in _ATTRIBUTES
        ]

    def take(self, before: Sequence[Mark]) -> tuple[Mark, ...]:
        """Return the inputs' marks to undo in a replay, after a call that found the marks ``before``."""
        self._before = {key: known for key, known in self._before.items() if known[0]() is not None}
        found = []
        for tensor, name, marked in before:
            key = id(tensor), name
            if key not in self._before and getattr(tensor, name, marked) != marked:
                self._before[key] = weakref.ref(tensor), marked
            if key in self._before:
                found.append(Mark(tensor, name, self._before[key][1]))
        return tuple(found)
