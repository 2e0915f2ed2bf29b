"""Functions that branch on numbers that depend on data; ``#@made_NAME`` marks the line that made the number.

``#@NAME`` marks the branch. Written for this test; the last cases are cut from models: a router, a detector, a sampler.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DataCase:
    """One function, and the facts that must be reported about its branch."""

    name: str
    body: str
    condition: str
    """The condition in the user's names; with torch's name if no variable has the number."""
    values: str
    """The values of the numbers in this call."""
    operation: str
    """The operation that made the first number."""
    arguments: str = "x, mask"
    is_named: bool = True
    """Whether a variable has each number at the branch."""


CASES = [
    DataCase(
        "rows", "found = mask.nonzero()  #@made_rows\nif found.shape[0] > 2:  #@rows\n    return x + 1\nreturn x",
        "found.shape[0] > 2", "found.shape[0] = 4", "nonzero",
    ),
    DataCase(
        "empty", "y = x[mask]  #@made_empty\nif y.numel() == 0:  #@empty\n    return x.sum()\nreturn y.mean()",
        "y.shape[0] == 0", "y.shape[0] = 4", "operator.getitem",
    ),
    DataCase(
        "matrix",
        "y = x.reshape(3, 2)[mask[::2]]  #@made_matrix\nif y.numel() == 0:  #@matrix\n    return x.sum()\n"
        "return y.mean()",
        "y.numel() == 0", "y.shape[0] = 2", "operator.getitem",
    ),
    DataCase(
        "item", "n = (x < 3).sum().item()  #@made_item\nif n > 2:  #@item\n    return x * n\nreturn x",
        "n > 2", "n = 3", "item",
    ),
    DataCase(
        "listed",
        "counts = torch.stack([mask.sum(), (x < 3).sum()]).tolist()  #@made_listed\n"
        "if counts[1] > 2:  #@listed\n    return x + 1\nreturn -x",
        "counts[1] > 2", "counts[1] = 3", "item",
    ),
    DataCase(
        "captured",
        "n = (x < 3).sum().item()  #@made_captured\nspread = sum(each * n for each in (x, -x))\n"
        "if n > 2:  #@captured\n    return x + spread\nreturn -x",
        "n > 2", "n = 3", "item",
    ),
    DataCase(
        "multiple", "n = (x < 3).sum().item()  #@made_multiple\nif n % 4 != 0:  #@multiple\n    return -x\nreturn x",
        "(n % 4) != 0", "n = 3", "item",
    ),
    DataCase(
        "arithmetic",
        "n = (x < 3).sum().item()  #@made_arithmetic\nif 2 * n > x.shape[0]:  #@arithmetic\n    return x\nreturn -x",
        "2*n > 6", "n = 3", "item",
    ),
    DataCase(
        "two",
        "a = mask.nonzero()  #@made_two\nb = (x > 4).nonzero()\n"
        "if a.shape[0] < b.shape[0]:  #@two\n    return x\nreturn -x",
        "a.shape[0] < b.shape[0]", "a.shape[0] = 4, b.shape[0] = 1", "nonzero",
    ),
    DataCase(
        "unique", "u = x.unique()  #@made_unique\nif u.shape[0] == x.shape[0]:  #@unique\n    return u\nreturn x",
        "u.shape[0] == 6", "u.shape[0] = 6", "unique",
    ),
    DataCase(
        "expression", "n = (x < 3).sum().item()  #@made_expression\ny = x if n > 2 else -x  #@expression\nreturn y",
        "n > 2", "n = 3", "item",
    ),
    DataCase(
        "unnamed", "if x[mask].shape[0] > 2:  #@unnamed\n    return x\nreturn -x",
        "u0 > 2", "u0 = 4", "operator.getitem", is_named=False,
    ),
    DataCase(
        "inlined",
        "def rows_of(m):\n    return m.nonzero().squeeze(-1)  #@made_inlined\nrows = rows_of(mask)\n"
        "if rows.shape[0] == 0:  #@inlined\n    return x\nreturn x[rows]",
        "rows.shape[0] == 0", "rows.shape[0] = 4", "nonzero",
    ),
    DataCase(
        "detector",
        "boxes = torch.stack([x, x + 1], 1)\nkept = boxes[boxes[:, 0] > 2]  #@made_detector\n"
        "if kept.shape[0] == 0:  #@detector\n    return boxes.new_zeros(1, 2)\nreturn kept.mean(0, keepdim=True)",
        "kept.shape[0] == 0", "kept.shape[0] = 3", "operator.getitem",
    ),
    DataCase(
        "sampler",
        "length = (x.cumsum(0) < 7).sum().item()  #@made_sampler\nif length >= 6:  #@sampler\n    return x\n"
        "return x.narrow(0, 0, length).sum()",
        "length >= 6", "length = 4", "item",
    ),
    DataCase(
        "fraction",
        "top = x.max().item()  #@made_fraction\nif top > 2.5:  #@fraction\n    return x * 2\nreturn x",
        "top > 2.5", "top = 5.0", "item",
    ),
]  # fmt: skip

_HEAD = """\
import torch

torch._dynamo.config.capture_scalar_outputs = True
torch._dynamo.config.capture_dynamic_output_shape_ops = True

x = torch.arange(6.0)
mask = x > 1
"""


def write_program(folder: Path) -> Path:
    """Write a program that compiles each function and calls it three times."""
    parts = [_HEAD]
    for case in CASES:
        body = textwrap.indent(case.body, "    ")
        parts.append(f'\n\n@torch.compile(backend="eager")\ndef {case.name}({case.arguments}):\n{body}\n')
    parts += [f"\nfor _ in range(3):\n    print({case.name}({case.arguments}).sum().item())" for case in CASES]
    path = folder / "program.py"
    path.write_text("".join(parts) + "\n", encoding="utf-8")
    return path


def fixed_program(fixes: Sequence[tuple[str, str]]) -> str:
    """Return a program that compiles each function with a fix; it prints a JSON object for each."""
    parts = [_HEAD.replace("import torch\n", "import json\nimport torch\n", 1)]
    parts.append("from torch.fx.experimental.symbolic_shapes import guard_or_false, statically_known_true\n\n\n")
    cases = {case.name: case for case in CASES}
    for number, (name, fix) in enumerate(fixes):
        case = cases[name]
        for kind, body in (("plain", case.body), ("fixed", _with_fix(case, fix))):
            parts.append(f"def {kind}_{number}({case.arguments}):\n{textwrap.indent(body, '    ')}\n\n\n")
        parts.append(_COMPARISON.format(number=number, arguments=case.arguments))
    return "".join(parts)


_COMPARISON = """\
try:
    compiled = torch.compile(fixed_{number}, backend="eager", fullgraph=True)({arguments})
except Exception as problem:
    print(json.dumps({{"compiles": False, "problem": str(problem).splitlines()[0]}}))
else:
    expected = plain_{number}({arguments})
    print(json.dumps({{"compiles": True, "is_as_eager": torch.equal(compiled, expected)}}))


"""


_CONDS = {
    "rows": ("if found.shape[0] > 2:", "return torch.cond(found.shape[0] > 2, lambda: x + 1, lambda: x.clone())"),
    "empty": ("if y.numel() == 0:", "return torch.cond(y.numel() == 0, lambda: x.sum(), lambda: y.mean())"),
    "matrix": ("if y.numel() == 0:", "return torch.cond(y.numel() == 0, lambda: x.sum(), lambda: y.mean())"),
    "item": ("if n > 2:", "return torch.cond(n > 2, lambda: x * n, lambda: x.clone())"),
    "listed": ("if counts[1] > 2:", "return torch.cond(counts[1] > 2, lambda: x + 1, lambda: -x)"),
    "captured": ("if n > 2:", "return torch.cond(n > 2, lambda: x + spread, lambda: -x)"),
    "multiple": ("if n % 4 != 0:", "return torch.cond(n % 4 != 0, lambda: -x, lambda: x.clone())"),
    "arithmetic": ("if 2 * n > x.shape[0]:", "return torch.cond(2 * n > x.shape[0], lambda: x.clone(), lambda: -x)"),
    "two": (
        "if a.shape[0] < b.shape[0]:",
        "return torch.cond(a.shape[0] < b.shape[0], lambda: x.clone(), lambda: -x)",
    ),
    "unique": (
        "if u.shape[0] == x.shape[0]:",
        "return torch.cond(u.shape[0] == x.shape[0], lambda: u.clone(), lambda: x.clone())",
    ),
    "expression": ("y = x if n > 2 else -x", "y = torch.cond(n > 2, lambda: x.clone(), lambda: -x)"),
    "inlined": (
        "if rows.shape[0] == 0:",
        "return torch.cond(rows.shape[0] == 0, lambda: x.clone(), lambda: x[rows])",
    ),
    "detector": (
        "if kept.shape[0] == 0:",
        "return torch.cond(kept.shape[0] == 0, lambda: boxes.new_zeros(1, 2), lambda: kept.mean(0, keepdim=True))",
    ),
    "sampler": (
        "if length >= 6:",
        "return torch.cond(length >= 6, lambda: x.clone(), lambda: x.narrow(0, 0, length).sum())",
    ),
    "fraction": ("if top > 2.5:", "return torch.cond(top > 2.5, lambda: x * 2, lambda: x.clone())"),
}
"""For each case: the beginning of the branch, and its replacement."""


def _with_fix(case: DataCase, fix: str) -> str:
    lines = case.body.splitlines()
    at = next(number for number, line in enumerate(lines) if line.endswith(f"#@{case.name}"))
    name = fix.partition("(")[0]
    if name == "torch.cond":
        begin, line = _CONDS[case.name]
        assert lines[at].startswith(begin)
        lines[at : at + (3 if begin.startswith("if") else 1)] = [line]
    elif name in ("guard_or_false", "statically_known_true"):
        lines[at] = re.sub(r"\bif (.+?)(:| else)", rf"if {name}(\1)\2", lines[at], count=1)
    else:
        lines.insert(at, fix)
    return "\n".join(lines)
