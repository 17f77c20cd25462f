"""Objects of Cluster API, as far as node groups need them; of the versions v1beta2 and v1beta1.

Where the two differ, both places are read. Source: the API types of sigs.k8s.io/cluster-api 1.14.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rebalancer.wire.times import unix_seconds

GROUP = "cluster.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")
"""Those that are understood, the preferred one first."""
MIN_SIZE = f"{GROUP}/cluster-api-autoscaler-node-group-min-size"
MAX_SIZE = f"{GROUP}/cluster-api-autoscaler-node-group-max-size"
"""Cluster Autoscaler's annotations: what carries both is a node group."""
OPTIONS = f"{GROUP}/autoscaling-options-"
"""How its annotations begin for options of one group."""
DELETE = f"{GROUP}/delete-machine"
"""Of a Machine that the next decrease of its MachineSet ends first."""
PAUSED = f"{GROUP}/paused"
NO_CREATION = f"{GROUP}/disable-machine-create"
UPDATING = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress"
NOTE = "rebalancer/replace"
"""Of a group whose machines are being replaced."""
ENDS = "rebalancer/ends"
"""Of a group that is about to be decreased: which Machine is ended by that."""
CLUSTER = f"{GROUP}/cluster-name"
TOPOLOGY = "topology.cluster.x-k8s.io/deployment-name"

Raw = Mapping[str, Any]


def read_path(of: Raw, *keys: str) -> Any:
    """Return the value at a path of keys; None where a part of it is missing."""
    value: Any = of
    for key in keys:
        if not isinstance(value, Mapping) or (value := value.get(key)) is None:
            return None
    return value


@dataclass(frozen=True, slots=True)
class ApiObject:
    """An object with its metadata."""

    raw: Raw

    @property
    def name(self) -> str:
        """``metadata.name``."""
        return str(read_path(self.raw, "metadata", "name") or "")

    @property
    def uid(self) -> str:
        """``metadata.uid``."""
        return str(read_path(self.raw, "metadata", "uid") or "")

    @property
    def resource_version(self) -> str:
        """``metadata.resourceVersion``."""
        return str(read_path(self.raw, "metadata", "resourceVersion") or "")

    @property
    def generation(self) -> int:
        """``metadata.generation``: another one after each change of ``spec``, and after no other."""
        return int(read_path(self.raw, "metadata", "generation") or 0)

    @property
    def created(self) -> float:
        """``metadata.creationTimestamp`` in Unix seconds."""
        return unix_seconds(read_path(self.raw, "metadata", "creationTimestamp"))

    @property
    def is_going(self) -> bool:
        """Whether it is being deleted."""
        return read_path(self.raw, "metadata", "deletionTimestamp") is not None

    @property
    def annotations(self) -> Mapping[str, str]:
        """``metadata.annotations``."""
        return read_path(self.raw, "metadata", "annotations") or {}

    @property
    def labels(self) -> Mapping[str, str]:
        """``metadata.labels``."""
        return read_path(self.raw, "metadata", "labels") or {}

    @property
    def is_paused(self) -> bool:
        """Whether controllers leave it alone, by its ``spec`` or by the annotation."""
        return read_path(self.raw, "spec", "paused") is True or PAUSED in self.annotations

    def owner(self, kind: str) -> str | None:
        """Return the uid of its controller of this kind; None if it has none."""
        for one in read_path(self.raw, "metadata", "ownerReferences") or ():
            api_group = str(one.get("apiVersion", "")).partition("/")[0]
            if one.get("controller") and one.get("kind") == kind and api_group == GROUP:
                return str(one.get("uid", ""))
        return None


@dataclass(frozen=True, slots=True)
class Scalable(ApiObject):
    """A MachineDeployment or a MachineSet."""

    kind: str

    @property
    def is_deployment(self) -> bool:
        """Whether it is a MachineDeployment."""
        return self.kind == "MachineDeployment"

    @property
    def group(self) -> str:
        """The name of the node group; a MachineSet may have the name of a MachineDeployment."""
        return self.name if self.is_deployment else f"machineset/{self.name}"

    @property
    def is_group(self) -> bool:
        """Whether it carries Cluster Autoscaler's annotations for its sizes."""
        return MIN_SIZE in self.annotations and MAX_SIZE in self.annotations

    @property
    def sizes(self) -> tuple[int, int] | None:
        """Minimum and maximum; None where these are no sizes."""
        texts = (self.annotations.get(MIN_SIZE, ""), self.annotations.get(MAX_SIZE, ""))
        if not all(text.isascii() and text.isdigit() for text in texts):
            return None
        low, high = map(int, texts)
        return (low, high) if low <= high else None

    @property
    def options(self) -> Mapping[str, str]:
        """Cluster Autoscaler's annotations for options of this group alone: option -> text."""
        return {
            key.removeprefix(OPTIONS): text
            for key, text in sorted(self.annotations.items())
            if key.startswith(OPTIONS)
        }

    @property
    def replicas(self) -> int | None:
        """``spec.replicas``: the desired number of Machines."""
        value = read_path(self.raw, "spec", "replicas")
        return value if isinstance(value, int) else None

    @property
    def selector(self) -> Mapping[str, str]:
        """``spec.selector.matchLabels``, by which its controller lists what belongs to it."""
        return read_path(self.raw, "spec", "selector", "matchLabels") or {}

    @property
    def cluster(self) -> str:
        """``spec.clusterName``."""
        return str(read_path(self.raw, "spec", "clusterName") or "")

    @property
    def template(self) -> Raw:
        """``spec.template``, of new Machines."""
        return read_path(self.raw, "spec", "template") or {}

    @property
    def replaces_on_delete(self) -> bool:
        """Whether a new template is taken by Machines only once old ones are deleted (strategy OnDelete)."""
        new = read_path(self.raw, "spec", "rollout", "strategy", "type")
        return (new or read_path(self.raw, "spec", "strategy", "type")) == "OnDelete"

    @property
    def rollout_after(self) -> float:
        """Unix seconds: what was created before is old; 0 where none is given."""
        new = read_path(self.raw, "spec", "rollout", "after")
        return unix_seconds(new or read_path(self.raw, "spec", "rolloutAfter"))


@dataclass(frozen=True, slots=True)
class Machine(ApiObject):
    """A Machine."""

    @property
    def provider_id(self) -> str:
        """``spec.providerID``, as its node has it."""
        return str(read_path(self.raw, "spec", "providerID") or "")

    @property
    def node(self) -> str:
        """The name of its node; empty where it has none yet."""
        return str(read_path(self.raw, "status", "nodeRef", "name") or "")

    @property
    def mark(self) -> str | None:
        """The value of the annotation by which the next decrease ends it; None where it has none."""
        return self.annotations.get(DELETE)


def newest_template(owner: Scalable, now: Sequence[Scalable]) -> Scalable | None:
    """Return the MachineSet with the template of a MachineDeployment; None where there is none yet.

    As Cluster API finds it: the version, the failure domain and what the template refers to count; of several the one
    with most replicas; and what was created before ``rollout.after`` is old once that time has come. That it has come
    is seen by a MachineSet that was created since: Cluster API makes one at once.
    """
    same = [one for one in now if _key(one.template) == _key(owner.template)]
    same.sort(key=lambda one: (-(one.replicas or 0), one.name))
    fresh = [one for one in same if one.created >= owner.rollout_after]
    return next(iter(fresh or same), None)


def _key(template: Raw) -> tuple[Any, ...]:
    """Return what has to be equal in two templates (``MachineTemplateUpToDate``)."""
    bootstrap = read_path(template, "spec", "bootstrap") or {}
    return (
        str(read_path(template, "spec", "version") or ""),
        str(read_path(template, "spec", "failureDomain") or ""),
        reference(read_path(template, "spec", "infrastructureRef")),
        reference(bootstrap.get("configRef")),
        str(bootstrap.get("dataSecretName") or ""),
    )


def reference(of: Raw | None) -> tuple[str, str, str]:
    """Return (API group, kind, name) of a reference, which v1beta1 writes with a version."""
    of = of or {}
    api_group = of.get("apiGroup") or str(of.get("apiVersion") or "").partition("/")[0]
    return (str(api_group), str(of.get("kind") or ""), str(of.get("name") or ""))
