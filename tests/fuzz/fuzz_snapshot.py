"""Snapshot files: any bytes; or, where the first byte is 0, lists that are put into an archive of ours first.

A checksum is hard to meet by chance, so that mutated archives would hardly ever be read beyond it.
"""

from __future__ import annotations

import zipfile
from io import BytesIO

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.base.errors import PolicyError
from rebalancer.planner.planning import make_plan
from rebalancer.planner.rules import RunRules
from rebalancer.policy.load import load_text
from rebalancer.registry import Registry
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope
from rebalancer.snapshot.store import MANIFEST
from rebalancer.whatif.edits import read_objects
from tests.fuzz.target import Target, split

_MOST = 10_000
"""Pods times nodes that are planned on: a plan of more may take longer than an input has."""
_REGISTRY = Registry.installed()
_POLICY = b"apiVersion: rebalancer/v1\nkind: Policy\nprotect: {minPodAge: 0s}\n"
_RULES = RunRules(load_text(_POLICY, "policy", _REGISTRY), _REGISTRY, Scope())


def _read(data: bytes) -> None:
    whole = _archive(data[1:]) if data[:1] == b"\x00" else data
    _plan(load_snapshot("-", stdin=BytesIO(whole)))
    if whole.startswith(b"PK"):
        read_objects(whole).snapshot()


def _plan(snapshot: Snapshot) -> None:
    """Plan with all strategies that are on by default: what was read must be what the planner can count with."""
    if len(snapshot.pods) * len(snapshot.nodes) <= _MOST:
        make_plan(_RULES, snapshot, Timings(SystemClock()))


def _archive(data: bytes) -> bytes:
    nodes, pods, others, manifest = (*split(data), b"", b"", b"", b"")[:4]
    stream = BytesIO()
    sizes = (str(len(part)).encode() for part in (nodes, pods, others))
    for mark, size in zip((b"$n", b"$p", b"$o"), sizes, strict=True):
        manifest = manifest.replace(mark, size)
    with zipfile.ZipFile(stream, "w") as file:
        for name, text in (
            ("NodeList.json", nodes),
            ("PodList.pb", pods),
            ("others.json", others),
            (MANIFEST, manifest),
        ):
            with file.open(name, "w") as member:
                member.write(text)
    return stream.getvalue()


TARGET = Target(_read, (PolicyError,))
