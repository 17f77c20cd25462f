"""The classes of a snapshot: those of its pods, and those of the replacements."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import msgspec
import numpy as np

from rebalancer.snapshot.columns import Int32s, Ints
from rebalancer.snapshot.model import Owner, PodClass, PodFlag
from rebalancer.snapshot.nodes import Amounts, pod_requests, score_requests
from rebalancer.snapshot.owners import (
    Controller,
    Memo,
    Ownership,
    SeenPods,
    assumptions,
    replacement_spec,
)
from rebalancer.snapshot.pod_table import ClassSpec
from rebalancer.wire import objects as o

_BASE_RESOURCES = ("cpu", "memory", "ephemeral-storage")


class Classes:
    """The classes with their replacements and requests."""

    def __init__(self, of_pods: Iterable[ClassSpec], ownership: Ownership, kept: Memo) -> None:
        self._specs = list(of_pods)
        self._ownership, self._kept = ownership, kept
        self._assumed: dict[int, tuple[str, ...]] = {}
        self._replacement = self._replacements()
        self._unreadable: dict[int, str] = {}
        self._requests: list[Amounts] = []
        self._scored: list[Amounts] = []
        self._read_requests()
        others = {name for amounts in self._requests for name in amounts} - set(_BASE_RESOURCES)
        self.resources = (*_BASE_RESOURCES, *sorted(others))
        """Axis R."""

    def _replacements(self) -> list[int]:
        """Append the classes of replacements that differ; return the replacement of each class."""
        replacements: list[int] = []
        appended: dict[Hashable, int] = {}
        for index in range(len(self._specs)):
            of_pod = self._specs[index]
            controller = of_pod.controller
            workload = self._ownership.workload(controller.uid)
            template = workload.spec.template if workload is not None else None
            if template is None or controller.kind == "DaemonSet":
                if template is None and controller.kind:
                    self._assumed[index] = (f"like the pod: its {controller.kind} was not read",)
                replacements.append(index)
                continue
            self._assumed[index], other = self._kept.of(_replacement, of_pod, template)
            if other is None:
                replacements.append(index)
                continue
            key, wanted = other
            if key not in appended:
                appended[key] = len(self._specs)
                self._specs.append(wanted)
            replacements.append(appended[key])
        # A replacement is replaced by one like itself.
        return replacements + list(range(len(replacements), len(self._specs)))

    def _read_requests(self) -> None:
        for index, spec in enumerate(each.spec for each in self._specs):
            requests, scored, why = self._kept.of(_amounts, spec)
            if why is not None:
                self._unreadable[index] = why
            self._requests.append(requests)
            self._scored.append(scored)

    def requests(self) -> Ints:
        """Return the effective requests (R, C)."""
        return _matrix(self.resources, self._requests)

    def compute_scored(self) -> Ints:
        """Return cpu and memory (2, C) with the scheduler's defaults for missing requests."""
        return _matrix(("cpu", "memory"), self._scored)

    def with_owners(
        self, cls: Int32s, flags: Int32s
    ) -> tuple[tuple[PodClass, ...], tuple[Owner, ...]]:
        """Return the classes, and their top controllers by namespace, kind, name and uid.

        ``cls`` and ``flags`` (P,) are columns of the pods.
        """
        living = (flags & PodFlag.TERMINATING) == 0
        ready = living & ((flags & PodFlag.READY) != 0)
        # As lists: nearly all owners have one class, and numpy is slow on one number.
        living_of = np.bincount(cls[living], minlength=len(self._specs)).tolist()
        ready_of = np.bincount(cls[ready], minlength=len(self._specs)).tolist()
        tops: dict[tuple[str, str, str, str], list[int]] = {}
        for index, controller in enumerate(each.controller for each in self._specs):
            if controller.kind:
                top = (controller.namespace, *self._ownership.top(controller))
                tops.setdefault(top, []).append(index)
        owner_of = [-1] * len(self._specs)
        owners: list[Owner] = []
        for top in sorted(tops):
            members = tops[top]
            counted = SeenPods(
                living=sum(living_of[member] for member in members),
                ready=sum(ready_of[member] for member in members),
                controllers=list(dict.fromkeys(self._specs[m].controller for m in members)),
                replica_sets=len({self._specs[m].controller.uid for m in members if living_of[m]}),
            )
            for member in members:
                owner_of[member] = len(owners)
            owners.append(self._ownership.owner(*top[1:], counted))
        return self._build(owner_of), tuple(owners)

    def controllers(self, built: Sequence[PodClass]) -> dict[int, set[Controller]]:
        """Return owner -> the direct controllers of its pods; ``built``: the classes with their owners."""
        controllers: dict[int, set[Controller]] = {}
        for cls, of_class in zip(built, self._specs, strict=True):
            controllers.setdefault(cls.owner, set()).add(of_class.controller)
        return controllers

    def _build(self, owner_of: Sequence[int]) -> tuple[PodClass, ...]:
        return tuple(
            PodClass(
                namespace=controller.namespace,
                labels=labels,
                spec=spec,
                owner=owner_of[index],
                controller_kind=controller.kind,
                controller_group=controller.group,
                controller_uid=controller.uid,
                replacement=self._replacement[index],
                unreadable=self._unreadable.get(index),
                assumed=self._assumed.get(index, ()),
                opt_outs=own,
                gang=gang,
                job_ended=self._ownership.job_ended(controller),
            )
            for index, (controller, labels, spec, own, gang) in enumerate(self._specs)
        )


def _replacement(
    of_pod: ClassSpec, template: o.PodTemplate
) -> tuple[tuple[str, ...], tuple[Hashable, ClassSpec] | None]:
    """Return the assumptions about the replacement, and its (key, class) if it differs from the pod's."""
    controller, labels, spec, own, gang = of_pod
    keep = controller.kind == "StatefulSet"
    wanted = replacement_spec(labels, spec, template, keep_labels=keep)
    assumed = assumptions(spec, template.spec)
    if wanted == (labels, spec):
        return assumed, None
    # What a pod says against its move, or of its gang, its replacement will say again: most come from a template.
    key = (controller.uid, own, gang, msgspec.json.encode(wanted, order="sorted"))
    return assumed, (key, ClassSpec(controller, *wanted, own, gang))


def _amounts(spec: o.SchedulingSpec) -> tuple[Amounts, Amounts, str | None]:
    """Return a pod's requests, its requests for scoring, and an error if they cannot be parsed. Read-only."""
    try:
        return pod_requests(spec), score_requests(spec), None
    except ValueError as error:
        return {}, {}, f"requests: {error}"


def _matrix(resources: tuple[str, ...], amounts: list[Amounts]) -> Ints:
    matrix = np.zeros((len(resources), len(amounts)), np.int64)
    row_of = {name: row for row, name in enumerate(resources)}
    for column, of_class in enumerate(amounts):
        for name, amount in of_class.items():
            if name in row_of:
                matrix[row_of[name], column] = amount
    matrix.setflags(write=False)
    return matrix
