"""Scores of the default profile: raw over all nodes, then normalised over the scored nodes.

Source: ``plugins/helper/normalize_score.go`` and each plug-in's NormalizeScore.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rebalancer.scheduler.interpod import InterPod
from rebalancer.scheduler.placement import NodePlacement
from rebalancer.scheduler.profile import (
    BALANCED_ALLOCATION,
    IMAGE_LOCALITY,
    INTER_POD_AFFINITY,
    NODE_AFFINITY,
    NODE_RESOURCES_FIT,
    POD_TOPOLOGY_SPREAD,
    TAINT_TOLERATION,
    VOLUME_BINDING,
    SchedulerProfile,
)
from rebalancer.scheduler.resources import Resources
from rebalancer.scheduler.spread import SoftSpread, Spread
from rebalancer.scheduler.topology import ArrayCache
from rebalancer.scheduler.volumes import VolumeRulebook
from rebalancer.snapshot.columns import Bools, Int32s, Ints
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.state import ClusterState
from rebalancer.wire.objects import SchedulingSpec

_MB = 1024 * 1024
_LOW = 23 * _MB
_HIGH_PER_IMAGE = 1000 * _MB


class Images:
    """Scores (N,) by the images that a class needs."""

    def __init__(self, snapshot: Snapshot, profile: SchedulerProfile) -> None:
        self._snapshot = snapshot
        self._volumes = profile.counts_image_volumes
        self._expected = profile.expects_image_volumes
        self._cache = ArrayCache(len(snapshot.nodes))
        self.none = np.zeros(len(snapshot.nodes), np.int64)
        """The score (N,) of a class whose images no node has."""

    def score(self, cls: int) -> Ints:
        """Return the score (N,) of a class, cached by its images."""
        spec = self._snapshot.classes[cls].spec
        known = self._snapshot.nodes.images
        names = tuple(name for name in self._names(spec) if name in known)
        expected = len(spec.containers) + len(spec.init_containers or ())
        if self._expected:
            expected += sum(volume.image is not None for volume in spec.volumes or ())
        if not names or not expected:
            return self.none
        return self._cache.get((names, expected), lambda: self._score(names, expected))

    def _names(self, spec: SchedulingSpec) -> Iterator[str]:
        for container in (*(spec.init_containers or ()), *spec.containers):
            yield normalize_image(container.image)
        if self._volumes:
            for volume in spec.volumes or ():
                if volume.image is not None:
                    yield normalize_image(volume.image.reference)

    def _score(self, names: tuple[str, ...], expected: int) -> Ints:
        total = np.zeros(len(self.none), np.int64)
        for name in names:
            size, holders = self._snapshot.nodes.images[name]
            # int64(float64(size) * (nodes with the image / all nodes)), as Go truncates.
            total[holders] += int(float(size) * (len(holders) / len(total)))
        high = _HIGH_PER_IMAGE * expected
        return 100 * (np.clip(total, _LOW, high) - _LOW) // (high - _LOW)


def normalize_image(name: str) -> str:
    """Return the image name with its implied tag (``normalizedImageName``)."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


_MAX = 100


@dataclass(frozen=True, slots=True)
class RawScores:
    """Raw scores before normalisation; None for a plug-in that skips the pod."""

    fixed: Mapping[str, Ints]
    """Plug-in -> score (N,) that needs no normalisation."""
    fixed_total: Ints
    """(N,) their weighted sum."""
    taints: Ints
    affinity: Ints | None
    interpod: Ints | None
    spread: SoftSpread | None


class Scorer:
    """The score plug-ins of a profile."""

    def __init__(
        self,
        snapshot: Snapshot,
        profile: SchedulerProfile,
        placement: NodePlacement,
        resources: Resources,
        spread: Spread,
        interpod: InterPod,
        volumes: VolumeRulebook,
    ) -> None:
        self.weights = profile.weights
        self._placement = placement
        self._resources, self._improvement = resources, profile.balances_by_improvement
        self._spread = spread
        self._interpod = interpod
        self._images = Images(snapshot, profile)
        self._volumes = volumes if profile.scores_free_volumes else None

    def raw(self, state: ClusterState, cls: int) -> RawScores:
        """Return the raw scores of a class in a state; valid until the state changes."""
        fixed = {
            NODE_RESOURCES_FIT: self._resources.allocation(state, cls),
            IMAGE_LOCALITY: self._images.score(cls),
        }
        if self._resources.balances(cls):
            fixed[BALANCED_ALLOCATION] = self._resources.balanced_score(
                state, cls, improvement=self._improvement
            )
        if (volumes := self._score_volumes(cls)) is not None:
            fixed[VOLUME_BINDING] = volumes
        fixed = {name: score for name, score in fixed.items() if self.weights.get(name)}
        return RawScores(
            fixed=fixed,
            fixed_total=sum(
                (self.weights[name] * score for name, score in fixed.items()),
                np.zeros(len(self._images.none), np.int64),
            ),
            taints=self._placement.preferred_taints(cls),
            affinity=self._placement.preferred_affinity(cls),
            interpod=self._interpod.raw(state, cls),
            spread=self._spread.scoring(state, cls),
        )

    def find_fixed(self, cls: int) -> Ints | None:
        """Return the weighted scores (N,) that depend on the pod and the node alone, and are not normalised; None: all are 0."""
        fixed: Ints | None = None
        images = self._images.score(cls)
        if images is not self._images.none and self.weights.get(IMAGE_LOCALITY):
            fixed = self.weights[IMAGE_LOCALITY] * images
        if (volumes := self._score_volumes(cls)) is not None:
            volumes = self.weights.get(VOLUME_BINDING, 0) * volumes
            fixed = volumes if fixed is None else fixed + volumes
        return fixed

    def _score_volumes(self, cls: int) -> Ints | None:
        rules = self._volumes.of(cls) if self._volumes is not None else None
        return None if rules is None else rules.score

    def weighted_scores(self, raw: RawScores, scored: Int32s) -> dict[str, Ints]:
        """Return plug-in -> weighted score (N,), for the nodes ``scored``; 0 for other nodes."""
        scores = {name: score[scored] for name, score in raw.fixed.items()}
        scores |= self._normalise(raw, scored)
        return {
            name: self._scatter(score * self.weights[name], scored, len(raw.taints))
            for name, score in scores.items()
            if self.weights.get(name)
        }

    def total(self, raw: RawScores, scored: Int32s) -> Ints:
        """Return the sum of all weighted scores (K,) for the nodes ``scored``."""
        total = raw.fixed_total[scored]
        for name, score in self._normalise(raw, scored).items():
            total += self.weights.get(name, 0) * score
        return total

    @staticmethod
    def _normalise(raw: RawScores, scored: Int32s) -> dict[str, Ints]:
        """Return plug-in -> score (K,), for the plug-ins whose scores depend on the set of scored nodes."""
        taints = raw.taints[scored]
        scores = {TAINT_TOLERATION: from_fewest(taints, taints.max(initial=0))}
        if raw.affinity is not None:
            affinity = raw.affinity[scored]
            scores[NODE_AFFINITY] = by_largest(affinity, affinity.max(initial=0))
        if raw.interpod is not None and len(scored):
            interpod = raw.interpod[scored]
            scores[INTER_POD_AFFINITY] = between(interpod, interpod.min(), interpod.max())
        if raw.spread is not None:
            spread = raw.spread.raw(raw.spread.sizes(scored))[scored]
            ignored = raw.spread.ignored[scored]
            low, high = bounds(spread, ignored)
            scores[POD_TOPOLOGY_SPREAD] = spread_score(spread, ignored, low, high)
        return scores

    @staticmethod
    def _scatter(score: Ints, scored: Int32s, size: int) -> Ints:
        placed = np.zeros(size, np.int64)
        placed[scored] = score
        return placed


def from_fewest(raw: Ints, largest: int | Ints) -> Ints:
    """Return 100 for a raw score of 0, less for more (``DefaultNormalizeScore``, reversed)."""
    return _MAX - _MAX * raw // np.maximum(largest, 1)


def by_largest(raw: Ints, largest: int | Ints) -> Ints:
    """Return raw scores scaled so that the largest is 100 (``DefaultNormalizeScore``)."""
    return _MAX * raw // np.maximum(largest, 1)


def between(raw: Ints, low: int | Ints, high: int | Ints) -> Ints:
    """Return raw scores scaled to 0..100 between the smallest and the largest; 0 if these are equal."""
    span = np.maximum(np.asarray(high) - low, 1)
    return (float(_MAX) * ((raw - low) / span)).astype(np.int64)


def bounds(raw: Ints, ignored: Bools) -> tuple[int, int]:
    """Return the smallest and largest raw spread score of the nodes that are not ignored."""
    kept = raw[~ignored]
    return (int(kept.min()), int(kept.max())) if len(kept) else (0, 0)


def spread_score(raw: Ints, ignored: Bools, low: int, high: int) -> Ints:
    """Return the spread score: fewer matching pods are better, ignored nodes get 0."""
    score = np.full(len(raw), _MAX) if high <= 0 else _MAX * (high + low - raw) // high
    return np.where(ignored, 0, score)
