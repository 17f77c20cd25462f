"""Whatever waits, whatever is empty and whatever groups there are: no limit of the cluster is passed, in either direction."""

from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rebalancer.machines.capacity.scale_out import group_resizes
from rebalancer.machines.capacity.scale_out_plan import ScaleOutInputs
from rebalancer.providers.contract import NodeTemplate
from rebalancer.testing.snapshots import node, workload
from tests.unit.machines.capacity.conftest import Machines, group

_SETTINGS = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@dataclass(frozen=True)
class Case:
    groups: tuple[tuple[int, int, int, int], ...]
    """Processors, GiB, nodes, machines that are no nodes."""
    pods: tuple[tuple[int, int, int], ...]
    """Replicas, millicores, MiB."""
    load: int
    """Millicores that one pod on each node asks for."""
    expander: str
    bounds: tuple[int, int, int]
    """Of nodes, cores and GiB."""


_GROUP = st.tuples(
    st.sampled_from([2, 4, 8]), st.sampled_from([8, 15, 16]), st.integers(0, 3), st.integers(0, 2)
)
_POD = st.tuples(
    st.integers(1, 6), st.sampled_from([500, 1500, 3000]), st.sampled_from([256, 4096])
)


@st.composite
def cases(draw):
    groups = tuple(draw(st.lists(_GROUP, min_size=1, max_size=3)))
    return Case(
        groups,
        tuple(draw(st.lists(_POD, min_size=1, max_size=3))),
        draw(st.sampled_from([0, 100, 1900])),
        draw(st.sampled_from(["least-waste", "price", "most-pods", "[least-nodes, random]"])),
        (draw(st.integers(1, 16)), draw(st.integers(1, 60)), draw(st.integers(1, 200))),
    )


def _cluster(case, *, pending):
    objects, groups, templates = [], [], {}
    for number, (cpu, gib, count, way) in enumerate(case.groups):
        name = f"g{number}"
        nodes = [f"{name}-{index}" for index in range(count)]
        for one in nodes:
            made = node(one, cpu=f"{1000 * cpu - 80}m", memory=f"{gib - 1}Gi")
            made["status"]["capacity"] = {"cpu": str(cpu), "memory": f"{gib}Gi"}
            objects.append(made)
            if case.load:
                objects += workload(f"on-{one}", [one], cpu=f"{case.load}m", memory="64Mi")
        groups.append(group(name, *nodes, high=20, desired=count + way))
        templates[name] = NodeTemplate(
            {"hourly": f"{cpu / 10}"},
            (),
            {"cpu": f"{1000 * cpu - 80}m", "memory": f"{gib - 1}Gi", "pods": "110"},
            {"cpu": str(cpu), "memory": f"{gib}Gi"},
        )
    for number, (replicas, cpu, memory) in enumerate(case.pods if pending else ()):
        objects += workload(f"w{number}", [""] * replicas, cpu=f"{cpu}m", memory=f"{memory}Mi")
    return objects, groups, templates


def _sums(case, counts):
    cores = sum(count * cpu for count, (cpu, *_) in zip(counts, case.groups, strict=True))
    gib = sum(count * of for count, (_, of, *_) in zip(counts, case.groups, strict=True))
    return sum(counts), cores, gib


@_SETTINGS
@given(case=cases())
def test_no_increase_passes_a_maximum_of_the_cluster(tmp_path_factory, case):
    machines = Machines(tmp_path_factory.mktemp("policy"))
    objects, groups, templates = _cluster(case, pending=True)
    nodes, cores, gib = case.bounds
    policy = (
        f"prices: {{label: hourly}}\ncapacity: {{expander: {case.expander}, maxNodes: {nodes}, "
        f"total: {{cpu: {{max: {cores}}}, memory: {{max: {gib}Gi}}}}}}\n"
    )
    upcoming = {one.name: way for one, (*_, way) in zip(groups, case.groups, strict=True) if way}
    planned = machines.scale_out(
        objects, groups, policy, templates, ScaleOutInputs(upcoming=upcoming)
    )
    before = [one.desired for one in groups]
    asked = {one.group.name: one.to for one in group_resizes(planned.scale_out, tuple(groups))}
    after = [asked.get(one.name, one.desired) for one in groups]
    for was, now, most in zip(_sums(case, before), _sums(case, after), case.bounds, strict=True):
        # More than that may be there already: then nothing of it is added.
        assert now <= max(was, most)


@_SETTINGS
@given(case=cases())
def test_no_removal_passes_a_minimum_of_the_cluster(tmp_path_factory, case):
    machines = Machines(tmp_path_factory.mktemp("policy"))
    objects, groups, _ = _cluster(case, pending=False)
    _, cores, gib = case.bounds
    bounds = f"total: {{cpu: {{min: {cores}}}, memory: {{min: {gib}Gi}}}}"
    policy = f"protect: {{singleReplicas: false}}\ncapacity: {{under: 100%, {bounds}}}\n"
    judged = machines.judge(objects, groups, policy)
    gone = [
        sum(judged[name].removable for name in one.instances if name in judged.snapshot.nodes.index)
        for one in groups
    ]
    before = [len(one.instances) for one in groups]
    after = [have - less for have, less in zip(before, gone, strict=True)]
    for was, now, least in zip(
        _sums(case, before)[1:], _sums(case, after)[1:], (cores, gib), strict=True
    ):
        assert now >= min(was, least)
