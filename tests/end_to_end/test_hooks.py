"""If one of our hooks raises, only its feature is turned off; Dynamo traces none of our hooks.

A session with breakpoints of every mode, filters, the record and the stages installs the hooks.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from dynamo_dap.protocol.requests.contract import EXCEPTION_FILTERS, LOWERING, RECORDS_VARIABLE
from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.client import Fixture, Session
from tests.client.environments import alone, own_command
from tests.client.timeline import DEADLINE
from tests.end_to_end.test_cached_calls import program_of

PROGRAM = """
import os
import sys
import tempfile
import torch
from torch import distributed, nn

torch.manual_seed(0)

def fused(x):
    return (x * 2).sin() + 1  # @lowered

def broken(x):
    y = x.cos()  # @traced
    torch._dynamo.graph_break()
    return y + 1  # @resumed

def bad(x):
    raise ValueError("the program's own")

@torch.library.custom_op("program::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@doubled.register_fake
def like(x):
    return torch.empty_like(x)

def trained(x, layer):
    hidden = layer(x)  # @gradient
    return hidden.sigmoid().sum()

def traces():
    layer = nn.Linear(4, 4)
    with torch.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.fill_(0.1)
    breaks, train = torch.compile(broken, backend="eager"), torch.compile(trained, backend="aot_eager")
    lines = [breaks(torch.ones(size)).tolist() for size in (3, 3, 5)]
    for _ in range(2):
        layer.zero_grad()
        train(torch.ones(2, 4), layer).backward()
        lines.append(layer.weight.grad.tolist())
    lines.append(torch.compile(lambda x: doubled(x), backend="eager")(torch.ones(2)).tolist())
    try:
        torch.compile(bad, backend="eager")(torch.ones(2))
    except ValueError as error:
        lines.append(repr(error))
    return lines

def stages():
    compiled = torch.compile(fused)
    return [compiled(torch.ones(8)).tolist() for _ in range(2)]

def groups():
    store = os.path.join(tempfile.mkdtemp(), "store")
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    tensor = torch.ones(2)
    distributed.all_reduce(tensor)
    distributed.destroy_process_group()
    return [tensor.tolist()]

def run(scenario):
    torch.compiler.reset()
    return scenario()
"""

ALONE = """
for line in run(traces) + run(stages) + run(groups):
    print(line)
"""

BREAKING_EACH = """
import json, logging
from dynamo_dap.debuggee.launch.starting.process_agent import known_agent
from dynamo_dap.debuggee.torch_api.devices import group_timeouts
from dynamo_dap.debuggee.wrapping import patches

target, met, lines = None, {}, []
agent = known_agent()

class Broken(Exception):
    pass

def controlled(key, call):
    def hook(*arguments, **named):
        met[key] = met.get(key, 0) + 1
        if key == target:
            raise Broken
        return call(*arguments, **named)
    return hook

add, guarded = patches.Patches._add, patches.Patches.guarded

def controlled_add(self, owner, name, hook):
    hook.call = controlled((self.feature, str(name)), hook.call)
    return add(self, owner, name, hook)

def controlled_guarded(self, function, otherwise):
    name = getattr(function, "__name__", type(function).__name__)
    return guarded(self, controlled((self.feature, name), function), otherwise)

def rearm():
    for group in patches.all_patches():
        group.is_off = False
    client, agent.client = agent.client, None
    agent._set_hooks()
    agent.client = client
    agent.update_hooks()
    group_timeouts._hooks.remove()
    group_timeouts._begin()

patches.Patches._add, patches.Patches.guarded = controlled_add, controlled_guarded
log, *others = patches.reporters
patches.reporters[:] = [*others, lines.append]
logging.getLogger("dynamo_dap.agent").disabled = True
rearm()
expected, keys, results = {}, {}, []
for scenario in (traces, stages, groups):
    met.clear()
    expected[scenario] = run(scenario)
    assert expected[scenario] == run(scenario)
    for key in sorted(met):
        keys.setdefault(key, scenario)
for target, scenario in keys.items():
    met.clear()
    lines.clear()
    results.append([*target, run(scenario) == expected[scenario], met.get(target, 0) > 0, list(lines)])
    rearm()
target = None
last = run(traces) == expected[traces]
with open(sys.argv[1], "w") as file:
    json.dump([results, last], file)
for line in expected[traces] + expected[stages] + expected[groups]:
    print(line)
"""


@pytest.mark.long
def test_a_hook_that_raises_switches_its_feature_off_and_the_program_continues(
    session: Session, tmp_path: Path
) -> None:
    other = tmp_path / "alone.py"
    other.write_text(PROGRAM + ALONE, encoding="utf-8")
    undebugged = alone(other).stdout
    program, reported = program_of(PROGRAM + BREAKING_EACH, tmp_path), tmp_path / "told.json"
    # ``explore`` is off by default, but its hooks are checked as well.
    with session.launching(program, args=[str(reported)], explore=True):
        modes = {"traced": None, "resumed": "run-time", "lowered": LOWERING, "gradient": "backward"}
        _set_all(session, program, modes)
    assert session.wait_for_exit(deadline=800) == 0
    assert session.output("stdout") == undebugged
    results, last = json.loads(reported.read_text(encoding="utf-8"))
    wrong = [f"{feature}: {name}: {lines}" for feature, name, same, met, lines in results if not (same and met)]
    assert not wrong, "\n".join(wrong)
    wrong = [
        f"{feature}: {name}: {lines}"
        for feature, name, _, _, lines in results
        if len(lines) != 1 or feature not in lines[0]
    ]
    assert not wrong, "\n".join(wrong)
    assert last
    assert len(results) >= 20
    for _, _, _, _, lines in results:
        assert lines[0] in session.output()
    names = {name for _, name, _, _, _ in results}
    assert {"_on_gradients", "_on_returned", "_new_process_group_helper"} <= names


CHILDREN = """
import subprocess
import sys
import torch
from dynamo_dap.debuggee.launch.children import recorded_run

def fails(*_):
    raise RuntimeError("of a hook")

recorded_run.debugged_command = fails
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
for _ in range(2):
    subprocess.run([sys.executable, "child.py", "an argument"], check=True)
"""


def test_children_start_although_our_hook_fails(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(CHILDREN, encoding="utf-8")
    (tmp_path / "child.py").write_text("import sys\nprint(sys.argv[1])\n", encoding="utf-8")
    ran = subprocess.run(
        [*own_command(), "run", "program.py"],
        cwd=tmp_path,
        env={**os.environ, RECORDS_VARIABLE: str(tmp_path / "records")},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "an argument\n" * 2), ran.stderr
    assert ran.stderr.count("switched off recording of child processes") == 1


TRAINING = """
import functools
import torch
from torch import nn
from torch._dynamo.symbolic_convert import InstructionTranslatorBase

run, traced = InstructionTranslatorBase.run, set()

@functools.wraps(run)
def noting(translator):
    traced.add(translator.f_code.co_filename)
    return run(translator)

InstructionTranslatorBase.run = noting
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

def loss_of(x):
    hidden = net(x)  # @traced
    return hidden.sum()  # @gradient

@torch.compile(backend="aot_eager")
def train_step(x):
    optimizer.zero_grad()
    loss = loss_of(x)  # @resumed
    loss.backward()
    optimizer.step()
    return loss.detach()

forward = torch.compile(loss_of, backend="aot_eager")
for _ in range(3):
    print(train_step(torch.ones(2, 4)).item())
for _ in range(3):
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        forward(torch.ones(2, 4)).backward()
    print(net[0].weight.grad.sum().item())
torch._dynamo.config.compiled_autograd = True
whole = torch.compile(lambda x: loss_of(x).backward(), backend="aot_eager")
for _ in range(2):
    whole(torch.ones(2, 4))
print(sorted(name for name in traced if "dynamo_dap" in name))
print(len(traced) > 3)
"""


def test_dynamo_traces_nothing_of_ours(session: Session, tmp_path: Path) -> None:
    """The programs have compiled train steps, and backward passes under compiled autograd."""
    program = program_of(TRAINING, tmp_path)
    plain = alone(program.path)
    with session.launching(program):
        _set_all(session, program, {"traced": None, "resumed": "run-time", "gradient": "backward"})
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == plain.stdout
    assert plain.stdout.endswith("[]\nTrue\n")
    # Torch's warnings contain times, so only their number is compared.
    assert len(session.output("stderr").splitlines()) == len(plain.stderr.splitlines())


CONTEXT_MANAGERS = """
import contextlib
import torch
from torch._dynamo.utils import counters

@contextlib.contextmanager
def factor():
    yield 2

@torch.compile(backend="eager")
def skipped(x):
    with torch.device("cpu"):  # @traced
        y = x + 1
    with factor() as times:
        return y * times

print(skipped(torch.ones(2)).tolist(), dict(counters["frames"]))
"""


def test_functions_of_the_library_that_both_use_are_compiled_as_without_us(session: Session, tmp_path: Path) -> None:
    """All functions of ``contextmanager``, ours and the program's, share one code object."""
    program = program_of(CONTEXT_MANAGERS, tmp_path)
    plain = alone(program.path)
    with session.launching(program):
        _set_all(session, program, {"traced": None})
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == plain.stdout


def _set_all(session: Session, program: Fixture, places: dict[str, str | None]) -> None:
    """Set breakpoints and every filter, so that none of them stops."""
    never = {"condition": "False"}
    breakpoints = [
        SourceBreakpoint(line=program.line(place), mode=mode, condition="False") for place, mode in places.items()
    ]
    session.set_breakpoints(program, *breakpoints)
    filters = [{"filterId": name, **never} for name in EXCEPTION_FILTERS]
    session.request("setExceptionBreakpoints", {"filters": [], "filterOptions": filters})
