"""Where the descheduler's policy stands: among other manifests, in the values of its chart, in a release or application."""

import json
import re
from pathlib import Path

import pytest
import yaml

from rebalancer.base.errors import PolicyError
from rebalancer.migrate.helm import CHART_VALUES, with_parameters
from rebalancer.migrate.merge import convert_policy
from rebalancer.policy.document import YamlDocument
from rebalancer.registry import Registry

ROOT = Path(__file__).parents[3]
KNOWN = Registry.installed()

PROFILES = (
    "profiles:\n"
    "- name: p\n"
    "  pluginConfig: [{name: RemoveDuplicates}, {name: DefaultEvictor, args: {nodeFit: true}}]\n"
    "  plugins: {balance: {enabled: [RemoveDuplicates]}}\n"
)
POLICY = f"apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n{PROFILES}"
OLD = "strategies:\n  RemoveDuplicates: {enabled: true}\n"


def indent(text, by):
    return "".join(f"{' ' * by}{line}\n" for line in text.splitlines())


MAP = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: d}}\ndata:\n  policy.yaml: |\n{indent(POLICY, 4)}"
JOB = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: d}\n"
OTHER_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: e}\ndata: {a: b, c: d}\n"
UMBRELLA = "other: {a: b}\ndescheduler:\n"
VALUES = f"kind: Deployment\nreplicas: 1\ndeschedulerPolicy:\n{indent(PROFILES, 2)}"
RELEASE = (
    "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: d}\n"
    f"spec:\n  values:\n{indent(VALUES, 4)}"
)
APPLICATION = (
    "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: d}\n"
    f"spec:\n  source:\n    helm:\n      valuesObject:\n{indent(VALUES, 8)}"
)
HELM = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nspec:\n  sources:\n  - {chart: other}\n  - chart: descheduler\n    helm:\n"
TAGGED = "apiVersion: v1\nkind: Secret\nstringData: {a: !vault b}\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (POLICY, 5),
        (f"---\n{POLICY}", 6),
        (f"---\n---\n{POLICY}---\n", 7),
        (MAP, 10),
        (f"{MAP}---\n{JOB}", 10),
        (f"{JOB}---\n{OTHER_MAP}---\n{MAP}", 19),
        (f"{TAGGED}---\n{MAP}", 14),
        (f"{JOB}---\n{POLICY}", 9),
        (VALUES, 6),
        (f"deschedulerPolicyAPIVersion: descheduler/v1alpha2\n{VALUES}", 7),
        (f"{JOB}---\n{VALUES}", 10),
        (RELEASE, 11),
        (f"{JOB}---\n{RELEASE}", 15),
        (APPLICATION, 13),
        (f"{HELM}      valuesObject:\n{indent(VALUES, 8)}", 14),
        (f"{HELM}      values: |\n{indent(VALUES, 8)}", 14),
        (f"{HELM}      values: {json.dumps(VALUES)}\n", 8),
        (f"{UMBRELLA}{indent(VALUES, 2)}", 8),
    ],
)  # fmt: skip
def test_the_policy_is_found_and_notes_have_the_lines_of_the_file(text, line):
    migrated = convert_policy(text.encode(), "f.yaml", KNOWN)
    assert migrated.data["strategies"] == {"duplicates": {}}
    said = f"f.yaml:{line}: profiles[0].pluginConfig[1].args.nodeFit: always so here"
    assert any(str(note).startswith(said) for note in migrated.notes)


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        (VALUES.replace("replicas: 1\n", "replicas:\n").removeprefix("kind: Deployment\n"), []),
        (f"deschedulerPolicy:\n{indent(OLD, 2)}", ["the chart's own strategies, which hold where the values do not name them; the ConfigMap in the cluster has all of it"]),
        ("deschedulerPolicy: {maxNoOfPodsToEvictTotal: 5}\n", ["the chart's own profiles, which hold where the values have none; the ConfigMap in the cluster has all of it", "nothing is left to do: the policy has no strategy"]),
    ],
)  # fmt: skip
def test_what_the_chart_adds_to_its_values_is_noted(text, lost):
    migrated = convert_policy(text.encode(), "f.yaml", KNOWN)
    notes = [str(note) for note in migrated.notes]
    assert [note for note in notes if "not carried over" in note] == [
        f"f.yaml: not carried over: {text}" for text in lost
    ]


OF_CHART = """schedule: "*/10 * * * *"
leaderElection: {enabled: true}
tolerations: []
cmdOptions:
  v: 3
  dry-run: true
"""


@pytest.mark.parametrize(("wrap", "before"), [(0, ""), (4, RELEASE.partition("    kind")[0])])
def test_values_beside_the_policy_are_named_with_their_lines(wrap, before):
    text = f"{before}{indent(OF_CHART + VALUES, wrap)}"
    first = before.count("\n")
    said = [str(note) for note in convert_policy(text.encode(), "f.yaml", KNOWN).notes]
    assert said[:6] == [
        f"f.yaml:{first + line}: {text}"
        for line, text in [
            (1, "schedule: not carried over: our chart has a value of this name and meaning"),
            (2, "leaderElection: not carried over: always on here"),
            (5, "cmdOptions.v: not carried over: a flag of the descheduler"),
            (6, "cmdOptions.dry-run: differs: becomes mode: observe: it plans and moves nothing"),
            (7, "kind: not carried over: our chart has a value of this name and meaning"),
            (8, "replicas: not carried over: here serve.replicas"),
        ]
    ]


def started(args):
    """A CronJob that starts the descheduler, beside its policy."""
    container = f"{{image: example/descheduler:v0.36, args: {args}}}"
    return (
        f"kind: CronJob\nspec: {{jobTemplate: {{spec: {{containers: [{container}]}}}}}}\n---\n{MAP}"
    )


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (VALUES, None),
        (f"cmdOptions: {{dry-run: true}}\n{VALUES}", "observe"),
        (f"cmdOptions: {{dry-run: 'True'}}\n{VALUES}", "observe"),
        (f"cmdOptions: {{dry-run: ''}}\n{VALUES}", "observe"),
        (f"cmdOptions: {{dry-run: false}}\n{VALUES}", None),
        (started("[--dry-run]"), "observe"),
        (started("[--v=3, '--dry-run=true']"), "observe"),
        (started("['--dry-run=false']"), None),
        (started("[--v=3]"), None),
        (started("[--dry-run]").replace("descheduler:", "other:"), None),
    ],
)
def test_a_descheduler_that_evicts_nothing_becomes_a_policy_that_observes(text, mode):
    data = convert_policy(text.encode(), "f.yaml", KNOWN).data
    assert data.get("mode") == mode
    notes = convert_policy(text.encode(), "f.yaml", KNOWN).notes
    assert any("becomes mode: observe" in note.message for note in notes) == (mode is not None)
    assert data["strategies"] == {"duplicates": {}}


def test_each_value_of_their_chart_is_named_and_those_of_ours_exist():
    ours = yaml.safe_load((ROOT / "chart" / "values.yaml").read_text())
    for name, text in CHART_VALUES.items():
        assert ("name and meaning" in text) <= (name in ours), name
        if "here " in text:
            section, _, key = text.partition("here ")[2].partition(",")[0].partition(".")
            assert section in ours, name
            assert not key or key in ours[section], name
        elif "none here" in text:
            assert name not in ours


def test_the_page_has_the_table_of_values():
    page = (ROOT / "docs" / "descheduler.md").read_text()
    rows = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| `")]
    listed = {
        name: text.strip() for names, text in rows for name in re.findall(r"`([^`]+)`", names)
    }
    assert {name: listed.get(name) for name in CHART_VALUES} == CHART_VALUES


BELOW = f"      valuesObject:\n{indent(VALUES, 8)}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{HELM}      valueFiles: [prod.yaml]\n{BELOW}", "8: spec.sources[1].helm.valueFiles: not carried over: files of values, which may hold limits or a dry run"),
        (f"{HELM}      fileParameters: [{{name: a, path: b}}]\n{BELOW}", "8: spec.sources[1].helm.fileParameters: not carried over: values from files, which"),
        (f"{RELEASE}  valuesFrom: [{{kind: Secret, name: d}}]\n", "13: spec.valuesFrom: not carried over: values from elsewhere, which"),
        (f"{RELEASE}  postRenderers: [{{kustomize: {{}}}}]\n", "13: spec.postRenderers: not carried over: changes of what the chart makes, which"),
    ],
)  # fmt: skip
def test_what_a_release_adds_to_its_values_is_named(text, said):
    notes = [str(note) for note in convert_policy(text.encode(), "f.yaml", KNOWN).notes]
    assert any(note.startswith(f"f.yaml:{said}") for note in notes), notes


@pytest.mark.parametrize(
    ("parameters", "ours"),
    [
        ("[{name: deschedulerPolicy.maxNoOfPodsToEvictTotal, value: '5'}]", {"budgets": {"perRun": 5}}),
        ("[{name: cmdOptions.dry-run, value: 'TRUE'}]", {"mode": "observe"}),
        ("[{name: cmdOptions.dry-run, value: 'true', forceString: true}]", {"mode": "observe"}),
        ("[{name: cmdOptions.dry-run, value: 'false'}]", {}),
        ("[{name: 'deschedulerPolicy.profiles[0].pluginConfig[1].args.minReplicas', value: '1'}]", {"protect": {"singleReplicas": False}}),
        # The last of a name holds, and what is forced to be text comes after all others.
        ("[{name: deschedulerPolicy.maxNoOfPodsToEvictTotal, value: '5'}, {name: deschedulerPolicy.maxNoOfPodsToEvictTotal, value: '6'}]", {"budgets": {"perRun": 6}}),
        ("[{name: cmdOptions.dry-run, value: 'false', forceString: true}, {name: cmdOptions.dry-run, value: 'true'}]", {}),
        ("[{name: deschedulerPolicy.gracePeriodSeconds, value: 'null'}]", {}),
        ("[{name: kind}]", {}),
    ],
)  # fmt: skip
def test_parameters_of_an_application_hold_over_its_values(parameters, ours):
    text = f"{HELM}      parameters: {parameters}\n{BELOW}"
    data = convert_policy(text.encode(), "f.yaml", KNOWN).data
    base = {"apiVersion", "kind", "strategies"}
    assert {key: value for key, value in data.items() if key not in base} == ours


def test_a_parameter_has_its_line():
    value = "{name: deschedulerPolicy.maxNoOfPodsToEvictTotal, value: many}"
    text = (
        f"{HELM}      parameters:\n      - {{name: schedule, value: a}}\n      - {value}\n{BELOW}"
    )
    with pytest.raises(PolicyError) as caught:
        convert_policy(text.encode(), "f.yaml", KNOWN)
    said = 'f.yaml:10: maxNoOfPodsToEvictTotal: "many" should be a whole number'
    assert list(caught.value.problems) == [said]


@pytest.mark.parametrize(
    ("name", "value", "becomes"),
    [
        ("a", "", {"a": ""}),
        ("a", "0", {"a": 0}),
        ("a", "007", {"a": "007"}),
        ("a", "-12", {"a": -12}),
        ("a", "1.5", {"a": "1.5"}),
        ("a", "True", {"a": True}),
        ("a", "null", {"a": None}),
        ("a", "x,y", {"a": "x,y"}),
        ("a", "x\\,y\\=z", {"a": "x,y=z"}),
        ("a", "{b,1,c\\,d}", {"a": ["b", 1, "c,d"]}),
        ("a.b.c", "d", {"a": {"b": {"c": "d"}}}),
        ("a\\.b/c.d", "e", {"a.b/c": {"d": "e"}}),
        ("a[1]", "b", {"a": [None, "b"]}),
        ("a[0].b", "c", {"a": [{"b": "c"}]}),
        ("a[1][0]", "b", {"a": [None, ["b"]]}),
        ("a]b", "1", {"a]b": 1}),
        ("old.b", "1", {"old": {"a": 1, "b": 1}}),
        ("items[0].a", "2", {"items": [{"a": 2}, 5]}),
        ("items[1].a", "2", {"items": [{"a": 1}, {"a": 2}]}),
        ("items", "2", {"items": 2}),
    ],
)
def test_a_parameter_is_read_as_helm_reads_set(name, value, becomes):
    values = YamlDocument("f", {"old": {"a": 1}, "items": [{"a": 1}, 5]}, {})
    given = YamlDocument("f", [{"name": name, "value": value}], {})
    made = with_parameters(values, given).data
    assert made == {"old": {"a": 1}, "items": [{"a": 1}, 5], **becomes}
    assert values.data == {"old": {"a": 1}, "items": [{"a": 1}, 5]}
    given = YamlDocument("f", [{"name": "a", "value": value, "forceString": True}], {})
    forced = with_parameters(values, given)
    assert type(forced.data["a"]) is (list if value.startswith("{") else str)


@pytest.mark.parametrize(
    ("name", "value"),
    [("", "a"), ("a.", "b"), (".a", "b"), ("a[b]", "c"), ("a[-1]", "b"), ("a,b", "c"), ("items.a", "b"), ("old[0]", "b"), ("old.a.b", "c"), ("a", "{b")],
)  # fmt: skip
def test_a_parameter_that_helm_refuses_is_refused(name, value):
    values = YamlDocument("f", {"old": {"a": 1}, "items": [{"a": 1}, 5]}, {})
    with pytest.raises(PolicyError) as caught:
        with_parameters(values, YamlDocument("f", [{"name": name, "value": value}], {(0,): 7}))
    assert list(caught.value.problems) == [f"f:7: Helm cannot set {name}={value}"]


@pytest.mark.parametrize("top", ["metadata: {name: daily}", "foo: [1]"])
def test_keys_that_the_descheduler_passes_over_are_noted(top):
    migrated = convert_policy(f"{POLICY}{top}\n".encode(), "f.yaml", KNOWN)
    assert migrated.data["strategies"] == {"duplicates": {}}
    key = top.partition(":")[0]
    said = [str(note) for note in migrated.notes]
    assert any(
        f"{key}: had no effect there: the descheduler has no such key" in text for text in said
    )


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (f"{JOB}---\n{OTHER_MAP}", ["f.yaml: none of its 2 documents is a policy of the descheduler; give a DeschedulerPolicy, the ConfigMap that holds it, or the values of the descheduler's chart"]),
        (f"{POLICY}---\n{MAP}", ["f.yaml:1: is one of 2 policies of the descheduler in this file; put each into a file of its own", "f.yaml:8: is one of 2 policies of the descheduler in this file; put each into a file of its own"]),
        (f"{JOB}---\n{POLICY.replace('plugins:', 'plugns:')}", ["f.yaml:10: profiles[0].plugns: unknown key; did you mean plugins?"]),
        (VALUES.replace("plugins:", "plugns:"), ["f.yaml:7: profiles[0].plugns: unknown key; did you mean plugins?"]),
        (f"deschedulerPolicyAPIVersion: v3\n{VALUES}", ['f.yaml:1: apiVersion: "v3" is not known; write descheduler/v1alpha2']),
        (f"{JOB}---\na: [\n", ["f.yaml:6: is not YAML"]),
        ("deschedulerPolicy: text\n", ["f.yaml:1: kind: is missing; give a DeschedulerPolicy"]),
    ],
)  # fmt: skip
def test_a_file_with_none_or_several_is_refused(text, problems):
    with pytest.raises(PolicyError) as caught:
        convert_policy(text.encode(), "f.yaml", KNOWN)
    assert [
        found.startswith(told) for found, told in zip(caught.value.problems, problems, strict=True)
    ] == [True] * len(problems), caught.value.problems
