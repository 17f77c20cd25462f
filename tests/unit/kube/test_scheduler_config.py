"""The ConfigMap with the scheduler's configuration: what is asked for, and what each wrong answer says."""

import pytest

from rebalancer.base.errors import RebalancerError
from rebalancer.kube.read import read_scheduler_config, scheduler_rules
from rebalancer.policy.cluster import ConfigMapKey
from tests.unit.kube.scripted import Say, client_of, status_body

PATH = "/api/v1/namespaces/kube-system/configmaps/packing"
OF = ConfigMapKey(config_map="kube-system/packing", key="scheduler.yaml")
TEXT = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: packing
"""


def test_one_configmap_is_read_and_nothing_else(server, tmp_path):
    server.on("GET", PATH, Say({"data": {"scheduler.yaml": TEXT, "other": "x"}}))
    read = read_scheduler_config(client_of(server.url, tmp_path), OF)
    assert [profile.scheduler_name for profile in read.profiles] == ["packing"]
    assert [asked.path for asked in server.asked] == [PATH]
    (rule,) = scheduler_rules(OF)
    assert (rule.verb, rule.resource, rule.namespace, rule.name) == (
        "get",
        "configmaps",
        "kube-system",
        "packing",
    )


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Say(status_body(404, "no"), 404), "packing is not there; check scheduler.fromConfig"),
        (Say(status_body(403, "no"), 403), "may not get configmaps packing"),
        (
            Say({"data": {"a": "", "b": ""}}),
            r"has no key scheduler.yaml; check .* \(it holds a, b\)",
        ),
        (Say({}), r"has no key scheduler.yaml; .* \(it holds nothing\)"),
        (Say([]), "is no ConfigMap"),
        (
            Say({"data": {"scheduler.yaml": TEXT + "profile: []\n"}}),
            "ConfigMap kube-system/packing, scheduler.yaml:5: profile: unknown key",
        ),
    ],
)
def test_what_is_wrong_with_it_is_said(answer, said, server, tmp_path):
    server.on("GET", PATH, answer)
    with pytest.raises(RebalancerError, match=said):
        read_scheduler_config(client_of(server.url, tmp_path), OF)
