"""Wraps other packages' functions while a feature needs them; our failures never reach the program.

``Patches`` are the hooks of one feature. All hooks of a function share one wrapper, whichever features they belong to.
Removing the last hook removes the wrapper. A wrapper adds one frame to the stack.

If other code has replaced a wrapped function meanwhile, its function stays, and our wrapper inside it only passes calls
on. The next hook wraps the function that is installed then.

A hook that raises an ``Exception`` switches its feature off for the life of the process. The program's call continues
as if there were no hook. Any other ``BaseException`` is meant for the caller, and passes: ``TraceIsOver`` ends a
replay. Hooks run on the thread that calls the function; any thread installs and removes them.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple, ParamSpec, TypeVar

from dynamo_dap.debuggee.wrapping.locks import Level, reentrant_lock
from dynamo_dap.debuggee.wrapping.weak_collections import WeakSet

P = ParamSpec("P")
R = TypeVar("R")


class Outcome(NamedTuple):
    """How a call of the original ended."""

    result: Any
    error: BaseException | None = None


class Given(NamedTuple):
    """Replaces the arguments for the original."""

    arguments: tuple[object, ...]
    named: dict[str, object]


class Result(NamedTuple):
    """Replaces the result for the caller."""

    value: Any


class Refusal(BaseException):
    """Raised by a hook: the call must fail with an error for the program."""

    def __init__(self, error: Exception) -> None:
        """Raise ``error`` to the caller."""
        super().__init__()
        self.error = error


Around = Callable[..., Generator[Given | None, Outcome, Result | None]]
"""Gets the call's arguments, yields once where the original runs, and may return another result.

A generator that returns before it yields answers the call instead of the original.
"""


def answering(value: object) -> Generator[None, Outcome, Result]:
    """Answer a call with ``value``, as a hook around it."""
    yield from ()
    return Result(value)


reporters: list[Callable[[str], None]] = []
"""Each gets a line for the user when a feature is switched off, while the exception is handled."""
_lock = reentrant_lock("patches", Level.PATCHES, is_new_in_forks=True)
_groups: WeakSet[Patches] = WeakSet()


class Patches:
    """The hooks of one feature."""

    def __init__(self, feature: str, on_failure: Callable[[], None] | None = None) -> None:
        """Call the feature ``feature`` in messages; ``on_failure`` cleans up when the feature is switched off."""
        self.feature = feature
        self.is_off = False
        """Whether one of its hooks failed."""
        self._on_failure = on_failure
        self._hooks: list[tuple[_Place, object]] = []
        _groups.add(self)

    @property
    def is_installed(self) -> bool:
        """Whether it has any hook."""
        return bool(self._hooks)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its hooked functions."""
        return tuple(str(place.name) for place, _ in self._hooks)

    def before(self, owner: object, name: str | int, hook: Callable[..., object]) -> None:
        """Call ``hook`` with the arguments before each call of ``owner.name``.

        ``owner`` is a module, a class, or a list or dictionary of functions. A hook of a class method gets the class
        first.
        """
        self._add(owner, name, _Hook(self, hook))

    def after(self, owner: object, name: str | int, hook: Callable[..., object]) -> None:
        """Call ``hook`` with result and arguments after each call of ``owner.name`` that returns."""
        self._add(owner, name, _Hook(self, hook, is_after=True))

    def around(self, owner: object, name: str | int, hook: Around) -> None:
        """Run ``hook`` around each call of ``owner.name``: see ``Around``."""
        self._add(owner, name, _Around(self, hook))

    @contextlib.contextmanager
    def meanwhile(self, owner: object, name: str | int, hook: Around) -> Iterator[None]:
        """Run ``hook`` around each call of ``owner.name`` while the context lasts."""
        added = self._add(owner, name, _Around(self, hook))
        try:
            yield
        finally:
            with _lock:
                if added is not None and added in self._hooks:
                    self._hooks.remove(added)
                    added[0].remove(added[1])

    def replace(self, owner: object, name: str, value: object) -> None:
        """Set ``owner.name`` to ``value``, which is not a function."""
        if not self.is_off:
            with _lock:
                place = _place_of(owner, name, _Value)
                place.add(value)
                self._hooks.append((place, value))

    def guarded(self, function: Callable[P, R], otherwise: R) -> Callable[P, R]:
        """Return ``function`` for other code to call: a failure returns ``otherwise``, and switches the feature off."""

        @functools.wraps(function)
        def guarded(*arguments: P.args, **named: P.kwargs) -> R:
            if self.is_off:
                return otherwise
            try:
                return function(*arguments, **named)
            except Exception:  # noqa: BLE001  (a failure of ours must not become one of the program)
                self.fail()
                return otherwise

        return guarded

    def remove(self) -> None:
        """Remove its hooks; harmless when there are none."""
        with _lock:
            while self._hooks:
                place, hook = self._hooks.pop()
                place.remove(hook)

    def fail(self) -> None:
        """Switch the feature off because of the exception being handled."""
        if self.is_off:
            return
        self.is_off = True
        self.remove()
        error = sys.exc_info()[1]
        reported = "" if error is None else f" ({type(error).__name__})"
        for report in list(reporters):
            report(f"dynamo-dap: switched off {self.feature}, which failed{reported}; the program continues")
        if self._on_failure is not None:
            try:
                self._on_failure()
            except Exception:  # noqa: BLE001  (the program must not notice our failure)
                for report in list(reporters):
                    report(f"dynamo-dap: {self.feature} could not be switched off completely")

    def _add(self, owner: object, name: str | int, hook: _Hook) -> tuple[_Place, object] | None:
        if self.is_off:
            return None
        with _lock:
            place = _place_of(owner, name, _Function)
            place.add(hook)
            self._hooks.append((place, hook))
            return place, hook


def all_patches() -> Iterator[Patches]:
    """Return the hooks of every feature of this process."""
    yield from list(_groups)


def calling_frame() -> types.FrameType:
    """Return the frame that called the wrapped function; for hooks."""
    frame = sys._getframe(1)
    while frame.f_code is not _WRAPPER and frame.f_back is not None:
        frame = frame.f_back
    return frame if frame.f_back is None else frame.f_back


# -- hooks -------------------------------------------------------------------------------------------------------------


class _Hook:
    """A function to call before or after the original, which its exceptions do not reach."""

    def __init__(self, patches: Patches, call: Callable[..., Any], *, is_after: bool = False) -> None:
        self.patches = patches
        self.call = call
        self.is_after = is_after


class _Running(NamedTuple):
    """A hook that has begun, and ends with the original."""

    end: Callable[[Outcome], Result | None]
    given: Given | None


class _Around(_Hook):
    """A generator to run around the original."""

    def begin(self, arguments: tuple[object, ...], named: dict[str, Any]) -> _Running | Result | None:
        """Run it until it yields; return its answer to the call if it does not."""
        try:
            generator = self.call(*arguments, **named)
            given = next(generator)
        except StopIteration as answered:
            answer: Result | None = answered.value
            return answer
        except Exception:  # noqa: BLE001  (the program must not notice our failure)
            self.patches.fail()
            return None
        return _Running(functools.partial(self._end, generator), given)

    def _end(self, generator: Generator[object, Outcome, Result | None], outcome: Outcome) -> Result | None:
        try:
            generator.send(outcome)
        except StopIteration as ended:
            result: Result | None = ended.value
            return result
        except Exception:  # noqa: BLE001  (the program must not notice our failure)
            self.patches.fail()
        return None


class _Call:
    """One call of a wrapped function."""

    __slots__ = ("_running", "answer", "given")

    def __init__(self, hooks: tuple[_Around, ...], arguments: tuple[object, ...], named: dict[str, object]) -> None:
        """Run the hooks before the original."""
        self._running: list[_Running] = []
        self.given = Given(arguments, named)
        self.answer: Result | None = None
        """The result for the caller, if the original must not run."""
        try:
            for hook in hooks:
                begun = hook.begin(*self.given)
                if isinstance(begun, Result):
                    self.answer = begun
                    break
                if begun is not None:
                    self._running.append(begun)
                    self.given = begun.given or self.given
        except Refusal as refusal:
            self.raised(refusal.error)
            raise refusal.error from None
        except BaseException as error:
            self.raised(error)
            raise

    def raised(self, error: BaseException) -> None:
        """Inform the hooks that the call fails."""
        while self._running:
            self._running.pop().end(Outcome(None, error))

    def returned(self, result: object) -> object:
        """Inform the hooks that the original returned; return the caller's result."""
        while self._running:
            changed = self._running.pop().end(Outcome(result))
            if changed is not None:
                result = changed.value
        return result


# -- where they are ----------------------------------------------------------------------------------------------------


class _Place:
    """The object at ``owner.name``, an attribute or an item."""

    def __init__(self, owner: object, name: str | int) -> None:
        self._owner: object = owner
        self.name: Any = name
        self._before: object = None
        """The original; ``_INHERITED`` if the owner has it from a base class."""
        self._ours: object = _NOTHING

    def add(self, hook: Any) -> None:
        """Add a hook."""
        raise NotImplementedError

    def remove(self, hook: Any) -> None:
        """Remove a hook."""
        raise NotImplementedError

    def _now(self) -> Any:
        if isinstance(self._owner, list | dict):
            return self._owner[self.name]
        return vars(self._owner).get(self.name, _INHERITED)

    def _put(self, value: object) -> None:
        if isinstance(self._owner, list | dict):
            self._owner[self.name] = value
        elif value is _INHERITED:
            delattr(self._owner, self.name)
        else:
            setattr(self._owner, self.name, value)

    def _restore(self) -> None:
        if self._now() is self._ours:
            self._put(self._before)
        del _places[id(self._owner), self.name]


_NOTHING = object()
_INHERITED = object()
_places: dict[tuple[int, str | int], _Place] = {}
"""Places with a wrapper or a replaced value, by ``id`` of the owner and name."""


class _Function(_Place):
    """A function, and its wrapper while there are hooks."""

    def __init__(self, owner: object, name: str | int) -> None:
        super().__init__(owner, name)
        self._hooks = _Hooks()

    def add(self, hook: _Hook) -> None:
        """Wrap the function, and add a hook to those that the wrapper runs."""
        now = self._now()
        if now is not self._ours:
            self._before = now
            found = getattr(self._owner, self.name) if now is _INHERITED else now
            # Other code may have wrapped our wrapper, which must not run the hooks as well.
            self._hooks = self._hooks.moved()
            kind = type(found) if isinstance(found, staticmethod | classmethod) else None
            wrapped = _wrapper(found if kind is None else found.__func__, self._hooks)
            self._ours = wrapped if kind is None else kind(wrapped)
            self._put(self._ours)
        self._hooks.set((*self._hooks.all, hook))

    def remove(self, hook: _Hook) -> None:
        """Remove a hook; with the last one, restore the function."""
        self._hooks.set(tuple(each for each in self._hooks.all if each is not hook))
        if not self._hooks.all:
            self._restore()


class _Hooks:
    """The hooks of one wrapper."""

    def __init__(self) -> None:
        self.set(())

    def set(self, hooks: tuple[_Hook, ...]) -> None:
        """Set the hooks, in order."""
        self.all = hooks
        self.around = tuple(hook for hook in hooks if isinstance(hook, _Around))
        plain = [hook for hook in hooks if not isinstance(hook, _Around)]
        self.before = tuple(hook for hook in plain if not hook.is_after)
        self.after = tuple(hook for hook in plain if hook.is_after)

    def moved(self) -> _Hooks:
        """Return the same hooks for another wrapper; this one only passes calls on."""
        moved = _Hooks()
        moved.set(self.all)
        self.set(())
        return moved


def _wrapper(original: Any, hooks: _Hooks) -> Any:
    @functools.wraps(original, updated=() if isinstance(original, type) else functools.WRAPPER_UPDATES)
    def wrapped(*arguments: object, **named: object) -> object:
        # Calls of hooks stand here, since wrappers run thousands of times in a compile.
        for before in hooks.before:
            try:
                before.call(*arguments, **named)
            except Exception:  # noqa: BLE001  (a failure of ours must not become one of the program)
                before.patches.fail()
        if not hooks.around:
            result = original(*arguments, **named)
        else:
            call = _Call(hooks.around, arguments, named)
            if call.answer is None:
                try:
                    result = original(*call.given.arguments, **call.given.named)
                except BaseException as error:
                    call.raised(error)
                    raise
            else:
                result = call.answer.value
            result = call.returned(result)
        for after in hooks.after:
            try:
                after.call(result, *arguments, **named)
            except Exception:  # noqa: BLE001  (the program must not notice our failure)
                after.patches.fail()
        return result

    return wrapped


_WRAPPER: types.CodeType = _wrapper(lambda: None, _Hooks()).__code__


class _Value(_Place):
    """A value that is replaced as long as any feature needs it."""

    def __init__(self, owner: object, name: str | int) -> None:
        super().__init__(owner, name)
        self._values: list[object] = []

    def _now(self) -> object:
        # Settings of torch are not plain attributes of their module.
        return getattr(self._owner, self.name)

    def add(self, hook: object) -> None:
        """Replace the present value."""
        if not self._values:
            self._before = self._now()
        self._values.append(hook)
        self._set(hook)

    def remove(self, hook: object) -> None:
        """Restore the earlier value, if the present one is still ours."""
        self._values.remove(hook)
        if not self._values:
            self._restore()
        elif self._now() is self._ours:
            self._set(self._values[-1])

    def _set(self, value: object) -> None:
        self._put(value)
        self._ours = self._now()


def _place_of(owner: object, name: str | int, kind: type[_Place]) -> _Place:
    key = id(owner), name
    place = _places.get(key)
    if place is None:
        place = _places[key] = kind(owner, name)
    return place
