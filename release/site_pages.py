"""Adds pages to the docs' site: the repository's own pages, and a reference made from the code. A hook of MkDocs.

Links between pages are written for readers of the repository; here they are turned to where the pages are in the site.
"""

from __future__ import annotations

import inspect
import json
import posixpath
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
_PICTURES = ("vscode-extension/media/pictures/", "vscode-extension/media/moving/")
_IN_TWO_THEMES = re.compile(
    r'<picture>\s*<source [^>]*srcset="(?P<dark>[^"]+)">\s*'
    r'<img src="(?P<light>[^"]+)" alt="(?P<text>[^"]+)">\s*</picture>'
)
_OWN_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "SUPPORT.md": "support.md",
}
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and pictures that are not in ``docs``."""
    for name, page in _OWN_PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    for picture in sorted(path for folder in _PICTURES for path in (ROOT / folder).iterdir()):
        files.append(File.generated(config, f"pictures/{picture.name}", abs_src_path=str(picture)))
    for page, text in (("commands", commands()), ("json", schemas()), ("python", python_interface())):
        files.append(File.generated(config, f"reference/{page}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001  (MkDocs gives all of them)
    """Turn the links of a page to the site's places."""
    source = {site: name for name, site in _OWN_PAGES.items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    for index in range(0, len(parts), 2):
        # The reader's choice of a theme, not the browser's: that is how the theme of the site says it.
        parts[index] = _IN_TWO_THEMES.sub(
            r"![\g<text>](\g<light>#only-light)\n![\g<text>](\g<dark>#only-dark)", parts[index]
        )
        parts[index] = _LINK.sub(lambda link: _turned(link, source, page.file.src_uri), parts[index])
    return "".join(parts)


def _turned(link: re.Match[str], source: str, here: str) -> str:
    target = link[2]
    if re.match(r"[a-z]+:", target):
        return link[0]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if path in _OWN_PAGES:
        place = _OWN_PAGES[path]
    elif path.startswith("docs/"):
        place = path.removeprefix("docs/")
    elif path.startswith(_PICTURES):
        place = f"pictures/{posixpath.basename(path)}"
    else:
        return link[0]
    relative = posixpath.relpath(place, posixpath.dirname(here) or ".")
    return f"{link[1]}{relative}{link[3] or ''}{link[4]}"


def commands() -> str:
    """Return the page of all commands, with what ``--help`` prints of each."""
    from dynamo_dap.commands.registry import COMMANDS

    parts = ["# Commands\n", "What `dynamo-dap COMMAND --help` prints.\n"]
    for name, command in sorted(COMMANDS.items()):
        printed = _printed(name, "--help")
        parts.append(f"## {name}\n\n{command.summary[0].upper()}{command.summary[1:]}.\n\n```text\n{printed}```\n")
    return "\n".join(parts)


def schemas() -> str:
    """Return the page of what ``--json`` prints."""
    named = re.search(r"\{([a-z,-]+)\}", _printed("schema", "--help"))
    assert named is not None
    parts = ["# JSON\n", "The JSON Schema (2020-12) of what each command prints with `--json`.\n"]
    for name in named[1].split(","):
        schema = json.dumps(json.loads(_printed("schema", name)), indent=2)
        parts.append(f"## {name}\n\n`dynamo-dap schema {name}`\n\n```json\n{schema}\n```\n")
    return "\n".join(parts)


def python_interface() -> str:
    """Return the page of what a program may import."""
    import dynamo_dap

    parts = [
        "# Python\n",
        "What `import dynamo_dap` has for programs. Importing it imports neither torch nor a debugger.\n",
    ]
    offered = {name: getattr(dynamo_dap, name) for name in dynamo_dap.__all__ if not name.startswith("__")}
    value: Any
    for name, value in sorted(offered.items(), key=lambda item: (inspect.isclass(item[1]), item[0])):
        parts.append(f"## {name}\n\n```python\n{_signature(name, value)}\n```\n\n{_description(value)}\n")
        if inspect.isclass(value):
            for member, each in vars(value).items():
                if not member.startswith("_") and inspect.getdoc(each) and not isinstance(each, str | int | tuple):
                    parts.append(f"### {name}.{member}\n\n{_description(each)}\n")
    return "\n".join(parts)


class _Plain(str):
    """An annotation, which a signature shows without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def _signature(name: str, value: Any) -> str:
    if inspect.isclass(value):
        return f"class {name}"
    signature = inspect.signature(value)
    parameters = [each.replace(annotation=_Plain(each.annotation)) for each in signature.parameters.values()]
    return (
        f"def {name}{signature.replace(parameters=parameters, return_annotation=_Plain(signature.return_annotation))}"
    )


def _description(value: object) -> str:
    text = re.sub(r"``([^`]+)``", r"`\1`", inspect.getdoc(value) or "")
    return re.sub(r"^(Returns|Raises):\n((?: {4}.+(?:\n|\Z))+)", _list, text, flags=re.MULTILINE)


def _list(section: re.Match[str]) -> str:
    """Return a section of a docstring as a list in Markdown; an exception is set as code."""
    items = re.sub(r"^ {4}(?! )", "- ", section[2], flags=re.MULTILINE)
    items = re.sub(r"^ {8}", "  ", items, flags=re.MULTILINE)
    return f"{section[1]}:\n\n" + re.sub(r"^- (\w+): ", r"- `\1`: ", items, flags=re.MULTILINE)


def _printed(*arguments: str) -> str:
    command = [sys.executable, "-m", "dynamo_dap", *arguments]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=120).stdout
