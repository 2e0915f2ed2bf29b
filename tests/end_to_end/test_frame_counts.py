"""Whatever a session sets, Dynamo's counters in the program are the same as without a debugger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.protocol.requests.contract import BACKWARD, COMPILE_TIME, EXCEPTION_FILTERS, LOWERING, RUN_TIME
from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.client import Session
from tests.client.environments import alone
from tests.end_to_end.test_cached_calls import program_of

PROGRAM = """
import contextlib
import gc
import logging
import threading
import weakref

import torch
import torch._inductor.config
from torch import nn
from torch._dynamo.utils import counters, get_compilation_metrics

torch.manual_seed(0)
torch._inductor.config.force_disable_caches = True
net = nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

@contextlib.contextmanager
def doubled():
    yield 2

def loss_of(x):
    hidden = net(x)  # @hidden
    hidden = hidden.sigmoid()  # @squash
    return hidden.sum()

def train_step(x):
    optimizer.zero_grad()  # @zero
    loss = loss_of(x)  # @loss
    loss.backward()  # @backward
    optimizer.step()  # @step
    return loss.detach()

def broken(x):
    y = x.cos()  # @before
    print("between")
    with doubled() as times:
        y = y * times  # @after
    return y + 1

def collecting(x):
    gc.collect()  # what died until now is found inside a compiled function
    return x + 1  # @collected

def fused(x):
    return (x * 2).sin() + 1  # @lowered

class Event:
    pass

def main():
    train, breaks = torch.compile(train_step, backend="aot_eager"), torch.compile(broken, backend="eager")
    collects, low = torch.compile(collecting, backend="eager"), torch.compile(fused, backend=BACKEND)
    for number in range(4):
        print(number, train(torch.ones(2, 4)).item())
        size = 3 + number % 3
        print(breaks(torch.ones(size)).tolist(), collects(torch.ones(size)).tolist(), low(torch.ones(size)).tolist())
        threads = [threading.Thread(target=collects, args=(torch.ones(7),)) for _ in range(2)]
        for thread in threads:
            thread.start()
            thread.join()
    print(dict(counters["frames"]))
    print(dict(counters["stats"]))
    print({name: dict(found) for name, found in counters.items()})
    for metrics in get_compilation_metrics():
        print(metrics.compile_id, metrics.co_name, metrics.is_forward)

main()
"""


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("condition", marks=pytest.mark.long),
        pytest.param("hit count", marks=pytest.mark.long),
        "log message",
    ],
)
def test_dynamo_counts_as_without_a_debugger(kind: str, session: Session, tmp_path: Path) -> None:
    program = program_of(PROGRAM.replace("BACKEND", "'inductor'" if kind == "condition" else "'aot_eager'"), tmp_path)
    plain = alone(program.path, timeout=300).stdout
    assert "'ok': " in plain
    options: dict[str, Any] = {
        "condition": {"condition": "False"},
        "hit count": {"hit_condition": "> 100000"},
        "log message": {"log_message": "{sorted(locals())}"},
    }[kind]
    names = ("hidden", "squash", "zero", "loss", "backward", "step", "before", "after", "collected", "lowered")
    modes = (None, COMPILE_TIME, RUN_TIME, LOWERING, BACKWARD)
    with session.launching(program):
        wanted = [SourceBreakpoint(line=program.line(name), mode=mode, **options) for name in names for mode in modes]
        session.set_breakpoints(program, *wanted)
        functions = [{"name": name, "condition": "False"} for name in ("loss_of", "train_step", "broken", "fused")]
        session.request("setFunctionBreakpoints", {"breakpoints": functions})
        filters = [{"filterId": name, "condition": "False"} for name in EXCEPTION_FILTERS]
        session.request("setExceptionBreakpoints", {"filters": [], "filterOptions": filters})
    assert session.wait_for_exit(deadline=300) == 0
    assert session.output("stdout") == plain
