"""``dynamo_dap.record()`` in real programs: what it reports, when it records, and that nothing of it stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.client import Fixture, Session
from tests.client.zygote import python

USES = '''
import asyncio, threading
import dynamo_dap, torch

def helper(x):
    print("in it")
    return x + 1

class Model(torch.nn.Module):
    def forward(self, x, n):
        return helper(x) * n

def skipped(x):
    with torch.no_grad():
        torch._dynamo.graph_break()
    return x

model = torch.compile(Model(), backend="eager")
with dynamo_dap.record() as made:
    assert (made.compiles, made.graphs, made.breaks, made.recompiles, made.skips) == ((), (), (), (), ())
    model(torch.ones(3), 1)
    early = made.graphs
    model(torch.ones(4), 2)
    assert len(made.graphs) > len(early), "each look tells what is known by then"

(found,) = made.breaks
assert (found.function, found.path, found.line, found.source) == ("helper", __file__, 6, 'print("in it")'), found
assert found.reason == "Failed to trace builtin operator" and "print" in found.hints[0], found
again = next(one for one in made.recompiles if one.function == "Model.forward")
(failed,) = again.failed
assert failed.text == "size 0 of x was 3 and is 4" and "size mismatch" in failed.guard, failed
assert (failed.then, failed.now) == ("3", "4"), failed
assert again.seconds and sum(one.seconds for one in made.compiles) == made.seconds
assert {one.state for one in made.compiles} == {"compiled"} and {one.backend for one in made.compiles} == {"eager"}
assert "x + 1" in {one.function: one for one in made.graphs}["helper"].code
assert made.findings[0].where == "program.py:6", made.findings
assert found in made.breaks and hash(found), "values can be compared and kept"
assert 'program.py:6  graph break in helper' in str(made) and '    print("in it")' in str(made)
assert "\\n    hint (not tried): " in str(made)

# In Jupyter, which asks for it, it is a table; what the program is made of is text in it.
table = made._repr_html_()
assert "<table" in table and "print(&quot;in it&quot;)" in table and "program.py:6" in table, table
assert "Failed to trace builtin operator" in table and "<script" not in table
assert "what to do (not tried)" in table, table

# What runs outside is not in it, and a second time inside continues with it.
compiles = len(made.compiles)
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
assert len(made.compiles) == compiles
with made, dynamo_dap.record() as inner:
    torch.compile(lambda x: x + 2, backend="eager")(torch.ones(3))
    with made:
        pass
    torch.compile(lambda x: x + 3, backend="eager")(torch.ones(3))
assert len(made.compiles) == compiles + 2 and len(inner.compiles) == 2

# Ids begin again; functions that are skipped; compiles of another thread.
torch.compiler.reset()
with dynamo_dap.record() as made:
    torch.compile(skipped, backend="eager")(torch.ones(3))
    torch.compiler.reset()
    thread = threading.Thread(target=lambda: torch.compile(skipped, backend="eager")(torch.ones(3)))
    thread.start()
    thread.join()
ids = [one.id for one in made.compiles]
assert len(set(ids)) == len(ids) >= 2 and "#2" in ids[-1], ids

# An exception passes, and what was until then is there.
try:
    with dynamo_dap.record() as made:
        torch.compile(helper, backend="eager", fullgraph=True)(torch.ones(3))
except Exception as error:
    assert type(error).__name__ == "Unsupported", error
(one,) = made.compiles
assert one.state == "failed" and "fullgraph=True" in " ".join(made.breaks[0].details), made
assert made.breaks[0].source == 'print("in it")'

@dynamo_dap.record
def step(n):
    """Doc."""
    return torch.compile(lambda x: x * n, backend="eager")(torch.ones(3)).sum().item()

made = dynamo_dap.record()

@made
async def wait():
    await asyncio.sleep(0)
    torch.compile(lambda x: x - 1, backend="eager")(torch.ones(3))

assert (step(2), step(3)) == (6.0, 9.0) and len(step.record.compiles) == 2
assert (step.__name__, step.__doc__) == ("step", "Doc.")
asyncio.run(wait())
assert len(made.compiles) == 1
try:
    made(lambda: (yield))
except TypeError as error:
    assert "generators" in str(error)

# Inside of what is compiled it breaks the graph, and records what comes after.
def within(x):
    x = x + 1
    with dynamo_dap.record() as made:
        y = torch.compile(lambda x: x * 5, backend="eager")(x)
    return y, made

value, made = torch.compile(within, backend="eager")(torch.ones(1))
assert value.item() == 10.0
print("all is well")
'''

NOTHING_STAYS = '''
import atexit, sys, threading
import dynamo_dap
paths = list(sys.meta_path)
with dynamo_dap.record() as unused:
    pass
assert sys.meta_path == paths and "torch" not in sys.modules

with dynamo_dap.record() as early:
    assert "torch" not in sys.modules
    import torch
    import torch._dynamo
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
assert len(early.graphs) == 1 and early.problem is None
assert sys.meta_path == paths

def state():
    """Everything that can be hooked: what torch's modules and their classes have, and the interpreter's own hooks."""
    found = {}
    hookable = lambda one: callable(one) or isinstance(one, (staticmethod, classmethod, property))
    for name, module in list(sys.modules.items()):
        if name.startswith(("torch._dynamo", "torch._functorch", "torch._guards", "torch.fx", "torch._inductor")):
            for key, value in list(vars(module).items()):
                if hookable(value):
                    found[name, key] = value
                for inner, one in list(vars(value).items()) if isinstance(value, type) else ():
                    if hookable(one):
                        found[name, key, inner] = one
                    elif inner == "dispatch_table":
                        found[name, key, inner] = list(one)
    found["config"] = {key: repr(value) for key, value in torch._dynamo.config.get_config_copy().items()}
    found["others"] = sys.gettrace(), sys.getprofile(), threading.active_count(), atexit._ncallbacks()
    found["hooks"] = tuple(sys.meta_path), sys.excepthook, sys.displayhook, sys.stdout, sys.stderr
    return found

graphs = []
def backend(graph, inputs):
    graphs.append(graph.print_readable(print_output=False))
    return graph.forward

def f(x, n):
    if x.sum() > 0:
        x = x * 2
    return torch.nn.functional.relu(x) * n

def run():
    torch.compiler.reset()
    graphs.clear()
    compiled = torch.compile(f, backend=backend)
    values = [compiled(torch.ones(3 + n), n).tolist() for n in range(3)]
    entries = torch._dynamo.eval_frame._debug_get_cache_entry_list(f.__code__)
    return values, list(graphs), [(str(one.guard_manager), one.code.co_code) for one in entries]

first = run()  # what torch makes at its first use is there then
before = state()
plain = run()
with dynamo_dap.record() as made:
    recorded = run()
after = state()
assert len(before) > 5000 and ("torch._dynamo.convert_frame", "_compile") in before
changed = [key for key in before if key not in after or (before[key] is not after[key] and before[key] != after[key])]
assert not changed, changed
assert len(made.graphs) == len(recorded[1]) == len(plain[1]) > 2
assert recorded[0] == plain[0] and recorded[1] == plain[1]
import re
def neutral(entries):
    return re.sub(r"0x[0-9a-f]+|\\b\\d{9,}\\b", "N", str([guards for guards, _ in entries]))
assert len(recorded[2]) == len(plain[2]) and neutral(recorded[2]) == neutral(plain[2])
print("nothing stays")
'''

DEBUGGED = """
import dynamo_dap
import torch

@torch.compile(backend="eager")
def f(x):
    y = x * 2  #@line
    print("a break")
    return y + 1

for n in range(2):
    with dynamo_dap.record() as made:
        f(torch.ones(2 + n))
    (found,) = made.breaks
    print(len(made.compiles), found.line, found.source)  #@told
"""


def run(command: list[str], program: Path, text: str) -> str:
    """Run a program, which must end well, and return what it prints."""
    program.write_text(text)
    ran = subprocess.run(
        [*command, str(program)], cwd=program.parent, capture_output=True, text=True, timeout=150, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_what_a_program_sees_of_its_compiles(tmp_path: Path) -> None:
    assert run(python(), tmp_path / "program.py", USES).endswith("all is well\n")


def test_nothing_stays_of_it_and_nothing_is_changed(tmp_path: Path) -> None:
    # Not from a warm process: that has torch imported already.
    assert run([sys.executable], tmp_path / "program.py", NOTHING_STAYS).endswith("nothing stays\n")


def test_in_a_program_that_is_debugged(session: Session, tmp_path: Path) -> None:
    """It sees the same as in one that is not, and the session its stops, on the second call of it too."""
    program = Fixture(tmp_path / "program.py")
    program.path.write_text(DEBUGGED)
    session.launch(program, "line", "told")
    for _ in range(2):
        session.wait_for_stop(at="line")
        reported = session.continue_to_stop(at="told").frame
        assert reported.evaluate("len(made.compiles), made.breaks[0].source, made.problem", "repl").text == (
            "(2, 'print(\"a break\")', None)"
        )
        session.resume()
    assert session.wait_for_exit() == 0
