from typing import Literal

import pytest
from pydantic import Field

from rebalancer.base.errors import PolicyError
from rebalancer.policy.load import load_policy
from rebalancer.policy.values import Params, Percent


class Inner(Params):
    topology_key: str = Field(description="A label.")
    max_skew: int = Field(default=1, ge=1, description="A difference.")


class SpreadParams(Params):
    """Options of spread."""

    constraints: tuple[Literal["hard", "soft"], ...] = Field(
        default=("hard", "soft"), description="Which count."
    )
    defaults: tuple[Inner, ...] = Field(default=(), description="More of them.")


class LoadParams(Params):
    """Options of load."""

    under: dict[str, Percent] = Field(default={"cpu": 0.2}, description="Below.")


class PlainParams(Params):
    """No options."""


@pytest.fixture
def known():
    return {"spread": SpreadParams, "load": LoadParams, "plain": PlainParams}


@pytest.fixture
def load(tmp_path, known):
    """Text of a policy (without apiVersion and kind) in, loaded policy out."""

    def loaded(text, *, head="apiVersion: rebalancer/v1\nkind: Policy\n"):
        path = tmp_path / "policy.yaml"
        path.write_bytes((head + text).encode() if isinstance(text, str) else text)
        return load_policy(path, known)

    return loaded


@pytest.fixture
def problems(load, tmp_path):
    """Text of a policy in, what is wrong with it out; lines count from the text's first as 3."""

    def problems_of(text, **more):
        with pytest.raises(PolicyError) as caught:
            load(text, **more)
        return [
            problem.removeprefix(f"{tmp_path}/policy.yaml:") for problem in caught.value.problems
        ]

    return problems_of
