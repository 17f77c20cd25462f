"""Why something stays: each reason of the table writes its sentence from facts, and has one code."""

import string

import numpy as np
import pytest

from rebalancer.plan.plan import Code
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.scheduler.prediction import Prediction, Taker
from rebalancer.testing.snapshots import node, snapshot_of, workload

SNAPSHOT = snapshot_of([node("n0"), node("n1"), node("n2"), *workload("web", ["n0", "n1"])])


def landing(*nodes, takers=()):
    return Prediction(np.array(nodes, np.int32), np.full(len(nodes), 1 / len(nodes)), takers=takers)


@pytest.mark.parametrize(
    ("refusal", "code", "text"),
    [
        (Refusal.of(Why.COMES_BACK, landing=landing(1)), Code.COMES_BACK, "the scheduler would put it back (n1 100%)"),
        (
            Refusal.of(Why.COMES_BACK, landing=landing(0, 1, 2, 1)),
            Code.COMES_BACK,
            "the scheduler would put it back (n0 25%, n1 25% and 2 more)",
        ),
        (
            Refusal.of(Why.NO_NODE, landing=landing(0, takers=(Taker(1, 2),)), zone="zone c has no node"),
            Code.NO_ROOM,
            "no node takes its replacement: pending default/web-1 takes room on n2: zone c has no node",
        ),
        (
            Refusal.of(Why.TRADE, landing=landing(0), better=[("apart", 0, 2.0)], worse=[("even", 1, 0.5), ("x", 1, 1.0)]),
            Code.NO_GAIN,
            "would land on n0 100%: better for apart (2 hard), worse for even (0.5 soft), x (1 soft)",
        ),
        (
            Refusal.of(Why.NO_MARKS, why=Refusal.of(Why.LEAVING_NODE, share=0.25)),
            Code.LEAVING_NODE,
            "25% of its landings are on nodes about to go; no marks would change that",
        ),
        (Refusal.of(Why.HELD, code=Code.GANG, text="waits"), Code.GANG, "waits"),
        (Refusal.of(Why.RIVAL, pod=1), Code.UNSURE, "default/web-1 may take its place first"),
        (
            Refusal.of(Why.GANG_OUTSIDE, pods=1, gang="g", pod=0, why=Refusal.of(Why.STARTING, name="n2")),
            Code.MACHINE_COMES,
            "1 pod of g would stay outside: default/web-0: n2 takes it once it is ready for pods",
        ),
    ],
)  # fmt: skip
def test_a_refusal_is_written_from_its_facts(refusal, code, text):
    assert refusal.shown(SNAPSHOT)[:2] == (code, text)


def test_the_names_of_facts_and_their_forms_are_known():
    for why in Why:
        for _, fact, form, _ in string.Formatter().parse(why.sentence):
            assert fact is None or fact.isidentifier()
            assert not form or not form.isalpha() or form in FORMS, (why, form)


FORMS = {
    "landing",
    "takers",
    "after",
    "list",
    "and",
    "shares",
    "protections",
    "sentence",
    "code",
    "pod",
    "node",
    "pods",
    "g",
}


def test_what_has_no_code_is_no_reason_of_a_pod_that_stays():
    with pytest.raises(ValueError, match="WOULD_LEAVE has no code"):
        Refusal.of(Why.WOULD_LEAVE, who="web").shown(SNAPSHOT)
