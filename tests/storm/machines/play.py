"""Plays one scenario on a control plane and a cloud, and returns the record of it."""

import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import yaml

from tests.aws.cloud import CREDENTIALS, Cloud, in_the_cloud
from tests.capi.ground import Ground
from tests.controlplane import ControlPlane, Options, audit
from tests.storm.faults import Script
from tests.storm.machines import cloud as storm_cloud
from tests.storm.machines.cloud import Call, CloudProxy, CloudScript
from tests.storm.machines.cluster_api import scenarios
from tests.storm.machines.cluster_api.fleet import MachineFleet
from tests.storm.machines.cluster_api.ground import PATHS, RULES, cluster_api
from tests.storm.machines.ground import KEPT, OTHER
from tests.storm.machines.record import Hooked, Record
from tests.storm.machines.scenario import (
    CLOCKS,
    LAST_LOOK,
    LONG_STOP,
    OURS,
    SCALING,
    TIME_PASSES,
    Scenario,
    scenario,
)
from tests.storm.machines.world import MachineWorld
from tests.storm.product import Process, grant
from tests.storm.proxy import Proxy, Seen, Upstream
from tests.storm.schedule import Act
from tests.storm.witnesses import LEASE, MEMORY, OPS, Ran, Recorder
from tests.support.serving import serving

ACCOUNT = "storm-machines"
CLOUD, CLUSTER_API = "aws", "cluster-api"
PROVIDERS = (CLOUD, CLUSTER_API)
RIVAL = f"{ACCOUNT}-{OTHER}"
"""ServiceAccounts of the product, and of a second release."""
DEADLINE = 12.0
"""Seconds of each run, and for which `drain` and `replace` try."""
SERVED = 16.0
"""Seconds for which `serve` is up, unless it is stopped for longer."""
SCALED_IN = 30.0
"""The same for scale-in: a closed node is given time for what load balancers have to learn."""
SURGED = 100.0
"""Seconds for which a replacement with new machines tries: it looks every five seconds."""
READY_WITHIN, CREATED_WITHIN = 25.0, 60.0
"""Seconds within which a new machine must be useful; where Cluster API first drains a machine that others have taken."""
PERIOD = 2.0
"""Seconds between the runs of `serve` where machines are scaled."""
REFUSED = 15.0
"""Seconds more where each run takes all of its time."""
CLEAN = 8.0
"""Seconds for which the product acts without faults afterwards."""
SERVING = ("scale-in", "scale-out", "interruption", "escalate", "agent", "two releases", "detach")
"""Duties of what stays until a signal; the others are commands of people."""
AGAIN = (*SCALING, "agent", "detach", "surge")
"""Duties that go on without faults afterwards."""
_CLOCK = '''"""Shifts this process's time of day, as STORM_CLOCK says: after so many seconds, by so many."""
import os
import time

_after, _amount = map(float, os.environ["STORM_CLOCK"].split(","))
_real, _begun = time.time, time.monotonic()
time.time = lambda: _real() + (_amount if time.monotonic() - _begun >= _after else 0.0)
'''
JUMPS = 7.0
"""Seconds after its start at which a process's clock jumps."""
TAKING_BACK = "taking-back"
"""The process that takes back a replacement that cannot be done."""
HOPELESS = ("no capacity", "agents are slow")
"""What keeps a replacement from being done for ever."""
LEASE_TERM = 60.0
"""Seconds after its last renewal at which the Lease of a command is free."""
LONGEST = 75.0
"""Seconds after its time after which a process is killed, which counts as a violation."""
PAUSE = 0.5
_VERBS = ["get", "list", "watch"]
_RULES: list[dict[str, list[str]]] = [
    {
        "apiGroups": ["", "apps", "batch", "policy", "storage.k8s.io", "autoscaling"],
        "resources": ["*"],
        "verbs": _VERBS,
    },
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]},
    {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["patch"]},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["patch"]},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "update"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "update", "patch"]},
]


class Stage:
    """The control plane, the cloud, their witnesses and their world, for many scenarios one after the other."""

    def __init__(
        self, plane: ControlPlane, cloud: Cloud, folder: Path, capi: Ground | None = None
    ) -> None:
        """``capi``: Cluster API on the control plane, if groups are its own and not the cloud's."""
        self.plane, self.cloud, self.folder = plane, cloud, folder
        self.scenario = scenarios.scenario if capi else scenario
        """From a seed to its scenario."""
        self.ready_within = CREATED_WITHIN if capi else READY_WITHIN
        make_fleet = partial(MachineFleet, capi) if capi else None
        self.world = MachineWorld(plane, cloud, folder, make_fleet)
        rules = [*_RULES, *(RULES if capi else ())]
        self.token = grant(plane, ACCOUNT, rules)
        self.rival = grant(plane, RIVAL, rules)
        self.recorder = Recorder(plane.client(plane.admin_token), PATHS if capi else {})
        self.log = audit.AuditLog(plane.audit_log)
        self.upstream = Upstream.of(plane)

    def play(self, seed: int, source: Path | None = None) -> Record:
        """Play the scenario of a seed; ``source``: where the product's packages are taken from, if not as installed."""
        scenario = self.scenario(seed)
        folder = Path(tempfile.mkdtemp(prefix=f"seed-{seed}-", dir=self.folder))
        since = self.world.version()
        self.world.prepare(scenario)
        self.log.mark()
        with Scene(self, scenario, folder, source) as scene:
            return scene.play(since)


@contextlib.contextmanager
def stage(folder: Path, provider: str = CLOUD) -> Iterator[Stage]:
    """Start a control plane and a cloud for scenarios; ``provider``: whose groups the machines are in, of `PROVIDERS`."""
    users = {"userGroups": [f"system:serviceaccounts:{OPS}"]}
    os.environ.update(CREDENTIALS)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(Options(audit_policy=audit.policy(users))))
        cloud = stack.enter_context(in_the_cloud(time.monotonic))
        capi = None
        if provider == CLUSTER_API:
            capi = stack.enter_context(cluster_api(plane, folder))
        made = Stage(plane, cloud, folder, capi)
        try:
            yield made
        finally:
            made.world.close()


class Scene:
    """One scenario being played."""

    def __init__(self, stage: Stage, scenario: Scenario, folder: Path, source: Path | None) -> None:
        self._stage, self._scenario, self._folder, self._source = stage, scenario, folder, source
        self._world = stage.world
        self._stack = contextlib.ExitStack()
        self._acted: dict[str, float] = {}
        self._errors: list[Exception] = []
        self._lock = threading.Lock()
        self._process: Process | None = None
        self._runs: list[Ran] = []
        self._hooked: list[Hooked] = []
        self._threads: list[threading.Thread] = []
        self._clouds: list[CloudProxy] = []
        self._begun: dict[int, threading.Event] = {}
        """Port of a proxy -> set by its first request: a busy machine takes its time to start a process."""
        self._first: dict[int, float] = {}
        """Port of a proxy -> Unix seconds of its first request."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def play(self, since: int) -> Record:
        """Play it to its end; ``since``: etcd's revision before the world was made."""
        scenario = self._scenario
        self._moment("before")
        passed = scenario.amount(TIME_PASSES, "before")
        skew = next((act.amount for act in scenario.acts if act.name == "wrong clock"), passed)
        proxy = self._proxy(Script(scenario.faults, skew))
        cloud = self._cloud(CloudScript(scenario.cloud))
        seconds = self._seconds()
        self._timers(self._begun[proxy.port])
        with self._joining(), self._second_release(seconds):
            self._runs.append(self._run(proxy, cloud, seconds, "main"))
            if self._runs[-1].killed:
                # Of a command the time counts from its start: who was killed has the Lease for its whole term.
                longer = 0.0 if self._serves else LEASE_TERM
                self._runs.append(self._run(proxy, cloud, seconds + longer, "again"))
        for thread in self._threads:
            thread.join(60)
        ended = time.time()
        self._world.calm()
        clean: list[Ran] = []
        if scenario.duty in AGAIN:
            # What has not happened by now does not happen any more.
            self._moment("clean")
            calm = self._cloud(CloudScript(), noted=False)
            right = self._proxy(
                Script((), passed or scenario.amount(TIME_PASSES, "clean")), noted=False
            )
            with self._joining(), self._second_release(CLEAN, "clean-"):
                clean += self._run_clean(right, calm)
        if self._errors:
            raise self._errors[0]
        self._world.settle()
        return Record(
            scenario=scenario,
            runs=self._runs,
            clean=clean,
            ground=self._world.ground,
            requests=list(self._stage.log.requests()),
            changes=self._stage.recorder.since(since),
            calls=[call for made in self._clouds for call in made.calls],
            hooked=self._hooked,
            acted=self._acted,
            ended=ended,
            nodes=self._world.nodes(),
            sizes=self._world.sizes(),
            groups=self._world.groups(),
            pending=self._world.pending(),
            network=self._world.network(),
            secrets=(self._stage.token, self._stage.rival),
            hits=[s.fault.name for s in proxy.seen if s.hit and s.fault]
            + [c.fault.name for c in cloud.calls if c.fault],
        )

    def _run_clean(self, proxy: Proxy, cloud: CloudProxy) -> Iterator[Ran]:
        """Run without faults; a replacement until it is done, and is taken back where it cannot be."""
        if self._scenario.duty != "surge":
            yield self._run(proxy, cloud, CLEAN, "clean")
            return
        self._world.mend_groups()
        hopeless = self._scenario.has(*HOPELESS)
        for name in ("clean", *(() if hopeless else ("clean-again",)), TAKING_BACK):
            ran = self._run(proxy, cloud, SURGED, name)
            yield ran
            if ran.code == 0:
                return
            self._world.mend_groups()

    def _seconds(self) -> float:
        if self._scenario.duty == "surge":
            return SURGED + (LONG_STOP if self._scenario.hits_long else 0.0)
        each = SERVED if self._serves else DEADLINE
        each = SCALED_IN if self._scenario.duty in ("scale-in", "two releases") else each
        each += REFUSED if self._scenario.refuses else 0.0
        return each + (LONG_STOP if self._scenario.hits_long else 0.0)

    @property
    def _serves(self) -> bool:
        return self._scenario.duty in SERVING

    @contextlib.contextmanager
    def _joining(self) -> Iterator[None]:
        """Let machines join and go all the while, as kubelets and the cloud controller do."""
        over = threading.Event()

        def join() -> None:
            while not over.wait(PAUSE):
                try:
                    self._world.join()
                except Exception as error:  # noqa: BLE001 - raised at the end
                    self._errors.append(error)
                    return

        thread = threading.Thread(target=join, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    # -- the product -----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _second_release(self, seconds: float, before: str = "") -> Iterator[None]:
        """Let a second release do its duty meanwhile, with groups of its own, if there is one; nothing fails for it."""
        if not self._world.ground.rival:
            yield
            return
        ran: list[Ran] = []
        proxy = self._proxy(Script(), noted=False)
        cloud = self._cloud(CloudScript(), OTHER, noted=False)
        thread = threading.Thread(
            target=lambda: ran.append(self._run(proxy, cloud, seconds, f"{before}{OTHER}")),
            daemon=True,
        )
        thread.start()
        try:
            yield
        finally:
            thread.join(seconds + 2 * LONGEST)
            self._runs += ran

    def _run(self, proxy: Proxy, cloud: CloudProxy, seconds: float, name: str) -> Ran:
        """Run the product to its end; what serves is ended so many seconds after its first request."""
        begun = self._begun[proxy.port]
        identity, is_rival = f"{ACCOUNT}-{name}", name.endswith(OTHER)
        serves = self._serves
        arguments = [
            str(Path(sys.executable).with_name("rebalancer")),
            *self._verb(seconds, f"{OTHER}-" if is_rival else "", name),
            f"--kubeconfig={self._kubeconfig(proxy.port, identity)}",
        ]
        if self._scenario.duty != "agent":
            policy = self._folder / f"{identity}.yaml"
            policy.write_text(self._world.policy(cloud.url, rival=is_rival))
            arguments += [f"--policy={policy}", "--output=json"]
        ran = Ran(ACCOUNT, identity, seconds + 5 if serves else seconds, time.time(), serves=serves)
        process = Process(ran, arguments, self._environ(name), self._folder / identity, "")
        if not is_rival:
            with self._lock:
                self._process = process
        if serves:
            over = threading.Thread(target=_end, args=(process, begun, seconds), daemon=True)
            over.start()
        process.wait(LONGEST)
        ran.first_request = self._first.get(proxy.port)
        return ran

    def _environ(self, name: str) -> dict[str, str]:
        """Return the environment of a process: where its packages are, and which time of day it believes."""
        # A note of another process on a group is taken over only after three minutes.
        pod = "main" if self._scenario.duty == "surge" else name
        environ = {**os.environ, "POD_NAME": f"{ACCOUNT}-{pod}"}
        paths = [] if self._source is None else [str(self._source)]
        if (shift := self._shift(name)) is not None:
            environ["STORM_CLOCK"] = "{:g},{:g}".format(*shift)
            (self._folder / "sitecustomize.py").write_text(_CLOCK)
            paths.append(str(self._folder))
        if paths:
            environ["PYTHONPATH"] = os.pathsep.join(paths)
        return environ

    def _shift(self, name: str) -> tuple[float, float] | None:
        """Return after how many seconds, and by how many, a process's clock is shifted; None: it is not."""
        moments = ("before", "clean") if name == "clean" else ("before",)
        if passed := self._scenario.amount(TIME_PASSES, *moments):
            return 0.0, passed
        for act in self._scenario.acts:
            if act.name in CLOCKS and name in ("main", "again"):
                return (JUMPS if act.name == "our clock jumps" else 0.0), act.amount
        return None

    def _verb(self, seconds: float, release: str, name: str) -> list[str]:
        memory, lease = f"--memory={OPS}/{release}{MEMORY}", f"--lease={OPS}/{release}{LEASE}"
        kept = f"--machine-state={OPS}/{release}{KEPT}"
        match self._scenario.duty:
            case "scale-in" | "scale-out" | "two releases":
                every = ["--yes", f"--every={PERIOD:g}s", "--deadline=10s"]
                return ["serve", *every, memory, kept, lease]
            case "drain":
                gone = self._scenario.has("kubelet is gone")
                skips = ["--skip-wait-for-delete-timeout=2", "--grace-period=1"] if gone else []
                return ["drain", "n-0", f"--timeout={seconds:g}s", *skips, lease]
            case "replace":
                return [
                    "replace",
                    "--selector=generation=old",
                    "--pause=0s",
                    f"--timeout={2 * seconds:g}s",
                    f"--then={self._provider()}",
                    lease,
                ]
            case "surge":
                back, on = ["--take-back"], ["--outdated=template", "--surge=1"]
                return [
                    "replace",
                    *(back if name == TAKING_BACK else on),
                    "--pause=0s",
                    f"--ready-within={self._stage.ready_within:g}s",
                    f"--timeout={seconds:g}s",
                    lease,
                ]
            case "agent":
                return ["node-agent", "--node=n-a", "--every=1s", f"--imds={self._world.metadata}"]
            case _:
                return ["serve", "--yes", "--every=1h", memory, kept, lease]

    def _kubeconfig(self, port: int, identity: str) -> Path:
        token = self._stage.rival if identity.endswith(OTHER) else self._stage.token
        cluster = {
            "server": f"https://127.0.0.1:{port}",
            "certificate-authority": str(self._stage.plane.ca_file),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "storm",
            "clusters": [{"name": "storm", "cluster": cluster}],
            "users": [{"name": "storm", "user": {"token": token}}],
            "contexts": [{"name": "storm", "context": {"cluster": "storm", "user": "storm"}}],
        }
        path = self._folder / f"{identity}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        return path

    def _provider(self) -> str:
        """Start who removes machines of `replace`, once; return its address."""
        if not hasattr(self, "_provider_url"):
            self._provider_url = self._stack.enter_context(_provider(self._removed))
        return self._provider_url

    def _removed(self, body: dict[str, Any]) -> None:
        """The machine of a node is ended, and its Node goes; perhaps another one comes under its name."""
        name = str(body.get("node", ""))
        node = self._stage.plane.api.find(f"/api/v1/nodes/{name}")
        self._hooked.append(Hooked(time.time(), name, node["metadata"]["uid"] if node else ""))
        self._moment(f"hook {len(self._hooked)}")
        if node is not None:
            # Another one may have come under the name.
            uid = {"preconditions": {"uid": node["metadata"]["uid"]}}
            with contextlib.suppress(Exception):
                self._stage.plane.api.delete(f"/api/v1/nodes/{name}", uid)

    # -- acts ------------------------------------------------------------------------------------------

    def _proxy(self, script: Script, *, noted: bool = True) -> Proxy:
        """Return a proxy before the API server; ``noted``: its requests are moments of the scenario."""
        begun = threading.Event()

        def seen(request: Seen) -> None:
            self._first.setdefault(proxy.port, time.time())
            begun.set()
            if noted:
                self._moment(f"{request.kind} {request.number}")

        proxy = self._stack.enter_context(Proxy(self._stage.upstream, script, seen))
        self._begun[proxy.port] = begun
        return proxy

    def _cloud(
        self, script: CloudScript, release: str = "main", *, noted: bool = True
    ) -> CloudProxy:
        called = self._called if noted else (lambda _: None)
        made = storm_cloud.before(self._stage.cloud.url, script, called, release)
        self._clouds.append(self._stack.enter_context(made))
        return self._clouds[-1]

    def _called(self, call: Call) -> None:
        is_last_look = "AutoScalingGroupNames.member.1" in call.form
        self._moment(LAST_LOOK if is_last_look else f"{call.name} {call.number}")

    def _moment(self, moment: str) -> None:
        """Do what is to be done at a moment."""
        due = [a for a in self._scenario.acts if a.moment == moment and a.name not in self._acted]
        for act in due:
            self._do(act)

    def _timers(self, begun: threading.Event) -> None:
        """Start the acts that come so many seconds after the product's first request."""

        def act_later(act: Act) -> None:
            begun.wait(LONGEST / 2)
            time.sleep(float(act.moment.removeprefix("after ")))
            self._do(act)

        for act in self._scenario.acts:
            if act.moment.startswith("after "):
                thread = threading.Thread(target=act_later, args=(act,), daemon=True)
                thread.start()
                self._threads.append(thread)

    def _do(self, act: Act) -> None:
        if act.name in self._acted:
            return
        self._acted[act.name] = time.time()
        try:
            if act.name not in (*OURS, TIME_PASSES):
                self._world.do(act)
            elif act.name not in ("wrong clock", TIME_PASSES, *CLOCKS):
                self._disturb(act)
        except Exception as error:  # noqa: BLE001 - raised at the end
            self._errors.append(error)
        self._acted[act.name] = time.time()

    def _disturb(self, act: Act) -> None:
        while True:
            with self._lock:
                if self._process is not None:
                    break
            time.sleep(0.01)
        if act.name == "SIGSTOP":
            self._process.stop_for(act.amount)
        else:
            self._process.signal(signal.Signals[act.name])


def _end(process: Process, begun: threading.Event, seconds: float) -> None:
    """End a process so many seconds after it has begun; later by what a busy machine keeps it from running, twice as late at most."""
    begun.wait(LONGEST / 2)
    since, late = time.time(), process.ran.starved_since(0.0)
    kept = 0.0
    while time.time() < since + seconds + min(kept, seconds):
        time.sleep(PAUSE)
        kept = process.ran.starved_since(0.0) - late
    process.signal(signal.SIGTERM)


@contextlib.contextmanager
def _provider(removed: Any) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            removed(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        yield f"{url}/remove"
