"""Real editors with their real plugins, configured by the guide's own lines, take a program through a session.

What is not installed is left out, and says so. ``make test-editors PLUGINS=FOLDER`` runs them: the folder holds the
plugins (``nvim-dap``, ``vimspector``, ``dape``), the editors are looked for on the PATH, or where ``EDITOR_NVIM``,
``EDITOR_VIM``, ``EDITOR_EMACS`` and ``EDITOR_HX`` say.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from dynamo_dap.server.client.capabilities import AGENT_CAPABILITIES, EXCEPTION_FILTERS
from tests.client import Fixture
from tests.client.free_program import FreeProgram
from tests.editors.desk import DRIVERS, FIXTURE, Desk, Screen, editor, plugin, readme_block, run_neovim


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A place to work."""
    return Desk(tmp_path)


def test_neovim_with_nvim_dap(desk: Desk) -> None:
    run_neovim(desk, 1)
    desk.check(cached_calls=2)


def test_neovim_stops_by_itself_where_it_should(desk: Desk) -> None:
    desk.environment["LINE"] = "0"
    run_neovim(desk, 1, lambda lines: lines.replace("-- dap.defaults", "dap.defaults"))
    reported = desk.report.read_text(encoding="utf-8")
    line = FIXTURE.line("fn3")
    assert re.match(rf"stopped {line} fn Tensor f32\[2\] cpu = \[2\.0, 2\.0\]\n", reported), (
        f"{reported}\n{desk.screen_text}"
    )
    assert reported.endswith("ended\n"), f"{reported}\n{desk.screen_text}"


def test_neovim_attaches(desk: Desk) -> None:
    fixture = Fixture("listening")
    editor("nvim")
    desk.environment |= {"PROGRAM": str(fixture.path), "LINE": str(fixture.line("return"))}
    program = FreeProgram(fixture.path, environment=desk.environment)
    try:
        _, port = program.address()
        run_neovim(desk, 2, lambda lines: lines.replace("5678", str(port)))
        reported = desk.report.read_text(encoding="utf-8")
        expected = (
            rf"stopped {fixture.line('return')} compute Tensor f32\[2\] cpu = \[1\.0, 1\.0\]\nstepped \d+\nended\n"
        )
        assert re.fullmatch(expected, reported), f"{reported}\n{desk.screen_text}"
        assert program.process.poll() is None, "it runs on"
    finally:
        program.end()


def test_vim_with_vimspector(desk: Desk) -> None:
    vim, vimspector = editor("vim"), plugin("vimspector")
    if "+python3" not in subprocess.run([vim, "--version"], capture_output=True, text=True, check=True).stdout:
        pytest.skip(f"{vim} has no Python, which vimspector needs (Debian: vim-nox)")
    (desk.work / ".vimspector.json").write_text(readme_block("json", holds='"filetypes"'))
    settings = f"filetype plugin on | set hidden noswapfile runtimepath^={vimspector} | syntax on"
    base = f"let g:vimspector_base_dir='{vimspector}' | runtime plugin/vimspector.vim"
    desk.run(vim, "-Nu", "NONE", "-i", "NONE", "--cmd", settings, "-c", base, "-S", DRIVERS / "vimspector.vim")
    desk.check()


def test_emacs_with_dape(desk: Desk) -> None:
    emacs, dape = editor("emacs"), plugin("dape")
    version = subprocess.run([emacs, "--version"], capture_output=True, text=True, check=True).stdout
    if int(re.findall(r"\d+", version)[0]) < 29:
        pytest.skip(f"{emacs} is too old for dape, which needs 29 or newer: {version.splitlines()[0]}")
    desk.configure("elisp", holds="dape-configs")
    desk.run(emacs, "-Q", "-nw", "-L", dape, "-l", DRIVERS / "dape.el")
    desk.check()


def test_emacs_with_dap_mode(desk: Desk) -> None:
    emacs = editor("emacs")
    find = '(progn (package-initialize) (kill-emacs (if (locate-library "dap-mode") 0 1)))'
    if subprocess.run([emacs, "-q", "--batch", "--eval", find], capture_output=True, check=False).returncode:
        pytest.skip(f"dap-mode is not installed for {emacs} (Debian: elpa-dap-mode)")
    desk.configure("elisp", holds="dap-register-debug-provider")
    desk.run(emacs, "-q", "-nw", "-l", DRIVERS / "dap-mode.el")
    desk.check()


def test_helix(desk: Desk) -> None:
    hx = editor("hx")
    settings = desk.home / ".config" / "helix"
    settings.mkdir(parents=True)
    (settings / "languages.toml").write_text(readme_block("toml", holds="language.debugger"))
    first, second = FIXTURE.line("fn2"), FIXTURE.line("fn3")
    with Screen([hx, desk.program.name], desk.work, desk.environment) as screen:

        def menu(key: str, *patterns: str) -> list[str]:
            """Open the menu of the debugger, press a key, leave the menu; return what is shown then."""
            screen.type(" G")
            screen.wait_for("Debug \\(experimental\\)")
            screen.type(key)
            shown = [screen.wait_for(pattern)[1] for pattern in patterns]
            screen.type("\x1b")
            screen.wait_until_gone("Debug (experimental)")
            return shown

        screen.wait_for(r"Loaded 1 file")
        screen.type(f"{first}G")
        screen.wait_for(rf" {first}:1\b")
        menu("b", rf"([◯●▲]) +{first} ")
        screen.type(':debug-start "torch.compile: file" program.py\r')
        screen.wait_for("stopped because of breakpoint")
        line = screen.wait_for(r"▶ +(\d+)")[1]
        screen.type(" G")
        screen.wait_for("Debug \\(experimental\\)")
        screen.type("v")
        value = screen.wait_for(r"y: Tensor = (.*?)(?:  |$)")[1]
        screen.type("\x1b")
        screen.wait_until_gone("y: Tensor")
        screen.type("\x1b")
        screen.wait_until_gone("Debug (experimental)")
        (stepped,) = menu("n", rf"▶ +({second})")
        menu("c", "(Terminated) debugging session")
        screen.type(":quit!\r")
        screen.wait_for_end()
    desk.report.write_text(f"stopped {line} fn {value}\nstepped {stepped}\nended\n")
    desk.check()


def test_every_exception_filter_is_named_in_the_readme() -> None:
    """Vimspector asks for each that is not, at every start."""
    filters = {one.filter for one in [*(AGENT_CAPABILITIES.exception_breakpoint_filters or []), *EXCEPTION_FILTERS]}
    configuration = json.loads(readme_block("json", holds='"filetypes"'))["configurations"][
        "torch.compile: current file"
    ]
    assert set(configuration["breakpoints"]["exception"]) == filters
