"""Profiles each part of each compile, and writes the profile when the program ends.

Runs on the threads that compile; each has its own tree, so no lock is needed. The profiler notes the time whenever an
activity begins or ends, and adds up the times of each activity. It also keeps the order of events, up to a bound. Its
own cost is measured at the end, by noting many events in a discarded tree.
"""

from __future__ import annotations

import contextlib
import copy
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import CodeType

import msgspec

from dynamo_dap.debuggee.recording import facts
from dynamo_dap.debuggee.recording.function_names import name_of_compile
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import user_function_name
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import user_function_of
from dynamo_dap.debuggee.torch_api.compiles.compile_hooks import HOOKS, CompileObserver, CompileResult, FrameCompile
from dynamo_dap.debuggee.torch_api.compiles.compile_timing import TIMING, measured_costs
from dynamo_dap.profile.model import (
    COMPILE,
    FUNCTION,
    IMPORT,
    OWN,
    PHASE,
    PROGRAM,
    VERSION,
    CacheAnswer,
    Frame,
    GuardTime,
    Node,
    Profile,
    Restart,
    Track,
)

_EVENTS = (CompileObserver.compile_began, CompileObserver.compile_ended, CompileObserver.attempt_restarted)
_ORDERED = 500_000
"""Events per thread whose order is kept."""
_ROUNDS = 2_000
"""How many events are noted to measure the cost of one."""
_REASON = 500
_OWN_WORK = Frame("dynamo-dap: its record", OWN)


class _Tree:
    """The activities of one thread as they happen. Only that thread changes it."""

    def __init__(self, name: str, clock: Callable[[], int], began: int, *, is_main: bool) -> None:
        self._clock = clock
        self.name = name
        self.is_main = is_main
        self.began = began
        self.frames: list[Frame] = [Frame(name, PROGRAM)]
        self._frame_numbers: dict[Frame, int] = {self.frames[0]: 0}
        self.nodes = [Node(0, -1, calls=1)]
        self._children: dict[tuple[int, int, int], int] = {}
        self.stack = [0]
        self._lines = [0]
        self.importing: str | None = None
        """The outermost module that the program is importing."""
        self.times, self.running = [began], [0]
        self.is_cut = False
        self.entered = self.line_notices = self.instructions = 0
        """How often something was noted, to compute the profiler's cost at the end."""
        self.last = began

    def _spend(self) -> int:
        now = self._clock()
        spent, self.last = now - self.last, now
        node, line = self.nodes[self.stack[-1]], self._lines[-1]
        node.own += spent
        if line:
            node.lines[line] = node.lines.get(line, 0) + spent
        return now

    def enter(self, frame: Frame, line: int = 0, *, is_call: bool = True) -> None:
        """Begin a phase, or a function at ``line``."""
        now = self._spend()
        self.entered += 1
        number = self._frame_numbers.get(frame)
        if number is None:
            number = self._frame_numbers[frame] = len(self.frames)
            self.frames.append(frame)
        key = (self.stack[-1], number, self._lines[-1])
        node = self._children.get(key)
        if node is None:
            node = self._children[key] = len(self.nodes)
            self.nodes.append(Node(number, key[0], key[2]))
        self.nodes[node].calls += is_call
        self.stack.append(node)
        self._lines.append(line)
        self._note(now)

    def leave(self, depth: int) -> None:
        """End every phase above ``depth``."""
        if len(self.stack) > depth >= 1:
            now = self._spend()
            del self.stack[depth:], self._lines[depth:]
            self._note(now)

    def leave_named(self, name: str) -> None:
        """End the innermost phase with this name. Do nothing for a phase that began elsewhere."""
        for depth in range(len(self.stack) - 1, 0, -1):
            frame = self.frames[self.nodes[self.stack[depth]].frame]
            if frame.name == name and frame.kind == PHASE:
                self.leave(depth)
                return

    def at_line(self, line: int) -> None:
        """Charge the time from now on to ``line`` of the traced function."""
        self.line_notices += 1
        if line != self._lines[-1]:
            self._spend()
            self._lines[-1] = line

    def at_instruction(self) -> None:
        """Count an instruction that the trace has reached."""
        self.nodes[self.stack[-1]].instructions += 1
        self.instructions += 1

    def _note(self, now: int) -> None:
        if len(self.times) < _ORDERED:
            self.times.append(now)
            self.running.append(self.stack[-1])
        elif not self.is_cut:
            self.is_cut = True
            self.times.append(now)
            self.running.append(0)

    def copy(self) -> _Tree:
        """Return a copy of the tree so far."""
        made = copy.copy(self)
        made.nodes = [msgspec.structs.replace(node, lines=dict(node.lines)) for node in self.nodes]
        made.frames, made.stack, made._lines = list(self.frames), list(self.stack), list(self._lines)
        made.times, made.running = list(self.times), list(self.running)
        return made

    def close(self) -> None:
        """End all running phases of the main thread. Phases of another thread end at its last event."""
        if self.is_main:
            self.leave(1)
            self._spend()


class Profiler(CompileObserver):
    """Listens to the hooks from Dynamo's import on. One per process."""

    feature = "the profile"

    def __init__(self, began: float, clock: Callable[[], float] = time.perf_counter) -> None:
        """Measure with ``clock``, which returns seconds. ``began`` is the ``time.time()`` of the process's start."""
        self._clock: Callable[[], int] = lambda: int(clock() * 1e9)
        self._profile: Profile | None = None
        self._began = self._clock() - max(0, int((time.time() - began) * 1e9))
        self._process = os.getpid()
        self._trees: list[_Tree] = []
        self._local = threading.local()
        self._main = self._new_tree("program", self._began, is_main=True)
        self._depths: dict[FrameCompile, int] = {}
        self._frames: dict[int, tuple[CodeType, Frame]] = {}
        """By the id of a function's code, which is kept alive."""
        self._caches: list[CacheAnswer] = []
        self._guards: list[GuardTime] = []
        self._restarts: list[Restart] = []
        self._hits = 0
        self._misses = 0
        self._own_nanoseconds = 0
        self._is_enabled = False
        """Whether Dynamo was imported. Otherwise nothing of it may be used: that would import it."""
        self.on_compiled: Callable[[], None] = lambda: None
        """Called after a compile, on its thread."""
        self.on_end: Callable[[], None] = lambda: None
        """Called when the profile ends."""

    # -- beginning and end: the main thread ------------------------------------------------------------------------

    def install(self) -> None:
        """Profile Dynamo and the backends from now on."""
        self._is_enabled = True
        HOOKS.around = self._around
        HOOKS.want(self, _EVENTS)
        TIMING.install(self)

    def import_of(self, name: str, is_done: bool) -> None:
        """Begin or end the import of a part of torch."""
        tree = self._tree()
        if is_done:
            # One part of torch may import another: end the innermost import with this name.
            depths = [at for at, node in enumerate(tree.stack) if tree.frames[tree.nodes[node].frame].name == name]
            tree.leave(depths[-1] if depths else len(tree.stack))
        else:
            tree.enter(Frame(name, IMPORT))

    def import_by_program(self, name: str, is_done: bool) -> None:
        """Begin or end the first import of a module. Imports inside it belong to it, except torch's."""
        tree: _Tree | None = getattr(self._local, "tree", None)
        if tree is None:
            return
        if not is_done and len(tree.stack) == 1:
            tree.importing = name
            tree.enter(Frame(name, IMPORT))
        elif is_done and tree.importing == name:
            tree.importing = None
            tree.leave(1)

    def finish(self) -> Profile | None:
        """End the profile and return it; None in a process forked from the profiled one."""
        if os.getpid() != self._process:
            return None
        if self._profile is None:
            self.on_end()
            if self._is_enabled:
                HOOKS.want(self, ())
                HOOKS.around = None
                TIMING.remove()
            self._profile = self._made(self._trees)
        return self._profile

    def so_far(self) -> Profile:
        """Return the profile so far."""
        return self._made([tree.copy() for tree in list(self._trees)])

    def _made(self, trees: Sequence[_Tree]) -> Profile:
        frames: dict[Frame, int] = {}
        tracks = [_track(tree, frames, self._began) for tree in trees]
        return Profile(
            VERSION,
            list(sys.argv),
            list(frames),
            tracks,
            self._caches,
            self._guards,
            self._restarts,
            self._hits,
            self._misses,
            cost=self._cost() if self._is_enabled else 0,
            notices=sum(tree.entered + tree.line_notices + tree.instructions for tree in trees),
            is_cut=any(tree.is_cut for tree in trees),
            problems=TIMING.problems if self._is_enabled else [],
        )

    def _cost(self) -> int:
        costs = measured_costs(Profiler(time.time()), _ROUNDS)
        seconds = costs.lookup * (self._hits + self._misses) + sum(
            costs.phase * tree.entered + costs.line * tree.line_notices + costs.instruction * tree.instructions
            for tree in self._trees
        )
        return int(seconds * 1e9) + self._own_nanoseconds

    # -- reported on threads that compile --------------------------------------------------------------------------

    def _new_tree(self, name: str, began: int, *, is_main: bool) -> _Tree:
        tree = _Tree(name, self._clock, began, is_main=is_main)
        self._local.tree = tree
        self._trees.append(tree)
        return tree

    def _tree(self) -> _Tree:
        tree: _Tree | None = getattr(self._local, "tree", None)
        if tree is None:
            name = threading.current_thread().name
            tree = self._new_tree(f"thread {name}", self._clock(), is_main=False)
        return tree

    def _around(self, observer: CompileObserver) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if observer is self else self._own_work()

    @contextlib.contextmanager
    def _own_work(self) -> Iterator[None]:
        """Charge the debugger's own work to itself."""
        tree, began = self._tree(), self._clock()
        depth = len(tree.stack)
        tree.enter(_OWN_WORK)
        try:
            yield
        finally:
            tree.leave(depth)
            self._own_nanoseconds += self._clock() - began

    def phase_began(self, name: str) -> None:
        """Open a row for a phase of torch."""
        self._tree().enter(Frame(name, PHASE))

    def phase_ended(self, name: str) -> None:
        """Close the row of a phase."""
        self._tree().leave_named(name)

    def function_began(self, code: CodeType, line: int | None, *, is_resumed: bool) -> None:
        """Open a row for a traced function."""
        _, frame = self._frames.get(id(code)) or self._frames.setdefault(id(code), (code, _frame_of(code)))
        self._tree().enter(frame, line if line and line > 0 else frame.line, is_call=not is_resumed)

    def function_ended(self) -> None:
        """Close the row of the innermost traced function."""
        tree = self._tree()
        for depth in range(len(tree.stack) - 1, 0, -1):
            if tree.frames[tree.nodes[tree.stack[depth]].frame].kind == FUNCTION:
                tree.leave(depth)
                return

    def line_began(self, line: int) -> None:
        """Charge the time from now on to a line."""
        self._tree().at_line(line)

    def instruction_began(self) -> None:
        """Count an instruction."""
        self._tree().at_instruction()

    def cache_answered(self, cache: str, state: str, reason: str | None) -> None:
        """Note a cache's answer, and its compile."""
        text = None if reason is None else facts.text_of(reason.strip(), _REASON)
        self._caches.append(CacheAnswer(cache, state, text, _name_of_compile(HOOKS.current)))

    def guards_evaluated(self, *, is_hit: bool) -> None:
        """Count a hit or a miss of Dynamo's cache."""
        if is_hit:
            self._hits += 1
        else:
            self._misses += 1

    def guards_timed(self, code: CodeType, count: int, measure: Callable[[], float]) -> None:
        """Measure a compile's new guards; the time for that is the profiler's own."""
        with self._own_work():
            self._guards.append(GuardTime(_name_of_compile(HOOKS.current) or code.co_name, count, measure()))

    def compile_began(self, compiling: FrameCompile) -> None:
        """Open a row for a compile."""
        tree = self._tree()
        self._depths[compiling] = len(tree.stack)
        original = user_function_of(compiling.code)
        tree.enter(Frame(_name_of_compile(compiling), COMPILE, original.co_filename, original.co_firstlineno))

    def compile_ended(self, compiling: FrameCompile, result: CompileResult, problem: BaseException | None) -> None:
        """Close the row of a compile, with all open rows below it."""
        depth = self._depths.pop(compiling, None)
        if depth is not None:
            self._tree().leave(depth)
            if not self._depths:
                with self._own_work():
                    self.on_compiled()

    def attempt_restarted(self, compiling: FrameCompile, reason: str) -> None:
        """Note why an analysis restarts."""
        self._restarts.append(Restart(_name_of_compile(compiling), facts.text_of(reason.strip(), _REASON)))


def _frame_of(code: CodeType) -> Frame:
    original = user_function_of(code)
    return Frame(user_function_name(original), FUNCTION, original.co_filename, original.co_firstlineno)


def _name_of_compile(compiling: FrameCompile | None) -> str:
    if compiling is None:
        return ""
    return f"compile {name_of_compile(compiling)} [{compiling.compile_id}]"


def _track(tree: _Tree, frames: dict[Frame, int], began: int) -> Track:
    """Return a tree as a track, and add its frames to ``frames``; ``began`` is the beginning of the process."""
    tree.close()
    numbers = [frames.setdefault(frame, len(frames)) for frame in tree.frames]
    for node in tree.nodes:
        node.frame = numbers[node.frame]
    times = [time - began for time in tree.times]
    return Track(tree.name, tree.is_main, tree.began - began, tree.last - began, tree.nodes, times, tree.running)
