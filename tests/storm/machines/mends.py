"""The mends that keep machines, nodes and pods, each as the text that undoes it."""

from tests.storm.mends import Mend

_BY_NAME = [
    (
        '        if uid not in ("", node.uid):\n            return None\n        write = decide',
        "        write = decide",
    ),
    ('    return node if node is not None and uid in ("", node.uid) else None', "    return node"),
    ('return record if about in ("", node.uid) else None', "return record"),
]
"""Records on nodes are read and written by the node's name, whichever Node has it."""

_ASKED_FIRST = [
    (
        "        now = self._read(group)\n        minimum, _, wanted = _sizes(now)\n        if instance",
        (
            "        if not may_be_sent():\n            return False\n"
            "        now = self._read(group)\n        minimum, _, wanted = _sizes(now)\n        if instance"
        ),
    ),
    (
        "        if not may_be_sent():\n            return False\n        try:\n            self.machines.terminate",
        "        try:\n            self.machines.terminate",
    ),
]
"""Whether a request may be sent is asked before the group is read, which takes its time."""

MENDS: tuple[Mend, ...] = (
    Mend(
        "what has come under the name of a replaced node is no node to replace",
        "M1",
        [
            (
                "        return node if node is not None and node.uid == self.nodes().get(name) else None\n",
                "        return node\n",
            ),
            (
                "return before in after and (phase not in acts or self.is_old(node))",
                "return before in after",
            ),
            ("            if node is None or done or self.is_old(node):", "            if True:"),
            *_BY_NAME,
            ("if node is None or node.uid == self._uids[name]]", "if node is None or True]"),
            (
                "n for n in names if n in there.index and there.uid[there.index[n]] != uids[n]",
                "n for n in names if False",
            ),
        ],
        [1],
    ),
    Mend(
        "a record of which nothing was kept beside the node starts no pipeline",
        "M4",
        [
            (
                "        return [one for one in kept if one.source in self._pipeline.sources]",
                "        return list(shown.causes)",
            )
        ],
        [9],
    ),
    Mend(
        "AWS is asked what became of an instance",
        "M4",
        [('_ENDS = frozenset({"shutting-down", "terminated"})', "_ENDS = frozenset[str]()")],
        [],
    ),
    Mend(
        "an announcement that is over does nothing",
        "M6",
        [
            ("        return latest is not None and now > latest + OVER", "        return False"),
            (
                "    return replace(event, over=sent + seconds) if sent else event",
                "    return event if sent and seconds else event",
            ),
        ],
        [4],
    ),
    Mend(
        "a machine that a hook holds is not let go with pods on it",
        "M7",
        [
            (
                "        return held and urgent is not None and urgent.deadline is None",
                "        return False",
            )
        ],
        [2],
    ),
    Mend(
        "what looks like success is no list of a node's pods",
        "M8",
        [
            ("    if page.kind != _KIND:", "    if False:"),
            ("    if not meta.resource_version:", "    if False:"),
            (
                "    for _ in range(2):\n        left = list_",
                "    for _ in range(1):\n        left = list_",
            ),
        ],
        [8],
    ),
    Mend(
        "who protects a node before its machine is ended keeps it",
        "M11",
        [
            (
                "        if node.annotations.get(key) == value:\n            return f",
                "        if False:\n            return f",
            )
        ],
        [5],
    ),
    Mend(
        "what was announced for a node is not done to the next one of its name",
        "M2",
        [
            *_BY_NAME,
            (
                '        if node is None or one.uid not in ("", node.metadata.uid):\n',
                "        if node is None:\n",
            ),
            (
                "            if not there or not entry.run.uid or entry.run.uid in there:\n",
                "            if True:\n",
            ),
        ],
        [20, 6],
    ),
    Mend(
        "a machine that two nodes name is nobody's",
        "M5",
        [
            (
                'is_it = len(of_it) == 1 and provider_id in ("", of_it[0].spec.provider_id)',
                "is_it = bool(of_it)",
            )
        ],
        [21],
    ),
    Mend(
        "no machine is ended once the process must end",
        "M9",
        [*_ASKED_FIRST, ("_LATEST = 20.0\n", "_LATEST = 2000.0\n")],
        [22],
    ),
    Mend(
        "nodes that the select of scale-in leaves out stay",
        "M10",
        [("    others = none if candidates is None else ~candidates\n", "    others = none\n")],
        [23],
    ),
    Mend(
        "a recommendation to rebalance closes no node",
        "M12",
        [
            (
                "one for event, one in of_nodes if event.kind not in ignored and now < event.over",
                "one for event, one in of_nodes if now < event.over",
            )
        ],
        [24],
    ),
    Mend(
        "few nodes are closed for announcements without a deadline",
        "M12",
        [
            (
                "        return len(self._closed) >= self.most_closed\n",
                "        return len(self._closed) < 0\n",
            )
        ],
        [],
    ),
    Mend(
        "load balancers are told before a machine is ended",
        "M17",
        [
            (
                'labels = {EXCLUDE: "true"} if task.wants.exclude and EXCLUDE not in node.labels else {}',
                "labels = {}",
            )
        ],
        [19],
    ),
    Mend(
        "whoever asks for a delay of the end of a machine gets it",
        "M18",
        [("        if key.startswith(_DELAYS):\n", "        if False:\n")],
        [26],
    ),
    Mend(
        "a machine whose agent is not ready is an upcoming one",
        "M19",
        [("self._startup = frozenset(startup_taints)", "self._startup = frozenset()")],
        [27],
    ),
    Mend(
        "a tenant's pod is no autoscaler",
        "M20",
        [("        if not _is_of_system(cls):\n", "        if False:\n")],
        [28],
    ),
    Mend(
        "each release writes on the nodes of its own groups only",
        "M21",
        [
            (
                "        return differs and not self.is_past(state.at, 2 * longest)\n",
                "        return False\n",
            )
        ],
        [12],
    ),
    Mend(
        "what a newer version has written is left as it is",
        "M30",
        [
            (
                "    if state is None and text is not None and not is_of_open_node(text):\n",
                "    if False:\n",
            )
        ],
        [29],
    ),
    Mend(
        "what a node says of its steps is a copy for people",
        "M3",
        [
            (
                "left=pipeline.kept.of(client, machine, name) if apart else record.kept_data(name),",
                "left=record.kept_data(name),",
            ),
            (
                "                self._take_left(there, self._changing)\n",
                "                self.state = self._join(there)\n",
            ),
        ],
        [30],
    ),
    Mend(
        "a machine with a deadline waits for none without one",
        "M13",
        [
            (
                "{pool: policy.at_once - taken[pool] for pool in Pool}",
                "{pool: policy.at_once - sum(taken.values()) for pool in Pool}",
            )
        ],
        [32],
    ),
    Mend(
        "time of each run is kept for machines",
        "M14",
        [
            (
                "    if scaling is None or not scaling.awaits_end:\n        return run.stop\n",
                "    if True:\n        return run.stop\n",
            )
        ],
        [33],
    ),
    Mend(
        "to give back is never suspended",
        "M15",
        [("            gives_back=asked,\n", "            gives_back=False,\n")],
        [34],
    ),
    Mend(
        "a lost zone does not hold back machines",
        "M16",
        [('skew, self._reading.history, moves=scales != "out"', "skew, self._reading.history")],
        [35],
    ),
    Mend(
        "who lets go of a cordon hands it over",
        "M22",
        [
            (
                "(NodeChange(annotations=heir) for heir in _heirs(node, holder, claims)), NodeChange()",
                "iter(()), NodeChange()",
            ),
            (
                "    return node.unschedulable and handed == NodeChange() and is_wanted_closed(node, holder)",
                "    return bool(handed) and False",
            ),
        ],
        [36],
    ),
    Mend(
        "a machine leaves one target group after the other",
        "M23",
        [
            (
                (
                    "        left = sorted(\n            groups,\n"
                    "            key=lambda end: context.instance not in self._members.get(groups[end], frozenset()),\n        )\n"
                ),
                (
                    "        for arn in groups.values():\n            _targets(leaving._balancers, arn)\n"
                    "        left = sorted(groups)\n"
                ),
            )
        ],
        [31],
    ),
    Mend(
        "an announcement that flaps has one pipeline run a minute",
        "M24",
        [
            (
                "        return pool is Pool.STAYS or now - self._begun.get((machine, pool), -math.inf) >= PACE\n",
                "        return bool(machine and pool and now)\n",
            )
        ],
        [37],
    ),
    Mend(
        "a group whose machines are no nodes is another cluster's",
        "M25",
        [("        return 0 < self.unknown_since <= now - STARTUP\n", "        return False\n")],
        [],
    ),
    Mend("the group is read before the end is noted", "M26", _ASKED_FIRST, [39]),
    Mend(
        "machines that do not exist are none to spare",
        "M27",
        [
            ("machines := min(wanted, left)", "machines := wanted"),
            (
                "    return min(group.desired, len(group.instances)) - group.minimum\n",
                "    return group.desired - group.minimum\n",
            ),
        ],
        [40],
    ),
    Mend(
        "of equal nodes those go of the zone that has the most",
        "M28",
        [
            (
                "            standing[node] = zones[self._zone(node)]\n",
                "            standing[node] = 0\n",
            )
        ],
        [41],
    ),
    Mend(
        "what people want empty stays closed",
        "M29",
        [
            (
                "_WISHES = frozenset({DRAIN, LEAVE, NOTICE, STATE})",
                "_WISHES = frozenset({DRAIN, NOTICE, STATE})",
            )
        ],
        [42],
    ),
    Mend(
        "people who drain may not delete pods",
        "M31",
        [
            (
                "    verbs: [get, patch]\n  - apiGroups: [apps]\n    resources: [daemonsets]",
                (
                    '    verbs: [get, patch]\n  - apiGroups: [""]\n    resources: [pods]\n    verbs: [delete]\n'
                    "  - apiGroups: [apps]\n    resources: [daemonsets]"
                ),
            ),
            ("{{- if and .Values.nodeAgent.admissionPolicy (semver", "{{- if and false (semver"),
        ],
        [],
    ),
    Mend(
        "only messages of this account and region count",
        "M32",
        [
            (
                "        return event.region in regions and event.account in accounts\n",
                "        return bool(regions and accounts)\n",
            )
        ],
        [43],
    ),
    Mend(
        "a machine that has left its group is not ended",
        "M32",
        [("        if instance not in now.instances:\n            return False\n", "")],
        [44],
    ),
    Mend(
        "the rights that change security groups name them",
        "M32",
        [
            (
                "arn:aws:ec2:REGION:ACCOUNT:security-group/GROUP-OF-NODES",
                "arn:aws:ec2:REGION:ACCOUNT:security-group/*",
            )
        ],
        [],
    ),
    Mend(
        "pods of a kubelet that is gone are not waited for",
        "M33",
        [
            (
                "{ref for ref, seconds in pods.overdue.items() if seconds > longest}",
                "{ref for ref in pods.overdue if not longest}",
            )
        ],
        [45],
    ),
    Mend(
        "an old node is closed only where its zone has more useful ones than at the start",
        "S1",
        [("        if have > need:\n", "        if have > 0:\n")],
        [48],
    ),
    Mend(
        "processes that a replacement has suspended are resumed",
        "S2",
        [("        self._machines.resume(at.group, suspended)\n", "")],
        [48],
    ),
    Mend(
        "single replicas leave by a restart in replacements, too",
        "S3",
        [
            (
                "            single_replicas=given.method.single_replicas, unevictable=given.method.unevictable\n",
                "            unevictable=given.method.unevictable\n",
            )
        ],
        [48],
    ),
    Mend(
        "surplus machines end, and a group gets its size back",
        "S4",
        [
            (
                "        if at.desired <= target:\n            return self._finish(at)\n",
                "        if at.desired <= target + 1:\n            return self._finish(at)\n",
            )
        ],
        [48],
    ),
    Mend(
        "new machines come before old ones end",
        "S5",
        [
            (
                "        if at.desired < want:\n            return self._increase(at, want)\n",
                "        if False:\n            return self._increase(at, want)\n",
            ),
            (
                "        if name not in self._more and at.desired - len(going) <= at.target:\n",
                "        if False:\n",
            ),
            ("        if have > need:\n", "        if have > 0:\n"),
        ],
        [48],
    ),
    Mend(
        "a replacement whose note is gone is not begun anew",
        "S6",
        [("        if self._note.was_removed(group):\n", "        if False:\n")],
        [52],
    ),
)
