"""Measures how many small defects the quick tests notice: ``make mutation``.

Each mutant of a module differs from it by one operator, number, condition or decorator. cosmic-ray makes the mutants,
and this module samples and runs them: child processes, forked after pytest has collected the tests, import the mutant
instead of the module and run the tests. No file changes, so that other runs are not disturbed.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import re
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, NoneType

import cosmic_ray.plugins
import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

ADAPTER = Path(__file__).parents[1] / "adapter"
DEBUGGEE = "dynamo_dap/debuggee"
TESTS = {
    f"{DEBUGGEE}/bytecode/data_flow.py": ["tests/code_analysis/test_data_flow.py"],
    f"{DEBUGGEE}/agent/conditions.py": ["tests/code_analysis/test_condition_texts.py"],
    f"{DEBUGGEE}/trace/plain_conditions.py": ["tests/compile_time/test_plain_conditions.py"],
    f"{DEBUGGEE}/numerics/graphs/differences.py": ["tests/compile_time/test_differences.py"],
    f"{DEBUGGEE}/numerics/faults/comparisons.py": [
        "tests/compile_time/test_comparisons.py",
        "tests/compile_time/test_faults_of_calls.py",
    ],
    f"{DEBUGGEE}/replay/breakpoint_prediction.py": ["tests/compile_time/test_breakpoint_prediction.py"],
}
"""The quick tests of each measured module."""
_NOT_USED = re.compile(
    r"NoOp|Variable|_(Is|IsNot)$|_(Is|IsNot)_(?!Is)|Replace(Binary|Unary)Operator_.*(Shift|Pow|UAdd)$"
)
"""Mutants that need arguments, that Python refuses, or that rarely differ from the original."""
_LEAST_SECONDS = 20
_TIMES_AS_LONG = 5
"""The processor time of a mutant's tests, as a multiple of that of the unchanged module's; then an endless loop."""


@dataclass(frozen=True)
class Mutant:
    """A module's source with one change."""

    line: int
    operator: str
    source: str

    def changes(self, original: str) -> str:
        """Return the changed lines, the old and the new."""
        lines = difflib.unified_diff(original.splitlines(), self.source.splitlines(), lineterm="", n=0)
        return "\n".join(line for line in lines if line[:3] not in ("---", "+++") and line[:2] != "@@")


def sample(source: str, count: int, seed: int) -> list[Mutant]:
    """Return ``count`` mutants, each at another place as long as there are places; all of them for 0."""
    places: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for operator in sorted(name for name in cosmic_ray.plugins.operator_names() if not _NOT_USED.search(name)):
        made = cosmic_ray.plugins.get_operator(operator)()
        positions = (start for node in ast_nodes(get_ast(source)) for start, _ in made.mutation_positions(node))
        for number, start in enumerate(positions):
            places.setdefault(start, []).append((operator, number))
    chance = random.Random(seed)
    for choices in places.values():
        chance.shuffle(choices)
    order = sorted(places)
    chance.shuffle(order)
    found: list[Mutant] = []
    original = _meaning(source)
    for depth in range(max(map(len, places.values()), default=0)):
        for place in order:
            if count and len(found) >= count:
                return found
            if depth < len(places[place]):
                operator, number = places[place][depth]
                mutated = mutate_code(source, cosmic_ray.plugins.get_operator(operator)(), number)
                if mutated is not None and _meaning(mutated) not in (None, original):
                    found.append(Mutant(place[0], operator.removeprefix("core/"), mutated))
    return found


def _meaning(source: str) -> str | None:
    """Return what a test can notice of a module: no annotations, sizes of caches, ``frozen``. None for bad syntax."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call):
                    decorator.keywords = []
    return ast.dump(tree)


class Runs:
    """A plugin of pytest that runs the collected tests once for each mutant, in forked processes."""

    def __init__(self, name: str, mutants: Sequence[Mutant]) -> None:
        self._name = ".".join(Path(name).with_suffix("").parts)
        self._mutants = mutants
        self.survivors: list[Mutant] = []
        self.is_right = False
        """Whether the tests pass with the unchanged module."""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests with the unchanged module, then with each mutant."""
        assert self._name in sys.modules
        unchanged = Path(str(sys.modules[self._name].__file__)).read_text("utf-8")
        self.is_right, seconds = self._passes(session, unchanged, 600)
        limit = max(_LEAST_SECONDS, int(seconds * _TIMES_AS_LONG))
        for mutant in self._mutants if self.is_right else ():
            if self._passes(session, mutant.source, limit)[0]:
                self.survivors.append(mutant)
                sys.stderr.write(f"{mutant.line}: {mutant.operator}\n{mutant.changes(unchanged)}\n")
        return True

    def _passes(self, session: pytest.Session, source: str, seconds: int) -> tuple[bool, float]:
        """Return whether the tests pass in a child process, and its processor time."""
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = self._run(session, source, seconds)
            finally:
                os._exit(status)
        _, status, used = os.wait4(child, 0)
        return status == 0, used.ru_utime + used.ru_stime

    def _run(self, session: pytest.Session, source: str, seconds: int) -> int:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nothing, descriptor)
        self._substitute(source)
        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                return 1
        return 0

    def _substitute(self, source: str) -> None:
        """Import a mutant instead of the module, also where others have imported names from it."""
        old = sys.modules[self._name]
        new = sys.modules[self._name] = ModuleType(self._name)
        new.__file__ = old.__file__
        exec(compile(source, str(old.__file__), "exec", dont_inherit=True), vars(new))
        # Equal numbers and texts may be one object with several names.
        changed = {
            id(value): vars(new)[name]
            for name, value in vars(old).items()
            if not name.startswith("__") and name in vars(new) and not isinstance(value, int | float | str | NoneType)
        }
        changed[id(old)] = new
        for module in list(sys.modules.values()):
            if module is not new and module.__name__.partition(".")[0] in ("dynamo_dap", "tests", *_TEST_FOLDERS):
                for name, value in list(vars(module).items()):
                    if id(value) in changed and changed[id(value)] is not value:
                        setattr(module, name, changed[id(value)])


_TEST_FOLDERS = ("code_analysis", "compile_time")
"""Packages of tests as pytest imports them."""


def main() -> None:
    """Write each module's surviving mutants, then the scores."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="*", default=list(TESTS), help="modules below adapter/, by default all known")
    parser.add_argument("--tests", nargs="+", help="other tests than the module's own")
    parser.add_argument("--count", type=int, default=80, help="mutants of each module; 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    scores = []
    for name in given.modules:
        source = (ADAPTER / name).read_text("utf-8")
        mutants = sample(source, given.count, given.seed)
        runs = Runs(name, mutants)
        options = ["-s", "-q", "-m", "", "-p", "no:xdist", "-p", "no:cacheprovider", *(given.tests or TESTS[name])]
        pytest.main(options, plugins=[runs])
        if not runs.is_right:
            sys.exit(f"{name}: its tests fail without a mutant")
        scores.append(f"{name}: {len(mutants) - len(runs.survivors)} of {len(mutants)} mutants killed")
    sys.stdout.write("\n".join([*scores, ""]))


if __name__ == "__main__":
    main()
