"""Push metrics to a Pushgateway, or write them to a file for node_exporter's textfile collector."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from rebalancer.base.sending import send
from rebalancer.base.stop import Stop

_GROUP = "/metrics/job/"


def push(url: str, metrics: CollectorRegistry, stop: Stop) -> None:
    """Replace the metrics group at ``url`` with these metrics.

    The group is in the path of the URL as a Pushgateway defines it (``/metrics/job/NAME/LABEL/VALUE``); without one
    it is the group of the job ``kube-rebalancer``.

    Raises:
        SendingError: the Pushgateway did not accept the metrics.
    """
    headers = {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
    send("PUT", with_group(url), generate_latest(metrics), headers, stop)


def with_group(url: str) -> str:
    """Return ``url`` with a metrics group in its path; the default one if it has none."""
    parts = urlsplit(url)
    if _GROUP in parts.path:
        return url
    path = f"{parts.path.rstrip('/')}{_GROUP}kube-rebalancer"
    return urlunsplit(parts._replace(path=path))


def write_file(path: Path, metrics: CollectorRegistry) -> None:
    """Write the metrics to ``path`` by way of a temporary file, so the collector never reads half a file.

    Raises:
        OSError: the file could not be written.
    """
    # The collector reads *.prom only.
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(generate_latest(metrics))
            # The collector runs as another user than we do.
            os.fchmod(stream.fileno(), 0o644)
        os.replace(name, path)  # noqa: PTH105  # a descriptor's name, not a Path
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
