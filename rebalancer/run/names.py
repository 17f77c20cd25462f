"""The names under which a process leaves traces in a cluster: in Events, in a Lease and in marks on nodes."""

from __future__ import annotations

import hashlib
import os

from rebalancer.base.environment import Environment


def instance(environment: Environment) -> str:
    """Return the name of this process in events."""
    pod = environment.environ.get("POD_NAME")
    return pod or f"{os.uname().nodename}-{os.getpid()}"


def identity(environment: Environment) -> str:
    """Return a unique name for the holder of a Lease."""
    # A pod's name is not unique over the containers of hosts' networks, and a process's number is 1 in most.
    return f"{instance(environment)}_{environment.random(4).hex()}"


def own_pod(environment: Environment) -> tuple[str, str] | None:
    """Return (namespace, name) of the pod of this process; None outside of a pod."""
    environ = environment.environ
    own = (environ.get("POD_NAMESPACE", ""), environ.get("POD_NAME", ""))
    return own if all(own) else None


def name_in_lasting_marks(lease: tuple[str, str] | None) -> str:
    """Return the name in marks that outlast a run: that of its Lease. Runs without a Lease share one name."""
    if lease is None:
        return "nolease"
    return hashlib.sha256("/".join(lease).encode()).hexdigest()[:8]


def name_in_marks(lease: tuple[str, str] | None, environment: Environment) -> str:
    """Return the name in the marks of one run: that of its Lease, else a unique name.

    With it the holder of the Lease recognises marks left over by an earlier holder.
    """
    return environment.random(4).hex() if lease is None else name_in_lasting_marks(lease)
