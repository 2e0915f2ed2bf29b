"""Every VariableTracker class has a readable text, or is shown by its name: never an exception or a repr."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo.variables
from torch._dynamo.variables.base import VariableTrackerMeta

from dynamo_dap.debuggee.torch_api.traced.trace_state import reachable_trackers
from dynamo_dap.debuggee.torch_api.traced.trackers.readers import reader_names
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import is_tracker
from dynamo_dap.debuggee.trace.traced_view import TracedView
from dynamo_dap.debuggee.values.model import Value
from tests.compile_time.observation import observe
from tests.compile_time.programs import PROGRAMS, closures, encoder_layer, functions
from tests.compile_time.watching import EachLine

REFERENCE = torch.__version__.startswith("2.13.")
_RAW = re.compile(r" at 0x[0-9a-f]+|cannot be shown|Variable\(")
"""Text that must not appear: an object's default repr, our message for an exception, a tracker's repr."""


def all_classes() -> list[type]:
    """Return every tracker class of this torch, including those in modules that are not imported yet."""
    package = torch._dynamo.variables
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return [cls for cls in VariableTrackerMeta.all_subclasses if cls.__module__.startswith("torch.")]


def in_a_trace(look: Callable[[Any], None]) -> None:
    """Call ``look`` once inside a trace."""
    called: list[int] = []

    def once(frame: Any) -> None:
        if not called:
            called.append(1)
            look(frame)

    observe(closures, watch=once)
    assert called


def shown_parts(value: Value) -> list[str]:
    """Return the texts of a value and of its children."""
    children = value.children
    if children is None:
        return [value.text]
    below = [*children.named(), *children.indexed(0, 10)]
    return [value.text, *(variable.value.text for variable in below)]


@pytest.mark.timeout(600)
def test_what_programs_make_is_readable() -> None:
    """Collect the trackers at every line of the programs, and inspect some of each class."""
    texts: dict[str, set[str]] = {}

    def look(frame: Any) -> None:
        view = TracedView(frame)
        for tracker in reachable_trackers(frame.translator):
            if not is_tracker(tracker):
                continue
            seen = texts.setdefault(type(tracker).__name__, set())
            if len(seen) < 20:
                seen.update(shown_parts(view.value(tracker)))

    for program in PROGRAMS:
        if program not in (encoder_layer, functions):
            observe(program, watch=EachLine(look))
    raw = {name: [text for text in seen if _RAW.search(text)] for name, seen in texts.items()}
    assert not {name: found for name, found in raw.items() if found}
    if REFERENCE:
        assert len(texts) >= 100, sorted(texts)


def test_an_empty_tracker_of_every_class_falls_back() -> None:
    """If a class lacks the fields that its reader expects, as in another torch version, its name is shown."""
    texts: dict[str, str] = {}

    def look(frame: Any) -> None:
        view = TracedView(frame)
        for cls in all_classes():
            bare: Any = object.__new__(cls)
            bare.__dict__.update(source=None, mutation_type=None)
            texts[cls.__name__] = " ".join(shown_parts(view.value(bare)))

    in_a_trace(look)
    assert len(texts) >= 200
    assert not {name: text for name, text in texts.items() if not text.strip() or _RAW.search(text)}


@pytest.mark.skipif(not REFERENCE, reason="the names are those of the reference version")
def test_every_reader_is_for_a_class_that_exists() -> None:
    """With a typo in the table, a class would silently count as unknown."""
    known = {cls.__name__ for cls in all_classes()}
    assert set(reader_names()) - known <= OF_LATER_VERSIONS


OF_LATER_VERSIONS = {"ByteArrayBuiltinVariable"}


@pytest.mark.skipif(not REFERENCE, reason="counted for the reference version")
def test_most_classes_are_read_by_more_than_their_name() -> None:
    """Only a few classes, which users rarely meet, have no reader."""
    names = set(reader_names())
    unread = {cls.__name__ for cls in all_classes() if not names & {base.__name__ for base in cls.__mro__}}
    assert unread <= READ_BY_NAME


READ_BY_NAME = {
    "AutogradFunctionApplyVariable",
    "BackwardHookVariable",
    "BaseBuiltinVariable",
    "BaseUserFunctionVariable",
    "CreateTMADescriptorExperimentalVariable",
    "CreateTMADescriptorStableVariable",
    "InspectSignatureVariable",
    "IteratorVariable",
    "LazyConstantVariable",
    "LazyVariableTracker",
    "SDPAParamsVariable",
    "TMADescriptorExperimentalVariable",
    "TMADescriptorStableVariable",
    "TreeMapOnlyFunctionVariable",
    "UserDefinedVariable",
    "VariableTracker",
}
