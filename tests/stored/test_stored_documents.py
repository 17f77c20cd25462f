"""Upgrade and rollback: what the version before has stored is read whole, and the other way round.

The first published release will be the first "version before". Until then it is what a checkout of November 2026
wrote.
"""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.cost.streaks import Streaks
from rebalancer.fleet.comparison import list_snapshots
from rebalancer.fleet.record import Retention, list_files, prune
from rebalancer.policy.load import load_policy
from rebalancer.registry import Registry
from rebalancer.report.plan_file import read_plan
from rebalancer.run.memory import document as memory
from rebalancer.run.memory.remember import recall_streaks
from rebalancer.snapshot import owners
from rebalancer.snapshot.load import load_judgeable
from rebalancer.testing.snapshots import node, snapshot_of, workload
from rebalancer.wire import marks, objects
from tests.stored.documents import BEFORE, DOCUMENTS, NOW, text_of, values
from tests.stored.sample import sample_of

KNOWN = Registry.installed()
NAMES = sorted(DOCUMENTS)
ANEW = (
    "is what is stored meant to change? RELEASE.md says how; then: python -m tests.stored.documents"
)


def paths_of(value: Any, at: str = "") -> Iterator[str]:
    """The keys of a document, with those above them."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield f"{at}.{key}"
            yield from paths_of(one, f"{at}.{key}")
    elif isinstance(value, list):
        for one in value:
            yield from paths_of(one, f"{at}[]")


def with_more(value: Any) -> Any:
    """The document with a key in each object that no program of today knows."""
    if isinstance(value, dict):
        more = {key: with_more(one) for key, one in value.items()}
        # Maps by name are no objects with keys: their values have to be of one type.
        return more if any(key.startswith("key-of-") for key in value) else more | {"addedLater": 1}
    return [with_more(one) for one in value] if isinstance(value, list) else value


def read(name: str, text: bytes) -> Any:
    return msgspec.json.decode(text, type=DOCUMENTS[name].kind)


def data_of(folder, name: str) -> Any:
    return msgspec.json.decode((folder / f"{name}.json").read_bytes())


@pytest.mark.parametrize("name", NAMES)
def test_what_is_stored_is_frozen(name):
    assert (NOW / f"{name}.json").read_bytes() == text_of(name), ANEW


def test_each_file_is_a_document_that_is_read():
    assert {path.stem for path in NOW.iterdir()} == {*NAMES, "values"}
    assert {path.stem for path in BEFORE.glob("*.json")} == {*NAMES, "values", "report"}


def test_a_value_is_never_gone_unless_it_is_read_all_the_same():
    assert data_of(NOW, "values") == values(), ANEW
    now = {(name, one) for name, of in values().items() for one in of}
    gone = {(name, one) for name, of in data_of(BEFORE, "values").items() for one in of} - now
    assert gone == {("Phase", "failed"), ("Phase", "unneeded")}
    for _, phase in gone:
        record = data_of(BEFORE, "scale_in") | {"phase": phase}
        assert marks.is_of_open_node(msgspec.json.encode(record).decode())
    for phase in marks.Phase:
        record = data_of(BEFORE, "scale_in") | {"phase": phase}
        assert not marks.is_of_open_node(msgspec.json.encode(record).decode())


@pytest.mark.parametrize("name", NAMES)
def test_what_the_version_before_wrote_is_read_with_all_that_it_says(name):
    before = data_of(BEFORE, name)
    again = msgspec.json.decode(msgspec.json.encode(read(name, msgspec.json.encode(before))))
    assert set(paths_of(before)) <= set(paths_of(again))


@pytest.mark.parametrize("name", NAMES)
def test_a_key_that_is_renamed_or_gone_raises_the_version(name):
    before, now = data_of(BEFORE, name), data_of(NOW, name)
    gone = set(paths_of(before)) - set(paths_of(now))
    added = set(paths_of(now)) - set(paths_of(before))
    stored = DOCUMENTS[name]
    if gone or (added and stored.only_known):
        assert stored.version > before.get(stored.key, 1)
    else:
        # The version before must not refuse what it could read.
        assert stored.version == before.get(stored.key, 1)


@pytest.mark.parametrize("name", [name for name in NAMES if not DOCUMENTS[name].only_known])
def test_what_a_later_version_adds_is_passed_over(name):
    later = msgspec.json.encode(with_more(data_of(NOW, name)))
    assert read(name, later) == DOCUMENTS[name].sample()


def test_a_memory_of_another_version_is_not_replaced_and_its_version_is_said():
    for version in (memory.VERSION + 1, 99):
        text = msgspec.json.encode(data_of(NOW, "memory") | {"version": version}).decode()
        _, flaw = memory.decode({memory.KEY: text})
        assert flaw is not None
        assert flaw.hour_unknown
        assert f"is of version {version}, this program knows {memory.VERSION}" in flaw.message


def test_the_programs_own_readers_take_what_the_version_before_wrote():
    state, flaw = memory.decode({memory.KEY: (BEFORE / "memory.json").read_text()})
    assert flaw is None
    assert state.owners
    assert state.streaks


def test_streaks_of_another_version_count_as_runs_in_a_row():
    """The version before reads ``runs`` only, and writes without ``recent``."""
    streaks = Streaks(100.0, {"a": 1}, {"a": 0b101, "b": 0b10})
    state = memory.Document(
        streaks={"low": memory.StreakMemory(100.0, {"a": 1}, dict(streaks.recent))}
    )
    assert recall_streaks(memory.decode(memory.encode(state))[0])["low"] == streaks
    written = msgspec.json.decode(memory.encode(state)[memory.KEY])
    del written["streaks"]["low"]["recent"]
    old, flaw = memory.decode({memory.KEY: msgspec.json.encode(written).decode()})
    assert flaw is None
    assert recall_streaks(old)["low"] == Streaks(100.0, {"a": 1})


# -- the fingerprint of an owner -------------------------------------------------------------------


def fingerprint_of(spec: dict[str, Any], **keys: Any) -> str:
    objects_of = workload("web", ["a", "a"], spec=spec, **keys)
    (owner,) = snapshot_of([node("a"), *objects_of]).owners
    return owner.fingerprint


FULL = {
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "batch", "operator": "Exists", "effect": "NoSchedule"}],
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ],
    "affinity": {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 50,
                    "podAffinityTerm": {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": {"app": "web"}},
                    },
                }
            ]
        }
    },
    "volumes": [{"name": "tmp", "emptyDir": {}}],
    "terminationGracePeriodSeconds": 30,
}


@pytest.mark.parametrize(
    ("spec", "keys", "frozen"),
    [
        ({}, {}, "Deployment/default/web/53aa2f29c47616dd"),
        (FULL, {}, "Deployment/default/web/a713963fb67699e8"),
        (FULL, {"kind": "StatefulSet"}, "StatefulSet/default/web/a713963fb67699e8"),
        ({"os": {"name": "linux"}}, {}, "Deployment/default/web/53aa2f29c47616dd"),
        (
            {"evictionResponders": [{"name": "example.com/mover", "priority": 7}]},
            {},
            "Deployment/default/web/53aa2f29c47616dd",
        ),
        (
            {
                "resourceClaims": [
                    {"name": "gpu", "resourceClaimTemplateName": "one-gpu"},
                    {"name": "shared", "resourceClaimName": "big"},
                ]
            },
            {},
            "Deployment/default/web/e3021304a737073d",
        ),
    ],
)
def test_the_fingerprint_of_a_template_is_the_same_in_each_version(spec, keys, frozen):
    """If it changed, each upgrade would forget all cool-downs and back-offs."""
    assert fingerprint_of(spec, **keys) == frozen


def test_a_field_that_is_read_anew_changes_no_fingerprint():
    """All fields of a template that are read; whoever reads one more leaves it out of the fingerprint, as ``os``."""
    whole = sample_of(objects.PodTemplate)
    # Claims were read as they are before; rows above have some.
    whole = msgspec.structs.replace(
        whole, spec=msgspec.structs.replace(whole.spec, resource_claims=None)
    )
    of_workload = objects.Workload(
        kind="Deployment",
        metadata=objects.ObjectMeta(name="web", uid="uid-web"),
        spec=objects.WorkloadSpec(template=whole),
    )
    assert owners._fingerprint(of_workload) == "uid-web/cf623fee0677b8da"


# -- files -----------------------------------------------------------------------------------------


def test_a_policy_with_every_key_of_the_version_before_is_read():
    loaded = load_policy(BEFORE / "policy.yaml", KNOWN)
    assert len(loaded.policy.strategies) == 16


def test_a_snapshot_and_a_record_directory_of_the_version_before_are_read():
    names = list_snapshots([str(BEFORE / "snapshot.zip"), str(BEFORE / "recorded")])
    assert len(names) == 2
    assert all(len(load_judgeable(name).pods) for name in names)


def test_a_record_directory_of_the_version_before_is_pruned(tmp_path):
    # Its names, oldest first: the clock of the cluster went back twice.
    names = [
        "20261101T000000Z.zip",
        "clock2-20261030T000000Z.zip",
        "clock2-20261031T000000Z.zip",
        "clock10-20261029T000000Z.zip",
    ]
    for name in names:
        shutil.copy(BEFORE / "snapshot.zip", tmp_path / name)
    assert [file.name for file in list_files(tmp_path)] == names
    size = (BEFORE / "snapshot.zip").stat().st_size
    assert prune(tmp_path, Retention(size=2 * size)) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[2:])


def test_a_plan_of_the_version_before_is_read_and_refused_for_what_is_true():
    plan = read_plan(str(BEFORE / "report.json"), sys.stdin.buffer)
    assert plan.moves
    with pytest.raises(PolicyError, match="or by an earlier version of rebalancer"):
        plan.check_policy(load_policy(None, KNOWN))


def test_a_plan_of_a_version_with_other_defaults_says_so():
    plan = read_plan(str(BEFORE / "report.json"), sys.stdin.buffer)
    loaded = load_policy(None, KNOWN)
    other = replace(plan, policy_hash=loaded.policy_hash[:32] + "0" * 32)
    with pytest.raises(
        PolicyError, match="by another version of rebalancer, whose policy has other"
    ) as it:
        other.check_policy(loaded)
    assert "make a new plan" in str(it.value)
    assert "another policy" not in str(it.value)
