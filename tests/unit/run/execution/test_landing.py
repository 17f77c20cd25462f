"""Which replacement came for which victim."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.run.execution.landing import Arrivals, Replacement
from tests.unit.run.execution.world import move


class Feed:
    """Newcomers that are set by hand; the controller of a pod stands before the dash of its name."""

    def __init__(self, *newcomers):
        self.new = list(newcomers)
        self.waves = 0
        self.going = set()

    def begin_wave(self):
        self.waves += 1

    def controller_of(self, uid):
        return uid.removeprefix("uid-").split("-")[0]

    def newcomers(self):
        return self.new

    def ending(self):
        return self.going

    def is_gone(self, uid):
        return uid not in self.going

    def pause_of(self, uid):
        return 0.0

    def still_waits(self, uid):
        return None

    def unready_sibling(self, uid):
        return f"sibling of {uid}"

    def wait(self, seconds):
        pass

    def list_again(self):
        self.new.append(new("web-9"))


def nowhere(move, node):
    return False


def new(name, *, node="n2", created=1.0):
    return Replacement(name, name, "default", name.split("-")[0], node, True, created)


def pairs(arrivals, *victims):
    replacements = arrivals.replacements([move(name) for name in victims])
    return {uid.removeprefix("uid-"): one.name for uid, one in replacements.items()}


def test_replacements_go_to_the_victims_of_their_controller_in_order_of_creation():
    feed = Feed(new("web-9", created=3), new("db-5", created=1), new("web-8", created=2))
    assert pairs(Arrivals(feed, nowhere), "web-1", "web-2", "db-1", "db-2") == {
        "web-1": "web-8",
        "web-2": "web-9",
        "db-1": "db-5",
    }


def test_what_was_given_stays_given_when_an_older_one_shows_up():
    feed = Feed(new("web-9", created=3))
    arrivals = Arrivals(feed, nowhere)
    assert pairs(arrivals, "web-1", "web-2") == {"web-1": "web-9"}
    feed.new.append(new("web-8", created=2))
    assert pairs(arrivals, "web-1", "web-2") == {"web-1": "web-9", "web-2": "web-8"}


def test_a_replacement_that_disappears_is_replaced_in_turn():
    feed = Feed(new("web-8"))
    arrivals = Arrivals(feed, nowhere)
    assert pairs(arrivals, "web-1") == {"web-1": "web-8"}
    feed.new = [new("web-9")]
    assert pairs(arrivals, "web-1") == {"web-1": "web-9"}


@pytest.mark.parametrize(
    ("node", "then", "withdrawn"),
    [("n2", [], True), ("n2", [new("web-9")], False), ("", [], False)],
)
def test_only_what_had_a_node_is_withdrawn(node, then, withdrawn):
    feed = Feed(new("web-8", node=node))
    arrivals = Arrivals(feed, nowhere)
    arrivals.replacements([move("web-1")])
    feed.new = then
    replacements = arrivals.replacements([move("web-1")])
    assert arrivals.withdrawn("uid-web-1", replacements) is withdrawn


def test_victims_that_are_not_gone_are_counted():
    feed = Feed()
    feed.going = {"uid-web-1", "uid-other"}
    assert Arrivals(feed, nowhere).ending([move("web-1"), move("web-2")]) == 1


def test_the_rest_is_the_feeds():
    feed = Feed()
    arrivals = Arrivals(feed, nowhere)
    arrivals.begin_wave()
    arrivals.wait(0.0)
    arrivals.list_again()
    assert feed.waves == 1
    assert arrivals.unready_sibling("uid-a") == "sibling of uid-a"
    assert pairs(arrivals, "web-1") == {"web-1": "web-9"}


@given(
    st.lists(st.sampled_from(["web", "db", "api"]), max_size=6),
    st.lists(st.tuples(st.sampled_from(["web", "db", "api"]), st.integers(0, 3)), max_size=6),
)
def test_no_replacement_is_given_twice_and_none_is_left_over_while_a_victim_waits(owners, come):
    victims = [f"{owner}-{i}" for i, owner in enumerate(owners)]
    feed = Feed(*(new(f"{owner}-n{i}", created=at) for i, (owner, at) in enumerate(come)))
    given_to = pairs(Arrivals(feed, nowhere), *victims)
    assert len(set(given_to.values())) == len(given_to)
    for owner in ("web", "db", "api"):
        mine = [victim for victim in victims if victim.startswith(owner)]
        got = [one for victim, one in given_to.items() if victim.startswith(owner)]
        assert len(got) == min(len(mine), sum(of == owner for of, _ in come))
        assert all(one.startswith(owner) for one in got)


def test_replacements_that_are_created_together_go_to_the_victims_that_expected_them_there():
    expected = {"web-1": "n7", "web-2": "n2", "db-1": "n2"}
    feed = Feed(new("web-8", node="n2"), new("web-9", node="n7"), new("db-5", node="n9"))
    arrivals = Arrivals(feed, lambda move, node: expected[move.uid.removeprefix("uid-")] == node)
    paired = {"web-1": "web-9", "web-2": "web-8", "db-1": "db-5"}
    assert pairs(arrivals, *expected) == paired
    assert pairs(arrivals, *expected) == paired


@given(
    st.integers(1, 5).flatmap(
        lambda size: st.tuples(
            st.lists(st.sets(st.integers(0, 3)), min_size=size, max_size=size),
            st.lists(st.integers(-1, 3), min_size=size, max_size=size),
        )
    )
)
def test_as_many_as_possible_are_where_they_were_expected(drawn):
    """Beside all orders; -1: a replacement without a node, which stays with its victim."""
    expected, nodes = drawn
    victims = [f"web-{number}" for number in range(len(nodes))]
    come = [new(f"web-1{n}", node="" if at < 0 else f"n{at}") for n, at in enumerate(nodes)]
    where = {
        f"uid-{name}": {f"n{one}" for one in of} for name, of in zip(victims, expected, strict=True)
    }
    arrivals = Arrivals(Feed(*come), lambda move, node: node in where[move.uid])
    got = arrivals.replacements([move(name) for name in victims])
    assert sorted(one.name for one in got.values()) == sorted(one.name for one in come)
    placed = [number for number, at in enumerate(nodes) if at >= 0]
    best = max(
        sum(
            come[one].node in where[f"uid-web-{number}"]
            for number, one in zip(placed, order, strict=True)
        )
        for order in itertools.permutations(placed)
    )
    assert all(
        got[f"uid-web-{number}"] is come[number] for number in set(range(len(nodes))) - {*placed}
    )
    assert sum(one.node in where[uid] for uid, one in got.items()) == best
