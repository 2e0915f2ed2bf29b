"""Unusual programs end, print and fail as under the plain interpreter.

Each runs twice: in the plain interpreter, and in a session with the default options. There a breakpoint that the
program never reaches makes debugpy trace it. No program imports torch.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client import Session
from tests.client.timeline import DEADLINE

PROGRAMS = {
    "threads": """
        import threading
        found = []
        threads = [threading.Thread(target=found.append, args=(number,)) for number in range(20)]
        [each.start() for each in threads]; [each.join() for each in threads]
        print(sorted(found), threading.main_thread().name)
    """,
    "a daemon thread that never ends": """
        import threading
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        print("over")
    """,
    "a thread that outlives the main thread": """
        import threading, time
        def work():
            threading.main_thread().join()
            print("later")
        threading.Thread(target=work).start()
        print("first")
    """,
    "a thread that raises": """
        import threading
        threading.excepthook = lambda told: print("told", told.exc_type.__name__, told.thread.name)
        thread = threading.Thread(target=lambda: 1 / 0, name="divides")
        thread.start(); thread.join()
    """,
    "a thread of _thread": """
        import _thread
        lock = _thread.allocate_lock(); lock.acquire()
        _thread.start_new_thread(lambda: (print("in it"), lock.release()), ())
        lock.acquire()
    """,
    "threading.settrace": """
        import threading
        seen = []
        threading.settrace(lambda frame, event, argument: seen.append(frame.f_code.co_name))
        thread = threading.Thread(target=len, args=("",)); thread.start(); thread.join()
        threading.settrace(None)
        print("run" in seen)
    """,
    "sys.setprofile": """
        import sys
        calls = []
        def function(): pass
        sys.setprofile(lambda frame, event, argument: calls.append((event, frame.f_code.co_name)))
        function()
        sys.setprofile(None)
        print(calls)
    """,
    "cProfile": """
        import cProfile, pstats, io
        def function(): return sum(range(10))
        profile = cProfile.Profile(); profile.runcall(function)
        print([name for _, _, name in pstats.Stats(profile, stream=io.StringIO()).stats if name == "function"])
    """,
    "sys.settrace": """
        import sys
        lines = []
        def trace(frame, event, argument):
            if frame.f_code.co_filename == __file__:
                lines.append((event, frame.f_lineno))
            return trace
        def function():
            one = 1
            return one
        sys.settrace(trace); function(); sys.settrace(None)
        print(lines)
    """,
    "frame.f_trace": """
        import sys
        def function():
            frame = sys._getframe()
            frame.f_trace_opcodes = False
            return frame.f_lineno
        print(function())
    """,
    "os.fork": """
        import os, sys
        child = os.fork()
        if child == 0:
            print("child", flush=True)
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """,
    "os.fork and sys.exit": """
        import os, sys, atexit
        atexit.register(lambda: print("at exit", flush=True))
        child = os.fork()
        if child == 0:
            sys.exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    """,
    "a double fork": """
        import os
        read, write = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.write(write, b"grandchild")
            os._exit(0)
        print(os.read(read, 20)); os.wait()
    """,
    "os.register_at_fork": """
        import os
        def told(text): return lambda: print(text, flush=True)
        os.register_at_fork(before=told("before"), after_in_parent=told("after"))
        child = os.fork()
        if child == 0: os._exit(0)
        os.waitpid(child, 0)
    """,
    "os.execv": """
        import os, sys
        if len(sys.argv) < 2:
            os.execv(sys.executable, [sys.executable, "-u", __file__, "again"])
        print("again", sys.argv[1:])
    """,
    "sys.orig_argv": """
        import os, sys
        if "AGAIN" not in os.environ:
            os.environ["AGAIN"] = "1"
            os.execv(sys.executable, sys.orig_argv)
        print("again", os.path.basename(sys.argv[0]))
    """,
    "os.posix_spawn": """
        import os, sys
        child = os.posix_spawn(sys.executable, [sys.executable, "-c", "print('spawned')"], os.environ)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """,
    "subprocess": """
        import subprocess, sys
        print(subprocess.run([sys.executable, "-c", "import sys; print(sys.argv); sys.exit(4)", "a"],
                             capture_output=True, text=True))
    """,
    "multiprocessing by fork": """
        import multiprocessing
        if __name__ == "__main__":
            with multiprocessing.get_context("fork").Pool(2) as pool:
                print(pool.map(abs, [-1, -2]))
    """,
    "multiprocessing by spawn": """
        import multiprocessing
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(abs, [-1, -2]))
    """,
    "multiprocessing by forkserver": """
        import multiprocessing
        if __name__ == "__main__":
            with multiprocessing.get_context("forkserver").Pool(1) as pool:
                print(pool.map(abs, [-1, -2]))
    """,
    "a pool of threads": """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(3) as pool:
            print(list(pool.map(str, range(5))))
    """,
    "atexit": """
        import atexit
        atexit.register(print, "first"); atexit.register(print, "second")
        atexit.register(lambda: atexit.register(print, "from one"))
    """,
    "atexit that raises": """
        import atexit
        atexit.register(print, "still")
        atexit.register(lambda: 1 / 0)
    """,
    "atexit that exits": """
        import atexit, os
        atexit.register(lambda: os._exit(9))
    """,
    "__del__ at the end": """
        class Thing:
            def __del__(self): print("deleted")
        thing = Thing()
    """,
    "a signal handler": """
        import os, signal
        signal.signal(signal.SIGUSR1, lambda number, frame: print("got", number, frame.f_code.co_name))
        os.kill(os.getpid(), signal.SIGUSR1)
        print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(signal.SIGTERM))
    """,
    "signal.alarm": """
        import signal, time
        def ring(number, frame): raise TimeoutError("rang")
        signal.signal(signal.SIGALRM, ring); signal.setitimer(signal.ITIMER_REAL, 0.05)
        try: time.sleep(100)
        except TimeoutError as error: print(error)
    """,
    "death by a signal": "import os, signal; print('dies', flush=True); os.kill(os.getpid(), signal.SIGTERM)",
    "os.abort": "import os; print('aborts', flush=True); os.abort()",
    "os._exit": "import os; print('leaves', flush=True); os._exit(5)",
    "sys.exit of nothing": "import sys; sys.exit()",
    "sys.exit of a text": "import sys; sys.exit('a text')",
    "sys.exit of a large number": "import sys; sys.exit(300)",
    "sys.exit of a negative number": "import sys; sys.exit(-1)",
    "sys.exit of an object": "import sys; sys.exit([1, 2])",
    "SystemExit of its own": "class Own(SystemExit): pass\nraise Own(6)",
    "sys.exit in a thread": """
        import sys, threading
        thread = threading.Thread(target=sys.exit, args=(3,)); thread.start(); thread.join()
        print("continues")
    """,
    "an exception": "def function(): raise ValueError('of it')\nfunction()",
    "an exception with a cause": """
        try: 1 / 0
        except ZeroDivisionError as error: raise KeyError("of it") from error
    """,
    "an exception with notes": """
        error = ValueError("of it")
        if hasattr(error, "add_note"): error.add_note("a note")
        raise error
    """,
    "an exception group": """
        import builtins
        if hasattr(builtins, "ExceptionGroup"): raise ExceptionGroup("group", [ValueError(1), KeyError(2)])
        raise ValueError("group")
    """,
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "sys.excepthook": """
        import sys
        sys.excepthook = lambda kind, error, traceback: print("hook", kind.__name__, traceback.tb_lineno)
        raise ValueError
    """,
    "sys.excepthook that raises": """
        import sys
        def hook(*told): raise KeyError("hook")
        sys.excepthook = hook
        raise ValueError("of it")
    """,
    "sys.unraisablehook": """
        import sys
        sys.unraisablehook = lambda told: print("unraisable", told.exc_type.__name__)
        class Thing:
            def __del__(self): 1 / 0
        Thing()
    """,
    "a deep recursion": """
        import sys
        def down(number): return number and down(number - 1)
        sys.setrecursionlimit(20000)
        print(down(5000))
        def endless(): return endless()
        sys.setrecursionlimit(500)
        try: endless()
        except RecursionError as error: print(type(error).__name__)
    """,
    "warnings": """
        import warnings
        warnings.warn("once"); warnings.warn("old", DeprecationWarning)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always"); warnings.warn("caught")
        print(len(caught), [each[0] for each in warnings.filters])
    """,
    "a closed stdout": "import sys; sys.stdout.close()",
    "a closed stderr": "import sys; sys.stderr.close(); raise ValueError",
    "closed descriptors": "import os; print('before', flush=True); os.close(0); os.close(2)",
    "a stdout of its own": """
        import io, sys
        kept, sys.stdout = sys.stdout, io.StringIO()
        print("away"); text = sys.stdout.getvalue(); sys.stdout = kept
        print(repr(text))
    """,
    "a redirected descriptor": """
        import os, sys
        kept = os.dup(1); os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.write(1, b"away"); os.dup2(kept, 1); os.write(1, b"back")
    """,
    "bytes that are not text": "import sys; sys.stdout.buffer.write(b'one\\n'); print(ascii('\\udcff'))",
    "stdin at its end": """
        import sys
        print(repr(sys.stdin.read()))
        try: input()
        except EOFError: print("the end")
    """,
    "another folder": """
        import os, sys
        os.chdir("/"); print(os.getcwd(), os.path.isabs(__file__))
        import __main__; print(__main__.__file__ == __file__)
    """,
    "a folder that is gone": """
        import os, tempfile
        folder = tempfile.mkdtemp(); os.chdir(folder); os.rmdir(folder)
        try: os.getcwd()
        except FileNotFoundError: print("gone")
    """,
    "builtins of its own": """
        import builtins
        kept = builtins.open, builtins.len, builtins.isinstance, builtins.__import__
        builtins.open = builtins.len = lambda *arguments, **named: 1 / 0
        imports = []
        builtins.__import__ = lambda name, *rest: (imports.append(name), kept[3](name, *rest))[1]
        import colorsys
        builtins.open, builtins.len, _, builtins.__import__ = kept
        print(imports)
    """,
    "print of its own": """
        import builtins
        own = builtins.print
        builtins.print = lambda *arguments, **named: own("own", *arguments, **named)
        print("text")
    """,
    "time of its own": """
        import time
        kept = time.time, time.monotonic, time.sleep
        time.time = time.monotonic = lambda: 0.0
        def never(seconds): raise AssertionError
        time.sleep = never
        print(time.time())
        time.time, time.monotonic, time.sleep = kept
    """,
    "os of its own": """
        import os, socket, threading
        os.environ.clear(); os.getpid = lambda: 1
        socket.socket = threading.Lock = None
        print(os.getpid(), dict(os.environ))
    """,
    "an import hook": """
        import importlib.abc, importlib.machinery, sys
        class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
            def find_spec(self, name, path, target=None):
                return importlib.machinery.ModuleSpec(name, self) if name == "made" else None
            def exec_module(self, module): module.value = 5
        sys.meta_path.insert(0, Finder())
        import made; print(made.value)
    """,
    "an empty sys.modules": """
        import sys
        kept = dict(sys.modules); sys.modules.pop("json", None); import json
        print(json.dumps([1]), "__main__" in sys.modules)
    """,
    "a module called like one of the debugger's": """
        import pathlib, sys
        for name in ("msgspec", "bytecode", "debugpy", "dap", "queue"):
            pathlib.Path(f"{name}.py").write_text("value = 'own'")
        sys.path.insert(0, ".")
        import dap; print(dap.value)
    """,
    "asyncio": """
        import asyncio
        async def one(number):
            await asyncio.sleep(0); return number
        async def main(): print(await asyncio.gather(*map(one, range(5))))
        asyncio.run(main())
    """,
    "asyncio that is cancelled": """
        import asyncio
        async def main():
            task = asyncio.ensure_future(asyncio.sleep(100)); await asyncio.sleep(0); task.cancel()
            try: await task
            except asyncio.CancelledError: print("cancelled")
        asyncio.run(main(), debug=True)
    """,
    "generators that are left": """
        def numbers():
            try: yield 1
            finally: print("closed")
        for number in numbers(): break
        kept = numbers(); next(kept)
    """,
    "weak references and the collector": """
        import gc, weakref
        class Node: pass
        node = Node(); node.own = node
        seen = weakref.ref(node, lambda _: print("collected")); del node
        gc.collect(); print(seen(), gc.isenabled(), gc.get_threshold())
    """,
    "contextvars and locals": """
        import contextvars
        var = contextvars.ContextVar("var", default=1)
        contextvars.copy_context().run(lambda: (var.set(2), print(var.get())))
        print(var.get(), sorted(name for name in globals() if not name.startswith("__")))
    """,
    "exec and eval": """
        space = {}
        exec(compile("def made(): return [each for each in range(3)]", "<made>", "exec"), space)
        print(space["made"](), eval("1 + 1"), __name__)
    """,
    "runpy": """
        import pathlib, runpy
        pathlib.Path("other.py").write_text("print(__name__)")
        runpy.run_path("other.py", run_name="__main__")
    """,
    "pickle of __main__": """
        import pickle
        class Thing: pass
        print(type(pickle.loads(pickle.dumps(Thing()))) is Thing, Thing.__module__)
    """,
    "inspect of itself": """
        import inspect
        def function(): return 1
        print(inspect.getsource(function), inspect.getfile(function) == __file__, len(inspect.getsourcelines(function)))
    """,
    "doctest": '''
        def function():
            """
            >>> 1 + 1
            2
            """
        import doctest
        print(doctest.testmod())
    ''',
    "unittest": """
        import unittest
        class Test(unittest.TestCase):
            def test(self): self.assertEqual(1, 1)
        unittest.main(argv=["program"], verbosity=0)
    """,
    "faulthandler": """
        import faulthandler
        print(faulthandler.is_enabled()); faulthandler.enable(); print(faulthandler.is_enabled())
    """,
    "resource limits": """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); print(resource.getrlimit(resource.RLIMIT_NOFILE))
    """,
    "tracemalloc": "import tracemalloc; tracemalloc.start(); print(tracemalloc.is_tracing())",
    "gevent": """
        from gevent import monkey; monkey.patch_all()
        import gevent, threading
        thread = threading.Thread(target=print, args=("thread",)); thread.start(); thread.join()
        print([each.value for each in gevent.joinall([gevent.spawn(abs, -number) for number in range(3)])])
    """,
    "gevent without patches": """
        import gevent
        print([each.value for each in gevent.joinall([gevent.spawn(abs, -number) for number in range(3)])])
    """,
    "eventlet": """
        import eventlet; eventlet.monkey_patch()
        import threading
        thread = threading.Thread(target=print, args=("thread",)); thread.start(); thread.join()
        print(list(eventlet.GreenPool().imap(abs, [-1, -2])))
    """,
}
NEEDS = {"gevent": "gevent", "gevent without patches": "gevent", "eventlet": "eventlet"}
_VARIES = re.compile(r"0x[0-9a-f]+|[0-9.]+s$|(?<=refcount : )[0-9]+")


def _dedented(text: str) -> str:
    lines = text.strip("\n").splitlines()
    margin = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[margin:] if not line[:margin].strip() else line for line in lines) + "\n"


def _seen(text: str) -> list[str]:
    """Return the lines without addresses and times, which differ between any two runs."""
    # eventlet prints the number of locks that it cannot replace; the debugger adds some.
    lines = [line for line in text.splitlines() if "were not greened" not in line]
    return [_VARIES.sub("", line).rstrip() for line in lines]


QUICK = ("sys.excepthook that raises", "os of its own", "gevent")


@pytest.mark.parametrize("name", QUICK)
def test_a_few_end_as_under_plain_python(session: Session, tmp_path: Path, name: str) -> None:
    _compare(session, tmp_path, name)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in QUICK])
def test_it_ends_as_under_plain_python(session: Session, tmp_path: Path, name: str) -> None:
    _compare(session, tmp_path, name)


def _compare(session: Session, tmp_path: Path, name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    (tmp_path / "run").mkdir()
    program = tmp_path / "run" / "program.py"
    never = "if __name__ == 'never':\n    print('never')  #@never\n"
    program.write_text(never + _dedented(PROGRAMS[name]), encoding="utf-8")
    plain = subprocess.run(
        [sys.executable, "-u", str(program)],
        cwd=program.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )
    session.expects_program_traceback = True
    session.launch(program, "never", cwd=str(program.parent))
    assert session.wait_for_exit() == plain.returncode
    assert _seen(session.output("stdout")) == _seen(plain.stdout.decode())
    assert _seen(session.output("stderr")) == _seen(plain.stderr.decode())
    leaves = name in ("gevent", "eventlet")
    assert ("replaces Python's threads" in session.output("important")) == leaves
