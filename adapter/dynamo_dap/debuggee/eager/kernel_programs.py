"""Stops in kernels that Triton's interpreter runs: in one program of a launch, at wrong accesses, at races.

One program of each launch is debugged as ordinary Python: the one that the option ``tritonProgram`` selects, else the
first. In the other programs, debugpy stops only at breakpoints with conditions, which may choose a program, and by
exception filters. There is one ``KernelPrograms`` per process that interprets kernels. Runs on the threads that launch
them.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager

from dynamo_dap.debuggee.agent.eager_expressions import is_true_python
from dynamo_dap.debuggee.agent.engine import Host
from dynamo_dap.debuggee.agent.frames import Frame, walk
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.stepping import RaisedException, StepKind, Stop
from dynamo_dap.debuggee.agent.user_code import is_debugger_file, is_user_file
from dynamo_dap.debuggee.eager import pydevd_internals, pydevd_passing
from dynamo_dap.debuggee.kernel_races.launches import KernelRaces
from dynamo_dap.debuggee.triton.accesses import Access
from dynamo_dap.debuggee.triton.interpreter import Observer
from dynamo_dap.debuggee.triton.launches import Launch, text_of_index
from dynamo_dap.debuggee.triton.pointers import Outside
from dynamo_dap.debuggee.values.model import text_of_raised
from dynamo_dap.protocol.requests.contract import EAGER, OUT_OF_BOUNDS, RACE

_INTERPRETERS_FILES = ("runtime/*.py", "language/core.py", "language/semantic.py", "language/math.py", "*.py")
"""Patterns of Triton's own files, in which no step ends."""


class KernelPrograms(Observer):
    """Decides in which programs debugpy stops, and stops at wrong accesses and races."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._local = _OfThread()
        self._reported: set[str] = set()
        self.is_following = False
        """Whether ``_follow_debugpy`` has changed debugpy's stops."""
        self._races = KernelRaces(lambda text: host.print(text, "important"))

    def begin(self) -> None:
        """Install the hooks; Triton's interpreter has been imported."""
        self._follow_debugpy()

    def unobserved(self) -> AbstractContextManager[None]:
        """Return a context in which debugpy ignores the calling thread."""
        return self._host.eager_debugger.disabled_on_this_thread()

    def is_programs_launch(self) -> bool:
        """Return whether the program makes this thread's launch, rather than an expression that the user evaluates."""
        return not self._host.is_holding

    # -- programs --------------------------------------------------------------------------------------------------

    def program_begins(self, launch: Launch) -> None:
        """Disable debugpy, unless the program is the debugged one or breakpoints have conditions that may choose it."""
        with _exceptions_logged():
            self._races.program_begins(launch, self.follows_accesses())
            self._begin_program(launch)

    def _begin_program(self, launch: Launch) -> None:
        if not self.is_following:
            self._follow_debugpy()
        self._leave_program()
        if launch.program == self.chosen_program(launch) or not self._host.eager_debugger.is_active:
            return
        local = self._local
        if pydevd_passing.has_conditions():
            local.begin_step_again = pydevd_internals.suspend_step()
            local.is_other = True
            return
        disabled = contextlib.ExitStack()
        disabled.enter_context(self._host.eager_debugger.disabled_on_this_thread())
        local.let_in = disabled.close

    def launch_ended(self, launch: Launch) -> None:
        """Restore debugpy's state before the launch."""
        with _exceptions_logged():
            self._races.launch_ended(launch)
            self._leave_program()
            if self._local.has_passed and self._host.eager_debugger.is_active:
                self._local.has_passed = False
                pydevd_passing.forget_filtered()

    def is_in_other_program(self) -> bool:
        """Return whether the calling thread runs a program in which breakpoints without conditions are skipped."""
        return self._local.is_other

    def _follow_debugpy(self) -> None:
        """Let debugpy skip breakpoints without conditions in other programs, and steps into Triton's own files.

        Called after Triton's import.
        """
        if not self._host.eager_debugger.is_active:
            return
        self.is_following = True
        pydevd_passing.pass_unconditional(self.is_in_other_program)
        paths = [os.path.join(_folder(), name) for name in _INTERPRETERS_FILES]
        pydevd_passing.never_step_into(paths, self._is_passed)

    def _is_passed(self, frame: types.FrameType) -> bool:
        """Return whether ``frame`` runs for the interpreter: NumPy's code, or code that starts a launch."""
        for one in walk(frame):
            path = one.f_code.co_filename
            if is_user_file(path) and not _is_generated_method(one.f_code):
                return False
            if is_debugger_file(path) or not _is_kernels(path):
                self._local.has_passed = True
                return True
        return False

    def _leave_program(self) -> None:
        local = self._local
        let_in, local.let_in = local.let_in, None
        begin_step_again, local.begin_step_again = local.begin_step_again, None
        local.is_other = False
        if let_in is not None:
            let_in()
        if begin_step_again is not None:
            begin_step_again()

    def chosen_program(self, launch: Launch) -> tuple[int, ...]:
        """Return the index of the program to debug; tell the user if the grid has no such program."""
        asked = tuple(self._host.options.triton_program or ())
        chosen = (*asked, *(0,) * (3 - len(asked)))
        if any(index >= size for index, size in zip(chosen, launch.grid, strict=True)):
            text = (
                f'dynamo-dap: the kernel {launch.name} has no program {text_of_index(chosen)}, which "tritonProgram" '
                f"asks for: its grid is {text_of_index(launch.grid)}\n"
            )
            if text not in self._reported:
                self._reported.add(text)
                self._host.print(text, "important")
        return chosen

    # -- accesses --------------------------------------------------------------------------------------------------

    def checks_accesses(self) -> bool:
        """Return whether to check accesses for being out of bounds."""
        return self.is_on(OUT_OF_BOUNDS)

    def is_outside(self, launch: Launch, access: Outside) -> None:
        """Stop at the line of an access that is out of bounds, in any program."""
        top = line_outside_of_triton()
        names: dict[str, object] = {"__tensor__": access.argument.name, "__elements__": access.elements}
        if top is not None and self.holds(OUT_OF_BOUNDS, top, names):
            self.stop(top, f"Out of bounds: {access.headline}", f"{access.text}\n{_where(launch)}")

    def follows_accesses(self) -> bool:
        """Return whether to check accesses for races."""
        return self.is_on(RACE)

    def accesses(self, launch: Launch, access: Access) -> None:
        """Stop at the line of an access that races with an access of another program."""
        top = found = None
        with _exceptions_logged():
            top = line_outside_of_triton()
            found = None if top is None else self._races.find(launch, access, top)
        if top is not None and found is not None and self.holds(RACE, top, found.names):
            found.report_once()
            self.stop(top, f"Race: {found.headline}", f"{found.text}\n{_where(launch)}")

    def is_on(self, name: str) -> bool:
        """Return whether an exception filter is on; False while an expression of the user is evaluated."""
        return name in self._host.breakpoints.exception_filters and not self._host.is_holding

    def stop(self, top: types.FrameType, exception_id: str, description: str) -> None:
        """Hold this thread in ``top``, as for an exception."""
        raised = RaisedException(exception_id, description)

        # Debug this program from here on.
        self._leave_program()

        def frames() -> list[Frame]:
            return self._host.python_stack(top)

        self._host.hold(
            Stop(
                engine=EAGER,
                reason="exception",
                frames=frames,
                description=raised.headline,
                text=raised.text,
                exception=raised,
            )
        )
        self._continue_step(top)

    def _continue_step(self, frame: types.FrameType) -> None:
        """Let debugpy continue the agent's step from this line of ordinary Python, and not stop on the line again."""
        step = self._host.steps.current()
        if step is None or not self._host.eager_debugger.is_active:
            return
        if step.kind is StepKind.OVER:
            pydevd_internals.step_over(frame)
        elif step.kind is StepKind.OUT:
            pydevd_internals.step_back_into_caller(frame)

    def holds(self, name: str, frame: types.FrameType, names: Mapping[str, object]) -> bool:
        """Return whether the condition of the filter ``name`` holds in ``frame``; it may use ``names``, too."""
        condition = self._host.breakpoints.exception_filters.get(name)
        if not condition:
            return True
        try:
            with self._host.holding():
                return is_true_python(condition, frame.f_globals, {**frame.f_locals, **names})
        except BaseException as error:  # noqa: BLE001  (the user's expression may raise anything)
            text = f"The condition {condition!r} of '{name}' failed: {text_of_raised(error)}\n"
            self._host.print(text, "important")
            return True


@contextlib.contextmanager
def _exceptions_logged() -> Iterator[None]:
    """Log exceptions inside this context, and keep them from the program, whose own call is on the stack."""
    try:
        yield
    except Exception:  # noqa: BLE001  (the program must not get our exceptions)
        log_exception("following a kernel")


class _OfThread(threading.local):
    """The state of a thread that interprets a kernel."""

    is_other = False
    """Whether the thread runs a program in which breakpoints without conditions are skipped."""
    has_passed = False
    """Whether debugpy has skipped library code of the interpreter."""
    let_in: Callable[[], None] | None = None
    """Enables debugpy again at the end of the program, if it is disabled there."""
    begin_step_again: Callable[[], None] | None = None
    """Resumes the suspended step at the end of the program, if there is one."""


def _is_generated_method(code: types.CodeType) -> bool:
    """Return whether code belongs to a method that ``dataclasses`` wrote, or to annotations.

    From Python 3.14 on, a kernel's annotations run when the interpreter reads the kernel's signature.
    """
    return code.co_name == "__annotate__" or (code.co_filename == "<string>" and code.co_name.startswith("__"))


def line_outside_of_triton() -> types.FrameType | None:
    """Return the innermost frame outside Triton and the debugger: the kernel's, or that of the code that launches."""
    return next((one for one in walk(sys._getframe(1)) if _is_kernels(one.f_code.co_filename)), None)


@functools.lru_cache(maxsize=1024)
def _is_kernels(path: str) -> bool:
    """Return whether a file is neither Triton's nor the debugger's, so that its code may be a kernel."""
    below = path.removeprefix(_folder() + os.sep)
    return not is_debugger_file(path) and not any(
        fnmatch.fnmatch(below, name) and below.count("/") == name.count("/") for name in _INTERPRETERS_FILES
    )


def _folder() -> str:
    return os.path.dirname(str(sys.modules["triton"].__file__))


def _where(launch: Launch) -> str:
    program = text_of_index(launch.program or (0, 0, 0))
    return f"in program {program} of the grid {text_of_index(launch.grid)} of {launch.name}"
