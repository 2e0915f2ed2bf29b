"""Chooses the tests that ``make test`` leaves out, from the durations of a run.

``pytest --junitxml=FILE`` measures; ``python -m tests.durations FILE > tests/long.txt`` chooses. The report of a core
run has no durations of long tests, so what it chooses joins the list. A test function is long if one of its cases, or
all of them together, take longer than the limits. Each file keeps its quickest test, but for those of ``_LONG_FILES``.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path

LONG = Path(__file__).parent / "long.txt"
_CASE_SECONDS = 4.0
_FUNCTION_SECONDS = 8.0
_LONG_FILES = (
    "tests.soak.",
    "tests.compile_time.test_walks",
    "tests.compile_time.test_value_stops",
    "tests.records.test_facts_of_compiles",
    "tests.records.test_remedies",
    "tests.records.test_stops_agree_with_torch",
    "tests.language_server.test_code_actions",
    "tests.eager.test_peer",
)
"""Beginnings of module names. All their tests may be long: others of ``make test`` have the same features."""

LONGEST = ("tests/end_to_end/test_verdicts.py", "tests/end_to_end/test_hooks.py")
"""Files with tests of one case that take minutes.

They come first, so that no run ends with one busy worker. The tests of a file stay together, since they share results.
"""


def long_tests() -> frozenset[str]:
    """Return what ``long.txt`` lists: ``tests/folder/file.py::function``."""
    return frozenset(LONG.read_text(encoding="utf-8").split())


def chosen(report: Path) -> list[str]:
    """Return the test functions that are long, by the durations in a JUnit report."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for case in ET.parse(report).iter("testcase"):
        name = str(case.get("name")).partition("[")[0]
        seconds[f"{case.get('classname')}::{name}"].append(float(case.get("time") or 0))
    by_file: dict[str, dict[str, list[float]]] = defaultdict(dict)
    for test, each in seconds.items():
        by_file[test.partition("::")[0]][test] = each
    found = []
    for file, tests in by_file.items():
        if file.startswith("tests.structure."):  # they hold the rules for every change
            continue
        long = [test for test, each in tests.items() if max(each) > _CASE_SECONDS or sum(each) > _FUNCTION_SECONDS]
        if len(long) == len(tests) and not file.startswith(_LONG_FILES):
            long.remove(min(tests, key=lambda test: sum(tests[test])))
        found += [f"{file.replace('.', '/')}.py::{test.partition('::')[2]}" for test in long]
    return sorted(found)


if __name__ == "__main__":
    sys.stdout.write("\n".join(chosen(Path(sys.argv[1]))) + "\n")
