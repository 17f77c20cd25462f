"""Plays one scenario on a control plane, and returns the record of it."""

import contextlib
import json
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from tests.controlplane import ControlPlane, Options
from tests.storm.faults import Script
from tests.storm.product import Command, Process, grant
from tests.storm.proxy import Proxy, Seen, Upstream
from tests.storm.schedule import ENOUGH, Act, Scenario
from tests.storm.witnesses import (
    AUDIT_POLICY,
    Audit,
    Evicted,
    Ran,
    Record,
    Recorder,
    carried_out,
    is_rehearsal,
)
from tests.storm.world import BUDGETS, POLICY, STEERED_POLICY, World

_LONGEST = 45.0
"""Seconds after its deadline for a run to end before it is killed: far beyond what is promised."""
_CLEAN_RUNS = 4
_CLEAN_DEADLINE = 60.0
_STREAMS = ("stdout full", "stdout closed", "stderr full", "stderr closed", "stderr gone")
_PROCESS_ACTS = (
    *_STREAMS,
    ENOUGH,
    "SIGTERM",
    "SIGKILL",
    "SIGSTOP",
    "rival",
    "wrong clock",
    "next run",
)
_ACCOUNTS = ("storm-main", "storm-rival")
_RIVAL_TRIES = 25
_RIVAL_PAUSE = 2.0


class Ground:
    """The control plane, its witnesses and its world, for many scenarios one after the other."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder = plane, folder
        self.world = World(plane)
        self.tokens = {name: grant(plane, name) for name in _ACCOUNTS}
        self.recorder = Recorder(plane.client(plane.admin_token))
        self.audit = Audit(plane.audit_log)
        self.upstream = Upstream.of(plane)
        self.policies = {False: folder / "policy.yaml", True: folder / "steered.yaml"}
        """Whether landings are steered -> the policy."""
        for steered, text in ((False, POLICY), (True, STEERED_POLICY)):
            self.policies[steered].write_text(text)

    def play(self, scenario: Scenario, source: Path | None = None) -> Record:
        """Play one scenario; ``source``: where the product's packages are taken from, if not as installed."""
        folder = Path(tempfile.mkdtemp(prefix=f"seed-{scenario.seed}-", dir=self.folder))
        policy = self.policies[scenario.steered]
        command = Command(policy, folder, self.plane.ca_file, source)
        since = self.world.version()
        self.world.prepare(scenario)
        self.audit.read()
        with Stage(self, scenario, command) as stage:
            return stage.play(since)


@contextlib.contextmanager
def ground(folder: Path) -> Iterator[Ground]:
    """Start a control plane for scenarios."""
    with ControlPlane(Options(audit_policy=AUDIT_POLICY)) as plane:
        yield Ground(plane, folder)


class Stage:
    """One scenario being played."""

    def __init__(self, ground: Ground, scenario: Scenario, command: Command) -> None:
        self._ground, self._scenario, self._command = ground, scenario, command
        self._world = ground.world
        self._stack = contextlib.ExitStack()
        self._main: Process | None = None
        self._rivals: list[Process] = []
        self._proxies: list[Proxy] = []
        self._threads: list[threading.Thread] = []
        self._acted: dict[str, float] = {}
        self._errors: list[Exception] = []
        self._done = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._stack.close()

    def play(self, since: int) -> Record:
        """Play it to its end; ``since``: etcd's revision before the workloads were made."""
        for act in self._scenario.acts:
            if act.moment == "before" and act.name not in _PROCESS_ACTS:
                self._do(act)
        proxy = self._proxy(self._script(), self._hook)
        self._main = self._start(
            "storm-main",
            proxy,
            self._scenario.deadline,
            self._streams(),
            serves=self._scenario.served,
        )
        for act in self._scenario.acts:
            if act.moment.startswith("after "):
                self._begin(act, float(act.moment.removeprefix("after ")))
        runs = [self._finished(self._main, proxy)]
        for thread in self._threads:
            thread.join(_RIVAL_TRIES * 10)
        if self._scenario.has("next run"):
            again = self._proxy(Script(), lambda _: None)
            self._rivals.append(self._start("storm-rival", again, self._scenario.rival_deadline))
        for rival, passed in zip(self._rivals, self._proxies[1:], strict=True):
            runs.append(self._finished(rival, passed))
        if self._errors:
            raise self._errors[0]
        # What was forwarded to the server before the proxy went is carried out anyway.
        time.sleep(0.2)
        hour = self._world.hour()
        texts = self._world.texts()
        opted_out = dict(self._world.opted_out)
        marks_left = self._world.marked()
        self._done.set()
        evicted, patched, others = self._ground.audit.read()
        self._stack.enter_context(self._world.hurrying())
        self._world.calm()
        late = self._ground.audit.read()
        evicted += late.evicted
        patched += late.patched
        self._catch_up(evicted)
        changes = self._ground.recorder.since(since)
        clean, codes, marks_later = self._clean_runs()
        return Record(
            scenario=self._scenario,
            runs=runs,
            evicted=carried_out(evicted, changes),
            changes=changes,
            desired=self._world.desired,
            expected=self._world.expected,
            final=self._world.zones(),
            least=self._world.least,
            budgets=BUDGETS,
            hour_before=self._world_hour_before,
            hour_after=hour,
            memory_hindered=self._memory_hindered(proxy),
            sight_hindered=any(
                seen.hit and seen.kind in ("list pods", "watch pods") for seen in proxy.seen
            ),
            deleted=others,
            acted=self._acted,
            opted_out=opted_out,
            hits=[s.fault.name for s in proxy.seen if s.hit and s.fault],
            hit_kinds=[s.kind for s in proxy.seen if s.hit],
            secrets=tuple(self._ground.tokens.values()),
            texts=texts,
            clean_evictions=clean,
            clean_codes=codes,
            node_patches=patched,
            marks_left=marks_left,
            marks_later=marks_later,
        )

    # -- the run -----------------------------------------------------------------------------------

    def _script(self) -> Script:
        skew = next((a.amount for a in self._scenario.acts if a.name == "wrong clock"), 0.0)
        return Script(self._scenario.faults, skew)

    def _streams(self) -> str:
        return next((act.name for act in self._scenario.acts if act.name in _STREAMS), "")

    def _proxy(self, script: Script, hook: Callable[[Seen], None]) -> Proxy:
        made = self._stack.enter_context(Proxy(self._ground.upstream, script, hook))
        self._proxies.append(made)
        return made

    def _start(
        self, user: str, proxy: Proxy, deadline: float, streams: str = "", *, serves: bool = False
    ) -> Process:
        identity = f"{user}-{len(self._proxies)}"
        token = self._ground.tokens[user]
        return self._command.start(
            proxy.port, token, user, identity, deadline, streams, serves=serves
        )

    def _finished(self, process: Process, proxy: Proxy) -> Ran:
        # What it asks first starts its clock at the latest; noted before anybody waits for its deadline.
        while not process.ended and not proxy.seen:
            time.sleep(0.02)
            if time.time() > process.ran.started + _LONGEST:
                break
        seen = proxy.seen[:1]
        process.ran.first_request = seen[0].at if seen else None
        ran = process.wait(_LONGEST)
        ran.sent = [
            (s.at, _uid(s.body))
            for s in proxy.seen
            if s.kind == "eviction" and not is_rehearsal(s.target)
        ]
        ran.read = [
            (s.at, s.target.partition("?")[0].rpartition("/")[2])
            for s in proxy.seen
            if s.kind == "get pod"
        ]
        self._errors += [RuntimeError(f"in the proxy: {error}") for error in proxy.errors]
        return ran

    def _memory_hindered(self, proxy: Proxy) -> bool:
        asked = [seen for seen in proxy.seen if seen.kind == "memory"]
        return bool(asked) and any(seen.hit for seen in asked[-2:])

    @property
    def _world_hour_before(self) -> int:
        used = self._scenario.has("hour nearly used")
        return BUDGETS["perHour"] - 2 if used else 0

    # -- acts --------------------------------------------------------------------------------------

    def _hook(self, seen: Seen) -> None:
        moment = f"{seen.kind} {seen.number}"
        for act in self._scenario.acts:
            if act.moment == moment and act.name not in self._acted:
                if act.later:
                    self._begin(act, act.later)
                else:
                    self._do(act)

    def _begin(self, act: Act, seconds: float) -> None:
        """Do it after so many seconds, beside everything else."""
        if act.name in self._acted:
            return
        self._acted[act.name] = time.time() + seconds

        def wait_and_do() -> None:
            if not self._done.wait(seconds):
                self._do(act)

        thread = threading.Thread(target=wait_and_do, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _do(self, act: Act) -> None:
        try:
            if act.name in _PROCESS_ACTS:
                self._disturb(act)
            else:
                self._world.do(act)
        except Exception as error:  # noqa: BLE001 - raised where the run is waited for
            self._errors.append(error)
        self._acted[act.name] = time.time()

    def _disturb(self, act: Act) -> None:
        while self._main is None:  # its first request may come before its start has returned
            time.sleep(0.01)
        match act.name:
            case "SIGTERM" | "SIGKILL":
                self._main.signal(signal.Signals[act.name])
            case str(name) if name == ENOUGH:
                self._main.signal(signal.SIGTERM)
            case "SIGSTOP":
                self._main.stop_for(act.amount)
            case "stderr gone":
                self._main.leave()
            case "rival":
                self._rival()
            case _:
                pass

    def _rival(self) -> None:
        """Let another run try until it has the Lease, or the first one has ended."""
        tries = _RIVAL_TRIES if self._scenario.long else 1
        for _ in range(tries):
            proxy = self._proxy(Script(), lambda _: None)
            rival = self._start("storm-rival", proxy, self._scenario.rival_deadline)
            self._rivals.append(rival)
            while not rival.ended and not any(s.kind == "list pods" for s in proxy.seen):
                time.sleep(0.05)
            # It reads the cluster: it has the Lease.
            if not rival.ended or self._main is None or self._main.ended:
                return
            time.sleep(_RIVAL_PAUSE)

    # -- afterwards --------------------------------------------------------------------------------

    def _clean_runs(self) -> tuple[int, list[int | None], list[str]]:
        """Run without faults until the end state is there.

        Return the evictions, the exit codes, and the nodes that were marked after the first of these runs.
        """
        codes: list[int | None] = []
        marked = self._world.marked()
        for _ in range(_CLEAN_RUNS):
            if self._world.zones() == self._world.expected and (codes or not marked):
                break
            self._world.forget()
            proxy = self._proxy(Script(), lambda _: None)
            process = self._start("storm-main", proxy, _CLEAN_DEADLINE)
            codes.append(process.wait(_LONGEST).code)
            if len(codes) == 1:
                marked = self._world.marked()
            self._world.calm()
        evicted = self._ground.audit.read().evicted
        return sum(eviction.answered for eviction in evicted), codes, marked

    def _catch_up(self, evicted: list[Evicted]) -> None:
        until = time.monotonic() + 5
        while time.monotonic() < until:
            if self._ground.recorder.caught_up(
                {eviction.uid for eviction in evicted if eviction.answered}
            ):
                break
            time.sleep(0.05)


def _uid(body: bytes) -> str:
    try:
        options = json.loads(body).get("deleteOptions") or {}
        return str((options.get("preconditions") or {}).get("uid", ""))
    except ValueError:
        return ""
