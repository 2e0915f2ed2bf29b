"""Notes Dynamo's in-place changes while it traces: contents, attributes, lazy values, iterators.

A ``Change`` holds the state of one of Dynamo's objects before a change, and swaps it with the present state. Runs on
the tracing thread; lives as long as the log of the trace (``state_log``).
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from operator import length_hint
from typing import Any, Protocol

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.history.traced_bodies import BodyGraph, values_in
from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.objects import Output, SideEffects, Tensor, Tracer, Translator
from dynamo_dap.debuggee.torch_api.swaps import refill
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import fields_of, node_of
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.debuggee.wrapping.patches import Patches

_MUTATION = "torch._dynamo.side_effects:SideEffects.mutation"
_STORE = "torch._dynamo.side_effects:SideEffects.store_attr"
_EFFECTS = "torch._dynamo.side_effects:SideEffects"
_REALIZE = "torch._dynamo.variables.lazy:LazyCache.realize"
_LAZY = "torch._dynamo.variables.lazy:LazyCache"

_TRACKER = "torch._dynamo.variables.base:VariableTracker"
_OUTPUT = "torch._dynamo.output_graph:OutputGraph"
_ADVANCING = frozenset({"next_variable", "tp_iternext_impl"})
"""Methods of trackers that advance an iterator; not all of them report the change to ``SideEffects``."""

STATE_LOG = Feature("going back in a trace", _EFFECTS, _MUTATION, _STORE, _LAZY, _REALIZE, _TRACKER, _OUTPUT)

_OF_THE_PROGRAM = frozenset({"value", "source", "fn", "f_globals", "proxy", "inline_tracer", "mutation_type"})
"""Fields of trackers that hold objects of the program or of torch."""


class ChangeLog(Protocol):
    """Keeps changes."""

    @property
    def is_showing(self) -> bool:
        """Whether an earlier state is shown: changes then do not belong to the trace."""

    def add_change(self, change: Change) -> None:
        """Note an in-place change before it happens."""

    def has_change(self, kind: type, tracker: object) -> bool:
        """Return whether the last change was of this kind and tracker, with no snapshot since."""

    def noted_in(self, tracer: object) -> Iterator[object]:
        """Yield names and value stacks of the snapshots in the body that ``tracer`` traces."""


class Change:
    """The state of one of Dynamo's objects before a change; each ``swap`` exchanges it with the other state."""

    tracker: object = None
    is_realization = False
    """Whether Dynamo realized a lazy value: it read an object of the program for the first time."""
    size = 0
    """How many items of containers were copied."""

    def swap(self) -> None:
        """Exchange the kept state with the object's."""
        raise NotImplementedError

    def trackers(self) -> Iterator[object]:
        """Yield its trackers, and containers of them."""
        return iter(())

    def holders(self) -> Iterator[dict[str, object]]:
        """Yield fields of lazy values, which hold the program's objects."""
        return iter(())


class _MutationChange(Change):
    """A changed object, for which some torch versions note the user's lines."""

    def __init__(self, effects: SideEffects, tracker: object) -> None:
        self.tracker = tracker
        self._stacks: dict[object, list[object]] = getattr(effects, "mutation_user_stacks", _NO_STACKS)
        self._count = len(self._stacks.get(tracker, ()))
        self._later: list[object] | None = None

    def swap(self) -> None:
        stacks = self._stacks.get(self.tracker)
        if stacks is None:
            return
        if self._later is None:
            self._later = stacks[self._count :]
            del stacks[self._count :]
        else:
            stacks.extend(self._later)
            self._later = None


_NO_STACKS: dict[object, list[object]] = {}


class _PastIterator:
    """The position of an iterator over a dictionary or a set, which cannot be copied."""

    def __init__(self, iterator: object) -> None:
        self._kind = type(iterator)
        # An exhausted iterator does not refer to its object.
        self._container = next((each for each in gc.get_referents(iterator) if isinstance(each, dict | set)), None)
        self._remaining = length_hint(iterator)

    def again(self) -> object:
        """Return a new iterator at the position. The dictionary or set must have its old contents again."""
        over = {} if self._container is None else self._container
        views: dict[type, Any] = {_ITERATORS[1]: dict.values, _ITERATORS[2]: dict.items}
        iterator = iter(views.get(self._kind, lambda over: over)(over))
        return iter(()) if self._container is None else _advanced(iterator, len(over) - self._remaining)


_ITERATORS: tuple[type, ...] = (type(iter({})), type(iter({}.values())), type(iter({}.items())), type(iter(set())))


def _advanced(iterator: Any, count: int) -> object:
    for _ in range(count):
        next(iterator)
    return iterator


class _TrackerChange(_MutationChange):
    """A modified tracker: its fields, and the contents of the containers in them."""

    def __init__(self, effects: SideEffects, tracker: object) -> None:
        super().__init__(effects, tracker)
        fields = self._fields = tracker.__dict__
        self._mutation = fields.get("mutation_type")
        self._modified = getattr(self._mutation, "is_modified", None)
        then: dict[str, object] = {}
        contents: list[Any] = []
        goes_through = "Iterator" in type(tracker).__name__  # an iterator's contents belong to another tracker
        for name, value in fields.items():
            if name in _OF_THE_PROGRAM:
                continue
            if is_exactly(value, _CONTAINERS) and not goes_through:
                contents += (value, value.copy())
            then[name] = _PastIterator(value) if is_exactly(value, _ITERATORS) else value
        self._then = then
        self._contents = tuple(contents)
        """Containers, each with a copy."""
        if contents:
            self.size = sum(map(len, contents[1::2]))

    def swap(self) -> None:
        super().swap()
        now, modified = _own_fields(self._fields), getattr(self._mutation, "is_modified", None)
        held = self._contents
        contents = tuple(each for container in held[::2] for each in (container, container.copy()))
        for container, copy in zip(held[::2], held[1::2], strict=True):
            refill(container, copy)
        for name in now.keys() - self._then.keys():
            del self._fields[name]
        self._fields.update(
            (name, value.again() if type(value) is _PastIterator else value) for name, value in self._then.items()
        )
        if modified is not None and self._mutation is not None:
            self._mutation.is_modified = self._modified
        self._then, self._modified, self._contents = now, modified, contents

    def trackers(self) -> Iterator[object]:
        yield self.tracker
        yield self._then
        yield from self._contents[1::2]


_CONTAINERS = frozenset({dict, list, set, deque})


def _own_fields(fields: dict[str, object]) -> dict[str, object]:
    """Return a tracker's fields, except those that hold the program's objects: these fields never change."""
    return {name: value for name, value in fields.items() if name not in _OF_THE_PROGRAM}


class _StoreChange(_MutationChange):
    """An object's pending attributes."""

    def __init__(self, effects: SideEffects, tracker: object) -> None:
        super().__init__(effects, tracker)
        self._pending: dict[object, dict[str, object]] = effects.store_attr_mutations
        self._then = self._now()

    def _now(self) -> dict[str, object] | None:
        pending = self._pending.get(self.tracker)
        return None if pending is None else dict(pending)

    def swap(self) -> None:
        super().swap()
        now = self._now()
        if self._then is None:
            self._pending.pop(self.tracker, None)
        else:
            refill(self._pending.setdefault(self.tracker, {}), self._then)
        self._then = now

    def trackers(self) -> Iterator[object]:
        yield self.tracker
        yield self._then


class _FieldsChange(Change):
    """Replaced fields: a lazy value's when it is realized, a tensor's when a hook is registered on it."""

    def __init__(self, owners: Iterable[object]) -> None:
        fields = [fields_of(each) for each in owners]
        self._owners = (*fields, *map(dict, fields))
        """Each owner's fields, and their copies in the same order."""

    def swap(self) -> None:
        count = len(self._owners) // 2
        for fields, then in zip(self._owners[:count], self._owners[count:], strict=True):
            now = dict(fields)
            refill(fields, then)
            refill(then, now)

    def holders(self) -> Iterator[dict[str, object]]:
        yield from self._owners[len(self._owners) // 2 :]


class _RealizationChange(_FieldsChange):
    is_realization = True


class _BodyChange(_FieldsChange):
    """The end of a higher-order operator's body: torch rebuilds its graph and rebinds its results."""

    def __init__(self, tracers: Sequence[Tracer], noted: Iterable[object]) -> None:
        """Take ``tracers`` of the body and of enclosing bodies, for example an autograd function's forward."""
        super().__init__(values_in(tracers[-1].graph, noted))
        self._graphs = [BodyGraph(each) for each in tracers]

    def swap(self) -> None:
        super().swap()
        self._graphs = [each.swapped() for each in self._graphs]


def _tensors_known_to(effects: SideEffects) -> list[object]:
    """Return the trackers of tensors that the side effects know by identity."""
    return [each for each in effects.id_to_variable.values() if node_of(each) is not None]


class _NameChange(Change):
    """A tensor's node gets the name of the first variable that stores the tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self._fields, self._node = fields_of(tensor), fields_of(tensor)["proxy"].node
        self._then = self._now()

    def _now(self) -> tuple[str, bool]:
        return self._node.name, self._fields["_is_name_set"]

    def swap(self) -> None:
        now = self._now()
        name, self._fields["_is_name_set"] = self._then
        # The node's own ``__setattr__`` would notify listeners for changes of the graph.
        object.__setattr__(self._node, "name", name)
        self._then = now


def _name_change(tensor: Tensor) -> _NameChange | None:
    return None if fields_of(tensor).get("_is_name_set", True) else _NameChange(tensor)


class ChangeHooks:
    """Wrappers that note changes in a log before they happen. One per process, like the methods that they wrap."""

    def __init__(self) -> None:
        self.log: ChangeLog | None = None
        """The running attempt's log; set on the tracing thread."""
        self._lock = lock("hooks of changes", Level.HOOKS)
        self._patches = Patches("the history of traces", self._end)

    def want(self, wanted: bool) -> None:
        """Install or remove the wrappers. Runs on any thread."""
        with self._lock:
            if wanted == self._patches.is_installed or STATE_LOG.problem is not None:
                return
            if not wanted:
                self._end()
                return
            effects, lazy = STATE_LOG.resolve(_EFFECTS), STATE_LOG.resolve(_LAZY)
            self._wrap(effects, "mutation", partial(self._mutation, _TrackerChange))
            self._wrap(effects, "store_attr", partial(self._mutation, _StoreChange))
            # Torch 2.15 has a second kind of lazy values: those computed from lazy ones.
            computed = getattr(sys.modules[lazy.__module__], "ComputedLazyCache", None)
            for cache in (each for each in (lazy, computed) if each is not None):
                self._wrap(cache, "realize", lambda cache: _RealizationChange([cache]))
            tensors = sys.modules["torch._dynamo.variables.tensor"].TensorVariable
            if "set_name_hint" in tensors.__dict__:
                self._wrap(tensors, "set_name_hint", lambda tensor, *_: _name_change(tensor))
            if "_method_register_hook" in tensors.__dict__:
                self._wrap(tensors, "_method_register_hook", lambda tensor, *_: _FieldsChange([tensor]))
            self._wrap(STATE_LOG.resolve(_OUTPUT), "create_node", self._end_of_body)
            for name in [name for name in effects.__dict__ if "runahead" in name]:
                self._wrap(effects, name, lambda effects, inside: _FieldsChange(_tensors_known_to(inside)))
            for kind in _with_subclasses(STATE_LOG.resolve(_TRACKER)):
                for name in _ADVANCING & kind.__dict__.keys():
                    self._wrap(kind, name, self._advance)

    def _mutation(
        self, kind: type[_MutationChange], effects: SideEffects, tracker: object, *_: object, **__: object
    ) -> _MutationChange | None:
        log = self.log
        return None if log is None or log.has_change(kind, tracker) else kind(effects, tracker)

    def _advance(self, tracker: object, tx: Translator) -> _MutationChange | None:
        return self._mutation(_TrackerChange, tx.output.side_effects, tracker)

    def _end_of_body(self, output: Output, kind: str, *_: object) -> _BodyChange | None:
        """Return the change that begins with a body's output node, or None."""
        bodies, log = output.tracers[1:], self.log
        return (
            _BodyChange(bodies, log.noted_in(bodies[-1])) if kind == "output" and bodies and log is not None else None
        )

    def _wrap(self, owner: object, name: str, change: Any) -> None:
        def note(self_: object, *arguments: object, **named: object) -> None:
            log = self.log
            if log is not None and not log.is_showing:
                about_to_change = change(self_, *arguments, *named.values())
                if about_to_change is not None:
                    log.add_change(about_to_change)

        self._patches.before(owner, name, note)

    def _end(self) -> None:
        self._patches.remove()
        self.log = None


def _with_subclasses(kind: Any) -> set[object]:
    return {kind, *(each for child in kind.__subclasses__() for each in _with_subclasses(child))}


CHANGES = ChangeHooks()
