"""Sets torch's configs, stance, logs and caches, as environment variables or programs do.

Most settings apply to every thread and override the program's own; their setters return a function that reverts them.
Runs on the thread that imports Dynamo, or on the agent's reader thread. The program's threads report log records.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import difflib
import importlib
import json
import logging
import os
import pkgutil
import re
import shutil
import sys
import tempfile
import types
import typing
from collections.abc import Callable, Collection, Iterator
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.isolation import change_stance
from dynamo_dap.debuggee.torch_api.swaps import Swap
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place

Undo = Callable[[], None]

CONFIGS = {
    "_dynamo": "torch._dynamo.config",
    "_inductor": "torch._inductor.config",
    "_functorch": "torch._functorch.config",
    "compiler": "torch.compiler.config",
    "fx": "torch.fx.config",
    "fx.experimental": "torch.fx.experimental._config",
}
"""By the beginning of a key: torch's module with the setting."""

_STANCE = "torch._dynamo.eval_frame:DynamoStance"
_PARSE_LOGS = "torch._logging._internal:_parse_log_settings"
_INIT_LOGS = "torch._logging._internal:_init_logs"
_SET_LOGS = "torch._logging._internal:_set_log_state"
_GET_LOGS = "torch._logging._internal:_get_log_state"
_HANDLERS = "torch._logging._internal:handlers"
_REGISTRY = "torch._logging._internal:log_registry"
_CLEAR_CACHES = "torch._inductor.utils:clear_caches"
_TRACING_CONTEXT = "torch._guards:TracingContext"

STANCES = Feature('the option "stance"', _STANCE)
LOGS = Feature('the option "torchLogs"', _PARSE_LOGS, _INIT_LOGS, _SET_LOGS, _GET_LOGS, _HANDLERS, _REGISTRY)
CACHES = Feature('the option "cache" once torch is imported', _CLEAR_CACHES)
TRACED_LINES = Feature("the user's line of a message in torch's logs", _TRACING_CONTEXT)


class BadSetting(Exception):
    """A value that torch does not accept; the message says why, and which values it accepts."""


def nearest(name: str, known: Collection[str]) -> str:
    """Return ``; did you mean ...?`` with the names most like ``name``, or an empty text."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    close += [one for one in known if one.rpartition(".")[2] == name.rpartition(".")[2] and one not in close][:3]
    return f"; did you mean {' or '.join(close)}?" if close else ""


# -- configs -----------------------------------------------------------------------------------------------------------


def settings_now() -> dict[str, str]:
    """Return the settings of Dynamo and Inductor that are plain values, as JSON, by name."""
    found = {}
    for module in ("torch._dynamo.config", "torch._inductor.config"):
        if module in sys.modules:
            for name, value in sys.modules[module].get_config_copy().items():
                with contextlib.suppress(TypeError, ValueError):
                    found[f"{module}.{name}"] = json.dumps(value)
    return found


def set_config(key: str, value: object) -> Undo:
    """Set one of torch's settings, such as ``_dynamo.recompile_limit``, whatever the program sets it to.

    Raises:
        BadSetting: torch has no such setting, or it takes another type.
    """
    module, name = _find_config(key)
    entry = module._config[name]
    _check_type(key, entry, getattr(module, name, None), value)
    before = entry.env_value_force
    entry.env_value_force = value
    _forget_hashes(module)

    def undo() -> None:
        entry.env_value_force = before
        _forget_hashes(module)

    return undo


@contextlib.contextmanager
def config_in_thread(key: str, value: object) -> Iterator[None]:
    """Set one of torch's settings for this thread, without torch noting that a setting has changed.

    Raises:
        BadSetting: torch has no such setting.
    """
    module, name = _find_config(key)
    entry = module._config[name]
    override = entry.user_override
    with Swap() as swap:
        if isinstance(override, ContextVar):
            swap.callback(override.reset, override.set(value))
        else:  # in older torch, one value for all threads
            swap.set(entry, "user_override", value)
        yield


def add_to_config(key: str, function: str) -> None:
    """Add a function, named like ``logging.Logger.info``, to a setting of torch that is a set.

    Raises:
        BadSetting: torch has no such setting.
    """
    module, name = _find_config(key)
    getattr(module, name).add(pkgutil.resolve_name(function))


def _find_config(key: str) -> tuple[Any, str]:
    plain = key.removeprefix("torch.").replace("._config.", ".").replace(".config.", ".", 1)
    begin = next((one for one in sorted(CONFIGS, key=len, reverse=True) if plain.startswith(f"{one}.")), None)
    if begin is None:
        known = ", ".join(f'"{one}."' for one in CONFIGS)
        raise BadSetting(
            f'"{key}" is not a setting of torch: it must begin with one of {known}{_nearest_anywhere(key)}'
        )
    try:
        module = importlib.import_module(CONFIGS[begin])
        names: Collection[str] = getattr(module, "_config")  # noqa: B009  (mypy knows of no such attribute)
    except (ImportError, AttributeError):
        raise BadSetting(f'"{key}": this version of torch has no settings that begin with "{begin}."') from None
    name = plain.removeprefix(f"{begin}.")
    if name not in names:
        known_keys = [f"{begin}.{one}" for one in names]
        raise BadSetting(f'torch has no setting "{key}"{nearest(plain, known_keys) or _nearest_anywhere(key)}')
    if not hasattr(names[name], "env_value_force"):  # type: ignore[index]  # a mapping in torch
        raise BadSetting(f'"{key}": this version of torch keeps its settings in another way')
    return module, name


def _nearest_anywhere(key: str) -> str:
    known = []
    for begin, module in CONFIGS.items():
        names = getattr(sys.modules.get(module), "_config", {})
        known += [f"{begin}.{name}" for name in names]
    return nearest(key, known)


def _check_type(key: str, entry: Any, now: object, value: object) -> None:
    kinds = _kinds(entry.value_type) or ({type(now)} if now is not None else set())
    fits = is_exactly(value, kinds) or (type(value) is int and float in kinds)
    if not kinds & {bool, int, float, str} or fits or (value is None and types.NoneType in kinds):
        return
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", types.NoneType: "null"}
    takes = " or ".join(names[kind] for kind in names if kind in kinds)
    raise BadSetting(f'"{key}" is {takes} ({now!r} now), not {value!r}')


def _kinds(declared: object) -> set[type]:
    """Return the types that a declaration names: those of ``bool | None``."""
    parts = typing.get_args(declared) or (declared,)
    return {part for part in parts if isinstance(part, type)}


def _forget_hashes(module: ModuleType) -> None:
    """Drop what each thread has computed from the settings (keys of caches)."""
    names = vars(module)
    for name, default in (("_hash_dirty_var", True), ("_hash_cache_var", None), ("_get_dict_cache_var", None)):
        if isinstance(names.get(name), ContextVar):
            names[name] = ContextVar(f"{module.__name__}.{name}", default=default)
    if isinstance(names.get("_get_dict_dirty_keys_var"), ContextVar):
        names["_get_dict_dirty_keys_var"] = ContextVar(f"{module.__name__}._get_dict_dirty_keys", default=None)
    if "_is_dirty" in names:  # torch before 2.13
        names["_is_dirty"] = True


# -- the stance --------------------------------------------------------------------------------------------------------


def set_stance(name: str) -> Undo:
    """Choose what happens to functions that would be compiled, as ``torch.compiler.set_stance`` does.

    Raises:
        FeatureMissing: this torch has no stances.
    """
    kind = STANCES.resolve(_STANCE)
    wanted = kind(name)
    before = change_stance(wanted)

    def undo() -> None:
        change_stance(before, only_if=wanted)

    return undo


# -- logs --------------------------------------------------------------------------------------------------------------

Logged = Callable[[str, list[Place]], None]
"""Takes a log message as torch formats it, and its possible lines, the likeliest first."""

_LOGS_VARIABLE = "TORCH_LOGS"


def set_logs(settings: str, take: Logged) -> Undo:
    """Log what ``settings`` names, as ``TORCH_LOGS`` would; messages go to ``take``, not to stderr.

    Raises:
        BadSetting: torch has no log of a name in ``settings``.
        FeatureMissing: this torch lacks a name that logs need.
    """
    state = _parsed(settings)
    before = LOGS.resolve(_GET_LOGS)()
    _begin_logs(state)
    for logger in _loggers():
        for handler in [one for one in logger.handlers if _prints(one)]:
            logger.removeHandler(handler)
            ours = _ToConsole(take)
            ours.setFormatter(handler.formatter)
            # Torch treats our handler as its own, and removes it when it sets up its logs again.
            LOGS.resolve(_HANDLERS).add(ours)
            logger.addHandler(ours)
    return lambda: _begin_logs(before)


def _parsed(settings: str) -> object:
    try:
        # Torch caches the result; programs may change the copy.
        return copy.deepcopy(LOGS.resolve(_PARSE_LOGS)(settings))
    except ValueError:
        known = _known_logs()
        names = [name.strip().lstrip("+-") for name in settings.split(",")]
        wrong = [name for name in names if name not in known and not name.startswith("torch")] or names
        hints = "".join(f'torch has no log "{name}"{nearest(name, known)} ' for name in wrong)
        raise BadSetting(f"{hints}(all names: {', '.join(known)})") from None


def _known_logs() -> list[str]:
    registry = LOGS.resolve(_REGISTRY)
    return ["all", *sorted({*registry.log_alias_to_log_qnames, *registry.artifact_names})]


def _begin_logs(state: object) -> None:
    """Set up torch's logs again from ``state``, without torch's environment variable."""
    given = os.environ.pop(_LOGS_VARIABLE, None)
    try:
        LOGS.resolve(_SET_LOGS)(state)
        LOGS.resolve(_INIT_LOGS)()
    finally:
        if given is not None:
            os.environ[_LOGS_VARIABLE] = given


def _loggers() -> list[logging.Logger]:
    registry = LOGS.resolve(_REGISTRY)
    names = {*registry.get_log_qnames(), *registry.get_artifact_log_qnames(), *registry.get_child_log_qnames()}
    return [logging.getLogger(name) for name in names]


def _prints(handler: logging.Handler) -> bool:
    # Torch 2.15 has its own class of handler, which is not a ``StreamHandler``.
    is_stream = hasattr(handler, "stream") and not isinstance(handler, logging.FileHandler)
    return is_stream and handler in LOGS.resolve(_HANDLERS)


class _ToConsole(logging.Handler):
    """Passes on log messages instead of printing them."""

    def __init__(self, take: Logged) -> None:
        super().__init__(logging.DEBUG)
        self._take = take

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            self._take(text, [*_places_in(text), *_traced_lines(), Place(record.pathname, record.lineno, 1)])
        except Exception:  # noqa: BLE001  (a program must not fail because of its logs)
            self.handleError(record)


_IN_STACK = re.compile(r'File "(?P<path>[^"]+)", line (?P<line>\d+)')


def _places_in(text: str) -> list[Place]:
    """Return the lines of the stacks in a text, innermost first."""
    found = [Place(match["path"], int(match["line"]), 1) for match in _IN_STACK.finditer(text)]
    return found[::-1]


def _traced_lines() -> list[Place]:
    """Return the lines that this thread is tracing, innermost first."""
    if TRACED_LINES.problem is not None:
        return []
    context = TRACED_LINES.resolve(_TRACING_CONTEXT)
    if context.try_get() is None:
        return []
    return [Place(frame.filename, frame.lineno or 1, 1) for frame in reversed(context.extract_stack())]


# -- caches ------------------------------------------------------------------------------------------------------------

_CACHE_VARIABLES = {"TORCHINDUCTOR_CACHE_DIR": "", "TRITON_CACHE_DIR": "triton"}
"""By environment variable: the folder inside the cache to which it is set."""


def begin_fresh_cache() -> Undo:
    """Use a new cache folder from now on, which is removed at the end of the process."""
    folder = tempfile.mkdtemp(prefix="dynamo-dap-cache-")
    process = os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == process else None)
    before = {name: os.environ.get(name) for name in _CACHE_VARIABLES}
    for name, below in _CACHE_VARIABLES.items():
        os.environ[name] = os.path.join(folder, below) if below else folder
    _forget_caches()

    def undo() -> None:
        for name, value in before.items():
            with contextlib.suppress(KeyError):
                del os.environ[name]
            if value is not None:
                os.environ[name] = value
        _forget_caches()

    return undo


def _forget_caches() -> None:
    """Clear torch's caches in memory."""
    if "torch._inductor.utils" in sys.modules and CACHES.problem is None:
        CACHES.resolve(_CLEAR_CACHES)()
