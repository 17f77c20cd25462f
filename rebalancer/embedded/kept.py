"""A cluster to play with: that of the demo's second part, kept until a signal, drifting on request."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from rebalancer.base.errors import ExitCode, RebalancerError
from rebalancer.embedded import drifts
from rebalancer.embedded.apiserver.kinds import Json
from rebalancer.embedded.clock import EmbeddedClock
from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.embedded.engine import Durations

_PAST_SECONDS = 7200.0
_SEED = 7
DRIFTS_PATH = "/embedded/drifts/"
"""Below it are the drifts; each is requested by a POST."""


class KeptError(RebalancerError):
    """There is no kept cluster there, or none can be; the message says what to do."""

    exit_code = ExitCode.USAGE


@contextlib.contextmanager
def kept(now: Callable[[], float], kubeconfig: Path) -> Iterator[EmbeddedCluster]:
    """Yield a cluster whose third zone is back, and whose server takes drifts; write its ``kubeconfig``.

    Raises:
        KeptError: the file cannot be written, or is another's.
    """
    _check_is_ours(kubeconfig)
    # No pod is too young to be moved.
    clock = EmbeddedClock(now() - _PAST_SECONDS, now)
    with EmbeddedCluster(clock, seed=_SEED, timings=Durations()) as cluster:
        drifts.many_workloads(cluster)
        drifts.zone_lost(cluster)
        drifts.zone_back(cluster)
        cluster.catch_up()
        cluster.access.anonymous = True
        one_by_one = threading.Lock()
        for name, (happened, drift) in drifts.LIVE.items():
            cluster.on_post(DRIFTS_PATH + name, _action(cluster, happened, drift, one_by_one))
        try:
            kubeconfig.unlink(missing_ok=True)
            kubeconfig.touch(mode=0o600)
            kubeconfig.write_bytes(cluster.kubeconfig.read_bytes())
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
    """Refuse to write over what this has not written: a killed demo may have left its file."""
    try:
        text = kubeconfig.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError):
        text = ""
    if "current-context: embedded" not in text:
        raise KeptError(f"{kubeconfig} is there already; name another file with --kubeconfig")
