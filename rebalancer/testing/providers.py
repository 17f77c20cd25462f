"""The contract of machine providers, as a test that every provider must pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rebalancer.policy.values import is_label_key, is_label_value
from rebalancer.providers.contract import KnownNode, Machines, NodeGroup, NodeTemplate
from rebalancer.wire.quantity import parse, parse_resource

_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")


def check_provider(machines: Machines, nodes: Sequence[KnownNode]) -> list[NodeGroup]:
    """Raise AssertionError if an open provider violates the contract; return its groups.

    ``nodes``: the nodes of a cluster whose machines belong to the provider. All requests only read.
    """
    groups = list(machines.groups(nodes))
    _hold(groups == list(machines.groups(nodes)), "groups are others when they are asked for again")
    _hold(groups == list(machines.groups(list(reversed(nodes)))), "the nodes' order matters")
    names = [group.name for group in groups]
    _hold(len(set(names)) == len(names), f"groups of one name: {names}")
    instances = Counter(instance for group in groups for instance in group.instances)
    twice = [instance for instance, count in instances.items() if count > 1]
    _hold(not twice, f"machines that are in two groups, or twice in one: {twice}")
    for group in groups:
        _hold(
            machines.group_named(group.name, nodes) == group,
            f"{group.name} is another one by its name",
        )
        _check_sizes(group)
        _check_template(group, machines.template(group))
    _hold(machines.group_named("no such group", nodes) is None, "there is a group of any name")
    _hold(
        {group.name for group in machines.groups(())} <= set(names),
        "a cluster without nodes has groups that one with nodes has not",
    )
    return groups


def check_scaling(machines: Machines, nodes: Sequence[KnownNode], name: str) -> None:
    """Raise AssertionError if an open provider that acts violates the contract.

    The group ``name`` gets one machine, and loses one. It needs a machine, and sizes that allow one more and one
    less. Other groups must not change.
    """

    def read() -> tuple[NodeGroup, list[NodeGroup]]:
        groups = list(machines.groups(nodes))
        (mine,) = [group for group in groups if group.name == name]
        return mine, [group for group in groups if group.name != name]

    before, others = read()
    _hold(before.is_sized and bool(before.instances), f"{name} has no sizes, or no machine")
    size = before.desired or 0
    failure = machines.launch_failure(before, 0.0)
    _hold(failure is None or bool(failure.strip()), f"{name}: a launch has failed for no reason")
    _hold(
        isinstance(machines.is_launching(before), bool), f"{name}: whether launches are in progress"
    )
    machines.set_size(before, size + 1)
    larger, still = read()
    _hold(larger.desired == size + 1, f"{name} is to have {larger.desired} machines after set_size")
    ended = before.instances[0]
    machines.terminate(larger, ended)
    after, also = read()
    _hold(ended not in after.instances, f"{name}: {ended} still counts after terminate")
    _hold(after.desired == size, f"{name} is to have {after.desired} machines after terminate")
    limits = {(group.minimum, group.maximum) for group in (before, larger, after)}
    _hold(len(limits) == 1, f"{name}: its minimum or maximum was changed")
    _hold(others == still == also, "other groups were changed")


def _check_sizes(group: NodeGroup) -> None:
    _hold(bool(group.name), "a group has no name")
    _hold(len(set(group.zones)) == len(group.zones), f"{group.name}: zones stand twice")
    for size in (group.minimum, group.maximum, group.desired):
        _hold(size is None or size >= 0, f"{group.name}: a size is negative")
    if group.minimum is not None and group.maximum is not None:
        _hold(group.minimum <= group.maximum, f"{group.name}: its minimum exceeds its maximum")


def _check_template(group: NodeGroup, template: NodeTemplate | None) -> None:
    if template is None:
        return
    for name, amount in template.allocatable.items():
        _hold(parse_resource(name, amount) >= 0, f"{group.name}: {name} is negative")
    lacking = {"cpu", "memory", "pods"} - template.allocatable.keys()
    _hold(not lacking, f"{group.name}: its template says nothing of {sorted(lacking)}")
    _hold(parse(template.allocatable["pods"]) > 0, f"{group.name}: its nodes take no pods")
    for key, value in template.labels.items():
        _hold(is_label_key(key), f"{group.name}: {key!r} is no key of a label")
        _hold(is_label_value(value), f"{group.name}: {value!r} is no value of a label")
    for taint in template.taints:
        _hold(taint.effect in _EFFECTS, f"{group.name}: {taint.effect!r} is no effect of a taint")


def _hold(condition: bool, otherwise: str) -> None:
    if not condition:
        raise AssertionError(otherwise)
