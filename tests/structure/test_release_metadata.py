"""The facts about a release are in one place; copies in the extension's files agree."""

from __future__ import annotations

import json
import re

import dynamo_dap
from tests.structure.sources import ROOT

_PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
_EXTENSION = ROOT / "vscode-extension"


def test_the_extension_has_the_packages_version() -> None:
    package = json.loads((_EXTENSION / "package.json").read_text(encoding="utf-8"))
    lock = json.loads((_EXTENSION / "package-lock.json").read_text(encoding="utf-8"))
    versions = {package["version"], lock["version"], lock["packages"][""]["version"]}
    assert versions == {dynamo_dap.__version__}
    assert not re.search(r"^version =", _PROJECT, re.MULTILINE), "the version is in dynamo_dap/__init__.py only"


def test_every_address_is_one_of_the_project() -> None:
    """To change the addresses, edit ``pyproject.toml`` and run ``make generate``."""
    urls = dict(re.findall(r'^(\w+) = "(https://[^"]+)"$', _PROJECT, re.MULTILINE))
    manifest = (_EXTENSION / "package.json").read_text(encoding="utf-8")
    found = re.findall(r'"(https://[^"]+)"', manifest)
    assert len(found) == 5
    assert not [url for url in found if not url.startswith(urls["Homepage"])]
    assert f"site_url: {urls['Documentation']}/\n" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_the_product_has_one_name() -> None:
    texts = json.loads((_EXTENSION / "package.nls.json").read_text(encoding="utf-8"))
    name = texts["displayName"]
    assert texts["configuration.title"] == name
    assert (_EXTENSION / "README.md").read_text(encoding="utf-8").startswith(f"# {name}\n")
    manifest = json.loads((_EXTENSION / "package.json").read_text(encoding="utf-8"))
    contributes = manifest["contributes"]
    assert texts["debuggers.dynamo.label"] == name
    assert {texts[each["label"].strip("%")] for each in contributes["mcpServerDefinitionProviders"]} == {name}
    assert name in texts["commands.dynamo.debugFile.title"].replace("Debugger", "debugger")
    others = ("torch.compile (", "with dynamo-dap", "Dynamo debugger")
    files = [_EXTENSION / "README.md", _EXTENSION / "package.nls.json", _EXTENSION / "l10n" / "bundle.l10n.json"]
    assert not [each for path in files for each in others if f"{each}" in path.read_text(encoding="utf-8")]
    categories = {each["category"] for each in manifest["contributes"]["commands"]}
    assert categories == {"torch.compile"}, "as the palette shows commands"
    keys = {each["command"] for each in manifest["contributes"]["keybindings"]}
    assert keys == {"dynamo.viewExpression", "workbench.action.debug.stepBack", "dynamo.exploreStages"}


def test_the_interpreter_is_set_for_a_machine_or_a_workspace() -> None:
    """A remote window shows such a setting among the user's settings as well."""
    manifest = json.loads((_EXTENSION / "package.json").read_text(encoding="utf-8"))
    assert manifest["contributes"]["configuration"]["properties"]["dynamo.python"]["scope"] == "machine-overridable"


def test_findings_are_the_first_view_of_the_side_bar() -> None:
    contributes = json.loads((_EXTENSION / "package.json").read_text(encoding="utf-8"))["contributes"]
    texts = json.loads((_EXTENSION / "package.nls.json").read_text(encoding="utf-8"))
    (container,) = contributes["viewsContainers"]["activitybar"]
    views = [each["id"] for each in contributes["views"][container["id"]]]
    names = ["findings", "compiles", "graph", "guards", "entries", "timeline", "comparison"]
    assert views == [f"dynamo.{name}" for name in names]
    in_session = "inDebugMode && debugType == dynamo"
    offers = {
        (each["view"], each["when"] == in_session): "(command:dynamo.debugFile)" in texts[each["contents"].strip("%")]
        for each in contributes["viewsWelcome"]
    }
    assert offers == {(view, running): not running for view in views for running in (False, True)}


def test_each_step_of_the_walkthrough_has_a_picture() -> None:
    (walkthrough,) = json.loads((_EXTENSION / "package.json").read_text(encoding="utf-8"))["contributes"][
        "walkthroughs"
    ]
    assert len(walkthrough["steps"]) == 7
    for step in walkthrough["steps"]:
        media = step["media"]
        paths = [media["image"]] if "image" in media else []
        if "markdown" in media:
            text = (_EXTENSION / media["markdown"]).read_text(encoding="utf-8")
            paths += [f"media/{path}" for path in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)]
        assert paths, step["id"]
        assert all((_EXTENSION / path).stat().st_size < 100_000 for path in paths), step["id"]


def test_the_extensions_changelog_has_the_version() -> None:
    text = (_EXTENSION / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(dynamo_dap.__version__)} \(", text, re.MULTILINE)


def test_the_extension_is_ready_for_both_galleries() -> None:
    """The extension has everything that the Marketplace and Open VSX require and show."""
    package = json.loads((_EXTENSION / "package.json").read_text(encoding="utf-8"))
    assert {"publisher", "displayName", "description", "license", "repository", "icon", "keywords"} <= set(package)
    assert len(package["keywords"]) <= 30
    assert set(package["categories"]) <= {"Debuggers", "Machine Learning", "Data Science"}
    assert "enabledApiProposals" not in package, "the Marketplace refuses proposed API"
    header = (_EXTENSION / package["icon"]).read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    assert min(int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")) >= 128
    assert package["galleryBanner"].keys() == {"color", "theme"}
    for name in ("README.md", "CHANGELOG.md", "LICENSE"):
        assert (_EXTENSION / name).is_file()


def test_the_extension_says_where_it_does_not_run() -> None:
    package = json.loads((_EXTENSION / "package.json").read_text(encoding="utf-8"))
    assert "browser" not in package, "an extension with this entry would be offered in vscode.dev"
    assert package["extensionKind"] == ["workspace"]
    for name in ("untrustedWorkspaces", "virtualWorkspaces"):
        capability = package["capabilities"][name]
        assert capability["supported"] is False
        assert capability["description"], "VS Code shows this text"
    assert "vscode.dev" in (_EXTENSION / "README.md").read_text(encoding="utf-8")


def test_the_extension_sends_nothing() -> None:
    assert "No telemetry" in (_EXTENSION / "README.md").read_text(encoding="utf-8")
    sources = {path: path.read_text(encoding="utf-8") for path in (_EXTENSION / "src").rglob("*.ts")}
    sending = re.compile(
        r"TelemetryLogger|TelemetrySender|(?<![.\w])(?<!async )fetch\(|XMLHttpRequest|sendBeacon|\"(?:node:)?https?\""
    )
    assert len(sources) > 50
    assert not [path.name for path, text in sources.items() if sending.search(text)]
    package = json.loads((_EXTENSION / "package.json").read_text(encoding="utf-8"))
    assert not [name for name in package["devDependencies"] if "telemetry" in name]


_SCENES = {"cached-call", "recompile", "nan", "mismatch", "time-travel"}


def test_moving_pictures_are_shown_in_both_themes_and_small() -> None:
    pictures = {path.stem: path for path in (_EXTENSION / "media" / "moving").iterdir()}
    assert set(pictures) == {f"{scene}-{theme}" for scene in _SCENES for theme in ("dark", "light")}
    for path in pictures.values():
        data = path.read_bytes()
        assert (data[:4], data[8:12]) == (b"RIFF", b"WEBP")
        assert data.count(b"ANMF") > 2, f"{path.name} does not move"
        assert len(data) < 1_000_000
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    extension = (_EXTENSION / "README.md").read_text(encoding="utf-8")
    for scene in _SCENES:
        assert all(f"{scene}-{theme}.webp" in readme for theme in ("dark", "light"))
        assert f"{scene}-dark.webp" in extension


def test_scenes_of_the_browser_tests_are_the_moving_pictures() -> None:
    text = (ROOT / "tests" / "vscode" / "scenes.test.ts").read_text(encoding="utf-8")
    assert set(re.findall(r'^test\("scene ([\w-]+):', text, re.MULTILINE)) == _SCENES
