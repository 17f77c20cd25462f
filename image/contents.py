"""The list of what is in the image, with licences: CycloneDX 1.5, without times, so that equal images have equal lists."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from image import libraries, licences

FILE = Path("usr/share/kube-rebalancer/sbom.json")


def write_contents(root: Path, packages: Path, copied: Mapping[str, Path]) -> None:
    """Write the list of the distributions in ``packages``, the interpreter and the libraries ``copied`` under ``root``.

    Each with its licence, and with the name by which scanners know it. The licence texts of the libraries are written, too.

    Raises:
        UnknownLicenceError: the licence of one is not known, or not among those that are allowed.
    """
    version = platform.python_version()
    owners = {name: libraries.find_package(path) for name, path in copied.items()}
    libraries.copy_licences(root, filter(None, owners.values()))
    components = [
        {
            "type": "platform",
            "name": platform.python_implementation(),
            "version": version,
            "cpe": f"cpe:2.3:a:python:python:{version}:*:*:*:*:*:*:*",
            **_hashed(Path(sys.executable).resolve()),
            **_licensed(licences.INTERPRETER),
        },
        *_distributions(packages),
        *(_library(name, path, owners[name]) for name, path in sorted(copied.items())),
        *(_library(path.name, path, None) for path in sorted(packages.glob("*.libs/*.so*"))),
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


def _library(name: str, path: Path, owner: libraries.Package | None) -> dict[str, Any]:
    known = {} if owner is None else {"version": owner.version, "purl": owner.purl}
    return {
        "type": "file" if owner is None else "library",
        "name": name,
        **known,
        **_hashed(path),
        **_licensed(licences.of_library(name)),
    }


def _hashed(path: Path) -> dict[str, Any]:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"hashes": [{"alg": "SHA-256", "content": digest}]}


def _licensed(expression: str) -> dict[str, Any]:
    return {"licenses": [{"expression": expression}]}
