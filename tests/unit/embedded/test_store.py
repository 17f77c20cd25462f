"""Objects with versions: writes by comparison, a log, names that depend on the seed alone."""

from typing import Any

import pytest

from rebalancer.embedded.apiserver.kinds import CONFIG_MAP, DEPLOYMENT, POD, ApiError
from rebalancer.embedded.apiserver.store import EmbeddedClock, Store, clone


def store(seed: int = 0) -> Store:
    return Store(EmbeddedClock(1_800_000_000.0), seed)


def made(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **more}


def test_what_was_read_is_never_changed_by_a_later_write():
    kept = store()
    first = kept.create(CONFIG_MAP, "default", made("one", data={"a": "1"}))
    before = clone(first)
    kept.modify(CONFIG_MAP, first, lambda new: new["data"].update(a="2"))
    assert first == before


def test_the_generation_grows_with_the_spec_alone():
    kept = store()
    first = kept.create(DEPLOYMENT, "default", made("web", spec={"replicas": 1}, status={}))
    labelled = clone(first)
    labelled["metadata"]["labels"] = {"a": "b"}
    second = kept.replace(DEPLOYMENT, first, labelled)
    scaled = clone(second)
    scaled["spec"]["replicas"] = 2
    third = kept.replace(DEPLOYMENT, second, scaled)
    assert [o["metadata"]["generation"] for o in (first, second, third)] == [1, 1, 2]


def test_the_main_resource_keeps_the_status_and_the_status_keeps_the_rest():
    kept = store()
    first = kept.create(DEPLOYMENT, "default", made("web", spec={"replicas": 1}, status={}))
    both = {**clone(first), "spec": {"replicas": 2}, "status": {"replicas": 2}}
    second = kept.replace(DEPLOYMENT, first, clone(both))
    assert (second["spec"], second["status"]) == ({"replicas": 2}, {})
    both["metadata"].pop("resourceVersion")
    both["spec"] = {"replicas": 9}
    third = kept.replace(DEPLOYMENT, second, both, status_only=True)
    assert (third["spec"], third["status"]) == ({"replicas": 2}, {"replicas": 2})


def test_a_client_cannot_write_what_belongs_to_the_server():
    kept = store()
    first = kept.create(CONFIG_MAP, "default", made("one"))
    forged = clone(first)
    forged["metadata"] |= {"uid": "mine", "creationTimestamp": "1970-01-01T00:00:00Z"}
    assert kept.replace(CONFIG_MAP, first, forged) is first


def test_names_and_uids_depend_on_the_seed_and_not_on_the_order():
    def names(kept: Store, order: str) -> dict[str, tuple[str, str]]:
        listed = {}
        for owner in order:
            pod = kept.create(POD, "default", {"metadata": {"generateName": f"{owner}-"}})
            listed[owner] = (pod["metadata"]["name"], pod["metadata"]["uid"])
        return listed

    assert names(store(1), "abc") == names(store(1), "cba")
    assert names(store(1), "abc") != names(store(2), "abc")


def test_a_forgotten_version_is_gone():
    kept = store()
    kept.create(CONFIG_MAP, "default", made("one"))
    kept.forget()
    with pytest.raises(ApiError, match=r"too old resource version: 1 \(2\)") as refused:
        kept.changes_since(1)
    assert (refused.value.code, refused.value.reason) == (410, "Expired")
    assert kept.changes_since(kept.version) == []
