"""Runs that act as somebody else have that one's rights, by RBAC of the API server itself, and not those of the caller."""

import json

import pytest
import yaml

from rebalancer.kube.resources import AccessRule
from tests.controlplane import access, wait_until
from tests.e2e import crowd
from tests.e2e.product import ACCOUNT, NO_WAIT, RUN_RULES, grant, rebalancer

APPS = 2
MOVERS = "movers"


@pytest.fixture
def run(cluster, tmp_path):
    """Return a function that runs ``run --yes`` with a user's fields in the administrator's kubeconfig, and flags."""
    crowd.gather(cluster, APPS)
    policy = tmp_path / "policy.yaml"
    policy.write_text(NO_WAIT)

    def run(user=(), *flags, kubeconfig=None):
        whole = yaml.safe_load((kubeconfig or cluster.kubeconfig).read_text())
        for one in whole["users"]:
            one["user"] |= dict(user)
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(whole))
        return rebalancer(
            "run", "--yes", f"--policy={policy}", f"--kubeconfig={path}", "--output=json", *flags
        )

    return run


def pods(cluster):
    return {pod["metadata"]["uid"] for pod in cluster.api.list_all("/api/v1/pods")}


def test_as_a_user_without_rights_nothing_is_evicted_and_the_missing_rights_are_named(cluster, run):
    before = pods(cluster)
    done = run({"as": "nobody@example.com"})
    assert done.code == 3, done.err
    assert "our account nobody@example.com may not" in done.err
    assert '- {apiGroups: [""], resources: ["pods"], verbs: ["list"]}' in done.err
    assert '- {apiGroups: [""], resources: ["pods/eviction"], verbs: ["create"]}' in done.err
    done = run({}, "--as=nobody@example.com")
    assert (done.code, "our account nobody@example.com may not" in done.err) == (3, True)
    assert pods(cluster) == before
    # The same kubeconfig moves them as itself.
    done = run()
    assert done.code == 0, done.err
    assert crowd.moved(cluster) == APPS


def test_as_an_account_with_the_rights_of_a_run_pods_move(cluster, run):
    grant(cluster)
    done = run({"as": "nobody@example.com"}, f"--as=system:serviceaccount:default:{ACCOUNT}")
    assert done.code == 0, done.err
    assert crowd.moved(cluster) == APPS


def test_each_group_counts(cluster, run):
    grant(cluster)
    binding = access.cluster_role_binding(MOVERS, ACCOUNT, ACCOUNT)
    group = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": MOVERS}
    cluster.apply([binding | {"subjects": [group]}])

    def in_force():
        return run({"as": "anna", "as-groups": ["others", MOVERS]}, "--mode=observe").code == 0

    wait_until(in_force, 60, "the rights of the group in force")
    assert run({"as": "anna", "as-groups": ["others"]}).code == 3
    done = run({}, "--as=anna", "--as-group=others", f"--as-group={MOVERS}", "--as-uid=7")
    assert done.code == 0, done.err
    assert crowd.moved(cluster) == APPS


def test_who_may_not_impersonate_moves_nothing_and_sees_which_right_that_needs(cluster, run):
    before = pods(cluster)
    mover = grant(cluster, [*RUN_RULES, AccessRule("list", "", "configmaps")])
    done = run({"as": "anna"}, kubeconfig=mover)
    assert done.code == 3, done.err
    assert (
        f"our account system:serviceaccount:default:{ACCOUNT} may not act as another one"
        in done.err
    )
    assert 'verbs: ["impersonate"]}' in done.err
    ran = rebalancer("doctor", f"--kubeconfig={mover}", "--as=anna", "-o", "json")
    assert ran.code == 3, ran.err
    (rights,) = (of for of in json.loads(ran.out)["checks"] if of["check"] == "rights")
    assert rights["grade"] == "notJudged"
    assert "may not act as another one" in rights["findings"][0]["message"]
    assert pods(cluster) == before
