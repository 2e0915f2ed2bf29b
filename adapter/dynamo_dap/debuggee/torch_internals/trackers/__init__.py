"""Dynamo's VariableTrackers, read into a few forms that the rooms above can show and compute with.

``form_of(tx, tracker)`` is the entrance. Runs on the tracing thread.
"""

from dynamo_dap.debuggee.torch_internals.trackers import callables, containers, contexts, iterators, values
from dynamo_dap.debuggee.torch_internals.trackers.registry import form_of

READERS = (callables, containers, contexts, iterators, values)
"""The modules whose import registers the readers."""

__all__ = ["READERS", "form_of"]
