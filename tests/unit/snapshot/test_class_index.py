"""Which classes a selector matches: the index against looking at all of them."""

from hypothesis import given
from hypothesis import strategies as st

from rebalancer.snapshot.labels import ClassIndex, matches
from rebalancer.wire.objects import LabelSelector, LabelSelectorRequirement

KEYS = [f"key-{number}" for number in range(12)]


def selector(**labels):
    return LabelSelector(
        match_labels={key.replace("_", "-"): value for key, value in labels.items()}
    )


def test_each_selector_finds_its_classes_in_its_namespaces_only():
    index = ClassIndex(
        ["shop", "shop", "bank"], [{"app": "web", "tier": "front"}, {"app": "db"}, {"app": "web"}]
    )
    for namespaces, wanted, expected in [
        (["shop"], selector(app="web"), [0]),
        (["shop", "bank"], selector(app="web"), [0, 2]),
        (["bank", "bank"], selector(app="web"), [2]),
        (["shop"], selector(app="web", tier="back"), []),
        (["shop"], selector(unknown="web"), []),
        (["elsewhere"], selector(app="web"), []),
        (["shop"], LabelSelector(), [0, 1]),
        (["shop"], None, []),
    ]:
        assert index.match(namespaces, wanted).tolist() == expected


labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from("xy"), max_size=12)
requirements = st.builds(
    LabelSelectorRequirement,
    key=st.sampled_from([*KEYS, "unknown"]),
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    values=st.lists(st.sampled_from("xy"), min_size=1, max_size=2).map(tuple),
)
selectors = st.builds(
    LabelSelector,
    match_labels=st.none() | labels,
    match_expressions=st.none() | st.lists(requirements, max_size=2).map(tuple),
)


@given(
    classes=st.lists(st.tuples(st.sampled_from("ab"), labels), max_size=12),
    # More than the few keys that are indexed one by one.
    asked=st.lists(st.tuples(st.sampled_from(["a", "b", "ab"]), selectors), max_size=24),
)
def test_the_index_finds_what_looking_at_all_finds(classes, asked):
    index = ClassIndex([namespace for namespace, _ in classes], [of for _, of in classes])
    for namespaces, wanted in asked:
        expected = [
            number
            for number, (namespace, of_class) in enumerate(classes)
            if namespace in namespaces and matches(wanted, of_class)
        ]
        assert index.match(namespaces, wanted).tolist() == expected
