"""The objects of Cluster API, and requests for them: lists, single objects, and guarded changes.

The objects are read in the versions v1beta2 and v1beta1, as far as node groups need them; where the two differ, both
places are read. Source: the API types of sigs.k8s.io/cluster-api 1.14.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from rebalancer.base.errors import ClusterReadError, ProviderError, ProviderRefusalError
from rebalancer.kube.failures import StatusError, TransportError, says_missing
from rebalancer.kube.resources import AccessRule
from rebalancer.wire.kinds import Resource
from rebalancer.wire.times import unix_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rebalancer.kube.client import Client

GROUP = "cluster.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")
"""The supported versions of the API, the preferred one first."""
MIN_SIZE = f"{GROUP}/cluster-api-autoscaler-node-group-min-size"
MAX_SIZE = f"{GROUP}/cluster-api-autoscaler-node-group-max-size"
"""Cluster Autoscaler's annotations: an object with both is a node group."""
OPTIONS = f"{GROUP}/autoscaling-options-"
"""Prefix of the annotations with options of one group."""
DELETE = f"{GROUP}/delete-machine"
"""Annotation on a Machine that the next decrease of its MachineSet ends first."""
PAUSED = f"{GROUP}/paused"
NO_CREATION = f"{GROUP}/disable-machine-create"
UPDATING = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress"
NOTE = "rebalancer/replace"
"""Annotation on a group whose machines are being replaced."""
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
        """``spec.selector.matchLabels``, by which its controller lists its own objects."""
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
        """Unix seconds: Machines created before are outdated; 0 if none is given."""
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


_PAGE = 500
_ATTEMPTS = 4
"""To change an object: controllers write its status at any moment."""
_SECONDS = 5.0
"""For one write."""
_IDENTITY = ("name", "uid", "resourceVersion")
"""What the metadata of each object say: a change is guarded by it."""

Decide = Callable[[Raw], Mapping[str, Any] | None]
"""Receives the current object, and returns its changes, or None; called again after a conflict or a lost answer."""


@dataclass(slots=True)
class ClusterApi:
    """The objects of one Cluster, in its namespace."""

    client: Client
    namespace: str
    _versions: dict[str, str] = field(default_factory=dict)
    """API group -> the version that is used."""
    _plurals: dict[tuple[str, str], Resource] = field(default_factory=dict)

    def resource(self, kind: str) -> Resource:
        """Return a kind of Cluster API in the version that the server has and that is understood.

        Raises:
            ProviderError: there is none.
        """
        if GROUP not in self._versions:
            self._versions[GROUP] = self._find_version()
        return Resource(kind, GROUP, self._versions[GROUP], f"{kind.lower()}s")

    def list_all(self, resource: Resource, labels: Mapping[str, str]) -> list[Raw]:
        """Return all objects of a kind in the namespace that have these labels."""
        rule = AccessRule.of("list", resource, self.namespace)
        query: dict[str, str | int] = {"limit": _PAGE}
        if labels:
            query["labelSelector"] = ",".join(f"{k}={v}" for k, v in sorted(labels.items()))
        found: list[Raw] = []
        while True:
            with asking(rule):
                path = resource.path(self.namespace)
                answer = self.client.expect(self.client.get(path, query=query), rule)
            page = _decode(answer.body, rule, f"{resource.kind}List", "resourceVersion")
            found += page.get("items") or ()
            token = page["metadata"].get("continue")
            if not token:
                return found
            query = {**query, "continue": token}

    def get(self, resource: Resource, name: str) -> Raw | None:
        """Return an object of the namespace; None if there is none."""
        rule = AccessRule.of("get", resource, self.namespace)
        with asking(rule):
            answer = self.client.get(resource.path(self.namespace, name))
            if says_missing(answer.status, answer.body):
                return None
            body = self.client.expect(answer, rule).body
        return _decode(body, rule, resource.kind, *_IDENTITY)

    def change(self, resource: Resource, name: str, decide: Decide) -> Raw:
        """Change an object as it was read, or not at all; return it as it is then.

        Each request carries the uid and the version that were read: it changes nothing if either is another one by
        then. After a lost answer the object is read again, so that ``decide`` sees whether the change was made; a request
        that is still under way then changes nothing once another one has.

        Raises:
            ProviderRefusalError: the object is gone, the server refuses, or ``decide`` does.
            ProviderError: whether it was changed is not known.
        """
        rule = AccessRule.of("patch", resource, self.namespace)
        trouble: ProviderError = ProviderRefusalError(
            f"{resource.kind} {name} changes faster than it can be written"
        )
        for _ in range(_ATTEMPTS):
            try:
                before = self.get(resource, name)
            except ProviderError:
                if isinstance(trouble, ProviderRefusalError):
                    raise ProviderRefusalError(f"{resource.kind} {name} cannot be read") from None
                continue
            if before is None:
                raise ProviderRefusalError(f"there is no {resource.kind} {name} any more")
            if (wanted := decide(before)) is None:
                return before
            try:
                return self._patch(resource, before, wanted, rule)
            except _ConflictError:
                continue
            except ProviderRefusalError:
                raise
            except ProviderError as error:
                trouble = error
        raise trouble

    def _patch(
        self, resource: Resource, before: Raw, wanted: Mapping[str, Any], rule: AccessRule
    ) -> Raw:
        meta = before["metadata"]
        guard = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        body = {**wanted, "metadata": {**wanted.get("metadata", {}), **guard}}
        path = resource.path(self.namespace, meta["name"])
        with asking(rule, writes=True):
            answer = self.client.patch(path, msgspec.json.encode(body), seconds=_SECONDS)
            if answer.status == 409:
                raise _ConflictError(f"{resource.kind} {meta['name']} was changed meanwhile")
            answer = self.client.expect(answer, rule)
        return _decode(answer.body, rule, resource.kind, *_IDENTITY)

    def _find_version(self) -> str:
        served = self._list_versions(GROUP)
        for version in VERSIONS:
            if version in served:
                return version
        raise ProviderError(
            f"{self.client.server} serves no {GROUP}/{' or '.join(VERSIONS)}: is it the management cluster? The provider's"
            " kubeconfig names another one"
        )

    def _list_versions(self, api_group: str) -> list[str]:
        """Return the versions of an API group, the preferred one first; none if it is not served."""
        rule = AccessRule("get", "", f"/apis/{api_group}")
        with asking(rule):
            answer = self.client.get(f"/apis/{api_group}")
            if answer.status == 404:
                return []
            body = self.client.expect(answer, rule).body
        versions = _decode(body, rule, "APIGroup").get("versions")
        return [str(one.get("version", "")) for one in versions or ()]

    def find_resource(self, api_group: str, kind: str) -> Resource | None:
        """Return the resource of a kind of another API group in its preferred version; None if it is not served."""
        if (api_group, kind) in self._plurals:
            return self._plurals[api_group, kind]
        for version in self._list_versions(api_group)[:1]:
            rule = AccessRule("get", "", f"/apis/{api_group}/{version}")
            with asking(rule):
                answer = self.client.expect(self.client.get(rule.resource), rule)
            for one in _decode(answer.body, rule, "APIResourceList").get("resources") or ():
                if one.get("kind") == kind and "/" not in one.get("name", "/"):
                    found = Resource(kind, api_group, version, str(one["name"]))
                    self._plurals[api_group, kind] = found
                    return found
        return None


class _ConflictError(ProviderRefusalError):
    """Another client was faster; nothing was changed."""


@contextmanager
def asking(rule: AccessRule, *, writes: bool = False) -> Iterator[None]:
    """Convert errors of the client; of a write, by whether it certainly had no effect."""
    try:
        yield
    except TransportError as error:
        kind = ProviderRefusalError if writes and not error.sent else ProviderError
        raise kind(f"the provider cluster-api: {rule}: {error}") from error
    except StatusError as error:
        refused = writes and error.status < 500
        kind = ProviderRefusalError if refused else ProviderError
        raise kind(f"the provider cluster-api: {error}") from error
    except ClusterReadError as error:
        # A right is missing: nothing was done.
        kind = ProviderRefusalError if writes else ProviderError
        raise kind(f"the provider cluster-api: {error}") from error


def _decode(body: bytes, rule: AccessRule, kind: str, *keys: str) -> dict[str, Any]:
    """Return an answer of this kind with these keys in its metadata.

    A gateway's answer that looks like success would else be a group without machines, or a change that was never made.

    Raises:
        ProviderError: it is something else.
    """
    try:
        decoded = msgspec.json.decode(body, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise ProviderError(
            f"the provider cluster-api: {rule}: the answer is no object: {error}"
        ) from None
    metadata = decoded.get("metadata")
    has_keys = isinstance(metadata, dict) and all(metadata.get(key) for key in keys)
    if decoded.get("kind") != kind or (keys and not has_keys):
        raise ProviderError(f"the provider cluster-api: {rule}: the answer is no {kind}")
    return decoded
