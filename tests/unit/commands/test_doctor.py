"""``doctor`` on an embedded cluster and on files: what it writes, and its exit codes."""

import io
import json
import os
import socket
import tempfile
import time

import pytest

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.cli import command
from rebalancer.commands.doctor import doctor
from rebalancer.doctor.report import Grade
from rebalancer.embedded.apiserver.http import Fault
from rebalancer.kube.client import Client
from rebalancer.kube.transport import Response
from rebalancer.run.memory.document import ActingRun, Document, MoveRecord, encode
from rebalancer.run.options import RunOptions
from rebalancer.testing.objects import job
from rebalancer.wire.times import rfc3339
from tests.unit.commands.embedded import third_zone_joined

FILE = "docs/examples/zone-back.zip"
LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "turns", "namespace": "default"},
    "spec": {"holderIdentity": "another-run", "leaseDurationSeconds": 60},
}


def examine(cluster, red=None, output="json", **flags):
    out = io.StringIO()
    environment = Environment(out=out, err=io.StringIO(), environ={}, clock=SystemClock())
    options = RunOptions.of(
        dry_run=True, kubeconfig=str(cluster.kubeconfig), output=output, **flags
    )
    code = int(doctor(options, red, environment))
    return code, out.getvalue()


def grades(text):
    return {of["check"]: of["grade"] for of in json.loads(text)["checks"]}


def messages(text, name):
    (of,) = (of for of in json.loads(text)["checks"] if of["check"] == name)
    return [finding["message"] for finding in of["findings"]]


def test_a_cluster_that_is_ready_has_no_problem_and_what_was_not_named_is_not_judged():
    with third_zone_joined("web") as cluster:
        code, text = examine(cluster, Grade.PROBLEM, settings=("protect.minPodAge=0s",))
    assert code == 0
    seen = grades(text)
    assert seen["lease"] == seen["memory"] == "notJudged"
    assert {grade for name, grade in seen.items() if name not in ("lease", "memory")} <= {
        "ok",
        "note",
    }


def test_lease_and_memory_are_looked_at_where_they_are_named():
    with third_zone_joined("web") as cluster:
        cluster.apply(LEASE)
        _, text = examine(cluster, lease=("default", "turns"), memory=("default", "memory"))
        assert messages(text, "lease")[1].startswith("another-run holds it")
        assert grades(text)["memory"] == "ok"
        code, text = examine(
            cluster, Grade.PROBLEM, lease=("default", "none"), memory=("default", "none")
        )
    assert code == 11
    assert grades(text)["lease"] == grades(text)["memory"] == "problem"
    assert "there is no Lease default/none" in messages(text, "lease")[0]


USAGE = ("strategies.low-utilisation.signal=usage", "protect.minPodAge=0s")


def test_metrics_are_looked_at_where_the_policy_needs_them():
    with third_zone_joined("web") as cluster:
        _, text = examine(cluster)
        assert messages(text, "metrics") == ["no strategy of the policy judges by measured usage"]
        # The embedded cluster has no metrics-server.
        code, text = examine(cluster, Grade.PROBLEM, settings=USAGE)
        assert (code, grades(text)["metrics"]) == (11, "problem")
        assert messages(text, "metrics")[0].startswith("nodes.metrics.k8s.io: ")
        prometheus = "usage.prometheus={url: 'http://127.0.0.1:9', nodes: {cpu: x}}"
        _, text = examine(cluster, settings=(*USAGE, prometheus))
    assert grades(text)["metrics"] == "problem"
    assert all("nothing is moved by usage" in each for each in messages(text, "metrics"))


@pytest.mark.usefixtures("quick_retries")
def test_what_cannot_be_read_is_a_problem_and_the_other_checks_go_on():
    with third_zone_joined("web") as cluster:
        cluster.faults.add(Fault(method="GET", path="^/api/v1/nodes$", status=500, times=99))
        code, text = examine(cluster)
    assert code == 3
    seen = grades(text)
    assert seen["reading"] == "problem"
    assert seen["rights"] == "ok"


def test_the_jobs_of_cron_jobs_are_seen_in_the_one_list_of_jobs():
    with third_zone_joined("web") as cluster:
        cluster.apply(job("descheduler-29012345"))
        cluster.settle()
        _, text = examine(cluster, settings=("protect.minPodAge=0s",))
        assert cluster.faults.count_seen("GET", "^/apis/batch/v1/jobs$") == 1
    (message,) = messages(text, "otherMovers")
    assert message == "the descheduler runs here, too (namespace default)"


def test_a_file_is_judged_without_a_cluster_and_says_that_rights_are_not(capsys):
    assert command(["doctor", "--snapshot", FILE]) == 0
    text = capsys.readouterr().out
    assert "not judged  a snapshot file does not say what a user may do" in text
    assert text.rstrip().endswith("Nothing is in the way; 1 not judged.")


@pytest.mark.parametrize(("red", "code"), [("warning", 11), ("problem", 0), (None, 0)])
def test_the_exit_code_follows_the_worst_finding(red, code, capsys):
    flags = ["--fail-on", red] if red else []
    arguments = ["doctor", "--snapshot", FILE, "--set", "budgets.perRun=0", *flags]
    assert command(arguments) == code
    assert "budgets.perRun is 0: nothing is ever moved" in capsys.readouterr().out


# -- an installed release ----------------------------------------------------------------------------

LABELS = {"app.kubernetes.io/name": "kube-rebalancer"}
POLICY = "apiVersion: rebalancer/v1\nkind: Policy\nmode: observe\nstrategies: {duplicates: {}}\n"


def config_map(name, **data):
    metadata = {"name": name, "namespace": "ops", "labels": LABELS}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def release_of(*, suspended=False, args=(), policy=POLICY, account=None):
    """Return the objects of a release ``ops/mover``, as far as doctor looks at them."""
    pod = {
        "spec": {
            "containers": [{"name": "rebalancer", "image": "r", "args": ["run", *args]}],
            "volumes": [{"name": "policy", "configMap": {"name": "mover-policy"}}],
        }
    }
    pod["metadata"] = {"labels": {"app": "mover"}}
    if account is not None:
        pod["spec"]["serviceAccountName"] = account
    selector = {"matchLabels": {"app": "mover"}}
    spec = {"replicas": 0 if suspended else 1, "selector": selector, "template": pod}
    metadata = {"name": "mover", "namespace": "ops", "labels": LABELS}
    maps = [] if policy is None else [config_map("mover-policy", **{"rebalancer.yaml": policy})]
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ops"}},
        config_map("mover-memory"),
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "mover", "namespace": "ops", "labels": LABELS},
        },
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec},
        *maps,
    ]


def findings(text, name):
    (of,) = (of for of in json.loads(text)["checks"] if of["check"] == name)
    return {(one["grade"], one["message"]): one.get("lines", []) for one in of["findings"]}


def test_what_kubectl_has_stopped_is_started_again_by_a_line_to_copy():
    with third_zone_joined("web") as cluster:
        cluster.apply(*release_of(suspended=True))
        _, text = examine(cluster, output="table")
    command = "kubectl --namespace ops scale deployment mover --replicas=1"
    assert command in [line.strip() for line in text.splitlines()]


def test_a_release_whose_memory_was_deleted_is_still_seen():
    """Each of its runs ends with an error: it must not look as if there were none."""
    with third_zone_joined("web") as cluster:
        cluster.apply(*release_of(args=["--memory=ops/mover-memory", "--lease=ops/mover"]))
        cluster.delete("ConfigMap", "mover-memory", "ops")
        code, text = examine(cluster, Grade.PROBLEM)
    assert code == 11
    assert messages(text, "release")[0].startswith("Deployment ops/mover, mode observe")
    assert messages(text, "lease")[0].startswith("Lease ops/mover is there")
    ((said, lines),) = findings(text, "memory").items()
    assert said == (
        "problem",
        "there is no ConfigMap ops/mover-memory: each run ends with exit code 3, for runs never create it",
    )
    assert lines == ["kubectl --namespace ops create configmap mover-memory"]


def test_a_name_that_a_tenant_wrote_is_no_part_of_a_command():
    with third_zone_joined("web") as cluster:
        cluster.apply(*release_of(args=["--memory=ops/x; rm -rf ~"]))
        cluster.delete("ConfigMap", "mover-memory", "ops")
        _, text = examine(cluster)
    ((_, lines),) = findings(text, "memory").items()
    assert lines == ["kubectl --namespace ops create configmap 'x; rm -rf ~'"]


@pytest.mark.parametrize("kept", ["{garbage", '{"version": 99}', '{"version": 1, "evictions": 7}'])
def test_a_memory_at_which_runs_stand_still_is_a_problem_with_the_runs_own_cure(kept):
    with third_zone_joined("web") as cluster:
        cluster.apply(*release_of(), config_map("mover-memory", **{"memory.json": kept}))
        code, text = examine(cluster, Grade.PROBLEM)
    assert code == 11
    ((said, lines),) = findings(text, "memory").items()
    assert said[0] == "problem"
    assert "each run stands still" in said[1]
    patch = '[{"op": "remove", "path": "/data/memory.json"}]'
    assert lines == [
        f"kubectl --namespace ops patch configmap mover-memory --type=json -p '{patch}'"
    ]


def test_a_memory_that_is_wrong_in_parts_is_no_problem():
    with third_zone_joined("web") as cluster:
        broken = config_map("mover-memory", **{"memory.json": '{"version": 1, "owners": 7}'})
        cluster.apply(*release_of(), broken)
        _, text = examine(cluster)
    assert grades(text)["memory"] == "warning"


def examined(flags=None, denied=(), **release):
    with third_zone_joined("web") as cluster:
        cluster.apply(*release_of(**release))
        cluster.access.denied.update(denied)
        return examine(cluster, Grade.WARNING, **(flags or {}))


def test_the_release_is_judged_by_its_own_policy():
    _, text = examined()
    said = "Deployment ops/mover, mode observe, policy ConfigMap ops/mover-policy"
    assert findings(text, "release") == {("ok", said): []}
    assert messages(text, "policy")[0] == "ConfigMap ops/mover-policy: mode observe, duplicates"


def test_the_flags_of_its_runs_and_those_of_the_command_change_the_policy():
    _, text = examined(args=["--mode=enforce", "--set=budgets.perRun=0"])
    assert "mode enforce" in messages(text, "release")[0]
    assert any("budgets.perRun is 0" in message for message in messages(text, "policy"))
    _, text = examined(flags={"settings": ("budgets.perRun=0",)})
    assert any("budgets.perRun is 0" in message for message in messages(text, "policy"))
    assert any("not the policy of the release" in message for message in messages(text, "release"))


def test_a_release_that_is_suspended_is_in_the_way():
    code, text = examined(suspended=True)
    assert code == 11
    assert "Deployment ops/mover is suspended: no run starts" in messages(text, "release")


def test_a_policy_that_ends_each_run_is_named_with_file_and_line():
    code, text = examined(policy=POLICY.replace("mode: observe", "mod: observe"))
    assert code == 11
    ((_, wrong),) = [one for one in findings(text, "release").items() if one[0][0] == "problem"]
    assert wrong
    assert wrong[0].startswith("ConfigMap ops/mover-policy/rebalancer.yaml:3")
    assert grades(text)["policy"] == "notJudged"


def test_a_policy_that_is_not_there_keeps_pods_from_starting():
    code, text = examined(policy=None)
    assert code == 11
    (of,) = (of for of in json.loads(text)["checks"] if of["check"] == "release")
    (wrong,) = (one for one in of["findings"] if "does not exist" in one["message"])
    assert wrong["advice"] == "`helm upgrade` with `--reuse-values` makes it again"


def test_a_given_policy_is_judged_and_said_not_to_be_that_of_the_release(tmp_path):
    file = tmp_path / "other.yaml"
    file.write_text(POLICY.replace("duplicates", "taints"))
    _, text = examined(flags={"policy_path": str(file)})
    assert "taints" in messages(text, "policy")[0]
    assert any("not the policy of the release" in message for message in messages(text, "release"))


@pytest.mark.parametrize(
    ("denied", "said"),
    [
        ({("get", "configmaps")}, "its policy is not judged: our account may not get ConfigMap"),
        ({("list", "deployments.apps")}, "Deployments may not be listed in namespace ops"),
    ],
)
def test_what_the_account_may_not_read_of_the_release_is_not_judged(denied, said):
    _, text = examined(denied=denied)
    assert grades(text)["release"] == "notJudged"
    assert any(said in message for message in messages(text, "release"))
    assert grades(text).get("policy", "notJudged") == "notJudged"


@pytest.mark.parametrize("named", [False, True])
def test_what_looks_like_a_release_has_no_server_asked_and_no_token_sent(named, tmp_path):
    """Whoever may make a ConfigMap of a public label and a Deployment beside it has written its policy."""
    token = tmp_path / "token"
    token.write_text("of-the-administrator")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        usage = f"usage: {{prometheus: {{url: '{url}', tokenFile: {token}, nodes: {{cpu: up}}, timeout: 1s}}}}\n"
        policy = f"apiVersion: rebalancer/v1\nkind: Policy\n{usage}strategies: {{low-utilisation: {{signal: usage}}}}\n"
        flags = {"memory": ("ops", "mover-memory")} if named else {}
        _, text = examined(flags, policy=policy)
        with pytest.raises(BlockingIOError):
            listening.accept()
        (said,) = messages(text, "metrics")
        assert said.startswith("the release's Prometheus is not asked from here; --policy FILE")
        assert grades(text)["metrics"] == "notJudged"
        # The same policy, named by who calls: asked, so that the test shows something.
        file = tmp_path / "policy.yaml"
        file.write_text(policy)
        _, text = examined({"policy_path": str(file)}, policy=policy)
        listening.accept()[0].close()


@pytest.mark.parametrize("named", ["absolute", "relative", "flag"])
def test_no_file_of_this_machine_is_read_for_what_looks_like_a_release(named, tmp_path):
    file = tmp_path / "kubeconfig"
    file.write_text("password: of-the-administrator\n")
    path = os.path.relpath(file, tempfile.gettempdir() + "/x") if named == "relative" else file
    if named == "flag":
        _, text = examined(args=[f"--set=scheduler.fromConfig={path}"])
    else:
        _, text = examined(policy=f"{POLICY}scheduler: {{fromConfig: {path}}}\n")
    assert "of-the-administrator" not in text
    assert "password" not in text
    assert any("is not read here" in message for message in messages(text, "policy"))


def test_a_file_of_its_own_config_map_is_read_for_a_release():
    profile = "profiles: [{schedulerName: default-scheduler}]\n"
    configuration = (
        f"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n{profile}"
    )
    with third_zone_joined("web") as cluster:
        *objects, policy = release_of(policy=f"{POLICY}scheduler: {{fromConfig: s.yaml}}\n")
        policy["data"]["s.yaml"] = configuration
        cluster.apply(*objects, policy)
        _, text = examine(cluster)
    assert "ConfigMap ops/mover-policy: mode observe" in messages(text, "policy")[0]
    assert "is not read here" not in text


@pytest.mark.parametrize("many", [1, 9])
def test_a_second_map_with_the_label_is_named_with_the_way_to_choose(many):
    planted = [config_map(f"z{n}-memory") for n in range(many)]
    with third_zone_joined("web") as cluster:
        cluster.apply(*release_of(), *planted)
        _, text = examine(cluster)
        (said,) = messages(text, "release")
        assert "several releases" in said
        assert "--memory ops/mover-memory or --memory ops/z0-memory" in said
        assert ("or one of 5 more: kubectl get configmaps -A -l" in said) is (many == 9)
        _, shown = examine(cluster, output="table")
        assert shown.count("several releases") == 1
        _, text = examine(cluster, memory=("ops", "mover-memory"))
    assert "Deployment ops/mover, mode observe" in messages(text, "release")[0]


def tried(pod, outcome="failed", message="HTTP 403: no"):
    return MoveRecord(
        pod=f"shop/{pod}",
        owner="Deployment/shop/web",
        node="n-a",
        strategy="duplicates",
        reason="r",
        outcome=outcome,
        message=message,
    )


def examined_after(*runs):
    with third_zone_joined("web") as cluster:
        cluster.apply(*release_of())
        cluster.apply(config_map("other-memory", **encode(Document(history=runs))))
        return examine(cluster, Grade.WARNING, memory=("ops", "other-memory"))


def test_what_was_refused_in_the_last_run_is_said_by_message():
    """Three pods and one webhook: one finding."""
    now = int(time.time())
    said = 'HTTP 403: admission webhook "no.moves" denied the eviction of {}'
    moves = tuple(tried(pod, message=said.format(pod)) for pod in ("web-0", "web-1", "e"))
    code, text = examined_after(
        ActingRun("a", now - 60, moves=moves[:1]), ActingRun("b", now, moves=moves)
    )
    assert code == 11
    (refused,) = messages(text, "memory")
    assert refused.startswith(
        f"3 evictions refused in the last run that tried some, at {rfc3339(now)}"
    )
    assert said.format("POD (shop/web-0, shop/web-1") in refused
    # The Lease that belongs to this memory by its name is not there.
    assert messages(text, "lease")[0].startswith("there is no Lease ops/other")


@pytest.mark.parametrize(
    ("outcome", "message", "what", "advice"),
    [
        ("failed", "HTTP 400: the name is too long", "refused", "webhook"),
        ("failed", 'HTTP 422: policy "gold" is unmet', "refused", "webhook"),
        ("refused", "missing permission: create pods/eviction", "refused", "a right"),
        ("misconfigured", "more than one PodDisruptionBudget", "refused", "PodDisruptionBudget"),
        ("failed", "HTTP 429: too many requests", "answered with errors", "too busy"),
        ("failed", "too many requests, please try again later", "answered with errors", "too busy"),
        ("failed", "the pod could not be read: connection reset", "answered with errors", "busy"),
    ],
)
@pytest.mark.parametrize(("hours", "grade"), [(1, "warning"), (49, "note")])
def test_only_what_the_server_refuses_is_laid_on_rights_and_webhooks(
    outcome, message, what, advice, hours, grade
):
    at = int(time.time()) - hours * 3600
    _, text = examined_after(ActingRun("a", at, moves=(tried("web-0", outcome, message),)))
    (of,) = (of for of in json.loads(text)["checks"] if of["check"] == "memory")
    (said,) = (one for one in of["findings"] if message in one["message"])
    assert said["message"].startswith(f"1 eviction {what} in the last run")
    assert advice in said["advice"]
    assert of["grade"] == said["grade"] == grade


def test_what_failed_in_other_ways_with_the_same_words_is_another_finding():
    moves = (tried("web-0"), tried("web-1", "refused"), tried("web-2"))
    _, text = examined_after(ActingRun("a", int(time.time()), moves=moves))
    counts = [one.partition(" in the last")[0] for one in messages(text, "memory")]
    assert counts == ["2 evictions refused", "1 eviction refused"]


ACCOUNT = "system:serviceaccount:ops:robot"
"""That of the release above."""


def judged(monkeypatch, *, lacking=(), answer=None, me="admin", **more):
    """Examine a release whose account lacks these (verb, resource); ``answer``: the status of each review of it."""
    asked = []

    def post(self, path, body, **_):
        review = json.loads(body)
        if path.endswith("/selfsubjectreviews"):
            return Response(
                201, {}, json.dumps({"status": {"userInfo": {"username": me}}}).encode()
            )
        if path.endswith("/subjectaccessreviews") and answer:
            return Response(answer, {}, b'{"message": "no"}')
        if path.endswith("/subjectaccessreviews"):
            asked.append(review["spec"])
            of = review["spec"].get("resourceAttributes", {})
            allowed = (of.get("verb"), of.get("resource")) not in lacking
            return Response(201, {}, json.dumps({"status": {"allowed": allowed}}).encode())
        return real(self, path, body, **_)

    real = Client.post
    monkeypatch.setattr(Client, "post", post)
    _, text = examined(account="robot", **more)
    return asked, findings(text, "rights"), text


ENFORCES = POLICY.replace("observe", "enforce") + "steer: marks\n"


def test_the_rights_of_the_release_are_judged_by_its_policy_with_the_value_that_gives_them(
    monkeypatch,
):
    missing = {("get", "nodes"), ("patch", "nodes")}
    asked, found, text = judged(monkeypatch, lacking=missing, policy=ENFORCES)
    who = f"the release's account {ACCOUNT}"
    said = f"{who} may not mark and cordon nodes: get nodes, patch nodes"
    assert found == {
        ("ok", "all that the policy needs"): [],
        ("problem", said): [
            '- {apiGroups: [""], resources: ["nodes"], verbs: ["get"]}',
            '- {apiGroups: [""], resources: ["nodes"], verbs: ["patch"]}',
        ],
    }
    assert "the chart grants what its values ask for (rbac.marks: true)" in text
    assert {one["user"] for one in asked} == {ACCOUNT}
    groups = ["system:serviceaccounts", "system:serviceaccounts:ops", "system:authenticated"]
    assert asked[0]["groups"] == groups
    # Its own Lease and memory, which no flag names here.
    named = {
        (of["resource"], of.get("name")) for one in asked if (of := one.get("resourceAttributes"))
    }
    assert {("leases", "mover"), ("configmaps", "mover-memory")} <= named


def test_the_namespace_of_a_release_limits_what_its_account_needs(monkeypatch):
    asked, found, _ = judged(monkeypatch, policy=ENFORCES, args=["--namespace=shop"])
    assert ("ok", f"the release's account {ACCOUNT}: all that the policy needs") in found
    attributes = [one.get("resourceAttributes", {}) for one in asked]
    (eviction,) = [of for of in attributes if of.get("subresource") == "eviction"]
    assert eviction["namespace"] == "shop"


def test_rights_that_may_not_be_asked_for_are_not_judged(monkeypatch):
    _, found, _ = judged(monkeypatch, answer=403)
    said = f"the release's account {ACCOUNT}: forbidden: our account may not create subjectaccessreviews"
    assert set(found) == {
        ("ok", "all that the policy needs"),
        ("notJudged", f'{said} in API group "authorization.k8s.io".'),
    }


def test_without_its_policy_the_rights_of_a_release_are_not_judged(monkeypatch):
    asked, found, _ = judged(monkeypatch, policy=None)
    said = f"the release's account {ACCOUNT}: the policy of the release is not known"
    assert ("notJudged", said) in found
    assert asked == []


def test_the_account_itself_is_judged_once(monkeypatch):
    asked, found, _ = judged(monkeypatch, me=ACCOUNT)
    assert (asked, list(found)) == ([], [("ok", "all that the policy needs")])


def test_as_whom_we_act_is_said_with_the_rights():
    _, text = examined({"as_user": "anna", "as_groups": ("devs",)})
    assert messages(text, "rights")[0] == "all that the policy needs (as anna (groups devs))"
    _, text = examined({"as_user": "anna"}, denied={("list", "nodes")})
    assert messages(text, "rights")[0].startswith("anna may not read the cluster: list nodes")
