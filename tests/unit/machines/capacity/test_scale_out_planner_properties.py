"""Whatever waits and whatever groups there are: sizes hold, each new node takes what it is bought for, nothing is bought twice."""

from collections import Counter
from dataclasses import dataclass

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rebalancer.machines.capacity.scale_out import group_resizes
from rebalancer.machines.capacity.scale_out_plan import NO_INPUTS, ScaleOutInputs
from rebalancer.machines.reasons import PodCode
from rebalancer.providers.contract import NodeTemplate
from rebalancer.testing.snapshots import HOSTNAME, apart, node, workload
from tests.unit.machines.capacity.conftest import Machines, group


@dataclass(frozen=True)
class Case:
    groups: tuple[tuple[str, int, int, int, int, int], ...]
    """Name, processors, GiB, desired, maximum, upcoming machines."""
    classes: tuple[tuple[str, int, int, int, str, bool], ...]
    """Name, replicas, millicores, MiB, group that is asked for, a node each."""
    expander: str


@st.composite
def cases(draw):
    groups = tuple(
        (f"g{number}", *draw(st.sampled_from([(2, 8), (4, 16), (4, 8), (8, 32)])), *sizes)
        for number, sizes in enumerate(
            draw(
                st.lists(
                    st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 3)),
                    min_size=1,
                    max_size=3,
                )
            )
        )
    )
    asked = st.sampled_from(["", "", *(name for name, *_ in groups)])
    classes = tuple(
        (f"w{number}", *of)
        for number, of in enumerate(
            draw(
                st.lists(
                    st.tuples(
                        st.integers(1, 5),
                        st.sampled_from([250, 500, 1000, 1500, 3000, 9000]),
                        st.sampled_from([256, 1024, 4096, 12000]),
                        asked,
                        st.booleans(),
                    ),
                    min_size=1,
                    max_size=4,
                )
            )
        )
    )
    chains = ["least-waste", "price", "most-pods", "[least-nodes, random]"]
    return Case(groups, classes, draw(st.sampled_from(chains)))


def _planned(machines, case, upcoming, triggered=NO_INPUTS.triggered):
    objects = [node("full"), *workload("there", ["full"], cpu="4", memory="16Gi")]
    for name, replicas, cpu, memory, asked, alone in case.classes:
        spec = apart(name, HOSTNAME) if alone else {}
        spec |= {"nodeSelector": {"group": asked}} if asked else {}
        objects += workload(name, [""] * replicas, cpu=f"{cpu}m", memory=f"{memory}Mi", spec=spec)
    templates = {
        name: NodeTemplate(
            {"group": name, "hourly": f"{cpu / 10}"},
            (),
            {"cpu": str(cpu), "memory": f"{gib}Gi", "pods": "110"},
        )
        for name, cpu, gib, *_ in case.groups
    }
    groups = [
        group(name, high=max(high, desired), desired=desired)
        for name, _, _, desired, high, _ in case.groups
    ]
    inputs = ScaleOutInputs(upcoming=upcoming, triggered=triggered)
    policy = f"prices: {{label: hourly}}\ncapacity: {{expander: {case.expander}}}"
    return machines.scale_out(objects, groups, policy, templates, inputs), groups


_SETTINGS = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@_SETTINGS
@given(case=cases())
def test_growth_is_within_the_sizes_and_of_use(tmp_path_factory, case):
    machines = Machines(tmp_path_factory.mktemp("policy"))
    upcoming = {name: min(way, desired) for name, *_, desired, _, way in case.groups}
    planned, groups = _planned(machines, case, upcoming)
    shapes = {name: (1000 * cpu, 1024 * gib) for name, cpu, gib, *_ in case.groups}
    asks = {name: of for name, *of in case.classes}

    # Never above the maximum, and no group twice.
    for one in group_resizes(planned.scale_out, tuple(groups)):
        desired, maximum = one.group.desired, one.group.maximum
        assert desired is not None
        assert maximum is not None
        assert desired < one.to <= maximum

    # Each node holds what it is bought for, by plain arithmetic, and none is bought for nothing.
    used: dict[str, Counter[str]] = {}
    for pod in planned.scale_out.pods:
        name = planned.snapshot.pods.name[pod.pod].rpartition("-")[0]
        _, cpu, memory, asked, alone = asks[name]
        if pod.group is None:
            continue
        assert asked in ("", pod.group)
        of = used.setdefault(pod.node, Counter(group=0))
        of += Counter({"cpu": cpu, "memory": memory, name: 1})
        assert of["cpu"] <= shapes[pod.group][0]
        assert of["memory"] <= shapes[pod.group][1]
        assert not alone or of[name] == 1
    bought = {name for step in planned.scale_out.increases for name in step.nodes}
    assert bought <= used.keys()

    # What waits although groups could grow fits on no new node.
    for pod in planned.scale_out.pods:
        name = planned.snapshot.pods.name[pod.pod].rpartition("-")[0]
        _, cpu, memory, asked, _ = asks[name]
        if pod.code is PodCode.NO_GROUP:
            assert not any(
                cpu <= shapes[of.name][0]
                and memory <= shapes[of.name][1]
                and asked in ("", of.name)
                for of in groups
            )

    again, _ = _planned(machines, case, upcoming)
    assert again.scale_out == planned.scale_out


# Eight of nine pods fit. The ninth must not be given the room of one that triggered the scale-out of another group.
FULL = Case(
    groups=(("g0", 8, 32, 0, 3, 0), ("g2", 4, 16, 0, 1, 0)),
    classes=(
        ("w0", 1, 250, 256, "", False),
        ("w1", 2, 3000, 256, "g0", False),
        ("w2", 1, 3000, 256, "", False),
        ("w3", 5, 3000, 1024, "", False),
    ),
    expander="least-waste",
)


@_SETTINGS
@example(case=FULL)
@given(case=cases())
def test_a_second_look_before_the_machines_come_asks_for_nothing(tmp_path_factory, case):
    machines = Machines(tmp_path_factory.mktemp("policy"))
    planned, groups = _planned(machines, case, {})
    by = {one.name: planned.scale_out.increase_of(one.name) for one in groups}
    later = Case(
        tuple(
            (name, cpu, gib, desired + by[name], high, 0)
            for name, cpu, gib, desired, high, _ in case.groups
        ),
        case.classes,
        case.expander,
    )
    uids = planned.snapshot.pods.uid
    triggered = {
        uids[one.pod]: one.group for one in planned.scale_out.pods if one.group is not None
    }
    again, _ = _planned(machines, later, by, triggered)
    left = [one for one in planned.scale_out.pods if one.code is PodCode.TRIGGERED]
    pending = [one for one in again.scale_out.pods if one.code is PodCode.UPCOMING]
    assert {one.name: again.scale_out.increase_of(one.name) for one in groups} == dict.fromkeys(
        by, 0
    )
    assert len(pending) == len(left)
