"""Finds the first stage of the compiler that makes a result wrong, and the wrong part of that stage.

The stages and their order are those of ``dynamo-dap bisect``. The caller runs each of them on a call's graph. Runs on
the thread that makes the call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from dynamo_dap.debuggee.torch_api.compiles.backends import (
    STAGES,
    aot_eager,
    aot_eager_decomposed,
    is_inductor,
    name_of,
)
from dynamo_dap.debuggee.torch_api.compiles.disabled_parts import wrong_part
from dynamo_dap.protocol.requests.comparisons import JudgedStage

AOT_AUTOGRAD = "AOTAutograd"
DECOMPOSITION = "decomposition"
DYNAMO = "Dynamo"
"""The stages before the backend itself. ``DECOMPOSITION`` is AOTAutograd with Inductor's own decompositions."""
_BISECTED = {AOT_AUTOGRAD: "aot_eager", DECOMPOSITION: "aot_eager_decomp_partition"}
"""The stages' names in ``bisect``."""


def stages_before(backend: object) -> list[tuple[str, Callable[..., object]]]:
    """Return the name of each stage before ``backend``, in order, with a backend that ends after the stage."""
    if STAGES.problem is not None:
        return []
    stages = [(AOT_AUTOGRAD, aot_eager())]
    if is_inductor(backend):
        stages.append((DECOMPOSITION, aot_eager_decomposed()))
    return stages


@dataclass(frozen=True)
class Ladder:
    """The result of a search for the first wrong stage."""

    stage: str | None
    """The first wrong stage; None for the backend itself."""
    judged: tuple[JudgedStage, ...]
    """The tried stages, in order."""

    @property
    def runs(self) -> list[str]:
        """The names of the stages that were run, as evidence of a verdict."""
        known = {name: stage for stage, name in _BISECTED.items()}
        return [known[each.name] for each in self.judged if each.right is not None and each.name in known]


def ladder(backend: object, is_right: Callable[[Callable[..., object]], bool]) -> Ladder:
    """Find the first stage that makes a call wrong, in the order of ``dynamo-dap bisect``.

    ``is_right`` runs a backend and returns whether its result is right; ``backend`` itself is wrong.
    """
    judged = []
    for stage, earlier in stages_before(backend):
        right: bool | None = None
        # A stage that raises is not judged; the next stage includes it.
        with contextlib.suppress(Exception):
            right = is_right(earlier)
        judged.append(JudgedStage(_BISECTED[stage], right))
        if right is False:
            return Ladder(stage, tuple(judged))
    return Ladder(None, (*judged, JudgedStage(name_of(backend), False)))


def part_at_fault(
    backend: Callable[..., object], stage: str | None, is_right: Callable[[Callable[..., object]], bool]
) -> str | None:
    """Return the wrong decomposition, pass or lowering in ``stage``, as ``dynamo-dap bisect`` names it, or None.

    ``is_right`` runs a backend and returns whether its result is right.
    """
    if not is_inductor(backend) or stage == AOT_AUTOGRAD:
        return None
    name, tried = ("inductor", backend) if stage is None else (_BISECTED[DECOMPOSITION], aot_eager_decomposed())
    return wrong_part(name, lambda: is_right(tried))
