"""Names the cause of a difference for the user: the stage, the operation and the part. Has no state."""

from __future__ import annotations

from dynamo_dap.debuggee.numerics.faults.comparisons import Fault
from dynamo_dap.debuggee.numerics.faults.stage_search import (
    DECOMPOSITION,
    DYNAMO,
)
from dynamo_dap.debuggee.numerics.gradients.gradient_comparisons import (
    GradientOfInput,
)
from dynamo_dap.debuggee.replay.replayed_graph import has_transforms
from dynamo_dap.debuggee.torch_api.graphs.custom_operators import FAKE_KERNEL
from dynamo_dap.debuggee.torch_api.graphs.graph import operation_name, target_name
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import has_own_memory
from dynamo_dap.debuggee.torch_api.objects import Node
from dynamo_dap.protocol.requests.bisection import SETTING

STAGE_TEXTS = {DECOMPOSITION: "an Inductor decomposition"}
_EVIDENCE = {
    None: "The graph that AOTAutograd hands to it matches eager.",
    DECOMPOSITION: "Without it, AOTAutograd matches eager.",
}
_DIFFERS_EARLIER = "Compiled up to that stage, the graph already differs from eager."


def operation_text(node: Node) -> str:
    """Return the name of an operation for the user."""
    return "a transform of torch.func" if has_transforms([node]) else operation_name(node)


def cause_of(fault: Fault, backend: str) -> str:
    """Return the text that names the cause of a difference, and the evidence."""
    if fault.operator is not None:
        kernel = f"the {fault.stage} of " if fault.stage == FAKE_KERNEL else ""
        return f"{kernel}{target_name(fault.node)}. {fault.operator}"
    if fault.written is not None:
        stage = owner_text(fault, backend)
        writes = "" if fault.node is not None else " Dynamo's graph does not write to it."
        return f"{stage}. It leaves {fault.written} with other contents: {fault.difference.text}.{writes}"
    if fault.observed is not None:
        return f"{owner_text(fault, backend)}. {fault.observed}"
    if fault.stored is not None:
        what = fault.stored
        if all(map(has_own_memory, what.values)) and what.values[0].shape == what.values[1].shape:
            return f"Dynamo. Its code stores a wrong value: {what.expression} differs: {fault.difference.text}."
        return (
            f"Dynamo. Its code stores a wrong value: {what.expression} is {what.by_compiled} after the call, and "
            f"{what.by_python} in ordinary Python."
        )
    if fault.node is None:
        return f"the backend ({backend}), in this compiled code alone: compiled again, the graph matches eager."
    if fault.stage == DYNAMO:
        return "Dynamo. Its graph does not match the function run as ordinary Python."
    return f"{owner_text(fault, backend)}. {_EVIDENCE.get(fault.stage, _DIFFERS_EARLIER)}{_part_text(fault)}"


def cause_in_backward(fault: Fault, backend: str) -> str:
    """Return the text that names the stage and the operation that make a gradient wrong."""
    if fault.node is None and not fault.judged:
        return f"the backend ({backend}), in this compiled code alone: compiled again, its gradients match."
    if fault.node is None:
        unknown = "Which operation is wrong is not known: compiled to return all gradients, they match."
        return f"{owner_text(fault, backend)}. {unknown}{_part_text(fault)}"
    operation = operation_text(fault.within or fault.node)
    return f"{owner_text(fault, backend)}. The backward of {operation} is wrong.{_part_text(fault)}"


def cause_of_gradient(fault: Fault, worst: GradientOfInput, backend: str) -> str:
    """Return the text that names the cause of a wrong gradient, and the gradient that differs."""
    what = f"The gradient of {worst.name} differs: {worst.difference.text}."
    return f"{cause_in_backward(fault, backend)} {what}"


def _part_text(fault: Fault) -> str:
    if fault.part is None:
        return ""
    return f" It is right {'with' if fault.part.startswith(SETTING) else 'without'} {fault.part}."


def owner_text(fault: Fault, backend: str) -> str:
    """Return the name of the stage that is at fault for the user."""
    return f"the backend ({backend})" if fault.stage is None else STAGE_TEXTS.get(fault.stage, fault.stage)
