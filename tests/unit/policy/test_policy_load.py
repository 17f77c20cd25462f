import json
import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from rebalancer.base.errors import ExitCode, PluginError, PolicyError
from rebalancer.policy.load import load_policy, load_text
from rebalancer.policy.model import Eagerness, Mode, Policy
from rebalancer.policy.protect import Exempting
from rebalancer.policy.select import Select
from rebalancer.policy.values import Limit, Params
from rebalancer.registry import Registry

POLICY = "apiVersion: rebalancer/v1\nkind: Policy\n"
STRATEGY = "apiVersion: rebalancer/v1\nkind: Strategy\n"


def in_directory(directory, **files):
    for name, text in files.items():
        (directory / name.replace("__", "-").replace("_yaml", ".yaml")).write_text(text)
    return directory


def refused(path, known):
    with pytest.raises(PolicyError) as caught:
        load_policy(path, known)
    return [problem.replace(str(path), "P") for problem in caught.value.problems]


def our_strategies():
    """The strategies that this distribution registers, as its entry points name them."""
    project = tomllib.loads(Path("pyproject.toml").read_text())
    points = project["project"]["entry-points"]["rebalancer.strategies"]
    places = {name: place.partition(":") for name, place in points.items()}
    return {n: getattr(import_module(m), c).Params for n, (m, _, c) in places.items()}


# -- a right policy ------------------------------------------------------------------------------------


def test_an_example_with_every_section(load):
    loaded = load(
        """
mode: enforce
eagerness: steady
budgets: {inFlight: 3, perRun: 25%}
windows: [{allow: "0 22 * * *", for: 8h, timeZone: Asia/Tokyo}]
protect:
  minPodAge: 1h
  systemCritical: {except: {namespaces: [kube-system], labels: {k8s-app: kube-dns}}}
select: {namespaces: {exclude: [dev]}}
scheduler: {version: "1.35", weights: {NodeAffinity: 5}, defaultConstraints: []}
safety: {maxNotReadyNodes: 1}
strategies:
  spread: {mode: observe, weight: 2, constraints: [hard], budgets: {perRun: 1}}
  load:
    under: {cpu: 10%}
  plain:
"""
    )
    policy = loaded.policy
    assert policy.eagerness is Eagerness.STEADY
    assert (policy.budgets.in_flight, policy.budgets.per_node) == (Limit.parse(3), Limit.parse(5))
    assert policy.windows[0].time_zone == "Asia/Tokyo"
    assert policy.protect.min_pod_age.total_seconds() == 3600
    assert isinstance(policy.protect.system_critical, Exempting)
    dns = policy.protect.system_critical.except_
    assert dns == Select.model_validate(
        {"namespaces": ["kube-system"], "labels": {"k8s-app": "kube-dns"}}
    )
    assert policy.select == Select.model_validate({"namespaces": {"exclude": ["dev"]}})
    assert policy.scheduler.version_pair() == (1, 35)
    assert policy.scheduler.default_constraints == ()
    assert policy.safety.not_ready_nodes_of(100) == 1
    assert policy.mode_of("spread") is Mode.OBSERVE
    assert policy.mode_of("plain") is Mode.ENFORCE
    assert policy.mode_of("absent") is Mode.OFF
    assert policy.strategies["spread"].params.constraints == ("hard",)
    assert policy.strategies["load"].params.under == {"cpu": 0.1}
    assert policy.budgets_of("spread").per_run == Limit.parse(1)
    assert policy.budgets_of("spread").in_flight == Limit.parse(3)
    assert loaded.warnings == ()
    assert not loaded.is_built_in


def test_a_section_whose_keys_are_all_commented_out_takes_its_defaults(load):
    assert (
        load("budgets:\n  # perRun: 1\nstrategies: {plain: }\n").policy.budgets == Policy().budgets
    )


@pytest.mark.parametrize("text", ["mode: off", "mode: 'off'", "mode: false", "mode: False"])
def test_off_means_off_even_if_a_yaml_printer_made_it_false(load, text):
    assert load(f"{text}\n").policy.mode is Mode.OFF


@pytest.mark.parametrize(
    ("policy", "strategy", "effective", "warns"),
    [
        ("enforce", "observe", "observe", False),
        ("enforce", "off", "off", False),
        ("enforce", "enforce", "enforce", False),
        ("observe", "enforce", "observe", True),
        ("off", "observe", "off", True),
    ],
)
def test_a_strategy_may_be_stricter_but_never_laxer(load, policy, strategy, effective, warns):
    loaded = load(f"mode: {policy}\nstrategies:\n  plain: {{mode: {strategy}}}\n")
    assert loaded.policy.mode_of("plain").value == effective
    assert len(loaded.of_strategies) == warns
    for warning in loaded.of_strategies:
        assert f"policy.yaml:5: strategies.plain.mode: {strategy} is laxer" in warning


def test_moves_are_allowed_only_while_both_windows_are_open(load):
    policy = load(
        'windows: [{allow: "0 8 * * *", for: 4h}]\n'
        'strategies: {plain: {windows: [{allow: "0 10 * * *", for: 4h}]}, load: {}}\n'
    ).policy
    hours = [policy.allows("plain", hour * 3600.0) for hour in (9, 11, 13)]
    assert hours == [False, True, False]
    assert [policy.allows("load", hour * 3600.0) for hour in (9, 13)] == [True, False]


def test_a_policy_without_strategies_says_that_nothing_will_be_moved(load):
    assert load("").of_strategies == ("the policy names no strategy: nothing will be moved",)


def test_only_the_strategies_that_are_named_are_looked_up(known, tmp_path):
    asked = []

    class Known(dict[str, type[Params]]):
        def __getitem__(self, name):
            asked.append(name)
            return super().__getitem__(name)

    path = tmp_path / "p.yaml"
    path.write_text(f"{POLICY}strategies: {{plain: {{}}}}\n")
    load_policy(path, Known(known))
    assert set(asked) == {"plain"}


# -- the built-in default, and directories -------------------------------------------------------------


def test_the_built_in_policy_is_right_and_careful():
    loaded = load_policy(None, our_strategies())
    assert loaded.is_built_in
    assert loaded.warnings == ()
    # What the file spells out is what the models would take by themselves.
    assert loaded.policy.model_copy(update={"strategies": {}}) == Policy()
    four = {"topology-spread", "anti-affinity", "duplicates", "low-utilisation"}
    assert four <= loaded.policy.strategies.keys()
    assert {loaded.policy.mode_of(name) for name in four} == {Mode.ENFORCE}


def test_the_built_in_strategies_options_are_the_models_defaults():
    ours = our_strategies()
    for name, strategy in load_policy(None, ours).policy.strategies.items():
        assert strategy.params == ours[name](), name


def test_a_directory_is_the_same_policy_as_one_file(known, tmp_path, load):
    directory = in_directory(
        tmp_path,
        rebalancer_yaml=f"{POLICY}eagerness: eager\n",
        spread_yaml=f"{STRATEGY}weight: 2\nconstraints: [hard]\n",
        plain_yaml=STRATEGY,
    )
    # As a mounted ConfigMap looks.
    (directory / "..data").mkdir()
    (directory / ".hidden.yaml").write_text("not: read")
    split = load_policy(directory, known)
    (directory / "whole").mkdir()
    whole = load(
        "eagerness: eager\nstrategies: {spread: {weight: 2, constraints: [hard]}, plain: {}}\n"
    )
    assert split.policy == whole.policy
    assert split.policy_hash == whole.policy_hash
    assert [Path(file).name for file in split.files] == [
        "rebalancer.yaml",
        "plain.yaml",
        "spread.yaml",
    ]


def test_a_directory_may_do_without_rebalancer_yaml(known, tmp_path):
    loaded = load_policy(in_directory(tmp_path, plain_yaml=STRATEGY), known)
    assert list(loaded.policy.strategies) == ["plain"]


def test_problems_of_all_files_of_a_directory_are_reported_at_once(known, tmp_path):
    directory = in_directory(
        tmp_path,
        rebalancer_yaml=f"{POLICY}mod: observe\nstrategies: {{spread: {{}}}}\n",
        spread_yaml=f"{STRATEGY}weigth: 2\n",
        plain_yaml=POLICY,
        lod_yaml=STRATEGY,
    )
    (directory / "load.yml").write_text(STRATEGY)
    assert refused(directory, known) == [
        "P/rebalancer.yaml:3: mod: unknown key; did you mean mode?",
        "P/load.yml: is not read; rename it to load.yaml",
        "P/lod.yaml:1: unknown strategy lod; did you mean load? A name of your own needs the key strategy below it",
        (
            "P/plain.yaml:2: kind: in a directory, kind: Policy stands in rebalancer.yaml:"
            " rename the file to that, or give --policy P/plain.yaml"
        ),
        "P/spread.yaml:1: spread stands in P/rebalancer.yaml:4: strategies.spread, too; remove one of them",
    ]


def test_other_files_in_a_directory_are_named_and_ignored(known, tmp_path):
    directory = in_directory(tmp_path, plain_yaml=STRATEGY)
    (directory / "README.md").write_text("hello")
    assert load_policy(directory, known).warnings == (
        f"{directory}/README.md: is no .yaml file, ignored",
    )


def test_an_empty_directory_is_no_policy(known, tmp_path):
    assert refused(tmp_path, known) == [
        "P: holds no policy; it needs rebalancer.yaml and a <strategy>.yaml per strategy"
    ]


def test_a_missing_file_is_named(known, tmp_path):
    assert refused(tmp_path / "nope.yaml", known) == ["P: does not exist; check the path"]


# -- a wrong policy ------------------------------------------------------------------------------------


def test_every_problem_is_reported_at_once_in_the_order_of_the_file(problems):
    assert problems(
        """mode: observ
eagernes: careful
budgets:
  inFlight: 200%
  per_owner: 1
windows: [{allow: "0 22 * *", for: 0s, timeZone: Asia/Tokio, til: 6}]
protect: {volumes: yes, systemCritical: {except: {namespace: [a]}}, jobs: 1}
scheduler: {version: 1.4, weights: {NodeAffinty: 3}, defaultConstraints: [{maxSkew: 0}], percentageOfNodesToScore: 101}
strategies:
  spread: {constraint: [hard], constraints: [hart], weight: 0, defaults: [{maxSkw: 1}]}
  sprad: {}
  plain: 5
"""
    ) == [
        '3: mode: "observ" is none of off, observe, enforce; did you mean observe?',
        "4: eagernes: unknown key; did you mean eagerness?",
        '6: budgets.inFlight: "200%" is no limit; write a count from 0 to 1000000, or a share from 0% to 100%',
        "7: budgets.per_owner: unknown key; did you mean perOwner?",
        '8: windows[0].allow: "0 22 * *" is no cron expression of five fields (minute hour day month weekday), like "0 22 * * *"',
        '8: windows[0].for: "0s" should be more than 0s and at most 8784h',
        "8: windows[0].til: unknown key; known here: allow, deny, for, timeZone",
        '8: windows[0].timeZone: "Asia/Tokio" is no time zone of the IANA database; write for example Asia/Tokyo, or UTC',
        "9: protect.jobs: 1 should be true or false",
        "9: protect.systemCritical.except.namespace: unknown key; did you mean namespaces?",
        '9: protect.volumes: "yes" should be true or false',
        "10: scheduler.defaultConstraints[0].maxSkew: 0 should be at least 1",
        "10: scheduler.defaultConstraints[0].topologyKey: is missing; add it",
        "10: scheduler.percentageOfNodesToScore: 101 should be at most 100",
        '10: scheduler.version: 1.4 is no Kubernetes version; write it in quotes, like "1.36"',
        '10: scheduler.weights.NodeAffinty: "NodeAffinty" is none of ImageLocality, InterPodAffinity, NodeAffinity, NodeResourcesBalancedAllocation, NodeResourcesFit, PodTopologySpread, TaintToleration; did you mean NodeAffinity?',
        "12: strategies.spread.constraint: unknown key; did you mean constraints?",
        '12: strategies.spread.constraints[0]: "hart" is none of hard, soft; did you mean hard?',
        "12: strategies.spread.defaults[0].maxSkw: unknown key; did you mean maxSkew?",
        "12: strategies.spread.defaults[0].topologyKey: is missing; add it",
        "12: strategies.spread.weight: 0 should be more than 0",
        "13: strategies.sprad: unknown strategy sprad; did you mean spread? A name of your own needs the key strategy below it",
        "14: strategies.plain: 5 should be a mapping of keys to values; {} takes all defaults",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "strategies: [spread]",
            '3: strategies: ["spread"] should be a mapping of strategies to their options',
        ),
        ("mode: on", '3: mode: "on" is none of off, observe, enforce'),
        (
            "mode: dry-run",
            '3: mode: "dry-run" is none of off, observe, enforce; did you mean observe?',
        ),
        (
            "strategies: {spread: {constraints: [ScheduleAnyway]}}",
            '3: strategies.spread.constraints[0]: "ScheduleAnyway" is none of hard, soft; did you mean soft?',
        ),
        (
            "strategies: {spread: {constraints: [hard, DoNotSchedule]}}",
            '3: strategies.spread.constraints[1]: "DoNotSchedule" is none of hard, soft; did you mean hard?',
        ),
        ("mode: true", "3: mode: true is none of off, observe, enforce"),
        ("budgets: 5", "3: budgets: 5 should be a mapping of keys to values"),
        ("windows: {allow: x}", '3: windows: {"allow": "x"} should be a list'),
        ("protect: {systemCritical: 5}", "3: protect.systemCritical: 5 should be true or false"),
        ("protect: {systemCritical: {}}", "3: protect.systemCritical.except: is missing; add it"),
        (
            "protect: {systemCritical: {except: {}}}",
            "3: protect.systemCritical: except names no pods; write false to lift the protection for all",
        ),
        (
            "protect: {pods: [{}]}",
            "3: protect: an entry of pods names none, and would protect all; use mode: observe",
        ),
        (
            "select: {namespaces: {exclude: [Kube_System]}}",
            '3: select.namespaces.exclude[0]: "Kube_System" is no namespace, nor a pattern of some, like kube-*',
        ),
        (
            "select: {namespaces: []}",
            "3: select.namespaces: names none; leave the key out to select all",
        ),
        (
            "protect: {recreatedBy: [CloneSet]}",
            '3: protect.recreatedBy[0]: "CloneSet" is no Kind.group, like CloneSet.apps.kruise.io',
        ),
        (
            "protect: {recreatedBy: [Job.batch]}",
            "3: protect.recreatedBy[0]: Job.batch cannot stand here: protect.jobs: false lets Jobs' pods move",
        ),
        (
            "protect: {minPodAge: 5}",
            "3: protect.minPodAge: 5 is no duration; write for example 90s, 5m, 1h30m or 2d",
        ),
        (
            "strategies: {load: {under: {cpu: 1}}}",
            "3: strategies.load.under.cpu: 1 is no percentage from 0% to 100%; write for example 20%",
        ),
        (
            "strategies: {spread: {wieght: 1}}",
            "3: strategies.spread.wieght: unknown key; did you mean weight?",
        ),
        (
            "strategies: {plain: {weight: 1e999}}",
            "3: strategies.plain.weight: Infinity should be a finite number",
        ),
        (
            "strategies: {spread: {defaults: [{topologyKey: 1}]}}",
            "3: strategies.spread.defaults[0].topologyKey: 1 should be text; quotes make it text",
        ),
    ],
)
def test_one_problem_with_its_line_key_and_what_to_do(problems, text, message):
    assert problems(text) == [message]


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("kind: Policy\n", "1: apiVersion: is missing; write apiVersion: rebalancer/v1"),
        (
            "apiVersion: rebalancer/v2\nkind: Policy\nnew: 1\n",
            '1: apiVersion: "rebalancer/v2" is not known here; write apiVersion: rebalancer/v1',
        ),
        (
            "apiVersion: rebalancer/v1\nkind: DeschedulerPolicy\n",
            '2: kind: "DeschedulerPolicy" is not known here; write kind: Policy',
        ),
        ("- a\n", '1: ["a"] should be a mapping of keys to values'),
        ("just text\n", '1: "just text" should be a mapping of keys to values'),
    ],
)
def test_another_kind_of_file_is_distinguished(problems, head, message):
    assert problems("", head=head) == [message]


def test_syntax_and_duplicate_keys_are_reported_with_lines(problems):
    assert problems("mode: observe\nmode: enforce\n") == [
        "4: mode: stands here and in line 3; remove one of them"
    ]
    assert problems("mode: [observe\n")[0].startswith("4: is not YAML: ")


def test_a_strategy_that_cannot_be_loaded_is_a_problem_at_its_place(tmp_path):
    class Known(dict[str, type[Params]]):
        def __getitem__(self, name):
            raise PluginError(f"{name} cannot be imported: no module named x")

    path = tmp_path / "p.yaml"
    path.write_text(f"{POLICY}strategies: {{broken: {{}}}}\n")
    problems = refused(path, Known(broken=Params))
    assert problems == ["P:3: strategies.broken: broken cannot be imported: no module named x"]


def test_a_wrong_policy_ends_the_process_with_code_two():
    assert PolicyError(["x"]).exit_code is ExitCode.USAGE


# -- the hash ------------------------------------------------------------------------------------------


def test_the_hash_knows_neither_comments_nor_order_nor_spelled_out_defaults(load):
    texts = [
        "mode: observe\nstrategies: {plain: {}, load: {weight: 2}}\n",
        "# A comment.\nstrategies:\n  load: {weight: 2.0, under: {cpu: 20%}}\n  plain:\nmode: observe\nbudgets: {perNode: 5}\n",
        "mode: observe\nstrategies: {plain: {mode: enforce}, load: {weight: 2}}\n",
    ]
    assert len({load(text).policy_hash for text in texts}) == 1


def test_the_hash_changes_with_what_takes_effect(load):
    texts = [
        "",
        "mode: observe",
        "budgets: {perNode: 6}",
        "strategies: {plain: {}}",
        "strategies: {load: {under: {cpu: 21%}}}",
    ]
    assert len({load(text).policy_hash for text in texts}) == len(texts)


# -- a strategy that stands several times -----------------------------------------------------------------


def test_a_strategy_may_stand_several_times_under_names_of_its_own(load):
    policy = load(
        """
strategies:
  spread: {select: {namespaces: {exclude: [shop]}}}
  spread-shop: {strategy: spread, weight: 2, constraints: [hard], select: {namespaces: [shop]}}
"""
    ).policy
    assert [policy.strategy_of(name) for name in sorted(policy.strategies)] == ["spread", "spread"]
    assert policy.strategies["spread-shop"].params.constraints == ("hard",)
    assert policy.strategies["spread-shop"].select == Select.model_validate(
        {"namespaces": ["shop"]}
    )
    assert policy.mode_of("spread-shop") is Mode.ENFORCE


def test_so_it_may_in_a_directory_with_a_file_for_each(tmp_path, known):
    directory = in_directory(tmp_path, rebalancer_yaml=POLICY, spread_yaml=STRATEGY)
    (directory / "spread-shop.yaml").write_text(f"{STRATEGY}strategy: spread\n")
    policy = load_policy(directory, known).policy
    assert {n: policy.strategy_of(n) for n in policy.strategies} == {
        "spread": "spread",
        "spread-shop": "spread",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{strategy: sprad}",
            "4: strategies.mine.strategy: unknown strategy sprad; did you mean spread?",
        ),
        ("{strategy: 5}", "4: strategies.mine.strategy: 5 should be text; quotes make it text"),
        (
            "{strategy: spread, select: {priority: {belov: 5}}}",
            "4: strategies.mine.select.priority.belov: unknown key; did you mean below?",
        ),
        (
            "{strategy: spread, select: {labels: {matchLabel: {a: b}}}}",
            "4: strategies.mine.select.labels.matchLabel: unknown key; did you mean matchLabels?",
        ),
        (
            "{strategy: spread, select: {labels: {app: 5}}}",
            "4: strategies.mine.select.labels.app: 5 should be text; quotes make it text",
        ),
        (
            "{strategy: spread, select: {labels: {matchExpressions: [{key: a, operator: In}]}}}",
            "4: strategies.mine.select.labels.matchExpressions[0]: In needs values",
        ),
        (
            "{strategy: spread, select: {namespaces: [A]}}",
            '4: strategies.mine.select.namespaces[0]: "A" is no namespace, nor a pattern of some, like kube-*',
        ),
        (
            "{strategy: spread, select: {minReplicas: 0}}",
            "4: strategies.mine.select.minReplicas: 0 should be at least 1",
        ),
    ],
)
def test_what_is_wrong_with_one_is_named_with_its_key(load, text, message):
    with pytest.raises(PolicyError) as caught:
        load(f"strategies:\n  mine: {text}\n")
    problems = [problem.partition(":")[2] for problem in caught.value.problems]
    assert message in problems


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("load", "load is a strategy itself; give this spread another name"),
        ("My_Spread", '"My_Spread" is no name; write lower-case letters, digits and hyphens'),
    ],
)
def test_a_name_of_its_own_is_no_other_strategy_and_fit_for_a_file(load, name, why):
    with pytest.raises(PolicyError, match=re.escape(why)):
        load(f"strategies:\n  {name}: {{strategy: spread}}\n")


# -- strategies that pull against each other ------------------------------------------------------------


def both(tmp_path, consolidation="", low="", extra=""):
    path = tmp_path / "policy.yaml"
    path.write_text(
        f"{POLICY}strategies:\n  consolidation: {{{consolidation}}}\n  low-utilisation: {{{low}}}\n{extra}"
    )
    return path


@pytest.mark.parametrize(
    ("consolidation", "low"),
    [
        ("", ""),
        ("select: {nodes: {pool: a}}", ""),
        ("select: {namespaces: [shop-a*]}", "select: {namespaces: [shop-*]}"),
        ("select: {namespaces: [shop]}", "select: {namespaces: {exclude: [bank]}}"),
        ("select: {nodes: {matchExpressions: [{key: pool, operator: In, values: [a, b]}]}}", "select: {nodes: {pool: b}}"),
    ],
)  # fmt: skip
def test_what_packs_and_what_spreads_the_same_nodes_is_refused_with_its_line(
    tmp_path, consolidation, low
):
    (problem,) = refused(both(tmp_path, consolidation, low), our_strategies())
    assert problem.startswith("P:5: strategies.low-utilisation: low-utilisation spreads nodes")
    assert "mode: observe" in problem


@pytest.mark.parametrize(
    ("consolidation", "low"),
    [
        ("mode: observe", ""),
        ("", "mode: observe"),
        ("", 'mode: "off"'),
        ("select: {nodes: {pool: a}}", "select: {nodes: {pool: b}}"),
        ("select: {labels: {app: a}}", "select: {labels: {app: b}}"),
        ("select: {namespaces: [shop-*]}", "select: {namespaces: [bank-*, mill]}"),
        ("select: {namespaces: [shop]}", "select: {namespaces: {exclude: [shop]}}"),
        ("select: {nodes: {matchExpressions: [{key: pool, operator: In, values: [a]}]}}", "select: {nodes: {pool: b}}"),
    ],
)  # fmt: skip
def test_what_meets_nowhere_or_only_observes_may_stand_together(tmp_path, consolidation, low):
    load_policy(both(tmp_path, consolidation, low), our_strategies())


def test_nodes_are_packed_by_one_strategy_only(tmp_path):
    extra = "  second: {strategy: consolidation}\n"
    (problem,) = refused(both(tmp_path, "", "mode: observe", extra), our_strategies())
    assert "P:6: strategies.second: second packs nodes that consolidation packs" in problem


def test_a_config_map_is_read_like_the_directory_that_it_is_mounted_as():
    head = "apiVersion: rebalancer/v1\nkind: "
    texts = {
        "duplicates.yaml": f"{head}Strategy\nweight: 2\n",
        "rebalancer.yaml": f"{head}Policy\nmode: observe\n",
    }
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "data": texts}
    policy = load_text(json.dumps(manifest).encode(), "cm.yaml", Registry.installed()).policy
    assert (policy.mode, policy.strategies["duplicates"].weight) == (Mode.OBSERVE, 2)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, r"cm\.yaml:1: data: holds no policy"),
        ({"a.yml": ""}, r"cm\.yaml:1: data\[\"?a\.yml\"?\]?: is not read: .* end with \.yaml"),
        ({"a.yaml": {}}, r"cm\.yaml:1: .*a\.yaml.*: is no text"),
        ({"a.yaml": "\ud800"}, r"a\.yaml"),
        (
            {"rebalancer.yaml": "apiVersion: v1\nkind: ConfigMap\ndata: {}"},
            r"rebalancer\.yaml:1: apiVersion: ",
        ),
        (
            {"duplicates.yaml": "apiVersion: rebalancer/v1\nkind: Strategy\nwieght: 2"},
            r"cm\.yaml/duplicates\.yaml:3: wieght: unknown key; did you mean weight",
        ),
    ],
)
def test_what_is_wrong_in_a_config_map_is_said_with_its_key(data, says):
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "data": data}
    with pytest.raises(PolicyError, match=says):
        load_text(json.dumps(manifest).encode(), "cm.yaml", Registry.installed())
