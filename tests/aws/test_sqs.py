"""The source ``sqs`` on moto: each message is kept until its work is done, and no longer."""

import json
import math
import threading
import time
from collections.abc import Sequence

import pytest

from rebalancer.base.environment import SystemClock
from rebalancer.base.stop import Stop
from rebalancer.machines.aws import sqs
from rebalancer.machines.aws.sqs import SqsParams, SqsSource
from rebalancer.plan.machines import PipelineOutcome, Result
from rebalancer.signals.model import FollowedNodes, Interruption, SignalError
from rebalancer.wire.objects import Node, NodeSpec, ObjectMeta
from tests.aws.messages import event, health, hook, rebalance, spot, state
from tests.support.contracts import check_source, surroundings

DONE = PipelineOutcome(Result.DONE, {})
OURS = ("i-1", "i-2", "i-3")
SENT = 1_763_632_800.0
"""Unix seconds of the messages."""


class Clock:
    """Unix seconds, from the time of the messages on, that a test sets forward."""

    def __init__(self):
        self.ahead, self._began = 0.0, time.monotonic()

    def __call__(self):
        return SENT + time.monotonic() - self._began + self.ahead


def nodes_of(*instances):
    return [
        Node(ObjectMeta(name=f"node-{one}"), NodeSpec(provider_id=f"aws:///eu-west-1a/{one}"))
        for one in instances
    ]


class Ground:
    """A queue, and a process that receives from it."""

    def __init__(self, cloud):
        self.cloud, self.url, self.unix = cloud, cloud.queue(), Clock()
        self.nodes = nodes_of(*OURS)
        self.receiver = self.opened()

    def opened(self, **options):
        """A process more."""
        around = surroundings(
            "queue", unix=self.unix, nodes=FollowedNodes(lambda: self.nodes), environ={}
        )
        self.around = around
        return SqsSource().open(self.params(**options), around)

    def params(self, **options):
        return SqsParams(queue=self.url, region="eu-west-1", endpoint=self.cloud.url, **options)

    def send(self, *bodies):
        for body in bodies:
            text = body if isinstance(body, str) else json.dumps(body)
            self.cloud.client("sqs").send_message(QueueUrl=self.url, MessageBody=text)

    def receive(self, receiver=None):
        return (receiver or self.receiver).receive(Stop(SystemClock()))

    def become_visible(self):
        """Let the time pass after which messages that were received are given to another receiver."""
        client = self.cloud.client("sqs")
        for held in [*self.receiver._held.values()]:
            client.change_message_visibility(
                QueueUrl=self.url, ReceiptHandle=held.receipt, VisibilityTimeout=0
            )

    def messages(self):
        """Those in the queue, hidden ones too."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        of = self.cloud.client("sqs").get_queue_attributes(QueueUrl=self.url, AttributeNames=names)[
            "Attributes"
        ]
        return sum(int(of[name]) for name in names)


@pytest.fixture
def ground(cloud, monkeypatch):
    monkeypatch.setattr(sqs, "MAX_RECEIVE", 1.0)
    return Ground(cloud)


def test_it_keeps_the_contract_of_a_source(ground):
    def announce():
        ground.send(spot("i-1"), state("i-2", "stopping", id="e-2"), health("i-3"))

    said = check_source(SqsSource(), ground.params(), announce, OURS, ground.around)
    assert {one.node for one in said} == {"node-i-1", "node-i-2", "node-i-3"}
    assert ground.messages() == 0


def test_a_message_is_deleted_when_its_work_is_done_and_not_before(ground):
    ground.send(spot("i-1"))
    (one,) = ground.receive()
    assert (one.kind, one.instance, one.node) == ("spot", "i-1", "node-i-1")
    assert one.provider_id == "aws:///eu-west-1a/i-1"
    assert one.source == "queue"
    assert ground.messages() == 1
    ground.receiver.done(one, DONE)
    assert ground.messages() == 0


def test_a_health_event_with_three_instances_is_done_when_all_three_are(ground):
    ground.send(health(*OURS))
    said = ground.receive()
    assert [one.instance for one in said] == list(OURS)
    assert len({one.id for one in said}) == 3
    for left, one in zip((1, 1, 0), said, strict=True):
        ground.receiver.done(one, DONE)
        assert ground.messages() == left


def test_a_message_that_is_delivered_again_says_what_is_not_done(ground):
    ground.send(health(*OURS))
    first = ground.receive()
    ground.receiver.done(first[0], DONE)
    ground.become_visible()
    again = ground.receive()
    assert again == first[1:]
    for one in again:
        ground.receiver.done(one, DONE)
    # By the last delivery's receipt.
    assert ground.messages() == 0


def test_an_event_that_comes_twice_is_one_interruption(ground):
    ground.send(spot("i-1"), spot("i-1"))
    said = [*ground.receive(), *ground.receive()]
    assert len(said) == 2
    assert said[0] == said[1]
    ground.receiver.done(said[0], DONE)
    assert ground.messages() == 0
    ground.send(spot("i-1"))
    assert ground.receive() == []
    assert ground.messages() == 0


def test_a_process_that_takes_over_gets_the_message_again(ground):
    ground.send(spot("i-1"))
    (before,) = ground.receive()
    ground.become_visible()
    other = ground.opened()
    (after,) = ground.receive(other)
    assert after == before
    other.done(after, DONE)
    assert ground.messages() == 0


def test_a_cancelled_event_is_said_as_one_also_after_the_first_was_done(ground):
    ground.send(health("i-1"))
    (first,) = ground.receive()
    ground.receiver.done(first, DONE)
    ground.send(health("i-1", statusCode="closed"))
    (second,) = ground.receive()
    assert (second.id, second.cancelled) == (first.id, True)
    ground.receiver.done(second, PipelineOutcome(Result.CANCELLED, {}))
    assert ground.messages() == 0


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_lifecycle_hook_hears_heartbeats_and_is_continued_at_the_end(ground, wrapped):
    cloud = ground.cloud
    cloud.terminates("i-1", "drain", ground.url, wrapped=wrapped)
    (one,) = ground.receive()
    assert one.kind == "scale-in"
    ground.receiver.heartbeat(one)
    ground.receiver.heartbeat(one)
    assert cloud.heartbeats == ["i-1"]
    ground.unix.ahead += 30
    ground.receiver.heartbeat(one)
    assert cloud.heartbeats == ["i-1", "i-1"]
    assert cloud.completed == []
    ground.receiver.done(one, DONE)
    assert cloud.completed == [("i-1", "CONTINUE")]
    assert ground.messages() == 0
    # Once more, should the process have been killed after it.
    ground.receiver.done(one, DONE)


def test_a_hook_that_was_known_and_waits_no_more_keeps_nothing_from_its_end(ground):
    token = ground.cloud.terminates("i-1", "drain", ground.url)
    (one,) = ground.receive()
    ground.receiver.heartbeat(one)
    ground.unix.ahead += 30
    del ground.cloud.waiting[token]
    ground.receiver.heartbeat(one)
    assert [loose.held for loose in ground.receive()] == [False]
    ground.receiver.done(one, DONE)
    assert ground.messages() == 0


@pytest.fixture
def short_polls(cloud):
    """Polls whose messages can be made visible again."""
    cloud.longest_poll = 1.0
    yield
    cloud.longest_poll = math.inf
    cloud.receipts.clear()


UNKNOWN = (400, "ValidationError", "No active Lifecycle Action")
"""How AWS answers about an action that has ended, or that is too new to be known."""


def _redeliver(ground):
    """Let messages come again; nothing in them is left to be done."""
    ground.cloud.redeliver()
    assert [*ground.receive()] == []


@pytest.mark.usefixtures("short_polls")
@pytest.mark.parametrize(("seconds", "heard"), [(1, False), (45, True), (110, False)])
def test_a_hook_that_is_known_late_is_continued_all_the_same(ground, seconds, heard):
    ground.cloud.terminates("i-1", "drain", ground.url)
    for call in ("CompleteLifecycleAction", "RecordLifecycleActionHeartbeat"):
        ground.cloud.refuses[f"autoscaling:{call}"] = UNKNOWN
    (one,) = ground.receive()
    if heard:
        ground.receiver.heartbeat(one)
    ground.receiver.done(one, DONE)
    ground.unix.ahead += seconds
    _redeliver(ground)
    assert ground.messages() == 1
    ground.cloud.refuses.clear()
    _redeliver(ground)
    assert ground.cloud.completed == [("i-1", "CONTINUE")]
    assert ground.messages() == 0


def test_a_machine_is_held_while_the_action_of_its_hook_is_not_known_yet(ground):
    ground.cloud.terminates("i-1", "drain", ground.url)
    ground.cloud.refuses["autoscaling:RecordLifecycleActionHeartbeat"] = UNKNOWN
    (one,) = ground.receive()
    ground.receiver.heartbeat(one)
    assert [*ground.receive()] == [], "nothing says that it is let loose"
    ground.cloud.refuses.clear()
    ground.unix.ahead += 30
    ground.receiver.heartbeat(one)
    assert ground.cloud.heartbeats == ["i-1"]


@pytest.mark.usefixtures("short_polls")
def test_a_hook_that_nobody_knows_for_long_has_ended(ground):
    token = ground.cloud.terminates("i-1", "drain", ground.url)
    (one,) = ground.receive()
    del ground.cloud.waiting[token]
    ground.receiver.done(one, DONE)
    assert ground.messages() == 1
    ground.unix.ahead += 121
    _redeliver(ground)
    assert ground.messages() == 0


@pytest.mark.usefixtures("short_polls")
def test_messages_of_other_machines_wait_for_their_hooks_as_well(ground):
    ground.cloud.refuses["autoscaling:CompleteLifecycleAction"] = UNKNOWN
    ground.cloud.terminates("i-of-nobody", "drain", ground.url)
    receiver = ground.opened(others="delete")
    assert [*ground.receive(receiver)] == []
    assert ground.messages() == 1
    ground.cloud.refuses.clear()
    time.sleep(5.2)
    assert [*ground.receive(receiver)] == []
    assert ground.cloud.completed == [("i-of-nobody", "CONTINUE")]
    assert ground.messages() == 0


def test_a_message_is_deleted_only_after_its_hook_was_continued(ground):
    ground.cloud.terminates("i-1", "drain", ground.url)
    (one,) = ground.receive()
    call = "autoscaling:CompleteLifecycleAction"
    ground.cloud.refuses[call] = 403
    with pytest.raises(SignalError, match="hook drain of workers: continue i-1: Injected"):
        ground.receiver.done(one, DONE)
    assert ground.messages() == 1
    del ground.cloud.refuses[call]
    ground.receiver.done(one, DONE)
    assert ground.cloud.completed == [("i-1", "CONTINUE")]
    assert ground.messages() == 0


def test_a_message_stays_hidden_while_it_is_in_work(ground):
    ground.send(spot("i-1", time="2020-01-01T00:00:00Z"))
    (one,) = ground.receive()
    changes = "sqs:ChangeMessageVisibility"
    ground.receiver.heartbeat(one)
    assert ground.cloud.calls.count(changes) == 0
    ground.unix.ahead += 40
    ground.receiver.heartbeat(one)
    assert ground.cloud.calls.count(changes) == 1
    assert ground.receive() == []


def test_a_hook_has_its_heartbeat_though_the_message_cannot_be_kept_hidden(ground):
    ground.cloud.terminates("i-1", "drain", ground.url)
    (one,) = ground.receive()
    ground.unix.ahead += 40
    ground.cloud.refuses["sqs:ChangeMessageVisibility"] = 403
    with pytest.raises(SignalError, match="keep a message hidden"):
        ground.receiver.heartbeat(one)
    assert ground.cloud.heartbeats == ["i-1"]


def test_a_receipt_that_is_too_old_is_no_fault(ground):
    ground.send(spot("i-1"))
    (one,) = ground.receive()
    (held,) = ground.receiver._held.values()
    held.receipt = "too-old"
    ground.unix.ahead += 40
    ground.receiver.heartbeat(one)
    ground.receiver.done(one, DONE)
    # The delivery that comes has a new one.
    assert ground.messages() == 1


@pytest.mark.parametrize(("others", "left"), [("leave", 1), ("delete", 0)])
@pytest.mark.parametrize(
    "body", [spot("i-9"), event("aws.s3", "Object Created", {}), state("i-1", "running")]
)
def test_what_calls_for_nothing_here_is_left_or_deleted(ground, body, others, left):
    ground.receiver = ground.opened(others=others)
    ground.send(body)
    assert ground.receive() == []
    assert ground.messages() == left


def test_a_hook_of_a_machine_that_is_no_node_is_continued_where_the_queue_is_ours_alone(ground):
    ground.receiver = ground.opened(others="delete")
    ground.cloud.terminates("i-9", "drain", ground.url)
    assert ground.receive() == []
    assert ground.cloud.completed == [("i-9", "CONTINUE")]


def test_a_message_that_also_names_machines_of_others_stays_for_these(ground):
    ground.send(health("i-1", "i-9"))
    (one,) = ground.receive()
    ground.receiver.done(one, DONE)
    assert ground.messages() == 1


def test_a_test_notification_is_deleted(ground):
    ground.send({"Event": "autoscaling:TEST_NOTIFICATION", "Service": "AWS Auto Scaling"})
    assert ground.receive() == []
    assert ground.messages() == 0


def test_what_cannot_be_understood_is_named_once_and_holds_up_nothing(ground):
    ground.send("hello", spot("i-1"))
    said: list[Interruption] = []
    complaints: list[str] = []
    while not (said and complaints):
        try:
            said += ground.receive()
        except SignalError as error:
            complaints.append(str(error))
    assert [one.instance for one in said] == ["i-1"]
    assert "cannot be understood and is left there" in complaints[0]
    assert ground.messages() == 2
    # At the next delivery nothing more is said of it.
    client = ground.cloud.client("sqs")
    client.set_queue_attributes(QueueUrl=ground.url, Attributes={"VisibilityTimeout": "0"})
    assert ground.receive() == []


def test_a_queue_that_is_not_there_is_named(ground):
    ground.cloud.client("sqs").delete_queue(QueueUrl=ground.url)
    with pytest.raises(SignalError, match=r"queue http.*: receive messages: .*NonExistentQueue"):
        ground.receive()


def test_what_a_poll_gets_too_late_and_cannot_be_given_back_is_no_fault(ground):
    ground.send(spot("i-1"))
    ground.cloud.refuses["sqs:ChangeMessageVisibility"] = 403
    ground.receiver._give_back([{"ReceiptHandle": "refused"}])
    assert ground.cloud.ours[-1] == "sqs:ChangeMessageVisibility"


def test_a_stop_ends_a_long_poll_and_what_it_still_gets_is_for_the_next(ground):
    hold = ground.cloud.held["sqs:ReceiveMessage"] = threading.Event()
    ground.send(spot("i-1"))
    signalled = threading.Event()
    stop = Stop(SystemClock(), signalled=signalled)
    ended = []
    thread = threading.Thread(target=lambda: ended.append(ground.receiver.receive(stop)))
    thread.start()
    while "sqs:ReceiveMessage" not in ground.cloud.calls:
        time.sleep(0.01)
    signalled.set()
    thread.join(60)
    assert ended == [[]]
    del ground.cloud.held["sqs:ReceiveMessage"]
    hold.set()
    # Given back at once, and not after a minute.
    said: Sequence[Interruption] = []
    until = time.monotonic() + 50
    while not said and time.monotonic() < until:
        said = ground.receive(ground.opened())
    assert [one.instance for one in said] == ["i-1"]


@pytest.mark.parametrize(
    ("old", "left"),
    [(state("i-1", "stopping"), 0), (state("i-1", "terminated"), 0), (state("x-1", "stopped"), 1)],
)
def test_a_state_of_long_ago_is_deleted_unread(ground, old, left):
    """The instance may have been started again since; a message of a machine that is none of ours is left."""
    ground.unix.ahead = 170.0
    ground.send(state("i-2", "stopping", id="e-2"))
    assert [one.instance for one in ground.receive()] == ["i-2"]
    ground.unix.ahead = 200.0
    ground.send(old)
    assert ground.receive() == []
    assert ground.messages() == 1 + left


def test_rebalance_recommendations_are_attended_to_only_where_the_policy_says_so(ground):
    ground.send(rebalance("i-1"), rebalance("x-1", id="e-2"))
    assert ground.receive() == []
    assert ground.messages() == 1
    wanting = ground.opened(ignore_kinds=())
    ground.send(rebalance("i-2", id="e-3"))
    assert [one.instance for one in ground.receive(wanting)] == ["i-2"]
    ground.unix.ahead = 3700.0
    ground.send(rebalance("i-3", id="e-4"))
    assert ground.receive(wanting) == []


@pytest.mark.parametrize(
    "forged",
    [
        {**spot("i-1"), "account": "999999999999"},
        {**spot("i-1"), "region": "eu-central-1"},
        {**hook("i-1", "t-1"), "AccountId": "999999999999"},
        event(
            "aws.autoscaling",
            "EC2 Instance-terminate Lifecycle Action",
            hook("i-1", "t-1"),
            account="999999999999",
        ),
        health("i-1", affectedAccount="999999999999"),
        health("i-1", eventRegion="us-east-1"),
    ],
)
def test_what_another_account_or_region_says_is_of_no_machine_here(ground, forged):
    ground.send(forged)
    assert ground.receive() == []
    assert ground.messages() == 1
    # Another account's machines may be nodes of the cluster, too.
    both = ground.opened(accounts=("123456789012", "999999999999"))
    ground.send({**spot("i-2", id="e-9"), "account": "999999999999"})
    assert [one.instance for one in ground.receive(both)] == ["i-2"]


def test_the_copy_of_a_health_event_from_another_region_counts(ground):
    ground.send({**health("i-1", eventRegion="eu-west-1"), "region": "us-west-2"})
    assert [one.instance for one in ground.receive()] == ["i-1"]
