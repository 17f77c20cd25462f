"""Makes values.schema.json: the chart's own values, and the policy's keys as the policy model has them.

``python -m chart.tools.schema`` writes the file; with ``--check`` it only says whether it is stale.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rebalancer.policy.forms import schema as policy_schema
from rebalancer.policy.windows import CRON_PATTERN
from rebalancer.registry import Registry

FILE = Path(__file__).resolve().parents[1] / "values.schema.json"

Schema = dict[str, Any]

_NOT_IN_POLICY_VALUES = ("apiVersion", "kind", "mode", "strategies")
"""Keys of the policy file that are values of their own, or none."""

_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
_OBJECT: Schema = {"type": "object"}
_OBJECTS: Schema = {"type": "array", "items": {"type": "object"}}
_SCHEDULE: Schema = {
    "type": "string",
    "pattern": "^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|([0-9A-Za-z*/,?-]+ +){4}[0-9A-Za-z*/,?-]+)$",
    "examples": ["*/2 * * * *"],
}
"""A schedule in cron's five fields, or by name."""
_DURATION: Schema = {
    "type": "string",
    # At least one part, each once and in this order, or a plain number of seconds.
    "pattern": "^([0-9]+([.][0-9]+)?|([0-9]+d)?([0-9]+h)?([0-9]+m)?[0-9]+([.][0-9]+)?s|([0-9]+d)?([0-9]+h)?[0-9]+m|([0-9]+d)?[0-9]+h|[0-9]+d)$",
    "examples": ["2m"],
}
_EVERY: Schema = {"anyOf": [_DURATION, {"type": "string", "pattern": CRON_PATTERN}]}
"""When a process plans."""
_QUANTITIES: Schema = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [
            {"type": "number", "minimum": 0},
            {
                "type": "string",
                "pattern": "^[0-9]*[.]?[0-9]+(m|[kMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$",
            },
        ]
    },
}
"""Resource names -> what Kubernetes takes as a quantity."""
_RESOURCES: Schema = {
    "type": "object",
    "propertyNames": {"enum": ["requests", "limits"]},
    "additionalProperties": _QUANTITIES,
}
_PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
_NAME: Schema = {
    "type": "string",
    "maxLength": 253,
    "pattern": "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$",
}


def values_schema(known: Registry) -> Schema:
    """Return the JSON schema (2020-12) of values.yaml, with the options of the ``known`` strategies."""
    whole = _for_go(policy_schema(known, known.signals, known.steps))
    definitions = whole["$defs"]
    # Whatever passed through YAML 1.1, and so through Helm, reads an unquoted off as false.
    for name in ("Mode", "Steer"):
        definitions[name] = {**definitions[name], "enum": [*definitions[name]["enum"], False]}
        definitions[name].pop("type")
    policy = {k: v for k, v in whole["properties"].items() if k not in _NOT_IN_POLICY_VALUES}
    strategies = whole["properties"]["strategies"]
    # What is meant by an unknown name, and where mode is written, the templates say better.
    one_more = {"if": {"required": ["strategy"]}, "then": strategies["additionalProperties"]}
    properties = {
        "mode": {"$ref": "#/$defs/Mode"},
        "policy": _closed({**policy, "mode": {}, "strategies": {}}),
        "strategies": {**strategies, "additionalProperties": {"type": "object", **one_more}},
        **_for_go(_OWN),
        "fleet": _fleet(
            _closed(
                {
                    **policy,
                    "mode": {"$ref": "#/$defs/Mode"},
                    "strategies": strategies,
                }
            )
        ),
        # Helm hands these to every chart.
        "global": _OBJECT,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kube-rebalancer values",
        **_closed(properties),
        "$defs": definitions,
    }


def text(known: Registry) -> str:
    """Return the file's text."""
    return json.dumps(values_schema(known), indent=2, sort_keys=True) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the file, or with ``--check`` return 1 if it is stale; return 2 for other arguments."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write(f"{' '.join(arguments)}: no argument, or --check alone\n")
        return 2
    wanted = text(Registry.installed())
    if arguments:
        return int(not FILE.exists() or FILE.read_text() != wanted)
    FILE.write_text(wanted)
    return 0


def _closed(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": dict(properties)}


def _for_go(value: Any) -> Any:
    """Rewrite what Go's regular expressions, and so Helm, do not know: a look-ahead for "not empty".

    A pattern begins with an example, since Helm prints no more than the pattern.
    """
    if isinstance(value, dict):
        done = {key: _for_go(item) for key, item in value.items()}
        pattern = done.get("pattern")
        if isinstance(pattern, str) and pattern.startswith("^(?=.)"):
            done |= {"pattern": "^" + pattern.removeprefix("^(?=.)"), "minLength": 1}
        if pattern and done.get("examples"):
            example = str(done["examples"][0]).replace("*", "[*]")
            done["pattern"] = f"^{example}$|{done['pattern']}"
        return done
    if isinstance(value, list):
        return [_for_go(item) for item in value]
    return value


def _number(least: int) -> Schema:
    return {"type": "integer", "minimum": least}


def _fleet(policy: Schema) -> Schema:
    """Return the schema of the value ``fleet``; ``policy``: of a policy's keys."""
    duration: Schema = {"type": "string", "pattern": "^[0-9dhms.]+$"}
    label: Schema = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}
    cluster = _closed(
        {
            "name": label,
            "labels": _TEXTS,
            "secretName": {**_NAME, "minLength": 1},
            "key": {"type": "string", "pattern": "^[-._a-zA-Z0-9]+$"},
            "policy": policy,
        }
    )
    return _closed(
        {
            "clusters": {
                "type": "array",
                "maxItems": 500,
                "items": {**cluster, "required": ["name"]},
            },
            "policies": {
                "type": "array",
                "items": _closed({"labels": _TEXTS, "policy": policy}),
            },
            "kubeconfigVolume": _OBJECT,
            "maxClustersAtOnce": _number(1),
            "lateAfter": duration,
            "member": _closed({"enabled": _FLAG, "token": _FLAG}),
        }
    )


def _or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


_OWN: dict[str, Schema] = {
    "extraStrategies": {"type": "object", "additionalProperties": {"type": ["object", "null"]}},
    "existingPolicy": _NAME,
    "output": {"enum": ["table", "json", "yaml"]},
    "logFormat": {"enum": ["text", "json"]},
    "namespace": {
        "type": "string",
        "maxLength": 63,
        "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$",
    },
    "extraArgs": {"type": "array", "items": _TEXT},
    "machineState": _closed({"enabled": _FLAG}),
    "sharedState": {"type": "string", "pattern": "^([-a-z0-9]+/[-a-z0-9.]+)?$"},
    "metrics": _closed(
        {
            "job": {"type": "string", "pattern": "^[A-Za-z0-9_./-]*$"},
            "push": _closed(
                {"url": {"type": "string", "pattern": "^(https?://.+)?$"}, "secretName": _NAME}
            ),
            "file": {"type": "string", "pattern": "^(/.+)?$"},
            "rules": _closed(
                {
                    "enabled": _FLAG,
                    "labels": _TEXTS,
                    "periodSeconds": _number(60),
                    "runbookUrl": _TEXT,
                }
            ),
            "dashboard": _closed({"enabled": _FLAG, "labels": _TEXTS}),
        }
    ),
    "usage": _closed({"secretName": _NAME}),
    "notify": _closed({"secretName": _NAME, "template": {"type": "string", "minLength": 1}}),
    "kind": {"enum": ["CronJob", "Deployment"]},
    "serve": _closed(
        {
            "every": _EVERY,
            "replicas": _number(1),
            "port": _PORT,
            "showReport": _FLAG,
            "showPage": _FLAG,
            "pageHosts": {"type": "array", "items": {"type": "string", "minLength": 1}},
            "service": _closed(
                {
                    "enabled": _FLAG,
                    "annotations": _TEXTS,
                    "monitor": _closed({"enabled": _FLAG, "labels": _TEXTS, "interval": _DURATION}),
                }
            ),
        }
    ),
    "schedule": _SCHEDULE,
    "timeZone": _TEXT,
    "suspend": _FLAG,
    # The CronJob controller looks every 10 s: a shorter deadline may never be met.
    "startingDeadlineSeconds": _or_null(_number(10)),
    "runDeadlineSeconds": _number(1),
    "activeDeadlineSeconds": _number(1),
    "terminationGracePeriodSeconds": _number(1),
    "successfulJobsHistoryLimit": _number(0),
    "failedJobsHistoryLimit": _number(0),
    "ttlSecondsAfterFinished": _or_null(_number(0)),
    # It has no effect any more, which NOTES say: an upgrade with --reuse-values hands it over.
    "runNow": _OBJECT,
    "image": _closed(
        {
            "repository": {"type": "string", "minLength": 1},
            "tag": {"type": "string", "pattern": "^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$"},
            "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
            "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
        }
    ),
    "imagePullSecrets": _OBJECTS,
    "nameOverride": _NAME,
    "fullnameOverride": _NAME,
    "namespaceOverride": _NAME,
    "commonLabels": _TEXTS,
    "commonAnnotations": _TEXTS,
    "cronJobLabels": _TEXTS,
    "cronJobAnnotations": _TEXTS,
    "jobLabels": _TEXTS,
    "jobAnnotations": _TEXTS,
    "podLabels": _TEXTS,
    "podAnnotations": _TEXTS,
    "rbac": _closed(
        {
            "admissionPolicy": _FLAG,
            "autoscalers": _FLAG,
            "capacityBuffers": _FLAG,
            "clusterApi": {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"},
            "nodeConditions": _FLAG,
            "volumeAttachments": _FLAG,
            "deletePods": _FLAG,
            "deletionCosts": _FLAG,
            "events": _FLAG,
            "evictionRequests": _FLAG,
            "create": _FLAG,
            "karpenter": {"enum": ["auto", True, False]},
            "marks": _FLAG,
            "namespacePolicies": _FLAG,
            "podGroups": _FLAG,
            "devices": _FLAG,
            "restarts": _FLAG,
            "schedulerConfig": {"type": "string", "pattern": "^([a-z0-9.-]+/[a-z0-9.-]+)?$"},
            "usage": _FLAG,
        }
    ),
    "drain": _closed({"enabled": _FLAG, "serviceAccountAnnotations": _TEXTS, "subjects": _OBJECTS}),
    "nodeAgent": _closed(
        {
            "enabled": _FLAG,
            "every": _DURATION,
            "imds": {"type": "string", "pattern": "^https?://.+$"},
            "admissionPolicy": _FLAG,
            "resources": _RESOURCES,
            "priorityClassName": _NAME,
            "nodeSelector": _TEXTS,
            "affinity": _OBJECT,
            "tolerations": _OBJECTS,
        }
    ),
    "record": _closed(
        {
            "enabled": _FLAG,
            "schedule": _SCHEDULE,
            "keep": {"type": "string", "minLength": 2},
            "maxSize": {"type": "string", "pattern": "^[1-9][0-9]*([kMGT]i?)?$"},
            "claim": _NAME,
            "redactKeySecret": _NAME,
        }
    ),
    "serviceAccount": _closed({"create": _FLAG, "name": _NAME, "annotations": _TEXTS}),
    "resources": _RESOURCES,
    "priorityClassName": _NAME,
    "schedulerName": _TEXT,
    "runtimeClassName": _NAME,
    "nodeSelector": _TEXTS,
    "affinity": _OBJECT,
    "tolerations": _OBJECTS,
    "dnsPolicy": {"enum": ["", "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]},
    "dnsConfig": _OBJECT,
    "hostNetwork": _FLAG,
    "extraEnv": _OBJECTS,
    "extraVolumes": _OBJECTS,
    "extraVolumeMounts": _OBJECTS,
    "podSecurityContext": _OBJECT,
    "securityContext": _OBJECT,
    "networkPolicy": _closed(
        {
            "enabled": _FLAG,
            "extraEgress": _OBJECTS,
            "ingressFrom": _OBJECTS,
            "apiServer": _closed(
                {
                    "cidrs": {"type": "array", "items": _TEXT},
                    "ports": {
                        "type": "array",
                        "minItems": 1,
                        "items": _PORT,
                    },
                }
            ),
        }
    ),
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
