"""The API server's logic: a request in, an answer out, no network.

Server-side apply is treated as a strategic merge: fields are not owned, so an applied manifest can add
and change fields, but not remove them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rebalancer.embedded.apiserver import discovery, kinds
from rebalancer.embedded.apiserver.defaults import admit, complete
from rebalancer.embedded.apiserver.discovery import openapi_document
from rebalancer.embedded.apiserver.eviction import delete, evict
from rebalancer.embedded.apiserver.kinds import (
    ACCESS_REVIEW,
    ApiError,
    Json,
    Kind,
    Target,
    bad_request,
    parse_path,
)
from rebalancer.embedded.apiserver.paging import Pager, WatchStream
from rebalancer.embedded.apiserver.store import Store, clone

SCALE = "scale"
API_VERSION, KIND = "autoscaling/v1", "Scale"


def as_scale(obj: Json) -> Json:
    """Return the replicas of a Deployment, ReplicaSet or StatefulSet as a Scale."""
    about = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    spec, labels = obj["spec"], (obj["spec"].get("selector") or {}).get("matchLabels") or {}
    return {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "metadata": {key: about[key] for key in kept if key in about},
        "spec": {"replicas": spec.get("replicas", 1)},
        "status": {
            "replicas": (obj.get("status") or {}).get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        },
    }


def with_scale(obj: Json, scale: Json) -> Json:
    """Return a workload with the replicas of ``scale``; 400 if ``scale`` is not a valid Scale."""
    given = (scale.get("apiVersion", API_VERSION), scale.get("kind", KIND))
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if given != (API_VERSION, KIND) or type(replicas) is not int or replicas < 0:
        raise bad_request(
            f"{given[1]} in version {given[0]!r} is no Scale with a number of replicas"
        )
    about = dict(obj["metadata"])
    if version := (scale.get("metadata") or {}).get("resourceVersion"):
        about["resourceVersion"] = version
    return {**obj, "metadata": about, "spec": {**obj["spec"], "replicas": replicas}}


# Lists that a strategic merge patch merges, with the merge key of their items.
_MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "ports": "containerPort",
    "volumes": "name",
    "ownerReferences": "uid",
    "topologySpreadConstraints": "topologyKey",
}


def apply_patch(content_type: str, obj: Json, patch: Any) -> Json:
    """Return the patched object; 415 for an unknown patch type, 400 for an invalid patch."""
    kind = content_type.partition(";")[0].strip()
    if kind == "application/json-patch+json":
        return _json_patch(obj, patch)
    if not isinstance(patch, Mapping):
        raise bad_request("the patch is not an object")
    if kind == "application/merge-patch+json":
        return dict(_merge(obj, patch, strategic=False))
    if kind in ("application/strategic-merge-patch+json", "application/apply-patch+yaml"):
        return dict(_merge(obj, patch, strategic=True))
    message = f"the body of the request was in an unknown format - {kind} is not a patch type"
    raise ApiError(415, "UnsupportedMediaType", message)


def _merge(old: Any, new: Mapping[str, Any], *, strategic: bool) -> Json:
    merged = dict(old) if isinstance(old, Mapping) else {}
    for key, value in new.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            merged[key] = _merge(merged.get(key), value, strategic=strategic)
        elif strategic and key in _MERGE_KEYS and isinstance(value, list):
            merged[key] = _merge_list(merged.get(key) or [], value, _MERGE_KEYS[key])
        else:
            merged[key] = value
    return merged


def _merge_list(old: Sequence[Json], new: Sequence[Json], by: str) -> list[Json]:
    merged = {item.get(by): item for item in old}
    for item in new:
        if item.get("$patch") == "delete":
            merged.pop(item.get(by), None)
        else:
            merged[item.get(by)] = _merge(merged.get(item.get(by)), item, strategic=True)
    return list(merged.values())


def _json_patch(obj: Json, operations: Any) -> Json:
    if not isinstance(operations, list):
        raise bad_request("a JSON patch is a list of operations")
    for operation in operations:
        try:
            obj = _operate(obj, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise bad_request(f"the JSON patch cannot be applied: {error!r}") from None
    return obj


def _operate(obj: Json, operation: Mapping[str, Any]) -> Json:
    path = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
    parent: Any = obj
    for part in path[:-1]:
        parent = parent[int(part)] if isinstance(parent, list) else parent[part]
    last: Any = path[-1]
    if isinstance(parent, list):
        last = len(parent) if last == "-" else int(last)
    kind = operation["op"]
    if kind == "test":
        if parent[last] != operation["value"]:
            raise ValueError(f"test of {operation['path']} failed")
    elif kind == "remove":
        del parent[last]
    elif kind == "add" and isinstance(parent, list):
        parent.insert(last, operation["value"])
    elif kind in ("add", "replace"):
        parent[last] = operation["value"]
    else:
        raise ValueError(f"operation {kind!r} is not known")
    return obj


_REVIEWS = f"{ACCESS_REVIEW.root}/{ACCESS_REVIEW.plural}"


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = "application/json"
    authorization: str = ""
    accept: str = "application/json"


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP answer: a body, or a stream of lines (a watch)."""

    code: int
    body: bytes = b""
    stream: Iterator[bytes] | None = None
    retry_after: int = 0
    content_type: str = "application/json"


class Api:
    """The API server over one store. Thread-safe: every request but a watch runs under the store's lock."""

    def __init__(self, store: Store, access: AccessControl, version: tuple[int, int]) -> None:
        self._store, self._access, self._version = store, access, version
        self.pager = Pager(store)
        self.actions: dict[str, Callable[[], Json]] = {}
        """Path beside Kubernetes' own -> the handler of a POST to it, which acquires the store's lock itself."""

    def answer(self, request: HttpRequest) -> Reply:
        """Return the answer to a request; a refusal is an answer with a Status object."""
        try:
            return self._answer(request)
        except kinds.ApiError as refusal:
            body = msgspec.json.encode(refusal.status())
            return Reply(refusal.code, body, retry_after=refusal.retry_after)

    def _answer(self, request: HttpRequest) -> Reply:
        if request.path in ("/healthz", "/livez", "/readyz"):
            return Reply(200, b"ok", content_type="text/plain")
        if request.path == "/version":
            return _json(200, discovery.version(self._version))
        user = self._access.user(request.authorization)
        if request.path == _REVIEWS and request.method == "POST":
            return _json(201, self._access.review(_decode(request)))
        if request.path in self.actions and request.method == "POST":
            return _json(200, self.actions[request.path]())
        document = _document(request.path) if request.method == "GET" else None
        if document is not None:
            return _json(200, document)
        target = parse_path(request.path)
        if target is None:
            raise kinds.no_such_path()
        watch = request.query.get("watch", "") in ("1", "true", "True")
        self._access.check(user, verb_of(request.method, target, watch=watch), target)
        with self._store.lock:
            if watch and request.method == "GET":
                shape = self._shape(request, target)
                return Reply(
                    200, stream=WatchStream(self._store, target, request.query, shape).lines()
                )
            return self._do(request, target)

    def _do(self, request: HttpRequest, target: Target) -> Reply:
        if request.method == "GET":
            return self._read(request, target)
        if request.method == "POST":
            return self._create(request, target)
        if not target.name:
            if request.method == "DELETE":
                return self._delete_collection(request, target)
            raise kinds.not_allowed(target.kind)
        if request.method == "PUT":
            return self._update(target, request.query, _decode(request))
        if request.method == "PATCH":
            return self._patch(request, target)
        if request.method == "DELETE":
            obj = self._store.get(target.kind, target.namespace, target.name)
            options = _options(request)
            return _json(200, add_type(target, delete(self._store, target.kind, obj, options)))
        raise kinds.not_allowed(target.kind)

    def _read(self, request: HttpRequest, target: Target) -> Reply:
        shape = self._shape(request, target)
        if target.name:
            if target.subresource not in ("", "status", SCALE):
                raise kinds.not_allowed(target.kind)
            obj = self._store.get(target.kind, target.namespace, target.name)
            return _json(200, as_scale(obj) if target.subresource == SCALE else shape(obj))
        page = self.pager.page(target, request.query)
        if discovery.wants_table(request.accept, target.kind):
            return _json(200, self._table(request, target, page.items, page.metadata))
        listed = {
            "kind": f"{target.kind.kind}List",
            "apiVersion": target.kind.api_version,
            "metadata": page.metadata,
            "items": page.items,
        }
        return _json(200, listed)

    def _shape(self, request: HttpRequest, target: Target) -> Callable[[Json], Json]:
        """Return a function that converts a stored object to the requested form: with its type, or as a table row."""
        if discovery.wants_table(request.accept, target.kind):
            return lambda obj: self._table(request, target, [obj], {})
        return lambda obj: add_type(target, obj)

    def _table(
        self, request: HttpRequest, target: Target, items: Sequence[Json], metadata: Json
    ) -> Json:
        whole = request.query.get("includeObject") == "Object"
        return discovery.table(target.kind, items, metadata, self._store.clock.now(), whole=whole)

    def _create(self, request: HttpRequest, target: Target) -> Reply:
        evicts = target.subresource == "eviction"
        if not evicts and (target.name or (target.kind.namespaced and not target.namespace)):
            raise kinds.not_allowed(target.kind)
        manifest = _decode(request)
        if evicts:
            options = dict(manifest.get("deleteOptions") or {})
            if request.query.get("dryRun"):
                options.setdefault("dryRun", [request.query["dryRun"]])
            manifest = {**manifest, "deleteOptions": options}
            return _json(201, evict(self._store, target.namespace, target.name, manifest))
        _check_type(target, manifest)
        made = admit(self._store, target.kind, target.namespace, manifest)
        if request.query.get("dryRun"):
            return _json(201, add_type(target, made))
        return _json(201, add_type(target, self._store.create(target.kind, target.namespace, made)))

    def _scale(self, target: Target, query: Mapping[str, str], scale: Json) -> Reply:
        old = self._store.get(target.kind, target.namespace, target.name)
        new = with_scale(clone(old), scale)
        if not query.get("dryRun"):
            new = self._store.replace(target.kind, old, new, status_only=False)
        return _json(200, as_scale(new))

    def _update(self, target: Target, query: Mapping[str, str], new: Json) -> Reply:
        if target.subresource == SCALE:
            return self._scale(target, query, new)
        _check_type(target, new)
        old = self._store.get(target.kind, target.namespace, target.name)
        new = {key: value for key, value in new.items() if key not in ("kind", "apiVersion")}
        new.setdefault("metadata", {"name": target.name})
        if new["metadata"].get("name", target.name) != target.name:
            raise kinds.bad_request("the name of the object does not match the name on the URL")
        complete(target.kind, new)
        if query.get("dryRun"):
            return _json(200, add_type(target, new))
        only = target.subresource == "status"
        stored = self._store.replace(target.kind, old, new, status_only=only)
        return _json(200, add_type(target, stored))

    def _patch(self, request: HttpRequest, target: Target) -> Reply:
        patch = _decode(request, must_be_object=False)
        old = self._store.find(target.kind, target.namespace, target.name)
        applies = request.content_type.startswith("application/apply-patch")
        if old is None and applies and not target.subresource:
            whole = Target(target.kind, target.namespace)
            made = HttpRequest("POST", request.path, request.query, request.body)
            return self._create(made, whole)
        old = self._store.get(target.kind, target.namespace, target.name)
        scales = target.subresource == SCALE
        shown = as_scale(old) if scales else add_type(target, clone(old))
        new = apply_patch(request.content_type, shown, patch)
        if applies:
            # The applied manifest has no version: it applies to the present object.
            new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        return self._update(target, request.query, new)

    def _delete_collection(self, request: HttpRequest, target: Target) -> Reply:
        if target.kind.namespaced and not target.namespace:
            raise kinds.not_allowed(target.kind)
        query = {key: value for key, value in request.query.items() if key.endswith("Selector")}
        for obj in self.pager.page(target, query).items:
            delete(self._store, target.kind, obj, _options(request))
        return _json(200, kinds.success())


def add_type(target: Target, obj: Mapping[str, Any]) -> Json:
    """Return an object with kind and apiVersion, which items of lists lack."""
    return {"kind": target.kind.kind, "apiVersion": target.kind.api_version, **obj}


def _json(code: int, body: Any) -> Reply:
    return Reply(code, msgspec.json.encode(body))


def _document(path: str) -> Json | None:
    return discovery.document(path) or openapi_document(path)


_JSON_ONLY = (
    "this server takes JSON only, and your client sends {}; with kubectl:"
    " `kubectl create ... --dry-run=client -o yaml | kubectl apply -f -`"
)


def _decode(request: HttpRequest, *, must_be_object: bool = True) -> Any:
    kind = request.content_type.partition(";")[0].strip()
    if kind.endswith(("protobuf", "cbor")):
        raise ApiError(415, "UnsupportedMediaType", _JSON_ONLY.format(kind))
    try:
        decoded = msgspec.json.decode(request.body)
    except msgspec.DecodeError as error:
        raise kinds.bad_request(f"the body is not JSON: {error}") from None
    if must_be_object and not isinstance(decoded, dict):
        raise kinds.bad_request("the body is not an object")
    return decoded


def _options(request: HttpRequest) -> Json:
    options: Json = dict(_decode(request)) if request.body else {}
    if "gracePeriodSeconds" in request.query:
        options.setdefault("gracePeriodSeconds", int(request.query["gracePeriodSeconds"]))
    if "propagationPolicy" in request.query:
        options.setdefault("propagationPolicy", request.query["propagationPolicy"])
    return options


def _check_type(target: Target, manifest: Json) -> None:
    kind = target.kind
    given = (manifest.get("apiVersion") or kind.api_version, manifest.get("kind") or kind.kind)
    if given != (kind.api_version, kind.kind):
        raise kinds.bad_request(
            f"{given[1]} in version {given[0]!r} cannot be handled as a {kind.kind}: the types differ"
        )


@dataclass
class AccessControl:
    """Maps tokens to user names; every user may do everything that is not denied."""

    tokens: dict[str, str] = field(default_factory=dict)
    anonymous: bool = False
    """Whether requests without a token are let in: kubectl sends none without TLS."""
    denied: set[tuple[str, str]] = field(default_factory=set)
    """(verb, resource) such as ``("create", "pods/eviction")`` or ``("list", "deployments.apps")``."""

    def user(self, authorization: str) -> str:
        """Return the user of an Authorization header; 401 if its token is unknown."""
        if self.anonymous and not authorization:
            return "system:anonymous"
        scheme, _, token = authorization.partition(" ")
        user = self.tokens.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise kinds.no_identity()
        return user

    def check(self, user: str, verb: str, target: Target) -> None:
        """Raise 403 with the server's text if this verb is denied."""
        resource = _resource(target.kind, target.subresource)
        if (verb, resource) not in self.denied:
            return
        plural = resource.removesuffix(f".{target.kind.group}")
        where = (
            f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
        )
        why = f'User "{user}" cannot {verb} resource "{plural}" in API group "{target.kind.group}" {where}'
        raise kinds.forbidden(target.kind, target.name, why)

    def review(self, review: Mapping[str, Any]) -> Json:
        """Answer a SelfSubjectAccessReview."""
        attributes = (review.get("spec") or {}).get("resourceAttributes") or {}
        group = f".{attributes['group']}" if attributes.get("group") else ""
        resource = f"{attributes.get('resource', '')}{group}"
        if attributes.get("subresource"):
            resource = f"{attributes.get('resource', '')}/{attributes['subresource']}{group}"
        allowed = (attributes.get("verb", ""), resource) not in self.denied
        return {
            "kind": "SelfSubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "metadata": {},
            "spec": review.get("spec") or {},
            "status": {"allowed": allowed},
        }


def verb_of(method: str, target: Target, *, watch: bool) -> str:
    """Return the RBAC verb of a request."""
    if method in _VERBS:
        return "deletecollection" if method == "DELETE" and not target.name else _VERBS[method]
    if target.name:
        return "get"
    return "watch" if watch else "list"


def _resource(kind: Kind, subresource: str) -> str:
    plural = f"{kind.plural}/{subresource}" if subresource else kind.plural
    return f"{plural}.{kind.group}" if kind.group else plural
