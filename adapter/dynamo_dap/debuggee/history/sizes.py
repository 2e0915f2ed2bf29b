"""Changes tensor sizes in a trace to symbolic or static: ``x.shape[0] = symbolic``.

Runs on the held tracing thread.
"""

from __future__ import annotations

import ast

from dynamo_dap.debuggee.history.changed_traces import SYMBOLIC, CannotChange, SizeChange, size_change
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import is_fake_tensor, is_tensor
from dynamo_dap.debuggee.torch_api.traced.symbols import is_symbolic
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.trackers.forms import TensorForm, Unrealized
from dynamo_dap.debuggee.trace.forms import UNKNOWN
from dynamo_dap.debuggee.trace.paths import Paths
from dynamo_dap.debuggee.trace.sizes_view import SHAPE


def sizes_in(text: str, frame: TracedFrame) -> tuple[SizeChange, ...]:
    """Return the sizes that an assignment sets; empty for any other assignment.

    Raises:
        CannotChange: the tensor cannot get these sizes; the text says why.
    """
    target, value = _assigned(text)
    dimension = None
    if isinstance(target, ast.Subscript):
        dimension, target = _number(target.slice), target.value
    if not isinstance(target, ast.Attribute) or target.attr != SHAPE:
        return ()
    paths = Paths(frame, {})
    found = paths.follow(target.value)
    form = None if found is UNKNOWN else paths.form_of(found)
    tensor: object = (
        form.example if isinstance(form, TensorForm) else form.value if isinstance(form, Unrealized) else None
    )
    if value is None or not is_tensor(tensor):
        return ()
    source = frame.source_of(found)
    if dimension is not None:
        return (size_change(frame, tensor, source, dimension, _wanted(value)),)
    parts = value.elts if isinstance(value, ast.Tuple | ast.List) else [value] * tensor.dim()
    if len(parts) != tensor.dim():
        raise CannotChange(f"the tensor has {tensor.dim()} dimensions")
    is_fake = is_fake_tensor(tensor)
    changed = [
        (at, part)
        for at, part in enumerate(parts)
        if not is_fake or (_wanted(part) == SYMBOLIC) != is_symbolic(tensor.size()[at])
    ]
    if not changed:
        raise CannotChange("the tensor already has these sizes")
    return tuple(size_change(frame, tensor, source, at, _wanted(part)) for at, part in changed)


def _assigned(text: str) -> tuple[ast.expr | None, ast.expr | None]:
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return None, None
    statement = body[0] if len(body) == 1 else None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return statement.targets[0], statement.value
    return None, None


def _number(node: ast.expr) -> int | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if type(value) is int else None


def _wanted(node: ast.expr) -> object:
    return node.id if isinstance(node, ast.Name) else _number(node)
