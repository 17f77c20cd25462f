"""Whatever the descheduler's policy says: ours loads, is the same each time, and moves no pod that was protected."""

import itertools
import json
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.migrate.merge import as_file, convert_policy
from rebalancer.policy.load import load_text
from rebalancer.policy.model import Mode
from rebalancer.registry import Registry

KNOWN = Registry.installed()
OURS = {
    "LowNodeUtilization": "low-utilisation",
    "PodLifeTime": "lifetime",
    "RemoveDuplicates": "duplicates",
    "RemovePodsHavingTooManyRestarts": "restarts",
    "RemovePodsViolatingInterPodAntiAffinity": "anti-affinity",
    "RemovePodsViolatingNodeAffinity": "node-affinity",
    "RemovePodsViolatingNodeTaints": "taints",
    "RemovePodsViolatingTopologySpreadConstraint": "topology-spread",
}
BALANCE = {name for name in OURS if "Utilization" in name or "Dupl" in name or "Spread" in name}
NAMESPACES = ("a", "b", "089", "kube-system")

# The descheduler reads a pattern as a name that no namespace has.
names = st.lists(st.sampled_from((*NAMESPACES, "kube-*")), max_size=3, unique=True)
# Quotes, line ends, what YAML forbids, and what looks like a number.
texts = st.text("a0e.-#:='\"%\n\t \x07\x85\u2028é", max_size=6)
namespaces = names.flatmap(
    lambda given: st.sampled_from([{"include": given}, {"exclude": given}, {}, None])
)
selectors = st.sampled_from([None, {}, {}, {"matchLabels": {"app": "x"}}])
NAME = "kubernetes.io/metadata.name"
by_name = st.builds(
    lambda operator, values: {
        "matchExpressions": [{"key": NAME, "operator": operator, "values": values}]
    },
    st.sampled_from(["In", "NotIn"]),
    st.lists(st.sampled_from(NAMESPACES), min_size=1, max_size=3, unique=True),
) | st.sampled_from(NAMESPACES).map(lambda name: {"matchLabels": {NAME: name}})
percents = st.floats(0, 100) | st.integers(0, 100)


def some(**fields):
    """Mappings with some of these keys."""
    return st.fixed_dictionaries({}, optional=fields)


def few(**fields):
    """Mappings with two of these keys at most: with all of them, some limit makes everything observe."""
    keys = st.lists(st.sampled_from(sorted(fields)), max_size=2, unique=True)
    return keys.flatmap(lambda chosen: st.fixed_dictionaries({key: fields[key] for key in chosen}))


@st.composite
def low_utilization(draw):
    resources = draw(st.lists(st.sampled_from(["cpu", "memory", "pods", "x/gpu", "1e3"]), min_size=1, unique=True))  # fmt: skip
    pairs = {name: sorted([draw(percents), draw(percents)]) for name in resources}
    rest = draw(
        some(
            useDeviationThresholds=st.booleans(),
            numberOfNodes=st.integers(0, 9),
            evictableNamespaces=names.map(lambda given: {"exclude": given}),
            evictionLimits=some(node=st.integers(0, 99)),
            metricsUtilization=st.sampled_from([{"metricsServer": True}, {"source": "KubernetesMetrics"}]),
        )
    )  # fmt: skip
    low, high = ({name: pair[i] for name, pair in pairs.items()} for i in (0, 1))
    return {"thresholds": low, "targetThresholds": high, **rest}


taints = st.lists(texts, max_size=3)
common = {"namespaces": namespaces, "labelSelector": selectors}
ARGS = {
    "LowNodeUtilization": low_utilization(),
    "PodLifeTime": st.builds(
        lambda first, rest: {**first, **rest},
        st.sampled_from(
            [
                {"maxPodLifeTimeSeconds": 0},
                {"maxPodLifeTimeSeconds": 2**40},
                {"states": ["Pending", "Failed"]},
                {"states": ["Succeeded"]},
                {"exitCodes": [1, -1]},
                {"conditions": [{"type": "Ready"}, {"status": "x"}, {"reason": "'"}]},
            ]
        ),
        some(**common, includingInitContainers=st.booleans()),
    ),
    "RemovePodsHavingTooManyRestarts": st.builds(
        lambda least, rest: {"podRestartThreshold": least, **rest},
        st.integers(1, 2**31 - 1),
        some(
            **common,
            includingInitContainers=st.booleans(),
            states=st.lists(st.sampled_from(["Running", "CrashLoopBackOff"]), unique=True),
        ),
    ),
    "RemoveDuplicates": some(namespaces=namespaces, excludeOwnerKinds=st.lists(texts, max_size=2)),
    "RemovePodsViolatingInterPodAntiAffinity": some(**common),
    "RemovePodsViolatingNodeAffinity": st.builds(
        lambda types, rest: {"nodeAffinityType": types, **rest},
        st.lists(
            st.sampled_from(["requiredDuringSchedulingIgnoredDuringExecution", "x"]), min_size=1
        ),
        some(**common),
    ),
    "RemovePodsViolatingNodeTaints": some(**common, includePreferNoSchedule=st.booleans())
    | some(includedTaints=taints)
    | some(excludedTaints=taints),
    "RemovePodsViolatingTopologySpreadConstraint": some(
        **common,
        constraints=st.lists(st.sampled_from(["DoNotSchedule", "ScheduleAnyway"])),
        topologyBalanceNodeFit=st.booleans(),
    ),
}
thresholds = st.sampled_from(
    [{}, {"value": -1}, {"value": 5}, {"value": 2_000_000_000}, {"name": "high"}]
)
switches = {
    name: st.booleans()
    for name in (
        "evictLocalStoragePods", "evictSystemCriticalPods", "evictDaemonSetPods", "ignorePvcPods",
        "evictFailedBarePods", "ignorePodsWithoutPDB",
    )
}  # fmt: skip
lists = some(
    extraEnabled=st.lists(
        st.sampled_from(["PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims"]), unique=True
    ),
    defaultDisabled=st.lists(
        st.sampled_from(["PodsWithLocalStorage", "SystemCriticalPods", "DaemonSetPods"]),
        unique=True,
    ),
)
more = few(
    labelSelector=selectors,
    namespaceLabelSelector=selectors | by_name,
    minReplicas=st.integers(0, 4),
    minPodAge=st.sampled_from(["0", "1.5h", "-5m", "2540400h10m10.000000001s", "100ms", "1h"]),
    priorityThreshold=thresholds,
    nodeFit=st.booleans(),
    noEvictionPolicy=st.sampled_from(["", "Preferred", "Mandatory"]),
)
evictors = st.builds(
    lambda first, rest: {**first, **rest},
    few(**switches) | lists.map(lambda given: {"podProtections": given}),
    more,
)


@st.composite
def profiles(draw):
    enabled = draw(st.lists(st.sampled_from(sorted(OURS)), unique=True, min_size=1, max_size=3))
    configs = [{"name": name, "args": draw(ARGS[name])} for name in enabled]
    configs.append({"name": "DefaultEvictor", "args": draw(evictors)})
    return {
        "name": draw(texts),
        "pluginConfig": configs,
        "plugins": {
            "balance": {"enabled": [name for name in enabled if name in BALANCE]},
            "deschedule": {"enabled": [name for name in enabled if name not in BALANCE]},
        },
    }


policies = st.builds(
    lambda given, top: {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerPolicy",
        "profiles": given,
        **top,
    },
    st.lists(profiles(), min_size=1, max_size=2),
    few(
        nodeSelector=st.sampled_from(["", "a=b"]),
        maxNoOfPodsToEvictPerNode=st.integers(0, 2**31),
        maxNoOfPodsToEvictPerNamespace=st.integers(0, 2**31),
        maxNoOfPodsToEvictTotal=st.integers(0, 2**31),
        gracePeriodSeconds=st.integers(-5, 5),
    ),
)


def of(policy):
    return convert_policy(json.dumps(policy, indent=1).encode(), "p.yaml", KNOWN)


@settings(deadline=None, max_examples=17)
@given(policies)
def test_the_result_always_loads_and_is_always_the_same(policy):
    migration = of(policy)
    text = as_file(migration.data, migration.head, KNOWN)
    again = of(policy)
    assert as_file(again.data, again.head, KNOWN) == text
    enabled = {
        config["name"] for profile in policy["profiles"] for config in profile["pluginConfig"]
    }
    policy_of_ours = load_text(text.encode(), "x", KNOWN).policy
    ours = {policy_of_ours.strategy_of(name) for name in policy_of_ours.strategies}
    # A strategy is left out only if its options leave nothing to do.
    names = {OURS[name] for name in enabled if name in OURS}
    if "lifetime" in names:
        names |= {"failed-pods"}
    assert names - ours <= {"lifetime", "failed-pods", "node-affinity", "taints"}
    assert ours <= names


# -- protection ----------------------------------------------------------------------------------------


class Pod(NamedTuple):
    namespace: str
    app: str
    priority: int
    replicas: int
    volume: bool
    local: bool


PODS = [
    Pod(*given)
    for given in itertools.product(
        (*NAMESPACES, "z"), "xy", (0, 7, 2_000_000_000), (1, 2, 3, 9), (False, True), (False, True)
    )
]


def matches(selector, pod):
    return not selector or all(
        {"app": pod.app}.get(k) == v for k, v in selector.get("matchLabels", {}).items()
    )


def namespace_matches(selector, namespace):
    """A namespace carries no label but its name."""
    rules = [
        {"In": namespace in rule["values"], "NotIn": namespace not in rule["values"]}[
            rule["operator"]
        ]
        for rule in selector.get("matchExpressions", [])
    ]
    labels = {NAME: namespace}
    return all(labels.get(k) == v for k, v in selector.get("matchLabels", {}).items()) and all(
        rules
    )


def evictor_admits(args, pod):
    """The descheduler's filter, as its DefaultEvictor's documentation has it."""
    given = args.get("podProtections", {})
    extra, lifted = given.get("extraEnabled", []), given.get("defaultDisabled", [])
    critical = args.get("evictSystemCriticalPods") or "SystemCriticalPods" in lifted
    threshold = args.get("priorityThreshold", {})
    below = {"high": 5}.get(threshold.get("name", ""), threshold.get("value", 2_000_000_000))
    return (
        matches(args.get("labelSelector"), pod)
        and namespace_matches(args.get("namespaceLabelSelector") or {}, pod.namespace)
        and not (args.get("ignorePodsWithoutPDB") or "PodsWithoutPDB" in extra)
        and (critical or (pod.priority < 2_000_000_000 and pod.priority < below))
        and pod.replicas >= args.get("minReplicas", 0)
        and not (pod.volume and (args.get("ignorePvcPods") or "PodsWithPVC" in extra))
        and (
            not pod.local
            or args.get("evictLocalStoragePods", False)
            or "PodsWithLocalStorage" in lifted
        )
    )


def plug_in_admits(args, pod):
    given = args.get("namespaces") or args.get("evictableNamespaces") or {}
    include, exclude = given.get("include"), given.get("exclude", [])
    inside = pod.namespace in include if include else pod.namespace not in exclude
    return inside and matches(args.get("labelSelector"), pod)


def peer_moves(policy, pod):
    """The strategies of ours in whose place some profile may evict the pod."""
    for profile in policy["profiles"]:
        args = {config["name"]: config["args"] for config in profile["pluginConfig"]}
        if evictor_admits(args.pop("DefaultEvictor", {}), pod):
            for name, given in args.items():
                if plug_in_admits(given, pod):
                    yield from ours(name, given)


def ours(name, args):
    """The strategies in the place of a plug-in."""
    states, ended = set(args.get("states") or ()), {"Failed", "Succeeded"}
    if name != "PodLifeTime" or not states & ended:
        return {OURS[name]}
    return {"failed-pods", *({OURS[name]} if states - ended else ())}


def label_matches(select, labels):
    return all(labels.get(k) == v for k, v in select.match_labels.items()) and all(
        {
            "In": labels.get(rule.key) in rule.values,
            "NotIn": labels.get(rule.key) not in rule.values,
        }[rule.operator]
        for rule in select.match_expressions
    )


def select_admits(select, pod):
    """What a select says of a pod, in plain words; pods have no PodDisruptionBudget."""
    namespaces, priority = select.namespaces, select.priority
    if namespaces is not None:
        labels = namespaces.labels
        if not namespaces.admits_name(pod.namespace):
            return False
        if labels is not None and not label_matches(labels, {NAME: pod.namespace}):
            return False
    if select.labels is not None and not label_matches(select.labels, {"app": pod.app}):
        return False
    below = None if priority is None else {"high": 5}.get(priority.below, priority.below)
    return (
        (below is None or pod.priority < below)
        and pod.replicas >= (select.min_replicas or 0)
        and not select.pod_disruption_budget
    )


def we_move(policy, pod):
    protect = policy.protect
    if (
        not select_admits(policy.select, pod)
        or (pod.volume and protect.volumes)
        or (pod.local and protect.local_storage)
        or (pod.replicas < 2 and protect.single_replicas)
        or (pod.priority >= 2_000_000_000 and protect.system_critical)
    ):
        return set()
    return {
        policy.strategy_of(name)
        for name, strategy in policy.strategies.items()
        if policy.mode_of(name) is Mode.ENFORCE and select_admits(strategy.select, pod)
    }


@settings(deadline=None, max_examples=30)
@given(policies)
def test_no_pod_is_moved_that_was_protected(policy):
    ours = load_text(as_file(of(policy).data, "", KNOWN).encode(), "x", KNOWN).policy
    assert (
        policy.get("nodeSelector") != "a=b" or not ours.strategies or _nodes_of(ours) == {"a": "b"}
    )
    for pod in PODS:
        assert we_move(ours, pod) <= set(peer_moves(policy, pod)), pod


def _nodes_of(policy):
    """The node labels that every strategy selects by."""
    selects = [policy.select, *(one.select for one in policy.strategies.values())]
    (labels,) = {json.dumps(one.nodes.match_labels) for one in selects if one.nodes is not None}
    return json.loads(labels)
