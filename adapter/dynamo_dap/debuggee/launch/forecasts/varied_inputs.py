"""Copies the inputs of a compiled call with other sizes and other integers, for forecasts.

A size is named ``x.shape[0]``, an integer argument by its name. Runs on the main thread after the program's end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import CodeType
from typing import Any, NamedTuple

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.cache.guard_lookup import replaced, serving_entry, tensors_in, with_size
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import resume_function
from dynamo_dap.debuggee.torch_api.compiles.compiled_calls import CompiledCall
from dynamo_dap.debuggee.torch_api.declarations import Declaration, DeclaredSize
from dynamo_dap.debuggee.torch_api.objects import Tensor

_COPIED = (dict, tuple, list)
_SCALARS = (int, float, str, bool)


class CannotForecast(Exception):
    """A function or a size cannot be forecast; the text says why."""


class _Size(NamedTuple):
    """A size of a tensor."""

    path: str
    dimension: int
    tensor: Tensor


def integers_in(code: CodeType, names: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the integer arguments of a function, with their values."""
    for name in _arguments(code):
        if type(names.get(name)) is int:
            yield name, names[name]


def _arguments(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


class VariedInputs:
    """The inputs of one compiled call, some of which change."""

    def __init__(
        self, code: CodeType, names: Mapping[str, object], call: CompiledCall | None, varied: Iterable[str]
    ) -> None:
        """Change the sizes and integers ``varied``.

        Raises:
            CannotForecast: the function has no such size.
        """
        self._code = code
        self._names = names
        self._call = call
        self.sizes: dict[str, _Size] = {}
        self.integers: list[str] = []
        tensors = dict(tensors_in(names))
        integers = dict(integers_in(code, names))
        for name in varied:
            path, _, rest = name.rpartition(".shape[")
            dimension = int(rest.rstrip("]")) if rest.rstrip("]").isdigit() else -1
            if name in integers:
                self.integers.append(name)
            elif path in tensors and 0 <= dimension < tensors[path].dim():
                self.sizes[name] = _Size(path, dimension, tensors[path])
            else:
                of_tensors = [f"{path}.shape[{at}]" for path, one in tensors.items() for at in range(one.dim())]
                known = ", ".join([*of_tensors, *integers]) or "none"
                raise CannotForecast(f"it has no size {name}, only {known}")

    @property
    def declared(self) -> list[DeclaredSize]:
        """The changed sizes of tensors."""
        return [DeclaredSize(one.path, one.dimension, one.tensor.dim()) for one in self.sizes.values()]

    @property
    def can_be_called(self) -> bool:
        """Whether the varied sizes and integers were all passed by a call from ordinary Python."""
        if self._call is None or resume_function(self._code) is not None:
            return False
        given = {id(tensor) for _, tensor in tensors_in({"args": self._call.args, "kwargs": self._call.kwargs})}
        return given.issuperset(id(one.tensor) for one in self.sizes.values()) and all(
            self._place(name) is not None for name in self.integers
        )

    def _place(self, name: str) -> int | str | None:
        """Return an integer argument's position in the call, or its keyword; None if unknown."""
        assert self._call is not None
        if name in self._call.kwargs:
            return name
        # A module's ``forward`` also has ``self``.
        for skipped in (0, 1):
            positions = dict(enumerate(self._code.co_varnames[skipped : self._code.co_argcount]))
            if all(self._is_same(positions.get(at), one) for at, one in enumerate(self._call.args)):
                at = next((at for at, each in positions.items() if each == name), None)
                return at if at is not None and at < len(self._call.args) else None
        return None

    def _is_same(self, name: str | None, given: object) -> bool:
        known = self._names.get(name or "")
        # Containers were copied.
        return known is given or (
            type(known) is type(given) and (is_exactly(given, _COPIED) or _is_equal(known, given))
        )

    def serving(self, values: Mapping[str, int], declaration: Declaration | None = None) -> int | None:
        """Return the number of the cache entry that serves these inputs now; None if a call with them compiles."""
        others = self._others(values, declaration)
        names = {name: replaced(one, others) for name, one in self._names.items()}
        return serving_entry(self._code, {**names, **{name: values[name] for name in self.integers}})

    def call(self, values: Mapping[str, int], declaration: Declaration | None = None) -> None:
        """Call the function with these inputs."""
        assert self._call is not None
        others = self._others(values, declaration)
        args = [replaced(one, others) for one in self._call.args]
        kwargs = {name: replaced(one, others) for name, one in self._call.kwargs.items()}
        for name in self.integers:
            place = self._place(name)
            if isinstance(place, int):
                args[place] = values[name]
            elif place is not None:
                kwargs[place] = values[name]
        self._call.function(*args, **kwargs)

    def mark(self, declaration: Declaration) -> None:
        """Mark the tensors of the call itself."""
        for one in self.sizes.values():
            declaration.mark(one.tensor, [one.dimension])

    def _others(self, values: Mapping[str, int], declaration: Declaration | None) -> dict[int, object]:
        wanted: dict[int, tuple[Tensor, dict[int, int]]] = {}
        for name, one in self.sizes.items():
            wanted.setdefault(id(one.tensor), (one.tensor, {}))[1][one.dimension] = values[name]
        made = {}
        for identity, (tensor, sizes) in wanted.items():
            made[identity] = with_size(tensor, sizes)
            if declaration is not None:
                declaration.mark(made[identity], list(sizes))
        return made


def _is_equal(one: object, other: object) -> bool:
    return is_exactly(one, _SCALARS) and bool(one == other)
