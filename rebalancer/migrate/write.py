"""The migrated policy as text: one file, or one per strategy; checked by our loader before it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rebalancer import API_VERSION
from rebalancer.base.errors import PolicyError, RebalancerError
from rebalancer.policy.forms import as_yaml
from rebalancer.policy.load import load_text
from rebalancer.policy.params import Params


def as_file(data: Mapping[str, Any], head: str, known: Mapping[str, type[Params]]) -> str:
    """Return the policy as one file that begins with the comments ``head``.

    Raises:
        RebalancerError: our own loader refuses it, which is a bug.
    """
    text = head + as_yaml(data, compact=True)
    try:
        load_text(text.encode(), "the migrated policy", known)
    except PolicyError as error:
        raise RebalancerError(f"{error}\nThis is a bug: please report it with the file") from error
    return text


def as_directory(data: Mapping[str, Any], head: str) -> dict[str, str]:
    """Return file name -> text of the same policy with one file per strategy."""
    main = {key: value for key, value in data.items() if key != "strategies"}
    files = {"rebalancer.yaml": head + as_yaml(main, compact=True)}
    for name, options in data["strategies"].items():
        strategy = {"apiVersion": API_VERSION, "kind": "Strategy", **options}
        files[f"{name}.yaml"] = as_yaml(strategy, compact=True)
    return files
