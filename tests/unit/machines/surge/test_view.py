"""Which machines of a group under replacement may go."""

from rebalancer.machines.surge.note import GroupNote
from rebalancer.machines.surge.view import GroupView, MachineView
from rebalancer.providers.contract import NodeGroup


def machine(name, zone, launched, lacks="", created=30):
    return MachineView(
        instance=name,
        node=name,
        uid=name,
        zone=zone,
        created=created,
        launched=launched,
        lacks=lacks,
    )


def surplus(*machines, zones):
    note = GroupNote(desired=2, size=4, at=10, since=10, zones=zones)
    view = GroupView(
        NodeGroup(name="pool", instances=tuple(m.instance for m in machines)), machines
    )
    return [one.instance for one in view.surplus(note, (), (), ())]


def test_no_zone_loses_more_than_it_has_to_spare():
    """Two that came last are in one zone, which has one to spare, as the other has."""
    machines = [machine("a1", "a", 20), machine("a2", "a", 21)]
    machines += [machine("b1", "b", 18), machine("b2", "b", 19)]
    assert surplus(*machines, zones={"a": 1, "b": 1}) == ["a2", "b2"]


def test_one_that_is_not_useful_takes_nothing_from_its_zone():
    machines = [machine("a1", "a", 20, "its node is not Ready"), machine("a2", "a", 21)]
    assert surplus(*machines, machine("a3", "a", 5), zones={"a": 1}) == ["a1", "a2"]


def test_a_machine_is_new_by_its_launch_and_not_by_its_node():
    """The node of an old machine was registered again; of the last one the provider says nothing yet."""
    again, unknown = machine("a1", "a", 5, created=99), machine("a2", "a", None, created=99)
    assert surplus(again, unknown, machine("a3", "a", 11, created=1), zones={}) == ["a3"]


def test_a_machine_that_the_provider_cannot_end_neither_goes_nor_is_closed():
    old, new = machine("a1", "a", 5), machine("a2", "a", 20)
    group = NodeGroup(name="pool", instances=("a1", "a2"), held={"a2": "older ones first"})
    view = GroupView(group, [old, new])
    note = GroupNote(desired=1, size=2, at=10, since=10, zones={"a": 1})
    assert view.surplus(note, (), (), ()) == []
    assert view.why_not("a2", note, ()) == "pool: older ones first"
    assert view.why_not("a1", note, ()) is None
