"""Explanations of pods that have ended: whether the plan removes them, and why not."""

from __future__ import annotations

from typing import Any

from rebalancer.plan.outcome import Outcome
from rebalancer.report.as_json import move_data
from rebalancer.report.model import RunReport
from rebalancer.snapshot.ended import done_with
from rebalancer.snapshot.model import Snapshot

_NOT_DONE = "its controller is not done with it, or something may still read what it has left"
_NOT_ASKED = "no strategy asks for it: its age, reason or exit code is another"


def ended_data(report: RunReport, ended: Snapshot, pod: int) -> dict[str, Any]:
    """Return the explanation of a pod of ``ended`` (``Snapshot.finished``) as plain data."""
    pods, cls = ended.pods, int(ended.pods.cls[pod])
    node, owner, state = int(pods.node[pod]), ended.owner_of(cls), pods.states[int(pods.state[pod])]
    uid, ref = pods.uid[pod], ended.pod_ref(pod)
    move = next((one for one in report.outcomes if one.move.uid == uid), None)
    skip = next((s for s in report.plan.skips if f"{s.namespace}/{s.pod}" == ref), None)
    if move is not None:
        message = move.message
    elif skip is not None:
        message = skip.message
    else:
        done = bool(done_with(ended, report.loaded.policy.protect)[pod])
        message = _NOT_ASKED if done else _NOT_DONE
    return {
        "namespace": ended.classes[cls].namespace,
        "pod": pods.name[pod],
        "node": ended.nodes.names[node] if node >= 0 else None,
        "owner": None if owner is None else owner.ref,
        "phase": state.phase,
        "reasons": list(dict.fromkeys(filter(None, (state.reason, *state.reasons(init=True))))),
        "plan": {
            "verdict": "stays" if move is None else "moves",
            "code": skip.code.value if skip is not None and move is None else None,
            "message": message,
            "move": None if move is None else move_data(move),
        },
    }


def ended_table(data: dict[str, Any], move: Outcome | None) -> str:
    """Return the same in words."""
    why = f" ({', '.join(data['reasons'])})" if data["reasons"] else ""
    plan = data["plan"]
    if move is None:
        code = f"{plan['code']}: " if plan["code"] else ""
        decision = f"it stays: {code}{plan['message']}"
    else:
        of = move.move
        decision = f"the plan removes it in wave {of.wave} ({of.strategy}): {of.reason}"
        decision += f"; {plan['message']}" if plan["message"] else ""
    return (
        f"{data['namespace']}/{data['pod']} has ended: {data['phase']}{why},"
        f" on {data['node'] or 'no node'}\n"
        "It holds nothing there, and nothing replaces it: no landing is predicted.\n\n"
        f"In the plan of a dry run\n  {decision}\n"
    )
