"""Programs with documented graph breaks and recompiles, written by the tests.

Each compiled function is independent of the others; the marker ``#@name`` is on the line that is the cause.
"""

from __future__ import annotations

import importlib.metadata
import textwrap
from dataclasses import dataclass
from pathlib import Path

IS_REFERENCE = importlib.metadata.version("torch").startswith("2.13.")
"""The markers hold for this torch: a newer one may trace the program, or break at another line."""

PRELUDE = '''\
"""A program of the tests."""
import logging
import threading

import torch

LOCK = threading.Lock()
RECURRENT = torch.nn.LSTM(3, 3)
LOGGER = logging.getLogger("program")


def outside(x):
    return x + 1


@torch._dynamo.disable
def disabled(x):
    return x + 1


class Thing:
    def __init__(self, value):
        self.value = value

    def added(self):
        return 1


class Other(Thing):
    pass


SETTINGS = Thing(1)


def inside(x):
    return x - 1


def more(x):
    SETTINGS.value += 1
    return x


def without_gradient():
    torch.set_grad_enabled(False)
    return ()


class Context:
    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return None


'''


@dataclass(frozen=True)
class Case:
    """One compiled function and its call."""

    name: str
    body: str
    """The function's body; the line that breaks the graph ends with ``#@name``."""
    call: str = "torch.ones(3)"
    parameters: str = "x"
    options: str = 'backend="eager"'

    def source(self) -> str:
        """The function."""
        body = textwrap.indent(textwrap.dedent(self.body).strip("\n"), "    ")
        return f"@torch.compile({self.options})\ndef {self.name}({self.parameters}):\n{body}\n"


BREAKS = [
    Case("asked", "y = x + 1\ntorch._dynamo.graph_break()  #@asked\nreturn y + 1"),
    Case("branch", "y = x + 1\nif y.sum() > 0:  #@branch\n    return y + 1\nreturn y - 1"),
    Case("printing", "y = x + 1\nprint('value', y.shape)  #@printing\nreturn y + 1"),
    Case("item", "y = x + 1\nn = int(y[0].item())  #@item\nreturn torch.zeros(n) + 1"),
    Case("dynamic_size", "y = torch.nonzero(x)  #@dynamic_size\nreturn y + 1"),
    Case("to_disabled", "y = x + 1\ny = disabled(y)  #@to_disabled\nreturn y + 1"),
    Case("opened", "import os\ny = x + 1\ns = os.getpid()  #@opened\nreturn y + 1"),
    Case("identity", "y = x + 1\nn = id(y) % 2  #@identity\nreturn y + n"),
    Case("skipping", "y = x + 1\ntorch._dynamo.skip_frame()  #@skipping\nreturn y + 1"),
    Case("in_loop", "for i in range(2):\n    x = x + 1\n    torch._dynamo.graph_break()  #@in_loop\nreturn x"),
    Case(
        "in_try",
        "y = x + 1\ny = y * 2\ntry:\n    torch._dynamo.graph_break()  #@in_try\nfinally:\n    y = y + 1\nreturn y",
    ),
    Case("clock", "import time\ny = x + 1\nt = time.time()  #@clock\nreturn y + 1"),
    Case("tensor_list", "y = x + 1\nv = y.tolist()  #@tensor_list\nreturn y + v[0]"),
    Case("numpy_seed", "import random\ny = x + 1\nrandom.seed(1)  #@numpy_seed\nreturn y + 1"),
    Case(
        "grad_call", "y = (x * 2).sum()\ny.backward()  #@grad_call\nreturn y + 1", "torch.ones(3, requires_grad=True)"
    ),
]
"""Programs with a graph break."""


WITH_GRADIENT = "torch.ones(3, requires_grad=True)"

MORE_BREAKS = [
    Case("resized", "y = x + 1\ny.resize_(2)  #@resized\nreturn y + 1"),
    Case("wanting_gradient", "y = x + 1\ny.requires_grad_()  #@wanting_gradient\nreturn y + 1"),
    Case("random_fill", "y = x + 1\ny.random_(0, 5)  #@random_fill\nreturn y + 1"),
    Case("uniform_fill", "y = x + 1\ny.uniform_(**{'from': 0.0})  #@uniform_fill\nreturn y + 1"),
    Case("asserted", "y = x + 1\nassert y.sum() > 0, y  #@asserted\nreturn y + 1"),
    Case("sliced", "y = x + 1\nz = [1, 2, 3][: torch.tensor(2)]  #@sliced\nreturn y + len(z)"),
    Case("pointers", "y = x + 1\nz = y.data_ptr() == x.data_ptr()  #@pointers\nreturn y + z"),
    Case("class_made", "y = x + 1\nclass Local:  #@class_made\n    value = 1\nreturn y + Local.value"),
    Case(
        "import_missing",
        "y = x + 1\ntry:\n    import no_such_module  #@import_missing\nexcept ImportError:\n    y = y + 2\nreturn y",
    ),
    Case("file_opened", "y = x + 1\nf = open('/dev/null')  #@file_opened\nf.close()\nreturn y + 1"),
    Case("locked", "y = x + 1\nwith LOCK:  #@locked\n    y = y + 1\nreturn y + 1"),
    Case("parameter_made", "y = x + 1\np = torch.nn.Parameter(y)  #@parameter_made\nreturn y + p"),
    Case("stepped", "y = x + 1\ntorch._dynamo.step_unsupported()  #@stepped\nreturn y + 1"),
    Case("made_sparse", "y = x + 1\nz = y.to_sparse()  #@made_sparse\nreturn y + 1"),
    Case("graded", "y = (x * 2).sum()\n(g,) = torch.autograd.grad(y, [x])  #@graded\nreturn g + 1", WITH_GRADIENT),
    Case("recurrent", "y = x + 1\nz, _ = RECURRENT(y)  #@recurrent\nreturn z + 1", "torch.ones(2, 3)"),
    Case("logged", "y = x + 1\nLOGGER.info('x')  #@logged\nreturn y + 1"),
    Case("warned", "import warnings\ny = x + 1\nwarnings.warn('w')  #@warned\nreturn y + 1"),
    Case("compared", "y = x + 1\nz = torch.equal(x, y)  #@compared\nreturn y + z"),
    Case("executed", "y = x + 1\nexec('z = 1')  #@executed\nreturn y"),
    Case("shared", "y = x + 1\ny.share_memory_()  #@shared\nreturn y"),
    Case(
        "in_context",
        "y = x + 1\nwith Context():\n    y = y + 1\n    torch._dynamo.graph_break()  #@in_context\nreturn y",
    ),
    Case("texted", "y = x + 1\nt = str(y)  #@texted\nreturn y + len(t)"),
    Case("gradient_function", "y = x + 1\nf = y.grad_fn(y)  #@gradient_function\nreturn y", WITH_GRADIENT),
    Case("repeated", "y = x + 1\nwhile y.sum() < 5:  #@repeated\n    y = y + 1\nreturn y"),
    Case("written_out", "y = x + 1\nt = repr([y])  #@written_out\nreturn y + len(t)"),
    Case("masked", "y = x[x > 0]  #@masked\nreturn y + 1"),
    Case("inferred", "y = x + 1\nn = y.is_inference()  #@inferred\nreturn y + n"),
    Case("in_order", "y = x + 1\nn = sorted([y[0], y[1]])  #@in_order\nreturn y + 1"),
    Case("bytes_viewed", "y = x + 1\nn = memoryview(b'1')  #@bytes_viewed\nreturn y + 1"),
    Case("slept", "import time\ny = x + 1\ntime.sleep(0)  #@slept\nreturn y + 1"),
    Case("generator", "y = x + 1\ng = torch.Generator()  #@generator\nreturn y + 1"),
]
"""More programs with a graph break, for the comparison with torch's own log."""

RECOMPILES = [
    Case("by_constant", "if mode == 1:  #@by_constant\n    return x + 1\nreturn x - 1", "T3, 1@T3, 2", "x, mode"),
    Case("by_dtype", "return x + 1  #@by_dtype", "T3@T3.double()"),
    Case("by_rank", "return x * 2  #@by_rank", "T3@torch.ones(3, 3)"),
    Case("by_length", "return x + len(items)  #@by_length", "T3, [1]@T3, [1, 2]", "x, items"),
    Case(
        "by_key", "for key in d:  #@by_key\n    x = x + d[key]\nreturn x", "T3, {'a': 1}@T3, {'a': 1, 'b': 2}", "x, d"
    ),
    Case("by_gradient", "return x * 3  #@by_gradient", "T3@torch.ones(3, requires_grad=True)"),
    Case("by_size", "return x * 4  #@by_size", "T3@torch.ones(4)"),
    Case("by_strides", "return x * 4  #@by_strides", "torch.ones(3, 2)@torch.ones(2, 3).t()"),
    Case("by_text", "return x + 1 if name == 'a' else x  #@by_text", "T3, 'a'@T3, 'b'", "x, name"),
    Case("by_flag", "return x + 1 if flag else x  #@by_flag", "T3, True@T3, False", "x, flag"),
    Case("by_none", "return x + 1 if y is None else x + y  #@by_none", "T3, None@T3, T3", "x, y"),
    Case("by_type", "return x * factor  #@by_type", "T3, 2@T3, 2.5", "x, factor"),
    Case("by_item", "return x * d['a']  #@by_item", "T3, {'a': 'b'} and {'a': 1}@T3, {'a': 2}", "x, d"),
    Case("by_attribute", "return x * o.value  #@by_attribute", "T3, Thing(1)@T3, Thing(2)", "x, o"),
    Case("by_class", "return x + o.added()  #@by_class", "T3, Thing(1)@T3, Other(1)", "x, o"),
    Case("by_function", "return function(x)  #@by_function", "T3, outside@T3, inside", "x, function"),
    Case("by_global", "return x * SETTINGS.value  #@by_global", "T3@more(T3)"),
    Case("by_mode", "return x * 5  #@by_mode", "T3@T3, *without_gradient()", "x, *nothing"),
]
"""Programs that are compiled twice; ``@`` separates their calls."""


def write_explained(folder: Path, cases: list[Case]) -> Path:
    """Write a program that calls ``explain`` for each function, and prints the counts of graphs, breaks and ops."""
    path = write(folder, cases, "explained.py")
    text = path.read_text(encoding="utf-8").replace('@torch.compile(backend="eager")\n', "")
    names = ", ".join(case.name for case in cases)
    text = text[: text.index("\n\ndef main()")] + (
        f"\n\nimport json\n\nfound = {{}}\nfor function in ({names},):\n"
        "    told = torch._dynamo.explain(function)(torch.ones(3))\n"
        # The op_count of explain leaves out the methods of tensors.
        "    nodes = [node for graph in told.graphs for node in graph.graph.nodes]\n"
        "    operations = sum(node.op.startswith('call_') for node in nodes)\n"
        "    found[function.__name__] = told.graph_count, operations, len(told.break_reasons)\n"
        "print(json.dumps(found))\n"
    )
    path.write_text(text, encoding="utf-8")
    return path


def write(folder: Path, cases: list[Case], name: str = "program.py") -> Path:
    """Write one program that calls all ``cases``, one after the other."""
    calls = "\n".join(f"    {case.name}({call})" for case in cases for call in case.call.split("@"))
    calls = calls.replace("T3", "torch.ones(3)")
    text = PRELUDE + "\n\n".join(case.source() for case in cases)
    text += f'\n\ndef main():\n{calls}\n    print("done")\n\n\nif __name__ == "__main__":\n    main()\n'
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


GROWS = """\
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = []
        self.scale = 0.5

    def forward(self, x):
        self.seen.append(x.shape[0])  #@grows
        return x * self.scale


model = Model()
compiled = torch.compile(model, backend="eager")
for n in (3, 4, 6, 9, 5):
    model.scale = n / 2
    compiled(torch.ones(n, 2))
"""
"""Recompiles for each length of a list, after its first size became dynamic."""

CALLS_IN_DYNAMO = """\
import sys

def calls_in_dynamo():
    # Counts the threads that found no compile in the cache, and now compile or wait for torch's lock.
    count = 0
    for frame in sys._current_frames().values():
        while frame is not None and not frame.f_code.co_filename.endswith("convert_frame.py"):
            frame = frame.f_back
        count += frame is not None
    return count

"""
"""The beginning of programs whose threads compile a call at the same time."""
AT_ONCE = f"""\
import sys, threading, time, torch
{CALLS_IN_DYNAMO}
def backend(graph, inputs):
    global expected
    while calls_in_dynamo() < expected:
        time.sleep(0.01)
    expected = 0
    return graph

@torch.compile(backend=backend, dynamic=False)
def score(x):
    return x.cos().sum()

expected = 0
score(torch.ones(10))
if "before" in sys.argv:
    score(torch.ones(30))
expected = 4
threads = [threading.Thread(target=score, args=(torch.ones(30),)) for _ in range(4)]
for each in threads:
    each.start()
for each in threads:
    each.join()
"""
"""Four threads compile a call at the same time; with the argument ``before``, it is compiled before they start."""
