"""``scheduler.fromConfig``: the file that it names, and what may stand beside it."""

import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.planner.scheduler_profile import scheduler_profile
from rebalancer.policy.forms import effective
from rebalancer.policy.load import load_policy, load_text
from rebalancer.policy.sources import PolicyChanges
from rebalancer.testing.snapshots import node, snapshot_of

CONFIG = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: InterPodAffinity
    args: {hardPodAffinityWeight: 42}
"""


@pytest.fixture
def snapshot():
    return snapshot_of([node("n")])


def test_a_file_beside_the_policy_is_read(load, tmp_path, snapshot):
    (tmp_path / "scheduler.yaml").write_text(CONFIG)
    loaded = load("scheduler: {version: '1.34', fromConfig: scheduler.yaml}\n")
    profile = scheduler_profile(loaded.policy, snapshot)
    assert (profile.version, profile.hard_pod_affinity_weight) == ((1, 34), 42)
    assert loaded.files == (f"{tmp_path}/policy.yaml", f"{tmp_path}/scheduler.yaml")


def test_a_flag_names_it_from_where_the_command_runs(tmp_path, known, monkeypatch, snapshot):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(CONFIG)
    (tmp_path / "policies").mkdir()
    policy = tmp_path / "policies" / "p.yaml"
    policy.write_text("apiVersion: rebalancer/v1\nkind: Policy\n")
    loaded = load_policy(policy, known, PolicyChanges(("scheduler.fromConfig=mine.yaml",)))
    assert scheduler_profile(loaded.policy, snapshot).hard_pod_affinity_weight == 42


def test_what_is_wrong_in_it_has_file_line_and_key(problems, tmp_path):
    (tmp_path / "scheduler.yaml").write_text(CONFIG.replace("42", "-1"))
    assert problems("scheduler: {fromConfig: scheduler.yaml}\n") == [
        f"{tmp_path}/scheduler.yaml:6: profiles[0].pluginConfig[0].args.hardPodAffinityWeight: -1 should be at least 0"
    ]


@pytest.mark.parametrize(
    ("scheduler", "wrong"),
    [
        ("{fromConfig: nowhere.yaml}", "nowhere.yaml cannot be read (No such file"),
        ('{fromConfig: "zero-\\0-byte.yaml"}', "cannot be read (embedded null byte)"),
        (f"{{fromConfig: {'long' * 99}.yaml}}", "cannot be read (File name too long)"),
        ("{fromConfig: .}", "is no regular file"),
        ("{fromConfig: ''}", "scheduler.fromConfig"),
        ("{fromConfig: {configMap: packing}}", "scheduler.fromConfig.configMap"),
        ("{fromConfig: {configMap: a/b, keys: c}}", "unknown key; did you mean key?"),
        ("{fromConfig: {configMap: a/b}, weights: {NodeAffinity: 5}}", "take weights out"),
        (
            "{fromConfig: {configMap: a/b}, hardPodAffinityWeight: 0, percentageOfNodesToScore: 5}",
            "take hardPodAffinityWeight, percentageOfNodesToScore out",
        ),
    ],
)
def test_what_cannot_be_is_refused(problems, scheduler, wrong):
    assert wrong in problems(f"scheduler: {scheduler}\n")[0]


def test_the_effective_policy_says_it_again_and_loads(load, known):
    loaded = load("scheduler: {fromConfig: {configMap: kube-system/packing}}\n")
    again = load_text(effective(loaded.policy).encode(), "again", known)
    assert again.policy == loaded.policy


def test_a_configmap_that_was_not_read_is_no_default(load, snapshot):
    loaded = load("scheduler: {fromConfig: {configMap: kube-system/packing}}\n")
    with pytest.raises(PolicyError, match=r"--set scheduler\.fromConfig=FILE"):
        scheduler_profile(loaded.policy, snapshot)


def test_the_hash_is_that_of_what_the_file_holds(load, tmp_path):
    def hash_of(text):
        (tmp_path / "scheduler.yaml").write_text(text)
        return load("scheduler: {fromConfig: scheduler.yaml}\n").policy_hash

    first = hash_of(CONFIG)
    assert hash_of(CONFIG.replace("42", "43")) != first
    assert hash_of(f"# a comment\n{CONFIG}") == first
    assert load("mode: enforce\n").policy_hash != first


MAIN = "apiVersion: rebalancer/v1\nkind: Policy\nscheduler: {fromConfig: %s}\n"


@pytest.mark.parametrize("named", ["scheduler.yaml", "./scheduler.yaml", "scheduler.json"])
def test_it_may_lie_in_a_policys_directory(tmp_path, known, snapshot, named):
    (tmp_path / "rebalancer.yaml").write_text(MAIN % named)
    (tmp_path / named).write_text(CONFIG)
    loaded = load_policy(tmp_path, known)
    assert scheduler_profile(loaded.policy, snapshot).hard_pod_affinity_weight == 42
    assert loaded.policy.strategies == {}
    # What is wrong in it is said once, and an empty one is not said to be a strategy.
    (tmp_path / named).write_text("")
    with pytest.raises(PolicyError) as caught:
        load_policy(tmp_path, known)
    (problem,) = caught.value.problems
    assert problem.endswith("is empty; it needs at least apiVersion and kind")


def test_one_that_nothing_names_is_known_for_what_it_is(tmp_path, known):
    (tmp_path / "rebalancer.yaml").write_text("apiVersion: rebalancer/v1\nkind: Policy\n")
    (tmp_path / "packing.yaml").write_text(CONFIG)
    advice = r"a policy names it: scheduler: \{fromConfig: packing.yaml\}"
    with pytest.raises(PolicyError, match=advice + " in rebalancer.yaml"):
        load_policy(tmp_path, known)
    with pytest.raises(PolicyError, match=advice):
        load_policy(tmp_path / "packing.yaml", known)
