"""Declares the attributes of torch's objects that the debugger reads.

Type checks use these declarations. ``tests/matrix/probe_sources.py`` searches torch's files for the attributes. No
object is tested against these classes. A name that only some versions of torch have is read by ``getattr``, and is not
listed.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

Operation: TypeAlias = "Callable[..., Tensor]"
"""A method of tensors that returns a tensor."""


class Node(Protocol):
    """A ``torch.fx.Node``: one operation of a graph."""

    op: str
    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    meta: dict[str, Any]
    users: dict[Node, None]
    graph: Graph
    stack_trace: str | None
    prev: Node
    _prev: Node
    _next: Node
    _erased: bool

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among its operands, each once."""


class Graph(Protocol):
    """A ``torch.fx.Graph``."""

    owning_module: Any
    _len: int
    _root: Node
    _insert: Any

    @property
    def nodes(self) -> Nodes:
        """Its nodes, in order."""

    def erase_node(self, node: Node) -> None:
        """Remove a node without users."""


class Nodes(Protocol):
    """The nodes of a graph, in both directions."""

    def __iter__(self) -> Iterator[Node]:
        """Yield them in order."""

    def __reversed__(self) -> Iterator[Node]:
        """Yield them from the last."""

    def __len__(self) -> int:
        """Count them."""


class GraphModule(Protocol):
    """A ``torch.fx.GraphModule``: a graph with its tensors and bodies."""

    graph: Graph
    meta: dict[str, Any]

    def recompile(self) -> object:
        """Write the code of ``forward`` again."""


class Tracer(Protocol):
    """A ``SubgraphTracer`` (torch._dynamo.output_graph): writes one graph, or the body of an operator."""

    graph: Graph
    parent: Tracer | None
    input_name_to_proxy: dict[str, Any]


class SideEffects(Protocol):
    """A ``SideEffects`` (torch._dynamo.side_effects): the program's objects that a trace knows and changes."""

    id_to_variable: dict[int, Any]
    store_attr_mutations: dict[Any, dict[str, Any]]
    save_for_backward: list[Any]
    tensor_hooks: dict[int, Any]
    keepalive: list[Any]

    def store_cell(self, cell: Any, value: Any) -> None:
        """Note an assignment to a captured variable."""


class ShapeEnv(Protocol):
    """A ``ShapeEnv`` (torch.fx.experimental.symbolic_shapes): the facts about sizes in a trace."""

    guards: list[Any]
    replacements: dict[Any, Any]
    var_to_range: dict[Any, Any]
    num_deferred_runtime_asserts: int
    settings: Any
    _version_counter: int

    def suppress_guards(self) -> AbstractContextManager[object]:
        """Add no guard inside."""


class TracingContext(Protocol):
    """A ``TracingContext`` (torch._guards)."""

    fake_mode: Any
    guards_context: Any
    global_context: Any
    tensor_to_context: Any


class Output(Protocol):
    """An ``OutputGraph`` (torch._dynamo.output_graph): one attempt."""

    graph: Graph
    tracers: list[Tracer]
    side_effects: SideEffects
    shape_env: ShapeEnv
    tracing_context: TracingContext
    root_tx: Any
    nn_modules: dict[str, Any]
    input_source_to_var: dict[Any, Any]
    installed_globals: set[str]
    global_scope: dict[str, Any]
    local_scope: dict[str, Any]
    cleanups: list[Any]
    cleanup: Callable[[], None]
    fake_mode: Any
    guards: Any
    compiler_fn: Any
    unspec_variable_map: dict[Any, Any]

    def get_submodule(self, keys: str) -> Any:
        """Return a module or tensor of the graph."""

    @property
    def root_tracer(self) -> Tracer:
        """The tracer of the outermost graph."""

    @property
    def current_tracer(self) -> Tracer:
        """The tracer of the innermost graph."""

    def save_global_state(self, out: dict[str, Any] | None = None) -> None:
        """Note torch's global switches."""


class Instruction(Protocol):
    """An ``Instruction`` (torch._dynamo.bytecode_transformation): Dynamo's own copy of one of Python's."""

    opname: str
    arg: int | None
    argval: Any
    target: Instruction | None
    exn_tab_entry: Any
    starts_line: Any
    positions: Any


class Translator(Protocol):
    """An ``InstructionTranslatorBase`` (torch._dynamo.symbolic_convert): interprets one function."""

    output: Output
    symbolic_locals: dict[str, Any]
    stack: list[Any]
    block_stack: list[Any]
    instructions: list[Instruction]
    indexof: Mapping[Instruction, int]
    current_instruction: Instruction
    instruction_pointer: int | None
    lineno: int
    inline_depth: int
    error_on_graph_break: bool | None
    f_code: types.CodeType
    f_globals: dict[str, Any]
    f_builtins: dict[str, Any]
    f_locals: dict[str, Any]
    post_prune_cell_and_freevars: dict[str, Any] | None


class Tensor(Protocol):
    """A ``torch.Tensor``, real or fake: the parts of its interface that the debugger uses."""

    shape: Any
    dtype: Any
    device: Any
    layout: Any
    requires_grad: bool
    grad: Any
    grad_fn: GradientNode | None
    output_nr: int
    data: Tensor
    real: Tensor
    imag: Tensor
    is_leaf: bool
    is_meta: bool
    is_nested: bool
    is_quantized: bool
    itemsize: int
    _version: int

    abs: Operation
    copy_: Operation
    permute: Operation
    requires_grad_: Operation
    resolve_neg: Operation
    round: Operation
    add_: Operation
    all: Operation
    any: Operation
    argmax: Operation
    argsort: Operation
    as_strided: Operation
    clamp: Operation
    clone: Operation
    coalesce: Operation
    conj: Operation
    contiguous: Operation
    cpu: Operation
    dequantize: Operation
    detach: Operation
    double: Operation
    expand: Operation
    flatten: Operation
    indices: Operation
    isclose: Operation
    isfinite: Operation
    isinf: Operation
    isnan: Operation
    logical_not: Operation
    masked_fill: Operation
    maximum: Operation
    mean: Operation
    median: Operation
    mul_: Operation
    nan_to_num: Operation
    narrow: Operation
    norm: Operation
    new_zeros: Operation
    nonzero: Operation
    pow: Operation
    quantile: Operation
    reshape: Operation
    resolve_conj: Operation
    signbit: Operation
    sqrt: Operation
    square: Operation
    std: Operation
    sum: Operation
    to: Operation
    to_dense: Operation
    unsqueeze: Operation
    values: Operation
    view: Operation
    where: Operation
    max: Callable[..., Any]
    min: Callable[..., Any]

    data_ptr: Callable[[], int]
    dim: Callable[[], int]
    element_size: Callable[[], int]
    equal: Callable[[object], bool]
    is_inference: Callable[[], bool]
    is_shared: Callable[[], bool]
    is_contiguous: Callable[..., bool]
    is_complex: Callable[[], bool]
    is_floating_point: Callable[[], bool]
    item: Callable[[], Any]
    numel: Callable[[], int]
    register_hook: Callable[[Callable[[Any], object]], Any]
    size: Callable[..., Any]
    storage_offset: Callable[[], Any]
    stride: Callable[..., Any]
    unbind: Callable[..., Sequence[Tensor]]
    tolist: Callable[[], Any]
    untyped_storage: Callable[[], Any]

    __tensor_flatten__: Callable[[], tuple[list[str], object]]

    __eq__: Any  # unlike other objects', it compares elements and returns a tensor
    __ne__: Any
    __lt__: Operation
    __le__: Operation
    __gt__: Operation
    __ge__: Operation
    __add__: Operation
    __sub__: Operation
    __mul__: Operation
    __truediv__: Operation
    __rmul__: Operation
    __and__: Operation
    __or__: Operation
    __invert__: Operation
    __getitem__: Operation

    def __hash__(self) -> int: ...

    def __float__(self) -> float: ...

    def __int__(self) -> int: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Tensor]: ...


class GradientNode(Protocol):
    """A ``torch.autograd.graph.Node``: one operation of autograd's graph."""

    name: Callable[[], str]
    next_functions: Sequence[tuple[Any, int]]
    register_prehook: Callable[[Callable[[tuple[object, ...]], object]], Any]
    register_hook: Callable[[Callable[[tuple[object, ...], tuple[object, ...]], object]], Any]


CLASSES: dict[type, str] = {
    Node: "torch.fx.node:Node",
    Graph: "torch.fx.graph:Graph",
    GraphModule: "torch.fx.graph_module:GraphModule",
    Tracer: "torch._dynamo.output_graph:SubgraphTracer",
    SideEffects: "torch._dynamo.side_effects:SideEffects",
    ShapeEnv: "torch.fx.experimental.symbolic_shapes:ShapeEnv",
    TracingContext: "torch._guards:TracingContext",
    Output: "torch._dynamo.output_graph:OutputGraph",
    Instruction: "torch._dynamo.bytecode_transformation:Instruction",
    Translator: "torch._dynamo.symbolic_convert:InstructionTranslatorBase",
}
"""By protocol, the class of torch that it describes. The attributes of the other protocols are public."""
