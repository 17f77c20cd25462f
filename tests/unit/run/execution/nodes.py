"""Nodes of a scripted API server: they keep their taints, and refuse a patch on another version of them."""

from __future__ import annotations

from typing import Any

from tests.unit.kube.scripted import Asked, Say, ScriptedServer, status_body

OTHERS = {
    "key": "dedicated",
    "value": "x",
    "effect": "NoSchedule",
    "timeAdded": "2026-11-20T10:00:00Z",
}


def mark(value: str) -> dict[str, str]:
    """Return a mark as it stands on a node."""
    key = "rebalancer/empty" if value.startswith("empty.") else "rebalancer/mark"
    return {"key": key, "value": value, "effect": "PreferNoSchedule"}


class Nodes:
    """The nodes of a server, by name."""

    def __init__(self, server: ScriptedServer, **taints: list[dict[str, Any]]) -> None:
        self.taints = taints
        self.versions = dict.fromkeys(taints, 1)
        self.broken: set[str] = set()
        """Nodes that cannot be patched."""
        self.changed_behind: set[str] = set()
        """Nodes that another client changes right after they were read, once."""
        for name in taints:
            path = f"/api/v1/nodes/{name}"
            server.handle("GET", path, lambda _, name=name: self._read(name))  # type: ignore[misc]
            server.handle("PATCH", path, lambda asked, name=name: self._patch(name, asked))  # type: ignore[misc]
        server.handle("GET", "/api/v1/nodes", self._list)

    @property
    def marks(self) -> dict[str, list[str]]:
        """Node -> the values of its marks, where it has any."""
        marks = {
            node: [taint["value"] for taint in taints if taint["key"].startswith("rebalancer/")]
            for node, taints in self.taints.items()
        }
        return {node: values for node, values in marks.items() if values}

    def _object(self, name: str) -> dict[str, Any]:
        version = str(self.versions[name])
        metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": version}
        return {"metadata": metadata, "spec": {"taints": self.taints[name]}}

    def _read(self, name: str) -> Say:
        answer = Say(self._object(name))
        if name in self.changed_behind:
            self.changed_behind.discard(name)
            self.versions[name] += 1
            self.taints[name] = [*self.taints[name], OTHERS]
        return answer

    def _patch(self, name: str, asked: Asked) -> Say:
        if name in self.broken:
            return Say(status_body(403, "nodes is forbidden"), 403)
        if asked.body["metadata"]["resourceVersion"] != str(self.versions[name]):
            return Say(status_body(409, "the object has been modified"), 409)
        self.versions[name] += 1
        self.taints[name] = asked.body["spec"]["taints"] or []
        return Say(self._object(name))

    def _list(self, asked: Asked) -> Say:
        names = sorted(self.taints)
        start = int(asked.query.get("continue", 0))
        rest = {"continue": str(start + 1)} if start + 1 < len(names) else {}
        metadata = {"resourceVersion": "9", **rest}
        return Say({"items": [self._object(names[start])], "metadata": metadata})
