"""Which Machines are not as a new one of their group would be, and what a new one would be.

Of a MachineDeployment the template of a Machine is that of its MachineSet. A MachineSet that no MachineDeployment owns
keeps its Machines when its template changes: its Machines say their version, and the objects that were cloned for them
say from which template (``cluster.x-k8s.io/cloned-from-name``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rebalancer.base.errors import ProviderError
from rebalancer.kube.failures import ForbiddenError
from rebalancer.machines.cluster_api.api import (
    CLUSTER,
    GROUP,
    ApiObject,
    ClusterApi,
    Machine,
    Raw,
    newest_template,
    read_path,
    reference,
)
from rebalancer.machines.cluster_api.view import ScalableGroup
from rebalancer.providers.contract import NodeTemplate, Outdated
from rebalancer.wire.objects import Taint

_CLONED = f"{GROUP}/cloned-from-name"
_CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
_AMOUNTS = {"cpu": "cpu", "memory": "memory", "ephemeral-disk": "ephemeral-storage"}
_MAX_PODS = "110"
"""Where ``maxPods`` is absent, as in Cluster Autoscaler."""
_ON_NODES = ("node-role.kubernetes.io", "node-restriction.kubernetes.io", "node.cluster.x-k8s.io")
"""Labels of Machines with these domains, or domains below the last two, are set on their nodes ("Metadata propagation")."""
_ARCH = "CAPI_SCALE_ZERO_DEFAULT_ARCH"
"""Of the environment, as for Cluster Autoscaler: the architecture where nothing says it."""


def find_outdated(api: ClusterApi, view: ScalableGroup, by: Outdated) -> frozenset[str]:
    """Return the instances whose template is not that of the group.

    Raises:
        ProviderError: Cluster API does not say it, or cannot be asked.
    """
    if by is not Outdated.TEMPLATE:
        raise ProviderError(
            f"{view.owner.group}: Cluster API does not say the images of machines: choose by template"
        )
    named = view.by_instance()
    if view.owner.is_deployment:
        new = newest_template(view.owner, view.sets)
        if new is None:
            raise ProviderError(f"{view.owner.group}: it has no MachineSet with its template yet")
        return frozenset(name for name, one in named.items() if one.owner("MachineSet") != new.uid)
    clones = {kind: dict(_list_clones(api, view, kind)) for kind in _REFERENCES}
    return frozenset(name for name, one in named.items() if _differs(view, one, clones))


_REFERENCES: Mapping[str, tuple[str, ...]] = {
    "infrastructure": ("infrastructureRef",),
    "bootstrap": ("bootstrap", "configRef"),
}


def _differs(
    view: ScalableGroup, machine: Machine, clones: Mapping[str, Mapping[str, str]]
) -> bool:
    template, spec = view.owner.template, read_path(machine.raw, "spec") or {}
    for key in ("version", "failureDomain"):
        wanted = read_path(template, "spec", key)
        if wanted and wanted != spec.get(key):
            return True
    for kind, path in _REFERENCES.items():
        wanted = reference(read_path(template, "spec", *path))[2]
        source = clones[kind].get(reference(read_path(spec, *path))[2])
        if wanted and source is not None and source != wanted:
            return True
    return False


def _list_clones(api: ClusterApi, view: ScalableGroup, kind: str) -> Iterator[tuple[str, str]]:
    """Yield (name of an object that was cloned for a Machine of the group, name of the template)."""
    refs = {reference(read_path(one.raw, "spec", *_REFERENCES[kind])) for one in view.staying}
    for api_group, of in sorted({(group, kind) for group, kind, name in refs if name}):
        if (resource := api.find_resource(api_group, of)) is None:
            continue
        for raw in api.list_all(resource, {CLUSTER: view.owner.cluster}):
            one = ApiObject(raw)
            if source := one.annotations.get(_CLONED):
                yield one.name, source


def node_template(
    api: ClusterApi, view: ScalableGroup, environ: Mapping[str, str]
) -> NodeTemplate | None:
    """Return the template of a new node by Cluster Autoscaler's annotations; None if they do not give cpu and memory.

    What they leave open the template of the infrastructure may say (``status.capacity``).

    Raises:
        ProviderError: an annotation cannot be read, or Cluster API cannot be asked.
    """
    amounts = dict(_read_amounts(view.owner.annotations))
    if not {"cpu", "memory"} <= amounts.keys():
        amounts = {**_capacity_of_infrastructure(api, view.owner.template), **amounts}
    if not {"cpu", "memory"} <= amounts.keys():
        return None
    labels = {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": environ.get(_ARCH) or "amd64",
        **_labels_on_nodes(view.owner.template),
        **_read_labels(view.owner.annotations),
    }
    taints = {(one.key, one.effect): one for one in _taints(view)}
    return NodeTemplate(labels, tuple(taints.values()), {"pods": _MAX_PODS, **amounts})


def _read_amounts(annotations: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key, resource in _AMOUNTS.items():
        if amount := annotations.get(_CAPACITY + key):
            yield resource, amount
    if pods := annotations.get(f"{_CAPACITY}maxPods"):
        yield "pods", pods
    kind, amount = (annotations.get(f"{_CAPACITY}gpu-{part}") for part in ("type", "count"))
    if kind and amount:
        yield kind, amount


def _capacity_of_infrastructure(api: ClusterApi, template: Raw) -> Mapping[str, str]:
    api_group, kind, name = reference(read_path(template, "spec", "infrastructureRef"))
    if not name or (resource := api.find_resource(api_group, kind)) is None:
        return {}
    try:
        found = api.get(resource, name)
    except ProviderError as error:
        # Which kinds these are depends on the infrastructure: a role need not know them.
        if isinstance(error.__cause__, ForbiddenError):
            return {}
        raise
    return {} if found is None else read_path(found, "status", "capacity") or {}


def _labels_on_nodes(template: Raw) -> dict[str, str]:
    labels = read_path(template, "metadata", "labels") or {}
    return {key: value for key, value in labels.items() if _is_on_nodes(key.partition("/")[0])}


def _is_on_nodes(domain: str) -> bool:
    return domain in _ON_NODES or domain.endswith(tuple(f".{one}" for one in _ON_NODES[1:]))


def _read_labels(annotations: Mapping[str, str]) -> dict[str, str]:
    pairs = (part.partition("=") for part in annotations.get(f"{_CAPACITY}labels", "").split(","))
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


def _taints(view: ScalableGroup) -> Iterator[Taint]:
    """Yield the taints of the template, then those of the annotation, which win."""
    for one in read_path(view.owner.template, "spec", "taints") or ():
        yield Taint(
            key=one.get("key", ""), value=one.get("value", ""), effect=one.get("effect", "")
        )
    for part in filter(None, view.owner.annotations.get(f"{_CAPACITY}taints", "").split(",")):
        name, colon, effect = part.strip().rpartition(":")
        key, _, value = name.partition("=")
        if not colon or not key or not effect:
            raise ProviderError(
                f"{view.owner.group}: annotation {_CAPACITY}taints: {part!r} is no KEY=VALUE:EFFECT"
            )
        yield Taint(key=key, value=value, effect=effect)
