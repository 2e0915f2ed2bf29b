"""Checks or reports in pytest what each test compiles.

``@pytest.mark.compiles(graphs=1, breaks=0)`` fails a test with other counts, the fixture ``compiles`` gives a test its
compiles, and ``--torch-compile-report`` lists the compiles of every test. Without these, the plugin imports nothing.
Runs on the main thread of the test process. With pytest-xdist it runs in each worker, and the printing process merges
the lists.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import logging
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dynamo_dap.checking.compiles import Recording

_OPTION = "--torch-compile-report"
_MARKER = (
    "compiles(graphs=None, breaks=None, recompiles=None): the exact counts of what torch.compile makes in the test"
)
_COUNTS = ("graphs", "breaks", "recompiles")
_MADE = pytest.StashKey[dict[str, object]]()
_ATTRIBUTE = "torch_compile"
"""The attribute of a test's report that travels from a worker to the printing process."""
_WIDTH = 8


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("torch.compile").addoption(
        _OPTION,
        nargs="?",
        const="",
        default=None,
        metavar="FILE",
        help="list what torch.compile made in each test, and write it as JSON with =FILE",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """Accept a report's file only after ``=``: argparse would take the next argument, usually a test file."""
    end = args.index("--") if "--" in args else len(args)
    if _OPTION in args[:end]:
        args[:end] = [f"{_OPTION}=" if argument == _OPTION else argument for argument in args[:end]]
        early_config.known_args_namespace = parser.parse_known_args(args, namespace=copy.copy(early_config.option))


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker; record this process if ``dynamo-dap check`` runs it."""
    config.addinivalue_line("markers", _MARKER)
    file = config.getoption(_OPTION)
    if file is not None:
        if file:
            _refuse_others(Path(file))
        config.pluginmanager.register(_Report(config), "torch_compile_report")
    if "PYTEST_XDIST_WORKER" in os.environ:
        _record_for_check()


def _refuse_others(file: Path) -> None:
    """Refuse to overwrite the user's own file, before the tests run."""
    from dynamo_dap.protocol.output_files import check_output

    try:
        check_output(file)
    except OSError as problem:
        raise pytest.UsageError(f"{_OPTION}: {problem}") from None


def _record_for_check() -> None:
    from dynamo_dap.protocol.requests.contract import CHECK_VARIABLE

    if CHECK_VARIABLE in os.environ:
        from dynamo_dap.debuggee.launch.children.recorded_run import begin_run
        from dynamo_dap.debuggee.torch_api.import_hooks import when_dynamo_is_imported

        begin_run()
        when_dynamo_is_imported(_record_worker)


def _record_worker() -> None:
    from dynamo_dap.debuggee.launch.runs.recording import record_process

    record_process(lambda text: print(text, end="", file=sys.stderr))  # noqa: T201 - a problem with the record


def pytest_exception_interact(call: pytest.CallInfo[object]) -> None:
    """Stop a debugged test at the exception that fails it, as if uncaught. Ignore skips and expected failures."""
    launched = sys.modules.get("dynamo_dap.debuggee.launch.starting.process_agent")
    if launched is not None and call.excinfo is not None:
        launched.report_failed_test(call.excinfo.value)


@pytest.fixture
def compiles() -> Iterator[Recording]:
    """Record what torch.compile makes while the test runs, as ``dynamo_dap.record()`` does."""
    from dynamo_dap.checking.compiles import record

    _forget_compiled()
    with record() as made:
        yield made


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Record a marked test, and fail it if its counts differ from the marker's."""
    marker = item.get_closest_marker("compiles")
    is_reported = item.config.getoption(_OPTION) is not None
    if marker is None and not is_reported:
        return (yield)
    from dynamo_dap.checking.compiles import as_properties, difference_from, record

    wanted = {} if marker is None else _wanted(item, marker)
    if marker is not None:
        _forget_compiled()
    with record() as made, _without_traces_in_logs():
        try:
            result = yield
        finally:
            if is_reported:
                item.stash[_MADE] = as_properties(made)
    problem = difference_from(made, wanted)
    if problem is not None:
        pytest.fail(problem, pytrace=False)
    return result


def _wanted(item: pytest.Item, marker: pytest.Mark) -> dict[str, int]:
    unknown = sorted(set(marker.kwargs) - set(_COUNTS))
    if marker.args or unknown or not all(type(count) is int for count in marker.kwargs.values()):
        given = ", ".join([*map(repr, marker.args), *(f"{name}={value!r}" for name, value in marker.kwargs.items())])
        near = difflib.get_close_matches(unknown[0], _COUNTS, 1) if unknown else []
        meant = f" Did you mean {near[0]}?" if near else ""
        known = f"{_MARKER.partition(':')[0]}, with numbers"
        pytest.fail(f"wrong marker of {item.nodeid}: compiles({given}). Write {known}.{meant}", pytrace=False)
    return dict(marker.kwargs)


@contextlib.contextmanager
def _without_traces_in_logs() -> Iterator[None]:
    """Keep torch's trace, hundreds of empty log messages, out of the logs that pytest captures."""
    trace = logging.getLogger("torch.__trace")
    captures = [handler for handler in trace.handlers if type(handler).__module__.startswith("_pytest.")]
    for handler in captures:
        trace.removeHandler(handler)
    try:
        yield
    finally:
        for handler in captures:
            trace.addHandler(handler)


def _forget_compiled() -> None:
    """Drop other tests' compiled code: torch would not compile it again, and this test's count would be too low."""
    compiler = sys.modules.get("torch.compiler")
    if compiler is not None:
        compiler.reset()


class _Report:
    """Collects the compiles of each test, and prints them at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._file = config.getoption(_OPTION)
        self._is_worker = hasattr(config, "workerinput")
        self._tests: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Read the compiles from a test's report, which may come from another process."""
        made = getattr(report, _ATTRIBUTE, None)
        if made is not None:
            self._tests[report.nodeid] = made

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach a test's compiles to its report."""
        report = yield
        if report.when == "call":
            setattr(report, _ATTRIBUTE, item.stash.get(_MADE, None))
        return report

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the tests that compiled something, and write the file."""
        if self._is_worker:
            return
        terminalreporter.section("torch.compile")
        terminalreporter.write_line("".join(f"{name:>{_WIDTH + 4}}" for name in (*_COUNTS, "seconds")) + "  test")
        for name, made in self._tests.items():
            if made["graphs"] or made["findings"]:
                counts = "".join(f"{made[count]:>{_WIDTH + 4}}" for count in _COUNTS)
                terminalreporter.write_line(f"{counts}{made['seconds']:>{_WIDTH + 4}.1f}  {name}")
                for finding in made["findings"]:
                    terminalreporter.write_line(f"{'':>{_WIDTH + 6}}{finding['where']}  {finding['title']}")
        if self._file:
            with _problems_reported(terminalreporter, self._file):
                import msgspec

                from dynamo_dap.protocol.output_files import GENERATOR, write_output

                text = msgspec.json.format(
                    msgspec.json.encode({"generator": GENERATOR, "tests": self._tests}), indent=2
                )
                write_output(Path(self._file), text + b"\n")


@contextlib.contextmanager
def _problems_reported(terminalreporter: Any, file: str) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        terminalreporter.write_line(f"dynamo-dap: cannot write {file}: {problem.strerror or problem}", red=True)
