"""The steps on moto: what each does at AWS, that doing it twice is doing it once, and that what can be undone is."""

import io
import json
import threading
import uuid
import zipfile

import pytest

from rebalancer.base.environment import SystemClock
from rebalancer.base.stop import Stop
from rebalancer.machines.aws.deregister import Deregister, DeregisterParams
from rebalancer.machines.aws.quarantine import Quarantine, QuarantineParams
from rebalancer.machines.aws.services import region_of_node, region_of_queue
from rebalancer.machines.aws.steps import Lambda, LambdaParams, Sns, SnsParams
from rebalancer.machines.interruption.model import StepContext
from rebalancer.plan.machines import StepOutcome, StepStatus
from rebalancer.signals.model import Interruption, SignalError
from tests.aws.cloud import ACCOUNT, REGION
from tests.support.contracts import check_step
from tests.unit.commands.serving import soon

pytestmark = [
    # moto leaves files open that it reads its own data from.
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <_io:pytest.PytestUnraisableExceptionWarning"
    ),
]
DEADLINE = 1763632920.0
DONE = StepOutcome(StepStatus.DONE)


class Pipeline:
    """One machine's way through steps, with what each has kept."""

    def __init__(self, instance, **changes):
        self.instance, self.kept, self.outcomes = instance, {}, {}
        self.signalled = threading.Event()
        self.changes = changes

    def context(self, step, **more):
        def keep(text):
            self.kept[step] = text

        given = {
            "interruption": Interruption(
                id=f"{self.instance}/spot/e-1",
                kind="spot",
                source="queue",
                instance=self.instance,
                provider_id=f"aws:///{REGION}a/{self.instance}",
                reason="terminate",
            ),
            "node": "node-1",
            "instance": self.instance,
            "deadline": DEADLINE,
            "stop": Stop(SystemClock(), signalled=self.signalled),
            "client": None,
            "environ": {},
            "unix": lambda: DEADLINE - 100,
            "outcomes": self.outcomes,
            "left": self.kept.get(step, ""),
            "keep": keep,
            "change": None,
            "idempotency_key": f"key-of-{step}",
            "plan": lambda: None,
            **self.changes,
            **more,
        }
        return StepContext(**given)


class Balanced:
    """An instance in two target groups, on three ports, beside another one."""

    def __init__(self, cloud):
        self.cloud, self.balancers = cloud, cloud.client("elbv2")
        self.instance, self.other = cloud.instance(), cloud.instance()
        compute = cloud.client("ec2")
        self.network = compute.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        self.groups = [
            self.group(f"web-{self.instance[-6:]}"),
            self.group(f"api-{self.instance[-6:]}"),
        ]
        self.registered = {(self.groups[0], 8080), (self.groups[0], 8443), (self.groups[1], 9090)}
        for group, port in self.registered:
            for one in (self.instance, self.other):
                self.balancers.register_targets(
                    TargetGroupArn=group, Targets=[{"Id": one, "Port": port}]
                )

    def group(self, name):
        made = self.balancers.create_target_group(
            Name=name, Protocol="HTTP", Port=80, VpcId=self.network, TargetType="instance"
        )
        return made["TargetGroups"][0]["TargetGroupArn"]

    def targets(self, instance):
        """Group and port -> state."""
        return {
            (group, each["Target"]["Port"]): each["TargetHealth"]["State"]
            for group in self.groups
            for each in self.balancers.describe_target_health(TargetGroupArn=group)[
                "TargetHealthDescriptions"
            ]
            if each["Target"]["Id"] == instance
        }


@pytest.fixture
def balanced(cloud):
    return Balanced(cloud)


def deregistration(cloud, **options):
    return Deregister(), DeregisterParams(endpoint=cloud.url, **options)


def test_an_instance_leaves_all_target_groups_on_all_ports(balanced, cloud):
    step, params = deregistration(cloud)
    pipeline = Pipeline(balanced.instance)
    outcome = step.act(pipeline.context("deregister"), params)
    assert outcome == StepOutcome(StepStatus.DONE, "3 targets drained")
    assert balanced.targets(balanced.instance) == {}
    assert balanced.targets(balanced.other).keys() == balanced.registered
    # A process that goes on after this one was killed.
    assert step.act(pipeline.context("deregister"), params) == outcome
    check_step(step, params, pipeline.context("deregister"))


def test_targets_that_others_took_out_are_waited_for_and_counted(balanced, cloud):
    cloud.drains = 1.0
    for group, port in balanced.registered:
        balanced.balancers.deregister_targets(
            TargetGroupArn=group, Targets=[{"Id": balanced.instance, "Port": port}]
        )
    step, params = deregistration(cloud)
    outcome = step.act(Pipeline(balanced.instance).context("deregister"), params)
    assert outcome == StepOutcome(StepStatus.DONE, "3 targets drained")
    assert "elasticloadbalancing:DeregisterTargets" not in cloud.ours


def test_it_waits_until_targets_are_drained_and_no_longer_than_its_part(
    balanced, cloud, monkeypatch
):
    monkeypatch.setattr("rebalancer.machines.aws.deregister._POLL_INTERVAL", 0.01)
    step, params = deregistration(cloud)
    pipeline = Pipeline(balanced.instance)
    cloud.drains = 1e6
    ended = []
    thread = threading.Thread(
        target=lambda: ended.append(step.act(pipeline.context("deregister"), params))
    )
    thread.start()
    looks = "elasticloadbalancing:DescribeTargetHealth"
    # Before it looks at what drains it looks at all target groups, those that other tests left included.
    states: list[str] = []

    def draining():
        states[:] = balanced.targets(balanced.instance).values()
        return set(states) == {"draining"}

    soon(lambda: draining() or not thread.is_alive())
    looked = cloud.ours.count(looks)
    soon(lambda: cloud.ours.count(looks) >= looked + 6 or not thread.is_alive())
    assert not ended
    assert states == ["draining"] * 3
    pipeline.signalled.set()
    thread.join(60)
    assert ended == [StepOutcome(StepStatus.TIMED_OUT, "3 targets still draining")]
    # Who goes on waits for the same ones, and takes none out again.
    pipeline.signalled.clear()
    calls = cloud.calls.count("elasticloadbalancing:DeregisterTargets")
    for target in cloud.targets:
        cloud.targets[target] = min(
            cloud.targets[target], 0.0 if target[1] == balanced.instance else 1e99
        )
    assert step.act(pipeline.context("deregister"), params).why == "3 targets drained"
    assert cloud.calls.count("elasticloadbalancing:DeregisterTargets") == calls


def test_a_machine_that_stays_is_registered_again_where_it_was(balanced, cloud):
    step, params = deregistration(cloud, wait=False)
    pipeline = Pipeline(balanced.instance)
    assert step.act(pipeline.context("deregister"), params) == DONE
    assert balanced.targets(balanced.instance) == {}
    for _ in range(2):
        step.undo(pipeline.context("deregister"), params)
        assert balanced.targets(balanced.instance).keys() == balanced.registered


def test_killed_between_two_target_groups_it_remembers_both(balanced, cloud):
    step, params = deregistration(cloud, wait=False)
    pipeline = Pipeline(balanced.instance)
    original = cloud.refuses
    cloud.refuses = Refusing("elasticloadbalancing:DeregisterTargets", after=1)
    outcome = step.act(pipeline.context("deregister"), params)
    assert outcome.status is StepStatus.FAILED
    assert "deregister" in outcome.why
    cloud.refuses = original
    assert 0 < len(balanced.targets(balanced.instance)) < 3
    assert step.act(pipeline.context("deregister"), params) == DONE
    step.undo(pipeline.context("deregister"), params)
    assert balanced.targets(balanced.instance).keys() == balanced.registered


HEALTH = "elasticloadbalancing:DescribeTargetHealth"
DEREGISTER = "elasticloadbalancing:DeregisterTargets"


def test_it_leaves_group_by_group_and_looks_first_where_machines_were_seen(
    balanced, cloud, monkeypatch
):
    """An account may have hundreds of target groups, and its calls be throttled."""
    for number in range(12):
        balanced.group(f"no-{number}-{balanced.instance[-6:]}")
    pipeline, calls = Pipeline(balanced.instance), []

    def ends(call, form):
        calls.append((call, form.get("TargetGroupArn")))
        if call == DEREGISTER:
            pipeline.signalled.set()

    monkeypatch.setattr(cloud, "after_call", ends)
    step, params = deregistration(cloud)
    outcome = step.act(pipeline.context("deregister"), params)
    assert outcome.status is StepStatus.TIMED_OUT
    assert "target groups not looked at" in outcome.why
    # The time was over after the first one: that one it has left.
    (first,) = [arn for call, arn in calls if call == DEREGISTER]
    assert calls[-2:] == [(HEALTH, first), (DEREGISTER, first)]
    assert first not in {group for group, _ in balanced.targets(balanced.instance)}
    pipeline.signalled.clear()
    monkeypatch.setattr(cloud, "after_call", lambda *_: None)
    assert step.act(pipeline.context("deregister"), params).why == "3 targets drained"
    # The next machine leaves its target groups at once, and then looks at all others.
    calls.clear()
    monkeypatch.setattr(cloud, "after_call", lambda call, form: calls.append((call, form)))
    other = Pipeline(balanced.other)
    assert step.act(other.context("deregister"), params).why == "3 targets drained"
    assert [call for call, _ in calls][1:5] == [HEALTH, DEREGISTER] * 2


def test_a_target_group_that_cannot_be_read_keeps_no_other_waiting(balanced, cloud, monkeypatch):
    monkeypatch.setattr("rebalancer.machines.aws.deregister._POLL_INTERVAL", 0.01)
    step, params = deregistration(cloud, wait=False)
    original = cloud.refuses
    throttled: list[str] = []

    class Throttling(dict[str, int]):
        def __contains__(self, call):
            if call != HEALTH or len(throttled) >= 3:
                return False
            throttled.append(call)
            return True

    cloud.refuses = Throttling({HEALTH: 503})
    assert step.act(Pipeline(balanced.instance).context("deregister"), params) == DONE
    cloud.refuses = original
    assert len(throttled) == 3
    assert balanced.targets(balanced.instance) == {}


class Refusing(dict[str, int]):
    """Refuses a call from its second time on."""

    def __init__(self, call, after):
        super().__init__({call: 403})
        self.call, self.after = call, after

    def __contains__(self, call):
        if call != self.call:
            return False
        self.after -= 1
        return self.after < 0


def test_an_instance_in_no_target_group_is_left_alone(cloud):
    step, params = deregistration(cloud)
    outcome = step.act(Pipeline(cloud.instance()).context("deregister"), params)
    assert outcome.status is StepStatus.SKIPPED


def interfaces(cloud, instance):
    (machine,) = cloud.client("ec2").describe_instances(InstanceIds=[instance])["Reservations"][0][
        "Instances"
    ]
    return {
        one["NetworkInterfaceId"]: {group["GroupId"] for group in one["Groups"]}
        for one in machine["NetworkInterfaces"]
    }


def quarantined(cloud):
    """Two network interfaces, and a group that lets nothing in."""
    compute, instance = cloud.client("ec2"), cloud.instance()
    network = compute.describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"][0]
    groups = [
        compute.create_security_group(
            GroupName=f"{name}-{instance}", Description=name, VpcId=network["VpcId"]
        )["GroupId"]
        for name in ("empty", "second")
    ]
    more = compute.create_network_interface(SubnetId=network["SubnetId"], Groups=[groups[1]])
    compute.attach_network_interface(
        NetworkInterfaceId=more["NetworkInterface"]["NetworkInterfaceId"],
        InstanceId=instance,
        DeviceIndex=1,
    )
    return instance, groups[0]


def test_a_quarantine_takes_all_interfaces_and_gives_them_back(cloud):
    instance, empty = quarantined(cloud)
    before = interfaces(cloud, instance)
    assert len(before) == 2
    step = Quarantine()
    params = QuarantineParams(security_groups=(empty,), endpoint=cloud.url)
    pipeline = Pipeline(instance)
    for _ in range(2):
        outcome = step.act(pipeline.context("quarantine"), params)
        assert outcome == StepOutcome(StepStatus.DONE, "2 network interfaces in quarantine")
        assert interfaces(cloud, instance) == {one: {empty} for one in before}
    for _ in range(2):
        step.undo(pipeline.context("quarantine"), params)
        assert interfaces(cloud, instance) == before


def test_a_quarantine_that_was_cut_off_half_way_still_knows_what_was_before(cloud):
    instance, empty = quarantined(cloud)
    before = interfaces(cloud, instance)
    step = Quarantine()
    params = QuarantineParams(security_groups=(empty,), endpoint=cloud.url)
    pipeline, original = Pipeline(instance), cloud.refuses
    cloud.refuses = Refusing("ec2:ModifyNetworkInterfaceAttribute", after=1)
    with pytest.raises(SignalError, match="network interface eni-"):
        step.act(pipeline.context("quarantine"), params)
    cloud.refuses = original
    step.act(pipeline.context("quarantine"), params)
    assert interfaces(cloud, instance) == {one: {empty} for one in before}
    step.undo(pipeline.context("quarantine"), params)
    assert interfaces(cloud, instance) == before


def test_what_people_have_set_in_quarantine_stays(cloud):
    instance, empty = quarantined(cloud)
    before = interfaces(cloud, instance)
    step = Quarantine()
    params = QuarantineParams(security_groups=(empty,), endpoint=cloud.url)
    pipeline = Pipeline(instance)
    step.act(pipeline.context("quarantine"), params)
    theirs, ours = sorted(before)
    groups = sorted({*before[theirs], empty})
    compute = cloud.client("ec2")
    compute.modify_network_interface_attribute(NetworkInterfaceId=theirs, Groups=groups)
    # A policy that names other groups by now changes nothing of what these interfaces were given.
    other = QuarantineParams(security_groups=("sg-other",), endpoint=cloud.url)
    step.undo(pipeline.context("quarantine"), other)
    assert interfaces(cloud, instance) == {theirs: {*groups}, ours: before[ours]}


@pytest.mark.parametrize("acts", [True, False])
def test_an_instance_that_ends_at_aws_is_left_alone(cloud, acts):
    """What announced it may be old: AWS is asked what became of the instance."""
    instance, empty = quarantined(cloud)
    step = Quarantine()
    params = QuarantineParams(security_groups=(empty,), endpoint=cloud.url)
    pipeline = Pipeline(instance)
    if not acts:
        step.act(pipeline.context("quarantine"), params)
    cloud.client("ec2").terminate_instances(InstanceIds=[instance])
    before = cloud.ours.count("ec2:ModifyNetworkInterfaceAttribute")
    if acts:
        outcome = step.act(pipeline.context("quarantine"), params)
        assert outcome == StepOutcome(StepStatus.SKIPPED, "the instance is terminated")
    else:
        step.undo(pipeline.context("quarantine"), params)
    assert cloud.ours.count("ec2:ModifyNetworkInterfaceAttribute") == before


def test_a_machine_that_is_gone_has_nothing_to_undo(cloud):
    """Both are tried again until they succeed: what never can would hold a place for ever."""
    gone = Pipeline("i-00000000000000000")
    gone.kept["quarantine"] = json.dumps({"before": {"eni-1": ["sg-1"]}, "given": ["sg-2"]})
    params = QuarantineParams(security_groups=("sg-2",), endpoint=cloud.url)
    Quarantine().undo(gone.context("quarantine"), params)
    balanced = Balanced(cloud)
    ends = [group.partition(":targetgroup/")[2] for group in balanced.groups]
    gone.kept["deregister"] = json.dumps({end: [8080] for end in (*ends, "web/deleted")})
    step, options = deregistration(cloud)
    step.undo(gone.context("deregister"), options)
    assert cloud.ours.count("elasticloadbalancing:RegisterTargets") == 2


def function(cloud):
    """A function, of which moto only keeps what it is handed over."""
    cloud.configure({"lambda": {"use_docker": False}})
    role = cloud.client("iam").create_role(
        RoleName=f"role-{cloud.instance()}", AssumeRolePolicyDocument="{}"
    )["Role"]["Arn"]
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("handler.py", "def handle(event, context): pass")
    name = f"handler-{role[-8:]}"
    cloud.client("lambda").create_function(
        FunctionName=name,
        Runtime="python3.11",
        Role=role,
        Handler="handler.handle",
        Code={"ZipFile": archive.getvalue()},
    )
    return name


def test_a_function_is_invoked_once_and_nobody_waits_for_it(cloud):
    step, params = Lambda(), LambdaParams(function=function(cloud), endpoint=cloud.url)
    pipeline = Pipeline("i-1")
    check_step(step, params, pipeline.context("lambda"))
    cloud.invoked.clear()
    pipeline = Pipeline("i-1")
    for _ in range(2):
        assert step.act(pipeline.context("lambda"), params) == DONE
    assert cloud.invoked == [
        {
            "id": "i-1/spot/e-1",
            "kind": "spot",
            "instance-id": "i-1",
            "node": "node-1",
            "deadline": "2025-11-20T10:02:00Z",
            "reason": "terminate",
            "idempotency-key": "key-of-lambda",
        }
    ]
    # Another event, after all was done for this one: what was kept of that is no reason not to send it.
    step.act(pipeline.context("lambda", idempotency_key="another"), params)
    assert cloud.invoked[1]["idempotency-key"] == "another"


def test_a_function_that_cannot_be_invoked_is_named(cloud):
    params = LambdaParams(function="nothing", endpoint=cloud.url)
    cloud.refuses["lambda:InvokeFunction"] = 404
    with pytest.raises(SignalError, match="function nothing: invoke: "):
        Lambda().act(Pipeline("i-1").context("lambda"), params)


def topic(cloud, *, fifo=False):
    """A topic, and the queue that is subscribed to it."""
    notices, end = cloud.client("sns"), ".fifo" if fifo else ""
    given = {"Attributes": {"FifoTopic": "true"}} if fifo else {}
    arn = notices.create_topic(Name=f"notices-{cloud.instance()}{end}", **given)["TopicArn"]
    queue = cloud.queue(name := f"q-{uuid.uuid4().hex}{end}", fifo=fifo)
    notices.subscribe(
        TopicArn=arn, Protocol="sqs", Endpoint=f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"
    )
    return arn, queue


def published(cloud, queue):
    """Subject and message of each notice."""
    got = cloud.client("sqs").receive_message(QueueUrl=queue, MaxNumberOfMessages=10)
    texts = [json.loads(each["Body"]) for each in got.get("Messages", ())]
    return [(text["Subject"], text["Message"]) for text in texts]


def test_a_topic_hears_of_it_and_of_what_came_of_each_step(cloud):
    arn, queue = topic(cloud)
    step, params = Sns(), SnsParams(topic=arn, endpoint=cloud.url)
    pipeline = Pipeline("i-1")
    step.act(pipeline.context("sns"), params)
    pipeline.outcomes = {
        "sns": DONE,
        "cordon": DONE,
        "leave": StepOutcome(StepStatus.TIMED_OUT, "2 pods are left: shop/api-1, shop/api-2"),
    }
    for _ in range(2):
        step.act(pipeline.context("sns-2"), params)
    first, last = sorted(published(cloud, queue), key=lambda each: len(each[1]))
    facts = (
        "Node:     node-1\n"
        "Instance: i-1\n"
        "Event:    spot (terminate)\n"
        "Deadline: 2025-11-20T10:02:00Z\n"
        "Written:  2025-11-20T10:00:20Z\n"
    )
    assert first == ("node-1: spot", facts)
    assert last == (
        "node-1: spot",
        facts + "\nSteps:\n"
        "  sns     done\n"
        "  cordon  done\n"
        "  leave   timed-out: 2 pods are left: shop/api-1, shop/api-2\n",
    )


def test_a_fifo_topic_delivers_once_what_a_process_publishes_again_after_a_kill(cloud):
    arn, queue = topic(cloud, fifo=True)
    step, params = Sns(), SnsParams(topic=arn, endpoint=cloud.url)
    for _ in range(2):
        # The first one was killed before it could keep that it had published.
        pipeline = Pipeline("i-1", keep=lambda _: None)
        assert step.act(pipeline.context("sns"), params) == DONE
    pipeline.outcomes = {"sns": DONE}
    assert step.act(pipeline.context("sns-2"), params) == DONE
    assert cloud.calls.count("sns:Publish") == 3
    first, last = published(cloud, queue), published(cloud, queue)
    assert len(first) + len(last) == 2


def test_a_subject_is_one_that_sns_takes(cloud):
    arn, _ = topic(cloud)
    pipeline = Pipeline("i-1", node="n\u00f6de\n" + "x" * 200)
    assert Sns().act(pipeline.context("sns"), SnsParams(topic=arn, endpoint=cloud.url)) == DONE


@pytest.mark.parametrize(
    ("url", "region"),
    [
        ("https://sqs.eu-west-1.amazonaws.com/1/q", "eu-west-1"),
        ("https://sqs.us-gov-west-1.amazonaws.com/1/q", "us-gov-west-1"),
        ("https://sqs.cn-north-1.amazonaws.com.cn/1/q", "cn-north-1"),
        ("https://eu-west-1.queue.amazonaws.com/1/q", "eu-west-1"),
        ("http://127.0.0.1:5000/1/q", ""),
    ],
)
def test_the_region_of_a_queue(url, region):
    assert region_of_queue(url) == region


@pytest.mark.parametrize(
    ("provider_id", "region"),
    [
        ("aws:///eu-west-1a/i-1", "eu-west-1"),
        ("aws:///us-west-2-lax-1a/i-1", "us-west-2"),
        ("kind://docker/x/y", ""),
        ("", ""),
    ],
)
def test_the_region_of_a_node(provider_id, region):
    assert region_of_node(provider_id) == region
