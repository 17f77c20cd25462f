"""What must hold of machines and nodes, whatever happens: each a function from a record to what violates it.

They use what the witnesses saw; of what the product says, only what is to be held against that.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tests.e2e.instance_metadata import NOTHING
from tests.storm.invariants import nothing_raw_in
from tests.storm.machines.deeds import OTHERS, group_in
from tests.storm.machines.ground import NOTICE, OPT_OUT, OTHER, SCALE_IN
from tests.storm.machines.network import PORT
from tests.storm.machines.record import Record
from tests.storm.machines.scenario import CLOCKS, OURS, SCALING, TIME_PASSES
from tests.storm.machines.surges import SURGE_INVARIANTS
from tests.storm.witnesses import Ran

NEWS = 3.0
"""Seconds after which the product must know what a single read says: its last look is not longer ago."""
TERM_GRACE = 1.0
"""Seconds after SIGTERM within which the last call that ends something may arrive."""
EXIT_GRACE = 12.0
"""Seconds after its time, or after SIGTERM, within which a process must have ended."""
SKEW = 30.0
"""Seconds by which our clock may be wrong: `safety.maxClockSkew` of each scenario's policy."""
DELAY = 110.0
"""Seconds for which a machine is not ended while somebody asks for a delay: two minutes, as Cluster Autoscaler has it."""
REFUSED = 300
STARVED, STARVED_SERVING = 4.0, 15.0
"""Seconds that the machine may keep a process from running before it is asked for nothing more in its time; what serves gets them back."""
MIN_EXCLUDED = 10.0
"""Seconds for which a node must be excluded from load balancers before its machine is ended."""
ENOUGH = 4
"""Machines that the pods of a scale-out need: three pods on each."""
EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"
IN_TIME = 3.0
"""Seconds before its machine goes by which a node must be closed."""
GIVES_BACK = 8.0
"""Seconds after which a node must be open that pods wait for."""
MOST_CLOSINGS = 2
"""How often a node may be closed within one scenario, however often an announcement comes and goes."""
SENT_WITHIN = 5.0
"""Seconds within which the request must come that a node's record speaks of."""
HARMLESS: Mapping[str, set[str]] = {
    "scale-out": {"no capacity", "tenant's autoscaler", TIME_PASSES},
    "scale-in": {
        "tenant's autoscaler",
        "one group chosen",
        "two pods are left",
        "one group in two zones",
    },
    "drain": {"kubelet is gone"},
    "interruption": {"message of another account"},
}
"""Duty -> what may happen beside it, and it gets done all the same."""
_HARMLESS_FAULTS = {("scale-in", "eviction", "429 Retry-After 1")}
"""Duty, kind of request and fault: machines that are empty already are ended all the same."""
_FIREWALLS = "ec2:ModifyNetworkInterfaceAttribute"
_TARGETS = ("elasticloadbalancing:RegisterTargets", "elasticloadbalancing:DeregisterTargets")
_SLOW = "elasticloadbalancing:DescribeTargetHealth"
_OUR_FAULT, _USAGE = 1, 2

Invariant = Callable[[Record], Iterator[str]]


def empty_machines_only(record: Record) -> Iterator[str]:
    """(a) No machine is ended that has a pod: neither by the cloud nor by the provider of `replace`."""
    for deed in record.endings():
        node = record.node_of_instance(deed.machine, deed.at)
        if node is not None:
            yield from _pods_left(record, node, deed.at, deed.what)
    for hooked in record.hooked:
        node = record.node_named(hooked.node, hooked.at)
        if node is not None:
            yield from _pods_left(record, node, hooked.at, "the hook")


def _pods_left(record: Record, node: Mapping[str, Any], at: float, what: str) -> Iterator[str]:
    name = node["metadata"]["name"]
    before = record.pods_on(name, at - NEWS)
    for uid, pod in record.pods_on(name, at).items():
        if uid in before:
            yield f"{what}: {pod['metadata']['name']} had been on {name} for more than {NEWS:g} s"


def protected_stay(record: Record) -> Iterator[str]:
    """(b) What was protected before the call left, or must stay, is not ended."""
    for deed in record.endings():
        node = record.node_of_instance(deed.machine, deed.at)
        if node is None:
            continue
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        since = record.ground.protected.get(uid)
        known = max(deed.at - NEWS, _looked_at(record, name, deed.at))
        if since is not None and since < known and deed.what == "ends":
            yield f"{name} was ended {deed.at - since:.1f} s after a person protected it"
        if name in record.ground.kept:
            yield f"{name} was ended, whose pod has to stay"
        delayed = record.ground.delayed
        if delayed is not None and delayed < known and deed.at < delayed + DELAY:
            yield f"{name} was ended {deed.at - delayed:.1f} s after a delay was asked for"


def _looked_at(record: Record, node: str, before: float) -> float:
    """Return when the product has read or written a node last, by the audit log."""
    requests = (r for r in record.requests if r.resource == "nodes" and r.name == node)
    return max((at for r in requests if (at := r.at.timestamp()) < before), default=0.0)


def ours_only(record: Record) -> Iterator[str]:
    """(c) No call is about a group or an instance that the policy does not reach, or that was not announced."""
    for deed in record.deeds:
        machine, ends = deed.machine, deed.what == "ends" and deed.by != OTHERS
        known = record.ground.victims | record.ground.kept
        # Of a group under replacement new machines go, too, which a later rule counts, and what others add may go.
        if ends and machine not in known and not (record.ground.groups or record.ground.shifts):
            yield f"{machine} was ended, which is no machine of the policy's groups"
        groups = record.ground.bounds.keys() | record.ground.groups.keys()
        if deed.what == "resizes" and deed.group not in groups:
            yield f"{deed.group} was resized"
        if deed.what == "lets go" and machine not in record.ground.instances:
            yield f"{machine} was let go, which was not announced"
        reach = record.ground.reach.get(deed.by)
        if reach is not None and ends and deed.group not in reach:
            yield f"{machine} was ended by the release {deed.by}, whose group it is not"


def writes_on_its_own(record: Record) -> Iterator[str]:
    """(t) Of two releases each changes the nodes of its own groups only."""
    for request in record.requests if record.ground.reach else ():
        if request.kind != ("patch", "", "nodes") or request.code >= REFUSED:
            continue
        release = OTHER if request.user.endswith(OTHER) else "main"
        node = record.node_named(request.name, request.at.timestamp())
        group = group_in(node) if node else ""
        if group and group not in record.ground.reach[release]:
            yield f"{request.name} of {group} was changed by the release {release}"


def same_machine(record: Record) -> Iterator[str]:
    """(d) What has come under the name of another is another: it is not closed, emptied, ended."""
    replaced = record.ground.replaced
    for hooked in record.hooked:
        if hooked.uid in replaced:
            yield f"the hook was called for {hooked.node}, which had come under that name"
    evicted = {request.name: request for request in (*record.evictions(), *record.deletions())}
    for uid, since in replaced.items():
        node = next((n for n in record.nodes if n["metadata"]["uid"] == uid), None)
        if node is None or (record.scenario.duty == "drain" and since < record.runs[0].started):
            # Whoever had the name when the drain was asked for is meant.
            continue
        name = node["metadata"]["name"]
        if node["spec"].get("unschedulable") and name not in record.ground.cordoned:
            yield f"{name} was cordoned though it is another machine than the one that was to go"
        for pod in record.objects("Pod", record.ended).values():
            request = evicted.get(pod["metadata"]["name"])
            late = request is not None and request.at.timestamp() > since + NEWS
            if late and pod["spec"].get("nodeName") == name:
                yield f"{pod['metadata']['name']} was taken off {name}, which is another machine"


def above_the_minimum(record: Record) -> Iterator[str]:
    """(e) No group falls below its minimum; of one that is increased first :mod:`.surges` counts."""
    gone = Counter(deed.group for deed in record.endings(of_hooks=False))
    for group, (begun, least) in record.ground.bounds.items():
        shift = record.ground.shifts.get(group, 0)
        if begun + max(0, shift) - gone[group] < least:
            yield f"{gone[group]} of {begun} machines of {group} were ended, {least} must be left"
        if record.sizes.get(group, least) < least + min(0, shift):
            yield f"{group} has the size {record.sizes[group]}"


def with_the_lease(record: Record) -> Iterator[str]:
    """(f) Nothing is ended without the Lease, nor after the signal."""
    for deed in record.endings():
        runs = _runs_of(record, deed.by)
        for ran in runs:
            if ran.started <= deed.at <= (ran.ended or deed.at):
                yield from _late(ran, deed.at, deed.what)
        if record.ground.groups:
            # The note on the group says whose it is: the Lease is held only while pods move.
            continue
        holder = record.holder(deed.at, deed.by)
        if not any(holder.startswith(ran.identity) for ran in runs):
            yield f"{deed.machine} was ended while {holder or 'no process'} held the Lease"
    for hooked in record.hooked:
        for ran in record.runs:
            if ran.started <= hooked.at <= (ran.ended or hooked.at):
                yield from _late(ran, hooked.at, "the hook")


def _runs_of(record: Record, release: str) -> list[Ran]:
    """Return the processes of one of two releases, or all if there is one."""
    every = [*record.runs, *record.clean]
    if not record.ground.reach:
        return every
    return [ran for ran in every if ran.identity.endswith(OTHER) == (release == OTHER)]


def _late(ran: Ran, at: float, what: str) -> Iterator[str]:
    if ran.terms and at > ran.terms[0] + TERM_GRACE:
        yield f"{what} came {at - ran.terms[0]:.1f} s after SIGTERM"


def once(record: Record) -> Iterator[str]:
    """(g) One decision ends one machine once."""
    for instance, count in Counter(deed.machine for deed in record.endings()).items():
        if count > 1:
            yield f"{instance} was ended {count} times"
    again = any(ran.killed for ran in record.runs)
    for uid, count in Counter(hooked.uid for hooked in record.hooked if hooked.uid).items():
        if count > 1 and not again:
            yield f"the hook was called {count} times for the node of uid {uid}"


def deletes_as_documented(record: Record) -> Iterator[str]:
    """(h) No pod is deleted but by `escalate`: on the announced machine, at its time, not against a withdrawal."""
    for request in record.deletions():
        at = request.at.timestamp()
        if record.scenario.duty != "escalate":
            yield f"{request.name} was deleted"
            continue
        pod = _pod_named(record, request.name)
        node = pod["spec"].get("nodeName", "") if pod else ""
        deadline = record.ground.deadline or 0.0
        if node not in record.ground.victims:
            yield f"{request.name} on {node} was deleted, which was not announced to go"
        if at < deadline - 3.0 - _behind(record):
            yield f"{request.name} was deleted {deadline - at:.1f} s before the machine goes"
        withdrawn = record.ground.withdrawn
        if withdrawn is not None and at > withdrawn + NEWS:
            yield f"{request.name} was deleted {at - withdrawn:.1f} s after the withdrawal"


def opt_outs_hold(record: Record) -> Iterator[str]:
    """(i) A pod that opted out is not evicted, and its machine not ended."""
    names = {
        pod["metadata"]["name"]: record.ground.opted_out[uid]
        for uid, pod in record.objects("Pod", record.ended).items()
        if uid in record.ground.opted_out
    }
    for request in record.evictions():
        since = names.get(request.name)
        if since is not None and request.at.timestamp() > since + NEWS:
            yield f"{request.name} was evicted {request.at.timestamp() - since:.1f} s after {OPT_OUT}"


def not_named_untouched(record: Record) -> Iterator[str]:
    """(j) Of whom only old, forged or wrong announcements speak, nothing is closed or emptied."""
    closed = {
        change.name
        for change in record.changes
        if change.kind == "Node" and change.object["spec"].get("unschedulable")
    }
    for name in sorted(record.ground.not_named & closed):
        yield f"{name} was cordoned"
    for request in record.evictions():
        pod = _pod_named(record, request.name)
        if pod and pod["spec"].get("nodeName") in record.ground.not_named:
            yield f"{request.name} was evicted from {pod['spec']['nodeName']}"


def capacity_given_back(record: Record) -> Iterator[str]:
    """(k) Afterwards no node stays closed by us without a record of why, and none while pods wait."""
    if record.scenario.duty not in SCALING:
        return
    for node in record.nodes:
        name = node["metadata"]["name"]
        annotations = node["metadata"].get("annotations") or {}
        ours = [k for k in annotations if k.startswith("rebalancer/")]
        tainted = [
            t["key"] for t in node["spec"].get("taints", ()) if t["key"].startswith("rebalancer/")
        ]
        if tainted and not ours:
            yield f"{name} has the taints {tainted} and no record"
        if not node["spec"].get("unschedulable") or name in record.ground.cordoned:
            continue
        if not ours:
            yield f"{name} is cordoned, and nothing says by whom"
        elif record.pending and name not in record.ground.kept:
            yield f"{name} stays closed while {record.pending} pods wait"
    if _is_undisturbed(record):
        yield from _not_given_back_in_time(record)


def _not_given_back_in_time(record: Record) -> Iterator[str]:
    """Yield the nodes that scale-in still drained at the end of the runs with faults, although pods had waited for long."""
    then = record.ended - GIVES_BACK
    before, after = (record.objects("Pod", at) for at in (then, record.ended))
    waits = [u for u, pod in after.items() if not pod["spec"].get("nodeName") and u in before]
    waits = [uid for uid in waits if not before[uid]["spec"].get("nodeName")]
    drained = [_drained(record, at) for at in (then, record.ended)]
    for name in sorted(drained[0] & drained[1] - record.ground.kept) if waits else ():
        yield f"{name} is drained while {len(waits)} pods have waited for {GIVES_BACK:g} s"


def _drained(record: Record, at: float) -> set[str]:
    """Return the names of nodes that are closed and that scale-in drains, by its record."""
    return {
        node["metadata"]["name"]
        for node in record.objects("Node", at).values()
        if node["spec"].get("unschedulable") and _phase(node) == "leaving"
    }


def _phase(node: Mapping[str, Any]) -> str:
    text = (node["metadata"].get("annotations") or {}).get(SCALE_IN, "")
    try:
        return str(json.loads(text).get("phase", ""))
    except ValueError:
        return ""


def people_keep_theirs(record: Record) -> Iterator[str]:
    """(l) What a person cordoned stays cordoned, and what people want empty stays closed."""
    for node in record.nodes:
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        theirs = name in record.ground.cordoned and uid not in record.ground.replaced
        if theirs and not node["spec"].get("unschedulable"):
            yield f"{name} was uncordoned, which a person had cordoned"
        if name in record.ground.wanted_empty and not node["spec"].get("unschedulable"):
            yield f"{name} was uncordoned, which people want empty"


def says_what_was_done(record: Record) -> Iterator[str]:
    """(m) Each machine that was ended is named in a report, and each that a report names was ended."""
    if record.scenario.duty not in SCALING or any(ran.killed for ran in record.runs):
        return
    acts = [
        act
        for ran in (*record.runs, *record.clean)
        for report in ran.reports
        for act in report["machines"]
    ]
    named = {act.get("node") for act in acts}
    claimed = {a["node"] for a in acts if a["code"] == "Terminated" and a.get("status") == "done"}
    ended = {deed.machine for deed in record.endings()}
    for instance in sorted(ended - named):
        yield f"{instance} was ended, and no report names it"
    for name in sorted(claimed - ended):
        yield f"a report says that {name} was ended, which was not"


def exits(record: Record) -> Iterator[str]:
    """(n) Never exit 1, never a traceback or a token, and an end in time."""
    for ran in (*record.runs, *record.clean):
        if ran.code == _OUR_FAULT or ((ran.code or 0) < 0 and not ran.killed):
            yield f"{ran.identity} exited with {ran.code}: {ran.err.strip()[-200:]}"
        if ran.code == _USAGE:
            yield f"{ran.identity} refused its arguments: {ran.err.strip()[-200:]}"
        if ran.code is None:
            yield f"{ran.identity} did not end, and was killed"
        yield from nothing_raw_in(ran, record.secrets)
        if ran.terms and ran.ended > max(ran.terms[0], ran.continued or 0.0) + EXIT_GRACE:
            yield f"{ran.identity} ended {ran.ended - ran.terms[0]:.1f} s after SIGTERM"


def drained_means_empty(record: Record) -> Iterator[str]:
    """(o) `drain` and `replace` say that all is done only where it is."""
    if record.scenario.duty not in ("drain", "replace"):
        return
    for ran in record.runs:
        if ran.code != 0:
            continue
        for name in record.ground.victims:
            node = record.node_named(name, ran.ended)
            if node is None or node["metadata"]["uid"] in record.ground.replaced:
                continue
            if left := record.pods_on(name, ran.ended):
                yield f"{ran.identity} exited with 0, {len(left)} pods are on {name}"
            elif record.scenario.duty == "replace":
                yield f"{ran.identity} exited with 0, and {name} is still there"


def _behind(record: Record) -> float:
    """Return by how many seconds our clock may be wrong and still count as right (safety.maxClockSkew)."""
    wrong = max((act.amount for act in record.scenario.acts if act.name in CLOCKS), default=0.0)
    return wrong if wrong <= SKEW else 0.0


def agent_keeps_to_its_notice(record: Record) -> Iterator[str]:
    """(p) A node agent writes the notice of its own node and nothing else, and what it says is what the metadata say."""
    if record.scenario.duty != "agent":
        return
    for request in record.requests:
        if request.verb in ("create", "update", "patch", "delete") and (
            request.kind != ("patch", "", "nodes") or request.name != "n-a"
        ):
            yield f"it asked for {request.verb} of {request.resource} {request.name}"
    notes = {
        node["metadata"]["name"]: (node["metadata"].get("annotations") or {}).get(NOTICE)
        for node in record.nodes
    }
    if notes.get("n-b"):
        yield "n-b has a notice, whose machine nobody announced"
    announced = record.ground.says != NOTHING
    if announced and not notes.get("n-a"):
        yield "the metadata announce that n-a goes, and it has no notice"
    if not announced and notes.get("n-a"):
        yield f"n-a has the notice {notes['n-a']}, and the metadata announce nothing"


def gets_done(record: Record) -> Iterator[str]:
    """(q) What nothing hinders gets done: machines are ended or added, nodes emptied, hooks answered."""
    scenario = record.scenario
    if not _is_undisturbed(record):
        return
    harmless = HARMLESS.get(scenario.duty, set())
    if scenario.has(TIME_PASSES):
        harmless = harmless | {"zone lost", "no node may be lost", "same tags elsewhere"}
    if {act.name for act in scenario.acts} - harmless:
        return
    if scenario.duty == "scale-out" and (left := _waiting(record)):
        yield f"{left} pods wait, and groups may grow"
    ended = [deed for deed in record.endings() if deed.at < record.ended]
    if scenario.duty in ("scale-in", "two releases") and not ended:
        yield "no machine was ended"
    if scenario.duty in ("drain", "replace", "surge") and record.runs[0].code != 0:
        yield f"it exited with {record.runs[0].code}: {record.runs[0].err.strip()[-200:]}"
    if scenario.duty == "interruption" and not any(deed.what == "lets go" for deed in record.deeds):
        yield "the hook was not answered"
    if scenario.duty == "detach" and record.network.targets:
        yield f"the machine still gets requests: {sorted(record.network.targets)}"


def _waiting(record: Record) -> int:
    """Return how many pods wait; in the end, where it takes a quarter of an hour to know that a group is another cluster's."""
    if record.scenario.amount(TIME_PASSES, "clean"):
        return record.pending
    pods = record.objects("Pod", record.ended).values()
    return sum("nodeName" not in pod["spec"] for pod in pods)


def _is_undisturbed(record: Record) -> bool:
    """Return whether no request fails in a way that matters, and the process has its time."""
    scenario = record.scenario
    faults = {(scenario.duty, fault.kind, fault.name) for fault in scenario.faults}
    if faults - _HARMLESS_FAULTS or any(fault.call != _SLOW for fault in scenario.cloud):
        return False
    if any(act.name in OURS for act in scenario.acts):
        return False
    return all(
        ran.starved_since(ran.clock_started) <= (STARVED_SERVING if ran.serves else STARVED)
        for ran in record.runs
    )


def load_balancers_are_told(record: Record) -> Iterator[str]:
    """(r) Before a machine is ended, load balancers have had the time to leave it out."""
    if record.scenario.has(*CLOCKS) or record.ground.groups:
        return
    for deed in record.endings(of_hooks=False):
        node = record.node_of_instance(deed.machine, deed.at)
        if node is None:
            continue
        since: float | None = None
        for change in record.changes:
            if change.at <= deed.at and change.uid == node["metadata"]["uid"]:
                shown = EXCLUDE in (change.object["metadata"].get("labels") or {})
                since = (since or change.at) if shown else None
        if since is None or deed.at - since < MIN_EXCLUDED:
            yield f"{node['metadata']['name']} was ended, and load balancers were not told in time"


def nothing_twice(record: Record) -> Iterator[str]:
    """(s) No more machines are asked for than the waiting pods need."""
    if record.scenario.duty != "scale-out" or record.scenario.has("no capacity", "zone lost"):
        return
    enough = ENOUGH + sum(record.ground.shifts.values())
    if (total := sum(record.sizes.values())) > enough:
        yield f"{total} machines are asked for, and {enough} are enough: {dict(record.sizes)}"


def no_other_autoscaler(record: Record) -> Iterator[str]:
    """(u) Nothing is left to another autoscaler: none runs in any scenario, whatever a tenant's pod is called."""
    for ran in (*record.runs, *record.clean):
        for report in ran.reports:
            for act in report.get("machines", ()):
                if " runs here (" in act.get("message", ""):
                    yield f"{ran.identity} left {act.get('node') or act.get('group')} alone: {act['message']}"


def network_is_ours_to_change(record: Record) -> Iterator[str]:
    """(v) Only the announced machine's firewalls and targets are changed, as the policy says, and all is given back."""
    network = record.ground.network
    if network is None:
        return
    may = {network.empty}.union(*network.before.firewalls.values())
    for call in record.calls:
        if call.name == _FIREWALLS:
            asked = {text for key, text in call.form.items() if key.startswith("SecurityGroupId.")}
            interface = call.form.get("NetworkInterfaceId")
            if interface not in network.before.firewalls or asked - may:
                yield f"{interface} got the security groups {sorted(asked)}"
        if call.name in _TARGETS:
            target = call.form["TargetGroupArn"], call.form.get("Targets.member.1.Port", "")
            if target != (network.own, str(PORT)) or "Targets.member.2.Id" in call.form:
                yield f"{call.name} of {target}"
    stays = record.ground.withdrawn is not None and not record.ground.replaced
    if stays and record.network != network.before:
        yield f"the machine stays, and was not given back: {record.network}"


def announced_are_closed(record: Record) -> Iterator[str]:
    """(w) A machine with a time at which it goes waits for none without one: its node is closed before."""
    for name, goes in record.ground.goes.items() if _is_undisturbed(record) else ():
        node = record.node_named(name, goes - IN_TIME)
        if goes < record.ended and node is not None and not node["spec"].get("unschedulable"):
            yield f"{name} was open {IN_TIME:g} s before its machine goes"


def seldom_closed(record: Record) -> Iterator[str]:
    """(x) An announcement that comes and goes has one pipeline run a minute."""
    if "notice flaps" not in record.acted:
        return
    closed, times = False, 0
    for change in record.changes:
        if change.kind == "Node" and change.name == "n-a":
            now = bool(change.object["spec"].get("unschedulable"))
            times, closed = times + (now and not closed), now
    if times > MOST_CLOSINGS:
        yield f"n-a was closed {times} times"


def says_what_it_requests(record: Record) -> Iterator[str]:
    """(y) What stands on a node of a request for the end of its machine is so: the request has come."""
    scenario = record.scenario
    if scenario.faults or scenario.has("forged record", *OURS) or record.ground.replaced:
        return
    sent = {deed.machine for deed in record.endings(of_hooks=False)}
    for change in record.changes:
        if change.kind != "Node" or change.type == "DELETED" or _phase(change.object) != "ending":
            continue
        if change.name not in record.ground.victims:
            # Its machine has left its group: no pod is to come to it, and nothing is requested.
            continue
        late = change.at + SENT_WITHIN
        stopped = any(change.at <= ran.ended <= late for ran in (*record.runs, *record.clean))
        if change.name not in sent and not stopped:
            yield f"{change.name} says since {change.at:.0f} that its end was requested: no request came"
            return


def zones_stay(record: Record) -> Iterator[str]:
    """(z) Of equal machines of a group none goes that is the last of its zone, while another zone has two."""
    zones = record.ground.zones
    gone = {deed.machine for deed in record.endings()}
    left = Counter(zone for machine, zone in zones.items() if machine not in gone)
    for zone in sorted({*zones.values()} - left.keys()):
        if max(left.values(), default=0) > 1:
            yield f"all machines of zone {zone} were ended, and {dict(left)} are left"


INVARIANTS: Mapping[str, Invariant] = {
    "a": empty_machines_only,
    "b": protected_stay,
    "c": ours_only,
    "d": same_machine,
    "e": above_the_minimum,
    "f": with_the_lease,
    "g": once,
    "h": deletes_as_documented,
    "i": opt_outs_hold,
    "j": not_named_untouched,
    "k": capacity_given_back,
    "l": people_keep_theirs,
    "m": says_what_was_done,
    "n": exits,
    "o": drained_means_empty,
    "p": agent_keeps_to_its_notice,
    "q": gets_done,
    "r": load_balancers_are_told,
    "s": nothing_twice,
    "t": writes_on_its_own,
    "u": no_other_autoscaler,
    "v": network_is_ours_to_change,
    "w": announced_are_closed,
    "x": seldom_closed,
    "y": says_what_it_requests,
    "z": zones_stay,
    **SURGE_INVARIANTS,
}


def violations(record: Record) -> Sequence[tuple[str, str]]:
    """Return letter and text of all that was violated."""
    return [(letter, text) for letter, check in INVARIANTS.items() for text in check(record)]


def _pod_named(record: Record, name: str) -> Mapping[str, Any] | None:
    named = [c.object for c in record.changes if c.kind == "Pod" and c.name == name]
    return named[-1] if named else None
