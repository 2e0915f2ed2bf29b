"""One release is built for all tests of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.release.artifacts import NewUser, Release, build_a_copy, new_user


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """Return a release of the repository as it is."""
    return build_a_copy(tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("release") / "dist")


@pytest.fixture(scope="session")
def user(release: Release, tmp_path_factory: pytest.TempPathFactory) -> NewUser:
    """Return a new user with torch and the wheel."""
    return new_user(release, tmp_path_factory.mktemp("user"), Path(sys.executable), with_torch=True)
