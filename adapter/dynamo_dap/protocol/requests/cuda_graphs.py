"""Names the events of CUDA graphs of a compiled function, and possible remedies.

The debugged program reports these names, records keep them, and reports and stops print the advice. Constants only.
"""

from __future__ import annotations

RECORDED = "recorded"
SKIPPED = "skipped"
PARTIAL = "partial"
RERECORDED = "re-recorded"
OVERWRITTEN = "overwritten"
OUTCOMES = (RECORDED, SKIPPED, PARTIAL, RERECORDED, OVERWRITTEN)
"""``PARTIAL``: some operations stay outside the graphs. ``OVERWRITTEN``: a later run overwrites a kept output."""

CPU = "cpu"
DEVICES = "devices"
MUTATION = "mutation"
DYNAMIC = "dynamic shape"
OPERATION = "incompatible operation"
ADDRESS = "address"
SIZE = "size"
LIVENESS = "liveness"
LIMIT = "re-record limit"
FORWARD = "forward"
KEPT = "kept output"
OTHER = "other"
CAUSES = (CPU, DEVICES, MUTATION, DYNAMIC, OPERATION, ADDRESS, SIZE, LIVENESS, LIMIT, FORWARD, KEPT, OTHER)
"""The causes of these events. ``FORWARD``: a backward pass has no CUDA graph because its forward has none."""

ADVICE = {
    CPU: "create the tensor on the GPU, or move it there before the call: x = x.to('cuda')",
    DEVICES: "keep all tensors of one compiled function on one GPU",
    MUTATION: "return the new value instead of writing into the input",
    DYNAMIC: "call the function with a few fixed sizes (pad the inputs), or set "
    "torch._inductor.config.triton.cudagraph_skip_dynamic_graphs = False",
    OPERATION: "move the operation out of the compiled function",
    ADDRESS: "keep the tensor where it is: copy new values into it (x.copy_(new)) instead of binding another tensor",
    SIZE: "pad the input to a few sizes, or set torch._inductor.config.triton.cudagraph_skip_dynamic_graphs = True",
    LIVENESS: "keep outputs of earlier calls as clones, and call torch.compiler.cudagraph_mark_step_begin() before "
    "each step",
    LIMIT: "keep the tensor where it is: copy new values into it (x.copy_(new)) instead of binding another tensor",
    KEPT: "keep a clone of the output: kept = f(x).clone(), or call torch.compiler.cudagraph_mark_step_begin() before "
    "each step",
}
"""Possible remedies, by cause. They were not tried on the program."""
