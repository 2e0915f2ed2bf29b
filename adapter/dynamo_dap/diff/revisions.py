"""Writes the files of a git revision to a temporary folder, and leaves the user's checkout and repository alone.

Runs on the command's main thread. It runs git, with the repository of the working directory.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dynamo_dap.diff.sides import CannotCompare


@contextlib.contextmanager
def files_of_revision(revision: str) -> Iterator[Path]:
    """Yield a temporary folder that corresponds to the working directory in ``revision``.

    Raises:
        CannotCompare: git does not find the revision, or the folder is not in a repository.
    """
    commit = _git("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}").decode().strip()
    below = _git("rev-parse", "--show-prefix").decode().rstrip("\n")
    top = _git("rev-parse", "--show-toplevel").decode().rstrip("\n")
    archive = _git("-C", top, "archive", "--format=tar", commit)
    with tempfile.TemporaryDirectory(prefix="dynamo-dap-revision-", ignore_cleanup_errors=True) as folder:
        try:
            with tarfile.open(fileobj=io.BytesIO(archive)) as files:
                files.extractall(folder, filter="data")
        except (tarfile.TarError, OSError, TypeError) as problem:
            raise CannotCompare(f"cannot unpack {revision}: {problem}") from None
        path = Path(folder, below)
        if not path.is_dir():
            raise CannotCompare(f"{revision} has no folder {below}")
        yield path


def _git(*arguments: str) -> bytes:
    try:
        return subprocess.run(["git", *arguments], capture_output=True, check=True).stdout
    except OSError as problem:
        raise CannotCompare(f"cannot run git: {problem.strerror or problem}") from None
    except subprocess.CalledProcessError as problem:
        raise CannotCompare(problem.stderr.decode(errors="replace").strip() or "git fails") from None
