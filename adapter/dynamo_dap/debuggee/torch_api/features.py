"""Declares features that depend on private names of torch, each probed once.

Declared at import time by the modules of this package; probed on whichever thread first asks, after torch's import; the
answers live as long as the process.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import sys
import types
from collections.abc import Mapping
from typing import Any


class FeatureMissing(Exception):
    """This version of torch lacks a private name that a feature needs; the text names both."""


class Feature:
    """A visible feature that needs private names of torch."""

    def __init__(self, name: str, *needs: str, signatures: Mapping[str, tuple[str, ...]] | None = None) -> None:
        """Take ``name``, for users ("stepping while tracing"); ``needs`` are ``module:attribute.path``.

        ``signatures`` are for functions whose hooks take arguments by position: the names of the first parameters.
        """
        self.name = name
        self._needs = needs
        self._signatures = signatures or {}
        assert self._signatures.keys() <= set(needs)
        self._resolved: dict[str, object] | None = None
        self._problem: str | None = None
        _features.append(self)

    @property
    def problem(self) -> str | None:
        """Why the feature is off, as a sentence for the user; None if it works."""
        if self._resolved is None and self._problem is None:
            self._probe()
        return self._problem

    def require(self) -> None:
        """Raise ``FeatureMissing`` when the feature is off."""
        if self.problem is not None:
            raise FeatureMissing(self.problem)

    def resolve(self, need: str) -> Any:
        """Return the object for ``need``, one of the declared needs.

        Raises:
            FeatureMissing: a needed name is missing.
        """
        self.require()
        assert self._resolved is not None
        return self._resolved[need]

    def code_of(self, need: str) -> types.CodeType:
        """Return the code of the function for ``need``, below all wrappers, including ours.

        Raises:
            FeatureMissing: like ``resolve``.
        """
        code: types.CodeType = inspect.unwrap(self.resolve(need)).__code__
        return code

    def _probe(self) -> None:
        resolved: dict[str, object] = {}
        for need in self._needs:
            try:
                resolved[need] = _lookup(need)
            except (ImportError, AttributeError):
                self._problem = f"torch {_torch_version()} has no {need.replace(':', '.')}: {self.name} is off"
                return
        for need, names in self._signatures.items():
            if not _begins_with(resolved[need], names):
                called = need.replace(":", ".")
                self._problem = f"torch {_torch_version()} calls {called} with other arguments: {self.name} is off"
                return
        self._resolved = resolved


_features: list[Feature] = []


def problems() -> list[str]:
    """Probe every declared feature and return a sentence for each that is off. Call when torch has been imported."""
    return [feature.problem for feature in _features if feature.problem is not None]


def needs() -> dict[str, list[str]]:
    """Return the needed names of torch, as ``module:attribute.path``, with the features that need them."""
    found: dict[str, list[str]] = {}
    for feature in _features:
        for need in feature._needs:
            found.setdefault(need, []).append(feature.name)
    return found


def signatures() -> dict[str, tuple[str, ...]]:
    """Return the names of the first parameters of the functions whose hooks take them by position."""
    return {need: names for feature in _features for need, names in feature._signatures.items()}


def owner_of(need: str) -> tuple[object, str]:
    """Return the module or class that has ``need``, and the attribute's name there."""
    module_name, _, path = need.partition(":")
    owner = importlib.import_module(module_name)
    *classes, attribute = path.split(".")
    for name in classes:
        owner = getattr(owner, name)
    return owner, attribute


def _lookup(need: str) -> object:
    module_name, _, path = need.partition(":")
    value = importlib.import_module(module_name)
    for part in filter(None, path.split(".")):
        value = getattr(value, part)
    return value


def _begins_with(function: Any, names: tuple[str, ...]) -> bool:
    """Return whether the function's first parameters have these names, as far as it says which it has."""
    try:
        parameters = list(inspect.signature(inspect.unwrap(function)).parameters.values())
    except (TypeError, ValueError):
        return True
    # The wrapper of other code may take whatever it passes on.
    known = list(itertools.takewhile(lambda each: each.kind is not inspect.Parameter.VAR_POSITIONAL, parameters))
    own = tuple(each.name for each in known[: len(names)])
    return own == (names if len(known) == len(parameters) else names[: len(own)])


def _torch_version() -> str:
    torch = sys.modules.get("torch")
    return str(getattr(torch, "__version__", "(unknown version)"))
