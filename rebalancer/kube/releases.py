"""The objects of an installed release besides its memory: what starts its runs, their Jobs and pods, and Events about these."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.config_map import LABEL, Reference
from rebalancer.kube.failures import NotServedError
from rebalancer.kube.resources import AccessRule
from rebalancer.wire.kinds import CRON_JOBS, DEPLOYMENTS, Resource
from rebalancer.wire.objects import ListMeta, ObjectMeta

if TYPE_CHECKING:
    from rebalancer.kube.client import Client

_T = TypeVar("_T")
_MEMORY_FLAG = "--memory="


class _Container(msgspec.Struct):
    image: str = ""
    args: tuple[str, ...] | None = None


class _Source(msgspec.Struct):
    name: str = ""


class _Volume(msgspec.Struct, rename="camel"):
    name: str
    config_map: _Source | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    service_account_name: str | None = None
    containers: tuple[_Container, ...] | None = None
    volumes: tuple[_Volume, ...] | None = None


class _Template(msgspec.Struct):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)


class _JobSpec(msgspec.Struct):
    template: _Template = msgspec.field(default_factory=_Template)


class _JobTemplate(msgspec.Struct):
    spec: _JobSpec = msgspec.field(default_factory=_JobSpec)


class _Spec(msgspec.Struct, rename="camel"):
    suspend: bool = False
    schedule: str = ""
    time_zone: str | None = None
    job_template: _JobTemplate | None = None
    replicas: int = 1
    template: _Template = msgspec.field(default_factory=_Template)


class StarterObject(msgspec.Struct):
    """A CronJob or a Deployment, which may start runs."""

    metadata: ObjectMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)

    @property
    def template(self) -> _Template:
        """The template of its pods."""
        of_jobs = self.spec.job_template
        return self.spec.template if of_jobs is None else of_jobs.spec.template

    @property
    def args(self) -> tuple[str, ...]:
        """The arguments of the containers of its pods."""
        return tuple(arg for one in self.template.spec.containers or () for arg in one.args or ())


class StarterObjects(msgspec.Struct):
    """A page of a list of them."""

    items: list[StarterObject] | None
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)


class _Waiting(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Terminated(msgspec.Struct, rename="camel"):
    exit_code: int = 0


class _State(msgspec.Struct):
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct, rename="camel"):
    state: _State = msgspec.field(default_factory=_State)
    last_state: _State = msgspec.field(default_factory=_State)


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    container_statuses: tuple[_ContainerStatus, ...] | None = None


class PodObject(msgspec.Struct):
    """A pod of a release, with how its containers are."""

    metadata: ObjectMeta
    status: _Status = msgspec.field(default_factory=_Status)


class _Regarding(msgspec.Struct):
    name: str = ""


class WarningEvent(msgspec.Struct):
    """An Event that warns of an object."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    regarding: _Regarding = msgspec.field(default_factory=_Regarding)
    reason: str = ""
    note: str = ""


class _Items(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


def list_of_release(
    client: Client,
    kind: Resource,
    namespace: str,
    of: type[_T],
    query: dict[str, str] | None = None,
) -> list[_T]:
    """Return the objects with the chart's label, or those that ``query`` selects; of all namespaces if none is given.

    Raises:
        ClusterReadError: our account may not list them, the API server does not serve them, or gave no answer.
    """
    response = client.get(kind.path(namespace), query=query or {"labelSelector": LABEL})
    body = client.expect(response, AccessRule.of("list", kind, namespace)).body
    try:
        items = msgspec.json.decode(body, type=_Items).items or ()
        return [msgspec.json.decode(item, type=of) for item in items]
    except (ValueError, RecursionError):
        raise ClusterReadError(f"what was answered for a list of {kind.plural} is none") from None


def list_named_memories(client: Client) -> list[Reference]:
    """Return the memories that CronJobs and Deployments with the chart's label name, whether or not these exist.

    Raises:
        ClusterReadError: our account may not list them, or they could not be read.
    """
    named: set[Reference] = set()
    for kind in (CRON_JOBS, DEPLOYMENTS):
        try:
            starters = list_of_release(client, kind, "", StarterObject)
        except NotServedError:
            continue
        flags = (arg for one in starters for arg in one.args if arg.startswith(_MEMORY_FLAG))
        parts = (flag.removeprefix(_MEMORY_FLAG).partition("/") for flag in flags)
        named |= {(namespace, name) for namespace, _, name in parts if namespace and name}
    return sorted(named)
