"""Reading trackers of context managers, and cells. Importing this module registers them. Runs on the tracing thread."""

from __future__ import annotations

from typing import Any

from dynamo_dap.debuggee.torch_internals.side_effects import cell_contents, pending_attributes
from dynamo_dap.debuggee.torch_internals.trackers.forms import CellForm, Composite, Form, InstanceForm
from dynamo_dap.debuggee.torch_internals.trackers.registry import in_words, reads
from dynamo_dap.debuggee.torch_internals.variable_trackers import field, fields_of, held_trackers


@reads("CellVariable")
def _cell(tx: Any, tracker: Any) -> Form:
    return CellForm(cell_contents(tx, tracker))


_CALLS = {
    "GradModeVariable": "torch.set_grad_enabled",
    "InferenceModeVariable": "torch.inference_mode",
    "AutocastModeVariable": "torch.autocast",
    "NullContextVariable": "contextlib.nullcontext",
    "GradIncrementNestingCtxManagerVariable": "torch.func.grad",
    "VmapIncrementNestingCtxManagerVariable": "torch.func.vmap",
    "JvpIncrementNestingCtxManagerVariable": "torch.func.jvp",
    "DualLevelContextManager": "torch.autograd.forward_ad.dual_level",
    "SetFwdGradEnabledContextManager": "torch.autograd.forward_ad set enabled",
    "GradInplaceRequiresGradCtxManagerVariable": "requires_grad_ in place under torch.func",
    "DisabledSavedTensorsHooksVariable": "torch.autograd.graph.disable_saved_tensors_hooks",
    "SDPAKernelVariable": "torch.nn.attention.sdpa_kernel",
    "ProfilerContextVariable": "torch.profiler (ignored while tracing)",
    "ProfilerRecordFunctionContextVariable": "torch.profiler.record_function",
    "CatchWarningsCtxManagerVariable": "warnings.catch_warnings",
    "FxTracebackAnnotateVariable": "torch.fx.traceback.annotate",
    "TorchFunctionDisableVariable": "torch._C.DisableTorchFunction",
    "DynamoConfigPatchVariable": "torch._dynamo.patch_dynamo_config",
    "ErrorOnGraphBreakVariable": "torch._dynamo.error_on_graph_break",
    "CudagraphOverrideVariable": "cudagraph override",
    "GenericDeviceVariable": "device",
}


@reads("ContextWrappingVariable")
def _context(_tx: Any, tracker: Any) -> Form:
    """Read a context manager that Dynamo models itself: as the call that makes it."""
    fields = fields_of(tracker)
    name = next((_CALLS[base.__name__] for base in type(tracker).__mro__ if base.__name__ in _CALLS), None)
    title = name or f"{in_words(type(tracker).__name__)} context manager"
    targets, initial = fields.get("target_values"), fields.get("initial_values")
    parts = [("sets", targets)] if targets is not None else []
    parts += [("restores", initial)] if initial is not None else []
    parts += [part for part in held_trackers(tracker) if part[0] not in ("target_values", "initial_values")]
    after = () if targets is None else tuple(targets) if isinstance(targets, list | tuple) else (targets,)
    return Composite(title, tuple(parts), "context manager", after=after, is_call=" " not in title)


@reads("GenericContextWrappingVariable")
def _generic_context(tx: Any, tracker: Any) -> Form:
    value = fields_of(tracker)["cm_obj"]
    return InstanceForm(value, type(value), stored=pending_attributes(tx, tracker))


@reads("RepararametrizeModuleContextVariable")
def _reparametrized(_tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    return Composite("context manager", (("manager", fields["cm_vt"]), ("module", fields["mod"])))


@reads("WithEnterFunctionVariable")
def _enter(_tx: Any, tracker: Any) -> Form:
    manager = fields_of(tracker)["ctx"]
    return Composite("__enter__ of", (("context manager", manager),), after=(manager,))


@reads("WithExitFunctionVariable")
def _exit(_tx: Any, tracker: Any) -> Form:
    manager = fields_of(tracker)["ctx"]
    return Composite("__exit__ of", (("context manager", manager),), after=(manager,))


@reads("TorchFunctionModeStackVariable")
def _mode_stack(_tx: Any, tracker: Any) -> Form:
    modes = list(field(tracker, "symbolic_stack") or ())
    return Composite(f"torch function modes ({len(modes)})", tuple((str(at), mode) for at, mode in enumerate(modes)))
