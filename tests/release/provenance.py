"""Where the files of a release come from, as SLSA provenance in an in-toto statement, and its signature.

Equal sources on equal machines give equal bytes: the statement names no time and no run. Ed25519 signatures are the
same each time, too.
"""

from __future__ import annotations

import base64
import hashlib
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from tests.release.source import ReleaseError, Source

KEY_VARIABLE = "RELEASE_SIGNING_KEY"
"""The environment variable with the private key: Ed25519, PKCS #8 in PEM."""
_TYPE = "application/vnd.in-toto+json"
# Names, and no addresses: nothing is served there.
_BUILD_TYPE = "https://kube-rebalancer.invalid/make-release/v1"
_BUILDER = "https://kube-rebalancer.invalid/builder/make-release"
_PINS = (
    "requirements-dev.txt",
    "image/requirements.txt",
    "image/build-requirements.txt",
    "tests/release/requirements.txt",
)


def statement(source: Source, subjects: Mapping[str, str], pins: Mapping[str, str]) -> bytes:
    """Return the statement: ``subjects`` are the files of the release, ``pins`` those of what they are made with.

    Both are name -> SHA-256.
    """
    commit = {"uri": "git+checkout", "digest": {"gitCommit": source.commit}}
    of = [{"uri": f"file:{name}", "digest": {"sha256": sha}} for name, sha in sorted(pins.items())]
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    data = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": name, "digest": {"sha256": sha}} for name, sha in sorted(subjects.items())
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD_TYPE,
                "externalParameters": {"version": source.version, "target": "make release"},
                "internalParameters": machine,
                "resolvedDependencies": [commit, *of],
            },
            "runDetails": {"builder": {"id": _BUILDER}},
        },
    }
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def pinned(folder: Path) -> dict[str, Path]:
    """Return the files that pin what a release is made with, by their names."""
    return {name: folder / name for name in _PINS}


def of_machine(listed: bytes) -> dict[str, str]:
    """Return the interpreter and the libraries of the machine that lie in an image, by its list: name -> SHA-256."""
    return {
        f"image/{one['name']}": one["hashes"][0]["content"]
        for one in json.loads(listed)["components"]
        if "hashes" in one
    }


def signing_key(environment: Mapping[str, str]) -> Ed25519PrivateKey | None:
    """Return the key in the environment; None if there is none.

    Raises:
        ReleaseError: it is no Ed25519 key. The message never has any of it.
    """
    text = environment.get(KEY_VARIABLE, "")
    if not text:
        return None
    try:
        key = load_pem_private_key(text.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ReleaseError(
            f"{KEY_VARIABLE} is no Ed25519 key in PEM, as `openssl genpkey -algorithm ed25519` prints it; it holds the key, not the path of a file"
        )
    return key


def envelope(payload: bytes, key: Ed25519PrivateKey) -> bytes:
    """Return a DSSE envelope of a statement."""
    head = f"DSSEv1 {len(_TYPE)} {_TYPE} {len(payload)} ".encode()
    data: dict[str, Any] = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": _TYPE,
        "signatures": [
            {"keyid": key_id(key), "sig": base64.b64encode(key.sign(head + payload)).decode()}
        ],
    }
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def key_id(key: Ed25519PrivateKey) -> str:
    """Return the SHA-256 of the public key, by which people compare it."""
    der = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def public_key(key: Ed25519PrivateKey) -> bytes:
    """Return the public key in PEM, as openssl reads it."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
