"""A cluster to play with: that of the demo's second part, kept until a signal, drifting on request."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from rebalancer.base.errors import ExitCode, RebalancerError
from rebalancer.embedded import drifts
from rebalancer.embedded.apiserver.discovery import BUILD
from rebalancer.embedded.apiserver.kinds import Json
from rebalancer.embedded.clock import Clock
from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.embedded.engine import Timings
from rebalancer.kube.client import Client

_PAST_SECONDS = 7200.0
_SEED = 7
_PATH = "/embedded/drifts/"


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
    clock = Clock(now() - _PAST_SECONDS, now)
    with EmbeddedCluster(clock, seed=_SEED, timings=Timings()) as cluster:
        drifts.many_workloads(cluster)
        drifts.zone_lost(cluster)
        drifts.zone_back(cluster)
        cluster.catch_up()
        cluster.access.anonymous = True
        one_by_one = threading.Lock()
        for name, (happened, drift) in drifts.LIVE.items():
            cluster.on_post(_PATH + name, _action(cluster, happened, drift, one_by_one))
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


def drift(client: Client, name: str) -> str:
    """Have a kept cluster drift, wait until it has settled, and return what has happened.

    Raises:
        KeptError: the server of ``client`` is no kept cluster.
        ClusterReadError: it does not answer.
    """
    version = client.get("/version")
    if not version.ok or BUILD.encode() not in version.body:
        raise KeptError(
            f"{client.server} is no cluster of `rebalancer demo --keep`: nothing was done;"
            " name its kubeconfig with --kubeconfig or in $KUBECONFIG"
        )
    answer = client.post(_PATH + name, b"{}")
    if not answer.ok:
        raise KeptError(f"{client.server} is an embedded cluster that does not drift on request")
    return str(msgspec.json.decode(answer.body)["message"])


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
