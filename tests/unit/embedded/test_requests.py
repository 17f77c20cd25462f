"""From paths, selectors and patches to what they mean."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.embedded.apiserver import kinds
from rebalancer.embedded.apiserver.api import apply_patch
from rebalancer.embedded.apiserver.kinds import ApiError, Target, parse_path
from rebalancer.embedded.apiserver.paging import Pager, label_selector
from rebalancer.embedded.apiserver.store import EmbeddedClock, Store
from rebalancer.snapshot.labels import object_selector


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/pods", Target(kinds.POD)),
        ("/api/v1/namespaces/shop/pods", Target(kinds.POD, "shop")),
        ("/api/v1/namespaces/shop/pods/a", Target(kinds.POD, "shop", "a")),
        ("/api/v1/namespaces/shop/pods/a/eviction", Target(kinds.POD, "shop", "a", "eviction")),
        ("/api/v1/namespaces", Target(kinds.NAMESPACE)),
        ("/api/v1/namespaces/shop", Target(kinds.NAMESPACE, "", "shop")),
        ("/api/v1/namespaces/shop/status", Target(kinds.NAMESPACE, "", "shop", "status")),
        ("/api/v1/nodes/n1", Target(kinds.NODE, "", "n1")),
        ("/apis/apps/v1/deployments", Target(kinds.DEPLOYMENT)),
        ("/apis/apps/v1/namespaces/a/deployments/b", Target(kinds.DEPLOYMENT, "a", "b")),
        ("/apis/policy/v1/poddisruptionbudgets", Target(kinds.BUDGET)),
        # Nothing of ours:
        ("/api/v1/pods/a", None),
        ("/api/v1/namespaces/shop/nodes", None),
        ("/api/v1/namespaces/shop/pods/a/exec", None),
        ("/api/v1/colours", None),
        ("/apis/apps/v1", None),
        ("/metrics", None),
        ("/", None),
    ],
)
def test_paths_name_resources(path, expected):
    assert parse_path(path) == expected


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        (None, {"a": "1"}, False),
        ({}, {}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "2"}, False),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"a": "2"}, True),
    ],
)
def test_selectors_of_specs_choose(selector, labels, expected):
    assert object_selector(selector)(labels) is expected


@pytest.mark.parametrize("text", ["a=b=c", "a in b", "in (a)", "=b", "a b", "a=b,"])
def test_a_malformed_label_selector_is_a_bad_request(text):
    with pytest.raises(ApiError, match="unable to parse requirement") as refused:
        label_selector(text)
    assert refused.value.code == 400


MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"


@pytest.mark.parametrize(
    ("kind", "before", "patch", "expected"),
    [
        # The examples of RFC 7386, appendix A, as far as they concern objects.
        (MERGE, {"a": "b"}, {"a": "c"}, {"a": "c"}),
        (MERGE, {"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        (MERGE, {"a": "b"}, {"a": None}, {}),
        (MERGE, {"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        (MERGE, {"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        (MERGE, {"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        (MERGE, {"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        (MERGE, {"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (MERGE, {"e": None}, {"a": 1}, {"e": None, "a": 1}),
        (MERGE, {}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        # Lists with a merge key.
        (
            STRATEGIC,
            {"conditions": [{"type": "A", "status": "x"}, {"type": "B"}]},
            {"conditions": [{"type": "A", "status": "y"}, {"type": "C"}]},
            {"conditions": [{"type": "A", "status": "y"}, {"type": "B"}, {"type": "C"}]},
        ),
        (
            STRATEGIC,
            {"volumes": [{"name": "a"}, {"name": "b"}]},
            {"volumes": [{"name": "a", "$patch": "delete"}]},
            {"volumes": [{"name": "b"}]},
        ),
        # Taints have none (``listType=atomic``): a patch replaces them all.
        (
            STRATEGIC,
            {"taints": [{"key": "a"}]},
            {"taints": [{"key": "b"}]},
            {"taints": [{"key": "b"}]},
        ),
        (STRATEGIC, {"args": ["a"]}, {"args": ["b"]}, {"args": ["b"]}),
        # Operations.
        (JSON, {"a": {"b/c": 1}}, [{"op": "remove", "path": "/a/b~1c"}], {"a": {}}),
        (JSON, {"a": [1, 2]}, [{"op": "add", "path": "/a/1", "value": 9}], {"a": [1, 9, 2]}),
        (JSON, {"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        (JSON, {"a": 1}, [{"op": "replace", "path": "/a", "value": 2}], {"a": 2}),
    ],
)
def test_patches_change_objects(kind, before, patch, expected):
    assert apply_patch(kind, before, patch) == expected


@pytest.mark.parametrize(
    ("kind", "patch", "code"),
    [
        (JSON, [{"op": "test", "path": "/a", "value": 2}], 400),
        (JSON, [{"op": "remove", "path": "/nowhere/at/all"}], 400),
        (JSON, {"a": 1}, 400),
        (MERGE, ["a"], 400),
        ("text/plain", {}, 415),
    ],
)
def test_a_patch_that_makes_no_sense_is_refused(kind, patch, code):
    with pytest.raises(ApiError) as refused:
        apply_patch(kind, {"a": 1}, patch)
    assert refused.value.code == code


def filled(count: int) -> Store:
    store = Store(EmbeddedClock(1_800_000_000.0), 0)
    names = [f"m{index}" for index in range(count)]
    random.Random(count).shuffle(names)
    for index, name in enumerate(names):
        # Namespaces whose order as keys differs from their order as text before a slash.
        namespace = ("a", "a-b", "a.b")[index % 3]
        store.create(kinds.CONFIG_MAP, namespace, {"metadata": {"name": name}})
    return store


@given(count=st.integers(0, 30), limit=st.integers(1, 31))
def test_pages_put_together_are_the_list(count, limit):
    store = filled(count)
    pager, target = Pager(store), Target(kinds.CONFIG_MAP)
    whole = pager.page(target, {})
    seen, query = [], {"limit": str(limit)}
    while True:
        page = pager.page(target, query)
        assert len(page.items) <= limit
        assert page.metadata["resourceVersion"] == whole.metadata["resourceVersion"]
        seen += list(page.items)
        if "continue" not in page.metadata:
            break
        assert page.metadata["remainingItemCount"] == count - len(seen)
        query["continue"] = page.metadata["continue"]
    assert seen == list(whole.items)


def test_a_forgotten_page_can_be_gone_on_from_inconsistently():
    store = filled(4)
    pager, target = Pager(store), Target(kinds.CONFIG_MAP)
    first = pager.page(target, {"limit": "2"})
    pager.forget()
    with pytest.raises(ApiError, match="too old to display a consistent list result") as refused:
        pager.page(target, {"limit": "2", "continue": first.metadata["continue"]})
    assert (refused.value.code, refused.value.reason) == (410, "Expired")
    late = store.create(kinds.CONFIG_MAP, "z", {"metadata": {"name": "late"}})
    token = refused.value.status()["metadata"]["continue"]
    rest = pager.page(target, {"limit": "9", "continue": token})
    assert list(rest.items)[-1] is late
    assert [*first.items, *rest.items] == store.items(kinds.CONFIG_MAP)
