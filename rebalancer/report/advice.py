"""What the reader of a report can do next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from rebalancer.base.durations import format_duration
from rebalancer.base.plain_text import count
from rebalancer.plan.plan import NEVER_ALLOWS, Code, Skip
from rebalancer.policy.model import Mode, Steer
from rebalancer.report.model import RunReport

_OF_PROTECTION: Mapping[str, str] = {
    "volumes": "`protect: {volumes: false}` lets them move",
    "localStorage": "`protect: {localStorage: false}` lets them move, and what they keep there is lost",
    "singleReplica": "a second replica, `method: {singleReplicas: restart}`, or `protect: {singleReplicas: false}`, lets them move",
    "cannotSurge": "a second replica, or a Deployment with maxSurge 1 and maxUnavailable 0, lets them move",
    "systemCritical": "an exception in `protect.systemCritical` lets them move",
    "job": "`protect: {jobs: false}` lets them move, and their work starts again",
    "ownerUnsettled": "they can move once their owners are settled: look at what keeps these from being ready",
    "coolDown": "earlier moves did not do what was predicted: `rebalancer history` shows until when they cool down",
}
"""Name of a protection -> what lifts it."""

_OF_CODE: Mapping[Code, str] = {
    Code.NOT_RECREATED: "`protect.recreatedBy` names the controllers that recreate their pods",
    Code.JUST_SCALED: "they can move once `protect.afterScaling` has passed without another change of replicas",
    Code.GANG: "an exception in `protect.gangs` lets members move one by one",
    Code.RESIZE_DEFERRED: "they can move once their node has room for the resize, or their spec asks for what they have",
    Code.NO_ROOM: "`rebalancer explain pod NAMESPACE/NAME` says why each node refuses them: no room, a cordon, a taint or a rule",
    Code.LOW_GAIN: "a more eager policy (`eagerness`) would move them",
    Code.PDB: "they can move once their PodDisruptionBudgets allow a disruption",
    Code.PDB_CONFLICT: "leave one PodDisruptionBudget for each pod",
    Code.BUDGET: "the next run goes on; `budgets` says how much one run may do",
    Code.QUOTA: "a larger ResourceQuota lets them move",
    Code.OBSERVED: "`mode: enforce` of the strategy lets them move",
    Code.WINDOW: "they can move when the strategy's window opens",
}
"""Reason code -> what would change it."""

_NEVER = "never-satisfiable"
"""As the pre-flight of a drain calls it."""
_MOST = 4


def next_steps(report: RunReport) -> tuple[str, ...]:
    """Return what to do next, in sentences, the most effective first."""
    return (
        *_about_the_plan(report),
        *_about_pending_pods(report),
        *list(_about_what_stays(report))[:_MOST],
    )


def _about_the_plan(report: RunReport) -> Iterator[str]:
    mode = report.loaded.policy.mode
    acting = [move for move in report.plan.moves if not move.observed]
    if report.standstill:
        yield "Nothing is moved until the cluster is as it should be; the next run looks again."
    elif report.dry_run and acting and mode is Mode.ENFORCE and report.reviewed is not None:
        yield "`rebalancer apply` without `--dry-run` carries out what is left of the plan."
    elif report.dry_run and acting and mode is Mode.ENFORCE:
        yield (
            "`rebalancer run` carries the plan out; `rebalancer plan --out FILE` keeps it"
            " for review, and for `rebalancer apply`."
        )
    elif report.dry_run and report.plan.moves and mode is not Mode.ENFORCE:
        yield "`mode: enforce` in the policy lets a run carry the plan out."


def _about_pending_pods(report: RunReport) -> Iterator[str]:
    """Point to the command about pods that have no node: a run moves pods, and gives none a first one."""
    if waiting := int(report.snapshot.awaiting_a_node().sum()):
        are = "is" if waiting == 1 else "are"
        yield f"{count(waiting, 'pod')} {are} pending: `rebalancer capacity` says which machines they need."


def _about_what_stays(report: RunReport) -> Iterator[str]:
    by_cause = Counter(_cause(skip) for skip in report.plan.skips)
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
            stuck = sorted({_ref(skip) for skip in report.plan.skips if _cause(skip)[1] == _NEVER})
            few = ", ".join(stuck[:_MOST]) + (" and others" if len(stuck) > _MOST else "")
            yield f"{pods} ({name}): {few} {NEVER_ALLOWS}: change it, or add replicas."
        elif code == Code.COMES_BACK and report.loaded.policy.steer is Steer.OFF:
            yield f"{pods} ({code}): `steer: marks` can make another node win, for rules, not for balance."
        elif (advice := _OF_PROTECTION.get(name) or _OF_CODE.get(Code(code))) is not None:
            yield f"{pods} ({name or code}): {advice}."


def _ref(skip: Skip) -> str:
    """Return the PodDisruptionBudget that a message of Code.PDB begins with."""
    return f"PodDisruptionBudget {skip.message.partition(' ')[0]}"


def _cause(skip: Skip) -> tuple[str, str]:
    """Return the code, and the first protection by name if it is one."""
    if skip.code is Code.PDB and NEVER_ALLOWS in skip.message:
        return skip.code.value, _NEVER
    if skip.code is not Code.PROTECTED:
        return skip.code.value, ""
    names = skip.message.partition(":")[0].split(", ")
    # Age passes by itself: what holds the pod besides is what matters.
    lasting = [name for name in names if name != "young"]
    return skip.code.value, (lasting or names)[0]
