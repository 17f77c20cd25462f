"""What runs ask of a provider stays within the sizes of its groups."""

from dataclasses import dataclass, field, replace

import pytest

from rebalancer.base.errors import ProviderError, ProviderRefusalError
from rebalancer.policy.cluster import GroupBounds
from rebalancer.policy.values import ProviderParams
from rebalancer.providers.contract import GroupSizeError, Guarded, KnownNode, NodeGroup, within
from rebalancer.providers.labelled import LabelledGroups
from tests.support.contracts import check_scaling

_POOL = NodeGroup(name="pool", instances=("a", "b", "c"), minimum=2, maximum=4, desired=3)


def _may():
    return True


@dataclass
class Lax:
    """A provider that does what it is asked, and notes it."""

    group: NodeGroup = _POOL
    asked: list[object] = field(default_factory=list)
    launching: int = 0
    """The looks at which a launch is in progress; it ends between the last one and the next."""

    def groups(self, nodes):
        return [self.group]

    def group_named(self, name, nodes):
        return next((one for one in self.groups(nodes) if one.name == name), None)

    def template(self, group):
        return None

    def launch_failure(self, group, since):
        return None

    def is_launching(self, group):
        if not self.launching:
            return False
        self.launching -= 1
        if not self.launching:
            self.group = replace(self.group, instances=(*self.group.instances, "new"))
        return True

    def set_size(self, group, desired):
        self.asked.append(desired)
        self.group = replace(self.group, desired=desired)

    def terminate(self, group, instance):
        self.asked.append(instance)
        left = tuple(one for one in self.group.instances if one != instance)
        self.group = replace(self.group, instances=left, desired=(self.group.desired or 0) - 1)


def test_the_provider_of_these_tests_keeps_the_contract():
    check_scaling(Lax(), (), "pool")


def test_never_below_the_minimum():
    machines = Lax()
    guarded = Guarded(machines, ())
    assert guarded.terminate("pool", "a", _may)
    with pytest.raises(GroupSizeError, match="pool has 2 machines and needs 2"):
        guarded.terminate("pool", "b", _may)
    assert machines.asked == ["a"]


def test_machines_that_exist_count_and_not_only_those_that_were_asked_for():
    """Four are desired, and the fourth does not come: with one less, two of the needed three would be left."""
    machines = Lax(replace(_POOL, minimum=3, desired=4))
    with pytest.raises(GroupSizeError, match="pool has 3 machines and needs 3"):
        Guarded(machines, ()).terminate("pool", "a", _may)
    assert machines.asked == []


def test_the_last_word_is_asked_for_right_before_the_request():
    machines, said = Lax(), []

    def refuses():
        said.append("asked")
        return False

    assert not Guarded(machines, ()).terminate("pool", "gone", refuses)
    assert not Guarded(machines, ()).terminate("pool", "a", refuses)
    assert (said, machines.asked) == (["asked"], [])


def test_never_above_the_maximum():
    machines = Lax()
    guarded = Guarded(machines, ())
    assert guarded.increase("pool", 4)
    with pytest.raises(GroupSizeError, match="pool may have 4 machines, not 5"):
        guarded.increase("pool", 5)
    assert machines.asked == [4]


@pytest.mark.parametrize(
    ("minimum", "desired", "size"), [(0, 5, 3), (4, 5, 4), (0, 3, None), (5, 5, None), (0, 2, None)]
)
def test_a_group_is_decreased_to_its_machines_and_never_below_its_minimum(minimum, desired, size):
    machines = Lax(replace(_POOL, minimum=minimum, maximum=9, desired=desired))
    assert Guarded(machines, ()).decrease_to_existing("pool") == size
    assert machines.asked == ([] if size is None else [size])


def test_machines_that_came_meanwhile_are_kept():
    machines = Lax(replace(_POOL, desired=4))
    guarded = Guarded(machines, ())
    machines.group = replace(machines.group, instances=("a", "b", "c", "d"))
    assert guarded.decrease_to_existing("pool") is None
    assert machines.asked == []


def test_a_group_whose_machines_are_being_launched_is_not_decreased():
    """With one machine more than it is to have, the provider would terminate one of its choice, with its pods."""
    machines = Lax(replace(_POOL, maximum=9, desired=5), launching=2)
    guarded = Guarded(machines, ())
    assert [guarded.decrease_to_existing("pool") for _ in range(3)] == [None, None, 4]
    assert machines.asked == [4]


def test_a_launch_that_ends_during_the_look_counts():
    """It is asked before the machines are read: one that it does not name any more is among them."""

    class Ending(Lax):
        def is_launching(self, group):
            self.group = replace(group, instances=(*group.instances, "new"))
            return False

    machines = Ending(replace(_POOL, maximum=9, desired=4))
    assert Guarded(machines, ()).decrease_to_existing("pool") is None
    assert machines.asked == []


def test_what_was_asked_before_is_not_asked_again():
    machines = Lax()
    guarded = Guarded(machines, ())
    assert [
        guarded.increase("pool", 4),
        guarded.increase("pool", 4),
        guarded.increase("pool", 2),
    ] == [True, False, False]
    assert [guarded.terminate("pool", "a", _may), guarded.terminate("pool", "a", _may)] == [
        True,
        False,
    ]
    assert machines.asked == [4, "a"]


def test_the_sizes_that_count_are_those_of_the_moment():
    machines = Lax()
    guarded = Guarded(machines, ())
    machines.group = replace(_POOL, minimum=3)
    with pytest.raises(GroupSizeError):
        guarded.terminate("pool", "a", _may)


@pytest.mark.parametrize("group", ["gone", "pool"])
def test_a_group_that_is_gone_or_without_sizes_is_left(group):
    machines = Lax(NodeGroup(name="pool", instances=("a",)))
    for ask in (
        lambda of: of.increase(group, 2),
        lambda of: of.decrease_to_existing(group),
        lambda of: of.terminate(group, "a", _may),
    ):
        with pytest.raises(ProviderError, match=r"no group gone|sizes are not known"):
            ask(Guarded(machines, ()))
    assert machines.asked == []


def test_the_provider_none_refuses():
    nodes = [KnownNode("a", "", {"agentpool": "pool"})]
    (group,) = LabelledGroups().groups(nodes)
    for ask in (lambda of: of.set_size(group, 2), lambda of: of.terminate(group, "a")):
        with pytest.raises(ProviderError, match="the provider none is for reports only; name one"):
            ask(LabelledGroups())
    assert not ProviderParams.acts


def test_a_machine_that_the_provider_cannot_end_is_not_asked_for():
    lax = Lax(replace(_POOL, held={"b": "a rollout is under way"}))
    with pytest.raises(ProviderRefusalError, match="pool: a rollout is under way"):
        Guarded(lax, ()).terminate("pool", "b", _may)
    assert lax.asked == []
    assert Guarded(lax, ()).terminate("pool", "a", _may)


@pytest.mark.parametrize(
    ("bounds", "sizes"),
    [
        ({"min": 3}, (3, 4)),
        ({"max": 3}, (2, 3)),
        ({"min": 3, "max": 3}, (3, 3)),
        # The provider would refuse what is beyond its own sizes.
        ({"min": 0, "max": 9}, (2, 4)),
        ({"min": 6, "max": 9}, (4, 4)),
        ({"min": 0, "max": 1}, (2, 2)),
    ],
)
def test_sizes_of_the_policy_hold_within_those_of_the_provider(bounds, sizes):
    """The group has from 2 to 4 machines by the provider."""
    group = within(_POOL, GroupBounds(**bounds))
    assert (group.minimum, group.maximum) == sizes


def test_sizes_that_are_not_known_stay_unknown():
    unknown = replace(_POOL, minimum=None, maximum=None, desired=None)
    assert within(unknown, GroupBounds(min=1, max=5)) == unknown


def test_no_request_leaves_the_sizes_of_the_policy():
    machines = Lax()
    guarded = Guarded(machines, (), {"pool": GroupBounds(min=3, max=3)})
    with pytest.raises(GroupSizeError, match="pool may have 3 machines, not 4"):
        guarded.increase("pool", 4)
    with pytest.raises(GroupSizeError, match="pool has 3 machines and needs 3"):
        guarded.terminate("pool", "a", _may)
    assert machines.asked == []


# -- answers of before -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("desired", "asked"),
    [(5, []), (7, []), (8, [8]), (4, [])],
    ids=["below", "as-asked", "above", "as-read"],
)
def test_no_size_is_asked_for_that_is_below_what_was_asked_for_before(desired, asked):
    machines = Lax(replace(_POOL, maximum=9))
    guarded = Guarded(machines, (), asked={"pool": 7})
    assert guarded.increase("pool", desired) is bool(asked)
    assert machines.asked == asked


def test_nothing_is_taken_back_while_the_size_that_was_asked_for_is_not_shown():
    machines = Lax(replace(_POOL, maximum=9, desired=5))
    assert Guarded(machines, (), asked={"pool": 7}).decrease_to_existing("pool") is None
    assert Guarded(machines, (), asked={"pool": 5}).decrease_to_existing("pool") == 3


@dataclass
class Late(Lax):
    """A provider that answers with what was before."""

    def group_named(self, name, nodes):
        return _POOL


@pytest.mark.parametrize("earlier", [(), ("a",)])
def test_machines_that_are_ended_do_not_count_though_they_are_listed(earlier):
    """Of three machines two are needed: one may go, also where the answers after that are late."""
    machines = Late()
    guarded = Guarded(machines, (), ending=earlier)
    if not earlier:
        assert guarded.terminate("pool", "a", _may)
    with pytest.raises(GroupSizeError, match="pool has 2 machines and needs 2"):
        guarded.terminate("pool", "b", _may)


def test_a_machine_whose_end_was_refused_counts():
    class Refusing(Late):
        def terminate(self, group, instance):
            if instance == "a":
                raise ProviderRefusalError("not this one")
            super().terminate(group, instance)

    guarded = Guarded(Refusing(), ())
    with pytest.raises(ProviderRefusalError):
        guarded.terminate("pool", "a", _may)
    assert guarded.terminate("pool", "b", _may)
