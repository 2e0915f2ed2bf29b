"""Finds the line of the program whose operation a backend failed to compile.

While a backend interprets a graph, a frame of the traceback has the node. While AOTAutograd traces a backward pass,
torch passes each operation's forward stack to ``set_stack_trace``; a hook notes the last one. Runs on the thread that
compiles.
"""

from __future__ import annotations

import types
from collections.abc import Iterator

from dynamo_dap.debuggee.torch_api.features import Feature, owner_of
from dynamo_dap.debuggee.torch_api.graphs.graph import places_in
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place
from dynamo_dap.debuggee.wrapping.patches import Patches

_STACK = "torch.fx.traceback:set_stack_trace"
FAILED_LINES = Feature("the forward line of a backward that AOTAutograd cannot trace", _STACK)

_INTERPRETER = "/torch/fx/interpreter.py"
_ENGINE = "/torch/autograd/graph.py"
_NODE = "run_node"
"""The interpreter's method that runs a node."""
_RUNS_BACKWARD = "_engine_run_backward"


class FailedLines:
    """Knows the forward stack of the operation whose backward torch traced last."""

    def __init__(self) -> None:
        self._patches = Patches("the line of a failed compile")
        self._stack = ""

    def begin(self) -> None:
        """Note these stacks from now on; a new compile begins."""
        self._stack = ""
        if not self._patches.is_installed and FAILED_LINES.problem is None:
            self._patches.before(*owner_of(_STACK), self._note)

    def places(self, problem: BaseException) -> list[Place]:
        """Return the frames that made the operation with which a compile failed, innermost first; none if unknown."""
        stack = ""
        for frame in _frames(problem.__traceback__):
            path, name = frame.f_code.co_filename.replace("\\", "/"), frame.f_code.co_name
            if path.endswith(_ENGINE) and name == _RUNS_BACKWARD:
                stack = self._stack
            elif name == _NODE and path.endswith(_INTERPRETER):
                stack = _stack_of(frame.f_locals.get("n")) or stack
        return [place for place, _ in places_in(stack)][::-1]

    def _note(self, stack: list[str]) -> None:
        self._stack = "".join(stack)


def _frames(traceback: types.TracebackType | None) -> Iterator[types.FrameType]:
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _stack_of(node: object) -> str:
    meta = getattr(node, "meta", None)
    return str(meta.get("stack_trace") or "") if isinstance(meta, dict) else ""
