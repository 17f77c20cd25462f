"""DynamicResources: devices that pods claim, on small clusters."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.scheduler.profile import SchedulerProfile
from tests.unit.scheduler.worlds import HOSTNAME, Json, World, node, pod

DRIVER = "gpu.example.com"
NODES = ("a", "b")


def device(name: str, **more: Any) -> Json:
    """Return a device; text, numbers and truths are its attributes, and ``memory`` its capacity."""
    attributes = {
        key: {{str: "string", int: "int", bool: "bool"}[type(value)]: value}
        for key, value in more.items()
        if isinstance(value, str | int) and key != "memory"
    }
    capacity = {"memory": {"value": more["memory"]}} if "memory" in more else {}
    rest = {key: value for key, value in more.items() if isinstance(value, list | dict)}
    return {"name": name, "attributes": attributes, "capacity": capacity, **rest}


def on(where: str, *devices: Json, pool: str = "", count: int = 1, **more: Any) -> Json:
    """Return the ResourceSlice of a node."""
    name = pool or where
    return {
        "metadata": {"name": f"{name}-{more.get('generation', 1)}-{len(devices)}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": where,
            "pool": {
                "name": name,
                "generation": more.pop("generation", 1),
                "resourceSliceCount": count,
            },
            "devices": list(devices),
            **more,
        },
    }


def gpus(where: str, number: int, **more: Any) -> Json:
    return on(where, *(device(f"gpu-{place}", **more) for place in range(number)))


def of_class(name: str = "gpu", *selectors: str) -> Json:
    expressions = selectors or (f'device.driver == "{DRIVER}"',)
    return {
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": one}} for one in expressions]},
    }


def request(number: int = 1, *selectors: str, name: str = "r", **more: Any) -> Json:
    exactly = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": number,
        "selectors": [{"cel": {"expression": one}} for one in selectors],
        **more,
    }
    return {"name": name, "exactly": exactly}


def claims_of(*requests: Json, **more: Any) -> Json:
    return {"devices": {"requests": list(requests), **more}}


def template(name: str, *requests: Json, **more: Any) -> Json:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": claims_of(*requests, **more)},
    }


def claim(
    name: str,
    spec: Json,
    *,
    of: str = "",
    node: str = "",
    devices: tuple[str, ...] = (),
    consumers: tuple[str, ...] = (),
    admin: bool = False,
) -> Json:
    """Return a ResourceClaim, of a pod's template if one is given; with ``node`` it has devices there."""
    metadata: Json = {"name": name, "namespace": "default"}
    if of:
        owner = {"kind": "Pod", "name": of, "uid": f"uid-default-{of}", "controller": True}
        metadata["ownerReferences"] = [owner]
    status: Json = {}
    if node:
        results = [
            {"request": "r", "driver": DRIVER, "pool": node, "device": one, "adminAccess": admin}
            for one in devices
        ]
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
        status["allocation"] = {
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": terms},
        }
        status["reservedFor"] = [
            {"resource": "pods", "name": one, "uid": f"uid-default-{one}"}
            for one in consumers or ((of,) if of else ())
        ]
    return {"metadata": metadata, "spec": spec, "status": status}


def wanting(name: str, *templates: str, on: str = "", **more: Any) -> Json:
    entries = [{"name": one, "resourceClaimTemplateName": one} for one in templates or ("one",)]
    return pod(name, on=on, resourceClaims=entries, **more)


def sharing(name: str, of: str, *, on: str = "", **more: Any) -> Json:
    return pod(name, on=on, resourceClaims=[{"name": "x", "resourceClaimName": of}], **more)


ONE = template("one", request())


def world(
    slices: list[Json],
    pods: list[Json],
    *,
    templates: tuple[Json, ...] = (ONE,),
    claims: list[Json] | None = None,
    classes: tuple[Json, ...] = (of_class(),),
    rules: tuple[Json, ...] = (),
    nodes: tuple[str, ...] = NODES,
    **more: Any,
) -> World:
    return World(
        [node(name) for name in nodes],
        pods,
        resourceslices=slices,
        resourceclaims=claims or [],
        resourceclaimtemplates=templates,
        deviceclasses=classes,
        devicetaintrules=rules,
        **more,
    )


def feasible(of: World, name: str = "p") -> list[str]:
    assert of.model.find_unmodelled(of.cls(name)) == ()
    return of.feasible(name)


def first(*alternatives: Json) -> Json:
    """Return a request for the first of several alternatives that a node has."""
    of = [{"name": one["name"], **one["exactly"]} for one in alternatives]
    return {"name": "any", "firstAvailable": of}


MODEL = f'device.attributes["{DRIVER}"].model'
BIG, SMALL = f'{MODEL} == "big"', f'{MODEL} == "small"'
MEMORY = f'device.capacity["{DRIVER}"].memory'


@pytest.mark.parametrize(
    ("slices", "wanted", "expected"),
    [
        pytest.param([gpus("a", 1)], request(), ["a"], id="one-has-some"),
        pytest.param([gpus("a", 1), gpus("b", 2)], request(2), ["b"], id="too-few"),
        pytest.param([], request(), [], id="none"),
        pytest.param([gpus("gone", 1), gpus("b", 1)], request(), ["b"], id="of-no-node"),
        pytest.param(
            [gpus("a", 1, model="big"), gpus("b", 1, model="small")],
            request(1, f'{MODEL} == "big"'),
            ["a"],
            id="attribute",
        ),
        pytest.param(
            [gpus("a", 1, model="big"), gpus("b", 1, model="small")],
            request(1, f'!({MODEL} in ["small", "tiny"])'),
            ["a"],
            id="not-in",
        ),
        pytest.param(
            [gpus("a", 1, memory="80Gi"), gpus("b", 1, memory="40G")],
            request(1, f'{MEMORY}.compareTo(quantity("40Gi")) >= 0'),
            ["a"],
            id="capacity",
        ),
        pytest.param(
            [gpus("a", 2, index=3), gpus("b", 2, index=5)],
            request(2, f'device.attributes["{DRIVER}"].index > 4'),
            ["b"],
            id="number",
        ),
        pytest.param([gpus("a", 3), gpus("b", 0)], request(allocationMode="All"), ["a"], id="all"),
        pytest.param([gpus("a", 32)], request(allocationMode="All"), ["a"], id="as-many-as-may-be"),
        pytest.param([], request(allocationMode="All"), [], id="all-of-none"),
        pytest.param(
            [gpus("a", 2, model="big")],
            request(1, f'{MODEL} == "small"', allocationMode="All"),
            [],
            id="all-that-match-none",
        ),
        pytest.param(
            [gpus("a", 2, taints=[{"key": "broken", "effect": "NoSchedule"}])],
            request(allocationMode="All"),
            [],
            id="all-of-tainted-ones",
        ),
        pytest.param(
            [on("a", device("x"), count=2), gpus("b", 1)], request(), ["b"], id="incomplete-pool"
        ),
        pytest.param(
            [
                {**gpus("a", 1), "spec": {**gpus("a", 1)["spec"], "nodeName": "", "nodeSelector": {
                    "nodeSelectorTerms": [{"matchExpressions": [
                        {"key": HOSTNAME, "operator": "In", "values": ["b"]}]}]}}},
            ],
            request(),
            ["b"],
            id="selector-of-one-node",
        ),
    ],
)  # fmt: skip
def test_a_pod_goes_where_its_devices_are(slices, wanted, expected):
    made = world(slices, [wanting("p")], templates=(template("one", wanted),))
    assert feasible(made) == expected


TAINT = {"key": "broken", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("taint", "tolerations", "expected"),
    [
        (TAINT, [], ["b"]),
        (TAINT, [{"key": "broken", "operator": "Exists"}], ["a", "b"]),
        (TAINT, [{"operator": "Exists", "effect": "NoSchedule"}], ["b"]),
        (TAINT, [{"key": "broken", "value": "yes"}], ["b"]),
        ({**TAINT, "value": "yes"}, [{"key": "broken", "value": "yes"}], ["a", "b"]),
        ({**TAINT, "effect": "None"}, [], ["a", "b"]),
    ],
)
@pytest.mark.parametrize("by_rule", [False, True])
def test_a_tainted_device_is_for_those_who_tolerate_it(taint, tolerations, expected, by_rule):
    rule = {"metadata": {"name": "rule"}, "spec": {"deviceSelector": {"pool": "a"}, "taint": taint}}
    made = world(
        [gpus("a", 1) if by_rule else gpus("a", 1, taints=[taint]), gpus("b", 1)],
        [wanting("p")],
        templates=(template("one", request(tolerations=tolerations)),),
        rules=(rule,) if by_rule else (),
    )
    assert feasible(made) == expected


def test_what_pods_have_is_in_use_until_they_are_gone():
    made = world(
        [gpus("a", 2), gpus("b", 1)],
        [wanting("old", on="a"), wanting("other", on="a"), wanting("p")],
        claims=[
            claim("c-old", claims_of(request()), of="old", node="a", devices=("gpu-0",)),
            claim("c-other", claims_of(request()), of="other", node="a", devices=("gpu-1",)),
        ],
    )
    state = made.state
    assert feasible(made) == ["b"]
    state.evict(made.row("old"))
    assert feasible(made) == ["b"]
    state.reap()
    assert feasible(made) == ["a", "b"]
    state.place(made.row("old"), made.cls("p"), 1)
    assert feasible(made) == ["a"]


@pytest.mark.parametrize("weights", [{}, {"NodeAffinity": 3}], ids=["default", "others"])
@pytest.mark.parametrize("prefers", [False, True])
@pytest.mark.parametrize(
    ("order", "best"),
    [
        ((BIG, SMALL), "a"),
        ((SMALL, BIG), "b"),
        ((BIG, f'{MODEL} != "other"'), "a"),
        ((SMALL, SMALL, f'{MODEL} in ["big", "small"]'), "b"),
    ],
    ids=["big-first", "small-first", "big-or-any", "twice"],
)
def test_the_best_alternative_that_a_node_has_decides(order, best, prefers, weights):
    of = [request(1, one, name=f"r{number}") for number, one in enumerate(order)]
    affinity: Json = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": HOSTNAME, "operator": "Exists"}]}}
    ]}}  # fmt: skip
    made = world(
        [gpus("a", 1, model="big"), gpus("b", 1, model="small"), gpus("c", 1, model="other")],
        [wanting("p", affinity=affinity if prefers else {})],
        templates=(template("one", first(*of)),),
        nodes=("a", "b", "c"),
        profile=SchedulerProfile.for_version((1, 36), weights=weights),
    )
    if prefers or weights:
        assert "alternatives" in made.model.find_unmodelled(made.cls("p"))[0]
        return
    assert feasible(made) == ["a", "b"]
    prediction = made.model.predict(made.state, made.cls("p"))
    assert [made.snapshot.nodes.names[node] for node in prediction.nodes.tolist()] == [best]
    made.state.place(made.row("p"), made.cls("p"), NODES.index(best))
    assert feasible(made) == [name for name in NODES if name != best]


@pytest.mark.parametrize("weights", [{}, {"NodeAffinity": 3}], ids=["default", "others"])
def test_alternatives_score_from_1_35_on(weights):
    of = [request(1, one, name=f"r{number}") for number, one in enumerate((SMALL, BIG))]
    made = world(
        [gpus("a", 1, model="big"), gpus("b", 1, model="small")],
        [wanting("p")],
        templates=(template("one", first(*of)),),
        profile=SchedulerProfile.for_version((1, 34), weights=weights),
    )
    cls = made.cls("p")
    assert made.model.find_unmodelled(cls) == ()
    assert made.model.predict(made.state, cls).probability.tolist() == [0.5, 0.5]
    assert "DynamicResources" not in made.model.evaluate(made.state, cls).scores
    assert "NodeAffinity" not in made.model.evaluate(made.state, cls).scores


@pytest.mark.parametrize(
    ("admin", "expected"), [(False, ["b"]), (True, ["a", "b"])], ids=["alone", "administrator"]
)
def test_a_claim_of_no_pod_keeps_its_devices(admin, expected):
    kept = claim("kept", claims_of(request()), node="a", devices=("gpu-0",), admin=admin)
    assert feasible(world([gpus("a", 1), gpus("b", 1)], [wanting("p")], claims=[kept])) == expected


def test_requests_for_the_same_devices_share_them():
    big = f'{MODEL} == "big"'
    made = world(
        [gpus("a", 2, model="big"), gpus("b", 2, model="small")],
        [wanting("one", "any", on="a"), wanting("p", "big", "any"), wanting("q", "big")],
        templates=(template("any", request()), template("big", request(1, big))),
        claims=[claim("c", claims_of(request()), of="one", node="a", devices=("gpu-1",))],
    )
    assert feasible(made, "p") == []
    assert feasible(made, "q") == ["a"]
    assert feasible(made, "one") == ["a", "b"]


def test_all_devices_of_some_nodes_are_as_many_as_these_have():
    small = f'{MODEL} == "small"'
    made = world(
        [gpus("a", 2, model="small"), gpus("b", 4, model="big")],
        [wanting("p", "every"), wanting("q", "any")],
        templates=(
            template("every", request(1, small, allocationMode="All")),
            template("any", request(3)),
        ),
    )
    assert feasible(made, "p") == ["a"]
    assert feasible(made, "q") == ["b"]
    made.state.place(made.row("p"), made.cls("p"), 0)
    assert feasible(made, "p") == []


def test_devices_that_must_be_alike_are_so_on_one_node():
    alike = {"constraints": [{"matchAttribute": f"{DRIVER}/model"}]}
    made = world(
        [gpus("a", 2, model="big"), gpus("b", 2)],
        [wanting("p")],
        templates=(template("one", request(2), **alike),),
    )
    assert feasible(made) == ["a"]


@pytest.mark.parametrize("consumers", [("old", "other"), ("old",)])
def test_a_claim_that_several_pods_share_binds_them_to_its_node(consumers):
    made = world(
        [gpus("a", 1), gpus("b", 1)],
        [sharing("old", "x", on="a"), sharing("other", "x", on="a"), wanting("p")],
        claims=[
            claim("x", claims_of(request()), node="a", devices=("gpu-0",), consumers=consumers)
        ],
    )
    assert feasible(made) == ["b"]
    why = "the devices of claim x are released with its last pod"
    if len(consumers) == 1:
        assert why in made.model.find_unmodelled(made.cls("old"))[0]
    else:
        assert feasible(made, "old") == ["a"]
        assert set(made.filters("old").values()) == {"", "DynamicResources"}


@pytest.mark.parametrize(
    ("pods", "claims", "templates", "classes", "words"),
    [
        ([sharing("p", "x")], [], (), (), 'resourceclaim "x" not found'),
        ([wanting("p")], [], (), (), 'resourceclaimtemplate "one" not found'),
        ([wanting("p")], [], (ONE,), (), "request r: device class gpu does not exist"),
    ],
)
def test_a_pod_whose_claim_cannot_be_waits(pods, claims, templates, classes, words):
    made = world([gpus("a", 1)], pods, claims=claims, templates=templates, classes=classes)
    assert feasible(made) == []
    assert made.model.rejection(made.cls("p")) == words


def test_a_node_without_enough_devices_fails_by_the_filter_of_devices():
    made = world(
        [gpus("a", 1)], [wanting("p", requests={"cpu": "11"}), wanting("q")], nodes=("a", "b")
    )
    assert made.filters("p") == {"a": "NodeResourcesFit", "b": "NodeResourcesFit"}
    assert made.filters("q") == {"a": "", "b": "DynamicResources"}


def shared(where: Json) -> Json:
    one = gpus("a", 1)
    return {**one, "spec": {**one["spec"], "nodeName": "", **where}}


@pytest.mark.parametrize(
    ("slices", "wanted", "why"),
    [
        pytest.param(
            [gpus("a", 2, model="big"), gpus("b", 2)],
            request(1, f'{MODEL} == "big"'),
            "fails for device gpu.example.com/b/gpu-0: it has no model",
            id="fails",
        ),
        pytest.param(
            [gpus("a", 1)],
            request(1, f'{MODEL}.matches("b.*")'),
            "the function matches is not modelled",
            id="outside-the-subset",
        ),
        pytest.param(
            [shared({"allNodes": True})],
            request(),
            "several nodes reach the devices of pool a",
            id="all-nodes",
        ),
        pytest.param(
            [gpus("a", 1, consumesCounters=[{"counterSet": "x"}])],
            request(),
            "share counters",
            id="counters",
        ),
        pytest.param(
            [gpus("a", 1, bindingConditions=["ready"])],
            request(),
            "have binding conditions",
            id="binding-conditions",
        ),
        pytest.param(
            [gpus("a", 1), on("b", device("x"), device("y"))],
            request(allocationMode="All"),
            "nodes differ in their number",
            id="all-of-different-numbers",
        ),
        pytest.param(
            [gpus("a", 1), on("b", device("x"), count=2)],
            request(allocationMode="All"),
            "pool b is incomplete, and all devices are asked for",
            id="all-while-incomplete",
        ),
        pytest.param(
            [gpus("a", 1), on("a", device("new"), device("x"), generation=2)],
            request(),
            "pool a is being replaced",
            id="generations",
        ),
        pytest.param(
            [gpus("a", 1)],
            request(derivedAttributes=[{"name": "x/y", "expression": "1"}]),
            "has derived attributes",
            id="derived-attributes",
        ),
        pytest.param(
            [on("a", device("x"), skipNodeOperations=["Prepare"])],
            request(),
            "skips operations on nodes",
            id="skips-operations",
        ),
        pytest.param([gpus("a", 1)], request(adminAccess=True), "adminAccess", id="administrator"),
        pytest.param(
            [gpus("a", 1)],
            first(request(1, name="x"), request(2, name="y")),
            "of different numbers, or of all devices",
            id="alternatives-of-different-numbers",
        ),
        pytest.param(
            [gpus("a", 1)],
            first(request(allocationMode="All")),
            "of different numbers, or of all devices",
            id="alternative-of-all",
        ),
        pytest.param(
            [on("a", device("x", model="big"), device("y", model="small"))],
            first(request(1, BIG), request(1, SMALL, name="y")),
            "a node has more devices for a later alternative",
            id="alternatives-on-one-node",
        ),
        pytest.param(
            [gpus("a", 1)],
            request(capacity={"requests": {"memory": "1Gi"}}),
            "a part of a device",
            id="capacity",
        ),
    ],
)
def test_what_is_not_modelled_is_named(slices, wanted, why):
    made = world(slices, [wanting("p")], templates=(template("one", wanted),))
    (said,) = made.model.find_unmodelled(made.cls("p"))
    assert said.startswith("resource claims (dynamic resource allocation): ")
    assert why in said


@pytest.mark.parametrize(
    ("slices", "requests", "constraints", "why"),
    [
        ([gpus("a", 33)], [request(allocationMode="All")], [], "more than 32"),
        ([gpus("a", 40)], [request(33)], [], "more than 32"),
        (
            [
                gpus("a", 30, model="big"),
                on("a", *(device(f"d{i}", model="small") for i in range(20)), pool="more"),
            ],
            [
                request(1, f'{MODEL} == "small"', allocationMode="All"),
                request(13, f'{MODEL} == "big"', name="s"),
            ],
            [],
            "more than 32",
        ),
        (
            [gpus("a", 2, model="big"), gpus("b", 2)],
            [request(allocationMode="All")],
            [{"matchAttribute": f"{DRIVER}/model"}],
            "some lack an attribute",
        ),
    ],
    ids=["all", "exact", "both", "attribute"],
)
def test_what_ends_the_search_on_all_nodes_is_named(slices, requests, constraints, why):
    one = template("one", *requests, constraints=constraints)
    made = world(slices, [wanting("p")], templates=(one,))
    assert why in made.model.find_unmodelled(made.cls("p"))[0]


def test_requests_for_parts_of_the_same_devices_are_named():
    made = world(
        [on("a", device("x", model="big"), device("y", model="small"))],
        [wanting("p", "any"), wanting("q", "big")],
        templates=(template("any", request()), template("big", request(1, f'{MODEL} == "big"'))),
    )
    assert "only some of the devices" in made.model.find_unmodelled(made.cls("q"))[0]
    assert made.model.find_unmodelled(made.cls("p")) == ()


def test_a_pod_gives_back_what_it_has_and_not_what_it_asked_for():
    made = world(
        [gpus("a", 4)],
        [wanting("old", on="a"), wanting("p"), wanting("q", "three")],
        templates=(ONE, template("three", request(3))),
        claims=[claim("c", claims_of(request()), of="old", node="a", devices=("gpu-0", "gpu-1"))],
    )
    assert (feasible(made), feasible(made, "q")) == (["a"], [])
    made.state.evict(made.row("old"))
    made.state.reap()
    assert feasible(made, "q") == ["a"]


HUGE = template("huge", request(32))


@pytest.mark.parametrize("node_of", ["a", "b"])
def test_a_pod_bound_without_devices_takes_none_from_others(node_of):
    made = world(
        [gpus("a", 1), gpus("b", 1)],
        [wanting("bound", "huge", on=node_of), wanting("p")],
        templates=(ONE, HUGE),
    )
    assert feasible(made) == ["a", "b"]
    made.state.evict(made.row("bound"))
    made.state.reap()
    made.state.place(made.row("p"), made.cls("p"), NODES.index(node_of))
    assert feasible(made) == [name for name in NODES if name != node_of]


def test_what_pods_have_beside_what_they_ask_for_is_in_use_for_others():
    made = world(
        [on("a", device("gpu-0", taints=[TAINT]), device("gpu-1")), gpus("b", 2)],
        [wanting("old", on="a"), wanting("other", "also", on="b"), wanting("p", "also")],
        templates=(ONE, template("also", request())),
        claims=[
            claim("c-old", claims_of(request()), of="old", node="a", devices=("gpu-0",)),
            claim("c-other", claims_of(request()), of="other", node="b", devices=("gpu-1",)),
        ],
    )
    assert feasible(made) == ["a", "b"]
    old = made.row("old")
    prediction = made.model.predict_replacement(made.state, old)
    assert (prediction.unmodelled, sorted(prediction.nodes.tolist())) == ((), [0, 1])
    made.state.evict(old)
    made.state.reap()
    made.state.place(made.row("p"), made.cls("p"), 0)
    assert feasible(made) == ["b"]


@pytest.mark.parametrize(
    "owned",
    [("victim", "gpu-1"), ("p", "gpu-1"), ("p", "")],
    ids=["on-a-node", "waits", "no-devices"],
)
def test_a_claim_of_another_namespace_says_nothing_of_a_pod(owned):
    of, held = owned
    evil = claim("evil", claims_of(request(7)), of=of, node="a" if held else "", devices=(held,))
    evil["metadata"]["namespace"] = "evil"
    own = claim("own", claims_of(request()), of="victim", node="a", devices=("gpu-0",))
    made = world(
        [gpus("a", 2), gpus("b", 1)], [wanting("victim", on="a"), wanting("p")], claims=[own, evil]
    )
    assert feasible(made) == (["b"] if held else ["a", "b"])


@pytest.mark.parametrize(
    ("templates", "asked", "named"),
    [((ONE,), 1, False), ((ONE,), 2, True), ((), 1, True)],
    ids=["same", "changed", "gone"],
)
def test_a_pod_that_waits_with_a_claim_is_judged_by_it(templates, asked, named):
    made = world(
        [gpus("a", 2)],
        [wanting("p")],
        templates=templates,
        claims=[claim("c", claims_of(request(asked)), of="p")],
    )
    why = made.model.find_unmodelled(made.cls("p"))
    assert any("its template would not make now" in one for one in why) is named
    assert made.model.rejection(made.cls("p")) == ""


@pytest.mark.parametrize("other", ["gone", "going"])
def test_a_consumer_that_goes_keeps_no_claim(other):
    pods = [sharing("old", "x", on="a"), sharing("going", "x", on="a", terminating=True)]
    shared_claim = claim(
        "x", claims_of(request()), node="a", devices=("gpu-0",), consumers=("old", other)
    )
    made = world([gpus("a", 1), gpus("b", 1)], pods, claims=[shared_claim])
    assert "released with its last pod" in made.model.find_unmodelled(made.cls("old"))[0]


def test_values_of_different_types_are_not_alike():
    alike = {"constraints": [{"matchAttribute": f"{DRIVER}/model"}]}
    made = world(
        [on("a", device("x", model=1), device("y", model=True))],
        [wanting("p")],
        templates=(template("one", request(2), **alike),),
    )
    assert "differ in gpu.example.com/model" in made.model.find_unmodelled(made.cls("p"))[0]


def test_too_many_selectors_are_named_in_their_own_namespace_only():
    many = [
        request(1, f'device.driver != "{number}"' + " || true" * 450, name=f"r{number}")
        for number in range(32)
    ]
    slices = [on("a", *(device(f"d{place}", index=place) for place in range(400)))]
    heavy = template("heavy", *many)
    heavy["metadata"]["namespace"] = "evil"
    made = world(
        slices, [wanting("evil", "heavy", namespace="evil"), wanting("p")], templates=(ONE, heavy)
    )
    assert "too many for so many devices" in made.model.find_unmodelled(made.cls("evil"))[0]
    assert feasible(made) == ["a"]


def test_requests_for_the_same_devices_need_one_row():
    one = [request(1, f'device.driver != "{number}"', name=f"r{number}") for number in range(9)]
    other = request(1, "device.driver == 1 || false", name="other")
    unknown = template("unknown", request(1, f'{MODEL}.matches("x")'), other)
    made = world(
        [gpus("a", 9), gpus("b", 8)],
        [wanting("p"), wanting("q", "unknown")],
        templates=(template("one", *one), unknown),
    )
    assert feasible(made) == ["a"]
    assert len([name for name in made.snapshot.resources if name.startswith("devices")]) == 1


def test_a_resource_named_like_devices_is_one_of_its_own():
    native = pod("native", requests={"devices.kubernetes.io/gpu": "1"})
    made = world([gpus("a", 1)], [wanting("p"), native])
    assert len(set(made.snapshot.resources)) == len(made.snapshot.resources)
    assert feasible(made) == ["a"]
    evaluation = made.model.evaluate(made.state, made.cls("native"))
    assert evaluation.reasons(0) == ("Insufficient devices.kubernetes.io/gpu",)


def test_pods_with_claims_are_unpredicted_where_no_devices_were_read():
    made = World([node("a")], [wanting("p"), pod("plain")])
    why = (
        "resource claims (dynamic resource allocation): "
        "the snapshot holds no ResourceClaims, ResourceClaimTemplates, ResourceSlices, DeviceClasses"
    )
    assert made.model.find_unmodelled(made.cls("p")) == (why,)
    assert made.model.find_unmodelled(made.cls("plain")) == ()
