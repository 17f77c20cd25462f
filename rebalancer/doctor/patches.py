"""Advice as text, as plain data, and as a folder of strategic merge patches for Kustomize."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rebalancer.base.data_text import yaml_text
from rebalancer.base.errors import PolicyError
from rebalancer.base.output import create_file
from rebalancer.base.plain_text import count, quote_value
from rebalancer.doctor.advice import Advice, Topic
from rebalancer.doctor.workloads import RESOURCES, RolledWorkload
from rebalancer.report.document import Block, Passage

_INDENT = "  "
_COLUMN = " " * 17
"""As wide as the topics."""
_EKS_LABEL, _EKS_COREDNS = "eks.amazonaws.com/component", "coredns"
_ADDON_MODE = "addonmanager.kubernetes.io/mode"
_MANAGED_BY = "app.kubernetes.io/managed-by"
_VALUES = "eks-coredns-values.json"


@dataclass(frozen=True, slots=True)
class Advised:
    """A workload and the advice on it."""

    workload: RolledWorkload
    advice: tuple[Advice, ...]

    @property
    def is_eks_coredns(self) -> bool:
        """Whether the workload is CoreDNS as an EKS add-on. The add-on undoes patches, so its configuration values are printed."""
        labels = self.workload.metadata.labels or {}
        return labels.get(_EKS_LABEL) == _EKS_COREDNS

    @property
    def patch(self) -> dict[str, Any] | None:
        """One strategic merge patch of the workload, with kind and name; None if the workload itself does not change."""
        patches = [one.patch for one in self.advice if one.patch is not None]
        if not patches or self.is_eks_coredns:
            return None
        meta = self.workload.metadata
        merged: dict[str, Any] = {
            "apiVersion": RESOURCES[self.workload.kind].api_version,
            "kind": self.workload.kind,
            "metadata": {"name": meta.name, "namespace": meta.namespace},
        }
        for patch in patches:
            merged = _merge(merged, patch)
        return merged

    @property
    def new_budgets(self) -> Iterator[Mapping[str, Any]]:
        """The PodDisruptionBudgets to create."""
        return self._budgets(Topic.NO_BUDGET)

    @property
    def budget_patches(self) -> Iterator[Mapping[str, Any]]:
        """The patches of existing PodDisruptionBudgets."""
        return self._budgets(Topic.CLOSED_BUDGET)

    def _budgets(self, topic: Topic) -> Iterator[Mapping[str, Any]]:
        for one in self.advice if not self.is_eks_coredns else ():
            if one.topic is topic and one.budget is not None:
                yield one.budget

    @property
    def eks_values(self) -> dict[str, Any] | None:
        """The configuration values for the EKS add-on CoreDNS that its schema knows; None for other workloads."""
        if not self.is_eks_coredns:
            return None
        values: dict[str, Any] = {}
        for one in self.advice:
            pod = (one.patch or {}).get("spec", {}).get("template", {}).get("spec", {})
            if "topologySpreadConstraints" in pod:
                values = _merge(values, pod)
            if one.budget is not None:
                values["podDisruptionBudget"] = {"enabled": True, "maxUnavailable": 1}
        rules = [one for one in values.pop("topologySpreadConstraints", ()) if "$patch" not in one]
        if rules:
            values["topologySpreadConstraints"] = rules
        kept = ("topologySpreadConstraints", "podDisruptionBudget")
        return {key: values[key] for key in kept if key in values} or None

    @property
    def manager(self) -> str:
        """The name of the manager that would undo a patch; empty if there is no sign of one."""
        labels = self.workload.metadata.labels or {}
        if self.is_eks_coredns:
            return f"an EKS add-on undoes patches: set its configuration values ({_VALUES})"
        if labels.get(_ADDON_MODE) == "Reconcile":
            return "the add-on manager of the cluster undoes patches"
        owners = self.workload.metadata.owner_references or ()
        if owner := next((one for one in owners if one.controller), None):
            return f"{owner.kind} {owner.name} makes it, and may undo a patch; set it there"
        if labels.get(_MANAGED_BY) == "Helm":
            return "of a Helm release: the next upgrade may undo a patch; set it in the values"
        return ""


def _merge(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return two patches as one: lists are joined, and items of the same name or topology key merged."""
    merged = dict(one)
    for key, value in other.items():
        mine = merged.get(key)
        if isinstance(mine, Mapping) and isinstance(value, Mapping):
            merged[key] = _merge(mine, value)
        elif isinstance(mine, list) and isinstance(value, list):
            merged[key] = _merge_lists(mine, value)
        else:
            merged[key] = value
    return merged


def _merge_lists(one: list[Any], other: list[Any]) -> list[Any]:
    merged = {_key(item): item for item in one}
    for item in other:
        key = _key(item)
        merged[key] = _merge(merged[key], item) if key in merged else item
    return list(merged.values())


def _key(item: Mapping[str, Any]) -> str:
    """Return the key of a list item: its name or topology key. All directives have the same key."""
    return str(item.get("name") or item.get("topologyKey"))


def advice_data(advised: Sequence[Advised]) -> list[dict[str, Any]]:
    """Return the advice as plain data."""
    return [
        {
            "kind": one.workload.kind,
            "namespace": one.workload.metadata.namespace,
            "name": one.workload.metadata.name,
            "advice": [
                {
                    "topic": each.topic.value,
                    "why": each.why,
                    **({"left": each.left} if each.left else {}),
                }
                for each in one.advice
            ],
            **({"managedBy": one.manager} if one.manager else {}),
            **({"patch": patch} if (patch := one.patch) else {}),
            **({"create": new} if (new := list(one.new_budgets)) else {}),
            **({"budgetPatches": of} if (of := list(one.budget_patches)) else {}),
            **({"eksAddonValues": values} if (values := one.eks_values) else {}),
        }
        for one in advised
    ]


def format_advice(advised: Sequence[Advised], looked_at: int) -> list[Block]:
    """Return the advice for people, workload by workload, with a summary in the last line."""
    lines: list[Block] = []
    for one in advised:
        lines.append(Passage(one.workload.ref, style="bold"))
        for each in one.advice:
            lines.append(Passage(each.why, _COLUMN, label=each.topic.value, style="yellow"))
            if each.left:
                lines.append(Passage(each.left, f"{_COLUMN}-> ", f"{_COLUMN}   "))
        if one.manager:
            lines.append(Passage(one.manager, f"{_INDENT}note: ", _INDENT * 2))
    return [*lines, *([""] if advised else []), Passage(_sum(advised, looked_at))]


def _sum(advised: Sequence[Advised], looked_at: int) -> str:
    of = count(looked_at, "workload")
    if not advised:
        return f"No advice: {of} looked at."
    pieces = sum(len(one.advice) for one in advised)
    decide = sum(1 for one in advised for each in one.advice if each.left)
    left = f", {decide} of which a person decides" if decide else ""
    return (
        f"{len(advised)} of {of}: {pieces} piece{'' if pieces == 1 else 's'} of advice{left}."
        " --out FOLDER writes the patches."
    )


# -- the folder ----------------------------------------------------------------------------------------


def write_folder(advised: Sequence[Advised], folder: Path) -> int:
    """Write a Kustomize component with all patches and new budgets; return the number of files.

    Raises:
        PolicyError: the folder is not empty, or cannot be written.
    """
    files = dict(_files(advised))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise PolicyError([f"{folder}: holds something already: name a new or an empty folder"])
        for name, text in files.items():
            with create_file(folder / name) as file:
                file.write(text.encode())
    except OSError as error:
        raise PolicyError([f"{folder}: cannot be written: {error.strerror or error}"]) from None
    return len(files)


def _files(advised: Iterable[Advised]) -> Iterator[tuple[str, str]]:
    """Yield names and texts: a patch or an object a file, and the component that names them."""
    patches, resources = [], []
    for one in advised:
        own = [] if (patch := one.patch) is None else [patch]
        for each in (*own, *one.budget_patches):
            name = _file_name("patch", each)
            patches.append({"path": name, "target": _target(each)})
            yield name, yaml_text(each)
        for new in one.new_budgets:
            name = _file_name("new", new)
            resources.append(name)
            yield name, yaml_text(new)
        if (values := one.eks_values) is not None:
            yield _VALUES, json.dumps(values, indent=2) + "\n"
    component: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        **({"resources": resources} if resources else {}),
        **({"patches": patches} if patches else {}),
    }
    yield "kustomization.yaml", yaml_text(component)


def _file_name(use: str, of: Mapping[str, Any]) -> str:
    meta = of["metadata"]
    # No namespace has a dot: with one after it, no two objects have the same file.
    return f"{use}-{of['kind'].lower()}-{meta['namespace']}.{meta['name']}.yaml"


def _target(of: Mapping[str, Any]) -> dict[str, str]:
    """Return what a patch is for; a target that a base lacks is passed over."""
    group, _, version = of["apiVersion"].partition("/")
    return {"group": group, "version": version, "kind": of["kind"], **of["metadata"]}


ADVISE = "rebalancer/advise"
"""Annotation of a Deployment or StatefulSet: ``false``, or ``without`` and topics, separated by commas."""
_WITHOUT = "without "


def find_declined(workload: RolledWorkload) -> tuple[AbstractSet[Topic], str]:
    """Return the topics on which a workload wants no advice, and the problem of its annotation, or an empty text.

    An annotation that is not understood declines nothing.
    """
    value = (workload.metadata.annotations or {}).get(ADVISE)
    if value is None or value.strip().lower() == "true":
        return frozenset(), ""
    if value.strip().lower() == "false":
        return frozenset(Topic), ""
    names = [name.strip() for name in value.strip().removeprefix(_WITHOUT).split(",")]
    known = {topic.value for topic in Topic}
    if not value.strip().startswith(_WITHOUT) or not known.issuperset(names):
        wrong = (
            f"{workload.ref}: {ADVISE}: {quote_value(value)} is not understood, and declines nothing: write false, or"
            f" without TOPIC,... ({', '.join(sorted(known))})"
        )
        return frozenset(), wrong
    return frozenset(map(Topic, names)), ""
