"""A release is complete, can be built twice with equal bytes, and the registries' tools accept it."""

from __future__ import annotations

import base64
import email.parser
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import pytest

import dynamo_dap
from release.build import CHECKSUMS, copy_tracked_files
from tests.release.artifacts import Release, build
from tests.structure.sources import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

_VERSION = dynamo_dap.__version__
_WHEEL = f"dynamo_dap-{_VERSION}-py3-none-any.whl"
_DATA = {
    "diff/page/diff.css",
    "explore/page/stages.css",
    "explore/page/stages.js",
    "profile/page/flame.css",
    "profile/page/flame.js",
    "py.typed",
    "records/page/page.css",
    "records/page/page.js",
}
_PICTURE = r"!\[[^\]]*\]\(([^)]+)\)"
_METADATA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
_EXTENSION = {"LICENSE.txt", "changelog.md", "package.json", "readme.md"}


def test_the_wheel_has_the_package_and_nothing_else(release: Release) -> None:
    with zipfile.ZipFile(release.file("*.whl")) as archive:
        names = set(archive.namelist())
    sources = release.checkout / "adapter"
    modules = {str(path.relative_to(sources)) for path in (sources / "dynamo_dap").rglob("*.py")}
    expected = modules | {f"dynamo_dap/{name}" for name in _DATA}
    assert names == expected | {f"dynamo_dap-{_VERSION}.dist-info/{name}" for name in _METADATA}


def test_the_metadata_says_what_an_index_shows(release: Release) -> None:
    with zipfile.ZipFile(release.file("*.whl")) as archive:
        text = archive.read(f"dynamo_dap-{_VERSION}.dist-info/METADATA").decode()
    metadata = email.parser.Parser().parsestr(text)
    assert (metadata["Name"], metadata["Version"], metadata["License-Expression"]) == ("dynamo-dap", _VERSION, "MIT")
    urls = {url.split(", ")[0] for url in metadata.get_all("Project-URL") or []}
    assert urls == {"Homepage", "Repository", "Issues", "Changelog", "Documentation"}
    needed = [each for each in metadata.get_all("Requires-Dist") or [] if "extra ==" not in each]
    assert not [each for each in needed if each.startswith("torch")], "torch is the user's choice"


def test_the_sdist_is_the_repository(release: Release) -> None:
    with tarfile.open(release.file("*.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"Makefile", "pyproject.toml", "tests/conftest.py", "vscode-extension/package-lock.json"} <= names
    assert not [name for name in names if name.startswith(("dist/", ".venv/")) or "node_modules/" in name]


def test_the_extension_carries_this_wheel_and_no_sources(release: Release) -> None:
    with zipfile.ZipFile(release.file("*.vsix")) as archive:
        names = {name.removeprefix("extension/") for name in archive.namelist() if name.startswith("extension/")}
        assert archive.read(f"extension/wheel/{_WHEEL}") == release.file("*.whl").read_bytes()
        package = json.loads(archive.read("extension/package.json"))
    assert package["version"] == _VERSION
    assert {"out/extension.cjs", "out/tensor.js", "media/icon.png", *_EXTENSION} <= names
    assert {"package.nls.json", "l10n/bundle.l10n.json"} <= names, "nothing could be translated"
    assert not [name for name in names if name.startswith("media/moving/")], "the text has them"
    folders = {name.partition("/")[0] for name in names - _EXTENSION}
    assert folders <= {"out", "media", "syntaxes", "wheel", "l10n", "package.nls.json"}
    assert not [name for name in names if name.endswith((".ts", ".map"))]


def test_galleries_get_what_they_show(release: Release) -> None:
    """Open VSX's rules for metadata, in the manifest that vsce wrote; texts are not keys of translations."""
    with zipfile.ZipFile(release.file("*.vsix")) as archive:
        manifest = ET.fromstring(archive.read("extension.vsixmanifest"))
        package = json.loads(archive.read("extension/package.json"))
        texts = json.loads(archive.read("extension/package.nls.json"))
        readme = archive.read("extension/readme.md").decode()
    spaces = {"v": "http://schemas.microsoft.com/developer/vsx-schema/2011"}
    (metadata,) = manifest.findall("v:Metadata", spaces)
    shown = {name: metadata.findtext(f"v:{name}", "", spaces) for name in ("DisplayName", "Description")}
    assert shown == {"DisplayName": texts["displayName"], "Description": texts["description"]}
    assert len(shown["DisplayName"]) <= 255
    assert len(shown["Description"]) <= 2048
    assert re.fullmatch(r"[\w+$~-]+", package["publisher"])
    assert re.fullmatch(r"[\w+$~-]+", package["name"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", package["version"])
    assert metadata.findtext("v:License", "", spaces) == "extension/LICENSE.txt", "refused without a licence"
    assert len(package["galleryBanner"]["color"]) <= 16
    properties = {
        each.get("Id"): each.get("Value", "") for each in metadata.iterfind("v:Properties/v:Property", spaces)
    }
    links = [value for name, value in properties.items() if name and ".Links." in name]
    assert len(links) >= 5
    assert not [link for link in [*links, package["qna"]] if not link.startswith("https://")]
    pictures = re.findall(_PICTURE, readme)
    originals = re.findall(_PICTURE, (ROOT / "vscode-extension" / "README.md").read_text(encoding="utf-8"))
    assert len(pictures) == len(originals) >= 5
    for shown, path in zip(pictures, originals, strict=True):
        # The host is a placeholder, from which nobody could load a picture.
        kind, _, data = shown.partition(";base64,")
        assert kind == f"data:image/{Path(path).suffix[1:]}"
        assert base64.b64decode(data) == (ROOT / "vscode-extension" / path).read_bytes()
    assert release.file("*.vsix").stat().st_size < 4_000_000


def test_the_bill_of_materials_is_valid_and_names_what_is_inside(release: Release) -> None:
    validation = pytest.importorskip("cyclonedx.validation.json")
    schema = pytest.importorskip("cyclonedx.schema")
    text = release.file("*.cdx.json").read_text(encoding="utf-8")
    assert validation.JsonStrictValidator(schema.SchemaVersion.V1_6).validate_str(text) is None
    components = {component["name"]: component for component in json.loads(text)["components"]}
    assert {"debugpy", "uplot", "vscode-languageclient"} <= set(components)


def test_the_checksums_are_those_of_the_files(release: Release) -> None:
    lines = (release.folder / CHECKSUMS).read_text(encoding="utf-8").splitlines()
    sums = {name: checksum for checksum, _, name in (line.partition("  ") for line in lines)}
    files = {path.name: path for path in release.folder.iterdir() if path.name != CHECKSUMS}
    assert sums == {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    assert len(files) == 4


def test_two_builds_have_equal_bytes(release: Release, tmp_path: Path) -> None:
    """In another folder, time zone and locale, and from files with other modes and times."""
    checkout = tmp_path / "another checkout"
    copy_tracked_files(release.checkout, checkout)
    for path in checkout.rglob("*"):
        if path.is_file():
            path.chmod(path.stat().st_mode & 0o700)
    (checkout / "vscode-extension" / "node_modules").symlink_to(ROOT / "vscode-extension" / "node_modules")
    build(checkout, tmp_path / "dist", TZ="Pacific/Chatham", LC_ALL="C")
    again = (tmp_path / "dist" / CHECKSUMS).read_text(encoding="utf-8")
    assert again == (release.folder / CHECKSUMS).read_text(encoding="utf-8")


def test_the_registries_tools_accept_the_packages(release: Release) -> None:
    pytest.importorskip("twine")
    packages = [str(release.file("*.whl")), str(release.file("*.tar.gz"))]
    for command in (["twine", "check", "--strict", *packages], ["validate_pyproject", "pyproject.toml"]):
        ran = subprocess.run(
            [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, check=False, text=True, timeout=300
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
