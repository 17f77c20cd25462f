"""The mends that keep machines, nodes and pods, each as the text that undoes it."""

from tests.storm.mends import Mend

_BY_NAME = [
    (
        '        if uid not in ("", node.uid):\n            return None\n        write = decide',
        "        write = decide",
    ),
    (
        '    return node if node is not None and uid in ("", node.uid) else None',
        "    return node",
    ),
    (
        'return record if about in ("", node.uid) else None',
        "return record",
    ),
]
"""Records on nodes are read and written by the node's name, whichever Node has it."""

MENDS: tuple[Mend, ...] = (
    Mend(
        "what has come under the name of a replaced node is no node to replace",
        "M1",
        [
            (
                "        return node if node is not None and node.uid == self._uids[name] else None\n\n    def _leave_out",
                "        return node\n\n    def _leave_out",
            ),
            (
                "return before in after and (phase not in acts or self._choice.still_has(node))",
                "return before in after",
            ),
            (
                "            if node is not None and not done and not self._choice.still_has(node):",
                "            if False:",
            ),
            *_BY_NAME,
            (
                "if node is None or node.uid == self._uids[name]]",
                "if node is None or True]",
            ),
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
        "an announcement that is over does nothing",
        "M6",
        [
            (
                "        return latest is not None and now > latest + OVER",
                "        return False",
            )
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
        _BY_NAME,
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
        [
            (
                "        now = self._read(group)\n        minimum, _, wanted = _sizes(now)\n        if instance",
                (
                    "        if not may_be_sent():\n            return False\n"
                    "        now = self._read(group)\n        minimum, _, wanted = _sizes(now)\n        if instance"
                ),
            ),
            (
                "        if not may_be_sent():\n            return False\n        self.machines.terminate",
                "        self.machines.terminate",
            ),
        ],
        [22],
    ),
    Mend(
        "nodes that the select of scale-in leaves out stay",
        "M10",
        [
            (
                "    others = np.zeros_like(known) if candidates is None else ~candidates\n",
                "    others = np.zeros_like(known)\n",
            )
        ],
        [23],
    ),
    Mend(
        "a recommendation to rebalance closes no node",
        "M12",
        [
            (
                "        return event.kind not in self._params.ignore_kinds and self._around.unix() < event.over",
                "        return self._around.unix() < event.over",
            )
        ],
        [24],
    ),
    Mend(
        "load balancers are told before a machine is ended",
        "M17",
        [
            (
                'labels = {EXCLUDE: "true"} if fresh and EXCLUDE not in node.labels else {}',
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
                "            case Phase.UNNEEDED | Phase.FAILED if removal.code is RemovalCode.NO_GROUP:\n",
                "            case Phase.UNNEEDED | Phase.FAILED if False:\n",
            ),
            (
                '        return live and "" not in (ours, state.release) and state.release != ours\n',
                "        return live and False\n",
            ),
        ],
        [12],
    ),
    Mend(
        "what a newer version has written is left as it is",
        "M30",
        [("    if state is None and SCALE_IN in node.annotations:\n", "    if False:\n")],
        [29],
    ),
)
