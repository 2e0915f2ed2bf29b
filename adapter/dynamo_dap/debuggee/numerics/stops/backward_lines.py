"""Records a compiled call's lines in the order in which its backward pass reaches them.

For each visit of a line, a replay records the graph nodes that the visit adds, including those of called functions.
The backward pass reaches the visits in the reverse order of their ends: the last line first, and a call before the
lines of its callee. Each cache entry is recorded once, on the tracing thread. The result lives as long as the entry's
record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dynamo_dap.debuggee.agent.breakpoints import LineBreakpoint
from dynamo_dap.debuggee.agent.stepping import Step, StepKind
from dynamo_dap.debuggee.agent.user_code import is_torch_file
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import readable_function_name, resume_function
from dynamo_dap.debuggee.torch_api.graphs.graph import is_erased, target_name
from dynamo_dap.debuggee.torch_api.graphs.saved_graphs import SavedGraph
from dynamo_dap.debuggee.torch_api.objects import Graph, Node
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.trace.runs import TracePoint

Position = tuple[int, int]
"""The number of an attempt, and how many instructions with a line it has reached: see ``TraceProgress``."""


@dataclass(eq=False)
class Visit:
    """One execution of a line in a call."""

    position: Position
    path: str
    line: int
    function: str
    depth: int
    """How many traced functions have called the line's function."""
    is_user_code: bool
    before: str
    """The last node added before the visit; empty for none."""
    is_in_body: bool = False
    """Whether the line is in a higher-order operator's body, whose nodes are in another graph."""
    nodes: tuple[str, ...] = ()
    """The nodes that the visit adds."""

    @property
    def place(self) -> tuple[str, int]:
        """File and line."""
        return self.path, self.line

    def is_at(self, point: TracePoint) -> bool:
        """Return whether a replay at ``point`` has reached this line, with the same last node in its graph."""
        frame = point.frame
        return (frame.path, point.line, frame.last_operation) == (self.path, self.line, self.before)


@dataclass(eq=False)
class BackwardLines:
    """The lines of a cache entry's trace. They are the same in each call of the entry."""

    visits: list[Visit] = field(default_factory=list)
    """The visits in the order of their ends: the backward pass reaches them in the reverse order."""
    graph: SavedGraph = field(default_factory=SavedGraph)
    breakpoints: Mapping[tuple[str, int], list[LineBreakpoint]] = field(default_factory=dict)
    """Breakpoints for these lines, by file and line."""
    breakpoints_at: int = -1
    """The version of the breakpoint table from which ``breakpoints`` was made."""

    @property
    def lines(self) -> dict[str, frozenset[int]]:
        """The lines that add nodes to the graph or to an operator's body, by file."""
        found: dict[str, set[int]] = {}
        for each in self.visits:
            if each.nodes or each.is_in_body:
                found.setdefault(each.path, set()).add(each.line)
        return {path: frozenset(lines) for path, lines in found.items()}


class Survey:
    """Records the visits of lines in a trace. Lives for that trace."""

    def __init__(self) -> None:
        self._attempt: Any = None
        self._begin()

    def _begin(self) -> None:
        self._found = BackwardLines()
        self._open: list[tuple[object, Visit]] = []
        """Each running interpreter with the visit of its present line, outermost first."""
        self._created: list[Node] = []
        """The nodes added so far. Not their names: Dynamo renames a node after the variable that stores it."""
        self._begun: dict[int, int] = {}
        self._ended: list[tuple[Visit, int, int]] = []

    def on_reached(self, point: TracePoint) -> None:
        """Note the line that begins at ``point``."""
        frame = point.frame
        if frame.attempt is not self._attempt:
            self._begin()  # the analysis restarted
            self._attempt = frame.attempt
        if self._open and self._open[-1][0] is not frame.interpreter:
            running = {id(each.interpreter) for each in frame.with_callers()}
            while self._open and id(self._open[-1][0]) not in running:
                # Later nodes belong to the caller, for example the operator whose body has just been traced.
                self._close(self._open.pop()[1])
        last = self._note_nodes(point)
        if not (point.begins_line or self._continues_line(frame)):
            return
        chain = [each.interpreter for each in frame.with_callers()]
        if self._open and self._open[-1][0] is chain[0]:
            self._close(self._open.pop()[1])
        position = (point.progress.identity.attempt, point.progress.position)
        visit = Visit(
            position,
            frame.path,
            point.line,
            readable_function_name(frame.code.co_name),
            len(chain) - 1,
            point.is_user_code,
            before=last,
            is_in_body=frame.is_in_body,
        )
        self._begun[id(visit)] = len(self._created)
        self._open.append((chain[0], visit))

    def _continues_line(self, frame: TracedFrame) -> bool:
        """Return whether a resume function begins inside a line, for example after a branch on a tensor's data."""
        return (
            resume_function(frame.code) is not None
            and not frame.is_in_resume_prologue
            and all(interpreter is not frame.interpreter for interpreter, _ in self._open)
        )

    def _note_nodes(self, point: TracePoint) -> str:
        while self._created and is_erased(self._created[-1]):
            self._created.pop()
        self._created += point.frame.operations_since(self._created[-1] if self._created else None)
        return point.frame.last_operation

    def _close(self, visit: Visit) -> None:
        self._ended.append((visit, self._begun.pop(id(visit)), len(self._created)))
        self._found.visits.append(visit)

    def finish(self, graph: Graph) -> None:
        """End the recording: give each visit the final names of its nodes in ``graph``, that of the last attempt."""
        last = self._created[-1].name if self._created else ""
        nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
        names = [node.name for node in nodes]
        self._created += nodes[names.index(last) + 1 :] if last in names else []
        while self._open:
            self._close(self._open.pop()[1])
        for visit, begun, ended in self._ended:
            visit.nodes = tuple(node.name for node in self._created[begun:ended])
        self._created, self._ended = [], []
        self._found.graph.finish(self._attempt, graph)

    def result(self) -> BackwardLines:
        """Return the recorded visits; empty if the trace made no graph."""
        self._found.graph.close()
        return self._found if self._found.graph.outputs else BackwardLines()


@dataclass(frozen=True)
class BackwardOrigin:
    """The visit at which a step in a backward pass began."""

    call: object
    """The visit's call, compared by identity."""
    depth: int
    """The visit's ``depth``."""


def ends_at(step: Step, call: object, visit: Visit) -> bool:
    """Return whether ``step`` ends at ``visit`` of ``call``, which the backward pass has now reached."""
    origin = step.origin
    if not isinstance(origin, BackwardOrigin) or not visit.is_user_code:
        return False
    if origin.call is not call or step.kind is StepKind.IN:
        return True  # in another call: one that the program made earlier
    return visit.depth < origin.depth if step.kind is StepKind.OUT else visit.depth <= origin.depth


def visit_that_makes(lines: BackwardLines, node: Node) -> Visit | None:
    """Return the visit of the innermost line outside torch that adds a node, else of the innermost line in torch.

    For an operator with bodies, take the outermost line instead: Dynamo adds the operator's node after its body, so
    that the node is also recorded for the last line of the body.
    """
    found = [each for each in lines.visits if node.name in each.nodes]
    found = found[::-1] if "higher_order" in target_name(node) else found
    return next((each for each in found if not is_torch_file(each.path)), found[0] if found else None)
