"""How much a folder of recorded snapshots takes: a cluster of random shape that goes on, recorded every ten minutes.

Between two records every node has sent its heartbeat and a share of the pods has been replaced by others (new name, uid, node).
``python -m benchmarks.fleet.week --nodes 1000 --pods 30000 --churn 0.02``: one round (a whole snapshot and its deltas) is
recorded and scaled to a week.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.phases.families import cluster_of
from rebalancer.fleet.delta import SUFFIX, restore, write_delta
from rebalancer.fleet.record import FULL
from rebalancer.snapshot.store import Capture, SnapshotWriter

_ROUND = 24
_WEEK = 7 * 24 * 6


def objects(seed: int, nodes: int, pods: int) -> list[dict[str, Any]]:
    """Return the objects of a cluster, with the noise of real ones: random uids, addresses, images by digest."""
    draw = random.Random(seed)
    items = json.loads(cluster_of(seed, nodes, pods))["items"]
    for item in items:
        freshen(item, draw)
    return items


def freshen(item: dict[str, Any], draw: random.Random) -> None:
    meta = item["metadata"]
    meta["uid"] = f"{draw.getrandbits(128):032x}"
    meta["resourceVersion"] = str(draw.getrandbits(32))
    if item["kind"] == "Pod":
        status = item.setdefault("status", {})
        status["podIP"] = f"10.{draw.randrange(256)}.{draw.randrange(256)}.{draw.randrange(256)}"
        status["containerStatuses"] = [
            {"containerID": f"containerd://{draw.getrandbits(256):064x}", "ready": True}
        ]


def tick(items: list[dict[str, Any]], number: int, churn: float, draw: random.Random) -> None:
    """Let ten minutes pass."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1795168800 + 600 * number))
    nodes = [item["metadata"]["name"] for item in items if item["kind"] == "Node"]
    for item in items:
        if item["kind"] == "Node":
            item["metadata"]["resourceVersion"] = str(draw.getrandbits(32))
            for condition in item["status"]["conditions"]:
                condition["lastHeartbeatTime"] = at
        elif item["kind"] == "Pod" and draw.random() < churn:
            item["metadata"]["name"] = (
                f"{item['metadata']['name'].rpartition('-')[0]}-{draw.getrandbits(25):05x}"
            )
            item["spec"]["nodeName"] = draw.choice(nodes)
            freshen(item, draw)


def archive(items: list[dict[str, Any]]) -> bytes:
    stream = io.BytesIO()
    kinds = sorted({item["kind"] for item in items})
    with SnapshotWriter(stream) as writer:
        lists = [
            writer.write_json(kind, (json.dumps(i).encode() for i in items if i["kind"] == kind))
            for kind in kinds
        ]
        writer.close(Capture(1795168800.0, (1, 36), "7", tuple(kinds)), lists)
    return stream.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=30_000)
    parser.add_argument("--churn", type=float, default=0.02, help="share of the pods per record")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--records",
        type=int,
        default=_ROUND,
        help="of the round that are played; the last ones are the largest",
    )
    options = parser.parse_args()
    draw = random.Random(options.seed)
    items = objects(options.seed, options.nodes, options.pods)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base, new, delta = folder / f"a{FULL}", folder / "new.zip", folder / f"b{SUFFIX}"
        base.write_bytes(archive(items))
        sizes, seconds = [], 0.0
        for number in range(1, options.records):
            tick(items, number, options.churn, draw)
            new.write_bytes(archive(items))
            started = time.process_time()
            with delta.open("wb") as stream:
                write_delta(base, new, stream)
            seconds += time.process_time() - started
            sizes.append(delta.stat().st_size)
        with delta.open("rb") as stream:
            restored = restore(stream, lambda name: (folder / name).open("rb"))
        assert restored.getvalue() == new.read_bytes()
        full = base.stat().st_size
    of_round = full + sum(sizes)
    week = of_round / options.records * _WEEK
    print(
        f"whole: {full / 1e6:.2f} MB; first delta {sizes[0] / 1e6:.2f} MB, last {sizes[-1] / 1e6:.2f} MB"
    )
    print(
        f"week of {_WEEK} records: {week / 1e9:.2f} GB; without deltas {full * _WEEK / 1e9:.2f} GB"
    )
    print(f"{seconds / len(sizes):.2f} s of CPU for a delta")


if __name__ == "__main__":
    main()
