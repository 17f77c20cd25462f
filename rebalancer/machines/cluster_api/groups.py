"""The machine provider ``cluster-api``: MachineDeployments, and MachineSets that none of these owns.

A group is what carries Cluster Autoscaler's annotations for its sizes, of one Cluster. Lists and single reads of
MachineDeployments, MachineSets, Machines and the Cluster; to act, patches of the replicas and of annotations. The
names of annotations, and what a group is that has no machines, are those of Cluster Autoscaler's provider ``clusterapi``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from rebalancer.base.errors import ClusterReadError, ProviderError, ProviderRefusalError
from rebalancer.machines.cluster_api.api import (
    CLUSTER,
    ENDS,
    NOTE,
    ApiObject,
    ClusterApi,
    Machine,
    Raw,
    Scalable,
    read_path,
)
from rebalancer.machines.cluster_api.ending import MachineEnd, annotate, await_pending
from rebalancer.machines.cluster_api.outdated import find_outdated, node_template
from rebalancer.machines.cluster_api.view import PENDING, ScalableGroup
from rebalancer.policy.values import ProviderParams
from rebalancer.providers.contract import (
    KnownNode,
    Machines,
    NodeGroup,
    NodeTemplate,
    Outdated,
)

if TYPE_CHECKING:
    from rebalancer.kube.client import Client

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
    """The node groups of one Cluster. What was read of a group last is what its changes are judged by."""

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

        Its condition is True again once all are there, so that one which is False is about a launch that is asked for.
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
        """Set the replicas; a decrease only takes back Machines that were never created."""
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
        """Do nothing: no process of Cluster API sets sizes by itself; what a rollout would do is refused instead."""

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
    """Return what the condition of a MachineSet says that cannot create Machines; empty if it can."""
    status = read_path(machine_set.raw, "status") or {}
    new = read_path(status, "deprecated", "v1beta1", "conditions") or ()
    for one in (*new, *(status.get("conditions") or ())):
        if one.get("type") == _NOT_CREATED and one.get("status") == "False":
            return " ".join(str(one.get("message") or one.get("reason") or "").split())
    return ""
