"""The policy's section on where measured usage comes from."""

from datetime import timedelta

import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.policy.cluster import looks_back
from rebalancer.policy.forms import effective
from rebalancer.policy.load import load_text
from rebalancer.registry import Registry

HEAD = "apiVersion: rebalancer/v1\nkind: Policy\nstrategies: {low-utilisation: {signal: usage}}\n"


def loaded(settings):
    text = f"{HEAD}usage: {{prometheus: {{{settings}}}}}\n"
    return load_text(text.encode(), "policy.yaml", Registry.installed())


def test_a_whole_section_is_read_and_written_again():
    settings = (
        "url: 'https://prometheus.test:9091/prom', nodes: {cpu: 'a[1h]'}, pods: {cpu: b}, unit: share,"
        " nodeLabel: instance, window: 1h, tokenFile: /t, caFile: /c, timeout: 3s"
    )
    policy = loaded(settings).policy
    one = policy.usage.prometheus
    assert (one.nodes, one.node_label, one.window) == (
        {"cpu": "a[1h]"},
        "instance",
        timedelta(hours=1),
    )
    again = load_text(effective(policy).encode(), "again.yaml", Registry.installed()).policy
    assert again.usage == policy.usage


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ("nodes: {cpu: a}", "url"),
        ("url: 'https://p'", "nodes"),
        ("url: 'https://p', nodes: {}", "nodes"),
        ("url: 'https://p', nodes: {disk: a}", "disk"),
        ("url: 'https://p', nodes: {cpu: ''}", "cpu"),
        ("url: p, nodes: {cpu: a}", "is no address"),
        ("url: 'ftp://p', nodes: {cpu: a}", "is no address"),
        ("url: 'https://', nodes: {cpu: a}", "is no address"),
        ("url: 'https://p:x', nodes: {cpu: a}", "is no address"),
        ("url: 'https://me:pass@p', nodes: {cpu: a}", "write tokenFile"),
        ("url: 'https://p?a=b', nodes: {cpu: a}", "ends in a query"),
        ("url: 'http://p', nodes: {cpu: a}, tokenFile: /t", "tokenFile needs an https url"),
        ("url: 'HTTP://p', nodes: {cpu: a}, tokenFile: /t", "tokenFile needs an https url"),
        ("url: ' http://p', nodes: {cpu: a}, tokenFile: /t", "is no address"),
        ("url: 'https://p/a b', nodes: {cpu: a}", "is no address"),
        ("url: 'https://p/ä', nodes: {cpu: a}", "is no address"),
        ("url: 'http://p', nodes: {cpu: a}, caFile: /t", "caFile needs an https url"),
        ("url: 'https://p', nodes: {cpu: a}, pods: {memory: b}", "of the same resources"),
        ("url: 'https://p', nodes: {cpu: 'a[1h]'}", "write window: 1h"),
        ("url: 'https://p', nodes: {cpu: a}, pods: {cpu: 'a[2d:5m]'}", "write window: 48h"),
        ("url: 'https://p', nodes: {cpu: a}, timeout: 0s", "timeout"),
        ("url: 'https://p', nodes: {cpu: a}, nodeQuery: b", "nodeQuery"),
    ],
)
def test_what_cannot_work_is_named_with_its_line(settings, wrong):
    with pytest.raises(PolicyError) as error:
        loaded(settings)
    assert "policy.yaml:4: usage.prometheus" in str(error.value)
    assert wrong in str(error.value)


@pytest.mark.parametrize("secret", ["pass"])
def test_a_password_in_the_address_is_not_shown(secret):
    with pytest.raises(PolicyError) as error:
        loaded(f"url: 'https://me:{secret}@p', nodes: {{cpu: a}}")
    assert secret not in str(error.value).replace("password", "")


@pytest.mark.parametrize(
    ("query", "back"),
    [
        ("up", timedelta(0)),
        ("rate(a[5m])", timedelta(minutes=5)),
        ("quantile_over_time(0.95, a[1d:5m]) + rate(b[1h30m])", timedelta(days=1)),
        ("a[1w]", timedelta(weeks=1)),
        ("a[500ms]", timedelta(milliseconds=500)),
        ('a{b=~"[0-9]m"}', timedelta(0)),
    ],
)
def test_how_far_a_query_looks_back(query, back):
    assert looks_back(query) == back
