"""Hooks into Dynamo's symbolic interpreter: before every line, before every instruction, after every new node.

torch/_dynamo/symbolic_convert.py: ``InstructionTranslatorBase.starts_line`` is called for every instruction that has a
line, ``step`` runs one instruction. Each call looks both up on the class, so wrappers can be installed and removed
while a trace runs. Hooks are called on the tracing thread, which holds Dynamo's global compile lock: only one thread at
a time is inside a trace. Installing and removing may happen on any thread.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature, owner_of
from dynamo_dap.debuggee.torch_api.objects import Node, Tracer, Translator
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.debuggee.wrapping.patches import Patches

_BASE = "torch._dynamo.symbolic_convert:InstructionTranslatorBase"
_STARTS_LINE = "torch._dynamo.symbolic_convert:InstructionTranslatorBase.starts_line"
_STEP = "torch._dynamo.symbolic_convert:InstructionTranslatorBase.step"

LINES = Feature("stopping while Dynamo traces", _BASE, _STARTS_LINE, signatures={_STARTS_LINE: ("self", "lineno")})
_CREATE_NODE = "torch._dynamo.output_graph:SubgraphTracer.create_node"

INSTRUCTIONS = Feature("stepping by instruction while Dynamo traces", _BASE, _STEP)

NODES = Feature("stopping at the operation that made a value", _CREATE_NODE)

Hook = Callable[[Any], None]
"""Gets torch's ``InstructionTranslatorBase``."""


def add_line_hook(patches: Patches, hook: Hook) -> None:
    """Call ``hook`` at every instruction that has a line, until ``patches`` is removed.

    ``lineno`` and ``instruction_pointer`` of the translator then belong to the instruction.
    """
    if LINES.problem is None:
        patches.after(LINES.resolve(_BASE), "starts_line", functools.partial(_at_line, hook))


def _at_line(hook: Hook, _result: None, translator: object, _line: int) -> None:
    hook(translator)


class TranslatorHooks:
    """Wrappers around two methods of the interpreter. One per process, as the methods are."""

    def __init__(
        self, on_line_instruction: Callable[[TracedFrame], None], on_instruction: Callable[[TracedFrame], None]
    ) -> None:
        """Keep the hooks to call.

        ``on_line_instruction`` is called when the frame has reached an instruction that has a line. ``on_instruction``
        is called before Dynamo fetches an instruction that has no line. ``want`` may extend it to all instructions.
        """
        self._on_line_instruction: Hook = lambda translator: on_line_instruction(TracedFrame(translator))
        self._on_instruction = on_instruction
        self._lock = lock("hooks of the translator", Level.HOOKS)
        self._lines, self._steps = Patches(LINES.name, self._end), Patches(LINES.name, self._end)
        self._has_every_instruction = False

    def want(self, *, lines: bool, instructions: bool) -> None:
        """Install both hooks for ``lines``; call ``on_instruction`` for all ``instructions``; else remove the hooks."""
        with self._lock:
            self._has_every_instruction = instructions
            if not lines:
                self._lines.remove()
            elif not self._lines.is_installed:
                add_line_hook(self._lines, self._on_line_instruction)
            if not (lines or instructions):
                self._steps.remove()
            elif not self._steps.is_installed and INSTRUCTIONS.problem is None:
                self._steps.before(INSTRUCTIONS.resolve(_BASE), "step", self._before_step)

    def _end(self) -> None:
        for patches in (self._lines, self._steps):
            patches.is_off = True
            patches.remove()

    @property
    def installed(self) -> tuple[str, ...]:
        """The names of the methods with hooks."""
        return (*self._lines.names, *self._steps.names)

    def _before_step(self, translator: Translator) -> None:
        # Runs for each instruction. Dynamo inserts some without a line when it cleans up code.
        pointer = translator.instruction_pointer
        lacks_line = pointer is not None and translator.instructions[pointer].starts_line is None
        if lacks_line or self._has_every_instruction:
            self._on_instruction(TracedFrame(translator))


NodeListener = Callable[[Node, int], None]
"""Gets a node (``torch.fx.Node``), and its number in the order in which the trace makes nodes.

Nodes of the outermost graph have whole numbers, and those of bodies of higher-order operators have negative ones.
"""


class NodeHook:
    """Wraps the method that adds nodes to graphs, for the traces of threads that listen. One per process.

    A node is identified by its number: Dynamo renames a node when a variable stores it, and removes unneeded nodes
    later.
    """

    def __init__(self) -> None:
        self._lock = lock("listeners to nodes", Level.HOOKS)
        self._listeners: dict[int, tuple[NodeListener, list[Any]]] = {}
        """By tracing thread: the listener, the outermost graph, and how many nodes it and its bodies got."""
        self._patches = Patches(NODES.name, self._listeners.clear)

    def want(self, listener: NodeListener | None) -> None:
        """Call ``listener`` with each node that the calling thread's trace adds to a graph or a body; None to end.

        Raises:
            FeatureMissing: this torch lacks the method.
        """
        NODES.require()
        with self._lock:
            self._listeners.pop(threading.get_ident(), None)
            if listener is not None:
                self._listeners[threading.get_ident()] = (listener, [None, 0, 0])
            if not self._listeners:
                self._patches.remove()
            elif not self._patches.is_installed:
                self._patches.after(*owner_of(_CREATE_NODE), self._created)

    def _created(self, node: Node, tracer: Tracer, *_: object, **__: object) -> None:
        known = self._listeners.get(threading.get_ident())
        if known is None:
            return
        outermost = tracer
        while outermost.parent is not None:
            outermost = outermost.parent
        listener, written = known
        if written[0] is not outermost.graph:  # the analysis restarted
            written[:] = [outermost.graph, 0, 0]
        if outermost is tracer:
            written[1] += 1
            listener(node, written[1])
        else:
            written[2] -= 1
            listener(node, written[2])


NODE_HOOK = NodeHook()
