"""Models that several plug-ins of the descheduler share (pkg/api/types.go, apimachinery's LabelSelector)."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, model_validator

from rebalancer.base.plain_text import shown
from rebalancer.policy.params import Section
from rebalancer.policy.select import LabelSelect

Selector = LabelSelect
"""A label selector; an empty one selects everything."""


def _namespace(text: str) -> str:
    if not _NAMESPACE.match(text):
        raise ValueError(f"{shown(text)} is no namespace")
    return text


_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?\Z")
Namespace = Annotated[str, AfterValidator(_namespace)]


class Namespaces(Section):
    """Namespaces, by inclusion or by exclusion."""

    include: tuple[Namespace, ...] = ()
    exclude: tuple[Namespace, ...] = ()

    @model_validator(mode="after")
    def _one(self) -> Namespaces:
        if self.include and self.exclude:
            raise ValueError("only one of include and exclude can be set")
        return self


class Args(Section):
    """Keys that the arguments of all plug-ins may have."""

    api_version: str = ""
    kind: str = ""
