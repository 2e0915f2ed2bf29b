"""Counts the items that torch's ``CompilerBisector`` may disable in one run, and describes one of them.

Torch itself disables decompositions, passes and lowerings through its environment variables. This module counts torch's
queries in the run, and answers which settings the bisector changes. Runs on the compiling thread, in a process made for
this run, and stays installed for the life of that process.
"""

from __future__ import annotations

import types
from collections.abc import Generator, Mapping
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.graphs.graph import user_place
from dynamo_dap.debuggee.torch_api.import_hooks import when_imported
from dynamo_dap.debuggee.torch_api.objects import Node
from dynamo_dap.debuggee.wrapping.patches import Outcome, Patches, answering, calling_frame
from dynamo_dap.protocol.requests.bisection import BisectedBody, BisectedItem, BisectedPlace

_BISECTOR = "torch._inductor.compiler_bisector:CompilerBisector"
_DISABLE = "torch._inductor.compiler_bisector:CompilerBisector.disable_subsystem"
_CHANGE = "torch._inductor.compiler_bisector:CompilerBisector.get_config_change"
_OBSERVER = "torch.fx.passes.graph_transform_observer:GraphTransformObserver"
_CURRENT = "torch.fx.traceback:get_current_meta"

BISECTING = Feature("the command bisect", _BISECTOR, _DISABLE, _CHANGE)
PASSES = Feature("which operations a pass changed", _OBSERVER)
CURRENT_NODE = Feature("the line of a decomposition", _CURRENT)

_PLACES = 5


class BisectedRun:
    """Counts items, for the life of its process."""

    def __init__(self, number: int | None, settings: Mapping[str, object]) -> None:
        """Bisect with Inductor's ``settings``, and describe the item ``number``, counted from 0."""
        self.body = BisectedBody()
        self._number = number
        self._settings = dict(settings)
        self._is_reported = False
        self._patches = Patches(BISECTING.name, self._note_failed_hook)

    def begin(self) -> None:
        """Start listening when torch imports the modules. Called before the program runs."""
        when_imported("torch._inductor.compiler_bisector", self._install)
        if self._number is not None:
            when_imported("torch.fx.passes.graph_transform_observer", self._watch_passes)

    def _note_failed_hook(self) -> None:
        # A count that is too low would blame the wrong item.
        self.body.problem = "a hook of the debugger failed: the counts of this run are unknown"

    def _install(self) -> None:
        if BISECTING.problem is not None:
            self.body.problem = BISECTING.problem
            return
        bisector = BISECTING.resolve(_BISECTOR)

        def count(_: object, backend: str, subsystem: str, debug_info: object = None) -> None:
            if bisector.get_backend() == backend and bisector.get_subsystem() == subsystem:
                if self.body.count == self._number:
                    self._report(subsystem, debug_info, calling_frame())
                self.body.count += 1

        self._patches.before(bisector, "disable_subsystem", count)
        if self._settings:
            self._patches.around(bisector, "get_config_change", lambda *_: answering(dict(self._settings)))

    def _report(self, subsystem: str, debug_info: Any, caller: types.FrameType) -> None:
        name = str(debug_info()) if debug_info is not None else subsystem
        node: Any = caller.f_locals.get("n")
        place = None
        if hasattr(node, "meta"):
            name, place = str(node.target), _place_of(node)
        elif "decomp_table" in caller.f_locals and CURRENT_NODE.problem is None:
            current = CURRENT_NODE.resolve(_CURRENT)() or {}
            name, place = str(caller.f_locals.get("op", name)), _place_of(types.SimpleNamespace(meta=current))
        self.body.item = BisectedItem(name, [] if place is None else [place])
        self._is_reported = True

    def _watch_passes(self) -> None:
        if PASSES.problem is not None:
            return
        observer = PASSES.resolve(_OBSERVER)
        for name in ("apply_gm_pass", "apply_graph_pass"):
            self._patches.around(observer, name, self._watch_pass)

    def _watch_pass(self, observer: Any, *_: object) -> Generator[None, Outcome, None]:
        before, was_reported = _nodes(observer.gm), self._is_reported
        yield None
        if self._is_reported and not was_reported and self.body.item is not None:
            self.body.item = _changed(self.body.item.name, before, _nodes(observer.gm))


def _nodes(module: object) -> dict[str, tuple[str, str, BisectedPlace | None]]:
    """Return each node's text, operation and place, by its name."""
    nodes = getattr(getattr(module, "graph", None), "nodes", ())
    return {node.name: (str(node.format_node()), str(node.target), _place_of(node)) for node in nodes}


def _changed(
    name: str,
    before: Mapping[str, tuple[str, str, BisectedPlace | None]],
    after: Mapping[str, tuple[str, str, BisectedPlace | None]],
) -> BisectedItem:
    """Return what a pass did: the operations that it removed or changed, those that it made, and their places."""
    gone = [known for node, known in before.items() if node not in after or after[node][0] != known[0]]
    made = [known for node, known in after.items() if node not in before or before[node][0] != known[0]]
    places = [place for *_, place in (*gone, *made) if place is not None]
    return BisectedItem(
        name,
        list(dict.fromkeys(places))[:_PLACES],
        list(dict.fromkeys(target for _, target, _ in gone if target != "output"))[:_PLACES],
        list(dict.fromkeys(target for _, target, _ in made if target != "output"))[:_PLACES],
    )


def _place_of(node: Node) -> BisectedPlace | None:
    found = user_place(node)
    return None if found is None else BisectedPlace(found[0].path, found[0].line, found[1])
