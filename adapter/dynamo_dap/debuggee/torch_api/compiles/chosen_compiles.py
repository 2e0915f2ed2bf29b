"""Applies the user's choice of functions to compile, and of the backend, instead of the program's.

Torch's functions are wrapped while a choice is in force. The wrappers run on the compiling thread; choices are made on
the thread that imports Dynamo, or on the agent's reader thread. One ``ChosenCompiles`` for each process.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Callable, Generator, Sequence
from types import CodeType, FrameType
from typing import Any

from dynamo_dap.debuggee.bytecode.line_table import qualified_name
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import compiled_codes, live_entries, user_function_of
from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.torch_settings import BadSetting, nearest
from dynamo_dap.debuggee.torch_api.traced.replays import replayed_call
from dynamo_dap.debuggee.wrapping.patches import Given, Outcome, Patches, Refusal, Result
from dynamo_dap.protocol.requests.options import FAIL_ON_RECOMPILE

_CALLBACK = "torch._dynamo.convert_frame:CatchErrorsWrapper"
_SKIPPED = "torch._dynamo.types:ConvertFrameReturn"
_INNERMOST = "torch._dynamo.eval_frame:innermost_backend"
_SET_STRATEGY = "torch._C._dynamo.eval_frame:set_code_exec_strategy"
_STRATEGY = "torch._C._dynamo.eval_frame:_FrameExecStrategy"
_ACTION = "torch._C._dynamo.eval_frame:_FrameAction"
_OUTPUT_GRAPH = "torch._dynamo.output_graph:OutputGraph"
_FIND_BACKEND = "torch._dynamo.eval_frame:get_compiler_fn"
_BACKENDS = "torch._dynamo.backends.registry:list_backends"

FUNCTIONS = Feature('the option "compileOnly"', _CALLBACK, _SKIPPED, _SET_STRATEGY, _STRATEGY, _ACTION)
RECOMPILES = Feature('the option "stance"', _CALLBACK, _SKIPPED, _STRATEGY, _ACTION, _INNERMOST)
BACKENDS = Feature('the option "backend"', _OUTPUT_GRAPH, _FIND_BACKEND, _BACKENDS)


class ChosenCompiles:
    """Installs and removes the wrappers."""

    def __init__(self) -> None:
        self._functions: tuple[str, ...] = ()
        self._unmatched: set[str] = set()
        """The entries of ``_functions`` that no call has matched yet."""
        self._seen_names: set[str] = set()
        """Names of the functions that run eagerly because they were not chosen."""
        self._skipped: dict[int, weakref.ref[CodeType]] = {}
        """The code of these functions, by ``id``."""
        self._recompiles: str | None = None
        self._calls = Patches("the options compileOnly and stance")
        self._backend: object = None
        self._find_backend: Callable[[], object] | None = None
        self._graphs = Patches(BACKENDS.name)

    # -- which functions -------------------------------------------------------------------------------------------

    def compile_only(self, functions: Sequence[str]) -> None:
        """Compile only ``functions`` (names, or files) and their callees; everything if there are none."""
        FUNCTIONS.require()
        self._functions = tuple(functions)
        self._unmatched, self._seen_names = set(functions), set()
        self._let_compile()
        self._wrap_callback(FUNCTIONS.resolve(_CALLBACK))
        # Calls must not use earlier compiles either.
        for original in compiled_codes():
            if functions and not self.is_chosen(original):
                self._skip(original)

    def recompile(self, how: str | None) -> None:
        """Choose whether a call that needs a recompile fails, runs eagerly, or (None) compiles.

        ``torch.compiler.set_stance`` would also refuse the first compile of a function, so that nothing would be
        compiled.
        """
        RECOMPILES.require()
        self._recompiles = how
        self._wrap_callback(RECOMPILES.resolve(_CALLBACK))

    def _wrap_callback(self, kind: object) -> None:
        if not self._functions and self._recompiles is None:
            self._calls.remove()
        elif not self._calls.is_installed:
            self._calls.around(kind, "__call__", self._choose)

    def _choose(
        self, callback: object, frame: object, *_: object, **__: object
    ) -> Generator[None, Outcome, Result | None]:
        answer = self.answer(callback, frame)
        if answer is not None:
            return Result(answer)
        yield None
        return None

    def answer(self, callback: object, frame: Any) -> object:
        """Return the answer that torch gets instead of a compile of ``frame``; None to compile it.

        Raises:
            Refusal: the call must fail.
        """
        if self._functions and not self.is_chosen(frame.f_code):
            # Torch remembers this decision for the code: later calls do not arrive here.
            self._note_skipped(frame.f_code)
            return FUNCTIONS.resolve(_SKIPPED)()
        if self._recompiles is None:
            return None
        entries = live_entries(frame.f_code)
        if not entries:
            return None
        if self._recompiles == FAIL_ON_RECOMPILE:
            raise Refusal(RuntimeError(_refusal(callback, frame, entries)))
        default = RECOMPILES.resolve(_ACTION).DEFAULT
        strategy = RECOMPILES.resolve(_STRATEGY)(default, default)
        return RECOMPILES.resolve(_SKIPPED)(frame_exec_strategy=strategy)

    def is_chosen(self, code: CodeType) -> bool:
        """Return whether ``code``, a function or a resume function, may be compiled."""
        function = user_function_of(code)
        matching = {wanted for wanted in self._functions if _matches(wanted, function)}
        self._unmatched -= matching
        if not matching and len(self._seen_names) < _MOST_NAMES:
            self._seen_names.add(qualified_name(function))
        return bool(matching)

    def unmatched(self) -> list[str]:
        """Return a sentence for each name or file of ``compile_only`` that has matched no call so far."""
        return [
            f'"compileOnly": nothing that is compiled is called "{wanted}"{nearest(wanted, self._seen_names)}'
            for wanted in self._functions
            if wanted in self._unmatched
        ]

    def _skip(self, code: CodeType) -> None:
        self._set_strategy(code, skipped=True)
        self._note_skipped(code)

    def _note_skipped(self, code: CodeType) -> None:
        key = id(code)
        self._skipped[key] = weakref.ref(code, lambda _: self._skipped.pop(key, None))

    def _let_compile(self) -> None:
        skipped, self._skipped = self._skipped, {}
        for reference in skipped.values():
            if (code := reference()) is not None:
                self._set_strategy(code, skipped=False)

    def _set_strategy(self, code: CodeType, *, skipped: bool) -> None:
        action = FUNCTIONS.resolve(_ACTION)
        now = action.SKIP if skipped else action.DEFAULT
        # Decide on its callees separately: one of them may be chosen.
        FUNCTIONS.resolve(_SET_STRATEGY)(code, FUNCTIONS.resolve(_STRATEGY)(now, action.DEFAULT))

    # -- which backend ---------------------------------------------------------------------------------------------

    def compile_by(self, backend: str | None, report: Callable[[str], None] | None = None) -> None:
        """Compile by ``backend`` from now on, or by the program's own if None.

        With ``report`` the backend is looked up at the first compile, and ``report`` gets a problem with it: torch
        cannot import its backends during its own import.

        Raises:
            BadSetting: torch has no such backend.
        """
        BACKENDS.require()
        self._backend = None
        self._find_backend = None if backend is None or report is None else functools.partial(_found, backend, report)
        if backend is not None and report is None:
            self._backend = _find_backend(backend)
        if backend is None:
            self._graphs.remove()
        elif not self._graphs.is_installed:
            self._graphs.around(BACKENDS.resolve(_OUTPUT_GRAPH), "__init__", self._begin_graph)

    def _begin_graph(
        self,
        output: object,
        code_options: object,
        compiler_fn: object,
        root_tx: object,
        export: bool,
        *rest: object,
        **named: object,
    ) -> Generator[Given, Outcome, None]:
        # ``torch.export`` takes the graph from its own backend. A replay has no backend.
        is_replaced = self.backend is not None and compiler_fn is not None and not export
        if is_replaced and replayed_call() is None:
            compiler_fn = self.backend
        yield Given((output, code_options, compiler_fn, root_tx, export, *rest), named)

    @property
    def backend(self) -> object:
        """The chosen backend in Dynamo's form; None for the program's."""
        find, self._find_backend = self._find_backend, None
        if find is not None:
            self._backend = find()
        return self._backend


def _found(backend: str, report: Callable[[str], None]) -> object:
    try:
        return _find_backend(backend)
    except BadSetting as problem:
        report(str(problem))
        return None


def _find_backend(backend: str) -> object:
    known = BACKENDS.resolve(_BACKENDS)(exclude_tags=())
    if backend not in known:
        raise BadSetting(f'torch has no backend "{backend}"{nearest(backend, known)} (there are: {", ".join(known)})')
    return BACKENDS.resolve(_FIND_BACKEND)(backend)


_MOST_NAMES = 1000


def _matches(wanted: str, function: CodeType) -> bool:
    if wanted.endswith(".py") or os.sep in wanted or "/" in wanted:
        path, given = os.path.realpath(function.co_filename), os.path.normpath(wanted)
        return path == os.path.realpath(given) or path.endswith(os.sep + given.lstrip("." + os.sep))
    name = qualified_name(function).replace(".<locals>", "")
    return name == wanted or name.endswith(f".{wanted}") or qualified_name(function) == wanted


def _refusal(callback: object, frame: FrameType, entries: object) -> str:
    """Return a message like that of torch's own stance; computing the reasons reports the recompile."""
    guards = sys.modules["torch._dynamo.guards"]
    backend = RECOMPILES.resolve(_INNERMOST)(callback)
    reasons = guards.get_and_maybe_log_recompilation_reasons(entries, frame, backend, skip_logging=True)
    code = frame.f_code
    text = (
        f"{code.co_name} ({code.co_filename}:{code.co_firstlineno}) would be compiled again, and the option "
        f'"stance" is "{FAIL_ON_RECOMPILE}"'
    )
    return "\n- ".join([f"{text}:" if reasons else text, *map(str, reasons)])


CHOSEN = ChosenCompiles()
"""The choices of this process."""
