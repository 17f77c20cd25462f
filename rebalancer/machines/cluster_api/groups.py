"""The machine provider ``cluster-api``: MachineDeployments, and MachineSets that none of these owns.

A group is what carries Cluster Autoscaler's annotations for its sizes, of one Cluster. Lists and single reads of
MachineDeployments, MachineSets, Machines and the Cluster; to act, patches of the replicas and of annotations. The
names of annotations, and what a group is that has no machines, are those of Cluster Autoscaler's provider ``clusterapi``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from rebalancer.base.errors import ClusterReadError, ProviderError, ProviderRefusalError
from rebalancer.kube.failures import ForbiddenError
from rebalancer.machines.cluster_api.api import (
    CLUSTER,
    ENDS,
    GROUP,
    NOTE,
    ApiObject,
    ClusterApi,
    Machine,
    Raw,
    Scalable,
    newest_template,
    read_path,
    reference,
)
from rebalancer.machines.cluster_api.ending import MachineEnd, annotate, await_pending
from rebalancer.machines.cluster_api.view import PENDING, ScalableGroup
from rebalancer.policy.values import ProviderParams
from rebalancer.providers.contract import (
    KnownNode,
    Machines,
    NodeGroup,
    NodeTemplate,
    Outdated,
)
from rebalancer.wire.objects import Taint

if TYPE_CHECKING:
    from rebalancer.kube.client import Client

_CLONED = f"{GROUP}/cloned-from-name"
_CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
_AMOUNTS = {"cpu": "cpu", "memory": "memory", "ephemeral-disk": "ephemeral-storage"}
_MAX_PODS = "110"
"""Where ``maxPods`` is absent, as in Cluster Autoscaler."""
_ON_NODES = ("node-role.kubernetes.io", "node-restriction.kubernetes.io", "node.cluster.x-k8s.io")
"""Labels of Machines with these domains, or domains below the last two, are set on their nodes ("Metadata propagation")."""
_ARCH = "CAPI_SCALE_ZERO_DEFAULT_ARCH"
"""Environment variable of the default architecture, as for Cluster Autoscaler."""


def find_outdated(api: ClusterApi, view: ScalableGroup, by: Outdated) -> frozenset[str]:
    """Return the instances whose template is not that of the group.

    In a MachineDeployment the template of a Machine is that of its MachineSet. A MachineSet that no MachineDeployment
    owns keeps its Machines when its template changes: its Machines have their version, and the objects that were cloned
    for them name their template (``cluster.x-k8s.io/cloned-from-name``).

    Raises:
        ProviderError: Cluster API does not provide it, or cannot be queried.
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

    Values that they do not give are read from the template of the infrastructure (``status.capacity``).

    Raises:
        ProviderError: an annotation cannot be parsed, or Cluster API cannot be queried.
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


_DEPLOYMENT, _SET, _MACHINE = "MachineDeployment", "MachineSet", "Machine"
_NOT_CREATED = "MachinesCreated"
"""The condition of a MachineSet that is False while it cannot create Machines."""


class ClusterApiParams(ProviderParams):
    """Options of the provider cluster-api."""

    acts: ClassVar[bool] = True

    cluster: str = Field(
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-.a-z0-9]*[a-z0-9])?$",
        description="NAMESPACE/NAME of the Cluster object whose nodes these are.",
    )
    kubeconfig: str = Field(
        default="",
        description="Kubeconfig of the management cluster; absent: it is the cluster of the run.",
    )
    context: str = Field(
        default="", description="Context in that kubeconfig; absent: its current one."
    )


class ClusterApiProvider:
    """Machines of Cluster API."""

    Params = ClusterApiParams

    def open(self, params: Any, environ: Mapping[str, str]) -> Machines:
        """Return the groups in the management cluster that the options name; no request is sent."""
        return self.open_in(params, environ, None)

    def open_in(self, params: Any, environ: Mapping[str, str], client: Client | None) -> Machines:
        """Return the groups, in the cluster of ``client`` where the options name no other one; no request is sent.

        Raises:
            ProviderError: there is no such cluster, or its configuration cannot be read.
        """
        if params.kubeconfig:
            client = _connect(params, environ, client)
        if client is None:
            raise ProviderError(
                "the provider cluster-api asks the cluster of the run, and a file is none: name a kubeconfig in its options"
            )
        namespace, _, name = params.cluster.partition("/")
        return MachineGroups(ClusterApi(client, namespace), name, environ)


def _connect(params: ClusterApiParams, environ: Mapping[str, str], beside: Client | None) -> Client:
    from rebalancer.kube.client import connect  # noqa: PLC0415

    try:
        return connect(
            kubeconfig=params.kubeconfig,
            context=params.context or None,
            environ=environ,
            limits=None if beside is None else beside.limits,
            stop=None if beside is None else beside.stop,
        )
    except ClusterReadError as error:
        raise ProviderError(
            f"the management cluster of the provider cluster-api: {error}"
        ) from error


class MachineGroups:
    """The node groups of one Cluster. Changes of a group are checked against its last read state."""

    def __init__(self, api: ClusterApi, cluster: str, environ: Mapping[str, str]) -> None:
        self._api, self._cluster, self._environ = api, cluster, environ
        self._known: dict[str, ScalableGroup] = {}

    # -- reading -----------------------------------------------------------------------------------

    def groups(self, nodes: Sequence[KnownNode]) -> Sequence[NodeGroup]:
        """Return the groups of the Cluster by name."""
        cluster = self._read_cluster()
        if cluster is None:
            raise ProviderError(f"there is no Cluster {self._api.namespace}/{self._cluster}")
        owned = {CLUSTER: self._cluster}
        deployments = [Scalable(one, _DEPLOYMENT) for one in self._list(_DEPLOYMENT, {})]
        sets = [Scalable(one, _SET) for one in self._list(_SET, {})]
        machines = self._list_machines(owned)
        alone = [one for one in sets if one.owner(_DEPLOYMENT) is None]
        views = [
            _view(cluster, owner, sets, machines, nodes)
            for owner in (*deployments, *alone)
            if self._is_ours(owner)
        ]
        self._known = {view.owner.group: view for view in views}
        return [self._known[name].node_group() for name in sorted(self._known)]

    def group_named(self, name: str, nodes: Sequence[KnownNode]) -> NodeGroup | None:
        """Return the group of this name; None if there is none."""
        view = self._read(name, nodes)
        if view is None:
            return None
        self._known[name] = view
        return view.node_group()

    def _read(self, name: str, nodes: Sequence[KnownNode]) -> ScalableGroup | None:
        kind = _SET if name.startswith("machineset/") else _DEPLOYMENT
        raw = self._api.get(self._api.resource(kind), name.rpartition("/")[2])
        owner = None if raw is None else Scalable(raw, kind)
        if owner is None or not self._is_ours(owner) or owner.owner(_DEPLOYMENT) is not None:
            return None
        selector = owner.selector or {CLUSTER: self._cluster}
        sets = [owner]
        if owner.is_deployment:
            sets = [Scalable(one, _SET) for one in self._list(_SET, selector)]
        machines = self._list_machines(selector)
        return _view(self._read_cluster(), owner, sets, machines, nodes)

    def _read_anew(self, group: NodeGroup) -> ScalableGroup:
        view = self._read(group.name, self._view(group).nodes)
        if view is None:
            raise ProviderRefusalError(f"there is no group {group.name} any more")
        return view

    def _is_ours(self, owner: Scalable) -> bool:
        return owner.is_group and owner.cluster == self._cluster

    def _read_cluster(self) -> ApiObject | None:
        raw = self._api.get(self._api.resource("Cluster"), self._cluster)
        return None if raw is None else ApiObject(raw)

    def _list(self, kind: str, labels: Mapping[str, str]) -> list[Raw]:
        return self._api.list_all(self._api.resource(kind), labels)

    def _list_machines(self, labels: Mapping[str, str]) -> list[Machine]:
        found = [Machine(one) for one in self._list(_MACHINE, labels)]
        return sorted(found, key=lambda one: one.name)

    def _view(self, group: NodeGroup) -> ScalableGroup:
        if (view := self._known.get(group.name)) is None:
            raise ProviderRefusalError(f"{group.name}: it was not read")
        return view

    def template(self, group: NodeGroup) -> NodeTemplate | None:
        """Return a template from Cluster Autoscaler's annotations, and from the template of the infrastructure."""
        return node_template(self._api, self._view(group), self._environ)

    def launch_failure(self, group: NodeGroup, since: float) -> str | None:  # noqa: ARG002
        """Return why a MachineSet of the group cannot create Machines now; None if it can.

        Its condition is True again once all Machines exist, so that a False one concerns a launch that is requested now.
        """
        for one in self._view(group).sets:
            if why := _why_not_created(one):
                return f"the MachineSet {one.name} creates no machines: {why}"
        return None

    def is_launching(self, group: NodeGroup) -> bool:
        """Return whether Machines are missing that will be created at any moment."""
        missing = len(group.instances) < (group.desired or 0)
        return missing and self.launch_failure(group, 0.0) is None

    def find_outdated(self, group: NodeGroup, by: Outdated) -> frozenset[str]:
        """Return the instances whose template is not that of the group."""
        return find_outdated(self._api, self._view(group), by)

    def find_launches(self, group: NodeGroup) -> Mapping[str, float]:
        """Return when each Machine was created."""
        named = self._view(group).by_instance()
        return {name: one.created for name, one in named.items() if one.created}

    # -- writing -----------------------------------------------------------------------------------

    def set_size(self, group: NodeGroup, desired: int) -> None:
        """Set the replicas; a decrease only cancels Machines that were never created."""
        view = await_pending(self._api.client, lambda: self._read_anew(group), self._view(group))
        if view.owner.replicas != group.desired:
            raise ProviderRefusalError(f"{group.name}: it was changed meanwhile")
        if view.has_pending_ends:
            raise ProviderError(f"{group.name}: {PENDING}")
        why = (
            group.suspended
            if desired > (group.desired or 0)
            else self._why_not_lower(view, desired)
        )
        if why:
            raise ProviderRefusalError(f"{group.name}: {why}")
        judged = view.owner

        def decide(raw: Raw) -> Mapping[str, Any] | None:
            owner = Scalable(raw, judged.kind)
            if owner.generation != judged.generation and owner.replicas == desired:
                return None  # the answer was lost
            if (owner.uid, owner.generation) != (judged.uid, judged.generation) or owner.is_paused:
                raise ProviderRefusalError(f"{group.name}: it was changed meanwhile")
            return {**annotate(**{ENDS: None}), "spec": {"replicas": desired}}

        self._api.change(self._api.resource(judged.kind), judged.name, decide)

    def _why_not_lower(self, view: ScalableGroup, desired: int) -> str | None:
        if ENDS in view.owner.annotations:
            return "a machine of it is being ended"
        if frozen := view.why_frozen():
            return frozen
        return view.why_not_shrink(desired)

    def terminate(self, group: NodeGroup, instance: str) -> None:
        """End one Machine, and decrease the replicas by one."""
        view = self._view(group)
        if view.owner.replicas != group.desired:
            raise ProviderRefusalError(f"{group.name}: it was changed meanwhile")
        machine = view.by_instance().get(instance)
        if machine is None:
            raise ProviderRefusalError(f"{group.name}: {instance} is not in it")
        if (why := group.held.get(instance)) is not None:
            raise ProviderRefusalError(f"{group.name}: {why}")

        MachineEnd(self._api, lambda: self._read_anew(group), view, machine).request()

    def write_note(self, group: NodeGroup, note: str) -> None:
        """Write the annotation of a replacement, which Machines do not get, or remove it."""
        judged = self._view(group).owner

        def decide(raw: Raw) -> Mapping[str, Any] | None:
            owner = Scalable(raw, judged.kind)
            if owner.uid != judged.uid:
                raise ProviderRefusalError(f"{group.name}: another one has come under its name")
            if owner.annotations.get(NOTE, "") == note:
                return None
            return annotate(**{NOTE: note or None})

        self._api.change(self._api.resource(judged.kind), judged.name, decide)

    def suspend(self, group: NodeGroup, processes: Sequence[str]) -> None:
        """Do nothing: no process of Cluster API sets sizes by itself; changes during a rollout are refused instead."""

    def resume(self, group: NodeGroup, processes: Sequence[str]) -> None:
        """Do nothing, see :meth:`suspend`."""


def _view(
    cluster: ApiObject | None,
    owner: Scalable,
    sets: Sequence[Scalable],
    machines: Sequence[Machine],
    nodes: Sequence[KnownNode],
) -> ScalableGroup:
    mine = [owner]
    if owner.is_deployment:
        mine = [one for one in sets if one.owner(_DEPLOYMENT) == owner.uid]
    uids = {one.uid for one in mine}
    return ScalableGroup(
        cluster,
        owner,
        sorted(mine, key=lambda one: one.name),
        [one for one in machines if one.owner(_SET) in uids],
        tuple(nodes),
    )


def _why_not_created(machine_set: Scalable) -> str:
    """Return the message of the condition by which a MachineSet cannot create Machines; empty if it can."""
    status = read_path(machine_set.raw, "status") or {}
    new = read_path(status, "deprecated", "v1beta1", "conditions") or ()
    for one in (*new, *(status.get("conditions") or ())):
        if one.get("type") == _NOT_CREATED and one.get("status") == "False":
            return " ".join(str(one.get("message") or one.get("reason") or "").split())
    return ""
