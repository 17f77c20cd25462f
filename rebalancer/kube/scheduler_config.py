"""The ConfigMap with the configuration of the cluster's scheduler: read once per run."""

from __future__ import annotations

import msgspec

from rebalancer.base.errors import ClusterReadError, PolicyError
from rebalancer.kube.client import Client
from rebalancer.kube.resources import AccessRule
from rebalancer.policy.cluster import ConfigMapKey
from rebalancer.policy.kube_scheduler import KubeSchedulerConfiguration, read_configuration
from rebalancer.wire.kinds import CONFIG_MAPS


def scheduler_rules(of: ConfigMapKey) -> tuple[AccessRule, ...]:
    """Return what reading it needs: get on this one ConfigMap."""
    return (AccessRule("get", "", CONFIG_MAPS.plural, *of.place),)


def read_scheduler_config(client: Client, of: ConfigMapKey) -> KubeSchedulerConfiguration:
    """Return the configuration in the ConfigMap that a policy names.

    Raises:
        ClusterReadError: it could not be read, or there is none.
        PolicyError: what it holds is wrong; each problem has its line in the text below the key.
    """
    name = f"ConfigMap {of.config_map}"
    response = client.get(CONFIG_MAPS.path(*of.place))
    if response.status == 404:
        raise ClusterReadError(f"{name} is not there; check scheduler.fromConfig.configMap")
    try:
        data = msgspec.json.decode(client.expect(response, *scheduler_rules(of)).body, type=_Shape)
    except (ValueError, RecursionError):
        raise ClusterReadError(f"what was answered for {name} is no ConfigMap") from None
    text = (data.data or {}).get(of.key)
    if text is None:
        keys = ", ".join(sorted(data.data or {})) or "nothing"
        raise ClusterReadError(
            f"{name} has no key {of.key}; check scheduler.fromConfig.key (it holds {keys})"
        )
    configuration, problems = read_configuration(text.encode(), f"{name}, {of.key}")
    if configuration is None:
        raise PolicyError([str(problem) for problem in problems])
    return configuration


class _Shape(msgspec.Struct):
    data: dict[str, str] | None = None
