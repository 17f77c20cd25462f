"""A small API server with objects of Cluster API, and its controllers by their rules, step by step."""

import copy
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rebalancer.kube.failures import TransportError, refusal
from rebalancer.kube.transport import Response
from rebalancer.machines.cluster_api.api import DELETE, MAX_SIZE, MIN_SIZE, NO_CREATION
from rebalancer.wire.times import rfc3339

API = "/apis/cluster.x-k8s.io"
PLURALS = ("clusters", "machinedeployments", "machinesets", "machines")
OTHERS = {"boxes": "Box", "boxtemplates": "BoxTemplate"}
"""Of an infrastructure: plural -> kind."""
KINDS = dict(zip(PLURALS, ("Cluster", "MachineDeployment", "MachineSet", "Machine"), strict=True))


def template(version="v1.36.0", infrastructure="small"):
    """A template of Machines."""
    return {
        "spec": {
            "clusterName": "work",
            "version": version,
            "infrastructureRef": {
                "apiGroup": "infra.test",
                "kind": "BoxTemplate",
                "name": infrastructure,
            },
        }
    }


def owned(kind, name):
    """An owner reference to a controller, as the world gives uids."""
    version = "cluster.x-k8s.io/v1beta2"
    one = {"apiVersion": version, "kind": kind, "name": name, "uid": f"{kind}-{name}"}
    return [{**one, "controller": True}]


@dataclass
class World:
    """What the provider's client talks to."""

    version: str = "v1beta2"
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """(plural, name) -> object, all in one namespace."""
    others: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Path of a list of other kinds -> its items."""
    forbids: set[str] = field(default_factory=set)
    """Paths that the role may not read."""
    seconds: float = 0.0
    works: bool = True
    """Whether controllers work while somebody waits."""
    server: str = "https://test"
    patches: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Name and body of each patch that was carried out."""
    ended: list[str] = field(default_factory=list)
    """Machines that a MachineSet has deleted, in order."""
    lose: Callable[[str, dict[str, Any]], str] = lambda *_: ""
    """What becomes of a patch.

    Empty, ``after`` (done, and the answer is lost), ``before`` (neither), ``garbled`` (neither, and 200 is answered), or a status.
    """
    meanwhile: Callable[[str, dict[str, Any]], None] = lambda *_: None
    """Called before each patch."""
    garbled: dict[str, Any] | None = None
    """The answer to each read of objects, as a gateway gives it, if any."""
    _counter: Any = field(default_factory=lambda: itertools.count(1))

    # -- objects -------------------------------------------------------------------------------------

    def add(self, plural, name, spec=None, **more):
        """Add an object."""
        kind = KINDS[plural]
        metadata = {
            "name": name,
            "namespace": "default",
            "uid": f"{kind}-{name}",
            "generation": 1,
            "creationTimestamp": rfc3339(1.8e9 + next(self._counter)),
            "resourceVersion": str(next(self._counter)),
            "labels": {"cluster.x-k8s.io/cluster-name": "work", **more.pop("labels", {})},
            "annotations": more.pop("annotations", {}),
            "ownerReferences": more.pop("owners", []),
        }
        self.objects[plural, name] = {
            "apiVersion": f"cluster.x-k8s.io/{self.version}",
            "kind": kind,
            "metadata": metadata,
            "spec": spec or {},
            **more,
        }
        return self.objects[plural, name]

    def cluster(self, **spec):
        """Add the Cluster."""
        return self.add("clusters", "work", spec)

    def deployment(
        self, name="pool", replicas=3, low="1", high="5", strategy="RollingUpdate", **more
    ):
        """Add a MachineDeployment with its MachineSet and their Machines."""
        spec = {
            "clusterName": "work",
            "replicas": replicas,
            "selector": {"matchLabels": {"pool": name}},
            "template": more.pop("template", template()),
            "rollout": {"strategy": {"type": strategy}},
        }
        sizes = {MIN_SIZE: low, MAX_SIZE: high} if low is not None else {}
        annotations = {**sizes, **more.pop("annotations", {})}
        made = self.add("machinedeployments", name, spec, annotations=annotations, **more)
        self.settle()
        return made

    def machine_set(self, name, replicas, of=None, *, low="1", high="5", **more):
        """Add a MachineSet, of a MachineDeployment if ``of`` names one, with its Machines."""
        spec = {
            "clusterName": "work",
            "replicas": replicas,
            "selector": {"matchLabels": {"pool": of or name}},
            "template": more.pop("template", template()),
        }
        annotations = {} if of else {MIN_SIZE: low, MAX_SIZE: high}
        owners = owned("MachineDeployment", of) if of else []
        labels = {"pool": of or name}
        more = {"annotations": annotations, "owners": owners, "labels": labels, **more}
        made = self.add("machinesets", name, spec, **more)
        self.settle()
        return made

    def of(self, plural):
        """All objects of a kind, by name."""
        return [one for (kind, _), one in sorted(self.objects.items()) if kind == plural]

    def machines(self):
        """The names of Machines that are not being deleted."""
        return [name_of(one) for one in self.of("machines") if not is_going(one)]

    def change(self, plural, name, change):
        """Change an object as another client does: ``change`` is given a copy that it may alter."""
        old = self.objects[plural, name]
        new = copy.deepcopy(old)
        change(new)
        meta = new["metadata"]
        meta["resourceVersion"] = str(next(self._counter))
        meta["generation"] += new["spec"] != old["spec"]
        self.objects[plural, name] = new

    def touch(self, plural, name):
        """Write its status, as controllers do at any moment."""
        self.change(
            plural, name, lambda one: one.setdefault("status", {}).update(seen=next(self._counter))
        )

    def annotate(self, plural, name, key, value):
        """Set an annotation."""
        self.change(plural, name, lambda one: one["metadata"]["annotations"].update({key: value}))

    # -- controllers ---------------------------------------------------------------------------------

    def settle(self):
        """Let MachineDeployments and MachineSets do what they do, until nothing changes; nodes join at once."""
        for _ in range(20):
            before = copy.deepcopy(self.objects)
            for one in self.of("machinedeployments"):
                self._reconcile_deployment(one)
            for one in self.of("machinesets"):
                self._reconcile_set(one)
            if before == self.objects:
                return
        raise AssertionError("it does not settle")

    def finish_deletions(self):
        """Let Machines that are being deleted be gone."""
        for one in self.of("machines"):
            if is_going(one):
                del self.objects["machines", name_of(one)]

    def _reconcile_deployment(self, owner):
        uid, spec = owner["metadata"]["uid"], owner["spec"]
        mine = [one for one in self.of("machinesets") if controller(one) == uid]
        new = [one for one in mine if one["spec"]["template"] == spec["template"]]
        if not new:
            name = f"{name_of(owner)}-{len(mine) + 1}"
            new = [
                self.add(
                    "machinesets",
                    name,
                    {
                        **{k: spec[k] for k in ("clusterName", "selector", "template")},
                        "replicas": 0,
                    },
                    owners=owned("MachineDeployment", name_of(owner)),
                    labels=spec["selector"]["matchLabels"],
                )
            ]
            mine += new
        old = sorted((one for one in mine if one is not new[0]), key=created)
        surplus = sum(one["spec"]["replicas"] for one in mine) - spec["replicas"]
        if spec["rollout"]["strategy"]["type"] == "RollingUpdate":
            surplus = 0
            self._scale(new[0], spec["replicas"])
            for one in old:
                self._scale(one, 0)
        for one in old:
            if spec["rollout"]["strategy"]["type"] == "OnDelete":
                one["metadata"]["annotations"][NO_CREATION] = "true"
        for one in [*old, new[0]]:
            less = max(0, min(surplus, one["spec"]["replicas"]))
            self._scale(one, one["spec"]["replicas"] - less)
            surplus -= less
        if surplus < 0:
            self._scale(new[0], new[0]["spec"]["replicas"] - surplus)

    def _scale(self, one, replicas):
        if one["spec"]["replicas"] != replicas:
            self.change(
                "machinesets", name_of(one), lambda it: it["spec"].update(replicas=replicas)
            )

    def _reconcile_set(self, owner):
        mine = [one for one in self.of("machines") if controller(one) == owner["metadata"]["uid"]]
        missing = owner["spec"]["replicas"] - len(mine)
        for _ in range(missing):
            self._create(owner)
        # machineset_deletion_order.go: those that are going, marked ones, those without a node, then any.
        mine.sort(
            key=lambda one: (
                not is_going(one),
                DELETE not in one["metadata"]["annotations"],
                "nodeRef" in one.get("status", {}),
                name_of(one),
            )
        )
        for one in mine[: max(0, -missing)]:
            if not is_going(one):
                self.ended.append(name_of(one))
            del self.objects["machines", name_of(one)]

    def _create(self, owner):
        name = f"{name_of(owner)}-{next(self._counter)}"
        spec = {**owner["spec"]["template"]["spec"], "providerID": f"box:///{name}"}
        status = {"nodeRef": {"name": f"node-{name}"}}
        owners = owned("MachineSet", name_of(owner))
        labels = owner["metadata"]["labels"]
        self.add("machines", name, spec, owners=owners, labels=labels, status=status)

    # -- the client ----------------------------------------------------------------------------------

    @property
    def stop(self):
        """What ends waits; while somebody waits controllers work, if they do."""
        return self

    def wait(self, seconds):
        """Let time pass."""
        self.seconds += seconds
        if self.works:
            self.settle()

    def monotonic(self):
        """The time of the client's clock."""
        return self.seconds

    def get(self, path, *, query=None, **_):
        """Answer a read."""
        if (discovered := self._discovery().get(path)) is not None:
            return respond(discovered)
        if path in self.forbids:
            return respond({"kind": "Status", "code": 403, "message": "by the test"}, 403)
        if self.garbled is not None:
            return respond(self.garbled)
        if path in self.others:
            return respond(_list_of(OTHERS[path.rpartition("/")[2]], self.others[path]))
        plural, _, name = path.partition("/namespaces/default/")[2].partition("/")
        if name:
            return self._get_one(path, plural, name)
        wanted = dict(
            part.split("=") for part in (query or {}).get("labelSelector", "").split(",") if part
        )
        found = [
            one for one in self.of(plural) if wanted.items() <= one["metadata"]["labels"].items()
        ]
        return respond(_list_of(KINDS[plural], found))

    def _discovery(self):
        versions = [{"version": "v1alpha4"}, {"version": self.version}]
        resources = [{"name": plural, "kind": kind} for plural, kind in OTHERS.items()]
        return {
            API: {"kind": "APIGroup", "versions": versions},
            "/apis/infra.test": {"kind": "APIGroup", "versions": [{"version": "v1"}]},
            "/apis/infra.test/v1": {"kind": "APIResourceList", "resources": resources},
        }

    def _get_one(self, path, plural, name):
        if (found := self.objects.get((plural, name))) is not None:
            return respond(found)
        for one in self.others.get(path.rpartition("/")[0], ()):
            if name_of(one) == name:
                meta = {"uid": name, "resourceVersion": "1", **one["metadata"]}
                return respond({"kind": OTHERS[plural], **one, "metadata": meta})
        return respond({"kind": "Status", "code": 404, "message": "not found"}, 404)

    def patch(self, path, body, **_):
        """Answer a merge patch, guarded by uid and version."""
        plural, _, name = path.partition("/namespaces/default/")[2].partition("/")
        wanted = json.loads(body)
        self.meanwhile(name, wanted)
        fate = self.lose(name, wanted)
        if fate == "before":
            raise TransportError("the connection broke", sent=True)
        if fate == "garbled":
            return respond({})
        if fate.isdigit():
            return respond(
                {"kind": "Status", "code": int(fate), "message": "by the test"}, int(fate)
            )
        now = self.objects.get((plural, name))
        if now is None:
            return respond({"kind": "Status", "code": 404, "message": "not found"}, 404)
        meta = wanted.pop("metadata")
        for key in ("uid", "resourceVersion"):
            if meta.pop(key) != now["metadata"][key]:
                return respond({"kind": "Status", "code": 409, "message": "conflict"}, 409)
        self.change(plural, name, lambda one: merge(one, {**wanted, "metadata": meta}))
        self.patches.append((name, {**wanted, **({"metadata": meta} if meta else {})}))
        if fate == "after":
            raise TransportError("the connection broke", sent=True)
        return respond(self.objects[plural, name])

    def expect(self, response, rule):
        """As the real client does."""
        if response.ok:
            return response
        raise refusal(response.status, response.body, rule, self.server)


def _list_of(kind, items):
    """A list as the API server gives it."""
    return {"kind": f"{kind}List", "metadata": {"resourceVersion": "1"}, "items": items}


def merge(one, patch):
    """Change an object by a merge patch (RFC 7386)."""
    for key, value in patch.items():
        if value is None:
            one.pop(key, None)
        elif isinstance(value, dict):
            merge(one.setdefault(key, {}), value)
        else:
            one[key] = value


def respond(body, status=200):
    """A response with JSON."""
    return Response(status, {}, json.dumps(body).encode())


def name_of(one):
    """The name of an object."""
    return one["metadata"]["name"]


def created(one):
    """By what MachineSets are ordered."""
    return (one["metadata"]["creationTimestamp"], name_of(one))


def controller(one):
    """The uid of an object's controller; None without one."""
    return next((each["uid"] for each in one["metadata"]["ownerReferences"]), None)


def is_going(one):
    """Whether an object is being deleted."""
    return "deletionTimestamp" in one["metadata"]
