"""Reading trackers of constants, tensors, symbolic numbers, objects, exceptions, and what is left.

Importing this module registers the readers. They run on the tracing thread.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from dynamo_dap.debuggee.torch_internals.side_effects import is_deleted, pending_attributes
from dynamo_dap.debuggee.torch_internals.trackers.forms import (
    Composite,
    Form,
    InstanceForm,
    Known,
    NumberForm,
    TensorForm,
    tuple_form,
)
from dynamo_dap.debuggee.torch_internals.trackers.registry import constant_in, contents_of, form_of, in_words, reads
from dynamo_dap.debuggee.torch_internals.variable_trackers import field, fields_of, held_trackers, node_of


@reads("ConstantVariable", "FakeIdVariable", "ConstantLikeVariable", "UserDefinedConstantVariable")
def _constant(_tx: Any, tracker: Any) -> Form:
    return Known(fields_of(tracker)["value"])


@reads(
    "BaseTorchVariable",
    "TorchHigherOrderOperatorVariable",
    "DistributedVariable",
    "NumpyVariable",
    "TypingVariable",
    "PythonModuleVariable",
    "ItertoolsVariable",
    "SysFunctionVariable",
    "DebuggingVariable",
    "IgnoredFunctionVariable",
    "LoggingLoggerVariable",
    "ObjectVariable",
    "TritonSetAllocatorVariable",
    "UserDefinedClassVariable",
    "OpaqueObjectClassVariable",
)
def _real_object(_tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    return Known(fields["value"] if "value" in fields else fields["fn"])


_BUILTINS: dict[str, Any] = {
    "DictBuiltinVariable": dict,
    "ListBuiltinVariable": list,
    "ByteArrayBuiltinVariable": bytearray,
    "IterBuiltinVariable": iter,
    "GetAttrBuiltinVariable": getattr,
    "HasAttrBuiltinVariable": hasattr,
    "SetAttrBuiltinVariable": setattr,
}
"""Classes that stand for one builtin each, and do not say which."""


@reads(*_BUILTINS)
def _named_builtin(_tx: Any, tracker: Any) -> Form:
    return Known(_BUILTINS[type(tracker).__name__])


@reads("BuiltinVariable", "PolyfilledFunctionVariable")
def _builtin(_tx: Any, tracker: Any) -> Form:
    return Known(fields_of(tracker)["fn"])


@reads("AutogradFunctionVariable")
def _autograd_function(_tx: Any, tracker: Any) -> Form:
    return Known(fields_of(tracker)["fn_cls"])


@reads("TensorVariable")
def _tensor(_tx: Any, tracker: Any) -> Form:
    node = node_of(tracker)
    example = None if node is None else node.meta.get("example_value")
    cls = field(tracker, "class_type")
    kind = cls.__name__ if isinstance(cls, type) else "Tensor"
    return TensorForm(example, node, kind)


@reads("NumpyNdarrayVariable")
def _array(_tx: Any, tracker: Any) -> Form:
    node = node_of(tracker)
    return TensorForm(None if node is None else node.meta.get("example_value"), node, "ndarray")


@reads("UnspecializedPythonVariable", "FakeItemVariable")
def _number_as_tensor(_tx: Any, tracker: Any) -> Form:
    node = node_of(tracker)
    raw = field(tracker, "raw_value")
    kind = f"{type(raw).__name__} as Tensor" if raw is not None else "number as Tensor"
    return TensorForm(None if node is None else node.meta.get("example_value"), node, kind, raw)


@reads("SymNodeVariable")
def _symbolic_number(_tx: Any, tracker: Any) -> Form:
    number = fields_of(tracker)["sym_num"]
    return NumberForm(number, node_of(tracker))


@reads("UserDefinedObjectVariable")
def _instance(tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    cls = fields.get("value_type") or type(fields["value"])
    return InstanceForm(fields["value"], cls, contents_of(tx, tracker), pending_attributes(tx, tracker))


@reads("UserDefinedExceptionObjectVariable")
def _user_exception(tx: Any, tracker: Any) -> Form:
    base = fields_of(tracker).get("_base_vt")
    form = form_of(tx, base) if base is not None else None
    if not isinstance(form, Composite):
        return _instance(tx, tracker)
    stored = [(name, value) for name, value in pending_attributes(tx, tracker).items() if not is_deleted(value)]
    return dataclasses.replace(form, parts=(*form.parts, *stored))


@reads("UnspecializedNNModuleVariable", "OptimizerVariable", "TorchScriptObjectVariable")
def _module(tx: Any, tracker: Any) -> Form:
    value = fields_of(tracker)["value"]
    return InstanceForm(value, type(value), stored=pending_attributes(tx, tracker))


@reads("NNModuleVariable")
def _specialized_module(tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    value = fields.get("value")
    if value is None:
        value = tx.output.get_submodule(fields["module_key"])
    return InstanceForm(value, type(value), stored=pending_attributes(tx, tracker))


@reads("ExceptionVariable")
def _exception(_tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    arguments = fields["args"]
    parts: list[tuple[str, Any]] = [("args", tuple_form(arguments))]
    for name in ("__cause__", "__context__"):
        related = fields.get(name)
        if related is not None and constant_in(related) is not None:
            parts.append((name, related))
    name = fields["exc_type"].__name__
    cls = fields["exc_type"]
    return Composite(
        name,
        tuple(parts),
        name,
        after=tuple(arguments),
        is_call=True,
        rebuild=lambda convert: cls(*(convert(argument) for argument in arguments)),
    )


@reads("TracebackVariable")
def _traceback(_tx: Any, tracker: Any) -> Form:
    summary = fields_of(tracker).get("frame_summary")
    frame = None if summary is None else getattr(fields_of(summary).get("frame_summary"), "name", None)
    title = "traceback" if frame is None else f"traceback in {frame}"
    return Composite(title, tuple(held_trackers(tracker)), "traceback")


@reads("FrameSummaryVariable")
def _frame_summary(_tx: Any, tracker: Any) -> Form:
    summary = fields_of(tracker)["frame_summary"]
    return Composite(f"frame {summary.name}, {summary.filename}:{summary.lineno}")


@reads("NullVariable")
def _null(_tx: Any, _tracker: Any) -> Form:
    return Composite("NULL")


@reads("DeletedVariable")
def _deleted(_tx: Any, _tracker: Any) -> Form:
    return Composite("deleted")


@reads("UnknownVariable")
def _unknown_value(_tx: Any, tracker: Any) -> Form:
    message = field(tracker, "msg")
    return Composite("value that Dynamo does not know", (("graph break when used", message),) if message else ())


@reads("StringFormatVariable")
def _string_format(_tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    arguments = tuple_form(_listed_arguments(fields["sym_args"]))
    parts = (("format", fields["format_string"]), ("arguments", arguments))
    return Composite("str, formatted when the graph has run:", parts, "str", after=(fields["format_string"],))


def _listed_arguments(arguments: Any) -> list[Any]:
    return list(arguments) if type(arguments) in (list, tuple) else [arguments]


@reads("ComptimeVariable")
def _comptime(_tx: Any, _tracker: Any) -> Form:
    return Composite("torch._dynamo.comptime")


@reads("NewGlobalVariable")
def _global(_tx: Any, _tracker: Any) -> Form:
    return Composite("global variable")


@reads("WeakRefVariable")
def _weak_reference(_tx: Any, tracker: Any) -> Form:
    referent = fields_of(tracker)["referent_vt"]
    return Composite("weak reference to", (("referent", referent),), "ReferenceType", after=(referent,))


@reads("UntypedStorageVariable", "DataPtrVariable")
def _of_tensor(_tx: Any, tracker: Any) -> Form:
    tensor = fields_of(tracker)["from_tensor"]
    return Composite(f"{in_words(type(tracker).__name__)} of", (("tensor", tensor),), after=(tensor,))


@reads("EventVariable", "StreamVariable")
def _device_object(_tx: Any, tracker: Any) -> Form:
    value = fields_of(tracker)["value"]
    return Composite(f"{type(value).__module__}.{type(value).__name__}", (("value", value),))


@reads("RandomClassVariable")
def _random_class(_tx: Any, _tracker: Any) -> Form:
    import random

    return Known(random.Random)


@reads("RandomVariable")
def _random(_tx: Any, tracker: Any) -> Form:
    return Composite("random.Random object", (("value", field(tracker, "random", field(tracker, "value"))),), "Random")


@reads("OrderedSetClassVariable")
def _ordered_set_class(_tx: Any, _tracker: Any) -> Form:
    return Composite("<class 'torch.utils._ordered_set.OrderedSet'>")


@reads("RemovableHandleVariable")
def _handle(_tx: Any, tracker: Any) -> Form:
    return Composite("handle of a hook", (("number", field(tracker, "idx")),), "RemovableHandle")
