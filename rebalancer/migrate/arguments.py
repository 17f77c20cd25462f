"""Models that several plug-ins of the descheduler share (pkg/api/types.go, apimachinery's LabelSelector)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rebalancer.policy.params import Section


class Requirement(Section):
    """One of a selector's expressions."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class Selector(Section):
    """A label selector; an empty one selects everything."""

    match_labels: dict[str, str] = Field(default={})
    match_expressions: tuple[Requirement, ...] = ()

    def __bool__(self) -> bool:
        """Whether it has a requirement."""
        return bool(self.match_labels or self.match_expressions)


class Namespaces(Section):
    """Namespaces, by inclusion or by exclusion."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one(self) -> Namespaces:
        if self.include and self.exclude:
            raise ValueError("only one of include and exclude can be set")
        return self


class Args(Section):
    """Keys that the arguments of all plug-ins may have."""

    api_version: str = ""
    kind: str = ""
