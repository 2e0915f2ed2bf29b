"""What the pages show is what the commands print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dynamo_dap.commands.registry import COMMANDS
from tests.docs.pages import Page, _difference, _not_in_order, _parse, normal, read_page, run_page
from tests.structure.sources import ROOT, guides

_PAGES = [read_page(path) for path in guides()]
_RUN = [page for page in _PAGES if page.commands]


def _name(page: Page) -> str:
    return page.path.stem


@pytest.mark.parametrize("page", _PAGES, ids=_name)
def test_a_block_with_commands_is_run_or_says_why_not(page: Page) -> None:
    assert not page.unexplained, "\n".join(page.unexplained)


@pytest.mark.long
@pytest.mark.parametrize("page", _RUN, ids=_name)
def test_a_page_shows_what_its_commands_print(page: Page, tmp_path: Path) -> None:
    wrong = run_page(page, tmp_path)
    assert not wrong, "\n\n".join(wrong)


def test_every_page_has_a_place_in_the_site() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {str(path.relative_to(ROOT / "docs")) for path in guides()[1:]}
    assert not [page for page in pages if not re.search(rf"(?:- |: ){re.escape(page)}$", text, re.MULTILINE)]


@pytest.mark.long
def test_the_site_is_built_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the extra 'docs' is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    index = (tmp_path / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "wait_for_client" in index, "the reference is not searched"
    page = (tmp_path / "tutorials" / "nan" / "index.html").read_text(encoding="utf-8")
    assert not re.search(r'(?:src|href)="https?://(?!dynamo-dap\.example|squidfunk)', page), (
        "something is loaded from elsewhere"
    )
    for theme in ("light", "dark"):
        (shown,) = re.findall(rf'src="([^"]+nan-{theme}\.webp)#only-{theme}"', page)
        assert (tmp_path / "tutorials" / "nan" / shown).resolve().is_file(), "the picture of the other theme is missing"


@pytest.mark.long
def test_the_python_reference_reads_as_python_and_markdown() -> None:
    pytest.importorskip("mkdocs", reason="the extra 'docs' is not installed")
    from release.site_pages import python_interface

    text = python_interface()
    assert "def wait_for_client() -> None\n" in text
    assert "(address: tuple[str, int] | int, *, access_token: str | None = None) -> tuple[str, int]\n" in text
    assert "Raises:\n\n- `ValueError`: other machines can reach" in text
    assert text.index("\n## record\n") < text.index("\n## Recording\n")
    assert not re.search(r"^ {4}\S", text, re.MULTILINE), "Markdown takes indented lines for code, or for one paragraph"


def test_most_pages_have_something_to_run() -> None:
    assert len(_RUN) > 6


def test_every_command_is_run_by_some_page() -> None:
    commands = [command.text for page in _PAGES for command in page.commands if "dynamo-dap " in command.text]
    run = {re.split(r"dynamo-dap ", command)[1].split()[0] for command in commands}
    assert run == set(COMMANDS)


def test_a_command_takes_variables_and_input(tmp_path: Path) -> None:
    (tmp_path / "given.json").write_text("{}\n")
    assert _parse("A=1 B_C=two dynamo-dap run x.py", tmp_path) == (
        ["dynamo-dap", "run", "x.py"],
        {"A": "1", "B_C": "two"},
        "",
    )
    assert _parse("dynamo-dap mcp < given.json", tmp_path) == (["dynamo-dap", "mcp"], {}, "{}\n")
    assert _parse(r"printf 'a: 1\r\n' | dynamo-dap lsp", tmp_path) == (["dynamo-dap", "lsp"], {}, "a: 1\r\n")


def test_differences_are_found() -> None:
    assert _difference(["a", "b", "c"], ["a", "...", "c"]) is None
    assert _difference(["a", "b", "c"], ["a", "c"]) == "c"
    assert _difference(["a", "b"], ["a"]) is not None
    assert _difference(["a is 1"], ["a is …"]) is None
    assert _not_in_order(["a", "x", "b"], ["a", "b"]) is None
    assert _not_in_order(["b", "a"], ["a", "b"]) == "b"
    assert normal("took  0.71 s in /tmp/x/a.py", Path("/tmp/x")) == "took # s in /project/a.py"
