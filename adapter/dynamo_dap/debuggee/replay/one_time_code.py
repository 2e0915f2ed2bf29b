"""Makes one call run the code of a changed trace; its cache entry keeps the code that the compile generated.

If the call is being compiled, the changed code takes the place of the generated code when torch makes the cache entry.
As soon as it runs, it restores the generated code. A cached call already runs the entry's code, which CPython cannot
exchange in a running frame. But the call has done nothing yet, and begins by calling the compiled graph: if only the
graph differs, this call gets the changed graph. Runs on the tracing thread; lives until the call has begun.
"""

from __future__ import annotations

import re
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

from dynamo_dap.debuggee.torch_api.code_objects.generated_code import ONCE, CannotReplace, run_once
from dynamo_dap.debuggee.torch_api.code_objects.new_code import on_new_code
from dynamo_dap.debuggee.torch_api.features import FeatureMissing
from dynamo_dap.debuggee.torch_api.skipping import never_compile
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall, MadeCode
from dynamo_dap.debuggee.wrapping.patches import Patches

_GRAPH = "__compiled_fn"


class OneTimeCode:
    """Replaces the generated code for one call."""

    def __init__(self, call: CachedCall, made: MadeCode, on_problem: Callable[[str], None]) -> None:
        """Run ``made`` for ``call``, which is being compiled; ``on_problem`` gets the reason if that fails."""
        self._call = call
        self._made = made
        self._on_problem = on_problem
        self._thread = threading.get_ident()
        self._code: types.CodeType | None = None
        self._generated: types.CodeType | None = None
        ONCE.require()
        self._patches = Patches(ONCE.name)
        on_new_code(self._patches, self._replacement)

    def close(self) -> None:
        """End with the compile, and report if it made no code for the call."""
        self._patches.remove()
        if self._code is None:
            self._on_problem("nothing was compiled for the call, which runs as ordinary Python")

    def _replacement(self, original: types.CodeType, generated: types.CodeType, _: object) -> types.CodeType | None:
        """Return the code that the new cache entry runs first; None for its own code."""
        made = self._made.code
        if original is not self._call.code or threading.get_ident() != self._thread or made is None:
            return None
        name = next((each for each in made.co_names if each.startswith(_GRAPH)), None)
        if name is None or _shape(made) != _shape(generated):
            self._on_problem("the changed code does not fit into the frame of the call")
            self._code = generated
            return None
        self._generated = generated
        # Keep the name that earlier hooks have given to the generated code.
        self._code = made.replace(co_filename=generated.co_filename)
        self._call.frame.f_globals[name] = self._restoring_code(name, self._call.frame.f_globals[name])
        return self._code

    def _restoring_code(self, name: str, graph: Any) -> object:
        """Wrap the graph's function so that it first restores the cache entry's generated code."""

        def compiled_graph(*arguments: object, **named: object) -> object:
            self._call.frame.f_globals[name] = graph
            assert self._code is not None, "the changed code is running"
            assert self._generated is not None, "the changed code replaces it"
            try:
                run_once(self._code, self._generated, self._made.cleanups)
            except (CannotReplace, FeatureMissing) as problem:
                self._on_problem(f"later calls will run the changed code too: {problem}")
            return graph(*arguments, **named)

        never_compile(compiled_graph)
        return compiled_graph


class CannotServe(Exception):
    """A call cannot run the other code; the text says why, and nothing was changed."""


def serve_with_graph(call: CachedCall, made: MadeCode) -> None:
    """Make the cached ``call``, which has done nothing yet, call the graph of ``made``.

    Raises:
        CannotServe: the code differs in more than the graph.
    """
    frame, other = call.frame, made.code
    assert isinstance(frame, types.FrameType), "its code is about to run"
    if other is None:
        raise CannotServe("the changed trace made no code")
    names = frame.f_globals
    try:
        name, of_made = _graphs_of(frame.f_code, other, names)
        graph, served = names[name], names[of_made]
    finally:
        for cleanup in made.cleanups:
            cleanup()
        made.cleanups, made.code = [], None

    def compiled_graph(*arguments: object, **named: object) -> object:
        # Other threads, and calls that this one makes, may run the same code.
        if sys._getframe(1) is not frame:
            return graph(*arguments, **named)
        names[name] = graph
        return served(*arguments, **named)

    never_compile(compiled_graph)
    compiled_graph.__dict__[SERVED_ONCE] = frame
    names[name] = compiled_graph


def serves_another_graph(call: CachedCall) -> bool:
    """Return whether the cached ``call`` will call the user's changed graph."""
    frame = call.frame
    if not isinstance(frame, types.FrameType):
        return False
    present = (frame.f_globals.get(name) for name in frame.f_code.co_names if _NUMBERED.match(name))
    return any(getattr(each, "__dict__", {}).get(SERVED_ONCE) is frame for each in present)


SERVED_ONCE = "_dynamo_dap_frame"
"""The attribute of a graph for one call: the calling frame. A wrapper would hide it, so nothing wraps the graph."""
_NUMBERED = re.compile(r"__compiled_fn_\w+")


def _graphs_of(entry: types.CodeType, made: types.CodeType, names: dict[str, object]) -> tuple[str, str]:
    """Return the names of the graphs in two code objects that differ in nothing else."""
    what = "the call already runs the code of its cache entry, and the changes affect more than its graph"
    if any(getattr(entry, name, None) != getattr(made, name, None) for name in ("co_code", "co_exceptiontable")):
        raise CannotServe(f"{what}: inputs, side effects or results")
    if repr(_constants(entry)) != repr(_constants(made)) or _shape(entry) != _shape(made):
        raise CannotServe(f"{what}: a constant in inputs, side effects or results")
    graphs = []
    for mine, others in zip(entry.co_names, made.co_names, strict=True):
        if _NUMBERED.match(mine) and _NUMBERED.match(others):
            graphs.append((mine, others))
        elif mine != others and not _is_same(names.get(mine), names.get(others)):
            raise CannotServe(f"{what}: {others} instead of {mine}")
    if len(graphs) != 1:
        raise CannotServe("the call already runs the code of its cache entry, which calls no graph")
    return graphs[0]


def _constants(code: types.CodeType) -> list[object]:
    return [_constants(each) if isinstance(each, types.CodeType) else each for each in code.co_consts]


def _is_same(one: object, other: object) -> bool:
    code = getattr(one, "__code__", None)
    return one is other or (code is not None and code is getattr(other, "__code__", None))


def _shape(code: types.CodeType) -> object:
    """Return the variables that code objects must share to run in the same frame."""
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return code.co_varnames[:count], code.co_freevars, code.co_cellvars
