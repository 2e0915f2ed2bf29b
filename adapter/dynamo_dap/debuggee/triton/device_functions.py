"""Implements the functions of libdevice, a library for GPUs that Triton's interpreter lacks, by torch's.

The replacements are installed while a kernel is interpreted, and run on the kernel's thread.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

_MODULE = "triton.language.extra.libdevice"
_RENAMED = {
    "cyl_bessel_i0": "special.i0",
    "cyl_bessel_i1": "special.i1",
    "erfcx": "special.erfcx",
    "j0": "special.bessel_j0",
    "j1": "special.bessel_j1",
    "y0": "special.bessel_y0",
    "y1": "special.bessel_y1",
    "normcdf": "special.ndtr",
    "normcdfinv": "special.ndtri",
    "nearbyint": "round",
    "rint": "round",
    "fabs": "abs",
    "fast_tanhf": "tanh",
    "fast_sinf": "sin",
    "fast_cosf": "cos",
    "fast_expf": "exp",
    "fast_logf": "log",
    "fmax": "fmax",
    "fmin": "fmin",
}
# fmt: off
_SAME_NAME = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos", "cosh", "erf",
    "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "fmod", "hypot", "lgamma", "log", "log10", "log1p", "log2",
    "nextafter", "pow", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)
# fmt: on
_TESTS = {"isnan": "isnan", "isinf": "isinf", "finitef": "isfinite", "isfinited": "isfinite", "signbit": "signbit"}
"""Functions whose results are whole numbers."""
_ROUNDED = ("llrint", "llround")


def device_functions() -> Iterator[tuple[object, str, Callable[..., object]]]:
    """Yield each replacement: the module, the name there, the function."""
    module: object = sys.modules.get(_MODULE)
    torch: Any = sys.modules["torch"]
    if module is None:
        return
    language: Any = sys.modules["triton.language"]
    names = {name: name for name in _SAME_NAME} | _RENAMED | _TESTS | dict.fromkeys(_ROUNDED, "round")
    for name, other in names.items():
        own = torch
        for part in other.split("."):
            own = getattr(own, part, None)
        if own is not None and hasattr(module, name):
            kind = language.int32 if name in _TESTS else language.int64 if name in _ROUNDED else None
            yield module, name, functools.partial(_call, own, kind)
    if hasattr(module, "ldexp"):
        yield module, "ldexp", functools.partial(_call, torch.ldexp, None)


def _call(own: Callable[..., Any], kind: object, *values: object) -> object:
    """Call a torch function on one or more blocks; the result has their broadcast shape."""
    torch = sys.modules["torch"]
    language = sys.modules["triton.language"]
    numpy = sys.modules["numpy"]
    blocks = [value for value in values if isinstance(value, language.tensor)]
    numbers = [value.value if isinstance(value, language.constexpr) else value for value in values]
    dtype = blocks[0].type.scalar
    like = torch.from_numpy(numpy.array(blocks[0].handle.data))
    given = [
        torch.from_numpy(numpy.array(value.handle.data))
        if isinstance(value, language.tensor)
        else torch.as_tensor(value, dtype=like.dtype)
        for value in numbers
    ]
    made = own(*given)
    dtype = dtype if kind is None else kind
    made = made.to(like.dtype if kind is None else torch.int32 if kind == language.int32 else torch.int64)
    first = blocks[0].handle
    shape = list(made.shape)
    is_block = any(one.type.is_block() for one in blocks)
    return language.tensor(type(first)(made.numpy(), dtype), language.block_type(dtype, shape) if is_block else dtype)
