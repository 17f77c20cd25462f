"""The list of what is in the image: CycloneDX 1.5, without time stamps, so that equal images have equal lists."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = Path("usr/share/kube-rebalancer/sbom.json")


def write_contents(root: Path, packages: Path, libraries: Mapping[str, Path]) -> None:
    """Write the list of the distributions in ``packages``, the interpreter and ``libraries`` under ``root``."""
    components = [
        {
            "type": "platform",
            "name": platform.python_implementation(),
            "version": platform.python_version(),
        },
        *_distributions(packages),
        *(_library(name, path) for name, path in sorted(libraries.items())),
    ]
    listed = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "components": components,
    }
    file = root / FILE
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(listed, indent=2) + "\n")


def _distributions(packages: Path) -> list[dict[str, Any]]:
    found = {
        (dist.name.lower(), dist.version): dist.metadata.json.get("license_expression")
        for dist in importlib.metadata.distributions(path=[str(packages)])
    }
    return [
        {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name.replace('_', '-')}@{version}",
            **({"licenses": [{"expression": licence}]} if licence else {}),
        }
        for (name, version), licence in sorted(found.items())
    ]


def _library(name: str, path: Path) -> dict[str, Any]:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"type": "file", "name": name, "hashes": [{"alg": "SHA-256", "content": digest}]}
