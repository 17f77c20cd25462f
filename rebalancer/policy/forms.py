"""Write a policy in other forms: plain data, YAML with all defaults, a hash, a JSON schema.

The schema uses the docstrings of fields as descriptions. pydantic can do that (``use_attribute_docstrings``), but
then it parses the source of every model at each import, a tenth of a small run's time.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import itertools
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from rebalancer.base.data_text import without_nulls
from rebalancer.policy.interruption import StepPolicy
from rebalancer.policy.model import Policy, StrategyPolicy
from rebalancer.policy.values import Params

SCHEMA_ID = "https://kube-rebalancer.invalid/schemas/policy-v1.json"
"""A name, and no address: nothing is served there."""
_NONE: Mapping[str, type[Params]] = {}
MODELINE = """\
# yaml-language-server: $schema=rebalancer-policy.schema.json
# For an editor that checks as you type: rebalancer schema policy > rebalancer-policy.schema.json
"""
"""First lines of a policy that is written, for YAML's language server."""


def plain(policy: Policy, *, defaults: bool = True) -> dict[str, Any]:
    """Return the effective policy as plain data: with all defaults, and the resolved mode of each strategy.

    Keys and values are those of the file, so the result can be loaded again. Without ``defaults``: only what differs
    from them.
    """
    data = without_nulls(
        policy.model_dump(
            mode="json", by_alias=True, exclude={"strategies"}, exclude_defaults=not defaults
        )
    )
    data["strategies"] = {
        name: _flat(strategy, defaults=defaults) | {"mode": policy.mode_of(name).value}
        for name, strategy in sorted(policy.strategies.items())
    }
    if policy.interruption.steps:
        data.setdefault("interruption", {})["steps"] = [
            without_nulls(_flat_step(step)) for step in policy.interruption.steps
        ]
    elif not policy.signals:
        # Most policies have neither, and nothing of the defaults has an effect then.
        data.pop("signals", None)
        data.pop("interruption", None)
    result: dict[str, Any] = data
    return result


def _flat(strategy: StrategyPolicy, *, defaults: bool) -> dict[str, Any]:
    data: dict[str, Any] = without_nulls(
        strategy.model_dump(
            mode="json", by_alias=True, exclude={"params"}, exclude_defaults=not defaults
        )
    )
    own: dict[str, Any] = without_nulls(
        strategy.params.model_dump(mode="json", by_alias=True, exclude_defaults=not defaults)
    )
    return {"mode": None, **data, **own}


def _flat_step(step: StepPolicy) -> dict[str, Any]:
    """Return a step as plain data, as it is written in the file."""
    envelope = step.model_dump(mode="json", by_alias=True, exclude={"params"})
    own = step.params.model_dump(mode="json", by_alias=True)
    return {**envelope, **own}


def effective(policy: Policy) -> str:
    """Return the effective policy as YAML, which can be loaded again."""
    return as_yaml(plain(policy))


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that quotes text that YAML 1.2 would read as a number: 089, 1e3. Policies are read as YAML 1.2."""


def _text(dumper: _Dumper, value: str) -> yaml.Node:
    style = "'" if _NUMBER.match(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_NUMBER = re.compile(r"[-+]?(?:\.\d|\d)[\d.eE+-]*\Z", re.ASCII)
_Dumper.add_representer(str, _text)


def as_yaml(data: Mapping[str, Any], *, compact: bool = False, width: float = 100) -> str:
    """Return plain data as YAML. With ``compact``, each innermost collection is on one line."""
    text: str = yaml.dump(
        data,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=width,
        default_flow_style=None if compact else False,
    )
    return text


def policy_hash(policy: Policy) -> str:
    """Return a hash (64 hex digits) of the effective policy, and of the scheduler configuration once it is read.

    Its first half is of what differs from the defaults: see :func:`differs_by_defaults`.
    """
    read = policy.scheduler.configuration
    more = {} if read is None else {"schedulerConfiguration": read.model_dump(mode="json")}
    return "".join(_digest(plain(policy, defaults=of) | more)[:32] for of in (False, True))


def _digest(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def differs_by_defaults(one: str, other: str) -> bool:
    """Return whether two hashes are of one policy in two versions of this program, whose defaults differ."""
    return one != other and one[:32] == other[:32]


class _Generator(GenerateJsonSchema):
    """A schema generator that writes defaults as in the file (``2%``, ``5m``) and no titles."""

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        result = super().model_schema(schema)
        result.pop("title", None)
        texts = descriptions(schema["cls"])
        described = {
            field.alias or name: field.description or texts.get(name)
            for name, field in schema["cls"].model_fields.items()
        }
        # Without validation, because required keys have no default.
        defaults = schema["cls"].model_construct().model_dump(mode="json", by_alias=True)
        for key, entry in result.get("properties", {}).items():
            entry.pop("title", None)
            if described.get(key):
                entry["description"] = described[key]
            if "default" in entry and key in defaults:
                entry["default"] = without_nulls(defaults[key])
        return result


def schema(
    known: Mapping[str, type[Params]],
    signals: Mapping[str, type[Params]] = _NONE,
    steps: Mapping[str, type[Params]] = _NONE,
) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of the policy file with all known strategies, signal sources and steps."""
    whole = Policy.model_json_schema(by_alias=True, schema_generator=_Generator)
    definitions: dict[str, Any] = whole.setdefault("$defs", {})
    envelope = definitions.pop("StrategyPolicy")
    definitions.pop("Params", None)
    strategies: dict[str, Any] = {}
    for name in sorted(known):
        own = _own_schema(known[name], name, definitions)
        definitions[f"strategy.{name}"] = _strategy_schema(envelope, own, name)
        strategies[name] = {
            "description": own.get("description", ""),
            "$ref": f"#/$defs/strategy.{name}",
        }
    named = [
        {
            "if": {"properties": {"strategy": {"const": name}}},
            "then": {"$ref": f"#/$defs/strategy.{name}"},
        }
        for name in sorted(known)
    ]
    whole["properties"]["strategies"] = {
        "description": "Mode, weight, budgets, windows, select and options of each strategy.",
        "type": "object",
        "properties": strategies,
        "additionalProperties": {
            "description": "One more of a strategy, under a name of its own.",
            "type": "object",
            "properties": {
                "strategy": {"description": "Which strategy it is.", "enum": sorted(known)}
            },
            "required": ["strategy"],
            "allOf": named,
        },
    }
    whole["properties"]["signals"] = _signals_schema(signals, definitions)
    step = definitions.pop("StepPolicy")
    definitions.pop("StepParams", None)
    definitions["InterruptionPolicy"]["properties"]["steps"]["items"] = _steps_schema(
        step, steps, definitions
    )
    whole["required"] = ["apiVersion", "kind"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "kube-rebalancer policy",
        **{key: value for key, value in whole.items() if key != "title"},
    }


def _own_schema(model: type[Params], name: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a plug-in's options, and add the definitions that it refers to to ``definitions``."""
    own = model.model_json_schema(
        by_alias=True, ref_template=f"#/$defs/{name}.{{model}}", schema_generator=_Generator
    )
    for inner, definition in own.pop("$defs", {}).items():
        definitions[f"{name}.{inner}"] = definition
    return own


def _signals_schema(
    known: Mapping[str, type[Params]], definitions: dict[str, Any]
) -> dict[str, Any]:
    sources: dict[str, Any] = {}
    for name in sorted(known):
        own = _own_schema(known[name], f"signals.{name}", definitions)
        definitions[f"signals.{name}"] = {**own, "type": ["object", "null"]}
        sources[name] = {
            "description": own.get("description", ""),
            "$ref": f"#/$defs/signals.{name}",
        }
    definitions["Signals"] = {
        "type": "object",
        "additionalProperties": False,
        "properties": sources,
    }
    return {
        "description": Policy.model_fields["signals"].description,
        "$ref": "#/$defs/Signals",
    }


def _steps_schema(
    envelope: Mapping[str, Any], known: Mapping[str, type[Params]], definitions: dict[str, Any]
) -> dict[str, Any]:
    """Return the schema of one step: its name alone, or a mapping whose other keys depend on the name."""
    kinds = []
    for name in sorted(known):
        own = _own_schema(known[name], f"step.{name}", definitions)
        properties = {k: v for k, v in envelope["properties"].items() if k != "params"}
        properties["step"] = {"description": own.get("description", ""), "const": name}
        definitions[f"step.{name}"] = {
            "type": "object",
            "additionalProperties": False,
            "properties": {**properties, **own.get("properties", {})},
            "required": ["step", *own.get("required", [])],
        }
        kinds.append({"$ref": f"#/$defs/step.{name}"})
    return {"anyOf": [{"type": "string", "enum": sorted(known)}, *kinds]}


def _strategy_schema(
    envelope: Mapping[str, Any], own: Mapping[str, Any], name: str
) -> dict[str, Any]:
    properties = {k: v for k, v in envelope["properties"].items() if k != "params"}
    properties["strategy"] = {"description": "Absent, or the name itself.", "const": name}
    return {
        "description": own.get("description", ""),
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {**properties, **own.get("properties", {})},
        **({"required": own["required"]} if own.get("required") else {}),
    }


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return field -> docstring of a model and its base classes; empty if the source is not available."""
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            texts.update(_of_class(base))
    return texts


def _of_class(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    try:
        source = textwrap.dedent(inspect.getsource(model))
    except (OSError, TypeError):
        return
    (statement,) = ast.parse(source).body
    if not isinstance(statement, ast.ClassDef):
        return
    body = statement.body
    for field, below in itertools.pairwise(body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, inspect.cleandoc(text)
