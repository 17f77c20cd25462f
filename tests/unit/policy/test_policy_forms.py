import json

import pytest
import yaml

from rebalancer.policy.document import parse
from rebalancer.policy.forms import as_yaml, effective, plain, schema

EVERYTHING = """
mode: observe
eagerness: steady
budgets: {inFlight: 3, perRun: 25%, perHour: 0%}
windows: [{allow: "0 22 * * *", for: 8h30m, timeZone: Asia/Tokyo}]
protect: {minPodAge: 90s, systemCritical: {except: {namespaces: [a], labels: {k: "1"}}}}
scheduler: {version: "1.35", weights: {NodeAffinity: 5}, defaultConstraints: []}
strategies:
  spread: {mode: off, weight: 2.5, budgets: {perRun: 1}, defaults: [{topologyKey: z, maxSkew: 2}]}
  load: {under: {cpu: 12.5%}}
  plain: {mode: enforce}
"""


def test_the_effective_policy_spells_out_defaults_and_modes(load):
    shown = yaml.safe_load(
        effective(load("mode: observe\nstrategies: {plain: {mode: enforce}}\n").policy)
    )
    assert shown["budgets"] == {
        "inFlight": "2%",
        "perNode": 5,
        "perOwner": "10%",
        "perRun": "10%",
        "perHour": "30%",
        "marks": "25%",
    }
    assert shown["steer"] == "off"
    assert shown["protect"]["minPodAge"] == "5m"
    assert shown["strategies"]["plain"]["mode"] == "observe"


def test_the_effective_policy_can_be_loaded_again_and_says_the_same(load):
    loaded = load(EVERYTHING)
    again = load(effective(loaded.policy), head="")
    assert again.policy_hash == loaded.policy_hash
    assert plain(again.policy) == plain(loaded.policy)
    assert again.policy.strategies["load"].params == loaded.policy.strategies["load"].params


@pytest.mark.parametrize("name", ["089", "1e3", "1.5", "no", "~", "22:30", "a: b", "#", "-", ""])
@pytest.mark.parametrize("compact", [False, True])
def test_text_that_a_reader_might_take_for_something_else_stays_text(name, compact):
    text = as_yaml({"namespaces": [name], name: {"x": name}}, compact=compact)
    document, problems = parse(text.encode(), "f.yaml")
    assert document is not None
    assert problems == []
    assert document.data == {"namespaces": [name], name: {"x": name}}


def test_off_is_quoted_so_that_no_other_reader_takes_it_for_false(load):
    assert "mode: 'off'" in effective(load("mode: off\n").policy)


def test_the_schema_knows_every_key_of_a_policy_that_holds_everything(load, known):
    described = schema(known)
    data = yaml.safe_load(effective(load(EVERYTHING).policy))
    assert unknown_keys(data, described, described["$defs"]) == []


def test_the_schema_forbids_other_keys_and_requires_the_header(known):
    described = schema(known)
    assert described["required"] == ["apiVersion", "kind"]
    assert described["additionalProperties"] is False
    strategies = described["properties"]["strategies"]
    assert sorted(strategies["properties"]) == ["load", "plain", "spread"]
    assert described["$defs"]["strategy.spread"]["additionalProperties"] is False
    named = strategies["additionalProperties"]
    assert named["required"] == ["strategy"]
    assert named["properties"]["strategy"]["enum"] == ["load", "plain", "spread"]
    assert [one["then"]["$ref"] for one in named["allOf"]] == [
        "#/$defs/strategy.load",
        "#/$defs/strategy.plain",
        "#/$defs/strategy.spread",
    ]


def test_the_schemas_defaults_are_written_as_the_file_would(known):
    described = schema(known)
    budgets = described["$defs"]["Budgets"]["properties"]
    assert (budgets["inFlight"]["default"], budgets["perNode"]["default"]) == ("2%", 5)
    assert described["$defs"]["Protect"]["properties"]["minPodAge"]["default"] == "5m"
    under = described["$defs"]["strategy.load"]["properties"]["under"]
    assert under["default"] == {"cpu": "20%"}


def test_every_key_of_the_schema_is_described_and_every_reference_leads_somewhere(known):
    described = schema(known)
    assert undescribed(described) == []
    assert [name for name in references(described) if name not in described["$defs"]] == []


def test_the_schema_is_the_same_each_time_and_is_json(known):
    assert json.dumps(schema(known)) == json.dumps(schema(dict(reversed(known.items()))))


# -- a reader of schemas, as small as these tests need ---------------------------------------------------


def unknown_keys(data, described, definitions, path=""):
    """Keys of ``data`` that ``described`` does not know."""
    options = alternatives(described, definitions)
    if isinstance(data, list):
        return [
            key
            for item in data
            for one in options
            if "items" in one
            for key in unknown_keys(item, one["items"], definitions, path)
        ]
    if not isinstance(data, dict):
        return []
    unknown = []
    for key, value in data.items():
        inner = [one["properties"][key] for one in options if key in one.get("properties", {})]
        if inner:
            unknown += unknown_keys(value, {"anyOf": inner}, definitions, f"{path}.{key}")
        elif not any(isinstance(one.get("additionalProperties"), dict) for one in options):
            unknown.append(f"{path}.{key}")
    return unknown


def alternatives(described, definitions):
    if "$ref" in described:
        return alternatives(definitions[described["$ref"].removeprefix("#/$defs/")], definitions)
    parts = [*described.get("anyOf", []), *described.get("oneOf", []), *described.get("allOf", [])]
    return [described, *(one for part in parts for one in alternatives(part, definitions))]


def references(node):
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"].removeprefix("#/$defs/")
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def undescribed(node, path=""):
    missing = []
    if isinstance(node, dict):
        for key, value in node.get("properties", {}).items():
            if isinstance(value, dict) and not value.get("description"):
                missing.append(f"{path}.{key}")
        for key, value in node.items():
            missing += undescribed(value, f"{path}.{key}")
    return missing
