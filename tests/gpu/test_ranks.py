"""Two ranks with NCCL, each on a card of its own; in a rehearsal with gloo, on the CPU."""

from __future__ import annotations

import sys

from tests.client import Fixture
from tests.conftest import NewSession
from tests.eager.test_child_processes import Family
from tests.gpu.needs import DEVICE, needs_generated_code, needs_two_gpus

PROGRAM = Fixture("all_reduced")


@needs_two_gpus
@needs_generated_code
def test_both_ranks_stop_and_their_all_reduce_ends(new_session: NewSession) -> None:
    family = Family(new_session)
    args = ["--standalone", "--nproc-per-node=2", str(PROGRAM.path), DEVICE]
    configuration = {"python": [sys.executable], "module": "torch.distributed.run", "args": args}
    with family.parent.configuring("launch", configuration):
        pass
    children = []
    for _ in range(2):
        family.wait_until_asked()
        with family.child() as child:
            child.set_breakpoints(PROGRAM, "traced")
        children.append(child)
    for _ in range(2):
        for child in children:
            stop = child.wait_for_stop("breakpoint", at="traced")
            assert stop.frame["Locals"]["x"].text.startswith(f"Tensor f32[4] {DEVICE}")
        for child in children:
            child.resume()
    assert family.parent.wait_for_exit() == 0
    printed = family.parent.output("stdout")
    # Rank 0 gives 1, rank 1 gives 3.
    assert all(f"{rank}: [4.0, 4.0, 4.0, 4.0]" in printed for rank in range(2)), printed
