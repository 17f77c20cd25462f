"""Three real control planes, observed from one: a healthy one, one that stands still, one whose API server is gone.

The Job controller makes the pods of the chart's Indexed Job, the test runs what their kubelets would: the container's own command, with
the kubeconfig of its index only. ``home`` is where the Job runs, and the healthy cluster.
"""

import base64
import copy
import json
import os
from concurrent.futures import ThreadPoolExecutor

from rebalancer.kube.resources import AccessRule
from tests.chart.helm import Release
from tests.controlplane import ControlPlane, Options, access, audit, drift, operations, wait_until
from tests.controlplane.stages import NODE_NOT_READY
from tests.e2e.installed import NAMESPACE, NEVER
from tests.e2e.product import rebalancer
from tests.e2e.rights import asked
from tests.support.members import NAME, access_secret, join, member

STATUS = f"{NAME}-fleet-status"
FLEET_RULES = [AccessRule("patch", "", "configmaps", NAMESPACE, STATUS)]
"""All that the pods of a fleet ask of the cluster that they run in."""
_ANNOTATION = "batch.kubernetes.io/job-completion-index"


class Fleet:
    """The release with the list, on ``home``, and its pods."""

    def __init__(self, home, folder, kubeconfigs):
        self.api, self.folder, self.kubeconfigs = home.api, folder, kubeconfigs
        values = {
            "schedule": NEVER,
            "output": "json",
            "runDeadlineSeconds": 200,
            "activeDeadlineSeconds": 300,
            "policy": {"protect": {"minPodAge": "0s"}},
            # No node: KWOK would end the pods before they have done anything.
            "nodeSelector": {"is": "nowhere"},
            "fleet": {"clusters": [member(name) for name in kubeconfigs], "maxClustersAtOnce": 2},
        }
        Release(home.kubeconfig, NAMESPACE).install(values)
        home.apply(access_secret(name, NAMESPACE, text) for name, text in kubeconfigs.items())
        token = home.token_for_service_account(NAMESPACE, NAME)
        client = home.client(token)
        wait_until(lambda: access.is_known(client), 30, "the account known")
        client.close()
        self.own = home.write_kubeconfig("fleet-pod", token)
        self.jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
        self.runs = {}

    def tick(self):
        """Make the CronJob's Job, as a tick does, and run all its pods to their end; return the Job."""
        path = f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs/{NAME}"
        spec = self.api.get(path)["spec"]["jobTemplate"]["spec"]
        metadata = {"name": "tick", "namespace": NAMESPACE}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
        self.api.post(self.jobs, job)
        # As many at once as the values say, and never more.
        wait_until(lambda: len(self._waiting()) == 2, 60, "two pods of the Job")
        while not self._ended():
            waiting = wait_until(lambda: self._waiting() or self._ended(), 60, "the Job's pods")
            if waiting is True:
                break
            assert len(waiting) <= 2
            with ThreadPoolExecutor(len(waiting)) as pool:
                list(pool.map(self._run, waiting))
        return self.api.get(f"{self.jobs}/tick")

    def _waiting(self):
        pods = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=job-name%3Dtick")
        return [pod for pod in pods["items"] if pod["status"]["phase"] == "Pending"]

    def _ended(self):
        conditions = self.api.get(f"{self.jobs}/tick").get("status", {}).get("conditions") or ()
        return any(
            one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in conditions
        )

    def _run(self, pod):
        """Do what the kubelet would: mount, start, and say how it ended."""
        index = pod["metadata"]["annotations"][_ANNOTATION]
        (container,) = pod["spec"]["containers"]
        mounted = self.folder / f"pod-{index}"
        args = self._mount(pod, container, index, mounted)
        env = {"JOB_COMPLETION_INDEX": index, "KUBECONFIG": str(self.own), "HOME": os.devnull}
        self.runs[index] = done = rebalancer(*args, env=env)
        phase = "Succeeded" if done.code == 0 else "Failed"
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}/status"
        self.api.patch(path, {"status": {"phase": phase}})

    def _mount(self, pod, container, index, mounted):
        """Write the files that the pod's volumes name, and return the arguments with their paths."""
        args = copy.copy(container["args"])
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        for mount in container["volumeMounts"]:
            volume, folder = volumes[mount["name"]], mounted / mount["name"]
            if mount["name"].startswith("kube-api-access") or "emptyDir" in volume:
                continue
            for name, text in self._files(volume):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text)
            below = mount.get("subPathExpr", "").replace("$(JOB_COMPLETION_INDEX)", index)
            args = [arg.replace(mount["mountPath"], str(folder / below)) for arg in args]
            if below:
                for other in folder.iterdir():
                    if other.name != below:
                        other.rename(mounted / f"not-mounted-{other.name}")
        return args

    def _files(self, volume):
        space = f"/api/v1/namespaces/{NAMESPACE}"
        if "configMap" in volume:
            yield from self.api.get(f"{space}/configmaps/{volume['configMap']['name']}")[
                "data"
            ].items()
            return
        for source in volume["projected"]["sources"]:
            data = self.api.get(f"{space}/secrets/{source['secret']['name']}")["data"]
            for item in source["secret"]["items"]:
                yield item["path"], base64.b64decode(data[item["key"]]).decode()

    def report(self, form):
        return rebalancer(
            "fleet",
            "report",
            f"--fleet={NAMESPACE}/{NAME}-fleet",
            f"--kubeconfig={self.own}",
            "-o",
            form,
        )


def test_one_well_one_that_stands_still_one_that_is_gone(cluster, tmp_path):
    home = cluster
    with (
        ControlPlane(Options(version=home.options.version)) as still,
        ControlPlane(Options(version=home.options.version)) as lost,
    ):
        planes = {"home": home, "still": still, "lost": lost}
        with ThreadPoolExecutor(3) as pool:
            joined = dict(zip(planes, pool.map(join, planes.values()), strict=True))
            list(pool.map(drift.article, (home, still)))
        tokens = [token for token, _ in joined.values()]
        for name in ("zone-b-0", "zone-c-0"):
            mark = {"metadata": {"annotations": {NODE_NOT_READY: "true"}}}
            still.api.patch(f"/api/v1/nodes/{name}", mark)
        wait_until(lambda: _ready(still) == 1, 60, "two nodes NotReady")
        before = [_names(plane) for plane in (home, still)]
        lost.stop("kube-apiserver", kill=True)
        log = audit.AuditLog(home.audit_log)
        fleet = Fleet(home, tmp_path, {name: config for name, (_, config) in joined.items()})
        job = fleet.tick()
        # Each index by itself: the others have run although one has failed, and the Job says which.
        assert {index: run.code for index, run in fleet.runs.items()} == {"0": 0, "1": 0, "2": 3}
        status = job["status"]
        assert (status["completedIndexes"], status["failedIndexes"]) == ("0,1", "2")
        assert status["conditions"][-1]["type"] == "Failed"
        assert [move["outcome"] for move in fleet.runs["0"].report["moves"]] == ["observed"]
        assert fleet.runs["1"].report["standstill"]
        assert [_names(plane) for plane in (home, still)] == before
        # What the pods asked of the cluster that they run in, by its own log.
        assert asked(log) == set(FLEET_RULES)
        # One cluster's token is none of another's.
        stranger = home.client(joined["still"][0])
        assert not access.is_known(stranger)
        stranger.close()
        fleet_role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/{NAME}-fleet"
        rules = home.api.get(fleet_role)["rules"]
        rules.append(
            {
                "apiGroups": [""],
                "resources": ["configmaps"],
                "resourceNames": [f"{NAME}-fleet", STATUS],
                "verbs": ["get"],
            }
        )
        home.api.patch(fleet_role, {"rules": rules})
        data = wait_until(lambda: _report(fleet), 30, "the right to read list and records")
        states = [(one["name"], one["state"]) for one in data["clusters"]]
        assert states == [("lost", "failed"), ("still", "stands still"), ("home", "unmet rules")]
        assert lost.url.removeprefix("https://") in data["clusters"][0]["why"]
        said = [text for run in fleet.runs.values() for text in (run.out, run.err)]
        said += [fleet.report(form).out for form in ("table", "html", "json")]
        said.append(json.dumps(home.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{STATUS}")))
        assert not [token for token in tokens for text in said if token in text]


def _report(fleet):
    """Return the report once it can be read; it ends with 4, since a cluster has failed."""
    done = fleet.report("json")
    return json.loads(done.out) if done.code == 4 else None


def _ready(plane):
    nodes = plane.api.get("/api/v1/nodes")["items"]
    return sum(operations.is_ready(node) for node in nodes)


def _names(plane):
    return sorted(pod["metadata"]["name"] for pod in operations.pods(plane.api, "default"))
