"""The list of what is in the image, with licences: CycloneDX 1.5, without times, so that equal images have equal lists."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from image import licences

FILE = Path("usr/share/kube-rebalancer/sbom.json")


def write_contents(root: Path, packages: Path, libraries: Mapping[str, Path]) -> None:
    """Write the list of the distributions in ``packages``, the interpreter and ``libraries`` under ``root``.

    Each with its licence.

    Raises:
        UnknownLicenceError: the licence of one is not known, or not among those that are allowed.
    """
    components = [
        {
            "type": "platform",
            "name": platform.python_implementation(),
            "version": platform.python_version(),
            **_licensed(licences.INTERPRETER),
        },
        *_distributions(packages),
        *(_library(name, path) for name, path in sorted(libraries.items())),
        *(_library(path.name, path) for path in sorted(packages.glob("*.libs/*.so*"))),
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
    by_name = {
        (dist.name.lower(), dist.version): licences.of_distribution(dist)
        for dist in importlib.metadata.distributions(path=[str(packages)])
    }
    return [
        {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name.replace('_', '-')}@{version}",
            **_licensed(licence),
        }
        for (name, version), licence in sorted(by_name.items())
    ]


def _library(name: str, path: Path) -> dict[str, Any]:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {
        "type": "file",
        "name": name,
        "hashes": [{"alg": "SHA-256", "content": digest}],
        **_licensed(licences.of_library(name)),
    }


def _licensed(expression: str) -> dict[str, Any]:
    return {"licenses": [{"expression": expression}]}
