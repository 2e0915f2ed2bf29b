"""Declares sizes dynamic in each way of torch, for trials: marks on tensors, ``dynamic=True``, ``shapes_spec``.

Runs on the thread that calls the compiled function.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from dynamo_dap.debuggee.torch_api.features import Feature

_MARK = "torch._dynamo:mark_dynamic"
_MAYBE_MARK = "torch._dynamo:maybe_mark_dynamic"
_PATCH = "torch._dynamo.config:patch"
DECLARATIONS = Feature("trials of dynamic shapes", _MARK, _MAYBE_MARK, _PATCH)

_SPEC = "torch.fx.experimental.dynamic_spec:ShapesSpec"
_TENSOR = "torch.fx.experimental.dynamic_spec:TensorSpec"
_VARIABLE = "torch.fx.experimental.dynamic_spec:ShapeVar"
SPECS = Feature("trials of shapes_spec", _SPEC, _TENSOR, _VARIABLE)
SPEC_ARGUMENTS = {"_shapes_spec": "shapes_spec", "_dynamic_shapes_spec": "dynamic_shapes"}
"""Dynamo's setting that holds the spec, and the argument of ``torch.compile``: up to torch 2.14, and from 2.15 on."""

_SOURCES = "dynamic_sources"


class DeclaredSize(NamedTuple):
    """A size to make dynamic."""

    path: str
    """The tensor, as the function's code names it: ``x``, ``batch['x']``."""
    dimension: int
    rank: int


class Declaration(NamedTuple):
    """One way to declare sizes dynamic."""

    title: str
    """As the user writes it: ``mark_dynamic(x, 0)``."""
    mark: Callable[[object, Sequence[int]], None]
    """Marks dimensions of a tensor of a call."""
    settings: Callable[[], AbstractContextManager[object]]
    """Entered around each call."""


def marks(sizes: Sequence[DeclaredSize], first: int | None = None, last: int | None = None) -> Declaration:
    """Return ``mark_dynamic``, with a range if one is given."""
    ends = "" if first is None else f", min={first}, max={last}"
    title = "; ".join(f"mark_dynamic({size.path}, {size.dimension}{ends})" for size in sizes)

    def mark(tensor: object, dimensions: Sequence[int]) -> None:
        DECLARATIONS.require()
        for dimension in dimensions:
            DECLARATIONS.resolve(_MARK)(tensor, dimension, min=first, max=last)

    return Declaration(title, mark, contextlib.nullcontext)


def varying(sizes: Sequence[DeclaredSize], integers: Sequence[str]) -> Declaration | None:
    """Return ``maybe_mark_dynamic`` for sizes and ``dynamic_sources`` for integers; None if torch lacks the latter.

    They make the sizes and integers dynamic as far as the function allows, as calls with several sizes would.
    """
    if integers and not hasattr(sys.modules["torch.compiler"].config, _SOURCES):
        return None
    title = "; ".join([*(f"maybe_mark_dynamic({size.path}, {size.dimension})" for size in sizes), *integers])

    def mark(tensor: object, dimensions: Sequence[int]) -> None:
        DECLARATIONS.require()
        for dimension in dimensions:
            DECLARATIONS.resolve(_MAYBE_MARK)(tensor, dimension)

    sources = ",".join(f"L['{name}']" for name in integers)
    return Declaration(title, mark, lambda: _with_sources(sources) if integers else contextlib.nullcontext())


def compiled_as_dynamic() -> Declaration:
    """Return ``dynamic=True``."""
    return Declaration("torch.compile(..., dynamic=True)", _no_marks, lambda: _patched(assume_static_by_default=False))


def specified(sizes: Sequence[DeclaredSize], first: int, last: int) -> Declaration | None:
    """Return ``shapes_spec`` with one variable for all sizes; None if torch or a tensor's place does not support it."""
    setting = _spec_setting()
    if setting is None or SPECS.problem is not None or not all(size.path.isidentifier() for size in sizes):
        return None
    variable = SPECS.resolve(_VARIABLE)("n", min=first, max=last)
    tensors: dict[str, object] = {}
    written = []
    for path in dict.fromkeys(size.path for size in sizes):
        own = [size for size in sizes if size.path == path]
        dynamic = {size.dimension for size in own}
        dimensions = range(own[0].rank)
        tensors[path] = SPECS.resolve(_TENSOR)([variable if each in dynamic else None for each in dimensions])
        written.append(
            f'"{path}": TensorSpec([{", ".join("n" if each in dynamic else "None" for each in dimensions)}])'
        )
    title = f'{SPEC_ARGUMENTS[setting]}={{{", ".join(written)}}} with n = ShapeVar("n", min={first}, max={last})'
    spec = SPECS.resolve(_SPEC)(tensors)
    return Declaration(title, _no_marks, lambda: _patched(**{setting: spec}))


def follows_calls() -> bool:
    """Return whether torch decides from call to call what is dynamic, without ``dynamic=`` and without a spec."""
    config = sys.modules["torch._dynamo.config"]
    return bool(
        getattr(config, "automatic_dynamic_shapes", True)
        and getattr(config, "assume_static_by_default", True)
        and all(getattr(config, setting, None) is None for setting in SPEC_ARGUMENTS)
    )


def _spec_setting() -> str | None:
    config = sys.modules["torch._dynamo.config"]
    return next((setting for setting in SPEC_ARGUMENTS if hasattr(config, setting)), None)


def _no_marks(tensor: object, dimensions: Sequence[int]) -> None:
    """Mark nothing."""


def _with_sources(sources: str) -> AbstractContextManager[None]:
    settings: AbstractContextManager[None] = sys.modules["torch.compiler"].config.patch(**{_SOURCES: sources})
    return settings


@contextlib.contextmanager
def _patched(**settings: object) -> Iterator[None]:
    DECLARATIONS.require()
    with DECLARATIONS.resolve(_PATCH)(**settings):
        yield
