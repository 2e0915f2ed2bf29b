"""Zygotes: processes that fork each program and each server under test, since their imports take seconds.

``python()`` returns the command for launching a program. It starts a substitute (``substitute.py``); a server takes it
for an interpreter. The forked process replaces the substitute: it has the same arguments, environment, working
directory and standard descriptors, a new ``__main__``, and no compiled code. The bootstrap, the agent and debugpy start
in it as usual, except that torch is imported already, as in a program to which a debugger attaches. A program that a
server starts also finds the agent's modules imported, and debugpy's if it uses debugpy; other programs find neither.
``forked_server`` forks servers from another zygote, which has imported only the server's modules. The forked process
leads its own session, like any process that a server starts; it is killed with its substitute, and the substitute dies
as it does. At its end it does not tear down torch's modules, which takes longer than most programs.

The real interpreter runs a program if a fork could not imitate it: other options of Python, or another environment for
the start of Python or torch (``_READ_AT_THE_START``). Variables that torch reads later (``_READ_LATE``), or for which a
setting can be changed (``_SETTINGS``), do not count. Hashes have the seed ``_SEED`` in every forked program, as in each
trial of a fix; a program with another seed runs in the real interpreter. A test about the start or the very end of a
program gives ``python=[sys.executable]``; a test about the start of a server gives ``transport="tcp"`` or a variable
that Python reads.

Each process that runs tests has one zygote for each environment of Python's start, made at its first use. The zygote
ends with that process, when its stdin ends. It has one thread, with its loop in ``serve``, and so have its forks.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib.util
import io
import json
import marshal
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

MARK = "DYNAMO_DAP_TEST_SESSION"
"""The environment variable by which ``processes`` finds the processes of a session."""
_MARK_LENGTH = 32
_SEED = {"PYTHONHASHSEED": "0"}
_READ_AT_THE_START = (
    *("PYTHON", "TORCH", "PYTORCH", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "LD_", "LC_", "LANG", "TZ"),
    *("PYDEVD", "DEBUGPY", "GEVENT"),
)
_BISECTION = ("TORCH_BISECT_BACKEND", "TORCH_BISECT_SUBSYSTEM", "TORCH_BISECT_MAX")
_OF_RANKS = (
    *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"),
    *("TORCHELASTIC_SIGNALS_TO_HANDLE", "TORCHELASTIC_USE_AGENT_STORE", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
    "PYTHON_EXEC",
)
_READ_LATE = ("TORCHINDUCTOR_CACHE_DIR", "TORCHDYNAMO_DISABLE", "TORCH_TRACE", *_BISECTION, *_OF_RANKS)
"""Variables that torch reads when it compiles or starts or joins ranks, or that it can read again."""
_SETTINGS: dict[str, tuple[str, str, str, Callable[[str], object]]] = {
    "TORCHINDUCTOR_FX_GRAPH_CACHE": ("_inductor", "fx_graph_cache", "env_value_force", "1".__eq__),
    "TORCHINDUCTOR_AUTOGRAD_CACHE": ("_functorch", "enable_autograd_cache", "env_value_force", "1".__eq__),
    "TORCHINDUCTOR_COMPILE_THREADS": ("_inductor", "compile_threads", "default", int),
    "TORCHDYNAMO_REPRO_AFTER": ("_dynamo", "repro_after", "default", str),
    "TORCHDYNAMO_REPRO_LEVEL": ("_dynamo", "repro_level", "default", int),
    "TORCH_COMPILE_DEBUG_DIR": ("_dynamo", "debug_dir_root", "default", "{}/torch_compile_debug".format),
}
"""For each variable that torch reads at its import: package, setting, the attribute with the value, a converter."""
_IMPORTED = (
    "torch._dynamo.convert_frame",
    "torch._dynamo.backends.inductor",
    "torch._functorch.aot_autograd",
    "torch._inductor.compile_fx",
    "torch._inductor.compiler_bisector",
    "torch._inductor.codegen.cpp_wrapper_gpu",
    "torch._inductor.codegen.cuda_combined_scheduling",
    "torch.distributed.tensor.experimental",
    "torch.fx.experimental.validator",
    "torch.utils.cpp_extension",
    "networkx",
    "functorch.compile",
)
"""Modules that a compiling program imports. Some exist only in some versions of torch."""
_AGENT = ("dynamo_dap.debuggee.launch.starting.launch", "dynamo_dap.debuggee.composition.compile_time_engine")
_SERVER = ("dynamo_dap.command_line", "dynamo_dap.server.sessions.transports", "dynamo_dap.server.client.log")
_RUN_SERVER = "import sys; del sys.path[0]; from dynamo_dap.command_line import main; sys.exit(main())\n"
_NUMBER = 8

Request = tuple[list[str], dict[bytes, bytes], str, int]
"""Arguments of the interpreter, environment, working directory, file mode mask."""

_folders: dict[tuple[str, frozenset[tuple[str, str]]], Path] = {}
"""The zygotes, by what they fork and the variables of their start."""


def python(**variables: str) -> list[str]:
    """Return the command that starts Python for a program under test; start the zygote if there is none yet.

    ``variables`` are environment variables for the start of Python or torch that differ from those of the tests.
    """
    return [str(folder_of("program", variables) / "python")]


def folder_of(kind: str, variables: dict[str, str]) -> Path:
    """Return the folder of the zygote that forks a ``kind``, "program" or "server"; start it if it is the first."""
    key = kind, frozenset(variables.items())
    if key not in _folders:
        _folders[key] = _start(kind, variables)
    return _folders[key]


def _start(kind: str, variables: dict[str, str]) -> Path:
    """Start a zygote and return its folder."""
    folder = Path(tempfile.mkdtemp(prefix="dynamo-dap-zygote-"))
    address = folder / "socket"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(address))
    listener.listen(64)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-u", "-X", "frozen_modules=off", str(_compiled(folder)), str(listener.fileno()), kind],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=[listener.fileno()],
            # The placeholder for the mark of the forked process's session.
            env={**_SEED, **os.environ, **variables, MARK: "-" * _MARK_LENGTH},
            start_new_session=True,
        )
    listener.close()
    atexit.register(_end, process, folder)
    (folder / "server.py").write_text(_RUN_SERVER, encoding="utf-8")
    substitute = folder / "python"
    command = [
        sys.executable,
        "-I",
        "-S",
        "-E",
        str(Path(__file__).with_name("substitute.py")),
        str(address),
        sys.executable,
    ]
    quoted = " ".join("'" + part.replace("'", "'\\''") + "'" for part in command)
    substitute.write_text(f'#!/bin/sh\nexec {quoted} "$@"\n', encoding="utf-8")
    substitute.chmod(0o755)
    return folder


def _compiled(folder: Path) -> Path:
    """Write this file as bytecode with the path of a debugger's file, and return the bytecode's path.

    The zygote's frames are below those of every program. A debugger hides its own frames, and so hides these.
    """
    import dynamo_dap

    package = Path(dynamo_dap.__file__).parent
    code = compile(
        Path(__file__).read_bytes(),
        str(package / "debuggee" / "launch" / "starting" / "entry.py"),
        "exec",
        dont_inherit=True,
    )
    path = folder / "zygote.pyc"
    path.write_bytes(importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code))
    return path


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)


# -- in the zygote -----------------------------------------------------------------------------------------------------


class _Forked(Exception):
    """Ends the loop in a forked process."""

    def __init__(self, request: Request) -> None:
        self.request = request


class _Zygote:
    """Forks a process for each substitute that requests one, and reports the end of the process to it."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.debugger: _Debugger | None = None
        self._substitutes: dict[socket.socket, int] = {}
        """The process that was forked for each substitute."""
        self._environment = dict(os.environb)
        self._mark_address = _address_of_mark()
        self._woken, waker = socket.socketpair()
        self._waker = waker
        waker.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)

    def serve(self) -> None:
        """Fork until stdin ends. Raises ``_Forked`` in the forked processes."""
        while True:
            awaited: list[Any] = [0, self._woken, self._listener, *self._substitutes]
            ready, _, _ = select.select(awaited, [], [])
            if self._woken in ready:
                self._woken.recv(4096)
                self._report_ends()
            for substitute in [one for one in self._substitutes if one in ready]:
                self._kill_for(substitute)
            if self._listener in ready:
                self._fork_for(self._listener.accept()[0])
            if 0 in ready:
                for substitute in list(self._substitutes):
                    self._kill_for(substitute)
                return

    def _fork_for(self, substitute: socket.socket) -> None:
        substitute.settimeout(10.0)
        try:
            request, descriptors = _receive(substitute)
        except (OSError, EOFError):
            substitute.close()
            return
        if self._cannot(request):
            process = 0
        else:
            process = os.fork()
            if process == 0:
                self._become(request, descriptors)
                raise _Forked(request)
        for descriptor in descriptors:
            os.close(descriptor)
        self._substitutes[substitute] = process
        self._answer(substitute, process)
        if process == 0:
            self._forget(substitute)

    def _cannot(self, request: Request) -> bool:
        arguments, environment, cwd, _ = request
        options, program = _split(arguments)
        return (
            not set(options) <= {"-u", "-Xfrozen_modules=off"}
            or not program
            or not Path(cwd, program[0]).is_file()
            or _read_at_the_start(environment) != _read_at_the_start(self._environment)
        )

    def _become(self, request: Request, descriptors: list[int]) -> None:
        """Take over the substitute's arguments, environment and descriptors, in the forked process."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        for one in (self._listener, self._woken, self._waker, *self._substitutes):
            one.close()
        arguments, environment, cwd, mask = request
        os.umask(mask)
        os.chdir(cwd)
        os.environb.clear()
        os.environb.update(environment)
        _write_mark(self._mark_address, environment.get(MARK.encode(), b""))
        sys.orig_argv = [sys.executable, *arguments]
        sys.argv = _split(arguments)[1]
        sys.path[0] = str(Path(sys.argv[0]).absolute().parent)
        if "-u" not in _split(arguments)[0] and not environment.get(b"PYTHONUNBUFFERED"):
            sys.stdout = sys.__stdout__ = _buffered(sys.stdout, 1, is_lines=os.isatty(1))
            sys.stderr = sys.__stderr__ = _buffered(sys.stderr, 2, is_lines=True)
        if "torch" in sys.modules:
            _change_settings()
            sys.modules["torch"].default_generator.seed()
        if self.debugger is not None:
            self.debugger.give_to(sys.argv[0], environment)

    def _report_ends(self) -> None:
        for substitute, process in list(self._substitutes.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                self._answer(substitute, status)
                self._forget(substitute)

    def _kill_for(self, substitute: socket.socket) -> None:
        """Kill the process of a substitute that has ended, or at the end of the zygote."""
        process = self._forget(substitute)
        for kill in (os.kill, os.killpg):  # the process may not lead a group yet
            with contextlib.suppress(ProcessLookupError):
                kill(process, signal.SIGKILL)
        os.waitpid(process, 0)

    @staticmethod
    def _answer(substitute: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError):  # the substitute has ended, as the loop will notice
            substitute.sendall(number.to_bytes(_NUMBER, "big"))

    def _forget(self, substitute: socket.socket) -> int:
        substitute.close()
        return self._substitutes.pop(substitute)


def _receive(substitute: socket.socket) -> tuple[Request, list[int]]:
    data, descriptors, _, _ = socket.recv_fds(substitute, _NUMBER, 3)
    length = int.from_bytes(_received(substitute, data, _NUMBER), "big")
    return marshal.loads(_received(substitute, b"", length)), descriptors


def _received(substitute: socket.socket, data: bytes, length: int) -> bytes:
    while len(data) < length:
        piece = substitute.recv(length - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _read_at_the_start(environment: dict[bytes, bytes]) -> dict[bytes, bytes]:
    beginnings = tuple(map(str.encode, _READ_AT_THE_START))
    seed = {name.encode(): value.encode() for name, value in _SEED.items()}
    return {
        name: value
        for name, value in {**seed, **environment}.items()
        if name.startswith(beginnings) and name.decode() not in {"PYTHONUNBUFFERED", *_READ_LATE, *_SETTINGS}
    }


def _buffered(stream: TextIO, descriptor: int, *, is_lines: bool) -> io.TextIOWrapper[Any]:
    """Make a standard stream as Python does without -u; the zygote runs with -u."""
    buffer: Any = open(descriptor, "wb", closefd=False)  # noqa: SIM115  (a descriptor, and kept)
    buffer.raw.name = stream.name
    made: Any = io.TextIOWrapper(buffer, stream.encoding, stream.errors, line_buffering=is_lines)
    made.mode = "w"
    return made


def _change_settings() -> None:
    """Change the settings that torch's import would have set from variables."""
    for variable, (package, name, attribute, value_of) in _SETTINGS.items():
        if variable in os.environ:
            entry = vars(sys.modules[f"torch.{package}.config"])["_config"][name]
            setattr(entry, attribute, value_of(os.environ[variable]))
    if "TORCH_TRACE" in os.environ:
        logging: Any = sys.modules["torch._logging._internal"]
        logging.LOG_TRACE_HANDLER = None  # no variable names a folder
        logging._init_logs()
    if not os.environ.keys().isdisjoint(_BISECTION):
        bisector: Any = sys.modules["torch._inductor.compiler_bisector"]
        bisector.get_env_val.cache_clear()
        bisector.CompilerBisector.bisection_enabled = bisector.get_is_bisection_enabled()


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Split into the interpreter's options and the program with its arguments; no program for ``-c`` and ``-m``."""
    options: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        options.append(rest.pop(0))
        if options[-1] == "-X" and rest:
            options[-1] += rest.pop(0)
    return options, rest


def _address_of_mark() -> int | None:
    """Return the address of the mark in the environment that the kernel shows of this process; None if unreadable."""
    try:
        start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[47])
        environment = Path("/proc/self/environ").read_bytes()
    except (OSError, ValueError, IndexError):
        return None
    return start + environment.index(MARK.encode() + b"=") + len(MARK) + 1


def _write_mark(address: int | None, mark: bytes) -> None:
    """Write the mark where the kernel shows it: in the memory of the environment at the process's start."""
    if address is None or len(mark) != _MARK_LENGTH:
        return
    with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(mark)


class _Debugger:
    """The modules of the agent and of debugpy, only for programs that a server starts."""

    def __init__(self) -> None:
        """Import the modules and hide them."""
        before = set(sys.modules)
        for name in _AGENT:
            importlib.import_module(name)
        self._agent = _new_modules(before)
        before = set(sys.modules)
        if sys.version_info < (3, 12):
            # On newer ones, debugpy's C module of ``sys.monitoring`` would keep the hidden debugger when a program
            # imports debugpy again: a C module is only imported once in a process.
            sys.modules["dynamo_dap.debuggee.eager.pydevd_internals"].load()
        self._debugpy = _new_modules(before)
        for name in (*self._agent, *self._debugpy):
            del sys.modules[name]
        self._bootstrap = Path(str(self._agent[_AGENT[0]].__file__)).with_name("entry.py").resolve()

    def give_to(self, program: str, environment: dict[bytes, bytes]) -> None:
        """Restore the modules if ``program`` is the bootstrap that a server starts."""
        launch = environment.get(b"DYNAMO_DAP_LAUNCH")
        if launch is None or Path(program).resolve() != self._bootstrap:
            return
        sys.modules.update(self._agent)
        if "debugpyAddress" in json.loads(launch):
            sys.modules.update(self._debugpy)


def _new_modules(before: set[str]) -> dict[str, types.ModuleType]:
    return {
        name: module
        for name, module in sys.modules.items()
        if name not in before and name.partition(".")[0] not in sys.stdlib_module_names
    }


def _import_all() -> None:
    # Numpy's OpenBLAS starts threads at its import; a process that forks must have one thread.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    path = list(sys.path)
    for name in _IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    del os.environ["OPENBLAS_NUM_THREADS"]
    _ask_once()
    sys.path[:] = path  # torch uses setuptools to find compilers, which adds its own packages to the path


def _ask_once() -> None:
    """Compute facts in advance that the first compile of each process takes long to compute, outside its measured time.

    These are the hash of torch's source files, and the processor's vectors, which a started process tries.
    """
    from torch._dynamo.utils import compilation_time_metrics
    from torch._inductor.codecache import torch_key
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    counted = set(compilation_time_metrics)
    torch_key()
    with contextlib.suppress(OSError, RuntimeError):  # without a compiler, each test fails by itself
        pick_vec_isa()
    for name in set(compilation_time_metrics) - counted:
        del compilation_time_metrics[name]


def _serve() -> Request:
    """Serve; return the request in each forked process."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    zygote = _Zygote(listener)  # created before the imports, which change the environment
    sys._dynamo_dap_checks_locks = True  # type: ignore[attr-defined]  # read by debuggee.wrapping.locks
    if sys.argv[2] == "server":
        for name in _SERVER:
            importlib.import_module(name)
    else:
        _import_all()
        zygote.debugger = _Debugger()
    gc.collect()
    gc.freeze()
    try:
        zygote.serve()
    except _Forked as forked:
        return forked.request
    # The process that made the folder may have been killed.
    shutil.rmtree(Path(sys.argv[0]).parent, ignore_errors=True)
    sys.exit()


def _run_program() -> None:
    """Run the substitute's program as ``__main__``, and end as Python does."""
    try:
        _run_as_main(Path(sys.argv[0]))
    except SystemExit as ending:
        status = _status_of(ending.code)
    except Exception as error:  # noqa: BLE001  (as the interpreter does, without the frames of this file)
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_frame.f_code.co_filename == _run_program.__code__.co_filename:
            traceback = traceback.tb_next
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
        status = 1
    else:
        status = 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)


def _run_as_main(path: Path) -> None:
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=sys.argv[0], __builtins__=__builtins__)
    if sys.version_info < (3, 14):
        main.__dict__.update(__annotations__={})
    if sys.version_info < (3, 15):
        main.__dict__["__cached__"] = None
    sys.modules["__main__"] = main
    exec(compile(path.read_bytes(), sys.argv[0], "exec", dont_inherit=True), main.__dict__)


def _status_of(code: object) -> int:
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    print(code, file=sys.stderr)  # noqa: T201  (as the interpreter does)
    return 1


if __name__ == "__main__":
    _serve()
    _run_program()
