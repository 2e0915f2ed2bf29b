"""A stop reports a graph break if and only if torch's own log has it, in programs of all kinds.

In many programs Dynamo raises its exception for a graph break, but catches it and continues in another way.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.client import Session
from tests.client.session import launch_configuration
from tests.records.programs import BREAKS, PRELUDE, Case
from tests.records.test_graph_break_stops import info_of

WHOLE = [
    Case("concatenated", "key = 'layer.' + name\nreturn x + len(key)", "torch.ones(3), 'a'", "x, name"),
    Case("alias", "kind = list[int]\nreturn x + len(kind([1]))"),
    Case("condition", "return torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (x,))"),
    Case("formatted", "text = f'{name}.{x.shape[0]}'\nreturn x + len(text)", "torch.ones(3), 'a'", "x, name"),
    Case("percent", "text = '%s-%d' % (name, 3)\nreturn x + len(text)", "torch.ones(3), 'a'", "x, name"),
    Case("repeated_text", "text = name * 3\nreturn x + len(text)", "torch.ones(3), 'a'", "x, name"),
    Case(
        "caught_key",
        "try:\n    return x + d['b']\nexcept KeyError:\n    return x - 1",
        "torch.ones(3), {'a': 1}",
        "x, d",
    ),
    Case(
        "caught_attribute",
        "try:\n    return x + o.missing\nexcept AttributeError:\n    return x - 1",
        "torch.ones(3), Thing(1)",
        "x, o",
    ),
    Case("default_attribute", "return x + getattr(o, 'missing', 2)", "torch.ones(3), Thing(1)", "x, o"),
    Case("has_attribute", "return x + 1 if hasattr(o, 'missing') else x", "torch.ones(3), Thing(1)", "x, o"),
    Case("mapped", "return sum(map(lambda n: n * 2, [1, 2]), x)"),
    Case("zipped", "return x + sum(a * b for a, b in zip([1, 2], [3, 4]))"),
    Case(
        "sorted_keys",
        "return x + sum(sorted(d, key=lambda k: d[k])[0] == 'a' for _ in range(2))",
        "torch.ones(3), {'a': 1, 'b': 0}",
        "x, d",
    ),
    Case(
        "while_loop",
        "from torch._higher_order_ops import while_loop\nbegin = (torch.tensor(0), x)\n"
        "return while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t + 1), begin)[1]",
    ),
    Case("vectorized", "return torch.vmap(lambda t: t * 2)(x)"),
    Case("gradient", "return torch.func.grad(lambda t: (t * t).sum())(x)"),
    Case("checkpointed", "return torch.utils.checkpoint.checkpoint(lambda t: t.sin(), x, use_reentrant=False)"),
    Case("typed", "from typing import Optional, Union\nkind = dict[str, Optional[int]]\nreturn x + 1"),
    Case("chained", "import itertools\nreturn x + len(list(itertools.chain([1], [2])))"),
    Case("partial_call", "import functools\nreturn functools.partial(torch.add, x)(1)"),
    Case("named", "import collections\nreturn x + len(collections.OrderedDict([('a', 1)]))"),
    Case("counted", "import collections\nd = collections.defaultdict(list)\nd['a'].append(x)\nreturn d['a'][0] + 1"),
    Case("joined", "import os\nreturn x + len(os.path.join('a', name))", "torch.ones(3), 'b'", "x, name"),
    Case(
        "compared_types",
        "return x + 1 if type(o) is Thing and isinstance(o, (Other, Thing)) else x",
        "torch.ones(3), Thing(1)",
        "x, o",
    ),
    Case("numbers", "return x + (3 @ o if hasattr(o, '__rmatmul__') else 2 ** -1)", "torch.ones(3), Thing(1)", "x, o"),
    Case(
        "comparison_fallback", "return x + (o == 3) + (o != 'a') + (None == x.shape)", "torch.ones(3), Thing(1)", "x, o"
    ),
    Case("sets", "return x + len({1, 2} | {3}) + (2 in {1, 2})"),
    Case("numpy_like", "import math\nreturn x + math.sqrt(x.shape[0]) + math.floor(2.5)"),
    Case("shaped", "return x.view(-1, *x.shape[1:]) + x.new_zeros(x.size())"),
    Case("data_class", "from dataclasses import dataclass, replace\nreturn x + POINT.a", "torch.ones(3)"),
    Case("enumerated", "return x + COLOUR.RED.value + (COLOUR.RED is COLOUR.RED)"),
    Case("super_called", "return x + Derived(2).added()"),
    Case("generator_used", "def numbers():\n    yield 1\n    yield 2\nreturn x + sum(numbers())"),
    Case("context_used", "with torch.no_grad():\n    y = x + 1\nreturn y * 2"),
    Case("autocasted", "with torch.autocast('cpu', dtype=torch.bfloat16):\n    y = x + 1\nreturn y * 2"),
    Case("walked", "return torch.utils._pytree.tree_map(lambda t: t + 1, {'a': [x, x]})['a'][0]"),
    Case("module_called", "return MODULE(x)"),
    Case("sequential", "return SEQUENTIAL(x)"),
    Case("dropped", "return torch.nn.functional.dropout(x, 0.5, training=True)"),
    Case("caught_value", "try:\n    raise ValueError('a')\nexcept ValueError as e:\n    return x + len(e.args)"),
    Case("caught_finally", "try:\n    y = x + 1\nfinally:\n    y = x + 2\nreturn y"),
    Case("suppressed", "import contextlib\nwith contextlib.suppress(KeyError):\n    {}['a']\nreturn x + 1"),
    Case("asserted_true", "assert x.shape[0] == 3, 'three'\nreturn x + 1"),
    Case("int_of_text", "return x + int('3') + float('2.5')"),
    Case(
        "text_methods",
        "return x + len(name.upper().split('.')) + name.startswith('a')",
        "torch.ones(3), 'a.b'",
        "x, name",
    ),
    Case("reversed_list", "return x + list(reversed([1, 2]))[0] + max([1, 2], default=0)"),
    Case("any_all", "return x + any([False, True]) + all(n > 0 for n in (1, 2))"),
    Case(
        "dict_methods",
        "d = {**d, 'z': 1}\nd.update(b=2)\nreturn x + d.pop('a') + d.setdefault('q', 3) + len(d | {'m': 1})",
        "torch.ones(3), {'a': 1}",
        "x, d",
    ),
    Case("star", "a, *b = [1, 2, 3]\nreturn x + a + len(b)"),
    Case(
        "match",
        "match n:\n    case 1:\n        return x + 1\n"
        "    case [a, b]:\n        return x + a\n    case _:\n        return x - 1",
        "torch.ones(3), [1, 2]",
        "x, n",
    ),
    Case("walrus", "return x + (m := 3) + m"),
    Case("closure", "m = 2\ndef add(t):\n    return t + m\nreturn add(x)"),
    Case("tensor_attribute", "return x + x.ndim + x.is_floating_point() + x.numel()"),
    Case("compiled_inner", "return torch.compile(outside, backend='eager')(x)"),
    Case("invoked", "return SUBGRAPH(x) + SUBGRAPH(x + 1)"),
    Case("custom_function", "return DOUBLE.apply(x)"),
    Case("nothing", "return 3"),
    Case("given_back", "return x"),
    Case("only_python", "return [len(name), sorted(d)]", "torch.ones(3), 'a', {'b': 1}", "x, name, d"),
    Case("known_shape", "return 1 if x.shape[0] == 3 else x + 1"),
    Case("hooked", "y = x + 1\ny.register_hook(lambda g: g * 2)\nreturn y * 2", "torch.ones(3, requires_grad=True)"),
]
"""Programs without a graph break: one graph, or none."""

BROKEN = [
    Case(
        "caught_break",
        "y = x + 1\ntry:\n    torch._dynamo.graph_break()  #@caught_break\nexcept ValueError:\n    y = y + 1\nreturn y",
    ),
    Case(
        "cond_effect",
        "def side(t):\n    SETTINGS.value = 3\n    return t + 1\n"
        "return torch.cond(x.sum() > 0, side, lambda t: t - 1, (x,))",
    ),
    Case("user_raise", "if x.shape[0] == 3:\n    raise ValueError('three')  #@user_raise\nreturn x"),
    Case(
        "caught_caller",
        "def inner(t):\n    print('hello')  #@caught_caller\n    return t\ny = inner(x + 1)\nreturn y * 2",
    ),
    Case("two_breaks", "y = x + 1\nprint('a')\ny = y * 2\nprint('b')\nreturn y"),
    Case(
        "generator_break",
        "def numbers(t):\n    yield t\n    print('in generator')\n    yield t + 1\nreturn sum(numbers(x))",
    ),
    Case("comprehension_break", "return sum([int(t.item()) for t in x])"),
    Case("vmap_break", "return torch.vmap(lambda t: (print('v'), t * 2)[1])(x)"),
    Case(
        "checkpoint_break",
        "def f(t):\n    print('c')\n    return t.sin()\n"
        "return torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False)",
    ),
    Case("module_break", "return BREAKING(x)"),
    Case("property_break", "return x + o.printed", "torch.ones(3), Printing()", "x, o"),
    Case("with_break", "with torch.no_grad():\n    y = x + 1\n    print('w')\n    y = y * 2\nreturn y"),
    Case("lambda_break", "return (lambda t: (torch._dynamo.graph_break(), t)[1])(x + 1)"),
    Case(
        "recursive",
        "def down(n, t):\n    if n == 0:\n        print('bottom')\n        return t\n"
        "    return down(n - 1, t + 1)\nreturn down(3, x)",
    ),
    Case("data_while", "y = x\nwhile y.max() < 10:\n    y = y * 2\nreturn y"),
    Case("nonzero", "return x[x.nonzero().squeeze()]"),
    Case("bool_tensor", "return x + 1 if bool(x.any()) else x"),
    Case("weak", "import weakref\nr = weakref.ref(o)\nreturn x + (r() is o)", "torch.ones(3), Thing(1)", "x, o"),
    Case("pickled", "import pickle\nreturn x + len(pickle.dumps([1]))"),
    Case("regex", "import re\nreturn x + len(re.findall('a', name))", "torch.ones(3), 'aab'", "x, name"),
    Case("inspecting", "import inspect\nreturn x + len(inspect.signature(outside).parameters)"),
    Case("stack_walk", "import sys\nreturn x + (sys._getframe() is not None)"),
    Case("global_lock", "import threading\nreturn x + threading.active_count()"),
    Case("async_def", "async def f():\n    return 1\nc = f()\nc.close()\nreturn x + 1"),
]
"""Programs with breaks, most of which Dynamo first finds at another line."""

NEEDED = """
import dataclasses
import enum
import json
import re

@dataclasses.dataclass
class Point:
    a: int = 1
POINT = Point()

class COLOUR(enum.Enum):
    RED = 1

class Derived(Thing):
    def added(self):
        return super().added() + 1

class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(1))
    def forward(self, x):
        if getattr(self, "missing", None) is None:
            x = self.linear(x)
        return torch.relu(x) + self.count
MODULE = Module()
SEQUENTIAL = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.GELU(), torch.nn.LayerNorm(3))

class Breaking(torch.nn.Module):
    def forward(self, x):
        print("breaking")
        return x + 1
BREAKING = Breaking()

class Printing:
    @property
    def printed(self):
        print("property")
        return 1

class DOUBLE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2

import torch.utils.checkpoint
SUBGRAPH = torch.compiler.nested_compile_region(outside)
"""

RECORDING = """

class Breaks(logging.Handler):
    def emit(self, record):
        found = re.search(r"in user code at .*?:(\\d+)\\n", record.getMessage() + "\\n")
        LINES.append((current, int(found[1])))


def attempt(name, function):
    global current
    current = name
    torch._dynamo.reset()
    try:
        function()
    except Exception as error:
        print(name, type(error).__name__)


LINES = []
torch._logging.set_logs(graph_breaks=True)
log = logging.getLogger("torch._dynamo.symbolic_convert.__graph_breaks")
log.addHandler(Breaks())
log.propagate = False
"""


def write(folder: Path, cases: list[Case]) -> Path:
    """Write a program that calls each case and prints what torch logged meanwhile."""
    functions = "\n\n".join(case.source() for case in cases)
    calls = "\n".join(f"attempt({case.name!r}, lambda: {case.name}({case.call}))" for case in cases)
    path = folder / "program.py"
    end = 'print("LOGGED", json.dumps(LINES), flush=True)\nbreakpoint()\nprint("end")\n'
    path.write_text(f"{PRELUDE}{NEEDED}\n\n{functions}\n{RECORDING}\n{calls}\n{end}", encoding="utf-8")
    return path


@pytest.mark.timeout(400)
@pytest.mark.parametrize("cases", [WHOLE, [*BROKEN, *BREAKS]], ids=["whole", "broken"])
def test_stops_at_breaks_agree_with_torchs_log(session: Session, tmp_path: Path, cases: list[Case]) -> None:
    program = write(tmp_path, cases)
    with session.configuring("launch", launch_configuration(program)):
        session.request("setExceptionBreakpoints", {"filters": ["graph-break", "unsupported"]})
    stopped: set[tuple[str, int]] = set()
    names = {case.name for case in cases}
    # The program's own breakpoint() is at its end.
    while (stop := session.wait_for_stop()).reason == "exception":
        assert info_of(session, stop)["exceptionId"].startswith("Graph break")
        callers = [frame.name.partition(" (")[0] for frame in stop.user_frames]
        stopped.add((next(name for name in reversed(callers) if name in names), stop.frame.line))
        assert "1" in stop.frame.evaluate("0 + 1").text
        stop.frame["Locals"].open(2)
        session.resume()
    assert session.run_to_end() == 0
    (logged,) = [line for line in session.output("stdout").splitlines() if line.startswith("LOGGED ")]
    assert stopped == {(name, line) for name, line in json.loads(logged.removeprefix("LOGGED "))}
