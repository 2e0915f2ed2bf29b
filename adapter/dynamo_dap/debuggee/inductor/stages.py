"""Explores compiles: collects the stages of each one as documents, for requests and for a file.

Compiling threads add the stages; the agent's reader thread answers requests. One ``StageCollector`` per process, while
a session or a command explores.
"""

from __future__ import annotations

from collections.abc import Callable

from dynamo_dap.debuggee.inductor.explored_stages import (
    ExploredStages,
    IrOperation,
    Kernel,
    StageObserver,
    compile_id,
)
from dynamo_dap.debuggee.inductor.stage_documents import StageDocuments
from dynamo_dap.debuggee.recording.answers import SourceOf, StagesBody, stages_body
from dynamo_dap.debuggee.recording.function_names import function_of_compile, name_of_compile
from dynamo_dap.debuggee.torch_api.compiles.compile_hooks import HOOKS, CompileObserver, FrameCompile
from dynamo_dap.debuggee.torch_api.lowering.stage_costs import Figures
from dynamo_dap.debuggee.torch_api.objects import Graph
from dynamo_dap.debuggee.wrapping.locks import Level, reentrant_lock
from dynamo_dap.explore.model import Document, Explored, in_order

_MAXIMUM_COMPILES = 200
"""Later compiles are not explored: each keeps its texts."""

OnDocuments = Callable[[Explored, list[Document]], None]


class StageCollector(CompileObserver, StageObserver):
    """Collects the stages of every compile."""

    def __init__(self, on_documents: OnDocuments, is_wanted: Callable[[], bool], report: Callable[[str], None]) -> None:
        """Collect stages. ``on_documents`` gets new documents, with their compile, whose own documents are left out.

        ``is_wanted`` says whether to explore; ``report`` gets a text for the user about what this torch cannot report.
        """
        self._is_wanted = is_wanted
        self._on_documents = on_documents
        self._report = report
        self._stages = ExploredStages(self)
        self._compiles: dict[str, tuple[Explored, StageDocuments]] = {}
        self._newest: dict[str, str] = {}
        """By Dynamo's compile id, which repeats in a program that resets Dynamo."""
        self._lock = reentrant_lock("explored compiles", Level.FEATURES)

    def update_hooks(self) -> None:
        """Explore from now on, if ``is_wanted`` says so."""
        if self._is_wanted():
            HOOKS.want(self, (CompileObserver.compile_began, CompileObserver.graph_made))
        else:
            self.close()

    def close(self) -> None:
        """Stop exploring; what is known stays."""
        HOOKS.want(self, ())
        self._stages.remove()

    def explored(self) -> list[Explored]:
        """Return everything that is known. Runs on any thread."""
        with self._lock:
            return [
                Explored(one.id, one.name, one.place, in_order(documents.documents.values()))
                for one, documents in self._compiles.values()
                if documents.documents
            ]

    def stages(self, compile_id: str | None, source_of: SourceOf) -> StagesBody:
        """Return the stages of a compile. Raises ``NoSuchCompile``."""
        return stages_body(self.explored(), compile_id, source_of)

    # -- compiles: compiling threads -------------------------------------------------------------------------------

    def compile_began(self, compiling: FrameCompile) -> None:
        """Begin to collect the stages of a compile."""
        with self._lock:
            identifier, number = compiling.compile_id, 2
            while identifier in self._compiles:
                identifier, number = f"{compiling.compile_id}#{number}", number + 1
            if len(self._compiles) < _MAXIMUM_COMPILES:
                name, place = name_of_compile(compiling), function_of_compile(compiling)[1]
                explored = Explored(identifier, name, place)
                self._compiles[identifier] = explored, StageDocuments(name)
                self._newest[compiling.compile_id] = identifier

    def graph_made(self, compiling: FrameCompile | None, graph: Graph) -> None:
        """Keep Dynamo's graph, and install hooks for the backend that is about to be called."""
        for problem in self._stages.install():
            self._report(f"dynamo-dap: {problem}\n")
        if compiling is not None:
            self._make(compiling.compile_id, lambda made: [made.dynamo(graph)])

    def _make(self, dynamo_id: str | None, make: Callable[[StageDocuments], list[Document]]) -> None:
        with self._lock:
            found = self._compiles.get(self._newest.get(dynamo_id or "", ""))
            if found is not None:
                self._on_documents(found[0], make(found[1]))

    # -- stages ----------------------------------------------------------------------------------------------------

    def look(self, graph: Graph) -> str:
        """Return the text of a graph before passes change it."""
        with self._lock:
            found = self._compiles.get(self._newest.get(compile_id() or "", ""))
            return "" if found is None else found[1].text_of(graph)

    def pre_grad(self, before: Callable[[], str], graph: Graph) -> None:
        """Keep the graph after the pre-grad passes."""
        title = "Graph after pre-grad passes"
        self._make(compile_id(), lambda made: [made.graph("pre-grad", title, graph, before())])

    def joint(self, graph: Graph) -> None:
        """Keep the joint graph."""
        self._make(compile_id(), lambda made: [made.graph("joint", "Joint graph", graph)])

    def joint_passes(self, before: Callable[[], str], graph: Graph) -> None:
        """Keep the joint graph after the passes."""
        title = "Graph after joint passes"
        self._make(compile_id(), lambda made: [made.graph("joint-passes", title, graph, before())])

    def split(self, direction: str, graph: Graph) -> None:
        """Keep the forward, backward or inference graph."""
        self._make(compile_id(), lambda made: [made.graph(direction, f"{direction.capitalize()} graph", graph)])

    def divided(self, saved: dict[str, int], recomputed: dict[str, int]) -> None:
        """Keep which nodes are saved for the backward pass, and which it recomputes."""
        self._make(compile_id(), lambda made: made.divided(saved, recomputed))

    def post_grad(self, direction: str, before: Callable[[], str], graph: Graph) -> None:
        """Keep a graph after the post-grad passes."""
        title = f"{direction.capitalize()} graph after post-grad passes"
        self._make(compile_id(), lambda made: [made.graph(f"{direction}-post-grad", title, graph, before())])

    def operations(self, direction: str, operations: list[IrOperation], *, fused: bool) -> None:
        """Keep the scheduler's operations."""
        self._make(compile_id(), lambda made: [made.operations(direction, operations, fused=fused)])

    def code(self, direction: str, text: str, kernels: list[Kernel], costs: dict[str, Figures]) -> None:
        """Keep the output code with its kernels."""
        self._make(compile_id(), lambda made: made.code(direction, text, kernels, costs))

    def runnable(self, direction: str, text: str) -> None:
        """Keep Inductor's input graph, as a program."""
        self._make(compile_id(), lambda made: [made.runnable(direction, text)])
