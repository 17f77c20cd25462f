"""What a process that leads does about signals: which rights, when it listens, and whom its steps call."""

import io

import pytest

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.kube.access import MARK_RULES
from rebalancer.machines.interruption.steps.pods import DELETE
from rebalancer.registry import Registry
from rebalancer.run.options import PolicyFlags
from rebalancer.serve.interruptions import Interruptions, SignalPipeline
from tests.unit.commands.serving import like

SIGNALS = "signals: {kubernetes: {}}\nstrategies: {leaving: {}}\n"


def with_step(step):
    """A policy that has one more step than cordon."""
    return f"{SIGNALS}interruption: {{steps: [cordon, {step}]}}\n"


def policy(folder, text):
    path = folder / "policy.yaml"
    path.write_text(f"apiVersion: rebalancer/v1\nkind: Policy\n{text}")
    return PolicyFlags(policy_path=str(path)).load(Registry.installed()).policy


class Pipeline:
    """Notes that it was started, called and closed."""

    def __init__(self, number, call_planner):
        self.number, self.call_planner = number, call_planner
        self.closed = False
        self.runs = like(needs_planner=False, report=lambda: [number])

    def close(self):
        self.closed = True

    def problem(self):
        return f"source {self.number} hangs"

    def counts(self):
        return self.number


@pytest.fixture
def started(monkeypatch):
    """The pipelines that were started."""
    made: list[Pipeline] = []

    def start(*_, call_planner, **__):
        made.append(Pipeline(len(made) + 1, call_planner))
        return made[-1]

    monkeypatch.setattr(SignalPipeline, "start", start)
    return made


@pytest.fixture
def interruptions():
    environment = Environment(SystemClock(), {}, io.StringIO(), io.StringIO())
    return Interruptions(environment, Registry.installed(), lambda: None)


def listen(interruptions, policy, *, acts=True):
    """Let it listen as a run says; return the note of that."""
    run = like(loaded=like(policy=policy), acts=acts, state=like(machine_state=None))
    follower = like(nodes=list)
    return interruptions.listen_as(run, like(), follower, lambda: None)


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("strategies: {leaving: {}}\n", ()),
        (SIGNALS, MARK_RULES),
        (with_step("leave"), MARK_RULES),
        (with_step("escalate"), MARK_RULES),
        (with_step("{step: escalate, means: delete}"), (*MARK_RULES, DELETE)),
    ],
)
def test_rights_are_asked_for_as_the_steps_need_them(interruptions, tmp_path, text, rules):
    assert interruptions.rules(policy(tmp_path, text)) == rules


def test_the_sources_are_opened_again_only_where_the_policy_changes_them(
    interruptions, started, tmp_path
):
    plain, other = policy(tmp_path, SIGNALS), policy(tmp_path, with_step("leave"))
    for text, acts, closed, notes in (
        (plain, True, [False], 0),
        (plain, True, [False], 0),
        (other, True, [True, False], 0),
        (other, False, [True, True], 1),
        (other, True, [True, True, False], 0),
        (policy(tmp_path, "strategies: {leaving: {}}\n"), True, [True, True, True], 0),
    ):
        assert (listen(interruptions, text, acts=acts) is not None) == notes
        assert [one.closed for one in started] == closed


def test_what_is_shown_is_that_of_the_pipeline_that_listens(interruptions, started, tmp_path):
    def shown():
        return interruptions.report(), interruptions.problem(), interruptions.counts()

    assert shown() == ((), None, None)
    listen(interruptions, policy(tmp_path, SIGNALS))
    assert shown() == ((1,), "source 1 hangs", 1)
    interruptions.close()
    assert shown() == ((), None, None)


def test_a_step_calls_the_planner_and_pods_must_leave_until_its_work_is_done(started, tmp_path):
    called = []
    environment = Environment(SystemClock(), {}, io.StringIO(), io.StringIO())
    interruptions = Interruptions(environment, Registry.installed(), lambda: called.append("now"))
    assert not interruptions.pods_must_leave
    listen(interruptions, policy(tmp_path, SIGNALS))
    assert not interruptions.pods_must_leave
    started[0].call_planner()
    assert called == ["now"]
    started[0].runs.needs_planner = True
    assert interruptions.pods_must_leave
    interruptions.close()
    assert not interruptions.pods_must_leave
