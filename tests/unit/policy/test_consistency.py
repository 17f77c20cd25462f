"""What the strategies of a policy mean for one another, with those of this distribution."""

import re

import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.policy.load import load_policy
from rebalancer.policy.sources import PolicyChanges
from rebalancer.registry import Registry


@pytest.mark.parametrize(
    ("strategies", "warned"),
    [
        ("low-utilisation: {}, scale-in: {}", True),
        ("low-utilisation: {mode: off}, scale-in: {}", False),
        ("low-utilisation: {}, scale-in: {mode: off}", False),
        ("low-utilisation: {}, scale-out: {}", False),
        ("taints: {}, scale-in: {}", False),
        (
            "low-utilisation: {select: {nodes: {pool: a}}}, scale-in: {select: {nodes: {pool: b}}}",
            False,
        ),
    ],
)
def test_what_fills_the_nodes_that_scale_in_removes_is_warned_of(tmp_path, strategies, warned):
    path = tmp_path / "policy.yaml"
    path.write_text(
        "apiVersion: rebalancer/v1\nkind: Policy\nprovider: {aws: {names: [a]}}\n"
        f"strategies: {{{strategies}}}\n"
    )
    warnings = load_policy(str(path), Registry.installed()).of_strategies
    assert any(": low-utilisation moves pods onto nodes" in one for one in warnings) is warned


@pytest.mark.parametrize(
    ("strategies", "words"),
    [
        (
            "  scale-in: {}\n  more: {strategy: scale-in}",
            "8: strategies.more: more removes machines, and scale-in does, too",
        ),
        (
            "  scale-out: {mode: observe}\n  more: {strategy: scale-out}",
            "8: strategies.more: more adds machines, and scale-out does, too",
        ),
        ("  scale-in: {mode: off}\n  more: {strategy: scale-in}", None),
        ("  scale-in: {}\n  scale-out: {}", None),
    ],
)
def test_two_strategies_that_scale_the_same_way_are_refused(tmp_path, strategies, words):
    path = tmp_path / "policy.yaml"
    path.write_text(
        "apiVersion: rebalancer/v1\nkind: Policy\nprovider:\n  aws: {names: [a]}\n"
        f"\nstrategies:\n{strategies}\n"
    )
    if words is None:
        load_policy(str(path), Registry.installed())
        return
    with pytest.raises(PolicyError) as caught:
        load_policy(str(path), Registry.installed())
    assert f"{path}:{words}" in str(caught.value)


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ("scale-in: {select: {nodes: {pool: a}}}", None),
        ("scale-in: {select: {namespaces: [a]}}", "of select only nodes counts"),
        ("scale-in: {select: {podDisruptionBudget: false}}", "select.podDisruptionBudget"),
        ("scale-out: {select: {nodes: {pool: a}}}", "selects no pods: leave it out"),
    ],
)
def test_what_cannot_be_selected_of_machines_is_refused(tmp_path, strategy, words):
    path = tmp_path / "policy.yaml"
    path.write_text(
        "apiVersion: rebalancer/v1\nkind: Policy\nprovider: {aws: {names: [a]}}\n"
        f"strategies:\n  {strategy}\n"
    )
    if words is None:
        load_policy(str(path), Registry.installed())
        return
    with pytest.raises(PolicyError, match=words):
        load_policy(str(path), Registry.installed())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prices: {label: price, leastSaving: 0.1}", None),
        ("prices: {table: {a: 1}, asOf: 2026-11-01}", None),
        ("prices: {table: {a: 1}}", r"policy.yaml:3: prices: table and asOf go together"),
        ("prices: {label: price, asOf: 2026-11-01}", "table and asOf go together"),
        ("prices: {table: {a: 1}, asOf: yesterday}", r"policy.yaml:3: prices.asOf: "),
        ("prices: {table: {a: -1}, asOf: 2026-11-01}", r"policy.yaml:3: prices.table.a: "),
        ("prices: {leastSaving: 0.1}", "leastSaving needs prices"),
        ("capacity: {expander: price}", "capacity.expander: price needs prices"),
    ],
)
def test_prices_need_what_they_go_by(tmp_path, text, words):
    path = tmp_path / "policy.yaml"
    path.write_text(f"apiVersion: rebalancer/v1\nkind: Policy\n{text}\nstrategies: {{}}\n")
    if words is None:
        load_policy(str(path), Registry.installed())
        return
    with pytest.raises(PolicyError) as caught:
        load_policy(str(path), Registry.installed())
    assert re.search(words, str(caught.value)), caught.value


@pytest.mark.parametrize(
    ("strategies", "mode", "refused"),
    [
        ("  scale-in: {}", "enforce", ["9: strategies.scale-in.mode: scale-in ends machines"]),
        (
            "  more: {strategy: scale-out, mode: enforce}",
            "enforce",
            ["9: strategies.more.mode: more adds machines"],
        ),
        (
            "  scale-in: {}\n  scale-out: {}",
            "enforce",
            ["9: strategies.scale-in.mode: ", "10: strategies.scale-out.mode: "],
        ),
        ("  scale-in: {mode: observe}\n  scale-out: {mode: off}", "enforce", []),
        ("  scale-in: {}", "observe", []),
        ("  consolidation: {}", "enforce", []),
    ],
)
def test_what_only_a_process_that_stays_does_is_named_with_file_line_and_key(
    tmp_path, strategies, mode, refused
):
    path = tmp_path / "policy.yaml"
    path.write_text(
        "apiVersion: rebalancer/v1\nkind: Policy\nprovider:\n  aws: {names: [a]}\n"
        f"mode: {mode}\n\n\nstrategies:\n{strategies}\n"
    )
    loaded = load_policy(str(path), Registry.installed())
    assert len(loaded.served) == len(refused)
    for text, begins in zip(loaded.served, refused, strict=True):
        assert text.startswith(f"{path}:{begins}")
        assert "`rebalancer serve`" in text
        assert "kind: Deployment" in text
        assert "mode: observe" in text
    observed = load_policy(str(path), Registry.installed(), PolicyChanges(mode="observe"))
    assert observed.served == ()
