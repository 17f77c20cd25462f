"""``rebalancer demo``: a drift happens, a run mends it, a second run finds nothing to do.

The cluster is embedded, the run is the very same as on the command line: over HTTP, through the same client.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

from rebalancer.embedded import drifts
from rebalancer.embedded.board import (
    PlacedPod,
    draw_table,
    draw_zones,
    move_zones,
    placed,
    predicted_counts,
    slashed,
    zone_counts,
    zones_of,
)
from rebalancer.embedded.clock import Clock
from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.embedded.drifts import SHOP, WISHES, ZONES
from rebalancer.embedded.engine import Timings

Run = Callable[[Sequence[str]], int]
"""The command line: arguments in, exit code out."""

_TIMINGS = Timings(start_up=3.0, shutdown=2.0)
_PAST_SECONDS = 7200.0
_SEED = 7


def run_demo(
    run: Run,
    *,
    speed: float = 1.0,
    console_width: int = 80,
    out: TextIO | None = None,
    now: Callable[[], float] = time.time,
) -> int:
    """Tell the story on ``out``; return 0 if everything came as told.

    ``speed`` divides how long pods take to start and to stop. A run that fails ends the story with its
    exit code; a story that does not come true returns 1.
    """
    screen = _Screen(out if out is not None else sys.stdout, console_width)
    story = _Story(screen, run, speed, now)
    try:
        story.first()
        story.second()
    except _StoryEnds as end:
        screen.say(f"The story ends here: {end}")
        return end.code
    screen.say(
        "That was all. The same on a cluster of yours, without touching anything: "
        "rebalancer run --dry-run"
    )
    return 0


class _StoryEnds(Exception):  # noqa: N818 - not an error of the program, but of the story
    """Something did not come as told."""

    def __init__(self, why: str, code: int = 1) -> None:
        super().__init__(why)
        self.code = code


class _Screen:
    """Plain lines, wrapped; headings are bold on a terminal."""

    def __init__(self, out: TextIO, width: int) -> None:
        self.out, self._width = out, width
        self._bold, self._plain = ("\x1b[1m", "\x1b[0m") if out.isatty() else ("", "")

    def title(self, text: str) -> None:
        """Begin a part."""
        self._write(f"\n{self._bold}{text}{self._plain}\n{'=' * min(self._width, len(text))}\n")

    def say(self, text: str) -> None:
        """Tell something in a paragraph of its own."""
        self._write("\n" + textwrap.fill(text, self._width) + "\n")

    def show(self, lines: Sequence[str]) -> None:
        """Show lines as they are."""
        self._write("\n" + "\n".join(lines) + "\n")

    def command(self, text: str) -> None:
        """Show what is about to be run."""
        self._write(f"\n{self._bold}$ {text}{self._plain}\n\n")

    def _write(self, text: str) -> None:
        # At once: what a run prints next goes through other buffers.
        self.out.write(text)
        self.out.flush()


class _Story:
    def __init__(self, screen: _Screen, run: Run, speed: float, now: Callable[[], float]) -> None:
        self._screen, self._run, self._now = screen, run, now
        self._timings = _TIMINGS.faster(speed)

    @contextlib.contextmanager
    def _cluster(self) -> Iterator[EmbeddedCluster]:
        """A cluster whose past began two hours ago, so that no pod is too young to be moved."""
        clock = Clock(self._now() - _PAST_SECONDS, self._now)
        with EmbeddedCluster(clock, seed=_SEED, timings=self._timings) as cluster:
            yield cluster

    # -- the article's story -----------------------------------------------------------------------

    def first(self) -> None:
        """A zone joins, Kubernetes moves nothing, one eviction puts it right."""
        screen = self._screen
        screen.title("1. A zone joins")
        with self._cluster() as cluster:
            screen.say(
                f"An embedded Kubernetes now runs in this process, at {cluster.url}. Its objects, its API, "
                "its controllers and its evictions are real; only the containers are pretended."
            )
            drifts.two_zones(cluster)
            before = placed(cluster)
            screen.say(
                f'Two zones are up. The three replicas of "{SHOP}" would rather stand in different '
                "zones (preferred anti-affinity); with two zones, two of them share one:"
            )
            screen.show(draw_zones(before, ZONES, ZONES[:2], frozenset()))
            drifts.third_zone(cluster)
            if _moved(before, placed(cluster)):
                raise _StoryEnds("Kubernetes moved a pod by itself")
            screen.say(
                "A node of a third zone joins. Ten minutes later Kubernetes has moved nothing: its "
                "scheduler places a pod once, when it is created."
            )
            screen.show(draw_zones(before, ZONES, ZONES, frozenset()))
            cluster.catch_up()
            moves = self._rebalance(cluster)
            if len(moves) != 1:
                raise _StoryEnds(f"the plan has {len(moves)} moves, not one")
            after = placed(cluster)
            landed = [pod.zone for pod in after if pod.uid in _new(before, after)]
            screen.say(
                f"The plan had named {moves[0]['to_zone']}; the replacement landed in {', '.join(landed)}:"
            )
            screen.show(draw_zones(after, ZONES, ZONES, _new(before, after)))
            if sorted(pod.zone for pod in after) != list(ZONES):
                raise _StoryEnds("the replicas do not stand in three zones")
            if len(landed) != 1:
                raise _StoryEnds(f"{len(landed)} pods were moved, not one")

    # -- a bigger one ------------------------------------------------------------------------------

    def second(self) -> None:
        """A zone was away, and comes back; then a run that has nothing to do."""
        screen = self._screen
        screen.title("2. A zone comes back")
        with self._cluster() as cluster:
            drifts.many_workloads(cluster)
            drifts.zone_lost(cluster)
            drifts.zone_back(cluster)
            cluster.catch_up()
            before = placed(cluster)
            screen.say(
                f"Another cluster: {len(zones_of(cluster))} nodes in three zones, {len(WISHES)} workloads, "
                f"{len(before)} pods. {ZONES[2]} had failed and is back for ten minutes, empty."
            )
            moves = self._rebalance(cluster)
            after = placed(cluster)
            self._compare(before, after, moves)
            screen.say("Once more, to see that it stops:")
            self._call(cluster)
            cluster.settle()
            if _moved(after, placed(cluster)):
                raise _StoryEnds("the second run found something to move")

    def _compare(
        self, before: list[PlacedPod], after: list[PlacedPod], moves: Sequence[dict[str, Any]]
    ) -> None:
        """Show replicas per zone: before, as predicted, as they are."""
        was, now = zone_counts(before), zone_counts(after)
        expected = predicted_counts(was, moves)
        rows = [
            (
                name,
                WISHES[name],
                slashed(was[name], ZONES),
                slashed(expected[name], ZONES),
                slashed(now[name], ZONES),
            )
            for name in sorted(was)
        ]
        self._screen.say(f"Replicas per zone ({', '.join(ZONES)}):")
        headings = ("workload", "asks for", "before", "predicted", "now")
        self._screen.show(draw_table(headings, rows))
        right = sum(row[3] == row[4] for row in rows)
        self._screen.say(
            f"{len(_new(before, after))} pods were moved; {right} of {len(rows)} workloads stand exactly as "
            "predicted."
        )
        if not moves:
            raise _StoryEnds("the run found nothing to move")

    # -- running -----------------------------------------------------------------------------------

    def _rebalance(self, cluster: EmbeddedCluster) -> list[dict[str, Any]]:
        """Ask for the plan, carry it out, and return its moves with their zones."""
        moves = self._planned(cluster)
        self._call(cluster)
        cluster.settle()
        return moves

    def _planned(self, cluster: EmbeddedCluster) -> list[dict[str, Any]]:
        """Return the moves that a dry run plans: what is going to be compared with what happens."""
        captured = io.StringIO()
        with contextlib.redirect_stdout(captured):
            code = self._run(
                ["run", "--dry-run", "-o", "json", "--kubeconfig", str(cluster.kubeconfig)]
            )
        if code:
            raise _StoryEnds("the dry run failed", code)
        return move_zones(json.loads(captured.getvalue())["moves"], zones_of(cluster))

    def _call(self, cluster: EmbeddedCluster) -> None:
        self._screen.command("rebalancer run")
        # Report and progress in one stream, in the order in which they come.
        out = self._screen.out
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = self._run(["run", "--kubeconfig", str(cluster.kubeconfig)])
        out.flush()
        if code:
            raise _StoryEnds(f"the run ended with exit code {code}", code)


def _new(before: Sequence[PlacedPod], after: Sequence[PlacedPod]) -> frozenset[str]:
    return frozenset({pod.uid for pod in after} - {pod.uid for pod in before})


def _moved(before: Sequence[PlacedPod], after: Sequence[PlacedPod]) -> bool:
    return {(pod.uid, pod.node) for pod in before} != {(pod.uid, pod.node) for pod in after}
