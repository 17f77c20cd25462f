"""Pods that are not moved, grouped by reason; the funnel from all pods to the moves; and what the reader can do next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rebalancer.base.durations import format_duration
from rebalancer.base.plain_text import count
from rebalancer.plan.plan import NEVER_ALLOWS, Code, Skip
from rebalancer.policy.model import Eagerness, Mode, Steer
from rebalancer.report.model import RunReport, rules_left
from rebalancer.wire.pods import ANNOTATION_NAMES

WHY_LEFT: Mapping[Code, str] = {
    Code.PROTECTED: "a protection forbids it",
    Code.NOT_RECREATED: "its controller is not known to recreate it",
    Code.CANNOT_SURGE: "no rollout would keep the single replica Ready",
    Code.JUST_SCALED: "a HorizontalPodAutoscaler has just scaled its workload",
    Code.GANG: "it is a member of a gang, which moves as a whole or not at all",
    Code.WHOLE_ROLLOUT: "it moves with all pods of its Deployment, by a restart of its rollout",
    Code.RESIZE_DEFERRED: "it waits for room to be resized on its node",
    Code.NOT_SELECTED: "the strategy's select does not match it",
    Code.ZONE_CLOSED: "a zone is closed, and meanwhile only hard rules and nodes that go move pods",
    Code.NO_ROOM: "no node would take the replacement",
    Code.COMES_BACK: "the scheduler would put the replacement back",
    Code.NO_GAIN: "nothing would improve, or something would get worse",
    Code.LOW_GAIN: "too little would improve for an eviction",
    Code.UNSURE: "it would improve in too few of the likely landings",
    Code.UNPREDICTED: "the landing cannot be predicted",
    Code.LEAVING_NODE: "it would land on nodes that are about to go",
    Code.AVOIDED_NODE: "it would land on nodes that the policy's landings leaves out",
    Code.OTHER_OS: "it might land on a node of another operating system",
    Code.PDB: "a PodDisruptionBudget allows no disruption now",
    Code.PDB_CONFLICT: "the API refuses evictions of pods with two PodDisruptionBudgets",
    Code.BUDGET: "a budget of the policy is used up",
    Code.QUOTA: "a ResourceQuota has no room for the replacement",
    Code.MACHINE_COMES: "a machine is on its way for it",
    Code.UNSATISFIABLE: "no placement can satisfy the constraint",
    Code.OVERLOAD_MOVES: "it would only carry the overload elsewhere",
    Code.TOO_FEW_RUNS: "what was measured has not been so for enough runs in a row",
    Code.OBSERVED: "the strategy only observes",
    Code.WINDOW: "the strategy's window is closed",
    Code.MOVED_NOW: "it moves in this run already",
    Code.CAME_UP: "it came up by the moves of this run, or while it acted",
    Code.NOT_EXAMINED: "planning ended before it was looked at",
}
"""Code -> its heading over examples."""


@dataclass(frozen=True, slots=True)
class SkipGroup:
    """Pods that are not moved for the same reason with the same message."""

    message: str
    pods: tuple[str, ...]
    """The pods as ``namespace/name``."""


def group_skips(skips: Iterable[Skip]) -> list[tuple[Code, list[SkipGroup]]]:
    """Group skipped pods by code, then by message, the largest groups first."""
    by_code: dict[Code, dict[str, list[str]]] = {}
    for skip in skips:
        by_message = by_code.setdefault(skip.code, {})
        by_message.setdefault(skip.message, []).append(f"{skip.namespace}/{skip.pod}")
    result = []
    for code, by_message in by_code.items():
        groups = [SkipGroup(message, tuple(sorted(pods))) for message, pods in by_message.items()]
        groups.sort(key=lambda group: (-len(group.pods), group.pods, group.message))
        result.append((code, groups))
    result.sort(key=lambda entry: (-total(entry[1]), entry[0].value))
    return result


def total(groups: Iterable[SkipGroup]) -> int:
    """Return the number of entries in ``groups``."""
    return sum(len(group.pods) for group in groups)


def funnel_stages(funnel: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return the stages from all pods to the moves, as (name, number of pods); each counts part of the pods before it.

    Moves that only make room for others are left out: no rule is unmet for their pods. A reviewed plan has no stage of
    candidates, since some of its moves may be done already.
    """
    if (planned := funnel.get("planned")) is not None:
        moves = ("moves planned", planned), ("left when judged again", funnel.get("moves", 0))
        return ("pods", funnel.get("pods", 0)), *moves
    return (
        ("pods", funnel.get("pods", 0)),
        ("where a rule is unmet", funnel.get("candidates", 0)),
        ("of them movable", funnel.get("free", 0)),
        ("moves", funnel.get("moves", 0) - funnel.get("others", 0)),
    )


def funnel_words(funnel: Mapping[str, int]) -> str:
    """Return the funnel as ``412 pods > 17 where a rule is unmet > 9 of them movable > 3 moves``."""
    stages = " > ".join(
        f"{n:,} {stage.replace('moves', 'move').removesuffix('s') if n == 1 else stage}"
        for stage, n in funnel_stages(funnel)
    )
    others = funnel.get("others", 0)
    return f"{stages}, and {others:,} with or for them" if others else stages


_PROTECTION_ADVICE: Mapping[str, str] = {
    "volumes": "`protect: {volumes: false}` lets them move",
    "localStorage": "`protect: {localStorage: false}` lets them move, and what they keep there is lost",
    "singleReplica": "a second replica, `method: {singleReplicas: restart}`, or `protect: {singleReplicas: false}`, lets them move",
    "cannotSurge": "a second replica, or a Deployment with maxSurge 1 and maxUnavailable 0, lets them move",
    "wholeRollout": "a PodDisruptionBudget that allows an eviction lets them move one by one; a restart moves them for hard rules only, and to empty nodes",
    "systemCritical": "an exception in `protect.systemCritical` lets them move",
    "job": "`protect: {jobs: false}` lets them move, and their work starts again",
    "ownerUnsettled": "they can move once their owners are settled: look at what keeps these from being ready",
    "preferNoEviction": "the descheduler's annotation on them keeps them in place: remove it there",
    "optedOut": "the annotation {annotation} on them, their owners or namespaces keeps them in place: remove it there",
    "safeToEvict": "Cluster Autoscaler's annotation on them keeps them in place: remove it there",
    "doNotDisrupt": "Karpenter's annotation on them keeps them in place: remove it there",
    "unscheduled": "they need a node first: `rebalancer capacity` says what they wait for",
    "schedulingGate": "they need a node first: whoever has gated them lifts that",
    "terminating": "they are on their way out",
    "evictionInProgress": "they can move once the live migration that an eviction asked for is over",
    "self": "the next run, in another pod, may move it",
    "mirror": "nothing moves them: their node's kubelet starts them from a file there",
    "daemonSet": "nothing moves them: their DaemonSet has one on each of its nodes",
    "noController": "a controller, such as a Deployment, would make them again",
    "young": "they can move once they are older than `protect.minPodAge`",
    "notSelected": "`select` of the policy says which pods move",
    "selector": "-n, -l and --select say which pods this run moves",
    "pods": "`protect.pods` of the policy names them",
    "namespacePolicy": "`rebalancer policy show -n NAMESPACE` says what the policy in their namespace asks for",
    "coolDown": "earlier moves did not do what was predicted: `rebalancer history --memory NAMESPACE/NAME` shows until when they cool down",
}
"""Name of a protection -> what lifts it; ``annotation``: which ones do it."""

_OPT_OUTS = (ANNOTATION_NAMES["evict"], ANNOTATION_NAMES["peer_evict"])

_EAGER = "a more eager policy would move them: `rebalancer plan --set eagerness={next}` shows it"
_MARKS = "`steer: marks` can make the right node win"
_FOR_RULES = f"{_MARKS}, for rules and for balance by use"

_OF_CODE: Mapping[Code, str] = {
    Code.PROTECTED: "the protection's key under `protect` in the policy lets them move",
    Code.NOT_RECREATED: "`protect.recreatedBy` names the controllers that recreate their pods",
    Code.CANNOT_SURGE: _PROTECTION_ADVICE["cannotSurge"],
    Code.JUST_SCALED: "they can move once `protect.afterScaling` has passed without another change of replicas",
    Code.GANG: "an exception in `protect.gangs` lets members move one by one",
    Code.WHOLE_ROLLOUT: _PROTECTION_ADVICE["wholeRollout"],
    Code.RESIZE_DEFERRED: "they can move once their node has room for the resize, or their spec asks for what they have",
    Code.NOT_SELECTED: "`select` of the strategy, or of the policy, says which pods move",
    Code.ZONE_CLOSED: "they can move once the zone's nodes are open again, or have no pods any more",
    Code.NO_ROOM: "`rebalancer explain pod NAMESPACE/NAME` says why each node refuses them: no room, a cordon, a taint or a rule",
    Code.COMES_BACK: _FOR_RULES,
    Code.NO_GAIN: "`rebalancer explain pod NAMESPACE/NAME` shows where each would land; another node there, or a looser rule, would help",
    Code.LOW_GAIN: _EAGER,
    Code.UNSURE: _EAGER,
    Code.UNPREDICTED: "`rebalancer explain pod NAMESPACE/NAME` names what is not modelled of them; move these by hand, if at all",
    Code.LEAVING_NODE: "they can move once the nodes that are about to go are gone, or others have room",
    Code.AVOIDED_NODE: "a smaller `landings` in the policy, or room on other nodes, lets them move",
    Code.OTHER_OS: "a nodeSelector `kubernetes.io/os` in their template, or a taint on the nodes of the other system, lets them move",
    Code.PDB: "they can move once their PodDisruptionBudgets allow a disruption",
    Code.PDB_CONFLICT: "leave one PodDisruptionBudget for each pod",
    Code.BUDGET: "the next run goes on; `budgets` says how much one run may do",
    Code.QUOTA: "a larger ResourceQuota lets them move",
    Code.MACHINE_COMES: "they get room once they have waited for `provisionTime` of make-room, if the machine has not come",
    Code.UNSATISFIABLE: "change the constraint, or add the nodes or domains that it asks for",
    Code.OVERLOAD_MOVES: "more nodes, or smaller requests, would help: there is no node that can take the load",
    Code.TOO_FEW_RUNS: "the next runs look again; `runs` of the strategy says how many it takes",
    Code.OBSERVED: "`mode: enforce` of the strategy lets them move",
    Code.WINDOW: "they can move when the strategy's window opens",
    Code.MOVED_NOW: "the next run looks at them where they have landed",
    Code.CAME_UP: "the next run looks at it",
    Code.NOT_EXAMINED: "the next run goes on; a longer `--deadline` lets one run look at more",
}
"""Reason code -> what would change it, of every code; ``next``: the next more eager level."""

_WITH_MARKS: Mapping[Code, Sequence[str]] = {
    Code.UNSURE: (_EAGER, _MARKS),
    Code.NO_GAIN: (_FOR_RULES, _OF_CODE[Code.NO_GAIN]),
}
"""Reason code -> what would change it, where more than one thing would."""

_NEVER = "never-satisfiable"
"""As the pre-flight of a drain calls it."""
_MAX_STEPS = 4


def advice_on_protection(name: str, skips: Iterable[Skip] | None = None) -> str:
    """Return the advice that lifts a protection, empty if there is none; with ``skips``, only if it is the reason of these."""
    texts = None if skips is None else [skip.message for skip in skips]
    named = [one for one in _OPT_OUTS if texts is None or any(one in text for text in texts)]
    annotation = " or ".join(f"`{one}`" for one in named or _OPT_OUTS[:1])
    return _PROTECTION_ADVICE.get(name, "").replace("{annotation}", annotation)


def advice_of(code: Code) -> str:
    """Return the advice on a reason code that applies to any policy."""
    text = _OF_CODE[code]
    return text.format(next="LEVEL") if text is _EAGER else text


def next_steps(report: RunReport) -> tuple[str, ...]:
    """Return the recommended next steps as sentences, the most effective first."""
    return (
        *_about_the_plan(report),
        *_about_pending_pods(report),
        *list(_about_what_stays(report))[:_MAX_STEPS],
    )


def _about_the_plan(report: RunReport) -> Iterator[str]:
    mode = report.loaded.policy.mode
    acting = [move for move in report.plan.moves if not move.observed]
    if report.standstill:
        yield "Nothing is moved until the cluster is as it should be; the next run looks again."
    elif report.asks and acting and mode is Mode.ENFORCE:
        return
    elif report.dry_run and acting and mode is Mode.ENFORCE and report.reviewed is not None:
        yield "`rebalancer apply` without `--dry-run` carries out what is left of the plan."
    elif report.dry_run and acting and mode is Mode.ENFORCE:
        yield (
            "On the cluster, `rebalancer run` carries the plan out; `rebalancer plan --out FILE` keeps it"
            " for review, and for `rebalancer apply`."
        )
    elif report.dry_run and report.plan.moves and mode is not Mode.ENFORCE:
        yield "`mode: enforce` in the policy lets a run carry the plan out."


def _about_pending_pods(report: RunReport) -> Iterator[str]:
    """Advise on pods without a node: a run moves running pods and cannot schedule pending ones."""
    if waiting := int(report.snapshot.awaiting_a_node().sum()):
        are = "is" if waiting == 1 else "are"
        yield f"{count(waiting, 'pod')} {are} pending: `rebalancer capacity` says which machines they need."


def _about_what_stays(report: RunReport) -> Iterator[str]:
    by_cause = Counter(map(_cause, report.plan.skips))
    for (code, name), number in sorted(by_cause.items(), key=lambda item: (-item[1], item[0])):
        pods = count(number, "pod")
        are = "is" if number == 1 else "are"
        if name == "young":
            age = format_duration(report.loaded.policy.protect.min_pod_age)
            yield (
                f"{pods} {are} younger than protect.minPodAge {age}: wait, or"
                " `rebalancer plan --set protect.minPodAge=0s` shows the plan now."
            )
        elif name == _NEVER:
            stuck = sorted(
                {
                    f"PodDisruptionBudget {skip.holders[0]}"
                    for skip in report.plan.skips
                    if _cause(skip)[1] == _NEVER
                }
            )
            few = ", ".join(stuck[:_MAX_STEPS]) + (" and others" if len(stuck) > _MAX_STEPS else "")
            yield (
                f"{pods} ({name}): {few} {NEVER_ALLOWS}: change it, add replicas,"
                " or see `method: {unevictable: restart}`."
            )
        else:
            yield f"{pods} ({name or code}): {_advice(Code(code), name, report)}."
    if by_cause:
        return
    # Rules may stay unmet of which no pod has a reason of its own.
    codes = Counter(code for rule in rules_left(report) for code in rule.codes if code in _CODES)
    for code, number in sorted(codes.items()):
        # No pod could fix them from where it is: marks on nodes would change nothing.
        advice = _OF_CODE[Code.NO_GAIN] if code == Code.NO_GAIN else _advice(Code(code), "", report)
        yield f"{count(number, 'rule')} ({code}): {advice}."


_CODES = frozenset(code.value for code in Code)


def _advice(code: Code, name: str, report: RunReport) -> str:
    """Return the advice that removes the reason ``code``. ``name``: the protection, if the code is for one."""
    policy = report.loaded.policy
    more_eager = list(Eagerness)[list(Eagerness).index(policy.eagerness) + 1 :]
    text = advice_on_protection(name, report.plan.skips) or _OF_CODE[code]
    parts = [
        part.format(next=more_eager[0]) if part is _EAGER else part
        for part in _WITH_MARKS.get(code, [text])
        if not (part is _EAGER and not more_eager)
        and not (_MARKS in part and policy.steer is Steer.MARKS)
    ]
    # What the policy can offer is used up: the rest is up to the cluster.
    return "; ".join(parts) or _OF_CODE[Code.NO_GAIN]


def _cause(skip: Skip) -> tuple[str, str]:
    """Return the code, and the name of the first protection if the code is one."""
    if skip.code is Code.PDB and skip.holders:
        return skip.code.value, _NEVER
    if skip.code is not Code.PROTECTED:
        return skip.code.value, ""
    # Age passes by itself: what holds the pod besides is what matters.
    lasting = [name for name in skip.holders if name != "young"]
    return skip.code.value, (*lasting, *skip.holders, "")[0]
