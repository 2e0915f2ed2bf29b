"""Applies the session's options for torch, such as ``stance`` and ``torchLogs``, and reverts them at its end.

The agent's reader thread sets options. If Dynamo is not imported yet, the thread that imports it applies them later.
There is one ``TorchOptions`` per agent.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from dynamo_dap.debuggee.agent.engine import BadOption
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.user_code import is_debugger_file, is_torch_file, is_user_file
from dynamo_dap.debuggee.torch_api.compiles.chosen_compiles import CHOSEN
from dynamo_dap.debuggee.torch_api.features import FeatureMissing
from dynamo_dap.debuggee.torch_api.import_hooks import is_dynamo_imported, when_all_of_dynamo_is_imported
from dynamo_dap.debuggee.torch_api.torch_settings import (
    BadSetting,
    begin_fresh_cache,
    nearest,
    set_config,
    set_logs,
    set_stance,
)
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place
from dynamo_dap.debuggee.wrapping.locks import Level, reentrant_lock
from dynamo_dap.protocol.requests.options import (
    CACHES,
    COMPILING_OPTIONS,
    DEFAULT_STANCE,
    EAGER_ON_RECOMPILE,
    FAIL_ON_RECOMPILE,
    STANCES,
    CompilingOptions,
)
from dynamo_dap.protocol.wire.types import OutputEventBody, Source

_APPLIED_BEFORE_IMPORT = "cache"
"""The option that works without torch: it sets environment variables."""


class TorchOptions:
    """The session's options for torch."""

    def __init__(self, send_event: Callable[[str, object], None], report: Callable[[str, str], None]) -> None:
        """Send DAP events by ``send_event``; ``report`` prints a text in a category of output."""
        self._send_event = send_event
        self._report = report
        self._options = CompilingOptions()
        self._undo: dict[str, Callable[[], None]] = {}
        """The function that reverts each applied option, by the option's name."""
        self._is_waiting = self._is_imported = False
        self._lock = reentrant_lock("options of torch", Level.SETTINGS)

    def begin(self, options: CompilingOptions) -> None:
        """Begin with a session's options."""
        self.close()
        self._options = options
        given = [name for name in COMPILING_OPTIONS if self._given(name)]
        if _APPLIED_BEFORE_IMPORT in given:
            self._apply_and_report(_APPLIED_BEFORE_IMPORT)
        if given and given != [_APPLIED_BEFORE_IMPORT]:
            self._apply_when_imported()

    def close(self) -> None:
        """Revert all options at the end of the session: torch's settings are the program's own again."""
        with self._lock:
            self._options = CompilingOptions()
            for name in list(self._undo):
                self._revert(name)

    def report_unused(self) -> None:
        """Report options that had no effect, just before the program ends."""
        for problem in CHOSEN.unmatched():
            self._report_problem(problem)

    def change(self, name: str, value: msgspec.Raw | None) -> str:
        """Set an option to ``value``, as in launch.json, and return its present value as text.

        If ``value`` is None, only return the present value; if ``name`` is empty, those of all options.

        Raises:
            BadOption: the option does not exist, or the value is invalid; nothing was changed.
        """
        if not name:
            return "\n".join(self._text(known) for known in COMPILING_OPTIONS)
        if name not in COMPILING_OPTIONS:
            known = ", ".join(COMPILING_OPTIONS)
            raise BadOption(
                f'"{name}" is not an option that can be changed here{nearest(name, COMPILING_OPTIONS)} ({known})'
            )
        if value is not None:
            self._change(name, value)
        return self._text(name)

    def _change(self, name: str, value: msgspec.Raw) -> None:
        before = self._options
        self._options = _with(before, name, value)
        with self._lock:
            try:
                self._apply(name)
            except (BadOption, BadSetting, FeatureMissing) as problem:
                self._options = before
                self._apply_and_report(name)
                raise BadOption(str(problem)) from None

    def _text(self, name: str) -> str:
        value = self._given(name)
        written = msgspec.json.encode(value).decode() if value else "the program's own"
        waits = value and name not in self._undo
        return f"{name}: {written}{' (when the program has imported Dynamo)' if waits else ''}"

    # -- applying ----------------------------------------------------------------------------------------

    def _given(self, name: str) -> object:
        """Return an option's value; a false one if the user has not set it."""
        return getattr(self._options, COMPILING_OPTIONS[name])

    def _apply_when_imported(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            when_all_of_dynamo_is_imported(self._on_imported)

    def _on_imported(self) -> None:
        # This runs at the end of the import: Python does not count the module as imported yet.
        self._is_waiting, self._is_imported = False, True
        for name in COMPILING_OPTIONS:
            if name not in self._undo and self._given(name):
                self._apply_and_report(name)

    def _apply_and_report(self, name: str) -> None:
        try:
            self._apply(name)
        except (BadOption, BadSetting, FeatureMissing) as problem:
            self._report_problem(str(problem))
        except Exception as error:  # noqa: BLE001  (this may run inside the program's own import of torch)
            log_exception(f"applying the option {name}")
            self._report(f'dynamo-dap: the option "{name}": {type(error).__name__}: {error}\n', "important")

    def _report_problem(self, problem: str) -> None:
        self._report(f"dynamo-dap: {problem}\n", "important")

    def _apply(self, name: str) -> None:
        """Apply the option's present value, at once or when Dynamo is imported."""
        with self._lock:
            self._revert(name)
            value = self._given(name)
            if not value:
                return
            if name != _APPLIED_BEFORE_IMPORT and not (self._is_imported or is_dynamo_imported()):
                self._apply_when_imported()
                return
            self._undo[name] = _APPLY[name](self, value)

    def _revert(self, name: str) -> None:
        undo = self._undo.pop(name, None)
        if undo is not None:
            undo()

    # -- each option -----------------------------------------------------------------------------------------------

    def _apply_compile_only(self, functions: list[str]) -> Callable[[], None]:
        CHOSEN.compile_only(functions)
        return lambda: CHOSEN.compile_only(())

    def _apply_backend(self, backend: str) -> Callable[[], None]:
        CHOSEN.compile_by(backend, None if is_dynamo_imported() else self._report_problem)
        return lambda: CHOSEN.compile_by(None)

    def _apply_stance(self, stance: str) -> Callable[[], None]:
        if stance not in (FAIL_ON_RECOMPILE, EAGER_ON_RECOMPILE):
            return set_stance(stance)
        CHOSEN.recompile(stance)
        return lambda: CHOSEN.recompile(None)

    def _apply_logs(self, settings: str) -> Callable[[], None]:
        return set_logs(settings, self._log)

    def _apply_config(self, config: dict[str, object]) -> Callable[[], None]:
        done: list[Callable[[], None]] = []
        problems = []
        for key, value in config.items():
            try:
                done.append(set_config(key, value))
            except BadSetting as problem:
                problems.append(str(problem))

        def undo() -> None:
            while done:
                done.pop()()

        if problems:
            undo()
            others = ["no other setting of torchConfig was applied"] if len(config) > len(problems) else []
            raise BadOption("\n".join([*problems, *others]))
        return undo

    def _apply_cache(self, kind: str) -> Callable[[], None]:
        return begin_fresh_cache()

    def _log(self, text: str, places: list[Place]) -> None:
        """Print a log message of torch, with a link to the user's line that caused it, else to torch's line."""
        found = next((place for place in places if is_user_file(place.path) and os.path.isfile(place.path)), None)
        at = found or next((one for one in places if is_torch_file(one.path) and not is_debugger_file(one.path)), None)
        source = None if at is None else Source(name=Path(at.path).name, path=at.path)
        line = None if at is None else at.line
        body = OutputEventBody(output=f"{text}\n", category="console", source=source, line=line)
        self._send_event("output", body)


_APPLY: dict[str, Callable[[TorchOptions, Any], Callable[[], None]]] = {
    "compileOnly": TorchOptions._apply_compile_only,
    "stance": TorchOptions._apply_stance,
    "backend": TorchOptions._apply_backend,
    "torchLogs": TorchOptions._apply_logs,
    "torchConfig": TorchOptions._apply_config,
    "cache": TorchOptions._apply_cache,
}


def _with(options: CompilingOptions, name: str, value: msgspec.Raw) -> CompilingOptions:
    """Return ``options`` with one changed to ``value``, as in launch.json; null means the program's own value."""
    given = msgspec.json.decode(msgspec.json.encode(options), type=dict[str, msgspec.Raw])
    given.pop(name, None)
    if bytes(value) != b"null":
        given[name] = value
    names = {encoded: given[encoded] for encoded in COMPILING_OPTIONS if encoded in given}
    try:
        changed = msgspec.json.decode(msgspec.json.encode(names), type=CompilingOptions)
    except msgspec.ValidationError as error:
        raise BadOption(f'"{name}": {str(error).partition(" - at ")[0].lower()}') from None
    for attribute, choices, chosen in (
        ("stance", STANCES, changed.stance or DEFAULT_STANCE),
        ("cache", CACHES, changed.cache or next(iter(CACHES))),
    ):
        if chosen not in choices:
            allowed = ", ".join(f'"{choice}"' for choice in choices)
            raise BadOption(f'"{attribute}" is "{chosen}"; it must be one of {allowed}')
    return changed
