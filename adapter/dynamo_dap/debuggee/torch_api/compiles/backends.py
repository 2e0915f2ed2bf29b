"""Names the backend of a compile, and finds torch's backends that end after an earlier stage.

Runs on any thread, without state.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from dynamo_dap.debuggee.torch_api.features import Feature

_AOT_EAGER = "torch._dynamo.backends.debugging:aot_eager"
_DECOMPOSED = "torch._dynamo.backends.debugging:aot_eager_decomp_partition"

STAGES = Feature("distinguishing AOTAutograd's faults from the backend's", _AOT_EAGER, _DECOMPOSED)


def aot_eager() -> Callable[..., object]:
    """Return torch's backend that ends after AOTAutograd. Raises ``FeatureMissing``."""
    backend: Callable[..., object] = STAGES.resolve(_AOT_EAGER)
    return backend


def aot_eager_decomposed() -> Callable[..., object]:
    """Return torch's backend that ends after AOTAutograd with Inductor's decompositions. Raises ``FeatureMissing``."""
    backend: Callable[..., object] = STAGES.resolve(_DECOMPOSED)
    return backend


def name_of(backend: object) -> str:
    """Return the name by which a backend is passed to ``torch.compile``."""
    name = getattr(backend, "compiler_name", None)
    if isinstance(name, str):
        return name
    inner = getattr(backend, "compiler_fn", backend)
    return str(getattr(inner, "__name__", type(inner).__name__))


def is_inductor(backend: object) -> bool:
    """Return whether a cache entry's backend is Inductor."""
    return name_of(backend) == "inductor"


def draws_its_own_numbers(backend: object) -> bool:
    """Return whether graphs compiled by ``backend`` draw other random numbers than the same operations in eager."""
    config: object = sys.modules.get("torch._inductor.config")
    return is_inductor(backend) and not getattr(config, "fallback_random", False)
