"""``rebalancer demo``: a cluster drifts, a run repairs it, a second run has nothing to do.

The cluster is embedded; the runs are those of the command line, over HTTP.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from rebalancer.base.errors import ExitCode, RebalancerError
from rebalancer.base.output import create_file
from rebalancer.base.plain_text import WIDTH
from rebalancer.embedded.apiserver.kinds import Json
from rebalancer.embedded.apiserver.store import EmbeddedClock
from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.embedded.controllers.pods import controller_of, is_active
from rebalancer.embedded.engine import Durations
from rebalancer.embedded.manifests import (
    HOSTNAME,
    ZONE,
    deployment,
    pdb,
    prefer_apart,
    require_apart,
    spread,
    statefulset,
)

ZONES = ("zone-a", "zone-b", "zone-c")
SHOP = "shop"
_NODES_PER_ZONE = 4
_SET_UP_SECONDS = 300.0
_QUIET_SECONDS = 600.0

RULES: Mapping[str, str] = {
    "api": "spread over zones, soft",
    "cart": "apart by zone, preferred",
    "checkout": "spread over zones, hard",
    "images": "apart by host, required",
    "ledger": "StatefulSet, spread, soft",
    "mail": "nothing",
    "metrics": "apart by host, preferred",
    "payments": "spread, soft; PDB: 3 of 4",
    "search": "apart by zone, preferred",
}
"""Placement rules of each workload of the second drift, in few words."""


def two_zones(cluster: EmbeddedCluster) -> None:
    """Three replicas with preferred anti-affinity by zone, and only two zones."""
    for zone in ZONES[:2]:
        _join(cluster, zone, 2)
    cluster.advance(_SET_UP_SECONDS)
    cluster.apply(deployment(SHOP, 3, affinity=prefer_apart({"app": SHOP})))
    cluster.advance(_SET_UP_SECONDS)


def third_zone(cluster: EmbeddedCluster) -> None:
    """A node of the third zone joins; some minutes pass."""
    _join(cluster, ZONES[2], 1)
    cluster.advance(_QUIET_SECONDS)


def many_workloads(cluster: EmbeddedCluster) -> None:
    """Twelve nodes in three zones, nine workloads, all rules met."""
    for zone in ZONES:
        _join(cluster, zone, _NODES_PER_ZONE)
    cluster.advance(_SET_UP_SECONDS)
    cluster.apply(*_workloads())
    cluster.advance(_SET_UP_SECONDS)


def zone_lost(cluster: EmbeddedCluster) -> None:
    """The third zone is lost with its pods; their replacements are in the other two."""
    for number in range(_NODES_PER_ZONE):
        cluster.remove_node(_name(ZONES[2], number))
    cluster.advance(_QUIET_SECONDS)


def zone_back(cluster: EmbeddedCluster) -> None:
    """The third zone is back, empty; some minutes pass."""
    _join(cluster, ZONES[2], _NODES_PER_ZONE)
    cluster.advance(_QUIET_SECONDS)


def _join(cluster: EmbeddedCluster, zone: str, nodes: int) -> None:
    for number in range(nodes):
        cluster.add_node(_name(zone, number), zone)


def _name(zone: str, number: int) -> str:
    return f"node-{zone[-1]}{number + 1}"


def _workloads() -> list[dict[str, Any]]:
    def labels(name: str) -> dict[str, str]:
        return {"app": name}

    def soft(name: str) -> list[dict[str, Any]]:
        return [spread(labels(name), hard=False)]

    return [
        deployment("api", 6, topologySpreadConstraints=soft("api")),
        deployment("cart", affinity=prefer_apart(labels("cart"))),
        deployment("checkout", topologySpreadConstraints=[spread(labels("checkout"))]),
        deployment("images", affinity=require_apart(labels("images"))),
        deployment("mail", 2),
        deployment("metrics", affinity=prefer_apart(labels("metrics"), HOSTNAME)),
        deployment("payments", 4, topologySpreadConstraints=soft("payments")),
        deployment("search", affinity=prefer_apart(labels("search"))),
        statefulset("ledger", topologySpreadConstraints=soft("ledger")),
        pdb("payments", labels("payments"), minAvailable=3),
    ]


# -- of a cluster that lives on: nothing is advanced, pods start and stop meanwhile -------------------------


def _lose_zone(cluster: EmbeddedCluster) -> None:
    for node in cluster.objects("Node"):
        if node["metadata"]["labels"].get(ZONE) == ZONES[2]:
            cluster.remove_node(node["metadata"]["name"])
    cluster.settle()


def _bring_zone_back(cluster: EmbeddedCluster) -> None:
    _lose_zone(cluster)
    _join(cluster, ZONES[2], _NODES_PER_ZONE)
    cluster.settle()


def _add_nodes(cluster: EmbeddedCluster) -> None:
    there = len(cluster.objects("Node"))
    for zone in ZONES:
        cluster.add_node(f"node-{zone[-1]}{there + 1}", zone)
    cluster.settle()


def _drain_and_return(cluster: EmbeddedCluster) -> None:
    names = [f"node-{zone[-1]}1" for zone in ZONES if _is_there(cluster, f"node-{zone[-1]}1")]
    cluster.cordon(names)
    for pod in cluster.objects("Pod"):
        if pod["spec"].get("nodeName") in names:
            cluster.delete("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
    cluster.settle()
    cluster.cordon(names, on=False)


def _is_there(cluster: EmbeddedCluster, node: str) -> bool:
    return any(each["metadata"]["name"] == node for each in cluster.objects("Node"))


LIVE: Mapping[str, tuple[str, Callable[[EmbeddedCluster], None]]] = {
    "zone-lost": (f"{ZONES[2]} is lost with its nodes", _lose_zone),
    "zone-back": (f"{ZONES[2]} was lost and is back, empty", _bring_zone_back),
    "new-nodes": ("a node has joined in each zone, empty", _add_nodes),
    "drained-return": ("a node of each zone was emptied and is back", _drain_and_return),
}
"""Name of an event -> its description, and the function that causes it."""


ZoneCounts = Mapping[str, Counter[str]]
"""Workload -> zone -> replicas."""


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod with its node and zone."""

    name: str
    uid: str
    workload: str
    node: str
    zone: str


def list_placed(cluster: EmbeddedCluster) -> list[PlacedPod]:
    """Return the pods that count as replicas, by name."""
    zones = zones_of(cluster)
    pods = []
    for pod in cluster.objects("Pod"):
        if not is_active(pod):
            continue
        node = pod["spec"].get("nodeName", "")
        metadata = pod["metadata"]
        pods.append(
            PlacedPod(
                metadata["name"], metadata["uid"], workload_of(pod), node, zones.get(node, "")
            )
        )
    return pods


def zones_of(cluster: EmbeddedCluster) -> dict[str, str]:
    """Return the zone of every node."""
    return {
        node["metadata"]["name"]: node["metadata"]["labels"].get(ZONE, "")
        for node in cluster.objects("Node")
    }


def workload_of(pod: Mapping[str, Any]) -> str:
    """Return the name of a pod's workload: the Deployment, not its ReplicaSet."""
    reference = controller_of(pod)
    if reference is None:
        return str(pod["metadata"]["name"])
    name = reference["name"]
    return name.rsplit("-", 1)[0] if reference["kind"] == "ReplicaSet" else name


def zone_counts(pods: Sequence[PlacedPod]) -> dict[str, Counter[str]]:
    """Return the number of replicas per workload and zone."""
    counts: dict[str, Counter[str]] = {}
    for pod in pods:
        counts.setdefault(pod.workload, Counter())[pod.zone] += 1
    return counts


def predict_counts(
    before: ZoneCounts, moves: Sequence[Mapping[str, Any]]
) -> dict[str, Counter[str]]:
    """Return the counts of :func:`zone_counts` after the moves, each landed in its most probable zone.

    ``moves`` are those of a JSON report; see :func:`move_zones`.
    """
    counts = {workload: Counter(zones) for workload, zones in before.items()}
    for move in moves:
        workload = move["owner"].rsplit("/", 1)[1]
        counts[workload][move["from_zone"]] -= 1
        counts[workload][move["to_zone"]] += 1
    return counts


def move_zones(
    moves: Sequence[Mapping[str, Any]], zones: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the moves of a JSON report with ``from_zone``, and the most probable ``to_zone``."""
    zoned = []
    for move in moves:
        chances: Counter[str] = Counter()
        for landing in move["landings"]:
            chances[zones[landing["node"]]] += landing["probability"]
        likely = max(sorted(chances), key=lambda zone: chances[zone]) if chances else ""
        zoned.append({**move, "from_zone": zones.get(move["from"], ""), "to_zone": likely})
    return zoned


def draw_zones(pods: Sequence[PlacedPod], present: Sequence[str], new: frozenset[str]) -> list[str]:
    """Return the zones with their pods, one per line; those with a uid in ``new`` are marked."""
    lines = []
    for zone in ZONES:
        shown = [
            f"{p.name} ({p.node}{', new' if p.uid in new else ''})" for p in pods if p.zone == zone
        ]
        if not shown:
            shown = ["-" if zone in present else "(no node)"]
        lines += [f"  {zone if i == 0 else ' ' * len(zone)}   {pod}" for i, pod in enumerate(shown)]
    return lines


def draw_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, with columns as wide as their widest cell."""
    widths = [max(len(row[i]) for row in (headings, *rows)) for i in range(len(headings))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (headings, ["-" * width for width in widths], *rows)
    ]
    return [f"  {line}" for line in lines]


def format_counts(counts: Mapping[str, int]) -> str:
    """Return replicas per zone as ``2/1/0``."""
    return "/".join(str(counts.get(zone, 0)) for zone in ZONES)


Run = Callable[[Sequence[str]], int]
"""The command line: arguments in, exit code out."""

_TIMINGS = Durations(start_up=3.0, shutdown=2.0)
_PAST_SECONDS = 7200.0
_SEED = 7


def run_demo(
    run: Run,
    *,
    speed: float = 1.0,
    out: TextIO | None = None,
    now: Callable[[], float] = time.time,
    report: Path | None = None,
) -> int:
    """Show the demo on ``out``; return 0 if everything happened as described.

    ``report``: a file for the plan of the second part as HTML.

    ``speed`` divides the times that pods take to start and to stop. A run that fails ends the demo with its exit
    code; any other difference from the description returns 1.
    """
    screen = _Screen(out if out is not None else sys.stdout)
    demo = _Demo(screen, run, speed, now)
    try:
        demo.first()
        demo.second(report)
    except _DemoFailedError as end:
        screen.say(f"The demo failed: {end}")
        return end.code
    if report is not None:
        screen.say("The plan of the second part, as HTML:")
        screen.show([f"    {report}"])
    screen.say(
        "That was all. The same on a cluster of yours, without touching anything: rebalancer plan"
    )
    return 0


class _DemoFailedError(Exception):
    """Something did not happen as the demo describes it."""

    def __init__(self, why: str, code: int = 1) -> None:
        super().__init__(why)
        self.code = code


class _Screen:
    """Writes wrapped paragraphs; headings are bold on a terminal."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self._bold, self._plain = ("\x1b[1m", "\x1b[0m") if out.isatty() else ("", "")

    def title(self, text: str) -> None:
        self._write(f"\n{self._bold}{text}{self._plain}\n{'=' * min(WIDTH, len(text))}\n")

    def say(self, text: str) -> None:
        # A path stays whole.
        lines = textwrap.fill(text, WIDTH, break_on_hyphens=False, break_long_words=False)
        self._write(f"\n{lines}\n")

    def show(self, lines: Sequence[str]) -> None:
        self._write("\n" + "\n".join(lines) + "\n")

    def command(self, text: str) -> None:
        """Write a command line before it is run."""
        self._write(f"\n{self._bold}$ {text}{self._plain}\n\n")

    def _write(self, text: str) -> None:
        # Flushed, because the output of the next run goes through another buffer.
        self.out.write(text)
        self.out.flush()


class _Demo:
    def __init__(self, screen: _Screen, run: Run, speed: float, now: Callable[[], float]) -> None:
        self._screen, self._run, self._now = screen, run, now
        self._timings = _TIMINGS.faster(speed)

    @contextlib.contextmanager
    def _cluster(self) -> Iterator[EmbeddedCluster]:
        """Yield a cluster that began two hours ago, so that no pod is too young to be moved."""
        clock = EmbeddedClock(self._now() - _PAST_SECONDS, self._now)
        with EmbeddedCluster(clock, seed=_SEED, timings=self._timings) as cluster:
            yield cluster

    # -- first part ------------------------------------------------------------------------------

    def first(self) -> None:
        """A zone joins, Kubernetes moves nothing, one eviction repairs the spread."""
        screen = self._screen
        screen.title("1. A zone joins")
        with self._cluster() as cluster:
            screen.say(
                f"An embedded Kubernetes now runs in this process, at {cluster.url}. Its objects, its API, "
                "its controllers and its evictions are real; only the containers are simulated."
            )
            two_zones(cluster)
            before = list_placed(cluster)
            screen.say(
                f'Two zones are up. The three replicas of "{SHOP}" prefer different '
                "zones (preferred anti-affinity); with two zones, two of them share one:"
            )
            screen.show(draw_zones(before, ZONES[:2], frozenset()))
            third_zone(cluster)
            if _has_moved(before, list_placed(cluster)):
                raise _DemoFailedError("Kubernetes moved a pod by itself")
            screen.say(
                "A node of a third zone joins. Ten minutes later, by the cluster's clock, Kubernetes "
                "has moved nothing: its scheduler places a pod once, when it is created."
            )
            screen.show(draw_zones(before, ZONES, frozenset()))
            cluster.catch_up()
            moves = self._rebalance(cluster)
            if len(moves) != 1:
                raise _DemoFailedError(f"the plan has {len(moves)} moves, not one")
            after = list_placed(cluster)
            landed = [pod.zone for pod in after if pod.uid in _new(before, after)]
            screen.say(
                f"The plan had named {moves[0]['to_zone']}; the replacement landed in {', '.join(landed)}:"
            )
            screen.show(draw_zones(after, ZONES, _new(before, after)))
            if sorted(pod.zone for pod in after) != list(ZONES):
                raise _DemoFailedError("the replicas are not in three zones")
            if len(landed) != 1:
                raise _DemoFailedError(f"{len(landed)} pods were moved, not one")

    # -- second part -------------------------------------------------------------------------------

    def second(self, report: Path | None) -> None:
        """A zone was lost and is back; then a run that has nothing to do."""
        screen = self._screen
        screen.title("2. A zone comes back")
        with self._cluster() as cluster:
            many_workloads(cluster)
            zone_lost(cluster)
            zone_back(cluster)
            cluster.catch_up()
            before = list_placed(cluster)
            screen.say(
                f"Another cluster: {len(zones_of(cluster))} nodes in three zones, {len(RULES)} workloads, "
                f"{len(before)} pods. {ZONES[2]} had failed and is back for ten minutes, empty."
            )
            if report is not None:
                self._write_report(cluster, report)
            moves = self._rebalance(cluster)
            after = list_placed(cluster)
            self._compare(before, after, moves)
            screen.say("A second run, which has nothing to do:")
            self._call(cluster)
            cluster.settle()
            if _has_moved(after, list_placed(cluster)):
                raise _DemoFailedError("the second run moved pods")

    def _compare(
        self, before: list[PlacedPod], after: list[PlacedPod], moves: Sequence[dict[str, Any]]
    ) -> None:
        was, now = zone_counts(before), zone_counts(after)
        expected = predict_counts(was, moves)
        rows = [
            (
                name,
                RULES[name],
                format_counts(was[name]),
                format_counts(expected[name]),
                format_counts(now[name]),
            )
            for name in sorted(was)
        ]
        self._screen.say(f"Replicas per zone ({', '.join(ZONES)}):")
        headings = ("workload", "asks for", "before", "predicted", "now")
        self._screen.show(draw_table(headings, rows))
        right = sum(row[3] == row[4] for row in rows)
        self._screen.say(
            f"{len(_new(before, after))} pods were moved; {right} of {len(rows)} workloads are exactly as "
            "predicted."
        )
        if not moves:
            raise _DemoFailedError("the run moved nothing")

    # -- running -----------------------------------------------------------------------------------

    def _rebalance(self, cluster: EmbeddedCluster) -> list[dict[str, Any]]:
        """Plan with a dry run, then run; return the planned moves with their zones."""
        moves = self._plan_moves(cluster)
        self._call(cluster)
        cluster.settle()
        return moves

    def _plan_moves(self, cluster: EmbeddedCluster) -> list[dict[str, Any]]:
        """Return the moves that a dry run plans, to compare them with what happens."""
        return move_zones(json.loads(self._dry_run(cluster, "json"))["moves"], zones_of(cluster))

    def _write_report(self, cluster: EmbeddedCluster, file: Path) -> None:
        try:
            with create_file(file) as stream:
                stream.write(self._dry_run(cluster, "html").encode())
        except OSError as error:
            why = f"{file} could not be written ({error.strerror})"
            raise _DemoFailedError(why, ExitCode.USAGE) from None

    def _dry_run(self, cluster: EmbeddedCluster, form: str) -> str:
        captured = io.StringIO()
        with contextlib.redirect_stdout(captured):
            code = self._run(
                ["run", "--dry-run", "-o", form, "--kubeconfig", str(cluster.kubeconfig)]
            )
        if code:
            raise _DemoFailedError("the dry run failed", code)
        return captured.getvalue()

    def _call(self, cluster: EmbeddedCluster) -> None:
        self._screen.command("rebalancer run --yes")
        # Report and progress in one stream, in the order in which they are written.
        out = self._screen.out
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = self._run(["run", "--yes", "--kubeconfig", str(cluster.kubeconfig)])
        out.flush()
        if code:
            raise _DemoFailedError(f"the run ended with exit code {code}", code)


def _new(before: Sequence[PlacedPod], after: Sequence[PlacedPod]) -> frozenset[str]:
    return frozenset({pod.uid for pod in after} - {pod.uid for pod in before})


def _has_moved(before: Sequence[PlacedPod], after: Sequence[PlacedPod]) -> bool:
    return {(pod.uid, pod.node) for pod in before} != {(pod.uid, pod.node) for pod in after}


DRIFTS_PATH = "/embedded/drifts/"
"""Below it are the drifts; each is requested by a POST."""


class KeptError(RebalancerError):
    """The kept cluster does not exist, or cannot be created; the message has the remedy."""

    exit_code = ExitCode.USAGE


@contextlib.contextmanager
def keep_cluster(now: Callable[[], float], kubeconfig: Path) -> Iterator[EmbeddedCluster]:
    """Yield a cluster whose third zone is back, and whose server accepts drifts; write its ``kubeconfig``.

    Raises:
        KeptError: the file cannot be written, or belongs to another cluster.
    """
    _check_is_ours(kubeconfig)
    # No pod is too young to be moved.
    clock = EmbeddedClock(now() - _PAST_SECONDS, now)
    with EmbeddedCluster(clock, seed=_SEED, timings=Durations()) as cluster:
        many_workloads(cluster)
        zone_lost(cluster)
        zone_back(cluster)
        cluster.catch_up()
        cluster.access.anonymous = True
        one_by_one = threading.Lock()
        for name, (happened, drift) in LIVE.items():
            cluster.on_post(DRIFTS_PATH + name, _action(cluster, happened, drift, one_by_one))
        try:
            with create_file(kubeconfig, 0o600) as stream:
                stream.write(cluster.kubeconfig.read_bytes())
        except OSError as error:
            raise KeptError(f"{kubeconfig} cannot be written: {error.strerror}") from None
        try:
            yield cluster
        finally:
            kubeconfig.unlink(missing_ok=True)


def _action(
    cluster: EmbeddedCluster,
    happened: str,
    drift: Callable[[EmbeddedCluster], None],
    one_by_one: threading.Lock,
) -> Callable[[], Json]:
    def act() -> Json:
        with one_by_one:
            drift(cluster)
        return {"message": happened}

    return act


def _check_is_ours(kubeconfig: Path) -> None:
    """Refuse to overwrite a file that this command has not written; a killed demo may have left its own."""
    try:
        text = kubeconfig.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError):
        text = ""
    if "current-context: embedded" not in text:
        raise KeptError(f"{kubeconfig} is there already; name another file with --kubeconfig")
