"""What must hold, whatever happens: each a function from the record of a scenario to what violates it.

They use what the witnesses saw; of what the product says, only what is to be held against that.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.storm.faults import EFFECTS, MARKING, Fault
from tests.storm.schedule import ENOUGH, Scenario
from tests.storm.witnesses import (
    Change,
    Evicted,
    NodePatch,
    Ran,
    Record,
    is_ending,
    is_ready,
    marks_on,
    taints_of_others,
    taints_on,
)

EXIT_GRACE = 10.0
"""Seconds after the deadline, or after SIGTERM, within which a run must have ended."""
TERM_GRACE = 1.0
"""Seconds after SIGTERM within which the last eviction may be sent."""
FINISHING = 2.0
"""Seconds after both for the rest of a gang of which a pod has left."""
CLOCK_GRACE = 0.3
"""Seconds that the machine may take between a look at the clock and a request."""
START_GRACE = 1.5
"""Seconds by which a run's clock may have started before its first request was seen."""
NEWS = 3.0
"""Seconds after which a run must know what a healthy watch, or a single read, would say."""
STARVED = 3.0
"""Seconds without a processor after which a run's deadline may end it early, whatever went wrong."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_FAILURES = ("failed", "lost", "misconfigured", "refused")
_DONE, _OUR_FAULT, _USAGE, _UNREADABLE = 0, 1, 2, 3

Invariant = Callable[[Record], Iterator[str]]


def planned_only(record: Record) -> Iterator[str]:
    """(a) Evicted uids are in the plan."""
    users = Counter(ran.user for ran in record.runs)
    for ran in record.runs:
        report = ran.report
        if report is None or ran.killed or users[ran.user] > 1:
            continue
        planned = {move["uid"] for move in report["moves"]}
        for eviction in _evicted_by(record, ran):
            if eviction.uid not in planned:
                yield f"{eviction.pod} ({eviction.uid}) is not in the plan"
    apps = _apps(record.changes)
    for eviction in record.evicted:
        app = apps.get(eviction.uid, "")
        if app not in record.expected:
            yield f"{eviction.pod} of {app or 'nothing known'} was evicted, which nothing is gained by"


def one_of_an_owner(record: Record) -> Iterator[str]:
    """(b) Never two unready of one owner through us, never an owner that is already unready."""
    for moment in _moments(record):
        owner = moment.owner
        if owner.ready >= record.desired[owner.name] or _is_gang(owner.name):
            continue
        if owner.ours > 0:
            yield f"{moment.pod}: {owner.ours} of {owner.name} were still to be replaced"
        elif moment.known_since(owner.unready_since):
            yield (
                f"{moment.pod}: {owner.ready} of {record.desired[owner.name]} of {owner.name} were Ready,"
                f" for {moment.received - owner.unready_since:.1f} s"
            )


def budgets_kept(record: Record) -> Iterator[str]:
    """(c) Every budget of the policy, over all runs."""
    most = record.budgets["inFlight"]
    for moment in _moments(record):
        # A gang may begin where one of its pods might go; there are no smaller steps.
        more = record.desired[moment.owner.name] - 1 if _is_gang(moment.owner.name) else 0
        if moment.in_flight + 1 > most + more:
            yield f"{moment.pod}: {moment.in_flight} were in flight, inFlight is {most}"
        if moment.of_node + 1 > record.budgets["perNode"]:
            yield f"{moment.pod}: {moment.of_node} of its node were in flight"
    for user, count in Counter(eviction.user for eviction in record.evicted).items():
        runs = sum(max(1, len(ran.reports)) for ran in record.runs if ran.user == user)
        if count > record.budgets["perRun"] * runs:
            yield f"{count} evictions by {user}, perRun is {record.budgets['perRun']}"
    if record.evicted and record.scenario.has("memory newer", "memory nonsense"):
        yield f"{len(record.evicted)} evictions although the hour's count cannot be read"
    hour = record.hour_before + len(record.evicted)
    if hour > record.budgets["perHour"]:
        yield f"{hour} evictions in the hour, perHour is {record.budgets['perHour']}"


def with_the_lease(record: Record) -> Iterator[str]:
    """(d) No eviction is accepted once another has taken the Lease, even if it has given it back."""
    identities: dict[str, list[str]] = {}
    for ran in record.runs:
        identities.setdefault(ran.user, []).append(ran.identity)
    holder = ""
    evicted = {eviction.uid: eviction for eviction in record.evicted}
    for change in record.changes:
        if change.kind == "Lease":
            holder = str((change.object.get("spec") or {}).get("holderIdentity") or "") or holder
        elif change.kind == "Pod" and is_ending(change) and change.uid in evicted:
            eviction = evicted.pop(change.uid)
            ours = any(holder.startswith(name) for name in identities.get(eviction.user, ()))
            if holder and not ours:
                yield f"{eviction.user} evicted {eviction.pod} after {holder} had taken the Lease"


def in_time(record: Record) -> Iterator[str]:
    """(e) None sent after the deadline, nor more than 1 s after SIGTERM; 2 s more for what is left of a gang."""
    apps = _apps(record.changes)
    for ran in record.runs:
        ends = ran.clock_started + ran.deadline + CLOCK_GRACE
        for at, uid in ran.sent:
            more = FINISHING if _is_gang(apps.get(uid, "")) else 0.0
            if at > ends + more:
                yield f"{ran.identity} asked for {uid} {at - ends:.1f} s after its deadline"
            if ran.terms and at > ran.terms[0] + TERM_GRACE + more:
                yield f"{ran.identity} asked for {uid} {at - ran.terms[0]:.1f} s after SIGTERM"


def ends_in_time(record: Record) -> Iterator[str]:
    """(f) Exit within deadline + 10 s and SIGTERM + 10 s."""
    for ran in record.runs:
        continued = ran.continued or 0.0
        limits = [("its deadline", max(ran.clock_started + ran.deadline, continued))]
        if ran.terms:
            limits.append(("SIGTERM", max(ran.terms[0], continued)))
        for what, begun in limits:
            if ran.ended > begun + EXIT_GRACE + ran.starved_since(begun):
                still = "" if ran.code is not None else ", when it was killed"
                yield f"{ran.identity} ended {ran.ended - begun:.1f} s after {what}{still}"


def says_what_was_done(record: Record) -> Iterator[str]:
    """(g) Evictions in the audit log = evicted + lost in the report = the hour's count."""
    said = 0
    whole = True
    users = Counter(ran.user for ran in record.runs)
    for ran in record.runs:
        done = {eviction.uid for eviction in _evicted_by(record, ran)}
        report = ran.report
        if report is None:
            whole = False
            if ran.reads_out and ran.killed is None and ran.code not in (2, 3) and done:
                yield f"{ran.identity} evicted {len(done)} and wrote no report (exit {ran.code})"
            continue
        outcomes = {move["uid"]: move["outcome"] for move in report["moves"]}
        evicted = {uid for uid, outcome in outcomes.items() if outcome == "evicted"}
        lost = {uid for uid, outcome in outcomes.items() if outcome == "lost"}
        said += len(evicted) + len(lost)
        if users[ran.user] > 1:
            continue
        for uid in sorted(done - evicted - lost):
            yield f"{ran.identity} evicted {uid} and says {outcomes.get(uid, 'nothing')}"
        for uid in sorted(evicted - done):
            yield f"{ran.identity} says that it evicted {uid}, which it did not"
    yield from _hour(record, said if whole else len(record.evicted))


def _hour(record: Record, said: int) -> Iterator[str]:
    if record.memory_hindered:
        if not any(_warns_of_memory(ran) for ran in record.runs if ran.killed is None):
            yield from _counted(record, said)
        return
    yield from _counted(record, said)


def _warns_of_memory(ran: Ran) -> bool:
    report = ran.report
    text = " ".join(report["warnings"]) if report else ran.err
    return "memory" in text or "remember" in text


def _counted(record: Record, said: int) -> Iterator[str]:
    if record.hour_after is None:
        yield "the memory cannot be read after the run"
        return
    counted = record.hour_after - record.hour_before
    waves = sum(ran.killed is not None or ran.code is None for ran in record.runs)
    # What a wave may evict is reserved before it begins; a run that is killed does not give back what it left.
    if not said <= counted <= said + waves * record.budgets["inFlight"]:
        yield f"the hour counts {counted} evictions, {said} were made or lost"


def exit_code(record: Record) -> Iterator[str]:
    """(h) Exit 0 only where nothing failed or was cut; 1 never; 2 and 3 only where nothing was evicted."""
    for ran in record.runs:
        alone = sum(other.user == ran.user for other in record.runs) == 1
        if ran.code == _OUR_FAULT:
            yield f"{ran.identity} exited with 1: {_last_line(ran.err)}"
        if ran.code in (_USAGE, _UNREADABLE) and _evicted_by(record, ran) and alone:
            yield f"{ran.identity} exited with {ran.code}, as if it had evicted nothing"
        if ran.killed is None and ran.code is not None and ran.code < 0:
            yield f"{ran.identity} was ended by signal {-ran.code}"
        if ran.code != _DONE or ran.serves:
            continue
        report = ran.report
        if report is None:
            if ran.reads_out or _evicted_by(record, ran):
                yield f"{ran.identity} exited with 0 and left no report"
            continue
        bad = [move["pod"] for move in report["moves"] if move["outcome"] in _FAILURES]
        if bad:
            yield f"{ran.identity} exited with 0 although it failed with {', '.join(bad)}"
        undone = [m["pod"] for m in report["moves"] if m["outcome"] == "not-attempted"]
        late = ran.ended > ran.clock_started + ran.deadline - START_GRACE
        if undone and (ran.terms or late) and not report["standstill"]:
            why = "SIGTERM" if ran.terms else "its deadline"
            yield f"{ran.identity} exited with 0 although {why} cut off {', '.join(undone)}"


def nothing_raw(record: Record) -> Iterator[str]:
    """(i) No traceback, token or raw control character anywhere."""
    for ran in record.runs:
        yield from nothing_raw_in(ran, record.secrets)
    written = [("what was written into the cluster", text) for text in record.texts]
    yield from _nothing_raw(written, record.secrets)


def nothing_raw_in(ran: Ran, secrets: Sequence[str]) -> Iterator[str]:
    """Yield what stands in the outputs of a process, and must not."""
    texts = [(f"{ran.identity}'s {what}", text) for what, text in _outputs(ran)]
    yield from _nothing_raw(texts, secrets)


def _nothing_raw(texts: Sequence[tuple[str, str]], secrets: Sequence[str]) -> Iterator[str]:
    for where, text in texts:
        if "Traceback (most recent call last)" in text:
            yield f"a traceback in {where}: {_last_line(text)}"
        if any(secret in text for secret in secrets):
            yield f"a token in {where}"
        if match := _CONTROL.search(text):
            yield f"the control character {match[0]!r} in {where}"


def end_state(record: Record) -> Iterator[str]:
    """(j) Afterwards, without faults, it comes to the end state of a run that never had any."""
    for app, zones in record.expected.items():
        if list(record.final.get(app, ())) != list(zones):
            yield f"{app} stands {record.final.get(app)} in the zones instead of {list(zones)}"


def budgets_whole(record: Record) -> Iterator[str]:
    """(k) PodDisruptionBudgets are whole at every event."""
    for moment in _moments(record):
        owner = moment.owner
        least = owner.least
        if least is None or owner.ready - moment.was_ready >= least:
            continue
        by_others = owner.ours == 0 or owner.ready < least
        if by_others and not moment.known_since(owner.unready_since):
            continue  # broken, or used up, by others a moment before: the server had not counted it either
        yield f"{moment.pod}: {owner.ready - 1} of {owner.name} left Ready, {least} must be"


def opt_outs_kept(record: Record) -> Iterator[str]:
    """(l) No pod is evicted that had opted out when the run read it, or had to read it, just before."""
    at = record.acted.get("opt-out")
    if at is None:
        return
    for ran in record.runs:
        for sent, uid in ran.sent:
            name = record.opted_out.get(uid)
            if name is None or sent < at:
                continue
            read = [when for when, pod in ran.read if pod == name and when <= sent]
            if not read or read[-1] > at:
                yield f"{ran.identity} asked for {name} {sent - at:.1f} s after it opted out"


def optional_is_optional(record: Record) -> Iterator[str]:
    """(n) Events or progress that fail, one failed write of the Lease, one broken watch never end a run in part."""
    scenario, main = record.scenario, record.main
    if main.starved_since(0.0) > STARVED:
        return
    spoken = all(act.name.startswith("stderr") or act.name == ENOUGH for act in scenario.acts)
    if not spoken or not all(_does_not_matter(fault, scenario) for fault in scenario.faults):
        return
    if main.code != _DONE or len(record.evicted) < record.least:
        yield f"exit {main.code} after {len(record.evicted)} of {record.least} evictions"


def _does_not_matter(fault: Fault, scenario: Scenario) -> bool:
    if fault.kind == "events" or (fault.kind.startswith("watch ") and scenario.long):
        return True
    # What delays a watch or hides what it would say takes its time.
    once = fault.transient and EFFECTS[fault.name].quick
    return once and (
        fault.kind.startswith("watch ") or (fault.kind == "lease" and fault.phase != "first")
    )


def never_deletes(record: Record) -> Iterator[str]:
    """(m) It deletes and patches nothing but, where it steers, the taints of nodes."""
    if record.deleted:
        yield f"{record.deleted} requests to delete or patch"
    if record.node_patches and not record.scenario.steered:
        yield f"{len(record.node_patches)} patches of nodes by a run that does not steer"


def marks_removed(record: Record) -> Iterator[str]:
    """(o) A run removes its marks, or says that it could not; after SIGKILL the next run removes them."""
    if record.marks_later:
        yield f"after one more run {', '.join(record.marks_later)} were marked"
    if not record.marks_left or any(ran.killed or ran.code is None for ran in record.runs):
        return
    left = ", ".join(record.marks_left)
    if not set(MARKING) & set(record.hit_kinds):
        yield f"{left} were left marked, though every request for it went well"
    if not any(ran.code != _DONE and _warns_of_marks(ran) for ran in record.runs):
        codes = ", ".join(str(ran.code) for ran in record.runs)
        yield f"{left} were left marked without a word of it (exit {codes})"


def _warns_of_marks(ran: Ran) -> bool:
    report = ran.report
    return not ran.reads_out or "mark" in (" ".join(report["warnings"]) if report else ran.err)


def few_marks(record: Record) -> Iterator[str]:
    """(p) No more nodes are marked than the policy says, and no taint of others is touched."""
    nodes: dict[str, Change] = {}
    states: dict[tuple[str, str], Change] = {}
    for change in record.changes:
        if change.kind != "Node":
            continue
        states[change.name, str(change.version)] = change
        nodes[change.name] = change
        if change.type == "DELETED":
            del nodes[change.name]
        marked = [name for name, node in nodes.items() if marks_on(node.object)]
        if len(marked) > record.budgets["marks"]:
            yield f"{', '.join(marked)} are marked, the budget is {record.budgets['marks']}"
    for patch in record.node_patches:
        yield from _touched(patch, states)


def marked_when_evicted(record: Record) -> Iterator[str]:
    """(q) The nodes that an eviction needs marked are marked when it is carried out."""
    needs = {
        move["uid"]: move["marks"]
        for ran in record.runs
        for move in (ran.report or {"moves": ()})["moves"]
        if move["outcome"] == "evicted" and move.get("marks")
    }
    marked: dict[str, bool] = {}
    for change in record.changes:
        if change.kind == "Node":
            marked[change.name] = bool(marks_on(change.object))
        elif change.kind == "Pod" and is_ending(change) and change.uid in needs:
            bare = [node for node in needs.pop(change.uid) if not marked.get(node)]
            if bare:
                yield f"{change.name} was evicted while {', '.join(bare)} had no mark"


def gang_whole(record: Record) -> Iterator[str]:
    """(r) All pods of a gang leave in a run, or none; a part only where a run was killed or hindered, and then it is no success."""
    for ran in record.runs:
        killed = ran.killed is not None or ran.code is None
        hindered = {"eviction", "get pod", "lease"} & {*record.hit_kinds} or _interferes(record)
        left = _left_of_gang(record, ran)
        if left and not killed and (ran.code == _DONE or not hindered):
            yield f"{ran.identity} left {len(left)} of a gang behind (exit {ran.code})"


def _left_of_gang(record: Record, ran: Ran) -> set[str]:
    """Return the pods that were there when a run evicted the first one of a gang, and that stayed until it ended."""
    mine = {eviction.uid for eviction in _evicted_by(record, ran)}
    living: set[str] = set()
    left: set[str] | None = None
    for change in record.changes:
        if change.kind != "Pod" or not _is_gang(_app(change)):
            continue
        if change.at > ran.ended + START_GRACE:
            break
        if not is_ending(change):
            living |= {change.uid} if change.object["spec"].get("nodeName") else set()
            continue
        if left is None and change.uid in mine:
            left = living  # those that come later are no victims
            living = set()
        for pods in (living, left or set()):
            pods.discard(change.uid)
    return left or set()


def _interferes(record: Record) -> bool:
    """Return whether somebody kept a run from going on with a gang."""
    return record.scenario.has("rival", "opt-out", "SIGSTOP", "wrong clock")


def _is_gang(app: str) -> bool:
    return app.startswith("gang-")


def _touched(patch: NodePatch, states: Mapping[tuple[str, str], Change]) -> Iterator[str]:
    """Yield what a patch changes beside marks; ``states``: (node, resourceVersion) -> the node."""
    metadata, spec = patch.body.get("metadata") or {}, patch.body.get("spec") or {}
    version = str(metadata.get("resourceVersion", ""))
    if more := sorted({*metadata} - {"uid", "resourceVersion"} | {*spec} - {"taints"}):
        yield f"{patch.user} changed {', '.join(more)} of node {patch.node}"
    before = states.get((patch.node, version))
    if before is None:
        yield f"{patch.user} patched node {patch.node} as of {version or 'no'} resourceVersion"
    elif taints_of_others(before.object) != taints_of_others(patch.body):
        old, new = taints_on(before.object), taints_on(patch.body)
        yield f"{patch.user} changed the taints of node {patch.node} from {old} to {new}"


INVARIANTS: Mapping[str, Invariant] = {
    "a": planned_only,
    "b": one_of_an_owner,
    "c": budgets_kept,
    "d": with_the_lease,
    "e": in_time,
    "f": ends_in_time,
    "g": says_what_was_done,
    "h": exit_code,
    "i": nothing_raw,
    "j": end_state,
    "k": budgets_whole,
    "l": opt_outs_kept,
    "m": never_deletes,
    "n": optional_is_optional,
    "o": marks_removed,
    "p": few_marks,
    "q": marked_when_evicted,
    "r": gang_whole,
}


def violations(record: Record) -> list[tuple[str, str]]:
    """Return what is violated: the invariant's letter, and how."""
    return [(letter, text) for letter, check in INVARIANTS.items() for text in check(record)]


# -- the history of the pods, as the witnesses saw it ------------------------------------------------


@dataclass
class Owner:
    """An app at one moment."""

    name: str
    ready: int = 0
    ours: int = 0
    """Evicted by us and not yet replaced by a Ready pod."""
    unready_since: float = 0.0
    least: int | None = None
    """Pods that its PodDisruptionBudget wants."""


@dataclass(frozen=True)
class Moment:
    """An eviction, and the state just before it."""

    pod: str
    received: float
    owner: Owner
    was_ready: bool
    in_flight: int
    of_node: int
    started: float
    """When the run began that asked for it."""
    hindered: bool
    """Whether that run may not have seen what changed."""

    def known_since(self, since: float) -> bool:
        """Whether the run had to know at this moment what was so since then."""
        if since <= self.started:
            return True
        return not self.hindered and self.received > since + NEWS


@dataclass
class _Pods:
    """The pods, replayed change by change."""

    desired: Mapping[str, int]
    ready: dict[str, str] = field(default_factory=dict)
    """Uid -> app, of those that are Ready and stay."""
    known: set[str] = field(default_factory=set)
    """Pods that have been Ready once."""
    ours: Counter[str] = field(default_factory=Counter)
    nodes: dict[str, list[str]] = field(default_factory=dict)
    """App -> nodes of those in flight, oldest first."""
    since: dict[str, float] = field(default_factory=dict)

    def owner(self, app: str, least: int | None) -> Owner:
        ready = sum(each == app for each in self.ready.values())
        return Owner(app, ready, self.ours[app], self.since.get(app, 0.0), least)

    def evict(self, app: str, node: str) -> None:
        self.ours[app] += 1
        self.nodes.setdefault(app, []).append(node)

    def take(self, change: Change, app: str) -> None:
        ready = change.type != "DELETED" and is_ready(change.object)
        if ready:
            self.ready[change.uid] = app
        else:
            self.ready.pop(change.uid, None)
        if ready and change.uid not in self.known:
            self.known.add(change.uid)
            if self.ours[app]:
                self.ours[app] -= 1
                self.nodes[app].pop(0)
        count = sum(each == app for each in self.ready.values())
        if count >= self.desired.get(app, 0):
            self.since.pop(app, None)
        else:
            self.since.setdefault(app, change.at)


def _moments(record: Record) -> Iterator[Moment]:
    """Yield the evictions in etcd's order, each with what was so just before it."""
    evicted = {eviction.uid: eviction for eviction in record.evicted}
    pods, budgets = _Pods(record.desired), dict[str, int]()
    for change in record.changes:
        if change.kind == "PodDisruptionBudget":
            budgets[change.name] = int((change.object.get("spec") or {}).get("minAvailable", 0))
        if change.kind != "Pod":
            continue
        app = _app(change)
        eviction = evicted.get(change.uid)
        if eviction is not None and is_ending(change):
            del evicted[change.uid]
            node = str(change.object["spec"].get("nodeName", ""))
            if app in record.desired:
                yield Moment(
                    eviction.pod,
                    eviction.received,
                    pods.owner(app, budgets.get(app)),
                    change.uid in pods.ready,
                    sum(pods.ours.values()),
                    sum(nodes.count(node) for nodes in pods.nodes.values()),
                    _started(record, eviction),
                    record.sight_hindered and eviction.user == record.main.user,
                )
            pods.evict(app, node)
        pods.take(change, app)


def _started(record: Record, eviction: Evicted) -> float:
    begun = [ran.started for ran in record.runs if ran.user == eviction.user]
    return max((at for at in begun if at <= eviction.received), default=0.0)


def _app(change: Change) -> str:
    return str(change.object["metadata"].get("labels", {}).get("app", ""))


def _apps(changes: Sequence[Change]) -> dict[str, str]:
    return {change.uid: _app(change) for change in changes if change.kind == "Pod"}


def _evicted_by(record: Record, ran: Ran) -> list[Evicted]:
    return [eviction for eviction in record.evicted if eviction.user == ran.user]


def _outputs(ran: Ran) -> Sequence[tuple[str, str]]:
    return (("standard output", ran.out), ("standard error", ran.err))


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else ""
