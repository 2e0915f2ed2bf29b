"""Reads and sets a compiled call's conditions besides its arguments: backend, modes, changed settings.

The thread that makes the call, or is held in its trace, reads them. The thread that replays a saved call sets them.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from dynamo_dap.debuggee.torch_api.compiles.compilation import unwrapped_backend
from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.torch_settings import CONFIGS

_BACKENDS = "torch._dynamo:list_backends"
_RUNNING = "torch._guards:TracingContext"
_OPTIMIZED = "torch._dynamo.eval_frame:OptimizedModule"

BACKENDS = Feature("the backend of a saved call", _BACKENDS)
AMBIENT = Feature("the modes that a call began with", _RUNNING)
OPTIMIZED = Feature("compiled modules in saved calls", _OPTIMIZED)

_DEVICES = ("cpu", "cuda")


def backend_of(function: Any) -> tuple[object, dict[str, object]]:
    """Return the backend, by name if it is registered, and Inductor's options."""
    function = unwrapped_backend(function)
    name = getattr(function, "compiler_name", None) or getattr(function, "__name__", None)
    if type(function).__name__ == "_TorchCompileWrapper" and not function.kwargs:
        function = function.compiler_fn  # the argument of torch.compile, or the backend of that name
    known = BACKENDS.resolve(_BACKENDS)(None) if BACKENDS.problem is None else []
    options = getattr(function, "config", None)
    is_own = str(getattr(function, "__module__", "torch")).partition(".")[0] in ("torch", "functorch")
    if name in known and is_own:
        return name, dict(options) if isinstance(options, dict) else {}
    return function, {}


def plain_module(value: Any) -> object:
    """Return the original of a module that ``torch.compile`` made, or None."""
    if OPTIMIZED.problem is None and type(value) is OPTIMIZED.resolve(_OPTIMIZED):
        return value._modules["_orig_mod"]
    return None


def plain_function(value: object) -> tuple[object, bool] | None:
    """Return the function behind torch's wrapper, and whether the wrapper disables compiling; else None."""
    names = getattr(value, "__dict__", {})
    inner = names.get("_torchdynamo_orig_callable")
    return None if inner is None else (inner, bool(names.get("_torchdynamo_disable")))


def modes() -> dict[str, str]:
    """Return torch's modes and defaults at the beginning of the call, by name."""
    torch = sys.modules["torch"]
    found = {
        "grad": str(_at_the_beginning("grad_enabled", torch.is_grad_enabled())),
        "inference": str(torch.is_inference_mode_enabled()),
        "default dtype": str(torch.get_default_dtype()),
        "default device": str(torch.get_default_device()),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
    }
    for device in _DEVICES:
        kept = "cpu" if device == "cpu" else "gpu"
        enabled = "autocast_cpu_enabled" if device == "cpu" else "autocast_enabled"
        if _at_the_beginning(enabled, torch.is_autocast_enabled(device)):
            found[f"autocast {device}"] = str(
                _at_the_beginning(f"autocast_{kept}_dtype", torch.get_autocast_dtype(device))
            )
    return found


def _at_the_beginning(name: str, now: object) -> object:
    """Return a mode at the beginning of the trace, or ``now`` outside of a trace: tracing changes modes."""
    context = AMBIENT.resolve(_RUNNING).try_get() if AMBIENT.problem is None else None
    state = {} if context is None else context.global_context.global_state
    return state[name][1] if name in state else now


def enter_modes(modes: Mapping[str, str], enter: Callable[[Any], object]) -> None:
    """Set modes and defaults; pass those that are context managers to ``enter``.

    Raises:
        ValueError: torch has no such mode or value.
    """
    torch = sys.modules["torch"]
    # Set inference mode first: it changes the grad mode as well.
    for name, text in sorted(modes.items(), key=lambda item: item[0] != "inference"):
        kind, _, device = name.partition(" ")
        if kind == "autocast":
            enter(torch.autocast(device, dtype=_named_of_torch(text)))
        elif name == "grad":
            torch.set_grad_enabled(text == "True")
        elif name == "inference":
            enter(torch.inference_mode(text == "True"))
        elif name == "default dtype":
            torch.set_default_dtype(_named_of_torch(text))
        elif name == "default device":
            torch.set_default_device(text if text != "cpu" else None)
        elif name == "float32 matmul precision":
            # Setting it also changes each backend's precision, even to the same value: torch 2.15 guards on those.
            if text != torch.get_float32_matmul_precision():
                torch.set_float32_matmul_precision(text)
        elif name == "deterministic":
            torch.use_deterministic_algorithms(text == "True")
        else:
            raise ValueError(f"no mode of torch is called {name!r}")


def _named_of_torch(text: str) -> object:
    torch = sys.modules["torch"]
    value = getattr(torch, text.removeprefix("torch."), None)
    if not isinstance(value, torch.dtype):
        raise ValueError(f"{text!r} is not a dtype")
    return value


def changed_settings() -> dict[str, object]:
    """Return torch's changed settings by key: ``_dynamo.recompile_limit``."""
    found: dict[str, object] = {}
    for begin, module_name in CONFIGS.items():
        module = sys.modules.get(module_name)
        for name, entry in getattr(module, "_config", {}).items():
            if getattr(entry, "alias", None) or getattr(entry, "deprecated", False) or not hasattr(entry, "default"):
                continue
            now = getattr(module, name, entry.default)
            if now is not entry.default and now != entry.default and not _is_from_environment(entry, now):
                found[f"{begin}.{name}"] = now
    return found


def _is_from_environment(entry: object, now: object) -> bool:
    """Return whether a setting has the value that an environment variable gave it."""
    return getattr(entry, "env_value_default", None) is now


def change_setting(key: str, value: object) -> None:
    """Set one of torch's settings, as the program had it.

    Raises:
        AttributeError: this torch has no such setting.
    """
    begin = max((one for one in CONFIGS if key.startswith(f"{one}.")), key=len, default="")
    if not begin:
        raise AttributeError(f"no setting of torch is called {key!r}")
    __import__(CONFIGS[begin])
    setattr(sys.modules[CONFIGS[begin]], key.removeprefix(f"{begin}."), value)


def is_operator_space(module: types.ModuleType) -> bool:
    """Return whether ``module`` is ``torch.ops`` or a namespace of operators in it, which torch makes as modules."""
    return type(module).__module__ == "torch._ops"


def random_state() -> object:
    """Return the state of torch's generator for the CPU."""
    torch = sys.modules["torch"]
    return torch.get_rng_state()
