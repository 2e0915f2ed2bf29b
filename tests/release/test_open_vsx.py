"""Open VSX's own command line reads the extension and sends it whole, here to a small registry on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.release.artifacts import Release

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

_PACKAGE = "ovsx@1.4.0"


class Registry(ThreadingHTTPServer):
    """Accepts every upload, and keeps its path and checksum."""

    uploads: list[tuple[str, str]]

    @property
    def address(self) -> str:
        """The base of its API."""
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        """Answer which version of the API this is."""
        self._send(200, {"version": "1.0.0"})

    def do_POST(self) -> None:
        """Take an upload, which comes in chunks."""
        received = bytearray()
        while size := int(self.rfile.readline(), 16):
            received += self.rfile.read(size)
            self.rfile.readline()
        self.server.uploads.append((self.path.partition("?")[0], hashlib.sha256(received).hexdigest()))
        self._send(201, {"namespace": "dynamo-dap", "name": "dynamo-dap", "version": "0"})

    def _send(self, status: int, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_request(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def registry() -> Iterator[Registry]:
    """Return a registry on this machine."""
    server = Registry(("127.0.0.1", 0), _Answer)
    server.uploads = []
    thread = threading.Thread(target=server.serve_forever, name="registry")
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def ovsx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the command, installed into a folder of its own."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("ovsx")
    command = ["npm", "install", "--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund", _PACKAGE]
    installed = subprocess.run(command, capture_output=True, check=False, text=True, timeout=600)
    if installed.returncode:
        pytest.skip(f"{_PACKAGE} cannot be installed: {installed.stderr[-300:]}")
    return folder / "node_modules" / ".bin" / "ovsx"


def _publish(ovsx: Path, registry: Registry, extension: Path) -> subprocess.CompletedProcess[str]:
    command = [str(ovsx), "publish", "--registryUrl", registry.address, "--pat", "a-token", str(extension)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OVSX_")}
    return subprocess.run(command, env=environment, capture_output=True, check=False, text=True, timeout=300)


def test_the_extension_is_sent_whole(ovsx: Path, registry: Registry, release: Release) -> None:
    extension = release.file("*.vsix")
    published = _publish(ovsx, registry, extension)
    assert published.returncode == 0, published.stdout + published.stderr
    assert registry.uploads == [("/api/-/publish", hashlib.sha256(extension.read_bytes()).hexdigest())]


def test_an_extension_without_its_manifest_is_refused(
    ovsx: Path, registry: Registry, release: Release, tmp_path: Path
) -> None:
    """So that the test above cannot pass with a command that reads nothing."""
    broken = tmp_path / "broken.vsix"
    with zipfile.ZipFile(release.file("*.vsix")) as whole, zipfile.ZipFile(broken, "w") as copy:
        for name in whole.namelist():
            if name != "extension/package.json":
                copy.writestr(name, whole.read(name))
    refused = _publish(ovsx, registry, broken)
    assert refused.returncode == 1, refused.stdout
    assert not registry.uploads
