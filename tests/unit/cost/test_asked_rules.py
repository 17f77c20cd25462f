"""Terms and groups of others, which the core does not know: it asks them."""

import numpy as np
import pytest

from rebalancer.core.rules import AskedRule, moves_for, write_gains
from rebalancer.core.views import view_of
from rebalancer.cost.domain_term import DomainTerm
from rebalancer.cost.groups import Domains, changes_of
from rebalancer.cost.pod_term import PodTerm
from rebalancer.cost.separable_groups import CapGroup
from rebalancer.cost.term import Candidates, Entry
from rebalancer.testing.snapshots import node, workload
from tests.support.terms import NeutralTerm
from tests.unit.cost.small import class_of, view_on

NODES = [node(name) for name in "abc"]
ALL = np.arange(3, dtype=np.int32)


@pytest.fixture
def view():
    return view_on([*NODES, *workload("web", ["a", "a", "b"])])


def gains_of(rule, cls):
    out = np.zeros(3)
    write_gains(rule, cls, view_of(ALL), view_of(out))
    return out.tolist()


class Dear(NeutralTerm):
    """Pods on node c cost 2, those on the others nothing."""

    entry = Entry.SOFT

    def candidates(self, classes=None):
        return Candidates.of([(0, 2, 1.5), (0, 2, 0.5), (0, 1, 0.25)])

    def delta(self, cls, node, replacement, destinations):
        return np.where(destinations == 2, 2.0, 0.0)


class Crowd(DomainTerm):
    """A term of caps that says itself what a move changes."""

    def delta(self, cls, node, replacement, destinations):
        return np.full(len(destinations), -0.5)


class Once(PodTerm):
    """A term on single pods that wants each of them on node b."""

    def delta_of(self, pod, destinations):
        return np.where(destinations == 1, -1.0, 0.0)


class Promising(DomainTerm):
    """A term of caps that promises more than its groups."""

    def candidates(self, classes=None):
        return Candidates.of([(0, 0, 7.0)])


class Strict(CapGroup):
    """A cap that counts each move twice."""

    def delta(self, cls, node, replacement, destinations):
        return 2 * super().delta(cls, node, replacement, destinations)


class Even:
    """A group that wants an even number of pods on node a."""

    label, weight = "even", 3.0

    def __init__(self, view, classes):
        self.members = self.movers = classes
        self._view = view

    def _here(self):
        return int(self._view.state.count_on(self.members, 0))

    def potential(self):
        return float(self._here() % 2)

    def gains(self):
        return np.array([self.potential(), 0.0, 0.0])

    def delta(self, cls, node, replacement, destinations):
        then = (self._here() - (node == 0) + (destinations == 0)) % 2
        return then - self.potential()

    def unsatisfiable(self):
        return None

    def minimum(self):
        return self.potential()

    def describe(self, node):
        return "odd"


def caps(kind, view, group=CapGroup):
    cls = np.array([class_of(view, "web-0")], np.int32)
    nodes = Domains.nodes(view)
    return kind(view, Entry.SOFT, [group(view, label="x", domains=nodes, counted=cls, cap=1)])


def singles(view):
    pods, worth = np.array([0, 1], np.int32), np.ones(2)
    return Once(view, pods=pods, worth=worth, reason=str, by_state=False)


@pytest.mark.parametrize(
    ("make", "pod", "changes"),
    [
        (lambda _: Dear(), 0, [0.0, 0.0, 2.0]),
        (lambda view: caps(Crowd, view), 0, [-0.5, -0.5, -0.5]),
        (singles, 0, [0.0, -1.0, 0.0]),
        (lambda view: caps(DomainTerm, view), 0, [0.0, 0.0, -1.0]),
        (lambda view: caps(DomainTerm, view, Strict), 0, [0.0, 0.0, -2.0]),
    ],
)
def test_a_rule_says_what_the_class_of_its_term_says(view, make, pod, changes):
    cls = class_of(view, "web-0")
    ((rule, weight),) = make(view).rules_of_move(cls, cls)
    assert (weight * changes_of(rule, cls, 0, cls, ALL, pod)).tolist() == changes


@pytest.mark.parametrize(
    ("make", "gains"),
    [
        (lambda _: Dear(), [0.0, 0.25, 2.0]),
        (lambda view: caps(Promising, view), [7.0, 0.0, 0.0]),
        (singles, [1.0, 0.0, 0.0]),
        (lambda view: caps(DomainTerm, view), [1.0, 0.0, 0.0]),
    ],
)
def test_a_rule_promises_what_the_class_of_its_term_names_as_candidates(view, make, gains):
    cls = class_of(view, "web-0")
    ((rule, _),) = make(view).rules_of_move(cls, cls)
    assert gains_of(rule, cls) == gains


def test_a_group_without_a_rule_is_asked_about_each_move(view):
    cls = class_of(view, "web-0")
    term = DomainTerm(view, Entry.SOFT, [Even(view, np.array([cls], np.int32))])
    ((rule, weight),) = term.rules_of_move(cls, cls)
    assert isinstance(rule, AskedRule)
    assert weight == 3.0
    assert moves_for(rule, cls)
    assert not moves_for(rule, cls + 1)
    assert changes_of(rule, cls, 0, cls, ALL).tolist() == [0.0, 1.0, 1.0]
    view.state.evict(0)
    view.state.reap()
    view.state.place(0, cls, 2)
    assert changes_of(rule, cls, 1, cls, ALL).tolist() == [-1.0, 0.0, 0.0]
    assert gains_of(rule, cls) == [1.0, 0.0, 0.0]


def test_a_term_that_says_nothing_of_a_move_is_not_asked(view):
    class Deaf(Dear):
        def concerns(self, cls, replacement):
            return False

    assert not Deaf().rules_of_move(0, 0)
