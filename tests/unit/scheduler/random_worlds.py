"""Small random clusters for hypothesis: everything that the reference knows, densely."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.unit.scheduler.worlds import HOSTNAME, ZONE, Json, node, pod

KEYS = (HOSTNAME, ZONE, "rack")
NAMESPACES = {"default": {"team": "a"}, "other": {"team": "b"}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

_apps = st.sampled_from(("web", "db"))
_selectors = st.one_of(
    st.builds(lambda app: {"matchLabels": {"app": app}}, _apps),
    st.just({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}),
    st.just({}),
)
_expressions = st.sampled_from(
    (
        {"key": ZONE, "operator": "In", "values": ["z0", "z1"]},
        {"key": ZONE, "operator": "NotIn", "values": ["z0"]},
        {"key": "rack", "operator": "Exists"},
        {"key": "rack", "operator": "DoesNotExist"},
        {"key": "generation", "operator": "Gt", "values": ["1"]},
        {"key": "generation", "operator": "Lt", "values": ["2"]},
    )
)
_taints = st.sampled_from(
    (
        {"key": "a", "value": "x", "effect": "NoSchedule"},
        {"key": "b", "value": "y", "effect": "PreferNoSchedule"},
        {"key": "c", "value": "", "effect": "PreferNoSchedule"},
        {"key": "a", "value": "z", "effect": "NoExecute"},
    )
)
_tolerations = st.sampled_from(
    (
        {"key": "a", "operator": "Exists"},
        {"key": "b", "operator": "Equal", "value": "y"},
        {"operator": "Exists", "effect": "PreferNoSchedule"},
        {"key": "a", "value": "x", "effect": "NoSchedule"},
    )
)


@st.composite
def nodes(draw: st.DrawFn, least: int = 1, most: int = 6) -> list[Json]:
    """Return nodes of few zones, sizes and taints; some lack labels."""
    made = []
    for index in range(draw(st.integers(least, most))):
        labels = {}
        for key, values in (
            (ZONE, ("z0", "z1", "z2")),
            ("rack", ("r0", "r1")),
            ("generation", ("1", "2", "x")),
        ):
            value = draw(st.sampled_from((*values, None)))
            if value is not None:
                labels[key] = value
        made.append(
            node(
                f"n{index}",
                labels=labels,
                cpu=draw(st.sampled_from(("2", "4", "3500m"))),
                memory=draw(st.sampled_from(("2Gi", "4Gi"))),
                pods=draw(st.sampled_from(("3", "10"))),
                taints=draw(st.lists(_taints, max_size=2)),
                unschedulable=draw(st.integers(0, 9)) == 0,
                hostname=draw(st.integers(0, 5)) > 0,
            )
        )
    return made


@st.composite
def constraints(draw: st.DrawFn) -> Json:
    """Return one topology spread constraint."""
    constraint: Json = {
        "maxSkew": draw(st.integers(1, 3)),
        "topologyKey": draw(st.sampled_from(KEYS)),
        "whenUnsatisfiable": draw(st.sampled_from(("DoNotSchedule", "ScheduleAnyway"))),
    }
    selector = draw(st.one_of(_selectors, st.none()))
    if selector is not None:
        constraint["labelSelector"] = selector
    if draw(st.booleans()):
        constraint["nodeAffinityPolicy"] = draw(st.sampled_from(("Honor", "Ignore")))
        constraint["nodeTaintsPolicy"] = draw(st.sampled_from(("Honor", "Ignore")))
    if constraint["whenUnsatisfiable"] == "DoNotSchedule" and draw(st.booleans()):
        constraint["minDomains"] = draw(st.integers(1, 4))
    return constraint


@st.composite
def terms(draw: st.DrawFn) -> Json:
    """Return one inter-pod term."""
    term = {"labelSelector": draw(_selectors), "topologyKey": draw(st.sampled_from(KEYS))}
    if draw(st.integers(0, 3)) == 0:
        term["namespaces"] = draw(st.sampled_from((["other"], ["default", "other"])))
    if draw(st.integers(0, 3)) == 0:
        term["namespaceSelector"] = draw(st.sampled_from(({}, {"matchLabels": {"team": "b"}})))
    return term


@st.composite
def pod_affinities(draw: st.DrawFn, required: st.SearchStrategy[int]) -> Json:
    """Return required and preferred terms."""
    affinity: Json = {}
    if draw(required) == 0:
        affinity[REQUIRED] = [draw(terms())]
    if draw(st.booleans()):
        weights = st.integers(1, 100)
        affinity[PREFERRED] = [{"weight": draw(weights), "podAffinityTerm": draw(terms())}]
    return affinity


@st.composite
def pods(draw: st.DrawFn, name: str, on: str) -> Json:
    """Return a pod that stands on a node, or is to be scheduled."""
    spec: dict[str, Any] = {}
    affinity: Json = {}
    if draw(st.booleans()):
        affinity["podAffinity"] = draw(pod_affinities(st.integers(0, 3)))
        affinity["podAntiAffinity"] = draw(pod_affinities(st.integers(0, 2)))
    if draw(st.booleans()):
        preference = {"matchExpressions": [draw(_expressions)]}
        own: Json = {PREFERRED: [{"weight": draw(st.integers(1, 9)), "preference": preference}]}
        if draw(st.booleans()):
            own[REQUIRED] = {"nodeSelectorTerms": [{"matchExpressions": [draw(_expressions)]}]}
        affinity["nodeAffinity"] = own
    if affinity:
        spec["affinity"] = affinity
    if draw(st.booleans()):
        spec["topologySpreadConstraints"] = draw(st.lists(constraints(), min_size=1, max_size=2))
    amounts = {
        "cpu": draw(st.sampled_from(("100m", "1"))),
        "memory": draw(st.sampled_from(("64Mi", "1Gi"))),
    }
    asked = draw(st.sets(st.sampled_from(("cpu", "memory"))))
    return pod(
        name,
        on=on,
        namespace=draw(st.sampled_from(("default", "default", "other"))),
        labels={"app": draw(_apps)},
        requests={resource: amounts[resource] for resource in sorted(asked)},
        tolerations=draw(st.lists(_tolerations, max_size=2)),
        terminating=bool(on) and draw(st.integers(0, 4)) == 0,
        **spec,
    )


@st.composite
def clusters(draw: st.DrawFn, least: int = 1, most: int = 6) -> tuple[list[Json], list[Json], Json]:
    """Return nodes, standing pods, and a pod to be scheduled."""
    made = draw(nodes(least, most))
    names = [one["metadata"]["name"] for one in made]
    count = draw(st.integers(0, 8))
    standing = [draw(pods(f"old{i}", draw(st.sampled_from(names)))) for i in range(count)]
    return made, standing, draw(pods("new", ""))


def namespaces() -> list[Json]:
    """Return the namespaces of all random clusters."""
    return [{"metadata": {"name": name, "labels": of}} for name, of in NAMESPACES.items()]
