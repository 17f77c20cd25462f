"""What this program stores and a later run, perhaps of another version, reads.

``now/`` holds each document as this version writes it, with every key; ``before/`` as the version before did. After a
change of a type, ``python -m tests.stored.documents`` writes ``now/`` again.
"""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rebalancer.machines.capacity.state import GroupState
from rebalancer.machines.interruption.record import KeptOfMachine
from rebalancer.node_record.records import Order, Stage
from rebalancer.report import plan_file
from rebalancer.run.memory import document as memory
from rebalancer.signals.notice import NodeNotice
from rebalancer.signals.state import PipelineState
from rebalancer.snapshot import store
from rebalancer.wire.marks import ScaleInRecord
from tests.stored.sample import sample_of, values_of

HERE = Path(__file__).parent
BEFORE, NOW = HERE / "before", HERE / "now"


class Stored(NamedTuple):
    """A kind of document."""

    kind: Any
    key: str = "version"
    """Of its version."""
    version: int = 1
    """That this program writes; 1 where it writes none, as on nodes."""
    only_known: bool = False
    """Whether a key that the reader does not know is an error: such a document must say another version."""

    def sample(self) -> Any:
        """Return a document with every key."""
        sample = sample_of(self.kind)
        if self.key in sample.__struct_fields__:
            sample = msgspec.structs.replace(sample, **{self.key: self.version})
        return sample


DOCUMENTS = {
    "memory": Stored(memory.Document, version=memory.VERSION),
    "group": Stored(GroupState),
    "interruption": Stored(KeptOfMachine),
    "pipeline": Stored(PipelineState),
    "notice": Stored(NodeNotice),
    "drain": Stored(Order),
    "replace": Stored(Stage),
    "scale_in": Stored(ScaleInRecord),
    "manifest": Stored(store.Manifest, "format", store.FORMAT, only_known=True),
    "plan": Stored(plan_file._File),
}


def text_of(name: str) -> bytes:
    """Return a document with every key, as this program writes it."""
    return msgspec.json.format(msgspec.json.encode(DOCUMENTS[name].sample()), indent=1) + b"\n"


def values() -> dict[str, list[Any]]:
    """Return the values of each enumeration that is stored."""
    found = {name: of for one in DOCUMENTS.values() for name, of in values_of(one.kind).items()}
    return dict(sorted(found.items()))


if __name__ == "__main__":
    for name in DOCUMENTS:
        (NOW / f"{name}.json").write_bytes(text_of(name))
    (NOW / "values.json").write_bytes(msgspec.json.format(msgspec.json.encode(values())) + b"\n")
