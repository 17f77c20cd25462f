"""What keeps machines of Cluster API, each as the text that undoes it, with the seed that shows it then."""

from tests.storm.mends import Mend

MENDS: tuple[Mend, ...] = (
    Mend(
        "the Machine that is to end is marked, so that its MachineSet ends no other",
        "K1",
        [('        self._set_mark(self.machine, f"{OURS} {self._claims[-1]}")\n', "")],
        [1, 0],
    ),
    Mend(
        "a group is decreased once, also where the answer was lost",
        "K2",
        [
            (
                (
                    "        if self._is_lowered(owner):\n"
                    "            return None  # the answer was lost\n"
                    "        if not self._is_mine(owner):\n"
                    '            raise ProviderRefusalError("another process ends a machine of it")\n'
                    "        self._check_unchanged(owner)\n"
                    "        self._is_sent = True\n"
                    '        return {**annotate(**{ENDS: None}), "spec": {"replicas": self._size - 1}}\n'
                ),
                '        return {"spec": {"replicas": (owner.replicas or 1) - 1}}\n',
            )
        ],
        [7],
    ),
    Mend(
        "what others add to a group under replacement stays",
        "K3",
        [
            (
                "        more = max(0, at.desired - at.note.size)\n",
                "        more = min(0, at.desired)\n",
            )
        ],
        [4],
    ),
    Mend(
        "an old node is closed only where its zone has more useful ones than at the start",
        "S1",
        [("        if have > need:\n", "        if have > 0:\n")],
        [0],
    ),
)
