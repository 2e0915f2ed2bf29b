"""Programs that make documented graph breaks and recompiles, written by the tests.

Each compiled function stands alone, with the marker ``#@name`` on the line to blame.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path

PRELUDE = '''\
"""A program of the tests."""
import torch


def outside(x):
    return x + 1


@torch._dynamo.disable
def disabled(x):
    return x + 1


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


RECOMPILES = [
    Case("by_constant", "if mode == 1:  #@by_constant\n    return x + 1\nreturn x - 1", "T3, 1@T3, 2", "x, mode"),
    Case("by_dtype", "return x + 1  #@by_dtype", "T3@T3.double()"),
    Case("by_rank", "return x * 2  #@by_rank", "T3@torch.ones(3, 3)"),
    Case("by_length", "return x + len(items)  #@by_length", "T3, [1]@T3, [1, 2]", "x, items"),
    Case(
        "by_key", "for key in d:  #@by_key\n    x = x + d[key]\nreturn x", "T3, {'a': 1}@T3, {'a': 1, 'b': 2}", "x, d"
    ),
    Case("by_gradient", "return x * 3  #@by_gradient", "T3@torch.ones(3, requires_grad=True)"),
]
"""Programs that are compiled twice: their calls are separated by ``@``."""


def write_explained(folder: Path, cases: list[Case]) -> Path:
    """Write a program that has torch explain each function, and prints its counts of graphs, breaks and ops."""
    path = write(folder, cases, "explained.py")
    text = path.read_text(encoding="utf-8").replace('@torch.compile(backend="eager")\n', "")
    names = ", ".join(case.name for case in cases)
    text = text[: text.index("\n\ndef main()")] + (
        f"\n\nimport json\n\nfound = {{}}\nfor function in ({names},):\n"
        "    told = torch._dynamo.explain(function)(torch.ones(3))\n"
        "    found[function.__name__] = told.graph_count, told.graph_break_count, told.op_count\n"
        "print(json.dumps(found))\n"
    )
    path.write_text(text, encoding="utf-8")
    return path


def write(folder: Path, cases: list[Case], name: str = "program.py") -> Path:
    """Write one program with all ``cases``, which it calls one after the other."""
    calls = "\n".join(f"    {case.name}({call})" for case in cases for call in case.call.split("@"))
    calls = calls.replace("T3", "torch.ones(3)")
    text = PRELUDE + "\n\n".join(case.source() for case in cases)
    text += f'\n\ndef main():\n{calls}\n    print("done")\n\n\nif __name__ == "__main__":\n    main()\n'
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path
