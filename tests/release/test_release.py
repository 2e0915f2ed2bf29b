"""A release is complete, can be built twice with equal bytes, and installs into an empty environment."""

from __future__ import annotations

import email.parser
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import dynamo_dap
from release.build import CHECKSUMS, copy_tracked_files
from tests.structure.sources import ADAPTER, ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

_VERSION = dynamo_dap.__version__
_WHEEL = f"dynamo_dap-{_VERSION}-py3-none-any.whl"
_DATA = {
    "explore/page/stages.css",
    "explore/page/stages.js",
    "profile/page/flame.css",
    "profile/page/flame.js",
    "py.typed",
    "records/page/LICENSES.txt",
    "records/page/chart-zoom.min.js",
    "records/page/chart.min.js",
    "records/page/page.css",
    "records/page/page.js",
}
_METADATA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
_EXTENSION = {"LICENSE.txt", "changelog.md", "package.json", "readme.md"}


@dataclass(frozen=True)
class Release:
    """What was built, and the checkout that it was built in."""

    checkout: Path
    folder: Path

    def file(self, pattern: str) -> Path:
        """Return the one file with that name."""
        (path,) = self.folder.glob(pattern)
        return path


def _build(checkout: Path, output: Path, **changed: str) -> None:
    environment = {**os.environ, **changed}
    command = [sys.executable, "-m", "release.build", "--output", str(output)]
    ran = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, check=False, text=True, timeout=600
    )
    assert ran.returncode == 0, ran.stderr


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """Build a release of a copy of the repository, which may change while it is tested."""
    pytest.importorskip("build", reason="the extra 'release' is not installed")
    packages = ROOT / "vscode-extension" / "node_modules"
    if not packages.exists() or shutil.which("node") is None:
        pytest.skip("the extension's packages are not installed: make check-typescript installs them")
    checkout = tmp_path_factory.mktemp("checkout")
    copy_tracked_files(ROOT, checkout)
    (checkout / "vscode-extension" / "node_modules").symlink_to(packages)
    folder = tmp_path_factory.mktemp("release") / "dist"
    _build(checkout, folder)
    return Release(checkout, folder)


def test_the_wheel_has_the_package_and_nothing_else(release: Release) -> None:
    with zipfile.ZipFile(release.file("*.whl")) as archive:
        names = set(archive.namelist())
    modules = {str(path.relative_to(ADAPTER)) for path in (ADAPTER / "dynamo_dap").rglob("*.py")}
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
    assert not [name for name in names if name.startswith("media/moving/")], "galleries load them"
    folders = {name.partition("/")[0] for name in names - _EXTENSION}
    assert folders <= {"out", "media", "syntaxes", "wheel", "l10n", "package.nls.json"}
    assert not [name for name in names if name.endswith((".ts", ".map"))]


def test_the_bill_of_materials_is_valid_and_names_what_is_inside(release: Release) -> None:
    validation = pytest.importorskip("cyclonedx.validation.json")
    schema = pytest.importorskip("cyclonedx.schema")
    text = release.file("*.cdx.json").read_text(encoding="utf-8")
    assert validation.JsonStrictValidator(schema.SchemaVersion.V1_6).validate_str(text) is None
    components = {component["name"]: component for component in json.loads(text)["components"]}
    assert {"chart.js", "debugpy", "uplot", "vscode-languageclient"} <= set(components)
    page = (ADAPTER / "dynamo_dap/records/page/chart.min.js").read_text(encoding="utf-8")
    assert f"v{components['chart.js']['version']}" in page[:200]


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
    _build(checkout, tmp_path / "dist", TZ="Pacific/Chatham", LC_ALL="C")
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


def _new_user(release: Release, folder: Path) -> tuple[Path, dict[str, str]]:
    """Make an empty environment with the wheel, and a home; torch is this environment's, at the end of the path."""
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True, timeout=300)
    python = environment / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", "--only-binary=:all:", str(release.file("*.whl"))]
    installed = subprocess.run(command, capture_output=True, check=False, text=True, timeout=600, cwd=folder)
    if installed.returncode and "No matching distribution" in installed.stderr + installed.stdout:
        pytest.skip("no package index can be reached")
    assert installed.returncode == 0, installed.stderr
    import torch

    (site_packages,) = environment.glob("lib/python*/site-packages")
    (site_packages / "torch_of_another_environment.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    home = folder / "home"
    home.mkdir()
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return environment, {**kept, "HOME": str(home), "PATH": path, "TERM": "dumb"}


@pytest.fixture(scope="module")
def new_user(release: Release, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Return a new user's environment and variables."""
    return _new_user(release, tmp_path_factory.mktemp("user"))


def test_a_new_user_reaches_a_stop_in_a_cached_call(new_user: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """Nothing but the wheel: the second stop at the line is in a cached call, with that call's values."""
    _, variables = new_user
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n\n\n@torch.compile(backend='eager')\ndef scale(x, y):\n    z = x * 2\n    return z + y\n\n\n"
        "for number in range(3):\n    scale(torch.full((2,), float(number)), torch.ones(2))\n"
    )
    ran = subprocess.run(
        ["dynamo-dap", "debug", "program.py", "--break", "program.py:7"],
        cwd=tmp_path,
        env=variables,
        input="continue\nprint z\nwhere\ncontinue\nprint z\nquit\n",
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
    )
    assert "call 2 of scale, served by cache entry" in ran.stdout, ran.stdout + ran.stderr
    assert "[2.0, 2.0]" in ran.stdout
    assert "[4.0, 4.0]" in ran.stdout


def test_a_new_users_doctor_finds_everything(new_user: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    environment, variables = new_user
    command = ["dynamo-dap", "doctor", "--json"]
    ran = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, check=False, text=True, timeout=300)
    answer = json.loads(ran.stdout)
    own = next(check for check in answer["checks"] if check["name"] == "dynamo-dap")
    assert str(environment) in own["text"], "the repository is used, not the wheel"
    assert not [check for check in answer["checks"] if check["result"] == "problem"], ran.stdout
    assert ran.returncode == 0


def test_a_release_without_a_dated_version_is_refused(tmp_path: Path) -> None:
    from release.build import NotReleased, version_and_date

    (tmp_path / "adapter/dynamo_dap").mkdir(parents=True)
    (tmp_path / "adapter/dynamo_dap/__init__.py").write_text('__version__ = "9.9.9"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n")
    with pytest.raises(NotReleased, match=r"9\.9\.9"):
        version_and_date(tmp_path)
