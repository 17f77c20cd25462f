"""What a process that serves asks for before it follows the cluster, and how often what is kept is compacted."""

import pytest

from rebalancer.kube.access import AUTOSCALER_FOLLOW_RULES, FOLLOW_RULES, MARK_RULES
from rebalancer.kube.failures import ForbiddenError
from rebalancer.kube.resources import AccessRule
from rebalancer.serve import loop
from rebalancer.serve.health import Health
from rebalancer.serve.loop import Following, Rights
from tests.support.clocks import HandClock
from tests.unit.commands.serving import like

PODS = AccessRule("watch", "", "pods")


@pytest.fixture
def asked(monkeypatch):
    """What was asked for: for runs that act, and for those that only observe."""
    made = []
    monkeypatch.setattr(loop, "usage_of", lambda *_: None)
    monkeypatch.setattr(
        loop, "require_rights", lambda run, client, usage, also: made.append(("acts", {*also}))
    )
    monkeypatch.setattr(loop, "require", lambda client, rules: made.append(("observes", {*rules})))
    return made


def run(*, acts=True, autoscalers=False, policy_hash="one"):
    return like(
        acts=acts,
        rules=like(autoscalers=autoscalers),
        loaded=like(policy_hash=policy_hash, policy=None),
    )


def rights():
    return Rights(like(rules=lambda _: MARK_RULES))


@pytest.mark.parametrize(
    ("given", "who", "rules"),
    [
        ({}, "acts", {*FOLLOW_RULES, PODS, *MARK_RULES}),
        (
            {"autoscalers": True},
            "acts",
            {*FOLLOW_RULES, PODS, *MARK_RULES, *AUTOSCALER_FOLLOW_RULES},
        ),
        # What only observes changes no nodes.
        ({"acts": False}, "observes", {*FOLLOW_RULES, PODS}),
    ],
)
def test_what_is_followed_is_asked_for_and_what_steps_do_only_where_they_may(
    asked, given, who, rules
):
    rights().require(run(**given), None)
    assert asked == [(who, rules)]


def test_rights_are_asked_for_once_for_each_policy_and_again_after_a_refusal(asked, monkeypatch):
    made = rights()
    for policy_hash in ("one", "one", "other", "other", "one"):
        made.require(run(policy_hash=policy_hash), None)
    assert len(asked) == 3

    def refuse(*_):
        raise ForbiddenError((PODS,))

    with monkeypatch.context() as refusing:
        refusing.setattr(loop, "require_rights", refuse)
        with pytest.raises(ForbiddenError):
            made.require(run(policy_hash="third"), None)
    made.require(run(policy_hash="third"), None)
    assert len(asked) == 4


def test_what_is_kept_is_compacted_once_a_minute():
    clock = HandClock()
    compacted: list[set[str]] = []
    health = Health(clock, deadline=120)
    made = Following(clock, health, rights(), like())
    made.compact({"before"})
    made._cache = like(compact=compacted.append)
    for seconds, evicted in ((0.0, "first"), (59.0, "too soon"), (1.0, "second"), (300.0, "third")):
        clock.seconds += seconds
        made.compact({evicted})
    assert compacted == [{"first"}, {"second"}, {"third"}]
