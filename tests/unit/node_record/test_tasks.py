"""The table of phases: what may follow, what is never given back, and that others who open a node begin it anew."""

from itertools import product
from typing import Any

import msgspec
import pytest

from rebalancer.kube.client import Client, connect
from rebalancer.kube.nodes import NodeChange, NodeView, change_node, read_node
from rebalancer.machines.capacity.writing import PROCESS as SCALE_IN
from rebalancer.machines.drain.cordon import PROCESS as DRAIN
from rebalancer.node_record.protocol import TaskPhase
from rebalancer.node_record.records import DRAINS, Order, ReplacePhase, Stage
from rebalancer.node_record.tasks import OPENED, TABLE, Process, enter, give_back
from rebalancer.testing.objects import EmbeddedCluster
from rebalancer.wire.marks import Phase, ScaleInRecord

NODE = "pool-7"


@pytest.fixture(scope="module")
def client():
    with EmbeddedCluster() as cluster:
        cluster.add_node(NODE, "zone-k")
        cluster.settle()
        yield connect(kubeconfig=cluster.kubeconfig, environ={})


@pytest.fixture(autouse=True)
def is_open(client):
    def change(node):
        keys = (DRAIN.form.key, SCALE_IN.form.key)
        left = dict.fromkeys(key for key in keys if key in node.annotations)
        return NodeChange(unschedulable=False, annotations=left, taints=())

    change_node(client, NODE, change)


def staged(phase: ReplacePhase, **more: Any) -> Order:
    return Order("p", "old image", "t", stage=Stage(phase, "p", 5.0), **more)


RECORDS: dict[str, dict[TaskPhase, Any]] = {
    "replacement": {
        TaskPhase.WAITING: staged(ReplacePhase.WAITING, replaces=True),
        TaskPhase.EMPTYING: staged(ReplacePhase.EMPTYING),
        TaskPhase.EMPTY: staged(ReplacePhase.EMPTY),
        TaskPhase.ENDING: staged(ReplacePhase.REMOVING),
        TaskPhase.DONE: staged(ReplacePhase.DONE),
        TaskPhase.OVER: staged(ReplacePhase.EMPTYING, ended=True),
    },
    "scale-in": {
        TaskPhase.EMPTYING: ScaleInRecord(Phase.LEAVING, "t", "t", "p"),
        TaskPhase.EMPTY: ScaleInRecord(Phase.LEAVING, "t", "t", "p", empty="t"),
        TaskPhase.ENDING: ScaleInRecord(Phase.ENDING, "t", "t", "p"),
    },
}
PROCESSES: dict[str, Process[Any]] = {"replacement": DRAIN, "scale-in": SCALE_IN}
PAIRS = [(name, *pair) for name, of in RECORDS.items() for pair in product(of, of)]


def there(client: Client) -> NodeView:
    node = read_node(client, NODE)
    assert node is not None
    return node


def stand(client: Client, process: Process[Any], record: Any) -> None:
    """Write a record on the closed node, as a process that was killed has left it."""
    text = process.form.encode(
        msgspec.structs.replace(record, uid=there(client).uid, cordoned=True)
    )
    change = NodeChange(unschedulable=True, annotations={process.form.key: text})
    change_node(client, NODE, lambda _: change)


@pytest.mark.parametrize(("name", "now", "then"), PAIRS)
def test_a_phase_is_followed_by_those_of_the_table_only(client, name, now, then):
    process, of = PROCESSES[name], RECORDS[name]
    stand(client, process, of[now])
    uid = there(client).uid
    coming = msgspec.structs.replace(of[then], uid=uid, by="q")
    entered = enter(client, NODE, process, lambda _: coming, lambda *_: None)
    may = then is now or then in TABLE[now].next
    assert (entered.why_not is None) is may
    assert process.form.task(entered.record).phase is (then if may else now)
    # Who has cordoned it stays known, whoever goes on.
    assert process.form.task(entered.record).owns.cordon


@pytest.mark.parametrize(
    ("name", "phase"), [(name, one) for name in RECORDS for one in RECORDS[name]]
)
def test_a_node_is_given_back_unless_its_machine_may_be_ending(client, name, phase):
    process = PROCESSES[name]
    stand(client, process, RECORDS[name][phase])
    given = give_back(client, NODE, process, lambda *_: None)
    assert there(client).unschedulable is (phase is TaskPhase.ENDING)
    assert (given.record is None) is (given.why_not is None) is (phase is not TaskPhase.ENDING)


@pytest.mark.parametrize("name", RECORDS)
def test_no_machine_is_ended_whose_node_others_have_opened(client, name):
    process, of = PROCESSES[name], RECORDS[name]
    stand(client, process, of[TaskPhase.EMPTY])
    change_node(client, NODE, lambda _: NodeChange(unschedulable=False))
    uid = there(client).uid
    ending = msgspec.structs.replace(of[TaskPhase.ENDING], uid=uid)
    entered = enter(client, NODE, process, lambda _: ending, lambda *_: None)
    assert entered.why_not == OPENED


def test_a_drain_of_a_node_that_people_have_opened_begins_anew(client):
    stand(client, DRAIN, staged(ReplacePhase.DONE))
    change_node(client, NODE, lambda _: NodeChange(unschedulable=False))
    order = Order("q", "disk", "t")
    entered = enter(client, NODE, DRAIN, lambda _: order, lambda *_: None)
    assert entered.record is not None
    assert (there(client).unschedulable, DRAINS.task(entered.record).phase) == (
        True,
        TaskPhase.EMPTYING,
    )
