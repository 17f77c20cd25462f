"""The mends that keep machines, nodes and pods, each as the text that undoes it."""

from tests.storm.mends import Mend

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
                "        entered = node.uid == stage.uid and (before == stage or may(node, before))",
                "        entered = before == stage or may(node, before)",
            ),
            (
                "            if node is not None and not done and not self._choice.still_has(node):",
                "            if False:",
            ),
            ("        if node.uid != order.uid:\n            return None\n", ""),
            (
                "    return node if node is not None and node.uid == order.uid else None",
                "    return node",
            ),
            (
                'return None if stage is None or stage.uid not in ("", node.uid) else stage',
                "return stage",
            ),
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
        "a forged record of a source that the policy has not is not resumed",
        "M4",
        [
            (
                "                if cause.source in self._pipeline.sources:",
                "                if True:",
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
)
