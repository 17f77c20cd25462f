"""Scores of the default profile: raw over all nodes, then normalised over the scored nodes.

Source: ``plugins/helper/normalize_score.go`` and each plug-in's NormalizeScore.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rebalancer.scheduler.profile import (
    IMAGE_LOCALITY,
    VOLUME_BINDING,
    SchedulerProfile,
)
from rebalancer.scheduler.topology import ArrayCache
from rebalancer.scheduler.volumes import VolumeRulebook
from rebalancer.snapshot.columns import Ints
from rebalancer.snapshot.model import Snapshot
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


class Scorer:
    """The scores that depend on the pod and the node alone, and are not normalised."""

    def __init__(
        self, snapshot: Snapshot, profile: SchedulerProfile, volumes: VolumeRulebook
    ) -> None:
        self._weights = profile.weights
        self._images = Images(snapshot, profile)
        self._volumes = volumes if profile.scores_free_volumes else None

    def weigh(self, cls: int) -> dict[str, Ints]:
        """Return plug-in -> weighted score (N,), for those that score the class."""
        rules = self._volumes.of(cls) if self._volumes is not None else None
        raw = {
            IMAGE_LOCALITY: self._images.score(cls),
            VOLUME_BINDING: None if rules is None else rules.score,
        }
        weight = self._weights.get
        return {
            name: score if of == 1 else of * score
            for name, score in raw.items()
            if score is not None and (of := weight(name))
        }

    def find_fixed(self, cls: int) -> Ints | None:
        """Return the sum (N,) of these scores; None: all are 0."""
        scores = [score for score in self.weigh(cls).values() if score.any()]
        return sum(scores[1:], scores[0]) if scores else None
