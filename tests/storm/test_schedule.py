"""Scenarios: the same for the same seed, and all pairs are there before anything is left to chance."""

from itertools import product

from tests.storm.faults import EFFECTS, KINDS, MARKING, effects_on, kind_of, phases_of
from tests.storm.schedule import (
    ACTS,
    ENOUGH,
    LONG_DEADLINE,
    LONGEST_DEADLINE,
    MARKED_MOMENTS,
    SERVED,
    _covering,
    covering_seeds,
    scenario,
    served,
)


def test_the_same_seed_is_the_same_scenario():
    assert [scenario(seed) for seed in range(600)] == [scenario(seed) for seed in range(600)]


def test_every_fault_is_seen_on_every_kind_it_can_have():
    seen = {(fault.kind, fault.name) for fault in _covering()}
    assert seen == {(kind, name) for kind in KINDS for name in effects_on(kind)}


def test_every_kind_is_hit_in_every_phase():
    seen = {(fault.kind, fault.phase) for fault in _covering()}
    assert seen == {(kind, phase) for kind in KINDS for phase in phases_of(kind)}


def test_every_fault_comes_in_every_phase():
    seen = {(fault.name, fault.phase) for fault in _covering()}
    assert seen == set(product(EFFECTS, ("first", "second", "later", "always"))) - {
        ("410", "later")
    }


def test_there_are_none_to_three_faults_and_all_acts_within_a_thousand_seeds():
    scenarios = [scenario(seed) for seed in range(1000)]
    assert {len(one.faults) for one in scenarios} == {0, 1, 2, 3}
    assert {act.name for one in scenarios for act in one.acts} >= set(ACTS)
    assert covering_seeds() < 600
    assert {one.deadline for one in scenarios if one.long} == {LONG_DEADLINE, LONGEST_DEADLINE}


def test_every_fifth_run_steers_and_no_other_asks_for_single_nodes():
    steered = [seed for seed in range(1000) if scenario(seed).steered]
    assert steered == list(range(24, 1000, 5))
    assert not any(scenario(seed).long for seed in steered)
    kinds = {seed: {fault.kind for fault in scenario(seed).faults} for seed in range(1000)}
    assert all(seed in steered for seed in kinds if kinds[seed] & set(MARKING))


def test_marks_meet_every_fault_and_signals_at_their_requests_within_a_thousand_seeds():
    scenarios = [scenario(seed) for seed in range(1000) if scenario(seed).steered]
    faults = {(f.kind, f.name) for one in scenarios for f in one.faults if f.kind in MARKING}
    assert faults == {(kind, name) for kind in MARKING for name in effects_on(kind)}
    ends = {a.name for one in scenarios for a in one.acts if a.moment in MARKED_MOMENTS}
    assert ends == {"SIGTERM", "SIGKILL"}


def test_serve_is_ended_after_the_time_that_a_run_would_have():
    made = served(scenario(0))
    assert made.acts[:-1] == scenario(0).acts
    assert str(made).startswith("seed 0 (serve): ")
    assert str(made).endswith(f"{ENOUGH} at after {made.deadline + SERVED:g}")


def test_a_request_is_of_the_kind_that_its_path_says():
    pods = "/api/v1/namespaces/storm/pods"
    leases = "/apis/coordination.k8s.io/v1/namespaces/ops/leases/one"
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    groups = "/apis/cluster.x-k8s.io/v1beta2/namespaces/clusters"
    asked = {
        ("POST", f"{pods}/web-1/eviction"): "eviction",
        ("GET", f"{pods}/web-1"): "get pod",
        ("GET", "/api/v1/nodes/a-0"): "get node",
        ("PATCH", "/api/v1/nodes/a-0"): "patch node",
        ("GET", "/api/v1/nodes?limit=500"): "list nodes",
        ("GET", "/api/v1/pods?limit=500"): "list pods",
        ("GET", f"{pods}?watch=true"): "watch pods",
        ("GET", "/apis/apps/v1/deployments?watch=1&allowWatchBookmarks=true"): "watch deployments",
        ("PUT", leases): "lease",
        ("GET", "/api/v1/namespaces/ops/configmaps/memory"): "memory",
        ("POST", "/apis/events.k8s.io/v1/namespaces/storm/events"): "events",
        ("POST", reviews): "access",
        ("GET", f"{groups}/machines?labelSelector=pool%3Da"): "list machines",
        ("PATCH", f"{groups}/machinedeployments/pool-a"): "patch machinedeployment",
        ("GET", "/version"): "version",
    }
    assert {request: kind_of(*request) for request in asked} == asked
