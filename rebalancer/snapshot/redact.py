"""Replace the names in objects by pseudonyms: the HMAC of the name with a key that only the user has.

The same name has the same pseudonym in all objects and snapshots, so that owners, selectors, volumes and images still
match and plans are equal; without the key a name can be neither read nor guessed.

Only listed parts are kept readable: the fields that the product reads (all others are dropped, so no key of a map that
is not listed here is kept), words of the API among their values, numbers, quantities and times, keys of labels and
taints, uids, and names that exist in every cluster.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from rebalancer.base.errors import PolicyError
from rebalancer.wire import metrics, objects, pods
from rebalancer.wire.annotations import OURS, is_read

MIN_KEY = 16
"""Bytes of a key, at least."""

_LENGTH = 13
"""Characters of a pseudonym after its first letter, 5 bits each: two of a million names are equal once in 70 million keys."""
_CACHE = 1 << 17


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LABEL_KEYS = _words("key topologyKey topologyKeys matchLabelKeys mismatchLabelKeys")
"""Fields whose text is the key of a label or taint."""
_PROGRAMS = _words("driver provisioner")
"""Fields that name the program that provides a volume."""
_AMOUNTS = _words(
    "allocatable allocatedResources capacity hard limits minResources overhead requests usage used"
)
"""Maps whose keys are resources."""
_PLAIN_FIELDS = _words(
    "maxSurge maxUnavailable minAvailable sizeLimit window cpu memory consolidateAfter expireAfter nodes duration"
    " terminationGracePeriod schedule"
)
"""Fields that are a number, a share, a quantity or a schedule, in text."""
_NODE_FIELDS = _words("allowedTopologies nodeAffinity nodeSelector taints tolerations")
"""Fields that select by what nodes have: there numbers are compared as numbers."""
_MORE_FIELDS = _words("all apiGroup matchLabelExpressions single topology volumeClaimTemplate")
"""Fields within what no struct describes."""
_API_WORDS = _words(
    "Active AlwaysAllow Always Available BestEffort Block Bound Burstable Completed Count CrossNamespacePodAffinity Delete DoNotSchedule DoesNotExist"
    " Equal Exists FailIndex FailJob Failed False Filesystem Gt Guaranteed Honor HugePages HugePages-1Gi HugePages-2Mi IfHealthyBudget Ignore Immediate In"
    " Inqueue Lost Lt Memory Never NoExecute NoSchedule NotBestEffort NotIn NotTerminating OnDelete OnFailure Pending Pod PodGroup PreemptLowerPriority"
    " PreferNoSchedule PriorityClass ReadOnlyMany ReadWriteMany ReadWriteOnce ReadWriteOncePod Recreate Recycle Released Restart"
    " RestartAllContainers Retain RollingUpdate Running SCTP ScheduleAnyway Succeeded TCP Terminating TerminatingOrFailed True UDP Unknown"
    " VolumeAttributesClass WaitForFirstConsumer Cluster Local amd64 arm arm64 ppc64le riscv64 s390x"
    # Types of conditions.
    " AbleToScale Complete ContainersReady DiskPressure DisruptionAllowed DisruptionTarget FailureTarget Initialized KernelDeadlock MemoryPressure"
    " NetworkUnavailable PIDPressure PodReadyToStartContainers PodResizeInProgress PodResizePending PodScheduled Progressing ReadonlyFilesystem Ready"
    " ReplicaFailure ScalingActive ScalingLimited Schedulable Scheduled SuccessCriteriaMet Suspended"
    " Consolidatable DisruptionReason Drifted Launched NodeRegistrationHealthy Registered"
    # Karpenter's reasons and policies.
    " Balanced Empty Underutilized WhenEmpty WhenEmptyOrUnderutilized"
    # Reasons of Kubernetes' components and of autoscalers.
    " BackOff BackoffLimitExceeded ContainerCannotRun ContainerCreating ContainersNotReady CrashLoopBackOff CreateContainerConfigError"
    " CreateContainerError DeadlineExceeded DeadlineExceededSoftly Deferred DeletionByPodGC DeletionByTaintManager ErrImageNeverPull ErrImagePull Error Evicted"
    " EvictionByEvictionAPI FailedScheduling FailedGetResourceMetric FailedGetScale ImageInspectError ImagePullBackOff Infeasible InsufficientPods"
    " InvalidImageName InvalidMetricSourceType InvalidSelector KubeletHasDiskPressure KubeletHasInsufficientMemory KubeletHasInsufficientPID"
    " KubeletHasNoDiskPressure KubeletHasSufficientMemory KubeletHasSufficientPID KubeletNotReady KubeletReady MinimumReplicasAvailable"
    " MinimumReplicasUnavailable NetworkUnavailable NewReplicaSetAvailable NodeAffinity NodeLost NodeShutdown NodeStatusNeverUpdated NodeStatusUnknown Nominated"
    " OOMKilled OutOfcpu OutOfmemory OutOfpods PodCompleted PodFailed PodFailurePolicy PodInitializing PreemptionByScheduler PreemptionByKubeScheduler"
    " ProgressDeadlineExceeded ReadyForNewScale ReplicaSetUpdated RouteCreated RunContainerError ScalingDisabled SchedulerError SchedulingGated Shutdown"
    " StartError SucceededRescale SufficientPods Terminated TerminationByKubelet TooFewReplicas TooManyReplicas TriggeredScaleUp UnexpectedAdmissionError"
    " Unschedulable ValidMetricFound DesiredWithinRange"
)
"""Values that the API and its programs define; any other text of such a field is a name of somebody."""
_RESOURCES = re.compile(
    r"(requests\.|limits\.)?(cpu|memory|storage|ephemeral-storage|pods|hugepages-\d+[KMG]i"
    r"|attachable-volumes-[a-z0-9./-]+|([a-z0-9-]+\.)*(kubernetes\.io|nvidia\.com|amd\.com|intel\.com|amazonaws\.com|habana\.ai)/[a-z0-9.-]+)"
    r"|services(\.(loadbalancers|nodeports))?|replicationcontrollers|resourcequotas|secrets|configmaps|persistentvolumeclaims"
    r"|count/[a-z]+(\.apps|\.batch|\.policy|\.autoscaling)?",
    re.ASCII,
)
"""Resources of Kubernetes and of makers of devices."""
_GROUPS = _words("apps autoscaling batch extensions policy")
_KINDS = _words(
    "CronJob DaemonSet Deployment Job Node Pod ReplicaSet ReplicationController StatefulSet PodTemplate"
)
"""Kinds that are kept readable even without an API group beside them."""
_VERSION = re.compile(r"v\d+((alpha|beta)\d+)?", re.ASCII)
_KUBELET = re.compile(r"v?\d+\.\d+(\.\d+)?", re.ASCII)
_EVERYWHERE = _words(
    "default kube-system kube-public kube-node-lease default-scheduler system-cluster-critical system-node-critical 0.0.0.0"
    " 127.0.0.1 :: linux windows"
)
"""Names that every cluster has."""
_PUBLIC_LABELS = _words(
    "kubernetes.io/os kubernetes.io/arch beta.kubernetes.io/os beta.kubernetes.io/arch node.kubernetes.io/instance-type"
    " beta.kubernetes.io/instance-type karpenter.sh/capacity-type eks.amazonaws.com/capacityType kubernetes.io/config.source"
    " gang.scheduling.koordinator.sh/match-policy pod-group.scheduling.sigs.k8s.io/match-policy"
    " leaderworkerset.sigs.k8s.io/exclusive-topology alpha.jobset.sigs.k8s.io/exclusive-topology"
)
"""Labels and annotations whose values are no names of the user."""
_PUBLIC_DOMAINS = (
    "kubernetes.io",
    "k8s.io",
    "x-k8s.io",
    "karpenter.sh",
    "volcano.sh",
    "koordinator.sh",
    "run.ai",
    "argoproj.io",
    "kruise.io",
    "kubeflow.org",
    "ray.io",
    "pod-group-name",
)
"""Of labels, annotations and kinds whose words are no names of the user (KAI's annotation has no domain)."""
_ORDINAL = re.compile(r"(.+)(-\d{1,6})", re.ASCII)
"""An ordinal at the end of the names of StatefulSets' pods, whose order matters; it is kept."""
_ATTACHED = re.compile(r"(kubernetes\.io/csi/[^^]+\^)(.+)", re.ASCII)
"""A volume of a node's status, by its driver."""
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"
_CRON = r"(?:[\d*,/-]|sun|mon|tue|wed|thu|fri|sat)+"
_PLAIN = re.compile(
    r"-?\d+(\.\d+)?(e-?\d+|[EPTGMk]i?|[mnu]|Ki|%|[smhd])?|true|false|now"
    rf"|(true|false) (for (\d+[smhd])+|until {_TIME})|{_TIME}"
    rf"|{_CRON}( {_CRON}){{4}}|@(hourly|daily|midnight|weekly|monthly|yearly|annually)",
    re.ASCII,
)
"""Numbers, quantities, shares, durations, times, booleans, schedules."""


@cache
def _known_fields() -> frozenset[str]:
    """Return the names of all fields that are read of any object."""
    structs = [
        one
        for module in (objects, pods, metrics)
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, msgspec.Struct)
    ]
    names = {field.encode_name for one in structs for field in msgspec.structs.fields(one)}
    # What lists are made of: an object has it only as the keys of a Secret or a ConfigMap that a pod mounts.
    return frozenset(names | _MORE_FIELDS | _AMOUNTS) - {"items"}


def _is_public(name: str) -> bool:
    domain = name.partition("/")[0]
    return any(domain == of or domain.endswith(f".{of}") for of in _PUBLIC_DOMAINS)


class Redactor:
    """Replaces the names in objects by pseudonyms, which it makes with one secret key."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.pseudonym = lru_cache(_CACHE)(self._pseudonym)

    def __repr__(self) -> str:
        return "Redactor(...)"

    @classmethod
    def of_file(cls, path: str) -> Redactor:
        """Return the redactor with the key in a file; trailing white space is ignored.

        Raises:
            PolicyError: the file cannot be read, or the key is too short to be one.
        """
        try:
            key = Path(path).read_bytes().rstrip()
        except OSError as error:
            raise PolicyError([f"{path}: cannot be read: {error.strerror or error}"]) from None
        if len(key) < MIN_KEY:
            raise PolicyError(
                [f"{path}: a key has {MIN_KEY} bytes or more; make one: openssl rand -hex 32"]
            )
        return cls(key)

    def _pseudonym(self, name: str) -> str:
        """Return the pseudonym of a name: a valid object name and label value; "" for ""."""
        if not name or name in _EVERYWHERE:
            return name
        if match := _ORDINAL.fullmatch(name):
            return self.pseudonym(match[1]) + match[2]
        if match := _ATTACHED.fullmatch(name):
            return match[1] + self.pseudonym(match[2])
        return self._hash(name)

    def _hash(self, name: str) -> str:
        digest = hmac.new(self._key, name.encode(), hashlib.sha256).digest()
        return "x" + base64.b32hexencode(digest).decode()[:_LENGTH].lower()

    def redact(self, kind: str, item: bytes | Raw) -> bytes:
        """Return an object in JSON without its names."""
        fields = msgspec.json.decode(item)
        redacted = self._fields(fields, plain=kind == "Node")
        meta, given = redacted.get("metadata"), fields.get("metadata")
        if isinstance(meta, dict) and isinstance(meta.get("name"), str):
            meta["name"] = self._object_name(kind, given)
        return msgspec.json.encode(redacted)

    def _object_name(self, kind: str, meta: Mapping[str, Any]) -> str:
        name: str = meta["name"]
        owner: Mapping[str, Any] = next(
            (one for one in meta.get("ownerReferences") or () if one.get("controller")), {}
        )
        prefix = f"{owner.get('name')}-"
        if (
            kind == "PersistentVolumeClaim"
            and owner.get("kind") == "Pod"
            and name.startswith(prefix)
        ):
            # The claim of an ephemeral volume: POD-VOLUME.
            return f"{self.pseudonym(prefix[:-1])}-{self.pseudonym(name[len(prefix) :])}"
        return self.pseudonym(name)

    def _fields(self, fields: Mapping[str, Any], *, plain: bool = False) -> dict[str, Any]:
        """Return the known fields of an object or a part of it; ``plain``: it belongs to a node, whose numbers are kept."""
        known = _known_fields()
        redacted = {
            key: self._field(key, value, plain=plain or key in _NODE_FIELDS)
            for key, value in fields.items()
            if key in known
        }
        if "kind" in redacted:
            self._hide_kind(fields, redacted)
        return redacted

    def _hide_kind(self, given: Mapping[str, Any], redacted: dict[str, Any]) -> None:
        """Redact a kind and its API version, unless they are of Kubernetes or of a public project."""
        field = "apiGroup" if given.get("apiGroup") else "apiVersion"
        version, kind = given.get(field), given["kind"]
        group = version.rpartition("/")[0] if field == "apiVersion" and version else version or ""
        if (kind in _KINDS and not group) or group in _GROUPS or _is_public(group):
            redacted |= {"kind": kind} | ({field: version} if version else {})
        elif version:
            number = version.rpartition("/")[2]
            shown = f"/{number}" if _VERSION.fullmatch(number) and number != version else ""
            redacted[field] = self.pseudonym(group or version) + shown

    def _field(self, key: str, value: Any, *, plain: bool) -> Any:
        if isinstance(value, dict):
            return self._map(key, value, plain=plain)
        if key in ("matchExpressions", "matchLabelExpressions") and isinstance(value, list):
            return [self._expression(one, plain=plain) for one in value]
        if key == "drivers" and isinstance(value, list):
            # Of a CSINode: names of programs, as of StorageClasses and volumes.
            return [
                {**self._fields(one), "name": one.get("name", "")}
                for one in value
                if isinstance(one, dict)
            ]
        if key in ("image", "names", "reference"):
            return self._images(value)
        if isinstance(value, list):
            return [self._field(key, one, plain=plain and key != "matchFields") for one in value]
        if plain and key == "value":
            return self._number(value)
        return self._text(key, value) if isinstance(value, str) else value

    def _map(self, key: str, value: Mapping[str, Any], *, plain: bool) -> dict[str, Any]:
        """Redact a map, whose keys are fields of the API unless it is listed here."""
        if key == "annotations":
            return self._annotations(value)
        # Of a Service and a ReplicationController it is the labels themselves.
        of_labels = key == "selector" and not {"matchLabels", "matchExpressions"} & set(value)
        if of_labels or key in ("labels", "matchLabels", "nodeSelector"):
            return {label: self._label(label, text, plain=plain) for label, text in value.items()}
        if key == "minTaskMember":
            return {self.pseudonym(task): number for task, number in value.items()}
        if key in _AMOUNTS and not isinstance(value.get("count"), int):
            return {
                self._resource(of): self._number(amount)
                for of, amount in value.items()
                # Quotas of a storage class have its name in their keys.
                if ".storageclass." not in of and not isinstance(amount, dict | list)
            }
        return self._fields(value, plain=plain)

    def _text(self, key: str, text: str) -> str:
        """Redact the text of a field, unless the API defines what it may be."""
        if key in _LABEL_KEYS | _PROGRAMS or key == "uid":
            return text
        if key == "kubeletVersion":
            version = _KUBELET.match(text)
            return version[0] if version else ""
        if (
            key == "resourceVersion"
            or key in _PLAIN_FIELDS
            or key.endswith(("Time", "Timestamp", "timestamp"))
        ):
            return self._number(text)
        if text in _API_WORDS and key not in ("name", "namespace", "value", "values"):
            return text
        if key == "provisioningStrategy" and _is_public(text):
            return text
        return self.pseudonym(text)

    def _number(self, value: Any) -> Any:
        return (
            self.pseudonym(value)
            if isinstance(value, str) and not _PLAIN.fullmatch(value)
            else value
        )

    def _resource(self, name: str) -> str:
        if _RESOURCES.fullmatch(name):
            return name
        match = re.fullmatch(r"(requests\.|limits\.|count/)?([^/]*)(/?)(.*)", name, re.DOTALL)
        # It matches any text; what is before the slash and after it are names of their own.
        prefix, domain, slash, rest = match.groups("") if match else ("", name, "", "")
        return f"{prefix}{self.pseudonym(domain)}{slash}{self.pseudonym(rest)}"

    def _label(self, label: str, text: Any, *, plain: bool) -> Any:
        if not isinstance(text, str) or label in _PUBLIC_LABELS:
            return text if isinstance(text, str) or text is None else None
        if label != "kubernetes.io/hostname" and (plain or _is_public(label)):
            return self._number(text)
        return self.pseudonym(text)

    def _expression(self, one: Any, *, plain: bool) -> Any:
        if not isinstance(one, dict):
            return None
        label, values = one.get("key", ""), one.get("values")
        redacted = self._fields(one, plain=plain)
        if isinstance(values, list):
            redacted["values"] = [self._label(label, text, plain=plain) for text in values]
        return redacted

    def _annotations(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the annotations that are read; ours may contain text about objects, and are kept only as plain values."""
        kept: dict[str, Any] = {}
        for key, text in given.items():
            if key.startswith(OURS):
                if isinstance(text, str) and _PLAIN.fullmatch(text):
                    kept[key] = text
            elif is_read(key):
                kept[key] = self._label(key, text, plain=True)
        return kept

    def _images(self, value: Any) -> Any:
        """Add the tag that kube-scheduler adds to images without one, so that pods still match nodes."""
        if isinstance(value, list):
            return [self._images(one) for one in value]
        if not isinstance(value, str) or not value:
            return "" if isinstance(value, str) else None
        # normalizedImageName of pkg/scheduler/framework/plugins/imagelocality.
        tagged = value if value.rfind(":") > value.rfind("/") else f"{value}:latest"
        return f"{self.pseudonym(tagged)}:x"
