"""`python -m benchmarks.resident.notice 1000:30000`: how long it is from a node's notice to the first eviction.

``serve`` follows a big cluster on a real API server, and one node after the other says that its machine will go. Nothing
there plays kubelets, so that a pod stays after its eviction: each notice has a process of its own. Times are the API server's.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml

from benchmarks.resident.process import serving
from benchmarks.scale.fill import OPTIONS, fill
from benchmarks.scale.measure import cpu_seconds
from benchmarks.scale.shape import Shape
from rebalancer.kube.access import ACT_RULES, EVENT_RULES, FOLLOW_RULES, MARK_RULES, READ_RULES
from rebalancer.signals.notice import NOTICE, NodeNotice, encode_notice
from tests.controlplane import audit, wait_until
from tests.controlplane.cluster import ControlPlane
from tests.e2e.product import ACCOUNT, grant

_say = functools.partial(print, flush=True)
_RULES = (*READ_RULES, *ACT_RULES, *FOLLOW_RULES, *EVENT_RULES, *MARK_RULES)
_USER = f"system:serviceaccount:default:{ACCOUNT}"
_OPTIONS = replace(OPTIONS, audit_policy=audit.policy({"users": [_USER]}))
_POLICY = {
    "apiVersion": "rebalancer/v1",
    "kind": "Policy",
    "protect": {"minPodAge": "0s"},
    "strategies": {"leaving": {}, "low-utilisation": {"mode": "off"}},
    "signals": {"kubernetes": {}},
    "safety": {"maxPendingPods": 1000},
}
"""The default strategies, but for the one that finds something to do in a random cluster."""
_PATIENCE = 300.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Announce some nodes, and print what that took."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.resident.notice", description=__doc__
    )
    parser.add_argument("size", nargs="?", default="1000:30000", metavar="NODES:PODS[:lean]")
    parser.add_argument("--notices", type=int, default=5)
    chosen = parser.parse_args(arguments)
    nodes, pods, *lean = chosen.size.split(":")
    shape = Shape(nodes=int(nodes), pods=int(pods), lean=bool(lean), drifted=0.0, doubled=0.0)
    with ControlPlane(_OPTIONS) as plane, tempfile.TemporaryDirectory() as folder:
        fill(plane, shape, _say)
        kubeconfig = grant(plane, _RULES)
        names = [
            node["metadata"]["name"]
            for node in plane.api.get(f"/api/v1/nodes?limit={chosen.notices}")["items"]
        ]
        took = [_until_evicted(plane, kubeconfig, Path(folder), name) for name in names]
    _say(f"median {statistics.median(took):.2f} s, most {max(took):.2f} s")
    return 0


def _until_evicted(plane: ControlPlane, kubeconfig: Path, folder: Path, node: str) -> float:
    """Return the seconds from the notice of a node to the first eviction that the server carries out."""
    policy = folder / "policy.yaml"
    policy.write_text(yaml.safe_dump(_POLICY))
    with serving(kubeconfig, every=3600, options=["--yes", f"--policy={policy}"]) as (process, log):
        wait_until(lambda: "nothing to do" in log.read_text(), _PATIENCE, "a first run")
        seen = audit.AuditLog(plane.audit_log)
        path = f"/api/v1/nodes/{node}"
        said, before = datetime.now(UTC), cpu_seconds(process.pid)
        deadline = (said + timedelta(minutes=10)).strftime("%Y-%m-%dT%H:%M:%SZ")
        notice = encode_notice(NodeNotice(f"spot-{node}", "spot", deadline))
        plane.api.patch(path, {"metadata": {"annotations": {NOTICE: notice}}})
        wait_until(lambda: seen.evictions(_USER), _PATIENCE, f"an eviction\n{log.read_text()}")
        used = cpu_seconds(process.pid) - before
    took = (min(one.at for one in seen.evictions(_USER)) - said).total_seconds()
    ours = [one for one in seen.requests() if one.user == _USER and one.verb != "watch"]
    for one in ours:
        _say(f"  {(one.at - said).total_seconds():6.2f} {one.verb} {one.resource}")
    _say(f"{node}: {took:.2f} s, {used:.2f} s of CPU")
    # The machine is gone as far as the next process is concerned.
    annotations = plane.api.get(path)["metadata"]["annotations"]
    gone = {key: None for key in annotations if key.startswith("rebalancer/")}
    plane.api.patch(path, {"metadata": {"annotations": gone}})
    return took


if __name__ == "__main__":
    sys.exit(main())
