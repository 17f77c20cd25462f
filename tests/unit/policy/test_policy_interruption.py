"""What is wrong in the sections on machines that go is named with its line and, where there is one, the right word."""

import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.policy.load import load_policy
from rebalancer.registry import Registry

HEAD = "apiVersion: rebalancer/v1\nkind: Policy\nstrategies: {leaving: {}}\n"
STEP = "signals: {kubernetes: {}}\ninterruption:\n  steps:\n    - "


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "signals: {kubernets: {}}",
            '4: signals.kubernets: unknown signal source "kubernets"; did you mean kubernetes?',
        ),
        (
            "signals: {kubernetes: {annotations: true}}",
            "4: signals.kubernetes.annotations: unknown key; did you mean annotation?",
        ),
        (
            "signals: {kubernetes: {}}\ninterruption: {leadTimes: {maintenance: soon}}",
            (
                '5: interruption.leadTimes.maintenance: "soon" is no duration;'
                " write for example 90s, 5m, 1h30m or 2d"
            ),
        ),
        (
            "signals: {kubernetes: {}}\ninterruption: {atOnce: 0}",
            "5: interruption.atOnce: 0 should be at least 1",
        ),
        (
            STEP + "cordn",
            '7: interruption.steps[0].step: unknown step "cordn"; did you mean cordon?',
        ),
        (
            STEP + "{step: escalate, mean: delete}",
            "7: interruption.steps[0].mean: unknown key; did you mean means?",
        ),
        (
            STEP + "{step: escalate, means: kill}",
            '7: interruption.steps[0].means: "kill" is none of none, delete',
        ),
        (
            STEP + "{step: cordon, within: 0s}",
            (
                "7: interruption.steps[0].within: 0s is no time;"
                " write for example 20s, or 20% of all the time"
            ),
        ),
        (
            STEP + "{step: webhook}",
            "7: interruption.steps[0]: write url, or urlFrom with the name of an environment variable",
        ),
        (
            STEP + "{step: mute, url: 'ftp://x'}",
            "7: interruption.steps[0]: url is no address; write http://HOST[:PORT][/PATH] or https://...",
        ),
        (
            STEP + "{step: webhook, url: 'http://x', body: {text: $nod}}",
            (
                "7: interruption.steps[0].body: $nod is no placeholder; known: $node, $instance, $kind, $source, $reason,"
                " $deadline, $id, $result, $summary"
            ),
        ),
    ],
)
def test_a_wrong_section_is_refused(tmp_path, text, problem):
    path, registry = tmp_path / "policy.yaml", Registry.installed()
    path.write_text(f"{HEAD}{text}\n")
    with pytest.raises(PolicyError) as refused:
        load_policy(path, registry, signals=registry.signals, steps=registry.steps)
    assert list(refused.value.problems) == [f"{path}:{problem}"]


def test_nothing_is_deleted_unless_the_policy_says_so(tmp_path):
    path, registry = tmp_path / "policy.yaml", Registry.installed()
    path.write_text(f"{HEAD}{STEP}escalate\n")
    loaded = load_policy(path, registry, signals=registry.signals, steps=registry.steps)
    (step,) = loaded.policy.interruption.steps
    assert step.params.model_dump()["means"] == "none"
    assert registry.steps.load("escalate").rules(step.params) == ()
