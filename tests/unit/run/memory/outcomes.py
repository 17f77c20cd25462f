"""Moves and outcomes in a few words."""

from rebalancer.plan.plan import Cost, Landing, Move, Outcome, Status
from rebalancer.run.memory.remember import describe_cooling, describe_resting
from rebalancer.testing.snapshots import node, snapshot_of, workload

NOW = 1_800_000_000.0
WEB = "Deployment/default/web"
TERM = "topology-spread/soft"


def move(pod="web-0", source="n0", owner=WEB, gain=None, landings=(("n1", 1.0),)):
    return Move(
        namespace="default",
        pod=pod,
        uid=f"default/{pod}",
        owner=owner,
        node=source,
        landings=tuple(Landing(name, probability, {}) for name, probability in landings),
        strategy="topology-spread",
        reason="zone a 2, zone b 0",
        gain=gain or Cost(0.0, 1.0, 0.0),
        cost=1.0,
        wave=1,
    )


def outcome(status=Status.EVICTED, landed="n1", predicted=True, message="", **of_move):
    if status is not Status.EVICTED or landed is None:
        landed, predicted = None, None
    return Outcome(move(**of_move), status, message, landed=landed, predicted=predicted)


def well(**of_move):
    return outcome(**of_move)


def badly(**of_move):
    """The replacement came back to the node that its victim left."""
    return outcome(landed="n0", predicted=False, **of_move)


def cluster(*more, zones="ab", names=("web", "api")):
    nodes = [node(f"n{i}", zone) for i, zone in enumerate(zones)]
    objects = [item for name in names for item in workload(name, ["n0", "n1"])]
    for item in objects:
        item["metadata"].setdefault("generation", 1)
    return snapshot_of([*nodes, *objects, *more], now=NOW)


def rests(document, now):
    """Owner -> why it is not moved again, by all strategies or by topology-spread."""
    alone = describe_resting(document, now).get("topology-spread", {})
    return {**alone, **describe_cooling(document, now)}
