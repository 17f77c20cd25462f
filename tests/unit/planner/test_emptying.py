"""Which nodes are emptied: what is worth it, what has landings elsewhere, and the reason of each node."""

import numpy as np
import pytest

from rebalancer.cost.strategy import Emptiable
from rebalancer.plan.plan import Code, Explanation, Later, NodeCode, Plan, Skip
from rebalancer.planner.effort import Effort
from rebalancer.planner.emptying import Emptier, half_emptied
from rebalancer.planner.problem import Contribution
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Eagerness
from rebalancer.snapshot.prices import NodePrices
from rebalancer.snapshot.selected import Selected
from rebalancer.testing.snapshots import HOSTNAME, node, workload
from tests.unit.planner.conftest import draft_of

NODES = [node(f"n{i}") for i in range(3)]
# n0 is full of web; n1 has two pods of few; n2 has none.
OBJECTS = [
    *NODES,
    *workload("web", ["n0"] * 3, cpu="1"),
    *workload("few", ["n1", "n1"], cpu="500m"),
]
RELENTLESS = Settings(eagerness=Eagerness.RELENTLESS)


def mask(*nodes, size=3):
    marked = np.zeros(size, bool)
    marked[list(nodes)] = True
    return marked


def emptier(
    objects=OBJECTS,
    *,
    kept=None,
    needed=1,
    settings=RELENTLESS,
    selected=None,
    others=(),
    prices=None,
):
    draft = draft_of(objects, strategies=[], settings=settings)
    kept, size = kept or {}, len(draft.snapshot.nodes)
    may = ~mask(*kept, size=size)
    of = Contribution("empty", 1.0, False, lambda _: (), selected=selected)
    emptiable = Emptiable(may, kept, mask(*range(size), size=size), needed, prices)
    return draft, Emptier(draft, of, emptiable, mask(*others, size=size))


def result(choice):
    nodes = np.flatnonzero(choice.nodes).tolist()
    return nodes, {node: verdict.code for node, verdict in choice.verdicts.items()}


def test_the_empty_node_and_the_one_whose_pods_fit_elsewhere_are_chosen():
    draft, chooser = emptier()
    before = draft.state.node_of.tolist(), draft.state.pod_count.tolist()
    choice = chooser.more(mask())
    assert result(choice) == (
        [1, 2],
        {0: NodeCode.NO_PLACE, 1: NodeCode.EMPTIED, 2: NodeCode.EMPTY},
    )
    assert choice.verdicts[1].message.startswith("pods that have to leave it: 2;")
    assert "need at least 1 node" in choice.verdicts[0].message
    assert (draft.state.node_of.tolist(), draft.state.pod_count.tolist()) == before


def test_no_more_are_emptied_than_the_requests_leave():
    _, chooser = emptier(needed=2)
    nodes, codes = result(chooser.more(mask()))
    assert nodes == [2]
    assert codes[1] is NodeCode.NO_PLACE


def test_a_node_for_which_no_judgement_is_left_is_not_said_to_be_needed(monkeypatch):
    monkeypatch.setattr(Effort, "of", staticmethod(lambda _: Effort(emptying=0)))
    _, chooser = emptier()
    choice = chooser.more(mask())
    assert choice.verdicts[0].code is NodeCode.NO_PLACE
    assert choice.verdicts[0].message.endswith("takes too long to say in one run")


def test_a_node_whose_pods_have_landings_only_without_those_of_another_one_is_said_so():
    """The pods of n0 or those of n1 fit on the others, and not both; a third node could be emptied by the requests."""
    places = [f"n{i}" for i in range(2, 6)]
    objects = [
        *(node(f"n{i}", cpu="2") for i in range(6)),
        *workload("two", ["n0", "n0"], cpu="500m"),
        *workload("four", ["n1"] * 4, cpu="500m"),
        *workload("there", places, cpu="1500m"),
    ]
    _, chooser = emptier(objects, kept=dict.fromkeys(range(2, 6), "it stays"))
    nodes, _ = result(choice := chooser.more(mask(size=6)))
    (other,) = {0, 1} - set(nodes)
    assert "takes too long" not in choice.verdicts[other].message


def test_pods_that_fit_nowhere_keep_their_node():
    # 3 of 4 cpus of each node are requested: no other takes 3 more.
    full = [*NODES, *workload("web", ["n0", "n1", "n2"], cpu="3")]
    _, chooser = emptier(full)
    choice = chooser.more(mask())
    assert result(choice)[0] == []
    assert {verdict.code for verdict in choice.verdicts.values()} == {NodeCode.NO_PLACE}


# n0 has room for the pod of n1, which is worth most, or for those of n2 and n3, which need the least room.
BY_LOAD = [
    *(node(f"n{i}", cpu=cpu) for i, cpu in enumerate(["6500m", "3", "1500m", "1500m"])),
    *workload("large", ["n0", "n1"], cpu="3"),
    *workload("small", ["n2", "n2", "n3", "n3"], cpu="750m"),
]
# n0 takes four more pods: those of n1, which need the least room, or those of n2 and n3, which are worth most.
BY_WORTH = [
    *(node(f"n{i}", cpu="16", pods=pods) for i, pods in enumerate([6, 4, 2, 2])),
    *workload("tiny", ["n0", "n0", *["n1"] * 4], cpu="10m"),
    *workload("large", ["n2", "n2", "n3", "n3"], cpu="1"),
]


@pytest.mark.parametrize("objects", [BY_LOAD, BY_WORTH], ids=["least room", "most worth"])
def test_nodes_that_need_the_least_room_or_are_worth_most_are_emptied_whatever_are_more(objects):
    _, chooser = emptier(objects, kept={0: "it stays"})
    assert result(chooser.more(mask(size=4)))[0] == [2, 3]


def only_on(name):
    return {"nodeSelector": {HOSTNAME: name}}


def test_no_node_fails_for_the_sake_of_later_ones():
    """All at once n0 fails, whose pods need n1, and n1 takes the room of n2. Without n1 both others can be emptied."""
    objects = [*(node(f"n{i}") for i in range(3)), node("n3", cpu="4500m")]
    for number, to in enumerate(["n1", "n3", "n3"]):
        on = [f"n{number}", "n3"]
        objects += workload(f"to-{to}-{number}", on, cpu="1", spec=only_on(to))
    _, chooser = emptier(objects, kept={3: "it stays"})
    assert result(chooser.more(mask(size=4)))[0] == [0, 2]


def test_nodes_that_fail_use_up_few_judgements(monkeypatch):
    """Every second node has pods that may stand nowhere else: two passes over all pods show who else can be emptied."""
    monkeypatch.setattr(Effort, "of", staticmethod(lambda _: Effort(emptying=50)))
    objects = [node(f"n{i:02}") for i in range(11)]
    objects += workload("web", [f"n{i:02}" for i in range(1, 10, 2) for _ in range(3)])
    for i in range(0, 10, 2):
        objects += workload(f"here-{i}", [f"n{i:02}"] * 3, spec=only_on(f"n{i:02}"))
    _, chooser = emptier(objects, kept={10: "it stays"})
    assert result(chooser.more(mask(size=11)))[0] == [1, 3, 5, 7, 9]


def test_a_choice_is_of_nodes_with_so_many_pods_or_of_one_node_with_more(monkeypatch):
    # n0 has six pods, n1 and n2 have two each, n3 has room for all.
    objects = [*(node(f"n{i}") for i in range(3)), node("n3", cpu="64", memory="64Gi")]
    objects += workload("six", ["n0"] * 6) + workload("two", ["n1", "n1", "n2", "n2"])

    def choose(most, *kept):
        monkeypatch.setattr(Effort, "of", staticmethod(lambda _: Effort(emptied_pods=most)))
        _, chooser = emptier(objects, kept=dict.fromkeys((*kept, 3), "it stays"))
        choice = chooser.more(mask(size=4))
        return result(choice)[0], choice.verdicts

    assert choose(10)[0] == [0, 1, 2]
    nodes, verdicts = choose(5)
    assert nodes == [1, 2]
    assert verdicts[0].message == "a choice is of nodes with 5 pods at most"
    assert choose(5, 1, 2)[0] == [0]


def test_why_a_pod_has_no_landing_is_said_though_later_tries_take_too_long(monkeypatch):
    full = [*NODES, *workload("web", ["n0", "n1", "n2"], cpu="3")]
    _, chooser = emptier(full)
    said = {node: one.message for node, one in chooser.more(mask()).verdicts.items()}
    monkeypatch.setattr(Effort, "of", staticmethod(lambda _: Effort(emptying=5)))
    _, chooser = emptier(full)
    assert {node: one.message for node, one in chooser.more(mask()).verdicts.items()} == said


@pytest.mark.parametrize(
    ("eagerness", "code"),
    [(Eagerness.TIMID, NodeCode.LOW_GAIN), (Eagerness.RELENTLESS, NodeCode.EMPTIED)],
)
def test_a_node_is_emptied_only_if_it_saves_as_much_as_the_policy_asks(eagerness, code):
    # Of two equal nodes the fuller one: half of the capacity for more than half of the disruption.
    pair = [*NODES[:2], *workload("web", ["n0", "n1", "n1"])]
    _, chooser = emptier(pair, kept={0: "it stays"}, settings=Settings(eagerness=eagerness))
    choice = chooser.more(mask(size=2))
    assert choice.verdicts[0].code is NodeCode.NOT_ELIGIBLE
    assert choice.verdicts[0].message == "it stays"
    assert choice.verdicts[1].code is code


# Either n1 or n2 can be emptied, not both; more pods leave n2.
EITHER = [
    *NODES,
    *workload("busy", ["n0"] * 2, cpu="1"),
    *workload("two", ["n1"] * 2, cpu="1"),
    *workload("four", ["n2"] * 4, cpu="500m"),
]
UNKNOWN = float("nan")


@pytest.mark.parametrize(
    ("hourly", "least_saving", "emptied", "message"),
    [
        (None, 0, [1], "landings elsewhere, together"),
        ((1, 0.1, 0.1), 0, [1], "together; its price is 0.1 an hour"),
        ((1, 0.1, 0.5), 0, [2], "together; its price is 0.5 an hour"),
        ((1, UNKNOWN, 0.5), 0, [2], "together; its price is 0.5 an hour"),
        # n2 saves 0.125 for each of its pods, n1 0.15.
        ((1, 0.3, 0.5), 0.13, [1], "together; its price is 0.3 an hour"),
        ((1, 0.3, 0.5), 0.2, [], None),
        ((1, UNKNOWN, UNKNOWN), 0, [], None),
    ],
)
def test_what_saves_the_most_money_is_emptied(hourly, least_saving, emptied, message):
    prices = None if hourly is None else NodePrices(np.array(hourly, float), least_saving)
    _, chooser = emptier(EITHER, kept={0: "it stays"}, prices=prices)
    choice = chooser.more(mask())
    assert result(choice)[0] == emptied
    assert all(message in choice.verdicts[node].message for node in emptied)


@pytest.mark.parametrize(
    ("hourly", "eagerness", "on_1", "emptied"),
    [
        # n1 is empty, and only there the pods of n2 would find room.
        ((1, 0.1, 0.5), Eagerness.EAGER, 0, [2]),
        ((1, 0.5, 0.5), Eagerness.EAGER, 0, [1]),
        ((1, 0.6, 0.5), Eagerness.EAGER, 0, [1]),
        # The difference is too little for what it disturbs.
        ((1, 0.45, 0.5), Eagerness.EAGER, 0, [1]),
        ((1, 0.45, 0.5), Eagerness.RELENTLESS, 0, [2]),
        # What was begun and has pods is finished.
        ((1, 0.1, 0.5), Eagerness.EAGER, 1, [1]),
    ],
)
def test_an_empty_node_is_given_back_for_the_pods_of_a_dearer_one(hourly, eagerness, on_1, emptied):
    objects = [
        *NODES,
        *workload("busy", ["n0"] * 2, cpu="1500m"),
        *workload("few", ["n1"] * on_1, cpu="100m"),
        *workload("two", ["n2"] * 2, cpu="1"),
    ]
    prices = NodePrices(np.array(hourly, float), 0)
    settings = Settings(eagerness=eagerness)
    _, chooser = emptier(objects, kept={0: "it stays"}, prices=prices, settings=settings)
    assert result(chooser.more(mask(1)))[0] == emptied


def test_why_a_node_saves_too_little_or_nothing_that_is_known():
    prices = NodePrices(np.array([1, UNKNOWN, 0.5]), 0.13)
    _, chooser = emptier(EITHER, kept={0: "it stays"}, prices=prices)
    verdicts = chooser.more(mask()).verdicts
    assert verdicts[1].code is NodeCode.NOT_ELIGIBLE
    assert verdicts[1].message == "prices do not say what it costs"
    assert verdicts[2].code is NodeCode.LOW_GAIN
    assert verdicts[2].message == (
        "it saves 0.5 an hour for 4 pods that would be evicted, 0.12 each; prices.leastSaving asks for 0.13"
    )


def test_a_protected_pod_keeps_its_node_and_is_named():
    pinned = workload("pinned", ["n1", "n1"], annotations={"rebalancer/evict": "false"})
    _, chooser = emptier([*OBJECTS, *pinned])
    verdict = chooser.more(mask()).verdicts[1]
    assert verdict.code is NodeCode.POD_STAYS
    assert verdict.message.startswith("default/pinned-0, and 1 more: ")


def test_a_pod_that_the_select_leaves_out_keeps_its_node():
    draft = draft_of(OBJECTS, strategies=[])
    few = int(draft.snapshot.pods.cls[list(draft.snapshot.pods.name).index("few-0")])
    classes = np.ones(len(draft.snapshot.classes), bool)
    classes[few] = False
    _, chooser = emptier(selected=Selected(classes, mask(0, 1, 2)))
    verdict = chooser.more(mask()).verdicts[1]
    assert verdict.code is NodeCode.POD_STAYS
    assert "the select of empty does not match it" in verdict.message


def test_nodes_that_were_begun_stay_chosen_while_their_pods_have_landings():
    _, chooser = emptier()
    assert result(chooser.still(mask(1))) == ([1], {1: NodeCode.EMPTIED})


@pytest.mark.parametrize(
    ("more", "kept", "code"),
    [
        ([], {1: "its pool is at its least"}, NodeCode.NOT_ELIGIBLE),
        (
            workload("pinned", ["n1", "n1"], annotations={"rebalancer/evict": "false"}),
            {},
            NodeCode.POD_STAYS,
        ),
    ],
)
def test_nodes_that_were_begun_and_cannot_be_emptied_any_more_are_given_up(more, kept, code):
    _, chooser = emptier([*OBJECTS, *more], kept=kept)
    nodes, codes = result(chooser.still(mask(1)))
    assert (nodes, codes[1]) == ([], code)


def test_while_something_else_comes_first_no_more_nodes_are_begun():
    _, chooser = emptier()
    nodes, codes = result(chooser.waiting(mask(2)))
    assert nodes == [2]
    assert (codes[0], codes[1]) == (NodeCode.WAITS, NodeCode.WAITS)


def test_no_pod_is_sent_to_a_node_that_another_policy_empties():
    # few has room on n2 only, which is not this strategy's.
    tight = [*NODES, *workload("web", ["n0"] * 4, cpu="1"), *workload("few", ["n1"] * 2, cpu="1")]
    _, chooser = emptier(tight, kept={2: "another policy's"}, others=[2])
    verdict = chooser.more(mask()).verdicts[1]
    assert verdict.code is NodeCode.NO_PLACE
    assert "n2, which is to be empty, too" in verdict.message


@pytest.mark.parametrize(
    ("strategy", "code", "nodes"),
    [("empty", Code.NO_ROOM, [1]), ("empty", Code.BUDGET, []), ("other", Code.NO_ROOM, [])],
)
def test_a_node_is_left_half_empty_where_a_pod_stays_for_more_than_a_budget(strategy, code, nodes):
    skip = Skip("default", "few-0", "n1", strategy, code, "")
    explanation = Explanation((skip,), {}, {}, 0, "")
    plan = Plan((), Later(lambda: explanation))
    assert half_emptied(plan, "empty", ["n0", "n1", "n2"], mask(1, 2)) == nodes
