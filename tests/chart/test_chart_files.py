"""What can be said of the chart's and the image's files without Helm and without a cluster."""

import json
import re

import pytest
import yaml

from chart.tools import schema
from image.root import ENTRYPOINT, SOURCE, USER
from rebalancer.registry import Registry
from rebalancer.report.metrics import TABLE
from tests.chart.helm import CHART
from tests.chart.values import own_paths, shipped, values


def test_the_chart_mounts_the_built_in_policy():
    assert {path.name: path.read_bytes() for path in (CHART / "policy").iterdir()} == shipped()


def test_the_schema_is_made_from_the_policy_model_and_is_not_stale():
    assert schema.FILE.read_text() == schema.text(Registry.installed())


@pytest.mark.parametrize("given", [["--chek"], ["--help"], ["--check", "more"]])
def test_a_wrong_argument_does_not_write_the_schema(given, tmp_path, monkeypatch):
    monkeypatch.setattr(schema, "FILE", tmp_path / "schema.json")
    assert schema.main(given) == 2
    assert not schema.FILE.exists()


def test_the_schema_knows_every_key_of_the_policy():
    known = json.loads(schema.FILE.read_text())["properties"]
    main = yaml.safe_load(shipped()["rebalancer.yaml"])
    assert set(main) - {"apiVersion", "kind", "mode"} <= set(known["policy"]["properties"])
    assert set(known["strategies"]["properties"]) == set(Registry.installed())


def test_every_value_of_the_schema_has_a_default():
    defaults = values()
    for path in own_paths():
        value = defaults
        for part in path:
            assert part in value, path
            value = value[part]


def test_every_default_is_in_the_schema():
    assert set(values()) == {path[0] for path in own_paths()}


def test_every_value_is_used_by_a_template():
    text = "".join(file.read_text() for file in (CHART / "templates").rglob("*.*"))
    # Parentheses let values be absent that an earlier release did not have: ((.Values.a).b).c.
    text = re.sub("[()]", "", text)
    # Inside a `with .Values`, the name stands alone.
    unused = [
        path
        for path in own_paths()
        if not re.search(rf"(\.Values| )\.{re.escape('.'.join(path))}\b", text)
    ]
    assert unused == []


def test_chart_and_distribution_have_one_version():
    project = (SOURCE / "pyproject.toml").read_text()
    (version,) = re.findall(r'^version = "(.*)"$', project, re.MULTILINE)
    described = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert described["appVersion"] == version


def test_each_panel_of_the_dashboard_says_what_it_shows_and_each_number_has_colours():
    board = json.loads((CHART / "files" / "dashboard.json").read_text())
    assert all(len(panel["description"]) > 20 for panel in board["panels"])
    for panel in board["panels"]:
        if panel["type"] == "stat":
            steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
            assert steps[0] == {"color": "green", "value": None}
            assert len(steps) > 1


def test_artifact_hub_can_read_its_annotations():
    described = yaml.safe_load((CHART / "Chart.yaml").read_text())
    prefix = "artifacthub.io/"
    notes = {name.removeprefix(prefix): text for name, text in described["annotations"].items()}
    assert all(name.startswith(prefix) for name in described["annotations"])
    assert all(isinstance(text, str) for text in notes.values())
    # The values that it knows: artifacthub.io/docs/topics/annotations/helm.
    assert notes["category"] in {"integration-delivery", "monitoring-logging", "skip-prediction"}
    assert {notes[name] for name in ("operator", "prerelease", "containsSecurityUpdates")} == {
        "false"
    }
    kinds = {"added", "changed", "deprecated", "removed", "fixed", "security"}
    changes = yaml.safe_load(notes["changes"])
    assert changes
    assert all(one["kind"] in kinds and one["description"] for one in changes)


def test_the_image_starts_from_a_digest_and_runs_as_the_scripts_say():
    text = (SOURCE / "Containerfile").read_text()
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert all(base == "scratch" or re.search(r"@sha256:[0-9a-f]{64}$", base) for base in bases)
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)
    assert tuple(json.loads(entry)) == ENTRYPOINT
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == [USER]


def test_the_image_has_the_pins_of_the_development_environment():
    def pins(name):
        text = (SOURCE / name).read_text()
        return dict(re.findall(r"^(\S+)==(\S+) \\$", text, re.MULTILINE))

    developed = pins("requirements-dev.txt")
    assert pins("image/requirements.txt").items() <= developed.items()
    project = (SOURCE / "pyproject.toml").read_text()
    wanted = re.findall(r'^    "([a-z0-9-]+)>=', project, re.MULTILINE)
    assert set(wanted) <= set(pins("image/requirements.txt"))


def test_each_metric_of_the_dashboard_is_one_of_the_table():
    text = (CHART / "files" / "dashboard.json").read_text()
    names = {metric.name for metric in TABLE}
    assert set(re.findall(r"\brebalancer_[a-z_]+", text)) <= names
