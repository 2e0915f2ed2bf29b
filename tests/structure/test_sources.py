"""Rules for every file: docstrings, sizes, no path of one machine, and guides that name only what exists."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dynamo_dap.commands.registry import COMMANDS
from tests.client import FIXTURES, Fixture
from tests.client.fixtures import PLACES
from tests.client.timeline import DEADLINE
from tests.structure.sources import ADAPTER, ROOT, adapter_modules, guides

MAXIMUM_LINES = 600
MAXIMUM_OPEN_LINES = 900
"""The most lines of ``adapter`` with ``Any``, for values of torch, pydevd, Triton and JSON. Lower it if you can."""
_GENERATED = {ADAPTER / "dynamo_dap/protocol/wire/types.py"}
_FOLDERS = ("adapter", "tests", "fixtures")
_MACHINE = re.compile(r"(?<![\w.])/(root|work|farm|home/\w+|Users/\w+|opt/(pypi|wheels))/")


def tracked_files() -> list[Path]:
    """Return every text file of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout.split("\0")
    return [ROOT / name for name in listed if name and (ROOT / name).is_file()]


def python_files() -> list[Path]:
    """Return the project's Python files that parse."""
    files = [path for folder in _FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in files if "broken" not in path.parts and "node_modules" not in path.parts]


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in python_files()
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not silent, silent


def test_no_module_is_larger_than_a_person_reads() -> None:
    sizes = {
        str(module.path): len(module.path.read_text(encoding="utf-8").splitlines())
        for module in adapter_modules()
        if module.path not in _GENERATED
    }
    assert not {path: size for path, size in sizes.items() if size > MAXIMUM_LINES}


def _read_by_users() -> dict[Path, str]:
    files = [path for path in tracked_files() if path.suffix in (".md", ".json", ".ts") or ADAPTER in path.parents]
    return {path: path.read_text(encoding="utf-8", errors="replace") for path in files}


def test_users_read_one_form_of_run_time() -> None:
    assert not [path for path, text in _read_by_users().items() if re.search(r"\bRun time\b", text)]


def test_no_page_says_to_install_us_by_a_name_that_anybody_may_register() -> None:
    assert not [path for path, text in _read_by_users().items() if re.search(r"pip install dynamo[-_]dap", text)]


def test_no_file_names_a_path_of_one_machine() -> None:
    found = []
    for path in tracked_files():
        if path == Path(__file__) or path.suffix in (".png", ".lock"):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
            if _MACHINE.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", sorted(FIXTURES.rglob("*.py")), ids=lambda path: path.stem)
def test_fixtures_have_markers_that_are_distinguished(path: Path) -> None:
    markers = Fixture(path).markers
    assert len(set(markers.values())) == len(markers)


@pytest.mark.parametrize("name", PLACES)
def test_programs_that_people_read_first_have_places_and_no_markers(name: str) -> None:
    program = Fixture(FIXTURES / name)
    assert set(program.markers) == set(PLACES[name])
    assert "#@" not in program.path.read_text(encoding="utf-8")


def test_what_the_guide_for_contributors_names_exists() -> None:
    """Files, tests, ``make`` targets and names in CONTRIBUTING.md exist; files of the adapter may omit its folder."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = [*re.findall(r"`([^`\n]+)`", text.replace("```", "")), *re.findall(r"\S+\.py::\w+", text)]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    words = {word for path in python_files() for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    folders = (ROOT, ADAPTER / "dynamo_dap")
    missing = []
    for name in named:
        path, _, test = name.partition("::")
        if re.fullmatch(r"[\w./-]+/[\w./-]*|[\w.-]+\.(py|md|json)", path):
            files = [folder / path for folder in folders if (folder / path).exists()]
            files += [*(ADAPTER / "dynamo_dap").rglob(path)] if "/" not in path else []
            is_there = bool(files) and (not test or f"def {test}(" in files[0].read_text(encoding="utf-8"))
        elif name.startswith("make "):
            is_there = name.split()[1] in targets
        else:
            is_there = not re.fullmatch(r"\w+", name) or name in words | {path.name for path in ADAPTER.rglob("*")}
        missing += [] if is_there else [name]
    assert len(named) > 50, "this test reads nothing"
    assert not missing, missing


def test_commands_in_the_guides_exist() -> None:
    """Every ``make`` target and every option of ``dynamo-dap`` in the README and in ``docs`` is real."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in guides())
    blocks = "\n".join(re.findall(r"^```[^\n]*\n(.*?)^```", pages, re.MULTILINE | re.DOTALL))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    used = set(re.findall(r"^\s*make ([a-z-]+)", blocks, re.MULTILINE))
    assert used, "the guides show no make command"
    assert used <= targets, f"the guides name {used - targets}, which the Makefile does not have"
    help_texts = "".join(
        subprocess.run(
            [sys.executable, "-m", "dynamo_dap", *command, "--help"],
            capture_output=True,
            check=True,
            text=True,
            timeout=DEADLINE,
        ).stdout
        for command in ([], *([name] for name in COMMANDS))
    )
    for line in re.findall(r"^\s*(?:\$ )?(?:dynamo-dap|python -m dynamo_dap)\b(.*)$", blocks, re.MULTILINE):
        # The rest of the line is for the program, or for the module after "-m".
        own = re.split(r" -- | -m ", line, maxsplit=1)[0]
        for option in re.findall(r"(?<!\S)--[a-z][a-z-]+", own):
            assert option in help_texts, f"the guides use {option}, which dynamo-dap does not have"


def test_every_link_of_the_guides_leads_somewhere() -> None:
    """Links to files and to headings, in the README, in ``docs`` and in CONTRIBUTING.md; every page can be reached."""
    reached, wrong = set(), []
    for page in [*guides(), ROOT / "CONTRIBUTING.md"]:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"https?:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            reached.add(file)
            if not file.exists() or (anchor and anchor not in _anchors(file)):
                wrong.append(f"{page.name}: {target}")
    assert not wrong
    assert set(guides()[1:]) <= reached


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_what_security_md_promises_is_tested() -> None:
    """Every row of its tables names tests, and every test that it names exists."""
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    rows = [
        line for line in page.splitlines() if line.startswith("|") and not re.match(r"\| (-+|sentence|what) \|", line)
    ]
    assert len(rows) > 10
    for row in rows:
        names = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert names, f"no test holds: {row}"
        for path, name in names:
            written = (ROOT / path).read_text(encoding="utf-8")
            assert re.search(rf"^def {name}\(", written, re.MULTILINE), f"SECURITY.md names {path}::{name}"
        for path in re.findall(r"`(tests/vscode/[\w.-]+)`", row):
            assert (ROOT / path).is_file(), f"SECURITY.md names {path}"


def test_a_workspace_has_to_be_trusted() -> None:
    """VS Code does not start the extension in a folder that its user does not trust."""
    package = json.loads((ROOT / "vscode-extension" / "package.json").read_text(encoding="utf-8"))
    assert package["capabilities"]["untrustedWorkspaces"]["supported"] is False


def test_pages_and_hovers_take_no_text_for_html() -> None:
    """Elements are made, not parsed; the only HTML is written by functions that escape; no Markdown is trusted."""
    sources = [*(ROOT / "vscode-extension" / "src").rglob("*.ts"), *(ROOT / "adapter" / "dynamo_dap").rglob("*.js")]
    assert len(sources) > 50
    risky = re.compile(
        r"\b(?:innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|DOMParser|document\.write"
        r"|isTrusted|supportHtml|supportThemeIcons|enableCommandUris)\b"
    )
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in sources
        for match in risky.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def _open_lines(tree: ast.Module) -> set[int]:
    """Return the lines that name ``Any``, without imports."""
    return {node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "Any"}


def test_few_lines_leave_a_type_open() -> None:
    found = sum(len(_open_lines(module.tree)) for module in adapter_modules() if module.path not in _GENERATED)
    assert found <= MAXIMUM_OPEN_LINES, f"{found} lines name Any: write object, or what is read of the value"


def test_the_check_sees_an_open_type() -> None:
    text = "from typing import Any\n\n\ndef f(x: Any, y: dict[str, Any]) -> object:\n    z: Any = x\n    return z\n"
    assert _open_lines(ast.parse(text)) == {4, 5}
