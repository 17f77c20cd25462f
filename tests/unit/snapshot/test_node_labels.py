"""Label selectors over all nodes at once say what they say of one node's labels."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.snapshot.labels import NodeLabels, matches
from rebalancer.wire.objects import LabelSelector, LabelSelectorRequirement

KEYS, VALUES = st.sampled_from(["a", "b", "c"]), st.sampled_from(["", "x", "y", "-no-value-"])
LABELS = st.dictionaries(KEYS, VALUES)
REQUIREMENTS = st.builds(
    LabelSelectorRequirement,
    key=KEYS,
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    values=st.lists(VALUES, max_size=2).map(tuple),
)
SELECTORS = st.builds(
    LabelSelector,
    match_labels=st.none() | LABELS,
    match_expressions=st.none() | st.lists(REQUIREMENTS, max_size=3).map(tuple),
)


@given(st.lists(LABELS, max_size=4), SELECTORS)
def test_a_selector_matches_all_nodes_as_it_matches_each(nodes, selector):
    labels = NodeLabels([f"n{i}" for i in range(len(nodes))], nodes)
    assert np.array_equal(labels.matching(selector), [matches(selector, of) for of in nodes])
