"""Machines of Cluster API are ended one by one: the named one and no other, whatever becomes of requests."""

import random
from contextlib import suppress

import pytest

from rebalancer.base.errors import ProviderError, ProviderRefusalError
from rebalancer.machines.cluster_api.api import DELETE, ENDS, PAUSED, ClusterApi
from rebalancer.machines.cluster_api.groups import MachineGroups
from rebalancer.providers.contract import Guarded
from tests.unit.machines.cluster_api.world import World, name_of, template


@pytest.fixture
def world():
    made = World()
    made.cluster()
    return made


def guarded(world):
    return Guarded(MachineGroups(ClusterApi(world, "default"), "work", {}), ())


def end(world, machine, group="pool"):
    return guarded(world).terminate(group, f"box:///{machine}", lambda: True)


def size(world, name="pool", plural="machinedeployments"):
    return world.objects[plural, name]["spec"]["replicas"]


def marked(world):
    return [
        name_of(one) for one in world.of("machines") if DELETE in one["metadata"]["annotations"]
    ]


def claim(world):
    return world.objects["machinedeployments", "pool"]["metadata"]["annotations"].get(ENDS)


def test_the_named_machine_ends_and_no_other(world):
    world.deployment("pool", 3)
    first, second, third = world.machines()
    assert end(world, second)
    # Before any controller has seen it, it counts as gone, so that nobody ends another one in its place.
    group = guarded(world).machines.group_named("pool", ())
    assert group is not None
    assert (group.desired, group.instances) == (2, (f"box:///{first}", f"box:///{third}"))
    assert not end(world, second)
    world.settle()
    assert (world.ended, world.machines(), size(world), claim(world)) == (
        [second],
        [first, third],
        2,
        None,
    )


def test_the_named_machine_of_a_set_alone_ends(world):
    world.machine_set("alone", 3)
    _, second, _ = world.machines()
    assert end(world, second, "machineset/alone")
    world.settle()
    assert (world.ended, size(world, "alone", "machinesets")) == ([second], 2)


def test_several_end_one_after_the_other(world):
    world.deployment("pool", 4)
    first, second, third, _ = world.machines()
    for one in (third, first, second):
        assert end(world, one)
    world.settle()
    assert world.ended == [third, first, second]


def test_a_group_does_not_grow_before_what_was_ended_is_deleted(world):
    """The increase would take the decrease back, and nothing would have ended."""
    world.deployment("pool", 3)
    first, *rest = world.machines()
    assert end(world, first)
    assert guarded(world).increase("pool", 3)
    world.settle()
    assert (world.ended, set(rest) < set(world.machines()), size(world)) == ([first], True, 3)
    assert end(world, rest[0])
    world.works = False
    with pytest.raises(ProviderError, match="what was asked for before"):
        guarded(world).increase("pool", 3)
    assert size(world) == 2


def test_a_second_one_is_not_marked_while_a_first_one_is_not_deleted_yet(world):
    world.deployment("pool", 4)
    first, second, *_ = world.machines()
    assert end(world, second)
    world.works = False
    with pytest.raises(ProviderRefusalError, match="what was asked for before"):
        end(world, first)
    assert (marked(world), claim(world)) == ([second], None)


def test_each_write_names_what_was_read(world):
    world.deployment("pool", 2)
    end(world, world.machines()[0])
    assert [name for name, _ in world.patches] == ["pool", world.machines()[0], "pool"]
    assert world.patches[-1][1] == {
        "spec": {"replicas": 1},
        "metadata": {"annotations": {ENDS: None}},
    }


REFUSED = [
    (
        "another is marked by a person",
        lambda w, _, other: w.annotate("machines", other, DELETE, "yes"),
        "by another client",
    ),
    ("it is paused", lambda w, one, _: w.annotate("machines", one, PAUSED, ""), "is paused"),
    (
        "more are asked for",
        lambda w, *_: w.change(
            "machinedeployments", "pool", lambda o: o["spec"].update(replicas=4)
        ),
        "what is under way has to end first",
    ),
    (
        "fewer are asked for",
        lambda w, *_: w.change(
            "machinedeployments", "pool", lambda o: o["spec"].update(replicas=2)
        ),
        "what is under way has to end first",
    ),
    (
        "another is being deleted",
        lambda w, _, other: w.change(
            "machines", other, lambda o: o["metadata"].update(deletionTimestamp="x")
        ),
        "what is under way has to end first",
    ),
]


@pytest.mark.parametrize(
    ("change", "why"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_nothing_is_ended_where_another_machine_could_be(world, change, why):
    world.deployment("pool", 3)
    first, second, _ = world.machines()
    change(world, first, second)
    with pytest.raises(ProviderRefusalError, match=why):
        end(world, first)
    assert world.patches == []


def on_delete(world):
    """Two machines of an old template, one of one in between, and one of the current one; return their names."""
    world.deployment("pool", 2, "0", strategy="OnDelete")
    for number, version in enumerate(("v1.37.0", "v1.38.0"), 3):
        world.change(
            "machinedeployments",
            "pool",
            lambda one, v=version: one["spec"].update(template=template(v)),
        )
        world.settle()
        world.change(
            "machinedeployments", "pool", lambda one, n=number: one["spec"].update(replicas=n)
        )
        world.settle()
    return world.machines()


def test_while_a_rollout_waits_for_deletions_the_oldest_machines_end_first(world):
    first, second, between, new = on_delete(world)
    for early in (between, new):
        with pytest.raises(ProviderRefusalError, match="of the older MachineSet pool-1 first"):
            end(world, early)
    assert world.patches == []
    for one in (second, first):
        assert end(world, one)
    assert end(world, between)
    world.settle()
    assert sorted(world.ended) == sorted([first, second, between])
    assert world.machines() == [new]


KILLED = ["pool", "machine", "lowered"]


class KilledError(Exception):
    """The process ends here."""


@pytest.mark.parametrize("after", KILLED)
@pytest.mark.parametrize("named", ["same", "other"])
def test_a_process_that_is_killed_after_a_write_leaves_a_group_that_the_next_one_goes_on_with(
    world, after, named
):
    world.deployment("pool", 3)
    first, second, _ = world.machines()
    count = KILLED.index(after) + 1

    def kill(*_):
        if len(world.patches) == count:
            raise KilledError

    world.meanwhile = kill
    if after == "lowered":
        assert end(world, first)
    else:
        with pytest.raises(KilledError):
            end(world, first)
    world.meanwhile = lambda *_: None
    world.settle()
    lowered = after == "lowered"
    assert world.ended == ([first] if lowered else [])
    target = first if named == "same" else second
    assert end(world, target) is not (lowered and named == "same")
    world.settle()
    assert world.ended == ([first, second] if lowered and named == "other" else [target])
    assert (marked(world), claim(world)) == ([], None)


@pytest.mark.parametrize("fate", ["before", "after", "garbled"])
@pytest.mark.parametrize("write", [1, 2, 3])
def test_a_lost_answer_ends_one_machine_once(world, fate, write):
    world.deployment("pool", 3)
    first, *rest = world.machines()
    calls = []

    def lose(*_):
        calls.append(1)
        return fate if len(calls) == write else ""

    world.lose = lose
    assert end(world, first)
    world.settle()
    assert (world.ended, world.machines(), claim(world)) == ([first], rest, None)


@pytest.mark.parametrize("write", [1, 2, 3])
@pytest.mark.parametrize("fate", ["403", "422"])
def test_a_refused_write_leaves_the_group_as_it_was(world, write, fate):
    world.deployment("pool", 3)
    calls = []

    def lose(*_):
        calls.append(1)
        return fate if len(calls) == write else ""

    world.lose = lose
    with pytest.raises(ProviderRefusalError):
        end(world, world.machines()[0])
    world.settle()
    assert (world.ended, size(world), marked(world), claim(world)) == ([], 3, [], None)


def test_if_no_answer_comes_at_all_it_is_not_known_and_nothing_else_ends(world):
    world.deployment("pool", 3)
    first, second, _ = world.machines()
    world.lose = lambda _, body: "before" if "spec" in body or len(world.patches) > 2 else ""
    get = world.get

    def deaf(path, **more):
        if len(world.patches) >= 2 and "machinedeployments" in path:
            raise ProviderError("no answer")
        return get(path, **more)

    world.get = deaf
    with pytest.raises(ProviderError):
        end(world, first)
    world.get, world.lose = get, lambda *_: ""
    assert marked(world) == [first]
    assert end(world, second)
    world.settle()
    assert (world.ended, marked(world)) == ([second], [])


MEANWHILE = [
    (
        "another client sets the size",
        lambda w, _: w.change("machinedeployments", "pool", lambda o: o["spec"].update(replicas=4)),
        0,
    ),
    (
        "the template changes",
        lambda w, _: w.change(
            "machinedeployments", "pool", lambda o: o["spec"].update(template=template("v1.37.0"))
        ),
        0,
    ),
    ("it is paused", lambda w, _: w.annotate("machinedeployments", "pool", PAUSED, ""), 0),
    (
        "a status is written",
        lambda w, one: (w.touch("machinedeployments", "pool"), w.touch("machines", one)),
        1,
    ),
]


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize(
    ("change", "ends"), [row[1:] for row in MEANWHILE], ids=[row[0] for row in MEANWHILE]
)
def test_a_group_that_changes_under_its_feet_is_left_alone(world, change, ends, at):
    world.deployment("pool", 3, strategy="OnDelete")
    first = world.machines()[0]
    calls = []

    def meanwhile(*_):
        calls.append(1)
        if len(calls) == at:
            change(world, first)

    world.meanwhile = meanwhile
    if ends:
        assert end(world, first)
    else:
        with pytest.raises(ProviderRefusalError):
            end(world, first)
        assert (marked(world), claim(world)) == ([], None)
    world.settle()
    assert len(world.ended) == ends


def test_two_processes_that_end_two_machines_at_once_end_only_what_they_named(world):
    world.deployment("pool", 4, "0")
    first, second, *rest = world.machines()
    for at in (1, 2, 3):
        calls: list[int] = []

        def other(*_, at=at, calls=calls):
            calls.append(1)
            if len(calls) == at:
                world.meanwhile = lambda *_: None
                end(world, second)

        world.meanwhile = other
        with suppress(ProviderRefusalError):
            end(world, first)
        world.meanwhile = lambda *_: None
        world.settle()
        assert set(world.ended) <= {first, second}
        if second not in world.machines():
            break
    assert set(rest) <= set(world.machines())


def test_the_last_write_is_not_begun_late(world):
    world.deployment("pool", 3)

    def slow(*_):
        world.seconds += 10.0

    world.meanwhile = slow
    with pytest.raises(ProviderRefusalError, match="more than 15 s"):
        end(world, world.machines()[0])
    assert (size(world), marked(world), claim(world)) == (3, [], None)


def test_a_machine_without_a_node_can_be_named_by_its_own_name(world):
    world.deployment("pool", 3)
    second = world.machines()[1]
    world.change("machines", second, lambda one: (one.pop("status"), one["spec"].pop("providerID")))
    assert guarded(world).terminate("pool", f"machine:default/{second}", lambda: True)
    world.settle()
    assert world.ended == [second]


class Story:
    """Requests with faults, people and controllers, in an order that is drawn."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.world = World()
        self.world.cluster()
        self.strategy = self.draw.choice(["RollingUpdate", "OnDelete"])
        self.world.deployment("pool", 4, "0", "8", strategy=self.strategy)
        self.named: set[str] = set()
        self.allowed = 0
        """Machines that may have ended."""
        self.done: set[str] = set()
        """Those that have surely been asked for."""
        self.is_disturbed = False
        """Whether people have deleted a machine: that may take the place of one that was asked for."""

    def end(self):
        if not (living := self.world.machines()):
            return
        one = self.draw.choice(living)
        try:
            is_ended = end(self.world, one)
            self.done |= {one} if is_ended else set()
        except ProviderRefusalError:
            return
        except ProviderError:
            is_ended = True
        self.named |= {one} if is_ended else set()
        self.allowed += is_ended

    def grow(self):
        with suppress(ProviderError):
            guarded(self.world).increase("pool", min(8, size(self.world) + 1))

    def take_back(self):
        with suppress(ProviderError):
            guarded(self.world).decrease_to_existing("pool")

    def change_template(self):
        # Between a decrease and its execution another template changes which MachineSet is decreased: see the docs.
        self.world.settle()
        of = template(f"v1.{self.draw.randrange(36, 39)}.0")
        if self.strategy == "OnDelete":
            self.world.change(
                "machinedeployments", "pool", lambda one: one["spec"].update(template=of)
            )

    def delete(self):
        if (living := self.world.machines()) and self.draw.random() < 0.2:
            self.is_disturbed = True
            self.world.change(
                "machines",
                self.draw.choice(living),
                lambda one: one["metadata"].update(deletionTimestamp="x"),
            )

    def tell(self):
        steps = [self.end] * 4 + [self.grow] * 2
        steps += [self.take_back, self.change_template, self.delete, self.world.finish_deletions]
        steps += [self.world.settle] * 4
        for _ in range(40):
            self.world.lose = lambda *_: self.draw.choice(
                ["", "", "", "", "before", "after", "403"]
            )
            self.draw.choice(steps)()
        self.world.settle()


@pytest.mark.parametrize("seed", range(50))
def test_whatever_happens_only_named_machines_end(seed):
    story = Story(seed)
    story.tell()
    assert set(story.world.ended) <= story.named
    assert len(story.world.ended) <= story.allowed
    assert story.is_disturbed or not story.done & set(story.world.machines())
