"""Reading trackers of functions, methods, partial applications and descriptors.

Importing this module registers the readers. They run on the tracing thread.
"""

from __future__ import annotations

import functools
from typing import Any

from dynamo_dap.debuggee.torch_internals.trackers.forms import (
    Composite,
    Form,
    FunctionForm,
    Known,
    MappingForm,
    tuple_form,
)
from dynamo_dap.debuggee.torch_internals.trackers.registry import constant_in, form_of, in_words, read_unknown, reads
from dynamo_dap.debuggee.torch_internals.variable_trackers import fields_of


@reads("SkipFunctionVariable")
def _skipped(_tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    reason = (("not traced because", fields["reason"]),) if fields.get("reason") else ()
    parts = (("function", fields["value"]), *reason)
    function = fields["value"]
    return Composite(
        "function that Dynamo does not trace:", parts, "function", after=(function,), rebuild=lambda _: function
    )


@reads("UserFunctionVariable")
def _function(_tx: Any, tracker: Any) -> Form:
    return Known(fields_of(tracker)["fn"])


@reads("UserMethodVariable")
def _method(_tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    function = fields["fn"]
    code = function.__code__
    return FunctionForm(function.__qualname__, code, bound_to=fields["obj"], function=function)


@reads("NestedUserFunctionVariable")
def _nested_function(tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    code = constant_in(fields["code"])
    closure = fields.get("closure")
    cells = form_of(tx, closure).items if closure is not None else ()  # type: ignore[union-attr]
    return FunctionForm(
        str(constant_in(fields["fn_name"])),
        code,
        defaults=fields.get("defaults"),
        keyword_defaults=fields.get("kwdefaults"),
        closure=tuple(zip(code.co_freevars, cells, strict=False)),
    )


@reads("WrapperUserFunctionVariable")
def _wrapper(_tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    parts = (("wrapper", fields["wrapper_obj"]), ("traced through", fields["attr_to_trace"]))
    wrapper = fields["wrapper_obj"]
    return Composite("wrapped function", parts, "function", after=(wrapper,), rebuild=lambda _: wrapper)


@reads("LocalGeneratorFunctionVariable")
def _generator_function(tx: Any, tracker: Any) -> Form:
    form = form_of(tx, fields_of(tracker)["vt"])
    return form if isinstance(form, Known | FunctionForm) else read_unknown(tx, tracker)


@reads("FunctionDecoratedByContextlibContextManagerVariable")
def _context_manager_function(_tx: Any, tracker: Any) -> Form:
    inner = fields_of(tracker)["vt"]
    return Composite("context manager function", (("function", inner),), "function", after=(inner,))


@reads("FunctoolsPartialVariable")
def _partial(_tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    function, arguments, keywords = fields["func"], fields["args"], fields["keywords"]
    parts = (("func", function), ("args", tuple_form(arguments)))
    pairs = MappingForm(list(keywords.items()))
    return Composite(
        "partial",
        (*parts, ("keywords", pairs)),
        "partial",
        after=(function, *arguments),
        rebuild=lambda convert: functools.partial(
            convert(function), *(convert(each) for each in arguments), **convert(pairs)
        ),
    )


@reads("SuperVariable")
def _super(_tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    parts = (("class", fields["typevar"]), ("object", fields.get("objvar")))
    return Composite("super", parts, "super", after=tuple(part for _, part in parts if part is not None))


@reads("GetAttrVariable")
def _attribute(_tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    parts = (("object", fields["obj"]), ("attribute", fields["name"]))
    owner, name = fields["obj"], fields["name"]
    return Composite(
        f"attribute {name} of", parts, after=(owner,), rebuild=lambda convert: getattr(convert(owner), name)
    )


@reads(
    "WrapperDescriptorVariable",
    "MethodWrapperVariable",
    "MethodDescriptorVariable",
    "BoundBuiltinMethodVariable",
    "ClassMethodDescriptorVariable",
    "StaticMethodVariable",
    "ClassMethodVariable",
    "MemberDescriptorVariable",
    "GetSetDescriptorVariable",
    "PropertyVariable",
    "TupleGetterVariable",
)
def _descriptor(_tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    parts = [("descriptor", fields["descriptor"])]
    parts += [(label, fields[name]) for name, label in (("obj", "object"), ("owner", "class")) if fields.get(name)]
    descriptor = fields["descriptor"]
    return Composite(in_words(type(tracker).__name__), tuple(parts), after=(descriptor,), rebuild=lambda _: descriptor)


@reads("LambdaVariable")
def _lambda(_tx: Any, tracker: Any) -> Form:
    function = fields_of(tracker)["fn"]
    return Composite(f"function inside Dynamo: {getattr(function, '__qualname__', 'lambda')}")


@reads("TritonKernelVariable")
def _triton_kernel(_tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    kernel = fields.get("kernel")
    name = getattr(getattr(kernel, "fn", kernel), "__name__", "")
    return Composite(f"Triton kernel {name}".rstrip(), (("kernel", kernel), ("grid", fields.get("grid"))))
