"""The policy of a drain: the policy of a run, with the user's order in place of some protections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rebalancer.machines.drain.cordon import mask_of
from rebalancer.machines.drain.preflight import DrainVerdict, NodeCheck
from rebalancer.machines.drain.triage import Fate, Orders, Triaged, triaged
from rebalancer.plan.plan import Code, Cost, Move
from rebalancer.planner.disruption import DisruptionBudgets
from rebalancer.policy.load import LoadedPolicy
from rebalancer.policy.model import Eagerness, Mode, Policy, Protect, StrategyPolicy
from rebalancer.policy.values import Limit, Params
from rebalancer.snapshot.columns import Int32s, freeze
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope, protect

STRATEGY = "leaving"
_ALL = Limit.parse("100%")


def ordered_policy(
    loaded: LoadedPolicy, known: Mapping[str, type[Params]], nodes: Sequence[str]
) -> LoadedPolicy:
    """Return the policy for emptying ``nodes``: budgets, scheduler and safety of ``loaded``.

    Limits in flight, per owner and in total, hold. Limits per node, run and hour do not, because the user ordered
    the evictions. Windows are ignored. Pods on other nodes, which may have to make room, are protected and selected
    as in any run.
    """
    given = loaded.policy
    everything = {"per_node": _ALL, "per_run": _ALL, "per_hour": _ALL, "per_namespace": None}
    params = known[STRATEGY].model_validate(
        {
            "nodes": list(nodes),
            "annotation": False,
            "drains": False,
            "taints": [],
            "conditions": [],
        }
    )
    policy = Policy(
        mode=Mode.ENFORCE,
        eagerness=Eagerness.RELENTLESS,
        budgets=given.budgets.model_copy(update=everything),
        select=given.select,
        protect=given.protect,
        scheduler=given.scheduler,
        safety=given.safety,
        strategies={STRATEGY: StrategyPolicy(params=params)},
    )
    return replace(loaded, policy=policy)


class OrderedProtections:
    """The protections of a drain: all pods except those that the order allows to evict, now or ever."""

    def __init__(self, nodes: Sequence[str], orders: Orders) -> None:
        self._nodes, self._orders = nodes, orders

    def __call__(self, snapshot: Snapshot, rules: Protect, scope: Scope) -> Int32s:
        """Return the protections (P,) as bits; pods on other nodes are protected as in any run."""
        bits = protect(snapshot, rules, scope).copy()
        for one in self.triaged(snapshot):
            goes = (
                one.fate is Fate.EVICT
                and snapshot.classes[int(snapshot.pods.cls[one.pod])].owner >= 0
            )
            bits[one.pod] = 0 if goes else (bits[one.pod] or 1)
        return freeze(bits)

    def triaged(self, snapshot: Snapshot) -> list[Triaged]:
        """Return the fate of each pod on the nodes."""
        return triaged(snapshot, mask_of(snapshot, self._nodes), self._orders)


def unforeseen(snapshot: Snapshot, checks: Iterable[NodeCheck]) -> list[Move]:
    """Return moves without a landing, for pods that may leave although the plan cannot move them.

    They have no replacement, or one that fits on no node; or they are not Ready, so that the API evicts them
    although their PodDisruptionBudget allows no disruption.
    """
    disruptions = DisruptionBudgets(snapshot)
    return [
        _unforeseen(snapshot, one.pod, disruptions)
        for check in checks
        for one in check.pods
        if one.fate is Fate.EVICT
        and one.verdict is DrainVerdict.DRAINABLE
        and one.code not in _LATER
        and (one.move is None or disruptions.forbidden(int(snapshot.pods.cls[one.pod])) is not None)
    ]


def _unforeseen(snapshot: Snapshot, pod: int, disruptions: DisruptionBudgets) -> Move:
    cls = int(snapshot.pods.cls[pod])
    owner = snapshot.owner_of(cls)
    node = snapshot.nodes.names[int(snapshot.pods.node[pod])]
    return Move(
        namespace=snapshot.classes[cls].namespace,
        pod=snapshot.pods.name[pod],
        uid=snapshot.pods.uid[pod],
        owner=owner.ref if owner else "",
        node=node,
        landings=(),
        strategy=STRATEGY,
        reason=f"{node} must be empty: it is drained",
        gain=Cost(hard=1.0),
        cost=1.0,
        wave=1,
        budgets=disruptions.refs(pod),
    )


_LATER = frozenset({Code.BUDGET.value, Code.PDB.value})
"""What holds for a time only: the next round asks again."""
