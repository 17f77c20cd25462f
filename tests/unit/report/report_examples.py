"""Moves, skips and outcomes with everything filled in but what a test is about."""

from rebalancer.plan.plan import Code, Cost, Landing, Move, Outcome, Skip, Status

ZONE = "topology.kubernetes.io/zone"


def landing(name, probability):
    return Landing(name, probability, {ZONE: f"zone-{name[5]}"})


def move(pod="web-0", *landings, wave=1, **more):
    """A move off node-a1, by default surely to node-c1."""
    given = {
        "namespace": "shop",
        "pod": pod,
        "uid": f"uid-{pod}",
        "owner": "Deployment/shop/web",
        "node": "node-a1",
        "landings": landings or (landing("node-c1", 1.0),),
        "strategy": "anti-affinity",
        "reason": "Deployment/shop/web apart over zones (preferred): zone-a 2, zone-c 0",
        "gain": Cost(soft=1.0),
        "cost": 1.0,
        "wave": wave,
    }
    return Move(**(given | more))


def skip(pod, code=Code.NO_ROOM, message="no node has 4 cpu left", **more):
    holders = more.get("holders", ())
    return Skip(
        "shop", pod, "node-a1", more.get("strategy", "anti-affinity"), code, message, holders
    )


def outcome(of, status=Status.PLANNED, message="", **more):
    return Outcome(of, status, message, **more)
