"""AWS for tests: moto, with a thin front for what moto lacks, written from AWS's documents; no code of AWS is in it.

The front stands for these parts of the user guides and API references, and for nothing else:

- lifecycle hooks of Auto Scaling: an instance that is to go waits (Terminating:Wait), a message with a token is sent to the
  hook's queue; CompleteLifecycleAction ends the wait and the instance, RecordLifecycleActionHeartbeat prolongs it; both are
  answered with ValidationError where nothing waits with that token;
- activities of Auto Scaling groups: DescribeScalingActivities lists what a test says (moto lists none);
- capacity: of groups named in ``exhausted`` no instance is launched (moto always launches);
- zones: an instance is launched in the zone of its group that has fewest (moto takes one at random for all);
- templates: an instance says the version of the launch template from which it was launched (moto: the default one, always);
- targets: one may be registered on several ports of a group (moto keeps one), if it is an instance that was started
  (InvalidTarget); deregistered, each is ``draining`` for the delay, and registered no more after it.

It also keeps which calls were made, as IAM names them.
"""

import io
import itertools
import json
import logging
import math
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs

import boto3
from botocore.exceptions import ClientError
from moto.autoscaling.models import FakeAutoScalingGroup, InstanceState
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from rebalancer.base.sending import attempt
from tests.support.serving import serving

REGION = "eu-west-1"
ACCOUNT = "123456789012"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_MAX_ATTEMPTS": "1",
}
"""Environment variables with which a process is let in."""
_SCOPE = re.compile(r"Credential=[^/]+/\d+/[^/]+/([^/]+)/aws4_request")
_KEY = re.compile(r"Credential=([^/]+)/")
_PREFIXES = {"elbv2": "elasticloadbalancing"}
_ELB = "http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/"
_INVOCATIONS = re.compile(r"/2015-03-31/functions/([^/]+)/invocations")


@dataclass
class Cloud:
    """A cloud at an address."""

    now: Callable[[], float]
    url: str = ""
    drains: float = 0.0
    """Seconds for which a target is draining."""
    calls: list[str] = field(default_factory=list)
    """``service:Action`` of each call, in IAM's words."""
    ours: list[str] = field(default_factory=list)
    """Those of them that the product made, by its user agent."""
    keys: list[tuple[str, str]] = field(default_factory=list)
    """Those calls, each with the id of the access key that has signed it."""
    identities: list[tuple[str, str, str]] = field(default_factory=list)
    """Action, role and token of each call for temporary credentials, which nobody signs."""
    waiting: dict[str, dict[str, str]] = field(default_factory=dict)
    """Token -> the lifecycle action that waits: Terminating:Wait."""
    heartbeats: list[str] = field(default_factory=list)
    completed: list[tuple[str, str]] = field(default_factory=list)
    """Instance and result of each lifecycle action that was completed."""
    invoked: list[dict[str, str]] = field(default_factory=list)
    """What functions were handed over."""
    refuses: dict[str, int | tuple[int, str, str]] = field(default_factory=dict)
    """``service:Action`` -> status, or status, code and message: how each of these calls is answered."""
    held: dict[str, threading.Event] = field(default_factory=dict)
    """``service:Action``, of functions with the name after it -> what each of these calls waits for."""
    instances: set[str] = field(default_factory=set)
    """Those that were started by :meth:`instance`: no other can be a target."""
    longest_poll: float = math.inf
    """Seconds for which a queue may be polled, whatever the call asks for: a process that was killed leaves its poll behind."""
    receipts: list[tuple[str, str]] = field(default_factory=list)
    """Queue and receipt handle of what the product received by polls that were shortened."""
    after_call: Callable[[str, Mapping[str, str]], None] = lambda *_: None
    """Called with each call of the product, and its form, when it was carried out; the answer waits for its end."""
    exhausted: set[str] = field(default_factory=set)
    """Auto Scaling groups for which AWS has no capacity."""
    activities: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    """Auto Scaling group -> its activities, newest first, with the fields of the API reference."""
    targets: dict[tuple[str, str, str], float] = field(default_factory=dict)
    """Target group, target and port -> the time at which it is registered no more."""
    _session: boto3.session.Session = field(
        default_factory=lambda: boto3.session.Session("test", "test", region_name=REGION)
    )
    _clients: dict[str, Any] = field(default_factory=dict)
    _making: threading.Lock = field(default_factory=threading.Lock)

    def client(self, service):
        """Return a client for what a test does itself; its calls count as any other's."""
        with self._making:
            if service not in self._clients:
                # A session reads hundreds of files: one for all tests, as it must not be used by two threads at once.
                self._clients[service] = self._session.client(service, endpoint_url=self.url)
            return self._clients[service]

    def configure(self, settings):
        """Set what moto itself can be set to."""
        body = json.dumps(settings).encode()
        assert attempt("POST", f"{self.url}/moto-api/config", body, {}, 60) is None

    def seed(self, number):
        """Have moto name what it makes from here on as it did after this number before."""
        # The first question makes the default network, whose names come from the same numbers.
        self.client("ec2").describe_subnets()
        assert attempt("POST", f"{self.url}/moto-api/seed?a={number}", b"", {}, 60) is None

    def queue(self, name=None, *, fifo=False):
        """Make a queue; return its URL."""
        given = {"Attributes": {"FifoQueue": "true"}} if fifo else {}
        name = name or f"q-{uuid.uuid4().hex}"
        return self.client("sqs").create_queue(QueueName=name, **given)["QueueUrl"]

    def redeliver(self):
        """Let the time pass after which received messages that were not deleted are given to another process."""
        receipts, self.receipts[:] = [*self.receipts], []
        for url, receipt in receipts:
            # One that was deleted, or is visible again, has no time that could pass.
            with suppress(ClientError):
                self.client("sqs").change_message_visibility(
                    QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=0
                )

    def instance(self, group=None):
        """Start an instance; return its id."""
        started = self.client("ec2").run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1)
        name = started["Instances"][0]["InstanceId"]
        self.instances.add(name)
        return name

    def terminates(self, instance, hook, queue, *, wrapped=False):
        """Let an Auto Scaling group's hook hold an instance that is to go, and say so to its queue; return the token."""
        token = str(uuid.uuid4())
        action = {
            "LifecycleActionToken": token,
            "AutoScalingGroupName": "workers",
            "LifecycleHookName": hook,
            "EC2InstanceId": instance,
            "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
        }
        self.waiting[token] = action
        text = json.dumps({**action, "Service": "AWS Auto Scaling", "Origin": "AutoScalingGroup"})
        body = json.dumps({"Type": "Notification", "Message": text}) if wrapped else text
        self.client("sqs").send_message(QueueUrl=queue, MessageBody=body)
        return token


class Front:
    """What is asked of moto passes here first."""

    def __init__(self, cloud):
        self._cloud, self._moto = cloud, DomainDispatcherApplication(create_backend_app)
        # It reads its own folders for each request otherwise.
        self._moto.get_backend_for_host = cache(self._moto.get_backend_for_host)  # type: ignore[method-assign]
        self._own = {
            "autoscaling:CompleteLifecycleAction": self._lifecycle,
            "autoscaling:RecordLifecycleActionHeartbeat": self._lifecycle,
            "autoscaling:DescribeScalingActivities": self._activities,
            "elasticloadbalancing:RegisterTargets": self._register,
            "elasticloadbalancing:DeregisterTargets": self._deregister,
            "elasticloadbalancing:DescribeTargetHealth": self._health,
        }

    def __call__(self, environ, start_response):
        cloud = self._cloud
        size = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(size)
        call, form = called(environ, body)
        ours = "kube-rebalancer/" in environ.get("HTTP_USER_AGENT", "")
        if call is not None:
            cloud.calls.append(call)
            if ours:
                cloud.ours.append(call)
                signed = _KEY.search(environ.get("HTTP_AUTHORIZATION", ""))
                cloud.keys.append((call, signed[1] if signed else ""))
            function = _INVOCATIONS.search(environ.get("PATH_INFO", ""))
            held = cloud.held.get(f"{call} {function[1]}" if function else call)
            if held is not None:
                held.wait(600)
            if call in cloud.refuses:
                said = cloud.refuses[call]
                said = said if isinstance(said, tuple) else (said, "Injected", "by the test")
                return failing(start_response, *said)
        if call is None and b"WebIdentityToken=" in body:
            asked = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            cloud.identities.append((asked["Action"], asked["RoleArn"], asked["WebIdentityToken"]))
        if ours and call == "sqs:ReceiveMessage" and cloud.longest_poll < math.inf:
            return self._poll(environ, start_response, body)
        answered = self._answered(environ, start_response, call, form, body)
        if ours and call is not None:
            cloud.after_call(call, form)
        return answered

    def _answered(self, environ, start_response, call, form, body):
        if call == "lambda:InvokeFunction":
            self._cloud.invoked.append(json.loads(body))
        if (own := self._own.get(call)) is not None:
            return own(start_response, form)
        return self._pass(environ, start_response, body)

    def _poll(self, environ, start_response, body):
        cloud, asked = self._cloud, json.loads(body)
        time.sleep(min(cloud.longest_poll, asked.get("WaitTimeSeconds", 0)))
        at_once = json.dumps({**asked, "WaitTimeSeconds": 0}).encode()
        answer = b"".join(self._pass(environ, start_response, at_once))
        messages = json.loads(answer).get("Messages", ())
        cloud.receipts += [(asked["QueueUrl"], each["ReceiptHandle"]) for each in messages]
        if messages:
            cloud.after_call("sqs:ReceiveMessage", {})
        return [answer]

    def _pass(self, environ, start_response, body):
        inner = {**environ, "wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        return self._moto(inner, start_response)

    def _lifecycle(self, start_response, form):
        token = form.get("LifecycleActionToken", "")
        action = self._cloud.waiting.get(token)
        asked = (form.get("InstanceId"), form.get("LifecycleHookName"))
        if action is None or asked != (action["EC2InstanceId"], action["LifecycleHookName"]):
            words = f"No active Lifecycle Action with token {token}"
            return failing(start_response, 400, "ValidationError", words)
        name = form["Action"]
        if name.endswith("Heartbeat"):
            self._cloud.heartbeats.append(action["EC2InstanceId"])
        else:
            del self._cloud.waiting[token]
            self._cloud.completed.append(
                (action["EC2InstanceId"], form.get("LifecycleActionResult", ""))
            )
        return answer(start_response, 200, f"<{name}Response><{name}Result/></{name}Response>")

    def _activities(self, start_response, form):
        listed = "".join(
            f"<member>{''.join(f'<{key}>{value}</{key}>' for key, value in one.items())}</member>"
            for one in self._cloud.activities.get(form["AutoScalingGroupName"], ())
        )
        name = "DescribeScalingActivities"
        text = f"<{name}Response><{name}Result><Activities>{listed}</Activities></{name}Result></{name}Response>"
        return answer(start_response, 200, text)

    def _register(self, start_response, form):
        for target in targets(form):
            if target[1] not in self._cloud.instances:
                words = f"The following targets are not in a running state: {target[1]}"
                return failing(start_response, 400, "InvalidTarget", words)
            self._cloud.targets[target] = math.inf
        return answer(start_response, 200, elb("RegisterTargets"))

    def _deregister(self, start_response, form):
        for target in targets(form):
            if self._cloud.targets.get(target) == math.inf:
                # One that is draining goes on as it was.
                self._cloud.targets[target] = self._cloud.now() + self._cloud.drains
        return answer(start_response, 200, elb("DeregisterTargets"))

    def _health(self, start_response, form):
        members = [
            f"<member><Target><Id>{name}</Id><Port>{port}</Port></Target><TargetHealth><State>"
            f"{'healthy' if ends == math.inf else 'draining'}</State></TargetHealth></member>"
            for (group, name, port), ends in list(self._cloud.targets.items())
            if group == form["TargetGroupArn"] and ends > self._cloud.now()
        ]
        listed = f"<TargetHealthDescriptions>{''.join(members)}</TargetHealthDescriptions>"
        return answer(start_response, 200, elb("DescribeTargetHealth", listed))


def elb(action, result=""):
    return f'<{action}Response xmlns="{_ELB}"><{action}Result>{result}</{action}Result></{action}Response>'


def called(environ, body):
    """Return the call in IAM's words and, of a query, its form; None for what is no call of a service."""
    scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
    if scope is None:
        return None, {}
    service = _PREFIXES.get(scope[1], scope[1])
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    if target:
        return f"{service}:{target.rpartition('.')[2]}", {}
    if _INVOCATIONS.search(environ.get("PATH_INFO", "")):
        return "lambda:InvokeFunction", {}
    form = {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
    return (f"{service}:{form['Action']}" if "Action" in form else None), form


def targets(form):
    """Yield group, target and port of each target in a form."""
    for number in itertools.count(1):
        if f"Targets.member.{number}.Id" not in form:
            return
        yield (
            form["TargetGroupArn"],
            form[f"Targets.member.{number}.Id"],
            form.get(f"Targets.member.{number}.Port", ""),
        )


def answer(start_response, status, text):
    words = {200: "200 OK", 400: "400 Bad Request"}.get(status, f"{status} Injected")
    start_response(words, [("Content-Type", "text/xml"), ("Content-Length", str(len(text)))])
    return [text.encode()]


def failing(start_response, status, code, words):
    error = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{words}</Message></Error>"
    return answer(start_response, status, f"<ErrorResponse>{error}</ErrorResponse>")


def launched_from(state):
    """The template of an instance, with the version from which it was launched."""
    template = state.auto_scaling_group.ec2_launch_template
    version = getattr(state.instance, "launched_from", None)
    if template is None or version is None:
        return None
    return {
        "LaunchTemplateId": template.id,
        "LaunchTemplateName": template.name,
        "Version": str(version),
    }


@contextmanager
def in_the_cloud(now) -> Iterator[Cloud]:
    """Yield a cloud of its own; ``now``: its clock, in seconds."""
    cloud = Cloud(now)
    # A line for each of thousands of requests, which pytest would keep for each test.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, Front(cloud), threaded=True)
    launch = FakeAutoScalingGroup.replace_autoscaling_group_instances

    def launched(group, count, tags):
        if group.name in cloud.exhausted:
            return
        zones = group.availability_zones
        for _ in range(count):
            there = Counter(one.availability_zone for one in group.instance_states)
            group.availability_zones = [min(zones, key=lambda zone: (there[zone], zone))]
            try:
                launch(group, 1, tags)
            finally:
                group.availability_zones = zones
            instance = group.instance_states[-1].instance
            if (template := group.ec2_launch_template) is not None:
                version = template.get_version(group.launch_template_version)
                instance.launched_from = version.number
            else:
                instance.configured_by = group.launch_configuration_name

    server.daemon_threads = True  # type: ignore[attr-defined]
    launches = patch.object(FakeAutoScalingGroup, launch.__name__, launched)
    templates = patch.object(InstanceState, "launch_template", property(launched_from))
    configurations = patch.object(
        InstanceState,
        "launch_configuration_name",
        property(lambda state: getattr(state.instance, "configured_by", None)),
    )
    with serving(server) as cloud.url, launches, templates, configurations:
        try:
            yield cloud
        finally:
            for event in cloud.held.values():
                event.set()
