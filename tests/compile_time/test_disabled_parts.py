"""Which part of a compile is called wrong, if compiles without some parts raise."""

from __future__ import annotations

import pytest
from torch._inductor.compiler_bisector import CompilerBisector

from dynamo_dap.debuggee.torch_api.compiles.disabled_parts import wrong_part

PART = "post_grad_passes"


@pytest.mark.parametrize(("raises", "blamed"), [(False, "fourth"), (True, None)])
def test_a_part_without_which_nothing_compiles_is_not_called_wrong(raises: bool, blamed: str | None) -> None:
    def is_right() -> bool:
        left_out = [CompilerBisector.disable_subsystem("inductor", PART, lambda name=name: name) for name in NAMES]
        if raises and left_out[3]:
            raise RuntimeError("needs the fourth pass")
        return left_out[3]

    part = wrong_part("inductor", is_right)
    assert part is None if blamed is None else blamed in str(part)


NAMES = ("first", "second", "third", "fourth", "fifth")
