"""Hooks into Dynamo's symbolic interpreter: before every line, before every instruction, after every node it makes.

torch/_dynamo/symbolic_convert.py: ``InstructionTranslatorBase.starts_line`` is called for every instruction that has a
line, ``step`` runs one instruction; both are looked up on the class at each call, so wrappers can come and go while a
trace runs. Hooks are called on the tracing thread, which holds Dynamo's global compile lock: only one thread at a time
is inside a trace. Installing and removing may happen on any thread.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.traced_frame import TracedFrame

_BASE = "torch._dynamo.symbolic_convert:InstructionTranslatorBase"
_STARTS_LINE = "torch._dynamo.symbolic_convert:InstructionTranslatorBase.starts_line"
_STEP = "torch._dynamo.symbolic_convert:InstructionTranslatorBase.step"

LINES = Feature("stopping while Dynamo traces", _BASE, _STARTS_LINE)
_CREATE_NODE = "torch._dynamo.output_graph:SubgraphTracer.create_node"

INSTRUCTIONS = Feature("stepping by instruction while Dynamo traces", _BASE, _STEP)

NODES = Feature("stopping at the operation that made a value", _CREATE_NODE)

Hook = Callable[[Any], None]
"""Gets torch's ``InstructionTranslatorBase``."""


class LineHooks:
    """Wraps ``starts_line`` for whoever wants to hear of lines. One per process, as the method is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hooks: dict[object, Hook] = {}
        self._original: Any = None

    def want(self, owner: object, hook: Hook | None) -> None:
        """Call ``hook`` at every instruction that has a line, from now on; None to have none of ``owner`` any more.

        ``lineno`` and ``instruction_pointer`` of the translator are those of the instruction by then.
        """
        with self._lock:
            if hook is self._hooks.get(owner) or LINES.problem is not None:
                return
            base = LINES.resolve(_BASE)
            if self._original is None:
                self._original = base.__dict__["starts_line"]
            if hook is None:
                del self._hooks[owner]
            else:
                self._hooks[owner] = hook
            wrapper = self._original
            for each in self._hooks.values():
                wrapper = _with_hook(wrapper, each)
            base.starts_line = wrapper
            if not self._hooks:
                self._original = None


def _with_hook(original: Any, hook: Hook) -> Any:
    def starts_line(self: Any, lineno: int) -> None:
        original(self, lineno)
        hook(self)

    return starts_line


LINE_HOOKS = LineHooks()


class TranslatorHooks:
    """Wrappers around two methods of the interpreter. One per process, as the methods are."""

    def __init__(
        self, on_line_instruction: Callable[[TracedFrame], None], on_instruction: Callable[[TracedFrame], None]
    ) -> None:
        """Keep the hooks to be called.

        ``on_line_instruction`` is called at every instruction that has a line, once the frame stands at it;
        ``on_instruction`` before every other instruction is fetched, or before every one.
        """
        self._on_line_instruction: Hook = lambda translator: on_line_instruction(TracedFrame(translator))
        self._on_instruction = on_instruction
        self._lock = threading.Lock()
        self._original_step: Any = None
        self._has_lines = self._has_every_instruction = False

    def want(self, *, lines: bool, instructions: bool) -> None:
        """Hear of instructions with a line and of those without, or of none; with ``instructions``, of every one."""
        with self._lock:
            LINE_HOOKS.want(self, self._on_line_instruction if lines else None)
            self._has_lines = lines and LINES.problem is None
            self._has_every_instruction = instructions
            self._want_steps(lines or instructions)

    @property
    def installed(self) -> tuple[str, ...]:
        """The names of the methods that are wrapped now."""
        names = {"starts_line": self._has_lines, "step": self._original_step is not None}
        return tuple(name for name, is_in in names.items() if is_in)

    def _want_steps(self, wanted: bool) -> None:
        if wanted == (self._original_step is not None) or INSTRUCTIONS.problem is not None:
            return
        base = INSTRUCTIONS.resolve(_BASE)
        if wanted:
            self._original_step = base.__dict__["step"]
            base.step = self._step_wrapper(self._original_step)
        else:
            base.step = self._original_step
            self._original_step = None

    def _step_wrapper(self, original: Any) -> Any:
        hook, hooks = self._on_instruction, self

        def step(self: Any) -> Any:
            if hooks._has_every_instruction or _lacks_line(self):
                hook(TracedFrame(self))
            return original(self)

        return step


def _lacks_line(translator: Any) -> bool:
    """Whether the instruction that is fetched next has no line: Dynamo puts such ones in as it cleans code up."""
    pointer = translator.instruction_pointer
    return pointer is not None and translator.instructions[pointer].starts_line is None


NodeListener = Callable[[Any, int], None]
"""Gets a node (``torch.fx.Node``), and which of its graph's nodes it is in the order in which they are made."""


class NodeHook:
    """Wraps the method that puts nodes into graphs, for one thread's trace of a call. One per process.

    A node is told by its number: its name changes when it is stored in a variable, and nodes that nothing needs are
    taken out of the graph at the end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[int, tuple[NodeListener, list[Any]]] = {}
        """By the thread that traces; with it the graph that is being written, and how many nodes were put there."""
        self._original: Any = None

    def want(self, listener: NodeListener | None) -> None:
        """Call ``listener`` with each node of the outermost graph that the calling thread's trace makes; None to end.

        Raises:
            FeatureMissing: this torch lacks what it takes.
        """
        owner = NODES.resolve(_CREATE_NODE)
        tracer: Any = sys.modules[owner.__module__].SubgraphTracer
        with self._lock:
            self._listeners.pop(threading.get_ident(), None)
            if listener is not None:
                self._listeners[threading.get_ident()] = (listener, [None, 0])
            if self._listeners and self._original is None:
                self._original = tracer.__dict__["create_node"]
                tracer.create_node = self._wrapper(self._original)
            elif not self._listeners and self._original is not None:
                tracer.create_node, self._original = self._original, None

    def _wrapper(self, original: Any) -> Any:
        def create_node(tracer: Any, *args: Any, **kwargs: Any) -> Any:
            node = original(tracer, *args, **kwargs)
            known = self._listeners.get(threading.get_ident())
            if known is not None and tracer.parent is None:
                listener, written = known
                if written[0] is not node.graph:  # the analysis was begun again
                    written[:] = [node.graph, 0]
                written[1] += 1
                listener(node, written[1])
            return node

        return create_node


NODE_HOOK = NodeHook()
