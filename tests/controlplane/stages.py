"""The stages by which KWOK simulates nodes and pods.

A stage has a condition (jq), a delay, and the change of the object.
Tests control single objects by the annotations below.

KWOK addresses a pod by its name only, sometimes twice: a change queued for a deleted pod would be applied to the next
pod of that name, which a StatefulSet creates at once. So every change of a pod has its uid, as a kubelet's, and the
API server refuses the others as conflicts.
"""

import json
import textwrap
from typing import Any

import yaml

from tests.controlplane.options import Options

READY_AFTER = "rebalancer.test/ready-after"
"""On a pod: a Go duration ("5s") from its binding until it is Ready."""

NEVER_READY = "rebalancer.test/never-ready"
"""On a pod: "true" makes it Running but not Ready; may be set and removed while it runs."""

NEVER_ENDS = "rebalancer.test/never-ends"
"""On a pod: "true" keeps it terminating once it was deleted; may be set and removed meanwhile."""

COMPLETE_AFTER = "rebalancer.test/complete-after"
"""On a pod: a Go duration from its start until it completes; pods of Jobs also complete without it."""

FAILS = "rebalancer.test/fails"
"""On a pod that completes: "true" makes it fail."""

NODE_NOT_READY = "rebalancer.test/not-ready"
"""On a node: "true" makes its kubelet report NotReady; may be set and removed."""

MANAGED = "kwok.x-k8s.io/node"
"""On a node: "fake" has KWOK simulate it if only annotated nodes are simulated."""

_ENDED_AT = "rebalancer.test/ended-at"
"""On a pod, by KWOK: when it last ended, just before it is deleted."""

_HEARTBEAT_SECONDS = 300
_END_AGAIN_SECONDS = 5
"""After which a pod is ended once more, should its deletion have failed in an outage."""
_WORKERS = 16


def render(options: Options) -> str:
    """Return the configuration file of KWOK: its options and all stages."""
    settings = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "metadata": {"name": "kwok"},
        "options": {
            "podPlayStageParallelism": _WORKERS,
            "nodePlayStageParallelism": _WORKERS,
            "podsOnNodeSyncParallelism": _WORKERS,
        },
    }
    return yaml.safe_dump_all([settings, *_node_stages(), *_pod_stages(options)])


def _node_stages() -> list[dict[str, Any]]:
    ready = _condition("Ready")
    lame = _flag(NODE_NOT_READY)
    return [
        _stage("node-ready", "Node", f'{ready} != "True" and ({lame} | not)', _NODE_READY),
        _stage("node-not-ready", "Node", f'{ready} == "True" and {lame}', _NODE_NOT_READY),
        _stage(
            "node-heartbeat",
            "Node",
            f'{ready} == "True" and ({lame} | not)',
            _NODE_HEARTBEAT,
            delay=f'"{_HEARTBEAT_SECONDS}s"',
        ),
    ]


def _pod_stages(options: Options) -> list[dict[str, Any]]:
    alive = ".metadata.deletionTimestamp == null"
    unfinished = '(.status.phase == "Pending" or .status.phase == "Running")'
    ready = f'{_condition("Ready")} == "True"'
    never = _flag(NEVER_READY)
    of_job = 'any(.metadata.ownerReferences[]?; .kind == "Job")'
    completes = f"({of_job} or {_annotation(COMPLETE_AFTER)} != null)"
    due = f"{alive} and {unfinished}"
    start = _duration(READY_AFTER, options.pod_ready_after)
    run = _duration(COMPLETE_AFTER, options.job_duration)
    grace = f'"\\([.metadata.deletionGracePeriodSeconds // 0, {options.pod_grace_cap}] | min)s"'
    end = f'if {_annotation(_ENDED_AT)} then "{_END_AGAIN_SECONDS}s" else {grace} end'
    not_started = f"(({ready}) | not) and ({never} | not)"
    lame = f'{never} and (({ready}) or .status.phase == "Pending")'
    succeeds = f"{due} and ({ready}) and ({never} | not) and {completes}"
    deleted = f".metadata.deletionTimestamp != null and ({_flag(NEVER_ENDS)} | not)"
    return [
        _stage("pod-ready", "Pod", f"{due} and {not_started}", _POD_READY, delay=start),
        _stage("pod-not-ready", "Pod", f"{due} and {lame}", _POD_NOT_READY, delay=start),
        _stage("pod-complete", "Pod", f"{succeeds} and ({_flag(FAILS)} | not)", _DONE, delay=run),
        _stage("pod-fail", "Pod", f"{succeeds} and {_flag(FAILS)}", _FAILED, delay=run),
        _stage("pod-end", "Pod", f"{deleted} and ({of_job} | not)", delay=end, delete=True),
        # As with a kubelet: a killed pod is Failed before it is deleted, and its Job counts that.
        _stage("pod-end-of-job", "Pod", f"{deleted} and {of_job}", _KILLED, delay=end, delete=True),
    ]


def _stage(
    name: str,
    kind: str,
    when: str,
    status: str = "",
    *,
    delay: str | None = None,
    delete: bool = False,
) -> dict[str, Any]:
    # The annotation is first, with the resourceVersion: a deletion needs the pod's newest version.
    steps: list[dict[str, Any]] = (
        [{"patch": {"root": "metadata", "template": _END}}] if delete else []
    )
    if status:
        template = _of_this_pod(status) if kind == "Pod" else _as_status(status)
        steps.append({"patch": {"subresource": "status", "root": "", "template": template}})
    if delete:
        steps.append({"delete": True})
    spec: dict[str, Any] = {
        "resourceRef": {"apiGroup": "v1", "kind": kind},
        # One jq condition per stage: several keys of KWOK's own could not say "or".
        "selector": {
            "matchExpressions": [
                {
                    "jq": {
                        "key": f'if {when} then "due" else empty end',
                        "operator": "In",
                        "values": ["due"],
                    }
                }
            ]
        },
        "steps": steps,
    }
    if delay is not None:
        spec["delay"] = {"durationFrom": {"jq": {"expression": delay}}}
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": spec,
    }


def _annotation(name: str) -> str:
    return f"(.metadata.annotations[{json.dumps(name)}]?)"


def _flag(name: str) -> str:
    return f'({_annotation(name)} == "true")'


def _condition(kind: str) -> str:
    """Return the status of a condition as jq; an empty string if it is absent."""
    return f'([.status.conditions[]? | select(.type == "{kind}") | .status] | first // "")'


def _duration(annotation: str, seconds: float) -> str:
    return f'({_annotation(annotation)} // "{seconds:g}s")'


def _as_status(template: str) -> str:
    return f"status:\n{textwrap.indent(template, '  ')}"


def _of_this_pod(template: str) -> str:
    return f"metadata: {{uid: {{{{ .metadata.uid | Quote }}}}}}\n{_as_status(template)}"


_END = f"""
uid: {{{{ .metadata.uid | Quote }}}}
resourceVersion: {{{{ .metadata.resourceVersion | Quote }}}}
annotations: {{{json.dumps(_ENDED_AT)}: {{{{ Now | Quote }}}}}}
"""

_NODE_READY = """
{{ $now := Now }}
conditions:
{{ range NodeConditions }}
- lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $now | Quote }}
  message: {{ .message | Quote }}
  reason: {{ .reason | Quote }}
  status: {{ .status | Quote }}
  type: {{ .type | Quote }}
{{ end }}
addresses:
- address: {{ NodeIP | Quote }}
  type: InternalIP
- address: {{ .metadata.name | Quote }}
  type: Hostname
phase: Running
"""

_NODE_NOT_READY = """
{{ $now := Now }}
conditions:
- lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $now | Quote }}
  message: container runtime is down
  reason: KubeletNotReady
  status: "False"
  type: Ready
"""

_NODE_HEARTBEAT = """
{{ $now := Now }}
conditions:
{{ range .status.conditions }}
- lastHeartbeatTime: {{ $now | Quote }}
  type: {{ .type | Quote }}
{{ end }}
"""


def _pod_status(phase: str, ready: bool, state: str) -> str:
    """Return a template of a pod's status with all containers in one state."""
    value = str(ready)
    return f"""
{{{{ $now := Now }}}}
phase: {phase}
startTime: {{{{ or .status.startTime $now | Quote }}}}
{{{{ $nodeIP := NodeIPWith .spec.nodeName }}}}
hostIP: {{{{ $nodeIP | Quote }}}}
hostIPs:
- ip: {{{{ $nodeIP | Quote }}}}
{{{{ $name := or .metadata.name "" }}}}
{{{{ $own := or .spec.hostNetwork false }}}}
{{{{ $podIP := .status.podIP }}}}
{{{{ if not $podIP }}}}
{{{{ $podIP = PodIPWith .spec.nodeName $own .metadata.uid $name .metadata.namespace }}}}
{{{{ end }}}}
podIP: {{{{ $podIP | Quote }}}}
podIPs:
- ip: {{{{ $podIP | Quote }}}}
conditions:
- {{lastTransitionTime: {{{{ $now | Quote }}}}, status: "True", type: Initialized}}
- {{lastTransitionTime: {{{{ $now | Quote }}}}, status: "{value}", type: Ready}}
- {{lastTransitionTime: {{{{ $now | Quote }}}}, status: "{value}", type: ContainersReady}}
{{{{ range .spec.readinessGates }}}}
- {{lastTransitionTime: {{{{ $now | Quote }}}}, status: "True", type: {{{{ .conditionType }}}}}}
{{{{ end }}}}
containerStatuses:
{{{{ range .spec.containers }}}}
- image: {{{{ .image | Quote }}}}
  imageID: ""
  name: {{{{ .name | Quote }}}}
  ready: {value.lower()}
  restartCount: 0
  state: {state}
{{{{ end }}}}
"""


def _ended(code: int, reason: str) -> str:
    details = f"exitCode: {code}, reason: {reason}, finishedAt: {{{{ $now | Quote }}}}"
    return f"{{terminated: {{{details}}}}}"


_RUNNING = "{running: {startedAt: {{ $now | Quote }}}}"
_POD_READY = _pod_status("Running", True, _RUNNING)
_POD_NOT_READY = _pod_status("Running", False, _RUNNING)
_DONE = _pod_status("Succeeded", False, _ended(0, "Completed"))
_FAILED = _pod_status("Failed", False, _ended(1, "Error"))
_KILLED = _pod_status("Failed", False, _ended(143, "Error"))
