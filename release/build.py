"""Builds a release into ``dist``: ``make package``, or with all checks from a commit that is one: ``make release``.

Two builds of one commit give equal bytes. All tracked files are copied to a temporary folder with fixed modes, times
come from the version's date in ``CHANGELOG.md``, and the time zone is UTC. The extension carries the same wheel.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from release.bill_of_materials import bill_of_materials
from release.tagging import NotReleased, require_release, tagged_commit, version_and_date

ROOT = Path(__file__).resolve().parents[1]
CHECKSUMS = "SHA256SUMS"
_NOT_COPIED = {".venv", ".git", "node_modules", "dist", "__pycache__", ".matrix", ".vscode-test", "output", "site"}


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
        # The build has written the addresses of pictures into this text.
        readme = ["--readme-path", "out/readme.md", "--no-rewrite-relative-links"]
        _run([vsce, "package", "--no-dependencies", *readme, "--out", str(packed)], extension, environment)
        bill = bill_of_materials(copy, wheel, midnight)
    (output / f"dynamo-dap-{version}.cdx.json").write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
    built = sorted(output.iterdir())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in built]
    (output / CHECKSUMS).write_text("".join(sums), encoding="utf-8")
    return [*built, output / CHECKSUMS]


def check(root: Path, built: list[Path]) -> None:
    """Check what was built with the tools of the registries that it goes to.

    Raises:
        NotReleased: a tool refuses a file.
    """
    packages = [str(path) for path in built if path.suffix in (".whl", ".gz")]
    _run([sys.executable, "-m", "twine", "check", "--strict", *packages], root)
    _run([sys.executable, "-m", "validate_pyproject", "--disable", "trove_classifiers", "pyproject.toml"], root)
    _run([sys.executable, "-m", "check_manifest", "--no-build-isolation"], root)


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
    parser.add_argument("--check", action="store_true", help="run the registries' checks")
    parser.add_argument("--release", action="store_true", help="the same, from a release only; print how to publish it")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", metavar="FOLDER", help="default: dist")
    options = parser.parse_args()
    try:
        if options.release:
            require_release(ROOT)
        built = build(ROOT, options.output.resolve())
        if options.check or options.release:
            check(ROOT, built)
        for path in built:
            _say(f"{path.stat().st_size:>9,}  {path}")
        if options.release:
            _say(_how_to_publish(ROOT))
    except NotReleased as problem:
        sys.stderr.write(f"release: {problem}\n")
        return 1
    return 0


def _how_to_publish(root: Path) -> str:
    version, _ = version_and_date(root)
    tagging = "" if tagged_commit(root, version) else "  make tag\n"
    return (
        f"\nTo publish:\n{tagging}  git push origin v{version}\n"
        f"  twine upload dist/*.whl dist/*.tar.gz\n"
        f"  vsce publish --packagePath dist/dynamo-dap-{version}.vsix\n"
        f"  ovsx publish dist/dynamo-dap-{version}.vsix\n"
        f"Attach {CHECKSUMS} and the bill of materials (*.cdx.json) to the release of the tag.\n"
        "The URLs in pyproject.toml are placeholders until the repository has a public address."
    )


if __name__ == "__main__":
    sys.exit(main())
