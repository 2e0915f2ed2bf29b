"""Makes a release's bill of materials, in CycloneDX's JSON format.

It lists what the artifacts contain of others (npm packages in the extension, scripts in the report's page), and what
pip installs along (the wheel's requirements, by range). The extension's bundler says which npm packages it took.
"""

from __future__ import annotations

import datetime as dt
import email.parser
import json
import re
import uuid
import zipfile
from pathlib import Path
from typing import Any

FORMAT_VERSION = "1.6"
_BUNDLED = "out/bundled.json"


def bill_of_materials(root: Path, wheel: Path, when: dt.datetime) -> dict[str, Any]:
    """Return the bill of materials of the wheel and of the extension that was built in ``root``."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.parser.Parser().parsestr(archive.read(name).decode())
    version = metadata["Version"]
    reference = f"pkg:pypi/dynamo-dap@{version}"
    bundled = _npm_packages(root / "vscode-extension")
    required = _requirements(metadata.get_all("Requires-Dist") or [])
    components = [*bundled, *required]
    names = [component["bom-ref"] for component in components]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": FORMAT_VERSION,
        # The same release has the same number.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, reference)}",
        "version": 1,
        "metadata": {
            "timestamp": when.isoformat().replace("+00:00", "Z"),
            "component": {
                "type": "application",
                "bom-ref": reference,
                "name": "dynamo-dap",
                "version": version,
                "description": metadata["Summary"],
                "licenses": [{"license": {"id": metadata["License-Expression"]}}],
                "purl": reference,
            },
        },
        "components": components,
        "dependencies": [{"ref": reference, "dependsOn": names}, *({"ref": name} for name in names)],
    }


def _npm_packages(extension: Path) -> list[dict[str, Any]]:
    """Return the packages whose code is in the extension's bundles."""
    inputs = json.loads((extension / _BUNDLED).read_text(encoding="utf-8"))
    locked = json.loads((extension / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    folders = {
        found[1]
        for path in inputs
        if (found := re.search(r"(node_modules/(?:.*node_modules/)?(?:@[^/]+/)?[^/]+)/", path))
    }
    packages = []
    for folder in sorted(folders):
        name, entry = folder.rpartition("node_modules/")[2], locked[folder]
        purl = f"pkg:npm/{name.replace('@', '%40')}@{entry['version']}"
        packages.append(_component(name, entry["version"], entry.get("license"), purl))
    return packages


def _requirements(required: list[str]) -> list[dict[str, Any]]:
    """Return what pip installs along with the wheel; the ranges are properties, as nothing is pinned."""
    ranges: dict[str, list[str]] = {}
    for requirement in required:
        if "extra ==" in requirement:
            continue
        name = re.match(r"[\w.-]+", requirement)
        assert name is not None
        ranges.setdefault(name[0].lower().replace("_", "-"), []).append(requirement)
    components = []
    for package, texts in sorted(ranges.items()):
        component = _component(package, None, None, f"pkg:pypi/{package}")
        component["properties"] = [{"name": "dynamo-dap:requirement", "value": text} for text in texts]
        components.append(component)
    return components


def _component(name: str, version: str | None, licence: str | None, purl: str) -> dict[str, Any]:
    component: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name}
    if version is not None:
        component["version"] = version
    if licence is not None:
        is_expression = " " in licence
        component["licenses"] = [{"expression": licence} if is_expression else {"license": {"id": licence}}]
    component["purl"] = purl
    return component
