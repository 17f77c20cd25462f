"""What runs are allowed is exactly what runs use, as the API server's own audit log has it."""

import json
from collections.abc import Iterator

import pytest

from rebalancer.kube.resources import Rule
from tests.controlplane import ControlPlane, Options, wait_until
from tests.e2e import crowd
from tests.e2e.installed import NAMESPACE, Installed

APPS = 2
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Metadata",
            "userGroups": [f"system:serviceaccounts:{NAMESPACE}"],
        },
        {"level": "None"},
    ],
}
ASKING = Rule("create", "authorization.k8s.io", "selfsubjectaccessreviews")
"""Kubernetes lets everybody ask what they may do."""


@pytest.fixture(scope="module")
def audited() -> Iterator[ControlPlane]:
    with ControlPlane(Options(audit_policy=AUDIT)) as plane:
        yield plane


def used(plane):
    """What was asked for and not refused."""
    found = set()
    for line in plane.audit_log.read_text().splitlines():
        event = json.loads(line)
        reference = event.get("objectRef")
        assert event["responseStatus"]["code"] not in (401, 403), line
        if reference is None:
            found.add(Rule(event["verb"], "", event["requestURI"].partition("?")[0]))
            continue
        subresource = reference.get("subresource")
        resource = reference["resource"] + (f"/{subresource}" if subresource else "")
        found.add(
            Rule(
                event["verb"],
                reference.get("apiGroup", ""),
                resource,
                reference.get("namespace", ""),
                reference.get("name", ""),
            )
        )
    return found


def covers(granted, wanted):
    """Whether a granted rule allows what was used; of a cluster's rule neither namespace nor name matter."""
    same = (granted.verb, granted.group, granted.resource) == (
        wanted.verb,
        wanted.group,
        wanted.resource,
    )
    where = granted.namespace in ("", wanted.namespace)
    return same and where and granted.name in ("", wanted.name)


def granted(installed, *, acting):
    api, name = installed.api, f"{NAMESPACE}-{installed.name}"
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    roles = [
        (api.get(f"{rbac}/clusterroles/{name}{'' if acting else '-observe'}"), ""),
        (api.get(f"{rbac}/namespaces/{NAMESPACE}/roles/{installed.name}"), NAMESPACE),
    ]
    return {
        Rule(verb, group, resource, namespace, name)
        for role, namespace in roles
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule.get("apiGroups", [""])
        for resource in (*rule.get("resources", ()), *rule.get("nonResourceURLs", ()))
        for name in rule.get("resourceNames", [""])
    }


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_nothing_is_missing_and_nothing_is_unused(audited, tmp_path, mode):
    audited.reset()
    audited.audit_log.write_text("")
    crowd.gather(audited, APPS)
    installed = Installed(audited, tmp_path, mode=mode, policy=crowd.SLOWLY)
    rules = granted(installed, acting=mode == "enforce")

    done = installed.run()
    assert done.code == 0, done.err
    assert crowd.moved(audited) == (APPS if mode == "enforce" else 0)
    wait_until(lambda: len(used(audited)) >= len(rules), 10, "the audit log written")
    asked = used(audited) - {ASKING}
    asked = {rule for rule in asked if not covers(ASKING, rule)}
    assert [rule for rule in asked if not any(covers(has, rule) for has in rules)] == []
    assert [has for has in rules if not any(covers(has, rule) for rule in asked)] == []
