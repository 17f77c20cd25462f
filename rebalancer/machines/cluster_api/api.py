"""Requests to the API server that has the objects of Cluster API: lists, single objects, and guarded changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from rebalancer.base.errors import ClusterReadError, ProviderError, ProviderRefusalError
from rebalancer.kube.failures import StatusError, TransportError, says_missing
from rebalancer.kube.resources import AccessRule
from rebalancer.machines.cluster_api.objects import GROUP, VERSIONS, Raw
from rebalancer.wire.kinds import Resource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rebalancer.kube.client import Client

_PAGE = 500
_ATTEMPTS = 4
"""To change an object: controllers write its status at any moment."""
_SECONDS = 5.0
"""For one write."""
_IDENTITY = ("name", "uid", "resourceVersion")
"""What the metadata of each object say: a change is guarded by it."""

Decide = Callable[[Raw], Mapping[str, Any] | None]
"""Is given an object as it is, and returns what changes of it, or None; is asked again after a conflict or a lost answer."""


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
        rule = AccessRule("list", resource.group, resource.plural, self.namespace)
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
        rule = AccessRule("get", resource.group, resource.plural, self.namespace)
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
        rule = AccessRule("patch", resource.group, resource.plural, self.namespace)
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
