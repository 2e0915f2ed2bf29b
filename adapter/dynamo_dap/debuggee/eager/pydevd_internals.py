"""Uses undocumented functions of debugpy for the agent; those for variables are in ``pydevd_variables``.

debugpy is imported when a session needs it, never before. A function runs on the thread that it is about, unless its
docstring says otherwise.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

from dynamo_dap.debuggee.agent.engine import RAISED, UNCAUGHT, USER_UNHANDLED
from dynamo_dap.debuggee.agent.frames import GLOBALS_FILE
from dynamo_dap.debuggee.agent.user_code import is_torch_file, is_user_file
from dynamo_dap.protocol.wire.local_sockets import connect_locally, is_local_name

_SETTINGS = {
    # On Python 3.10, pydevd would replace the frame evaluation hook, which Dynamo uses.
    "PYDEVD_USE_FRAME_EVAL": "NO",
    # pydevd would warn on the program's stderr that modules of the standard library are frozen.
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    # Seconds after which pydevd warns on the program's stderr that a value took long to show.
    "PYDEVD_WARN_SLOW_RESOLVE_TIMEOUT": "3600",
}
STATE_RUN, STATE_SUSPEND = 1, 2
NO_COMMAND = -1
_STEP_INTO, _STEP_INTO_MY_CODE = 107, 144
_STEP_OVER, _STEP_OVER_MY_CODE, _STEP_RETURN, _STEP_RETURN_MY_CODE = 108, 159, 109, 160
_DISPOSAL_SECONDS = 10.0
_CONNECT_SECONDS = 10.0
_LIBRARY_FILE = 1
"""pydevd's ``LIB_FILE``: a file that is never traced, but shown in stacks."""
_MAKES_STACK = "make_get_thread_stack_message"


class DebugpyMissing(Exception):
    """debugpy cannot be used here; the message says why."""


def load() -> None:
    """Import debugpy's in-process server.

    Raises:
        DebugpyMissing: debugpy is not installed for this Python, or cannot be imported.
    """
    with _settings(), _breakpoint_hook_kept():
        try:
            importlib.import_module("debugpy.server")
            importlib.import_module("pydevd")
            _hide_unstarted_threads()
        except ModuleNotFoundError as error:
            if error.name != "debugpy":
                raise DebugpyMissing(f"debugpy cannot be imported: {error}") from None
            text = f"debugpy is not installed for {sys.executable} (run: {sys.executable} -m pip install debugpy)"
            raise DebugpyMissing(text) from None
        except Exception as error:  # noqa: BLE001  (whatever is wrong with it)
            raise DebugpyMissing(f"debugpy cannot be imported: {type(error).__name__}: {error}") from None


@contextlib.contextmanager
def _settings() -> Iterator[None]:
    """Return a context with the environment variables that pydevd reads during its import."""
    before = {name: os.environ.get(name) for name in _SETTINGS}
    os.environ.update(_SETTINGS)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _breakpoint_hook_kept() -> Iterator[None]:
    """Return a context that restores the hook of ``breakpoint()``: importing pydevd replaces it."""
    before = sys.breakpointhook
    try:
        yield
    finally:
        sys.breakpointhook = before


def has_breakpoint_hook() -> bool:
    """Return whether ``breakpoint()`` calls debugpy, which the program has then imported."""
    module = getattr(sys.breakpointhook, "__module__", None) or ""
    return module.partition(".")[0] in ("debugpy", "pydevd")


def connect(
    host: str,
    port: int,
    token: str,
    *,
    own_package: str,
    greet: Callable[[socket.socket], None] | None = None,
) -> None:
    """Connect to the server and trace every thread, with no breakpoint set. ``own_package`` is never traced or shown.

    ``greet`` may send a message on the connection before pydevd's own.

    Raises:
        OSError: no server listens at the address.
        DebugpyMissing: another client of debugpy debugs this process.
    """
    _wait_until_disposed()
    with _connecting(greet):
        sys.modules["pydevd"].settrace(
            host=host,
            port=port,
            client_access_token=token,
            suspend=False,
            wait_for_ready_to_run=False,
            patch_multiprocessing=False,
            dont_trace_start_patterns=(package(), own_package),
            dont_trace_end_patterns=("debugpy_launcher.py",),
            notify_stdin=False,
        )
    _disable_nagle(debugger())
    _mute_notices_about_torch(debugger())


@contextlib.contextmanager
def _connecting(greet: Callable[[socket.socket], None] | None) -> Iterator[None]:
    """Return a context in which pydevd can also connect to local sockets, and calls ``greet`` with the connection."""
    pydevd: Any = sys.modules["pydevd"]
    connected = pydevd.start_client

    def start_client(host: str, port: int) -> socket.socket:
        made: socket.socket = (
            connect_locally(host, port, _CONNECT_SECONDS) if is_local_name(host) else connected(host, port)
        )
        made.settimeout(None)
        if greet is not None:
            greet(made)
        return made

    pydevd.start_client = start_client
    try:
        yield
    finally:
        pydevd.start_client = connected


def adopt(own_package: str) -> None:
    """Use a session of debugpy that the program began. ``own_package`` is never traced or shown."""
    api = importlib.import_module("_pydevd_bundle.pydevd_api").PyDevdAPI()
    api.set_dont_trace_start_end_patterns(debugger(), (package(), own_package), ("debugpy_launcher.py",))
    _disable_nagle(debugger())


def package() -> str:
    """Return the folder of debugpy's modules."""
    return os.path.dirname(str(sys.modules["debugpy"].__file__))


def _wait_until_disposed() -> None:
    """Wait until the threads of an earlier session have ended: they end only after its connection."""
    until = time.monotonic() + _DISPOSAL_SECONDS
    while debugger() is not None:
        if time.monotonic() > until:
            raise DebugpyMissing("debugpy is in use in this process already, by another client")
        time.sleep(0.01)


def _disable_nagle(pydb: Any) -> None:
    """Disable Nagle's algorithm: pydevd writes each message in two pieces, and the second would wait for a reply."""
    with contextlib.suppress(AttributeError, OSError):
        pydb._client_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _mute_notices_about_torch(pydb: Any) -> None:
    """Mute pydevd's notice of skipped frames for frames of torch: each step into a compiled function skips some."""
    report = pydb.notify_skipped_step_in_because_of_filters

    def report_others(frame: types.FrameType) -> None:
        if not _is_called_by_torch(frame):
            report(frame)

    pydb.notify_skipped_step_in_because_of_filters = report_others


def _is_called_by_torch(frame: types.FrameType) -> bool:
    caller: types.FrameType | None = frame
    while caller is not None and not is_user_file(caller.f_code.co_filename):
        if is_torch_file(caller.f_code.co_filename):
            return True
        caller = caller.f_back
    return False


def debugger() -> Any:
    """Return pydevd's debugger, its object for the session; None if the session has ended."""
    return sys.modules["pydevd"].get_global_debugger()


def release_frames() -> None:
    """Drop the frames that pydevd keeps for each thread: they would keep the program's globals alive to the end."""
    if uses_monitoring():
        monitoring().reset_thread_local_info()


def forget() -> None:
    """Stop tracing, and drop the connection silently: the calling process is a fork."""
    if uses_monitoring():
        monitoring().stop_monitoring(all_threads=True)
        release_frames()
    else:
        importlib.import_module("pydevd_tracing").SetTrace(None)
        threading.settrace(None)
    importlib.import_module("pydevd_tracing").restore_sys_set_trace_func()
    debugger().created_pydb_daemon_threads = {}
    # Close the fork's copy of the connection. Kept open, the connection would outlive the debugged process, for whose
    # end the server waits.
    debugger()._client_socket.close()
    importlib.import_module("_pydevd_bundle.pydevd_constants").set_global_debugger(None)
    importlib.import_module("_pydevd_bundle.pydevd_custom_frames").custom_frames_container_init()
    threading.current_thread().additional_info = None  # type: ignore[attr-defined]  # pydevd's attribute


_has_wrapped_process_creation = False


def wrap_process_creation(
    is_wanted: Callable[[], bool], rewritten: Callable[[Any], object], after_fork: Callable[[], None]
) -> None:
    """Rewrite the command of every started process by ``rewritten``, and call ``after_fork`` in forks.

    Forks that are about to run another program are left out. While ``is_wanted`` returns false, processes start
    unchanged. Lasts for the life of the process.
    """
    global _has_wrapped_process_creation
    if _has_wrapped_process_creation:
        return
    _has_wrapped_process_creation = True
    monkey: Any = importlib.import_module("_pydev_bundle.pydev_monkey")
    does_it_itself = hasattr(os, "original_fork")
    own_rewriting, own_forking = monkey.patch_args, monkey._on_forked_process

    def patch_args(command: object, is_exec: bool = False) -> object:
        if is_wanted():
            return rewritten(command)
        return own_rewriting(command, is_exec) if does_it_itself else command

    def on_forked_process(setup_tracing: bool = True) -> None:
        if is_wanted():
            after_fork() if setup_tracing else None
        elif does_it_itself:
            own_forking(setup_tracing)

    monkey.patch_args, monkey._on_forked_process = patch_args, on_forked_process
    monkey.patch_new_process_functions()
    # Reset the protocol, which a fork inherits: pydevd's present one needs a connection.
    defaults = importlib.import_module("_pydevd_bundle.pydevd_defaults")
    constants = importlib.import_module("_pydevd_bundle.pydevd_constants")
    constants.set_protocol(defaults.PydevdCustomization.DEFAULT_PROTOCOL)


def listen_to_messages(after_receive: Callable[[object], None], before_send: Callable[[object], None]) -> None:
    """Call the observers with every DAP message that debugpy receives or sends, decoded. Runs on debugpy's threads."""
    pydevd = sys.modules["pydevd"]
    listener = type(
        "Listener",
        (pydevd.IDAPMessagesListener,),
        {
            "after_receive": lambda self, message: after_receive(message),
            "before_send": lambda self, message: before_send(message),
        },
    )()
    pydevd.add_dap_messages_listener(listener)


class _Cancelled:
    """Replaces the ``threading.Event`` that ends a wait of pydevd."""

    def __init__(self, is_set: Callable[[], bool]) -> None:
        self.is_set = is_set

    def set(self) -> None:
        """Do nothing; pydevd calls this at the end of its wait."""


def wait_until_configured(is_cancelled: Callable[[], bool]) -> None:
    """Wait until debugpy has received ``configurationDone``, or until ``is_cancelled`` returns true.

    Return at once if debugpy's session has ended.
    """
    debugger = sys.modules["pydevd"].get_global_debugger()
    if debugger is not None:
        debugger.block_until_configuration_done(cancel=_Cancelled(is_cancelled))


# -- threads -----------------------------------------------------------------------------------------------------------


def _schema() -> Any:
    return sys.modules["_pydevd_bundle._debug_adapter.pydevd_base_schema"].BaseSchema


def thread_of(ident: int) -> threading.Thread | None:
    """Return the thread with Python's identifier ``ident``; None if Python does not know it."""
    return threading._active.get(ident)  # type: ignore[attr-defined,no-any-return]  # private to threading


def thread_id_of(ident: int) -> int:
    """Return debugpy's DAP id of the thread with Python's identifier ``ident``. Runs on any thread."""
    thread = thread_of(ident)
    if thread is None:
        key = f"thread {ident}"
    else:
        key = importlib.import_module("_pydevd_bundle.pydevd_constants").get_thread_id(thread)
    return int(_schema()._translate_id_to_dap(key))


def ident_of_thread(thread_id: int) -> int | None:
    """Return Python's identifier of the thread with debugpy's DAP id ``thread_id``. Runs on any thread."""
    key = _schema()._dap_id_to_obj_id.get(thread_id)
    if not isinstance(key, str):
        return None
    if key.startswith("thread "):
        return int(key.removeprefix("thread "))
    for ident, thread in list(threading._active.items()):  # type: ignore[attr-defined]  # private to threading
        if getattr(thread, "__pydevd_id__", None) == key:
            return int(ident)
    return None


def started_threads() -> list[threading.Thread]:
    """Return the threads that have an identifier."""
    return [thread for thread in threading.enumerate() if thread.ident is not None]


def _hide_unstarted_threads() -> None:
    """Hide threads from pydevd until they have an identifier.

    Otherwise pydevd writes an error to stderr and ignores the thread: steps and pauses there would have no effect.
    """
    pydevd: Any = sys.modules["pydevd"]
    if getattr(pydevd, "threadingEnumerate", None) is started_threads:
        return
    pydevd.threadingEnumerate = started_threads
    utilities: Any = importlib.import_module("_pydevd_bundle.pydevd_utils")
    messages: Any = importlib.import_module("_pydevd_bundle.pydevd_net_command_factory_json")
    program_threads = utilities.get_non_pydevd_threads

    def started_program_threads() -> list[threading.Thread]:
        return [thread for thread in program_threads() if thread.ident is not None]

    utilities.get_non_pydevd_threads = messages.get_non_pydevd_threads = started_program_threads


def information_of(thread: threading.Thread | None = None) -> Any:
    """Return what pydevd knows of a thread, by default the calling one."""
    module = importlib.import_module("_pydevd_bundle.pydevd_additional_thread_info")
    return module.set_additional_thread_info(thread or threading.current_thread())


def holds_this_thread() -> bool:
    """Return whether debugpy has stopped the calling thread, which then serves requests."""
    information = getattr(threading.current_thread(), "additional_info", None)
    return information is not None and bool(getattr(information, "is_in_wait_loop", False))


# -- steps -------------------------------------------------------------------------------------------------------------


def is_stepping(*, into_calls: bool = False) -> bool:
    """Return whether a step is in progress on the calling thread; with ``into_calls``, whether a step into calls is."""
    step: int = information_of().pydev_step_cmd
    return step in (_STEP_INTO, _STEP_INTO_MY_CODE) if into_calls else step != NO_COMMAND


def drop_step() -> None:
    """Drop the step and the pause request of the calling thread."""
    information = information_of()
    information.step_in_initial_location = None  # it keeps a frame alive, with all objects in it
    _set_step(information, NO_COMMAND, None)


def step_in(frame: types.FrameType | None) -> None:
    """Make the calling thread stop at the next user line. ``frame`` is the innermost user frame, if known."""
    _begin_step(_STEP_INTO_MY_CODE if _is_my_code_only() else _STEP_INTO, None, frame)


def step_over(frame: types.FrameType) -> None:
    """Make the calling thread stop at the next line of ``frame``, or of its caller once it has returned."""
    _begin_step(_STEP_OVER_MY_CODE if _is_my_code_only() else _STEP_OVER, frame, frame)


def step_back_into_caller(callee: types.FrameType) -> None:
    """Make the calling thread stop in the user's code that called ``callee``, as soon as ``callee`` has returned."""
    _begin_step(_STEP_RETURN_MY_CODE if _is_my_code_only() else _STEP_RETURN, callee, callee)


def _is_my_code_only() -> bool:
    return bool(debugger().get_use_libraries_filter())


def suspend_step() -> Callable[[], None] | None:
    """Suspend the calling thread's step; return a function that resumes the step, or None if there is no step.

    The function does nothing if another step has begun, or if the thread must stop.
    """
    information = information_of()
    command = information.pydev_step_cmd
    if command == NO_COMMAND:
        return None
    original, stop = information.pydev_original_step_cmd, information.pydev_step_stop
    _set_step(information, NO_COMMAND, None)

    def begin_again() -> None:
        if information.pydev_step_cmd == NO_COMMAND and information.pydev_state == STATE_RUN:
            _set_step(information, command, stop)
            information.pydev_original_step_cmd = original

    return begin_again


def _begin_step(command: int, stop: types.FrameType | None, traced: types.FrameType | None) -> None:
    information = information_of()
    if traced is not None:
        information.step_in_initial_location = (traced, traced.f_lineno)
    _set_step(information, command, stop)
    if traced is not None:
        debugger().set_trace_for_frame_and_parents(threading.get_ident(), traced)
    if uses_monitoring():
        module = monitoring()
        module.update_monitor_events(suspend_requested=True)
        module.restart_events()


def _set_step(information: Any, command: int, stop: types.FrameType | None) -> None:
    information.pydev_original_step_cmd = command
    information.pydev_step_cmd = command
    information.pydev_step_stop = stop
    information.pydev_state = STATE_RUN
    information.update_stepping_info()


def stop_at(frame: types.FrameType | None) -> None:
    """Stop the calling thread at the next line of ``frame`` (None: of any frame), as ``debugpy.breakpoint()`` does."""
    sys.modules["pydevd"].settrace(
        suspend=True,
        trace_only_current_thread=True,
        patch_multiprocessing=False,
        stop_at_frame=frame,
        notify_stdin=False,
    )


def exception_filters() -> frozenset[str]:
    """Return the exception filters that are on, by DAP's names. Runs on any thread."""
    pydb = debugger()
    caught, unhandled = pydb.break_on_caught_exceptions, pydb.break_on_user_uncaught_exceptions
    is_on = {RAISED: caught, USER_UNHANDLED: unhandled, UNCAUGHT: pydb.break_on_uncaught_exceptions}
    return frozenset(name for name, exceptions in is_on.items() if exceptions)


def report_uncaught(error: BaseException) -> None:
    """Stop for an exception that is about to end the program, if the filter ``uncaught`` is on."""
    pydb = debugger()
    reported = type(error), error, error.__traceback__
    pydb.stop_on_unhandled_exception(pydb, threading.current_thread(), information_of(), reported)


# -- tracing -----------------------------------------------------------------------------------------------------------


def monitoring() -> Any:
    """Return pydevd's module for ``sys.monitoring``; call it only if ``uses_monitoring``."""
    return importlib.import_module("_pydevd_sys_monitoring.pydevd_sys_monitoring")


def uses_monitoring() -> bool:
    """Return whether debugpy uses ``sys.monitoring``, as on Python 3.12 and newer."""
    return bool(importlib.import_module("_pydevd_bundle.pydevd_constants").PYDEVD_USE_SYS_MONITORING)


def set_trace(function: Callable[..., object]) -> None:
    """Trace the calling thread by ``function``, in debugpy's way, which is faster than ``sys.settrace``."""
    importlib.import_module("pydevd_tracing").SetTrace(function)


def trace_frames(ident: int, frames: list[types.FrameType]) -> None:
    """Trace running frames of the thread ``ident``, except those that debugpy never traces. Runs on any thread."""
    pydb = debugger()
    for frame in frames:
        if pydb.get_file_type(frame) is not None:
            continue
        if uses_monitoring():
            monitoring().enable_code_tracing(ident, frame.f_code, frame)
        elif frame.f_trace is not pydb.trace_dispatch:
            frame.f_trace = pydb.trace_dispatch
    if uses_monitoring():
        monitoring().restart_events()


def may_stop_this_thread() -> bool:
    """Return whether debugpy may stop the calling thread for anything but an uncaught exception."""
    pydb, information = debugger(), information_of()
    return pydb is not None and (
        any(pydb.breakpoints.values())
        or bool(pydb.function_breakpoint_name_to_breakpoint)
        or bool(pydb.break_on_caught_exceptions or pydb.break_on_user_uncaught_exceptions)
        or bool(pydb.has_plugin_line_breaks or pydb.has_plugin_exception_breaks)
        or information.pydev_step_cmd != NO_COMMAND
        or information.pydev_state == STATE_SUSPEND
    )


# -- evaluating --------------------------------------------------------------------------------------------------------


def frame_of_globals_at_stop(frame_of_globals: Callable[[], types.FrameType]) -> int | None:
    """Add ``frame_of_globals()`` to the frames of a thread that debugpy has stopped, and return its DAP id.

    None if debugpy has stopped no thread. The id expires with that stop, like those of the thread's own frames. Runs on
    debugpy's reader thread.
    """
    manager = debugger().suspended_frames_manager
    for tracker in list(manager._thread_id_to_tracker.values()):
        with tracker._lock:
            if tracker._untracked:
                continue
            frames = tracker._frame_id_to_frame.values()
            frame = next((one for one in frames if one.f_code.co_filename == GLOBALS_FILE), None)
            if frame is None:
                frame = frame_of_globals()
                tracker._frame_id_to_frame[id(frame)] = frame
                tracker._frame_id_to_main_thread_id[id(frame)] = tracker.get_main_thread_id()
                manager._variable_reference_to_frames_tracker[id(frame)] = tracker
        return int(_schema()._translate_id_to_dap(id(frame)))
    return None


# -- files -------------------------------------------------------------------------------------------------------------


def never_trace(file_name: str) -> None:
    """Never trace code of ``file_name`` (in angle brackets), but show its frames in stacks. Runs on any thread."""
    importlib.import_module("_pydevd_bundle.pydevd_dont_trace_files").DONT_TRACE[file_name] = _LIBRARY_FILE


def show_in_stacks(is_shown: Callable[[str], bool]) -> None:
    """Show frames of the files that ``is_shown`` selects, though ``justMyCode`` leaves them out of stacks.

    debugpy's filter also decides where steps may end; that does not change.
    """
    pydb = debugger()
    is_filtered = pydb.apply_files_filter
    if getattr(is_filtered, "shows_more", False):
        return

    def apply_files_filter(frame: types.FrameType, file_name: str, force: bool) -> bool:
        if is_shown(file_name) and sys._getframe(1).f_code.co_name == _MAKES_STACK:
            return False
        return bool(is_filtered(frame, file_name, force))

    apply_files_filter.shows_more = True  # type: ignore[attr-defined]  # a mark on the function
    pydb.apply_files_filter = apply_files_filter
