"""Describes the objects of torch that are read, by the attributes that the debugger uses.

For type checks, and for ``tests/matrix/probe_sources.py``, which looks the attributes up in torch's files: no object is
tested against them. A name that only some versions of torch have is read by ``getattr`` and is not listed.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol


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
    """A ``ShapeEnv`` (torch.fx.experimental.symbolic_shapes): what a trace knows of sizes."""

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


class Translator(Protocol):
    """An ``InstructionTranslatorBase`` (torch._dynamo.symbolic_convert): interprets one function."""

    output: Output
    symbolic_locals: dict[str, Any]
    stack: list[Any]
    block_stack: list[Any]
    instructions: list[Any]
    indexof: Mapping[Any, int]
    current_instruction: Any
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
    """A ``torch.Tensor``, real or fake."""

    shape: Any
    dtype: Any
    device: Any
    layout: Any
    requires_grad: bool
    grad: Any
    grad_fn: Any
    is_leaf: bool
    _version: int
    is_meta: bool
    is_nested: bool

    def dim(self) -> int:
        """Return how many dimensions it has."""

    def numel(self) -> int:
        """Return how many elements it has."""

    def element_size(self) -> int:
        """Return the bytes of an element."""

    def data_ptr(self) -> int:
        """Return the address of the first element."""

    def size(self) -> Any:
        """Return its sizes."""

    def stride(self) -> Any:
        """Return the steps between elements."""

    def storage_offset(self) -> Any:
        """Return the position of the first element in its memory."""

    def untyped_storage(self) -> Any:
        """Return its memory."""

    def is_complex(self) -> bool:
        """Return whether its elements are complex."""

    def is_floating_point(self) -> bool:
        """Return whether its elements are floats."""

    def detach(self) -> Any:
        """Return the same values without gradients."""


CLASSES: dict[type, str] = {
    Node: "torch.fx.node:Node",
    Graph: "torch.fx.graph:Graph",
    GraphModule: "torch.fx.graph_module:GraphModule",
    Tracer: "torch._dynamo.output_graph:SubgraphTracer",
    SideEffects: "torch._dynamo.side_effects:SideEffects",
    ShapeEnv: "torch.fx.experimental.symbolic_shapes:ShapeEnv",
    TracingContext: "torch._guards:TracingContext",
    Output: "torch._dynamo.output_graph:OutputGraph",
    Translator: "torch._dynamo.symbolic_convert:InstructionTranslatorBase",
}
"""The classes of torch that they describe, except tensors, whose attributes are public."""
