"""Find the kubeconfig files, and check them before the library reads them.

The library's own error messages quote whole entries, tokens included; so errors are detected here first.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rebalancer.base.errors import ClusterReadError
from rebalancer.base.file_text import yaml_documents

_LISTS = {"clusters": "cluster", "contexts": "context", "users": "user"}
Entries = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ContextChoice:
    """The chosen context, validated."""

    files: tuple[Path, ...]
    context: str
    server: str
    proxy: str | None
    user: str
    runs: str | None
    """What has to be run or asked for credentials (an exec plugin's command, an auth provider)."""
    plugin: Mapping[str, Any] | None = None
    """The exec plugin as the file describes it, if there is one."""


def find_files(explicit: str | Path | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the kubeconfig files in kubectl's order: the flag, KUBECONFIG, ``~/.kube/config``.

    No file is no error (the process may run inside a cluster), unless a file was asked for.
    """
    home = Path(environ.get("HOME") or "~")
    if explicit is not None:
        path = _expand(str(explicit), home)
        if not path.is_file():
            wrong = "is no file" if path.exists() else "does not exist"
            raise ClusterReadError(f"kubeconfig {path} {wrong}: check --kubeconfig")
        return (path,)
    named = [
        _expand(name, home) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name
    ]
    if named:
        existing = tuple(path for path in named if path.is_file())
        if not existing:
            listed = ", ".join(str(path) for path in named)
            raise ClusterReadError(f"KUBECONFIG names no existing file ({listed})")
        return existing
    default = _expand("~/.kube/config", home)
    return (default,) if default.is_file() else ()


def choose(files: Sequence[Path], context: str | None) -> ContextChoice:
    """Return the chosen context of ``files``.

    Raises:
        ClusterReadError: a file is unreadable, not YAML or incomplete, or there is no such context.
    """
    shown = os.pathsep.join(str(path) for path in files)
    merged: dict[str, Entries] = {name: {} for name in _LISTS}
    current = ""
    for path in files:
        document = _read(path)
        for name, key in _LISTS.items():
            for entry, value in _entries(path, document, name, key).items():
                merged[name].setdefault(entry, value)
        # As kubectl: the first file to name it decides. The library takes the last; it is given ours.
        current = current or _name(document.get("current-context"), f"{path}: current-context")
    chosen = context or current
    contexts = merged["contexts"]
    if not chosen:
        raise ClusterReadError(
            f"kubeconfig {shown} names no current-context: choose one with --context"
            f" ({_among(contexts)})"
        )
    if chosen not in contexts:
        near = difflib.get_close_matches(chosen, contexts, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ClusterReadError(
            f"kubeconfig {shown} has no context {chosen}: {hint}{_among(contexts)}"
        )
    cluster = _find_entry(shown, chosen, contexts[chosen], merged["clusters"], "cluster")
    user = _find_entry(shown, chosen, contexts[chosen], merged["users"], "user")
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise ClusterReadError(
            f"kubeconfig {shown}: the cluster of context {chosen} has no server address"
            f" (https://host:port)"
        )
    return ContextChoice(
        files=tuple(files),
        context=chosen,
        server=server.rstrip("/"),
        proxy=cluster.get("proxy-url") or None,
        user=contexts[chosen].get("user") or "",
        runs=_runs(user),
        plugin=user["exec"] if isinstance(user.get("exec"), Mapping) else None,
    )


def _expand(name: str, home: Path) -> Path:
    return home / name[2:] if name.startswith("~/") else Path(name)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        documents = list(yaml_documents(path.read_bytes()))
    except OSError as error:
        raise ClusterReadError(f"kubeconfig {path} cannot be read: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        # Without the library's snippet of the text, which may hold a token.
        mark = error.problem_mark
        where = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ClusterReadError(f"kubeconfig {path}{where}: not YAML: {error.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ClusterReadError(f"kubeconfig {path} is not YAML") from None
    document = documents[0] if documents else None
    none = isinstance(document, Mapping) and not document.keys() & {*_LISTS, "current-context"}
    if none or not isinstance(document, Mapping) or len(documents) > 1:
        raise ClusterReadError(
            f"kubeconfig {path} is {'not a kubeconfig' if document else 'empty'}:"
            f" expected clusters, contexts and users"
        )
    return document


def _entries(path: Path, document: Mapping[str, Any], name: str, key: str) -> Entries:
    entries: Entries = {}
    listed = document.get(name) or []
    if not isinstance(listed, list):
        raise ClusterReadError(f"kubeconfig {path}: {name} is not a list")
    for index, entry in enumerate(listed):
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            raise ClusterReadError(f"kubeconfig {path}: {name}[{index}] has no name")
        value = entry.get(key)
        if value is None and name == "users":
            value = {}
        if not isinstance(value, Mapping):
            raise ClusterReadError(
                f"kubeconfig {path}: {name}[{index}] ({entry['name']}) has no {key}"
            )
        entries.setdefault(entry["name"], dict(value))
    return entries


def _find_entry(
    shown: str, context: str, value: Mapping[str, Any], entries: Entries, key: str
) -> dict[str, Any]:
    name = _name(value.get(key), f"{shown}: {key} of context {context}")
    if key == "user" and not name:
        return {}
    if name not in entries:
        raise ClusterReadError(
            f"kubeconfig {shown}: context {context} refers to {key} {name!r}, which is not there"
            f" ({_among(entries)})"
        )
    return entries[name]


def _name(value: Any, where: str) -> str:
    """Return a name; empty if there is none."""
    if not isinstance(value, str | None):
        raise ClusterReadError(f"kubeconfig {where} is not a name")
    return value or ""


def _runs(user: Mapping[str, Any]) -> str | None:
    plugin = user.get("exec")
    if isinstance(plugin, Mapping):
        return f"credential plugin {plugin.get('command')}"
    provider = user.get("auth-provider")
    if isinstance(provider, Mapping):
        return f"auth provider {provider.get('name')}"
    return None


def _among(entries: Mapping[str, Any]) -> str:
    return f"it has: {', '.join(sorted(entries))}" if entries else "it has none"
