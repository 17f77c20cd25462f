"""The cluster of a serving process: its rights, and the cache that follows it."""

from __future__ import annotations

import math
from contextlib import ExitStack

from rebalancer.base.errors import ClusterReadError
from rebalancer.base.stop import Clock
from rebalancer.kube.access import AUTOSCALER_FOLLOW_RULES, FOLLOW_RULES, require
from rebalancer.kube.cache import ClusterCache, Observer
from rebalancer.kube.client import Client
from rebalancer.kube.config_map import ConfigMapMissingError
from rebalancer.kube.read import read_cluster
from rebalancer.kube.resources import AccessRule
from rebalancer.run.context import RunContext
from rebalancer.run.memory.store import open_config_map
from rebalancer.run.source import require_rights, usage_of
from rebalancer.serve.health import Health
from rebalancer.serve.interruptions import Interruptions
from rebalancer.wire.kinds import PODS

_COMPACT = 60.0
"""Seconds between two times at which what is kept is compacted."""


class Rights:
    """The rights of this process, checked once per policy."""

    def __init__(self, interruptions: Interruptions) -> None:
        self._interruptions = interruptions
        self._allowed = ""
        """Hash of the policy for whose runs all rights are there."""

    def require(self, run: RunContext, client: Client) -> None:
        """Check all rights that runs under the policy of ``run`` need.

        Raises:
            ForbiddenError: rights are missing; the message names all of them.
            ClusterReadError: no answer at all.
        """
        loaded = run.loaded
        if self._allowed == loaded.policy_hash:
            return
        autoscalers = AUTOSCALER_FOLLOW_RULES if run.planning.autoscalers else ()
        watch = AccessRule("watch", PODS.group, PODS.plural)
        follows = (*FOLLOW_RULES, *autoscalers, watch)
        if run.acts:
            steps = self._interruptions.rules(loaded.policy)
            require_rights(run, client, usage_of(run, client), (*follows, *steps))
        else:
            require(client, follows)
        self._allowed = loaded.policy_hash


class Following:
    """Reads the cluster once and follows it; reads it again if the policy needs more lists than are followed."""

    def __init__(self, clock: Clock, health: Health, rights: Rights, observer: Observer) -> None:
        self._clock = clock
        self._health, self._rights, self._observer = health, rights, observer
        self._cache: ClusterCache | None = None
        self._at_end = ExitStack()
        self._finished: frozenset[str] = frozenset()
        """The phases of the pods that have ended and are followed, too."""
        self._autoscalers = False
        """Whether HorizontalPodAutoscalers are followed, too."""
        self._compacted = -math.inf

    def open_cache(self, run: RunContext, client: Client) -> ClusterCache:
        """Return a cache of all lists that the policy of ``run`` needs.

        Raises:
            ClusterReadError: the cluster could not be read, or must not be; or the memory does not exist.
        """
        planning = run.planning
        follows = planning.finished <= self._finished and planning.autoscalers <= self._autoscalers
        if self._cache is None or not follows:
            self._cache = self._health.cache = None
            self.close()
            self._cache = self._at_end.enter_context(self._read(run, client))
            self._health.cache = self._cache
            self._finished, self._autoscalers = planning.finished, planning.autoscalers
        return self._cache

    def has_begun(self) -> bool:
        """Return whether a cluster is being followed."""
        return self._cache is not None

    def _read(self, run: RunContext, client: Client) -> ClusterCache:
        self._rights.require(run, client)
        _require_memory(run, client)
        kept = read_cluster(
            client,
            clock=run.environment.clock.unix,
            keep=True,
            finished=run.planning.finished,
            autoscalers=run.planning.autoscalers,
            progress=self._health.beat,
        ).kept
        if kept is None:
            raise ValueError("what was read to be followed is kept")
        return ClusterCache(client, kept, seconds=math.inf, observer=self._observer)

    def compact(self, evicted: set[str]) -> None:
        """Compact the stored data once a minute; ``evicted``: uids of the pods that the last run evicted."""
        now = self._clock.now()
        if self._cache is not None and now - self._compacted >= _COMPACT:
            self._compacted = now
            self._cache.compact(evicted)

    def close(self) -> None:
        """Stop following."""
        self._at_end.close()


def _require_memory(run: RunContext, client: Client) -> None:
    """Raise ClusterReadError if the memory's ConfigMap does not exist. If it is unreadable now, runs evict nothing."""
    if run.state.memory is None:
        return
    try:
        open_config_map(client, run.state.memory).require()
    except ConfigMapMissingError:
        raise
    except ClusterReadError:
        return
