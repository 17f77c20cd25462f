"""The names that random clusters are made of."""

from typing import Any

Manifest = dict[str, Any]

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
KEYS = (HOSTNAME, ZONE, ZONE, "rack")
ZONES = ("zone-a", "zone-b", "zone-c")
APPS = ("web", "api", "db", "cache")
VERSIONS = ("v1", "v2")
NAMESPACES = ("default", "team-a", "team-b")
OVERHEAD_CLASS = "sandboxed"
CSI_DRIVER = "disk.example.com"
IMAGES = {
    "registry.example.com/small:1": 60_000_000,
    "registry.example.com/large:2": 900_000_000,
    "registry.example.com/untagged": 300_000_000,
    "registry.example.com:5000/port": 400_000_000,
}
"""Images and their sizes; the nodes hold them with their implied tags."""
