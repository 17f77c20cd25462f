"""Whatever a trial does to a state, at its end the state is as it was, and at an earlier point as it was there."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.planner.trial import Trial
from rebalancer.snapshot.state import ClusterState
from rebalancer.testing.snapshots import node, snapshot_of, workload

NODES = [node(f"n{i}") for i in range(4)]
PODS = [*workload("web", ["n0", "n0", "n1"]), *workload("db", ["n2", ""], kind="StatefulSet")]
SNAPSHOT = snapshot_of([*NODES, *PODS])
WAITS = next(pod for pod in range(5) if SNAPSHOT.pods.node[pod] < 0)
ONE, OTHER = (pod for pod in range(5) if SNAPSHOT.pods.node[pod] == 0)


def picture(state):
    """All that a state says of pods and nodes."""
    every = np.arange(len(SNAPSHOT.classes), dtype=np.int32)
    return (
        state.node_of.tolist(),
        state.cls_of.tolist(),
        state.used.tolist(),
        state.lasting.tolist(),
        state.pod_count.tolist(),
        state.counts(every).tolist(),
        state.counts(every, terminating=True).tolist(),
        sorted(state.unmoved().tolist()),
        list(state.terminating_pods),
    )


STEPS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.booleans()), max_size=8)


def step(trial, state, pod, to, gone):
    """Place a pod that has no node; evict one that has."""
    if state.node_of[pod] < 0:
        trial.place(pod, to, int(state.cls_of[pod]) if pod == WAITS else -1)
    else:
        trial.evict(pod, gone=gone)


@settings(deadline=None)
@given(STEPS, STEPS)
def test_a_trial_takes_back_all_of_it(first, then):
    state = ClusterState(SNAPSHOT)
    start = picture(state)
    with Trial(state) as trial:
        for one in first:
            step(trial, state, *one)
        here, seen = trial.here(), picture(state)
        with Trial(state) as inner:
            for one in then:
                step(inner, state, *one)
            inner.hide(len(state.terminating_pods))
        assert picture(state) == seen
        for one in then:
            step(trial, state, *one)
        trial.undo(here)
        assert picture(state) == seen
    assert picture(state) == start


def test_what_is_kept_stays():
    state = ClusterState(SNAPSHOT)
    with Trial(state) as trial:
        trial.move(ONE, 3)
        trial.keep()
        kept = picture(state)
        trial.move(OTHER, 3)
    assert picture(state) == kept
    assert state.node_of[ONE] == 3


def test_an_error_takes_it_back_too():
    state = ClusterState(SNAPSHOT)
    start = picture(state)
    trial = Trial(state)
    trial.move(ONE, 3)
    with pytest.raises(IndexError), trial:
        trial.evict(99, gone=True)
    assert picture(state) == start
