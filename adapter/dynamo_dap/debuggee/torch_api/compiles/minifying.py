"""Runs torch's minifier in the user's process, where its backends, passes and lowerings are registered.

When a compile fails, torch writes a script that minifies its graph, for a separate run. Here a fork of the process runs
that script. If an attempt kills that fork, a second fork runs each attempt in a fork of its own. A process that uses an
accelerator cannot fork, and runs the script itself. Runs on the thread that compiles. The process ends afterwards, so
nothing is restored.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import os
import re
import sys
import textwrap
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dynamo_dap.debuggee.torch_api.compiles.compilation import unwrapped_backend
from dynamo_dap.debuggee.torch_api.compiles.failing_operations import smaller_graph
from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.graphs.accuracy import compare_nan
from dynamo_dap.debuggee.torch_api.import_hooks import when_imported
from dynamo_dap.debuggee.torch_api.objects import GraphModule

_AFTER_DYNAMO = "torch._dynamo.repro.after_dynamo"
_AFTER_AOT = "torch._dynamo.repro.after_aot"
_CALL = f"{_AFTER_DYNAMO}:WrapBackendDebug.__call__"
_LOOKUP = f"{_AFTER_DYNAMO}:lookup_backend"
_DUMP = f"{_AFTER_DYNAMO}:dump_to_minify_after_dynamo"
_WRITE = f"{_AFTER_DYNAMO}:helper_for_dump_minify"
_LOCK = "torch._dynamo.convert_frame:compile_lock"
_MINIFIER = "functorch.compile:minifier"

MINIFYING = Feature("the command minify", _CALL, _LOOKUP, _DUMP, _WRITE, _LOCK)
ATTEMPTS = Feature("attempts of the minifier in processes of their own", _MINIFIER)

_RESULT = "repro.py"
"""The file name of the smallest program so far."""
_SAME_FAILURE = 1
"""The exit status of a fork whose graph fails as the whole graph does."""


class MinifyingProcess:
    """Waits for the first compile that fails; one per process."""

    def __init__(self, folder: Path, on_end: Callable[[str, str | None], None]) -> None:
        """Call ``on_end`` to end the process; it gets the failures of the compile and of the minifier."""
        self._folder = folder
        self._on_end = on_end
        self._backend: object = None
        """The backend that is compiling."""
        self._name = ""
        """The name of the backend, or of its class."""

    def begin(self) -> None:
        """Watch compiles once Dynamo is imported. Called before the program runs."""
        when_imported(_AFTER_DYNAMO, self._watch_dynamo)
        when_imported(_AFTER_AOT, lambda: self._watch_writing(_AFTER_AOT))

    def _watch_dynamo(self) -> None:
        if MINIFYING.problem is not None:
            return
        self._watch_writing(_AFTER_DYNAMO)
        compare_nan()
        module: Any = sys.modules[_AFTER_DYNAMO]
        call, dump = MINIFYING.resolve(_CALL), MINIFYING.resolve(_DUMP)

        def call_backend(debug: Any, *arguments: object, **named: object) -> object:
            backend = debug._torchdynamo_orig_backend
            if not isinstance(backend, _ReturnsModules):
                self._backend = backend
                debug._torchdynamo_orig_backend = _ReturnsModules(backend)
            else:
                self._backend = backend = backend.backend
            own_name = getattr(backend, "__name__", None) or type(backend).__name__
            self._name = str(getattr(debug, "_compiler_name", None) or own_name)
            return call(debug, *arguments, **named)

        module.WrapBackendDebug.__call__ = call_backend
        module.dump_to_minify_after_dynamo = lambda graph, inputs, name: dump(graph, inputs, name or self._name)

    def _watch_writing(self, name: str) -> None:
        module: Any = sys.modules[name]
        module.helper_for_dump_minify = self._minify

    def _minify(self, script: str) -> None:
        """Run the script that torch would have written, and end the process."""
        error = _text_of(sys.exc_info()[1])
        torch = sys.modules["torch"]
        is_initialized = any(getattr(torch, kind).is_initialized() for kind in ("cuda", "xpu") if hasattr(torch, kind))
        if is_initialized or not _autograd_works_in_a_fork():
            problem = self._run(script, error)
        else:
            status, problem = self._forked(script, error, is_isolated=False)
            if status < 0:
                sys.stderr.write(f"signal {-status} ended the minifier: now each attempt gets its own process\n")
                problem = self._forked(script, error, is_isolated=True)[1]
        self._on_end(error, problem)

    def _forked(self, script: str, error: str, *, is_isolated: bool) -> tuple[int, str | None]:
        """Run the script in a fork; return its status and the error."""
        reader, writer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            try:
                os.close(reader)
                problem = "the fork failed"
                try:
                    problem = self._run(script, error, is_isolated=is_isolated) or ""
                finally:
                    os.write(writer, problem.encode(errors="replace")[:4096])
                    sys.stderr.flush()
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            text = file.read().decode(errors="replace")
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return status, text or (None if status == 0 else f"signal {-status} ended the minifier")

    def _run(self, script: str, error: str, *, is_isolated: bool = False) -> str | None:
        """Run the script on a thread that is in no compile; return what went wrong.

        ``error`` is the text of the compile's exception.
        """
        os.chdir(self._folder)
        if ATTEMPTS.problem is None:
            _change_minifier(is_isolated=is_isolated)
        lookup = MINIFYING.resolve(_LOOKUP)
        name, backend = self._name, self._backend
        module: Any = sys.modules[_AFTER_DYNAMO]
        module.lookup_backend = lambda wanted: _ReturnsModules(backend) if wanted == name else lookup(wanted)
        _replace_compile_lock()
        sys.argv = ["minifier_launcher.py", "minify", "--no-isolate"]
        if "after_aot" in script and (kind := _kind_of(error)):
            sys.argv += ["--check-str", kind]
        problems: list[str] = []

        def run() -> None:
            config: Any = sys.modules["torch._dynamo.config"]
            config.repro_after = None
            try:
                exec(compile(script, "minifier_launcher.py", "exec"), {"__name__": "__main__"})
            except BaseException as ended:  # noqa: BLE001 (whatever ends the minifier is reported)
                traceback.print_exc()
                problems.append(_text_of(ended))

        _on_new_thread(run)
        result = self._folder / _RESULT
        if result.exists() and "after_dynamo" in script:
            result.write_text(_with_backend(result.read_text(encoding="utf-8"), name, backend), encoding="utf-8")
        return problems[0] if problems else None


class _ReturnsModules:
    """Calls a backend, and wraps a returned function in a module.

    Torch reads the parameters of a backend's result. If the result is a function, this raises, and torch takes the
    error for a failing compile.
    """

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        functools.update_wrapper(self, backend)

    def __call__(self, graph: GraphModule, *arguments: object, **named: object) -> object:
        compiled = self.backend(graph, *arguments, **named)
        torch = sys.modules["torch"]
        if isinstance(compiled, torch.nn.Module):
            return compiled
        module = torch.nn.Module()
        module.forward = compiled
        for name in ("named_parameters", "named_buffers", "zero_grad"):
            setattr(module, name, getattr(graph, name))
        # A copy of the module would run the same function with other parameters.
        module.__deepcopy__ = lambda memo: module
        return module


def _autograd_works_in_a_fork() -> bool:
    """Return whether a fork of this process can run a backward pass.

    A build of torch for CUDA starts autograd's threads with the first backward pass, also without a GPU, and then
    refuses every backward pass in a fork.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            torch = sys.modules["torch"]
            torch.ones((), requires_grad=True).backward()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _replace_compile_lock() -> None:
    """Give other threads a new lock for compiles: the present thread holds the old one until the search is over."""
    module_name, _, name = _LOCK.partition(":")
    setattr(sys.modules[module_name], name, type(MINIFYING.resolve(_LOCK))())


def _on_new_thread(run: Callable[[], None]) -> None:
    """Call a function on a new thread, which lacks the modes, trace and thread pools of this one. A fork has them.

    The new thread gets torch's settings, which are context variables.
    """
    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,))
    thread.start()
    thread.join()


def _change_minifier(*, is_isolated: bool) -> None:
    """Make torch's minifier start from the failing operation; with ``is_isolated``, in a fork for each attempt."""
    minifier = ATTEMPTS.resolve(_MINIFIER)

    def fails_in_fork(fails: Callable[..., bool]) -> Callable[..., bool]:
        def attempt(*arguments: object) -> bool:
            child = os.fork()
            if child == 0:
                answers = [False]
                try:
                    _on_new_thread(lambda: answers.append(fails(*arguments)))
                    sys.stderr.flush()
                finally:
                    os._exit(_SAME_FAILURE if answers[-1] else 0)
            # A signal that ends the fork is another failure: the compile to minify raised, or gave wrong results.
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == _SAME_FAILURE

        return attempt

    def fails_on_thread(fails: Callable[..., bool]) -> Callable[..., bool]:
        def attempt(*arguments: object) -> bool:
            # Torch keeps the metrics of a compile by thread, and fails if one thread compiles two backward passes.
            answers: list[bool] = []
            _on_new_thread(lambda: answers.append(fails(*arguments)))
            return bool(answers) and answers[-1]

        return attempt

    def changed(graph: Any, given: Any, *more: object, module_fails: Callable[..., bool], **named: object) -> object:
        _replace_compile_lock()
        fails = fails_in_fork(module_fails) if is_isolated else fails_on_thread(module_fails)
        before = len(graph.graph.nodes)
        sys.stderr.write(f"Started off with {before} nodes\n")
        try:
            graph, given = smaller_graph(graph, given, fails) or (graph, given)
        except Exception:  # noqa: BLE001  (an operation may raise anything when run alone; torch then starts from the whole graph)
            traceback.print_exc()
        if len(graph.graph.nodes) < before:
            sys.stderr.write(f"SUCCESS: Went from {before} to {len(graph.graph.nodes)} nodes\n")
        return minifier(graph, given, *more, module_fails=fails, **named)

    sys.modules["functorch.compile"].minifier = changed  # type: ignore[attr-defined]  # a module as a value


_KINDS = re.compile(r"(?:[\w.]*(?:Error|Exception): )+")


def _kind_of(error: str) -> str | None:
    """Return the classes of a failure as its ``repr`` has them: ``LoweringException: RuntimeError``."""
    found = _KINDS.match(error)
    if found is None:
        return None
    outer, *inner = found[0].strip(": ").split(": ")
    return ": ".join(inner) if inner else outer.rpartition(".")[2]


def _with_backend(program: str, name: str, backend: object) -> str:
    """Return a minified program, with the source of the backend added if the backend is a user function."""
    function = unwrapped_backend(getattr(backend, "compiler_fn", backend))
    if not inspect.isfunction(function) or str(function.__module__).partition(".")[0] in ("torch", "functorch"):
        return program
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return program
    lines = source.splitlines(keepends=True)
    begin = next((number for number, line in enumerate(lines) if line.startswith(("def ", "async def "))), None)
    if begin is None or function.__name__ != name:
        return program
    header = "# The program's backend. Names that it uses from its module are not defined here.\nimport torch\n\n\n"
    return f"{header}{''.join(lines[begin:])}\n\ntorch._dynamo.register_backend({name}, name={name!r})\n\n{program}"


def _text_of(error: BaseException | None) -> str:
    if error is None:
        return "AccuracyError: Bad accuracy detected"
    return "".join(traceback.format_exception_only(type(error), error)).strip()
