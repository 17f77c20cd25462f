"""The peer and ours after ``policy migrate``, on random small clusters under random policies of the peer's shape.

python -m benchmarks.peer --cases 300 --first 0

Exit code 1 where ours would evict a pod that the peer could not, or a difference has no name.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import yaml

from benchmarks.peer.binary import evicted_by_peer
from benchmarks.peer.clusters import frozen_cluster
from benchmarks.peer.differences import UNNAMED, Comparison, compared
from benchmarks.peer.policies import random_policy, scope_policy
from rebalancer.base.environment import Environment, SystemClock
from rebalancer.commands.run import run_once
from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.migrate.merge import as_file, convert_policy
from rebalancer.policy.load import load_text
from rebalancer.registry import Registry
from rebalancer.run.options import RunOptions

_LOOKS = 4
"""At what the peer could evict, before a pod is taken to be outside of it."""
_KNOWN = Registry.installed()


def case(seed: int) -> tuple[Comparison, dict[str, Any]]:
    """Play one cluster and policy; return the comparison and the peer's policy."""
    random = Random(seed)
    policy = random_policy(random)
    with frozen_cluster(random, float(int(time.time()))) as cluster:
        theirs = evicted_by_peer(cluster.kubeconfig, policy)
        scope = theirs | evicted_by_peer(cluster.kubeconfig, scope_policy(policy))
        migration = convert_policy(json.dumps(policy).encode(), "peer", _KNOWN)
        text = as_file(migration.data, migration.head, _KNOWN)
        report = _planned(cluster, text)
        limited = any(key.startswith("maxNo") for key in policy)
        ours = load_text(text.encode(), "ours", _KNOWN).policy
        for _ in range(_LOOKS):
            result = compared(cluster.snapshot(), ours, report, theirs, scope, limited=limited)
            if not result.outside:
                break
            # On a busy machine a cycle of the peer's dry run may not see the whole cluster.
            scope |= evicted_by_peer(cluster.kubeconfig, scope_policy(policy))
        return result, policy


def _planned(cluster: EmbeddedCluster, policy: str) -> dict[str, Any]:
    """Return the report of a dry run of ours."""
    out, err = io.StringIO(), io.StringIO()
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(policy)
        file.flush()
        options = RunOptions.of(
            policy_path=file.name,
            kubeconfig=str(cluster.kubeconfig),
            quiet=True,
            output="json",
            dry_run=True,
        )
        code = run_once(options, Environment(SystemClock(), {}, out, err, threading.Event()))
    if code:
        raise RuntimeError(f"exit code {code}: {err.getvalue()}")
    report: dict[str, Any] = json.loads(out.getvalue())
    return report


def main(argv: Sequence[str]) -> int:
    """Play the cases; print the table of kinds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kept", type=Path, help="folder for the policies of what fails")
    given = parser.parse_args(argv)
    kinds: Counter[str] = Counter()
    plugins: Counter[str] = Counter()
    both = ours = theirs = 0
    failed: list[str] = []
    for seed in range(given.first, given.first + given.cases):
        result, policy = case(seed)
        kinds += result.kinds
        plugins.update(c["name"] for c in policy["profiles"][0]["pluginConfig"])
        both, ours, theirs = both + result.both, ours + result.ours, theirs + result.theirs
        if result.outside or result.unnamed:
            failed.append(f"{seed}: outside {result.outside}, {UNNAMED} {result.unnamed}")
            print(failed[-1], yaml.safe_dump(policy), sep="\n", flush=True)
            if given.kept is not None:
                (given.kept / f"{seed}.yaml").write_text(yaml.safe_dump(policy))
        if (seed + 1) % 25 == 0:
            print(f"{seed + 1} cases", file=sys.stderr, flush=True)
    print(f"cases {given.cases}; evictions: ours {ours}, theirs {theirs}, of the same pod {both}")
    print(f"ours outside the peer's scope, or without a name: {len(failed)}\n")
    print("| policies with | |\n|---|---|")
    for name, count in sorted(plugins.items()):
        print(f"| {name} | {count} |")
    print("\n| difference | pods |\n|---|---|")
    for name, count in sorted(kinds.items()):
        print(f"| {name} | {count} |")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
