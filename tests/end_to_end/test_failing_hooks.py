"""Each hook of ours raises once, in one program: its output stays as it is, and one line names what is off.

The program runs itself once for each hook. The hooks are those that a session with breakpoints of every mode, filters,
the record and the stages installs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from dynamo_dap.protocol.contract import EXCEPTION_FILTERS, LOWERING
from dynamo_dap.protocol.types import SourceBreakpoint
from tests.client import Session
from tests.end_to_end.test_cached_calls import program_of

PROGRAM = """
import sys
import torch
from torch import nn

torch.manual_seed(0)

def fused(x):
    return (x * 2).sin() + 1  # @lowered

def broken(x):
    y = x.cos()  # @traced
    torch._dynamo.graph_break()
    return y + 1  # @resumed

def bad(x):
    raise ValueError("the program's own")

def trained(x, layer):
    hidden = layer(x)  # @gradient
    return hidden.sigmoid().sum()

def traces():
    layer = nn.Linear(4, 4)
    with torch.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.fill_(0.1)
    breaks, train = torch.compile(broken, backend="aot_eager"), torch.compile(trained, backend="aot_eager")
    lines = [breaks(torch.ones(size)).tolist() for size in (3, 3, 5)]
    for _ in range(2):
        layer.zero_grad()
        train(torch.ones(2, 4), layer).backward()
        lines.append(layer.weight.grad.tolist())
    try:
        torch.compile(bad, backend="eager")(torch.ones(2))
    except ValueError as error:
        lines.append(repr(error))
    return lines

def stages():
    compiled = torch.compile(fused)
    return [compiled(torch.ones(8)).tolist() for _ in range(2)]

def run(scenario):
    torch.compiler.reset()
    return scenario()
"""

ALONE = """
for line in run(traces) + run(stages):
    print(line)
"""

BREAKING_EACH = """
import gc, json
from dynamo_dap.debuggee.launch.process_agent import known_agent
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
    add(self, owner, name, hook)

def controlled_guarded(self, function, otherwise):
    name = getattr(function, "__name__", type(function).__name__)
    return guarded(self, controlled((self.feature, name), function), otherwise)

def rearm():
    for group in patches.all_patches():
        group.is_off = False
    agent._take_hooks_out()
    agent.arm()

patches.Patches._add, patches.Patches.guarded = controlled_add, controlled_guarded
log, *others = patches.reporters
patches.reporters[:] = [*others, lines.append]
rearm()
expected, keys, results = {}, {}, []
for scenario in (traces, stages):
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
for line in expected[traces] + expected[stages]:
    print(line)
"""


def test_a_hook_that_raises_switches_its_feature_off_and_the_program_goes_on(session: Session, tmp_path: Path) -> None:
    alone = tmp_path / "alone.py"
    alone.write_text(PROGRAM + ALONE, encoding="utf-8")
    undebugged = subprocess.run(
        [sys.executable, str(alone)], capture_output=True, text=True, timeout=300, check=True
    ).stdout
    program, told = program_of(PROGRAM + BREAKING_EACH, tmp_path), tmp_path / "told.json"
    # ``explore`` is off by default: its hooks are looked at, too.
    with session.launching(program, args=[str(told)], explore=True):
        never = {"condition": "False"}
        session.set_breakpoints(
            program,
            SourceBreakpoint(line=program.line("traced"), **never),
            SourceBreakpoint(line=program.line("resumed"), mode="run-time", **never),
            SourceBreakpoint(line=program.line("lowered"), mode=LOWERING, **never),
            SourceBreakpoint(line=program.line("gradient"), mode="backward", **never),
        )
        filters = [{"filterId": name, **never} for name in EXCEPTION_FILTERS]
        session.request("setExceptionBreakpoints", {"filters": [], "filterOptions": filters})
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == undebugged
    results, last = json.loads(told.read_text(encoding="utf-8"))
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
