"""The resources of the embedded API server, how paths name them, and the Status objects of its refusals.

Source of the texts: ``k8s.io/apimachinery/pkg/api/errors``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

Json = dict[str, Any]
"""An object of the API, or a part of one, as plain data."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One resource type."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    counts_generations: bool = False
    """Whether ``metadata.generation`` grows with the spec (Nodes, Namespaces and many others have none)."""
    subresources: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """``v1``, ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """``pods``, ``deployments.apps``: its name in the server's messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def root(self) -> str:
        """``/api/v1``, ``/apis/apps/v1``."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"


POD = Kind("", "v1", "Pod", "pods", True, True, ("status", "eviction"))
NODE = Kind("", "v1", "Node", "nodes", False, False, ("status",))
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", False, False, ("status",))
SERVICE = Kind("", "v1", "Service", "services", subresources=("status",))
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas", subresources=("status",))
VOLUME = Kind("", "v1", "PersistentVolume", "persistentvolumes", False, subresources=("status",))
CLAIM = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", subresources=("status",))
CONTROLLER = Kind(
    "", "v1", "ReplicationController", "replicationcontrollers", True, True, ("status",)
)
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments", True, True, ("status", "scale"))
REPLICA_SET = Kind("apps", "v1", "ReplicaSet", "replicasets", True, True, ("status", "scale"))
STATEFUL_SET = Kind("apps", "v1", "StatefulSet", "statefulsets", True, True, ("status", "scale"))
DAEMON_SET = Kind("apps", "v1", "DaemonSet", "daemonsets", True, True, ("status",))
JOB = Kind("batch", "v1", "Job", "jobs", True, True, ("status",))
BUDGET = Kind(
    "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, True, ("status",)
)
AUTOSCALER = Kind(
    "autoscaling",
    "v2",
    "HorizontalPodAutoscaler",
    "horizontalpodautoscalers",
    subresources=("status",),
)
STORAGE_CLASS = Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", False)
CSI_NODE = Kind("storage.k8s.io", "v1", "CSINode", "csinodes", False)
VOLUME_ATTACHMENT = Kind("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", False)
PRIORITY_CLASS = Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False)
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
EVENT = Kind("events.k8s.io", "v1", "Event", "events")

KINDS = (
    POD,
    NODE,
    NAMESPACE,
    SERVICE,
    CONFIG_MAP,
    SERVICE_ACCOUNT,
    QUOTA,
    VOLUME,
    CLAIM,
    CONTROLLER,
    DEPLOYMENT,
    REPLICA_SET,
    STATEFUL_SET,
    DAEMON_SET,
    JOB,
    BUDGET,
    AUTOSCALER,
    STORAGE_CLASS,
    CSI_NODE,
    VOLUME_ATTACHMENT,
    PRIORITY_CLASS,
    LEASE,
    EVENT,
)
ACCESS_REVIEW = Kind(
    "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews"
)
"""The kind of access reviews, which are answered and never stored."""

BY_ROOT: Mapping[tuple[str, str], Kind] = MappingProxyType({(k.root, k.plural): k for k in KINDS})
BY_NAME: Mapping[tuple[str, str], Kind] = MappingProxyType(
    {(k.api_version, k.kind): k for k in KINDS}
)


@dataclass(frozen=True, slots=True)
class Target:
    """The parts of a path: a collection, an object, or a subresource of an object."""

    kind: Kind
    namespace: str = ""
    """Empty: the whole cluster, or a kind without namespaces."""
    name: str = ""
    subresource: str = ""


def parse_path(path: str) -> Target | None:
    """Parse a path below ``/api`` or ``/apis``; None if there is no such resource."""
    parts = path.strip("/").split("/")
    size = {"api": 2, "apis": 3}.get(parts[0], 0)
    root, names = "/" + "/".join(parts[:size]), parts[size:]
    if not size or not names or not all(names):
        return None
    namespace = ""
    if names[0] == "namespaces" and len(names) > 2 and (root, names[2]) in BY_ROOT:
        namespace, names = names[1], names[2:]
    kind = BY_ROOT.get((root, names[0]))
    if kind is None or len(names) > 3 or bool(namespace) > kind.namespaced:
        return None
    name, subresource = [*names[1:], "", ""][:2]
    if name and kind.namespaced and not namespace:
        return None
    if subresource and subresource not in kind.subresources:
        return None
    return Target(kind, namespace, name, subresource)


def condition(status: Mapping[str, Any], kind: str) -> Json | None:
    """Return the condition of a type, or None."""
    for item in status.get("conditions") or ():
        if item["type"] == kind:
            return dict(item)
    return None


def set_condition(status: Json, kind: str, value: str, now: str, **fields: Any) -> None:
    """Set a condition in place; its transition time changes only with its status, ``value``."""
    conditions = status.setdefault("conditions", [])
    for item in conditions:
        if item["type"] == kind:
            if item["status"] != value:
                item["lastTransitionTime"] = now
            item |= {"status": value, **fields}
            return
    conditions.append({"type": kind, "status": value, "lastTransitionTime": now, **fields})


def is_ready(obj: Mapping[str, Any]) -> bool:
    """Whether a pod or node has the condition Ready."""
    ready = condition(obj.get("status") or {}, "Ready")
    return ready is not None and ready["status"] == "True"


class ApiError(Exception):
    """A refused request; :meth:`status` is the body of the answer."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        self.details, self.meta = dict(details or {}), dict(meta or {})

    def status(self) -> Json:
        """Return the Status object."""
        status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.meta,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = self.details
        status["code"] = self.code
        return status

    @property
    def retry_after(self) -> int:
        """Seconds for the Retry-After header, 0 for none."""
        return int(self.details.get("retryAfterSeconds", 0))


def success(code: int | None = None) -> Json:
    """Return the Status object of a success."""
    status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if code is not None:
        status["code"] = code
    return status


def _detail(kind: Kind, name: str) -> Json:
    group = {"group": kind.group} if kind.group else {}
    return {"name": name, **group, "kind": kind.plural}


def not_found(kind: Kind, name: str) -> ApiError:
    """404: no object of this name."""
    message = f'{kind.resource} "{name}" not found'
    return ApiError(404, "NotFound", message, _detail(kind, name))


def no_such_path() -> ApiError:
    """404: the path names no resource."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(kind: Kind, name: str) -> ApiError:
    """409: there is an object of this name."""
    message = f'{kind.resource} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _detail(kind, name))


def conflict(kind: Kind, name: str, why: str) -> ApiError:
    """409: a precondition or resourceVersion does not match."""
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return ApiError(409, "Conflict", message, _detail(kind, name))


def precondition(kind: Kind, name: str, field: str, wanted: str, actual: str) -> ApiError:
    """409: uid or resourceVersion differ from the precondition."""
    # The server names the kind here, not the resource.
    happened = "modified" if field == "ResourceVersion" else "deleted and then recreated"
    message = (
        f'Operation cannot be fulfilled on {kind.kind} "{name}": the {field} in the precondition '
        f"({wanted}) does not match the {field} in record ({actual}). The object might have been "
        f"{happened}"
    )
    details = {**_detail(kind, name), "kind": kind.kind}
    return ApiError(409, "Conflict", message, details)


def write_conflict(kind: Kind, name: str) -> ApiError:
    """409: the object was written by another client since it was read."""
    why = "the object has been modified; please apply your changes to the latest version"
    return conflict(kind, name, f"{why} and try again")


def forbidden(kind: Kind, name: str, why: str) -> ApiError:
    """403: denied by the user's rights, or by an admission plug-in."""
    named = f'{kind.resource} "{name}"' if name else kind.resource
    return ApiError(403, "Forbidden", f"{named} is forbidden: {why}", _detail(kind, name))


def invalid(kind: Kind, name: str, field: str, why: str) -> ApiError:
    """422: a field of the object is wrong."""
    resource = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    group = {"group": kind.group} if kind.group else {}
    causes: Sequence[Json] = [{"reason": "FieldValueInvalid", "message": why, "field": field}]
    details = {"name": name, **group, "kind": kind.kind, "causes": causes}
    return ApiError(422, "Invalid", f'{resource} "{name}" is invalid: {field}: {why}', details)


def bad_request(why: str) -> ApiError:
    """400: the request is malformed."""
    return ApiError(400, "BadRequest", why)


def not_allowed(kind: Kind) -> ApiError:
    """405: the resource has no such verb."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, _detail(kind, ""))


def no_identity() -> ApiError:
    """401: no token, or an unknown one."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def version_expiry(why: str, meta: Mapping[str, Any] | None = None) -> ApiError:
    """410: this version was compacted."""
    return ApiError(410, "Expired", why, meta=meta)
