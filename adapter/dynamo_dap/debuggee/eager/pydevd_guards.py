"""Keeps requests to debugpy, and the code that they run, from harming the program or debugpy itself.

Without these guards, a request that pydevd cannot parse ends its reader thread, and so the session. A condition that
raises ``SystemExit`` ends the program. An expression may run forever without a message. A file is compiled again for
each breakpoint in it, while other requests wait. pydevd's functions are wrapped once per process, when debugpy is
loaded. They run on its reader thread and on the threads that it has stopped; conditions run on the program's threads.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from dynamo_dap.debuggee.agent.binding import line_with_code, why_not_executed
from dynamo_dap.debuggee.agent.interruption import Interruptible
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.own_rank import NAME as RANK
from dynamo_dap.debuggee.agent.own_rank import extra_names
from dynamo_dap.debuggee.agent.tracing import stack_of_thread
from dynamo_dap.debuggee.bytecode.line_table import LineTableError, checking_files_once, line_table
from dynamo_dap.debuggee.eager import (
    pydevd_ending,
    pydevd_internals,
    pydevd_memory,
    pydevd_messages,
    pydevd_pauses,
    pydevd_requests,
)
from dynamo_dap.debuggee.eager.pydevd_requests import Raised, refuse
from dynamo_dap.debuggee.torch_api.own_threads import is_torchs_own
from dynamo_dap.debuggee.values.model import Interrupted, forget_interrupt, text_of_raised

_OWN_PACKAGE = __name__.partition(".")[0]

_installed_for: Callable[[], float] | None = None
"""Returns the time limit of an evaluation; None until ``install`` has run."""
_has_stopped_for: Callable[[BaseException], bool] | None = None
"""Returns whether the agent has stopped for an exception by the filter ``userUnhandled``."""


def install(seconds: Callable[[], float], has_stopped_for: Callable[[BaseException], bool]) -> None:
    """Wrap pydevd's functions; pydevd has been imported.

    ``seconds`` returns the time limit of an evaluation. ``has_stopped_for`` returns whether the agent has stopped for
    an exception in a trace, by the filter ``userUnhandled``.
    """
    global _installed_for, _has_stopped_for
    is_first, _installed_for, _has_stopped_for = _installed_for is None, seconds, has_stopped_for
    if not is_first:
        return
    wraps = (
        _guard_reader,
        pydevd_ending.install,
        pydevd_messages.install,
        functools.partial(pydevd_requests.install, _seconds),
        _guard_evaluations,
        _guard_conditions,
        _guard_exceptions,
    )
    for wrap in (
        *wraps,
        _mute_warnings_about_gevent,
        _hide_threads_of_torch,
        _keep_threads_that_start,
        pydevd_pauses.install,
        _read_files_once,
        _trace_all_callers,
        _verify,
        pydevd_memory.install,
    ):
        try:
            wrap()
        except AttributeError:
            log_exception(f"guarding debugpy ({wrap.__name__}): unknown version")


def _seconds() -> float:
    assert _installed_for is not None, "nothing is wrapped before"
    return _installed_for()


def _module(name: str) -> Any:
    return importlib.import_module(f"_pydevd_bundle.{name}")


def _trace_all_callers() -> None:
    """Make debugpy trace all running frames when a breakpoint is set. It misses some if a stack changes meanwhile."""
    pydb_class = importlib.import_module("pydevd").PyDB
    trace_contexts = pydb_class.set_tracing_for_untraced_contexts

    def set_tracing_for_untraced_contexts(self: object, *arguments: object, **options: object) -> None:
        trace_contexts(self, *arguments, **options)
        own = {thread.ident for thread in threading.enumerate() if _is_pydevds(thread)}
        for ident in sys._current_frames().keys() - own:
            pydevd_internals.trace_frames(ident, stack_of_thread(ident))

    pydb_class.set_tracing_for_untraced_contexts = set_tracing_for_untraced_contexts


def _is_pydevds(thread: threading.Thread) -> bool:
    return any(getattr(thread, name, False) for name in ("is_pydev_daemon_thread", "pydev_do_not_trace"))


def _mute_warnings_about_gevent() -> None:
    """Keep debugpy's warnings about gevent off the stderr of programs that use it."""
    for name in ("pydevd_comm", "pydevd_daemon_thread"):
        vars(_module(name))["notify_about_gevent_if_needed"] = lambda stream=None: False


def _hide_threads_of_torch() -> None:
    """List the threads that torch has started for itself only while they are stopped."""
    module = _module("pydevd_net_command_factory_json")
    list_all = module.get_non_pydevd_threads
    module.get_non_pydevd_threads = lambda: [
        thread for thread in list_all() if not is_torchs_own(thread) or _is_stopped(thread)
    ]


def _keep_threads_that_start() -> None:
    """Make debugpy say that a thread has exited only if the thread is not running.

    pydevd lists the threads without its lock, and then takes each thread that it knows and that is not in the list for
    dead. A thread that starts between the two would have no further events.
    """
    debugger = sys.modules["pydevd"].PyDB
    notify = debugger.notify_thread_not_alive
    # Without a lock: the thread that asks holds pydevd's own.
    running: Callable[[], list[threading.Thread]] = vars(threading)["_enumerate"]

    @functools.wraps(notify)
    def notify_thread_not_alive(self: Any, thread_id: str, use_lock: bool = True) -> None:
        if not use_lock and self._running_thread_ids.get(thread_id) in running():
            return  # a thread that ends says so itself, with the lock
        notify(self, thread_id, use_lock)

    debugger.notify_thread_not_alive = notify_thread_not_alive


def _is_stopped(thread: threading.Thread) -> bool:
    return (
        getattr(getattr(thread, "additional_info", None), "pydev_state", pydevd_internals.STATE_RUN)
        == pydevd_internals.STATE_SUSPEND
    )


def _read_files_once() -> None:
    """Let debugpy bind breakpoints by the agent's line tables, and set all breakpoints of a file at once."""
    api, processor = _module("pydevd_api"), _module("pydevd_process_net_command_json").PyDevJsonCommandProcessor
    lines_of, set_breakpoints = api._get_code_lines, processor.on_setbreakpoints_request

    def get_code_lines(code: object) -> object:
        return line_table(code).sorted_lines if isinstance(code, str) else lines_of(code)

    def on_setbreakpoints_request(self: Any, py_db: object, request: Any) -> object:
        self.problems_of_files = {}
        with checking_files_once(), _changing_once(py_db):
            _bind(request.arguments)
            return set_breakpoints(self, py_db, request)

    api._get_code_lines, processor.on_setbreakpoints_request = get_code_lines, on_setbreakpoints_request
    # For each breakpoint, debugpy makes a frame to decide whether its file is the user's, and caches the decision by
    # that frame. Return the same frame for all breakpoints of a file.
    shared_frame = functools.lru_cache(maxsize=64)(api.PyDevdAPI._DummyFrame)
    api.PyDevdAPI._DummyFrame = staticmethod(shared_frame)


def _bind(arguments: Any) -> None:
    """Move breakpoints on lines without code down, as the agent does. debugpy would move them up."""
    try:
        table = line_table(arguments.source.path)
    except LineTableError:
        return
    for breakpoint in arguments.breakpoints or ():
        breakpoint["line"] = table.line_of_breakpoint(breakpoint["line"])


@contextlib.contextmanager
def _changing_once(py_db: Any) -> Iterator[None]:
    """Return a context in which debugpy collects changes of breakpoints, and applies them once at its end."""
    changes: list[bool] = []
    files: dict[tuple[str, int], tuple[object, ...]] = {}

    consolidate_now = py_db.consolidate_breakpoints

    def consolidate(path: str, by_id: object, by_file: object) -> None:
        # Rebuild a file's table once, rather than for each breakpoint. Plugins for templates read theirs at once.
        if by_file is py_db.breakpoints:
            files[path, id(by_file)] = path, by_id, by_file
        else:
            consolidate_now(path, by_id, by_file)

    py_db.on_breakpoints_changed = lambda removed=False: changes.append(removed)
    py_db.consolidate_breakpoints = consolidate
    try:
        yield
    finally:
        del py_db.on_breakpoints_changed, py_db.consolidate_breakpoints
        for tables in files.values():
            py_db.consolidate_breakpoints(*tables)
        if changes:
            py_db.on_breakpoints_changed(removed=all(changes))


def _verify() -> None:
    """Make debugpy verify only breakpoints that can be hit. It takes every file for Python."""
    processor = _module("pydevd_process_net_command_json").PyDevJsonCommandProcessor
    made_of = processor._create_breakpoint_from_add_breakpoint_result

    def create(self: Any, py_db: object, source: object, breakpoint_id: object, result: Any) -> object:
        made = made_of(self, py_db, source, breakpoint_id, result)
        path: str = result.translated_filename
        may_be_template = self._options.django_debug or self._options.flask_debug
        if made["verified"] and (path.lower().endswith(".py") or not may_be_template):
            # Look once for each file and request, since that searches all modules.
            problem = self.problems_of_files[path] if path in self.problems_of_files else why_not_executed(path)
            self.problems_of_files[path] = problem
            if problem is not None:
                made |= {"verified": False, "message": problem}
        return made

    processor._create_breakpoint_from_add_breakpoint_result = create
    api = _module("pydevd_api").PyDevdAPI
    add = api.add_breakpoint

    def add_breakpoint(
        self: object,
        py_db: object,
        path: str,
        kind: str,
        breakpoint_id: object,
        line: int,
        *rest: object,
        **options: object,
    ) -> object:
        if kind == "python-line":
            # Find the line here: debugpy scans all lines for each breakpoint, and looks for code only above the line.
            line, options = line_with_code(path, line), {**options, "adjust_line": False}
        return add(self, py_db, path, kind, breakpoint_id, line, *rest, **options)

    api.add_breakpoint = add_breakpoint


# -- the reader thread -----------------------------------------------------------------------------------------------


def _guard_reader() -> None:
    processor = _module("pydevd_process_net_command_json").PyDevJsonCommandProcessor
    original = processor.process_net_command_json

    @functools.wraps(original)
    def process_net_command_json(self: object, py_db: object, json_contents: Any, send_response: bool = True) -> None:
        request = json.loads(json_contents)
        try:
            text = _refusal(request)
            if text is None and request["command"] == "cancel":
                pydevd_requests.cancel(py_db, request)
            elif text is None:
                with pydevd_requests.reading(request):
                    original(self, py_db, json_contents, send_response)
        except Exception as error:  # noqa: BLE001  (whatever it is, the session continues)
            text = f"debugpy cannot serve the request: {text_of_raised(error)}"
        if text is not None:
            refuse(py_db, request["seq"], request["command"], text)

    processor.process_net_command_json = process_net_command_json
    py_db = sys.modules["pydevd"].get_global_debugger()
    reader = getattr(py_db, "reader", None)
    if reader is not None:  # debugpy was loaded before us, and has kept the original function
        bound = reader.process_net_command_json
        reader.process_net_command_json = functools.partial(process_net_command_json, bound.__self__)


def _refusal(request: Any) -> str | None:
    """Return why to refuse a request, or None: for an unknown thread, pydevd would write to the program's stderr."""
    arguments = request.get("arguments")
    thread_id = arguments.get("threadId") if isinstance(arguments, dict) else None
    known = _module("_debug_adapter.pydevd_base_schema").BaseSchema._dap_id_to_obj_id
    is_unknown = isinstance(thread_id, int) and not isinstance(known.get(thread_id), str)
    return f"unknown thread {thread_id}" if is_unknown else None


# -- expressions -----------------------------------------------------------------------------------------------------


def _as_exception(error: BaseException) -> Exception:
    """Return an ``Exception`` with the class name and text of ``error``, which is not an ``Exception``."""
    substitute = type(type(error).__name__, (Exception,), {"__module__": type(error).__module__})
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  (the program's ``__str__`` may raise anything)
        text = ""
    made: Exception = substitute(text)
    return made


def _guard_evaluations() -> None:
    variables = _module("pydevd_vars")
    evaluate = variables.evaluate_expression

    @functools.wraps(evaluate)
    def evaluate_expression(py_db: object, frame: object, expression: str, is_exec: bool) -> object:
        try:
            return evaluate(py_db, frame, expression, is_exec)
        except (Exception, Interrupted):
            raise
        except BaseException as error:  # noqa: BLE001  (SystemExit, for example)
            substitute = _as_exception(error)
            if is_exec:
                raise substitute.with_traceback(error.__traceback__) from None
            return _module("pydevd_xml").ExceptionOnEvaluate(substitute, type(substitute), error.__traceback__)
        finally:
            forget_interrupt()

    variables.evaluate_expression = evaluate_expression
    change = variables.change_attr_expression
    missing = variables.SENTINEL_VALUE

    @functools.wraps(change)
    def change_attr_expression(
        frame: FrameType, attr: str, expression: str, dbg: object, value: object = missing, scope: object = None
    ) -> object:
        if value is missing and frame is not None:
            # debugpy would log its exception, and report the old value as the new one.
            try:
                value = eval(expression, frame.f_globals, frame.f_locals)
            except Interrupted:
                raise
            except BaseException as error:  # noqa: BLE001  (the user's expression may raise anything)
                raise Raised(text_of_raised(error)) from None
            is_global = attr.startswith("Globals") or getattr(scope, "scope", None) == "globals"
            name = attr.removeprefix("Globals.") if is_global else attr.partition(".")[0]
            if name not in (frame.f_globals if is_global else frame.f_locals):
                # debugpy would write a traceback to the program's stderr, or make a variable without effect.
                raise Raised(f"no variable is called '{name}' here")
            if sys.version_info >= (3, 13) and not is_global and "." not in attr:
                # Set the value in the frame: pydevd would run an assignment, and so the expression again.
                frame.f_locals[attr] = value
                return value
        return change(frame, attr, expression, dbg, value, scope)

    variables.change_attr_expression = change_attr_expression
    comm = _module("pydevd_comm")
    respond = comm._set_expression_response

    @functools.wraps(respond)
    def set_expression_response(py_db: object, request: object, error_message: str) -> None:
        raised = sys.exc_info()[1]
        respond(py_db, request, text_of_raised(raised) if raised is not None else error_message)

    comm._set_expression_response = set_expression_response


# -- exceptions ------------------------------------------------------------------------------------------------------

_STOPPING = (
    "_pydevd_bundle.pydevd_cython",
    "_pydevd_bundle.pydevd_frame",
    "_pydevd_sys_monitoring._pydevd_sys_monitoring_cython",
    "_pydevd_sys_monitoring._pydevd_sys_monitoring",
)
"""pydevd's modules that stop at exceptions; a Python has only some of them."""


def _guard_exceptions() -> None:
    """Keep debugpy from stopping again for an exception for which the agent has stopped in a trace.

    Also refuse ``exceptionInfo`` for a thread that has not stopped at an exception.
    """
    user_unhandled = _module("pydevd_constants").EXCEPTION_TYPE_USER_UNHANDLED
    modules = [sys.modules[name] for name in _STOPPING if hasattr(sys.modules.get(name), "handle_exception")]

    def guarded(handle: Callable[..., object]) -> Callable[..., object]:
        def handle_exception(py_db: object, thread: object, frame: object, arg: Any, exception_type: str) -> object:
            if exception_type == user_unhandled and _has_stopped_for is not None and _has_stopped_for(arg[1]):
                return False
            return handle(py_db, thread, frame, arg, exception_type)

        return handle_exception

    for module in modules:
        vars(module)["handle_exception"] = guarded(vars(module)["handle_exception"])

    processor = _module("pydevd_process_net_command_json").PyDevJsonCommandProcessor
    report_exception = processor.on_exceptioninfo_request

    def on_exceptioninfo_request(self: object, py_db: Any, request: Any) -> Any:
        thread_id = request.arguments.threadId
        frames = py_db.suspended_frames_manager.get_frames_list(thread_id)
        if frames is not None and frames.exc_type is not None:
            return report_exception(self, py_db, request)
        # debugpy would make up an exception, and write its own failure to the program's stderr.
        return refuse(py_db, request.seq, "exceptionInfo", "this thread did not stop at an exception")

    processor.on_exceptioninfo_request = on_exceptioninfo_request


# -- conditions and log messages -------------------------------------------------------------------------------------


class _FrameWithRank:
    """A frame for evaluating a condition, with the name ``rank`` among its globals."""

    def __init__(self, frame: FrameType, names: dict[str, int]) -> None:
        self._frame = frame
        self.f_globals = {**names, **frame.f_globals}

    def __getattr__(self, name: str) -> object:
        return getattr(self._frame, name)


def _with_rank(frame: Any, condition: str | None) -> object:
    names = extra_names(frame.f_locals, frame.f_globals) if condition and RANK in condition else {}
    return _FrameWithRank(frame, names) if names else frame


def _guard_conditions() -> None:
    debugger = sys.modules["pydevd"].PyDB
    condition_holds, make_message = debugger.handle_breakpoint_condition, debugger.handle_breakpoint_expression

    @functools.wraps(condition_holds)
    def handle_breakpoint_condition(self: object, info: object, pybreakpoint: Any, new_frame: object) -> bool:
        try:
            with Interruptible(_seconds()).running():
                return bool(condition_holds(self, info, pybreakpoint, _with_rank(new_frame, pybreakpoint.condition)))
        except Interrupted:
            text = f"took longer than {_seconds():g} s"
        except BaseException as error:  # noqa: BLE001  (the user's expression may raise anything)
            text = text_of_raised(error)
        what = pybreakpoint.condition or pybreakpoint.hit_condition
        # Stop: an extra stop is better than a missed one.
        _module("pydevd_api").PyDevdAPI().send_error_message(self, f"The condition {what!r} failed: {text}")
        return True

    @functools.wraps(make_message)
    def handle_breakpoint_expression(self: object, pybreakpoint: object, info: Any, new_frame: object) -> None:
        try:
            with Interruptible(_seconds()).running():
                make_message(self, pybreakpoint, info, new_frame)
        except Interrupted:
            info.pydev_message = f"<took longer than {_seconds():g} s>"
        except BaseException as error:  # noqa: BLE001  (the user's log message may raise anything)
            info.pydev_message = f"<{text_of_raised(error)}>"
        pydevd_messages.has_evaluated_message()

    debugger.handle_breakpoint_condition = handle_breakpoint_condition
    debugger.handle_breakpoint_expression = handle_breakpoint_expression
