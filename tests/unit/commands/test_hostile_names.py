"""Every example, by every command that reads a snapshot, in every form, with hostile names: one name stays one line."""

from __future__ import annotations

import json
import unicodedata
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rebalancer.cli import command
from rebalancer.snapshot.store import MANIFEST, json_head

EXAMPLES = Path("docs/examples")
EVIL = "\x1b[31m\x1b]0;o\x07\r\nFAKE\u202e\u2028<script>alert(1)</script>"
"""Colours, the title of the window, a line end, the direction of writing, another line end, markup."""
_WORDS = (
    "name namespace nodeName message reason image claimName volumeName storageClassName priorityClassName provisioner"
    " providerID uid serviceName driver kubeletVersion nominatedNodeName value"
)
_NAMES = frozenset(_WORDS.split())
_MAPS = frozenset({"labels", "matchLabels", "nodeSelector", "annotations"})


def _spoil(value: Any, key: str = "") -> Any:
    """Append the hostile text to each name, label and message."""
    if isinstance(value, dict):
        return {
            name: one + EVIL
            if isinstance(one, str) and (name in _NAMES or (key in _MAPS and not one.isdigit()))
            else _spoil(one, name)
            for name, one in value.items()
        }
    if isinstance(value, list):
        of_text = key == "values"
        return [
            one + EVIL if of_text and isinstance(one, str) else _spoil(one, key) for one in value
        ]
    return value


def _write(example: Path, target: Path) -> dict[str, Any]:
    """Write the example with hostile names; return the objects of each list."""
    objects: dict[str, Any] = {}
    with zipfile.ZipFile(example) as source, zipfile.ZipFile(target, "w") as file:
        manifest = json.loads(source.read(MANIFEST))
        for stored in manifest["lists"]:
            whole = json.loads(source.read(stored["file"]))
            if stored["kind"] != "PersistentVolume":
                whole["items"] = _spoil(whole["items"])
            lines = b",\n".join(json.dumps(one).encode() for one in whole["items"])
            body = b"".join((json_head(stored["kind"]), b"\n" * bool(lines), lines, b"\n]}\n"))
            stored["bytes"] = len(body)
            objects[stored["kind"]] = whole["items"]
            file.writestr(stored["file"], body)
        manifest["source"] += EVIL
        file.writestr(MANIFEST, json.dumps(manifest))
    return objects


def _calls(objects: dict[str, Any]) -> Iterator[list[str]]:
    for form in ("table", "wide", "json", "yaml", "html", "markdown", "csv"):
        yield ["plan", "-o", form]
    for name in ("doctor", "advise", "capacity"):
        for form in ("table", "yaml", "html", "markdown"):
            yield [name, "-o", form]
    for form in ("table", "html", "markdown"):
        yield ["simulate", "--cycles", "2", "-o", form]
    yield ["explain", "node", objects["Node"][0]["metadata"]["name"]]
    yield ["explain", "node", f"zzz{EVIL}"]
    pod = objects["Pod"][0]["metadata"]
    yield ["explain", "pod", pod["name"], "-n", pod["namespace"]]
    yield ["explain", "pod", "zzz", "-n", pod["namespace"]]
    for owner in pod.get("ownerReferences", ())[:1]:
        yield ["explain", "workload", f"{pod['namespace']}/{owner['name']}"]


def _unprintable(text: str) -> set[str]:
    """Return the characters that a terminal acts on; Markdown's own word joiner is ours."""
    return {
        one
        for one in set(text) - {"\n", "\u2060"}
        if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    }


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.zip")), ids=lambda one: one.stem)
def test_hostile_names_are_text_in_every_form_of_every_command(example, tmp_path, capsys):
    file = tmp_path / "cluster.zip"
    objects = _write(example, file)
    policy = example.with_suffix(".yaml")
    given = ["--snapshot", str(file), *(["--policy", str(policy)] if policy.exists() else [])]
    for call in _calls(objects):
        code = command([*call, *given])
        printed = "".join(capsys.readouterr())
        assert code == 0 or (code == 2 and call[0] == "explain"), (call, printed)
        assert _unprintable(printed) == set(), call
        assert not [line for line in printed.splitlines() if line.startswith("FAKE")], call
        if "html" in call:
            assert "<script>alert" not in printed, call
