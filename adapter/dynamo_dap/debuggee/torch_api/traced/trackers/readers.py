"""Converts VariableTrackers to forms, by a table of readers.

The table is searched for the name of the tracker's class, then for the names of its base classes. So the reader of a
base class reads a class that only another version of torch has. Without any reader, the form has the class's name and
the trackers in its fields. No iterator is advanced, nothing is realized. Runs on the tracing thread.
"""

from __future__ import annotations

import builtins
import copy
import functools
import itertools
import random
import re
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.objects import Translator
from dynamo_dap.debuggee.torch_api.traced.trackers.forms import (
    CellForm,
    Composite,
    Form,
    FunctionForm,
    InstanceForm,
    Known,
    MappingForm,
    NumberForm,
    SequenceForm,
    SetForm,
    TensorForm,
    Unrealized,
    tuple_form,
)
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import (
    cell_contents,
    class_names,
    constant_in,
    fields_of,
    held_trackers,
    held_value,
    is_deleted,
    is_tracker,
    is_unrealized,
    key_of,
    node_of,
    pending_attributes,
    unwrapped,
)


class _Reading:
    """Gives access to the fields of an unwrapped, realized tracker by name."""

    __slots__ = ("fields", "tracker", "tx")

    def __init__(self, tx: Translator, tracker: Any) -> None:
        self.tx = tx
        self.tracker = tracker
        self.fields = fields_of(tracker)

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def get(self, name: str, default: object = None) -> Any:
        return self.fields.get(name, default)

    @property
    def class_name(self) -> str:
        return type(self.tracker).__name__

    @property
    def items(self) -> Any:
        return self.fields["items"]

    @property
    def keys(self) -> list[object]:
        return [key_of(key) for key in self.fields["items"]]

    @property
    def node(self) -> Any:
        return node_of(self.tracker)

    @property
    def stored(self) -> dict[str, object]:
        return pending_attributes(self.tx, self.tracker)

    def form_of(self, tracker: object) -> Form:
        return form_of(self.tx, tracker)

    def instance(self, value: object, cls: type | None = None, contents: Form | None = None) -> InstanceForm:
        return InstanceForm(value, cls or type(value), contents, self.stored)


Reader = Callable[[_Reading], Form]
_readers: dict[str, Reader] = {}


def _reads(*names: str) -> Callable[[Reader], Reader]:
    """Register a reader for classes of these names and their subclasses."""

    def register(reader: Reader) -> Reader:
        _readers.update(dict.fromkeys(names, reader))
        return reader

    return register


def form_of(tx: Translator, tracker: object) -> Form:
    """Return the form of a tracker. Nothing is realized, guarded or added to the graph."""
    tracker = unwrapped(tracker)
    names = class_names(tracker)
    if is_unrealized(tracker):
        computed = "ComputedLazyConstantVariable" in names  # torch 2.15: only its guards are deferred
        return Known(held_value(tracker)) if computed else Unrealized(held_value(tracker))
    reading = _Reading(tx, tracker)
    reader = next((_readers[name] for name in names if name in _readers), _unknown)
    try:
        return reader(reading)
    except (AttributeError, KeyError, TypeError):  # a field of another version: read it as an unknown class
        return _unknown(reading)


def reader_names() -> tuple[str, ...]:
    """Return the names of the classes with their own readers."""
    return tuple(_readers)


def _unknown(read: _Reading) -> Form:
    """Return a form with the class's name, and the trackers in it as parts."""
    value = [("value", read["value"])] if "value" in read.fields else []
    return Composite(_in_words(read.class_name), (*value, *held_trackers(read.tracker)))


def _in_words(class_name: str) -> str:
    """Return the name of a tracker class as words: ``GradModeVariable`` -> ``grad mode``."""
    stem = re.sub(r"(Variable|VariableTracker)$", "", class_name)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", stem).replace("_", " ").lower()


def _of(title: str, parts: tuple[tuple[str, object], ...], type_name: str | None = None, **others: Any) -> Composite:
    """Return a form that shows all its parts after its title."""
    return Composite(title, parts, type_name, after=tuple(part for _, part in parts), **others)


def _contents(read: _Reading) -> Form | None:
    """Return the form of a builtin container inside an object of its subclass; None for others.

    Before torch 2.15 the container has its own tracker (``_base_vt``). Since then, the object's tracker is it.
    """
    base = read.get("_base_vt")
    if base is not None:
        return read.form_of(base)
    names = [name for name in class_names(read.tracker) if name in _CONTAINERS] if "items" in read.fields else []
    return _readers[names[0]](read) if names else None


_CONTAINERS = frozenset(
    {"ConstDictVariable", "ListVariable", "TupleVariable", "SetVariable", "FrozensetVariable", "DequeVariable"}
)


# -- readers that are one expression -----------------------------------------------------------------------------------


def _range(name: str, cls: Any) -> Reader:
    def reader(read: _Reading) -> Form:
        parts = tuple(zip(("start", "stop", "step"), read.items, strict=False))
        return _of(name, parts, name, rebuild=lambda convert: cls(*map(convert, read.items)))

    return reader


_TABLE: dict[tuple[str, ...], Reader] = {
    ("ConstantVariable", "FakeIdVariable", "ConstantLikeVariable", "UserDefinedConstantVariable"): (
        lambda read: Known(read["value"])
    ),
    (
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
    ): lambda read: Known(read["value"] if "value" in read.fields else read["fn"]),
    # Each of these classes represents one builtin, which no field holds.
    ("DictBuiltinVariable",): lambda read: Known(dict),
    ("ListBuiltinVariable",): lambda read: Known(list),
    ("ByteArrayBuiltinVariable",): lambda read: Known(bytearray),
    ("IterBuiltinVariable",): lambda read: Known(iter),
    ("GetAttrBuiltinVariable",): lambda read: Known(getattr),
    ("HasAttrBuiltinVariable",): lambda read: Known(hasattr),
    ("SetAttrBuiltinVariable",): lambda read: Known(setattr),
    ("RandomClassVariable",): lambda read: Known(random.Random),
    ("BuiltinVariable", "PolyfilledFunctionVariable", "UserFunctionVariable"): lambda read: Known(read["fn"]),
    ("AutogradFunctionVariable",): lambda read: Known(read["fn_cls"]),
    ("NumpyNdarrayVariable",): lambda read: _tensor_form(read, "ndarray"),
    ("SymNodeVariable",): lambda read: NumberForm(read["sym_num"], read.node),
    ("UnspecializedNNModuleVariable", "OptimizerVariable", "TorchScriptObjectVariable"): (
        lambda read: read.instance(read["value"])
    ),
    ("GenericContextWrappingVariable",): lambda read: read.instance(read["cm_obj"]),
    ("CellVariable",): lambda read: CellForm(cell_contents(read.tx, read.tracker)),
    # Containers.
    ("BaseListVariable", "ListVariable"): lambda read: SequenceForm(read.items),
    ("TupleVariable",): lambda read: tuple_form(read.items),
    ("SizeVariable",): lambda read: SequenceForm(read.items, "torch.Size", "torch.Size([", "])"),
    ("DequeVariable",): lambda read: SequenceForm(read.items, "deque", "deque([", "])"),
    ("SetVariable",): lambda read: SetForm(read.keys),
    ("FrozensetVariable",): lambda read: SetForm(read.keys, "frozenset"),
    ("OrderedSetVariable",): lambda read: SetForm(read.keys, "OrderedSet"),
    ("DictKeySetVariable",): lambda read: SetForm(read.keys, "dict_keys"),
    ("RangeVariable",): _range("range", range),
    ("SliceVariable",): _range("slice", slice),
    # Functions and similar values.
    ("UserMethodVariable",): lambda read: FunctionForm(
        read["fn"].__qualname__, read["fn"].__code__, bound_to=read["obj"], function=read["fn"]
    ),
    ("WrapperUserFunctionVariable",): lambda read: Composite(
        "wrapped function",
        (("wrapper", read["wrapper_obj"]), ("traced through", read["attr_to_trace"])),
        "function",
        after=(read["wrapper_obj"],),
        rebuild=lambda _: read["wrapper_obj"],
    ),
    ("FunctionDecoratedByContextlibContextManagerVariable",): lambda read: _of(
        "context manager function", (("function", read["vt"]),), "function"
    ),
    ("GetAttrVariable",): lambda read: Composite(
        f"attribute {read['name']} of",
        (("object", read["obj"]), ("attribute", read["name"])),
        after=(read["obj"],),
        rebuild=lambda convert: getattr(convert(read["obj"]), read["name"]),
    ),
    ("LambdaVariable",): lambda read: Composite(
        f"function inside Dynamo: {getattr(read['fn'], '__qualname__', 'lambda')}"
    ),
    # Iterators.
    ("FilterVariable",): lambda read: _of(
        "filter", (("function", read["fn"]), ("iterable", read["iterable"])), "filter"
    ),
    ("RepeatIteratorVariable",): lambda read: _of("repeat", (("item", read["item"]),), "repeat"),
    ("CountIteratorVariable",): lambda read: _of("count", (("next", read["item"]), ("step", read["step"])), "count"),
    # Context managers.
    ("RepararametrizeModuleContextVariable",): lambda read: Composite(
        "context manager", (("manager", read["cm_vt"]), ("module", read["mod"]))
    ),
    ("WithEnterFunctionVariable",): lambda read: _of("__enter__ of", (("context manager", read["ctx"]),)),
    ("WithExitFunctionVariable",): lambda read: _of("__exit__ of", (("context manager", read["ctx"]),)),
    # All other classes.
    ("NullVariable",): lambda read: Composite("NULL"),
    ("DeletedVariable",): lambda read: Composite("deleted"),
    ("ComptimeVariable",): lambda read: Composite("torch._dynamo.comptime"),
    ("NewGlobalVariable",): lambda read: Composite("global variable"),
    ("OrderedSetClassVariable",): lambda read: Composite("<class 'torch.utils._ordered_set.OrderedSet'>"),
    ("WeakRefVariable",): lambda read: _of("weak reference to", (("referent", read["referent_vt"]),), "ReferenceType"),
    ("UntypedStorageVariable", "DataPtrVariable"): lambda read: _of(
        f"{_in_words(read.class_name)} of", (("tensor", read["from_tensor"]),)
    ),
    ("EventVariable", "StreamVariable"): lambda read: Composite(
        f"{type(read['value']).__module__}.{type(read['value']).__name__}", (("value", read["value"]),)
    ),
    ("RandomVariable",): lambda read: Composite(
        "random.Random object", (("value", read.get("random", read.get("value"))),), "Random"
    ),
    ("RemovableHandleVariable",): lambda read: Composite(
        "handle of a hook", (("number", read.get("idx")),), "RemovableHandle"
    ),
    ("FrameSummaryVariable",): lambda read: Composite(
        f"frame {read['frame_summary'].name}, {read['frame_summary'].filename}:{read['frame_summary'].lineno}"
    ),
}
_readers.update({name: reader for names, reader in _TABLE.items() for name in names})


def _tensor_form(read: _Reading, kind: str, number: object = None) -> Form:
    node = read.node
    return TensorForm(None if node is None else node.meta.get("example_value"), node, kind, number)


@_reads("TensorVariable")
def _tensor(read: _Reading) -> Form:
    cls = read.get("class_type")
    return _tensor_form(read, cls.__name__ if isinstance(cls, type) else "Tensor")


@_reads("UnspecializedPythonVariable", "FakeItemVariable")
def _number_as_tensor(read: _Reading) -> Form:
    number = read.get("raw_value")
    return _tensor_form(read, f"{'number' if number is None else type(number).__name__} as Tensor", number)


@_reads("UserDefinedObjectVariable")
def _instance(read: _Reading) -> Form:
    return read.instance(read["value"], read.get("value_type"), _contents(read))


@_reads("NNModuleVariable")
def _specialized_module(read: _Reading) -> Form:
    value = read.get("value")
    return read.instance(read.tx.output.get_submodule(read["module_key"]) if value is None else value)


@_reads("UserDefinedExceptionObjectVariable")
def _user_exception(read: _Reading) -> Form:
    form = None if read.get("_base_vt") is None else read.form_of(read["_base_vt"])
    if not isinstance(form, Composite):
        return _instance(read)
    stored = [(name, value) for name, value in read.stored.items() if not is_deleted(value)]
    return replace(form, parts=(*form.parts, *stored))


@_reads("ExceptionVariable")
def _exception(read: _Reading) -> Form:
    cls, arguments = read["exc_type"], tuple(read["args"])
    related = [(name, read.get(name)) for name in ("__cause__", "__context__")]
    known = [(name, each) for name, each in related if each is not None and constant_in(each) is not None]
    return Composite(
        cls.__name__,
        (("args", tuple_form(arguments)), *known),
        cls.__name__,
        after=arguments,
        is_call=True,
        rebuild=lambda convert: cls(*map(convert, arguments)),
    )


@_reads("TracebackVariable")
def _traceback(read: _Reading) -> Form:
    summary = read.get("frame_summary")
    frame = None if summary is None else getattr(fields_of(summary).get("frame_summary"), "name", None)
    title = "traceback" if frame is None else f"traceback in {frame}"
    return Composite(title, tuple(held_trackers(read.tracker)), "traceback")


@_reads("UnknownVariable")
def _unknown_value(read: _Reading) -> Form:
    message = read.get("msg")
    return Composite("value that Dynamo does not know", (("graph break when used", message),) if message else ())


@_reads("StringFormatVariable")
def _string_format(read: _Reading) -> Form:
    given = read["sym_args"]
    arguments = tuple_form(list(given) if is_exactly(given, (list, tuple)) else [given])
    parts = (("format", read["format_string"]), ("arguments", arguments))
    return Composite("str, formatted when the graph has run:", parts, "str", after=(read["format_string"],))


@_reads("ConstDictVariable")
def _dictionary(read: _Reading) -> Form:
    cls = read.get("user_cls", dict)
    pairs = [(key_of(key), value) for key, value in dict.items(read.items)]
    return MappingForm(pairs, cls.__name__ if isinstance(cls, type) else "dict")


@_reads("DunderDictVariable")
def _attribute_dictionary(read: _Reading) -> Form:
    """Read ``obj.__dict__`` without iterating over torch's proxy for its items, which would make trackers."""
    stored = {**read.items.item_dict, **pending_attributes(read.tx, read.items.item)}
    return MappingForm([(name, value) for name, value in stored.items() if not is_deleted(value)])


@_reads("MappingProxyVariable")
def _mapping_proxy(read: _Reading) -> Form:
    form = read.form_of(read["dv_dict"])
    return MappingForm(form.pairs, "mappingproxy") if isinstance(form, MappingForm) else form


@_reads("DictKeysVariable", "DictValuesVariable", "DictItemsVariable", "DictViewVariable")
def _view(read: _Reading) -> Form:
    kind = str(type(read.tracker).kv)
    form = read.form_of(read["dv_dict"])
    pairs = form.pairs if isinstance(form, MappingForm) else ()
    parts = {"keys": [key for key, _ in pairs], "values": [value for _, value in pairs]}.get(kind)
    items: list[object] = parts if parts is not None else [tuple_form(pair) for pair in pairs]
    return SequenceForm(items, f"dict_{kind}", f"dict_{kind}([", "])")


@_reads("NamedTupleVariable", "StructSequenceVariable")
def _named_tuple(read: _Reading) -> Form:
    form, cls = _contents(read), read["value_type"]
    items = form.items if isinstance(form, SequenceForm) else ()
    names: tuple[str, ...] = tuple(getattr(cls, "_fields", ()) or getattr(cls, "__match_args__", ()))
    return SequenceForm(items, cls.__name__, f"{cls.__name__}(", ")", names if len(names) == len(items) else (), cls)


@_reads("SkipFunctionVariable")
def _skipped(read: _Reading) -> Form:
    function, reason = read["value"], read.get("reason")
    parts = (("function", function), *((("not traced because", reason),) if reason else ()))
    title = "function that Dynamo does not trace:"
    return Composite(title, parts, "function", after=(function,), rebuild=lambda _: function)


@_reads("NestedUserFunctionVariable")
def _nested_function(read: _Reading) -> Form:
    code, closure = constant_in(read["code"]), read.get("closure")
    cells = read.form_of(closure).items if closure is not None else ()  # type: ignore[union-attr]  # a closure has items
    return FunctionForm(
        str(constant_in(read["fn_name"])),
        code,
        defaults=read.get("defaults"),
        keyword_defaults=read.get("kwdefaults"),
        closure=tuple(zip(code.co_freevars, cells, strict=False)),
    )


@_reads("LocalGeneratorFunctionVariable")
def _generator_function(read: _Reading) -> Form:
    form = read.form_of(read["vt"])
    return form if isinstance(form, Known | FunctionForm) else _unknown(read)


@_reads("FunctoolsPartialVariable")
def _partial(read: _Reading) -> Form:
    function, arguments, keywords = read["func"], read["args"], MappingForm(list(read["keywords"].items()))
    return Composite(
        "partial",
        (("func", function), ("args", tuple_form(arguments)), ("keywords", keywords)),
        "partial",
        after=(function, *arguments),
        rebuild=lambda convert: functools.partial(convert(function), *map(convert, arguments), **convert(keywords)),
    )


@_reads("SuperVariable")
def _super(read: _Reading) -> Form:
    parts = (("class", read["typevar"]), ("object", read.get("objvar")))
    return Composite("super", parts, "super", after=tuple(part for _, part in parts if part is not None))


@_reads(
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
def _descriptor(read: _Reading) -> Form:
    descriptor = read["descriptor"]
    of = [(label, read[name]) for name, label in (("obj", "object"), ("owner", "class")) if read.get(name)]
    parts = (("descriptor", descriptor), *of)
    return Composite(_in_words(read.class_name), parts, after=(descriptor,), rebuild=lambda _: descriptor)


@_reads("TritonKernelVariable")
def _triton_kernel(read: _Reading) -> Form:
    kernel = read.get("kernel")
    name = getattr(getattr(kernel, "fn", kernel), "__name__", "")
    return Composite(f"Triton kernel {name}".rstrip(), (("kernel", kernel), ("grid", read.get("grid"))))


@_reads("LocalGeneratorObjectVariable")
def _generator(read: _Reading) -> Form:
    code, inner = read["code"], read.get("inline_tracer")
    builtin = _builtin_iterator(code)
    name = code.co_name if builtin is not None else f"generator {code.co_name}"
    type_name = "generator" if builtin is None else builtin.__name__
    if inner is None:
        return Composite(name, (), type_name, code, cls=builtin)
    if getattr(inner, "generator_exhausted", False):
        return Composite(f"{name} (finished)", (), type_name, code, cls=builtin)
    yielded = getattr(inner, "generated_items", None) or []
    parts = (*inner.symbolic_locals.items(), *([("yielded so far", SequenceForm(list(yielded)))] if yielded else ()))
    if builtin is None:
        where = f"at line {inner.lineno}" if inner.lineno and inner.lineno > 0 else "not started"
        name = f"{name} ({where})"
    return Composite(name, parts, type_name, code, cls=builtin)


def _builtin_iterator(code: types.CodeType) -> type | None:
    """Return the iterator type that torch's generator replaces: ``enumerate``, ``itertools.chain``."""
    polyfills = sys.modules.get("torch._dynamo.polyfills")
    if polyfills is None or not code.co_filename.startswith(tuple(polyfills.__path__)):
        return None
    builtin = getattr(builtins, code.co_name, None) or getattr(itertools, code.co_name, None)
    return builtin if isinstance(builtin, type) else None


@_reads("ListIteratorVariable")
def _list_iterator(read: _Reading) -> Form:
    rest = [] if read.get("is_exhausted") else list(read.items[read["index"] :])
    kind = "tuple" if "TupleIteratorVariable" in class_names(read.tracker) else "list"
    title = f"{kind} iterator, {len(rest)} of {len(read.items)} left"
    parts = (("left", SequenceForm(rest)), ("index", read["index"]))
    return Composite(title, parts, f"{kind}_iterator", rebuild=lambda convert: iter([convert(item) for item in rest]))


@_reads("RangeIteratorVariable")
def _range_iterator(read: _Reading) -> Form:
    numbers = (read["start"], read["stop"], read["step"])
    parts = (*zip(("next", "stop", "step"), numbers, strict=True), ("left", read["len"]))
    title = f"range iterator, {read['len']} left"
    return Composite(title, parts, "range_iterator", rebuild=lambda convert: iter(range(*map(convert, numbers))))


@_reads("DictViewIterator")
def _view_iterator(read: _Reading) -> Form:
    kind = str(type(read.tracker).view_type)
    try:
        items = list(copy.copy(read["_iter"]))
    except (TypeError, RuntimeError):
        return Composite(f"iterator of {kind}", ())
    left = [tuple_form(list(map(key_of, item))) if type(item) is tuple else key_of(item) for item in items]
    of_set = read.class_name == "SetIterator"
    what = "set" if of_set else f"dictionary {kind}"
    cls: type | None = type(iter(set())) if of_set else None  # Dynamo's class of the other iterators is right
    return Composite(f"iterator of {what}, {len(left)} left", (("left", SequenceForm(left)),), cls=cls)


@_reads("ZipVariable")
def _zip(read: _Reading) -> Form:
    return _of("zip", tuple((str(at), each) for at, each in enumerate(_listed(read, read["iterable"]))), "zip")


@_reads("MapVariable")
def _map(read: _Reading) -> Form:
    iterables = _listed(read, read.get("iterable", read.get("iterables", ())))
    return _of("map", (("function", read["fn"]), *((str(at), each) for at, each in enumerate(iterables))), "map")


def _listed(read: _Reading, value: Any) -> list[object]:
    if is_tracker(value) and not is_unrealized(unwrapped(value)):
        form = read.form_of(value)
        return list(form.items) if isinstance(form, SequenceForm) else [value]
    return list(value) if is_exactly(value, (list, tuple)) else [value]


# -- context managers --------------------------------------------------------------------------------------------------

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


@_reads("ContextWrappingVariable")
def _context(read: _Reading) -> Form:
    """Return the form of a context manager: the call that makes it, for example ``torch.autocast(...)``."""
    name = next((_CALLS[each] for each in class_names(read.tracker) if each in _CALLS), None)
    title = name or f"{_in_words(read.class_name)} context manager"
    values = {"target_values": read.get("target_values"), "initial_values": read.get("initial_values")}
    targets, initial = values.values()
    shown = [(label, value) for label, value in (("sets", targets), ("restores", initial)) if value is not None]
    others = [part for part in held_trackers(read.tracker) if part[0] not in values]
    after = () if targets is None else tuple(targets) if isinstance(targets, list | tuple) else (targets,)
    return Composite(title, (*shown, *others), "context manager", after=after, is_call=" " not in title)


@_reads("TorchFunctionModeStackVariable")
def _mode_stack(read: _Reading) -> Form:
    modes = list(read.get("symbolic_stack") or ())
    return Composite(f"torch function modes ({len(modes)})", tuple((str(at), mode) for at, mode in enumerate(modes)))
