"""Builds a release into ``dist``: ``make package``, and with the checks of the registries: ``make release``.

Two builds of one commit give equal bytes. All tracked files are copied to a temporary folder with fixed modes, times
come from the version's date in ``CHANGELOG.md``, and the time zone is UTC. The extension carries the same wheel.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from release.bill_of_materials import bill_of_materials

ROOT = Path(__file__).resolve().parents[1]
CHECKSUMS = "SHA256SUMS"
_NOT_COPIED = {".venv", ".git", "node_modules", "dist", "__pycache__", ".matrix", ".vscode-test", "output", "site"}


class NotReleased(Exception):
    """The release cannot be made; the text says why and what to do."""


def version_and_date(root: Path) -> tuple[str, dt.date]:
    """Return the version of the package and the day that the changelog gives it."""
    source = (root / "adapter/dynamo_dap/__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)
    if found is None:
        raise NotReleased('adapter/dynamo_dap/__init__.py has no line __version__ = "..."')
    heading = rf"^## {re.escape(found[1])} \((\d{{4}}-\d\d-\d\d)\)$"
    dated = re.search(heading, (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    if dated is None:
        raise NotReleased(f"CHANGELOG.md has no heading '## {found[1]} (YYYY-MM-DD)'")
    return found[1], dt.date.fromisoformat(dated[1])


def tracked_files(root: Path) -> list[str]:
    """Return the files of the repository, or of an unpacked sdist, by their paths."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=False, text=True)
    if listed.returncode == 0:
        return sorted(name for name in listed.stdout.split("\0") if name and (root / name).is_file())
    walked = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(str(path) for path in walked if not _NOT_COPIED & set(path.parts))


def copy_tracked_files(root: Path, folder: Path) -> None:
    """Copy the repository with modes that no umask changes."""
    for name in tracked_files(root):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, target)
        target.chmod(0o755 if os.access(root / name, os.X_OK) else 0o644)


def build(root: Path, output: Path) -> list[Path]:
    """Build everything; return the files in ``output``, which has nothing else afterwards."""
    version, date = version_and_date(root)
    midnight = dt.datetime.combine(date, dt.time(), dt.timezone.utc)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(int(midnight.timestamp())), "TZ": "UTC"}
    environment["DYNAMO_DAP_PYTHON"] = sys.executable
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="dynamo-dap-release-") as temporary:
        copy = Path(temporary) / "dynamo-dap"
        copy_tracked_files(root, copy)
        _run([sys.executable, "-m", "build", "--outdir", str(output)], copy, environment)
        extension = copy / "vscode-extension"
        (wheel,) = output.glob("*.whl")
        (extension / "wheel").mkdir()
        shutil.copyfile(wheel, extension / "wheel" / wheel.name)
        (extension / "wheel" / wheel.name).chmod(0o644)
        (extension / "node_modules").symlink_to(root / "vscode-extension" / "node_modules")
        _run(["node", "build.mjs"], extension, environment)
        packed = output / f"dynamo-dap-{version}.vsix"
        vsce = str(extension / "node_modules/.bin/vsce")
        _run([vsce, "package", "--no-dependencies", "--out", str(packed)], extension, environment)
        bill = bill_of_materials(copy, wheel, midnight)
    (output / f"dynamo-dap-{version}.cdx.json").write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
    built = sorted(output.iterdir())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in built]
    (output / CHECKSUMS).write_text("".join(sums), encoding="utf-8")
    return [*built, output / CHECKSUMS]


def check(root: Path, built: list[Path]) -> None:
    """Check what was built with the tools of the registries that it goes to.

    Raises:
        NotReleased: a tool refuses a file, or the commit is not what was built.
    """
    packages = [str(path) for path in built if path.suffix in (".whl", ".gz")]
    _run([sys.executable, "-m", "twine", "check", "--strict", *packages], root)
    _run([sys.executable, "-m", "validate_pyproject", "--disable", "trove_classifiers", "pyproject.toml"], root)
    _run([sys.executable, "-m", "check_manifest", "--no-build-isolation"], root)
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True, check=True, text=True)
    if changed.stdout:
        raise NotReleased("there are changes that no commit has: commit them, and build again")


def _run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    ran = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True
    )
    if ran.returncode:
        raise NotReleased(f"{' '.join(command)} failed:\n{ran.stdout}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def main() -> int:
    """Build, and say what is left to do by hand; 1 when something fails."""
    parser = argparse.ArgumentParser(prog="python -m release.build", description="Build a release into dist/.")
    parser.add_argument("--check", action="store_true", help="run the registries' checks, and print how to publish")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", metavar="FOLDER", help="default: dist")
    options = parser.parse_args()
    try:
        built = build(ROOT, options.output.resolve())
        if options.check:
            check(ROOT, built)
    except NotReleased as problem:
        sys.stderr.write(f"release: {problem}\n")
        return 1
    for path in built:
        _say(f"{path.stat().st_size:>9,}  {path}")
    if options.check:
        version, _ = version_and_date(ROOT)
        _say(
            f"\nTo publish:\n  git tag -s v{version} -m 'dynamo-dap {version}' && git push origin v{version}\n"
            f"  twine upload dist/*.whl dist/*.tar.gz\n"
            f"  vsce publish --packagePath dist/dynamo-dap-{version}.vsix\n"
            f"  ovsx publish dist/dynamo-dap-{version}.vsix\n"
            f"Attach {CHECKSUMS} and the bill of materials (*.cdx.json) to the release of the tag.\n"
            "The URLs in pyproject.toml are placeholders until the repository has a public address."
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
