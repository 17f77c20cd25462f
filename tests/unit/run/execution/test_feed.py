"""The pods that replace victims, as changes and lists show them."""

import threading
import time

import pytest

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.watch import EventType
from rebalancer.run.execution.landing import PodFeed
from rebalancer.wire.pods import NO_ANNOTATIONS, PodRecord

ADDED, MODIFIED, DELETED = EventType.ADDED, EventType.MODIFIED, EventType.DELETED


def record(
    name, *, controller="rs", node="n2", ready=True, deleting=False, created=1.0, phase="Running"
):
    return PodRecord(
        namespace="default",
        name=name,
        uid=f"uid-{name}",
        node=node,
        created=created,
        ready_since=0.0,
        deleting=deleting,
        phase=phase,
        ready=ready,
        controller_kind="ReplicaSet",
        controller_group="apps",
        controller_name="web",
        controller_uid=controller,
        owned=True,
        annotations=NO_ANNOTATIONS,
        key=None,
        spec=lambda: None,  # type: ignore[arg-type, return-value]
    )


@pytest.fixture
def feed():
    """A feed of the replacements of pod a; b is its sibling, x of another controller."""
    return PodFeed(
        controllers={"uid-a": "rs", "uid-x": "other"}, known=frozenset({"uid-a", "uid-b", "uid-x"})
    )


def names(feed):
    return sorted(new.name for new in feed.newcomers())


def test_a_replacement_is_a_pod_of_the_controller_that_was_not_known(feed):
    feed.take(MODIFIED, record("b"))
    feed.take(ADDED, record("c", node="", ready=False))
    feed.take(ADDED, record("foreign", controller="another"))
    (new,) = feed.newcomers()
    assert (new.uid, new.name, new.controller, new.node, new.ready) == (
        "uid-c",
        "c",
        "rs",
        "",
        False,
    )
    feed.take(MODIFIED, record("c"))
    (new,) = feed.newcomers()
    assert (new.node, new.ready) == ("n2", True)
    assert feed.controller_of("uid-a") == "rs"
    assert feed.controller_of("uid-foreign") is None


@pytest.mark.parametrize("ends", [(DELETED, record("c")), (MODIFIED, record("c", deleting=True))])
def test_a_replacement_that_goes_is_none(feed, ends):
    feed.take(ADDED, record("c"))
    feed.take(*ends)
    assert names(feed) == []


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_has_ended_replaces_none_and_is_no_sibling(feed, phase):
    feed.take(ADDED, record("c"))
    feed.take(MODIFIED, record("c", ready=False, phase=phase))
    feed.take(MODIFIED, record("b", ready=False, phase=phase))

    def read_all():
        feed.take(MODIFIED, record("long-ago", ready=False, phase=phase))
        return True

    feed.read_all = read_all
    feed.list_again()
    assert names(feed) == []
    assert feed.unready_sibling("uid-a") is None


def test_the_replacements_of_one_wave_are_old_in_the_next(feed):
    feed.take(ADDED, record("c"))
    feed.begin_wave()
    feed.take(ADDED, record("d"))
    assert names(feed) == ["d"]


def test_victims_hold_their_places_until_they_are_deleted(feed):
    feed.take(MODIFIED, record("a", deleting=True))
    assert feed.ending() == {"uid-a"}
    feed.take(DELETED, record("a", deleting=True))
    assert feed.ending() == frozenset()


@pytest.mark.parametrize(
    ("changes", "sibling"),
    [
        ([], None),
        ([record("b")], None),
        ([record("b", ready=False)], "b"),
        ([record("b", ready=False), record("b")], None),
        # On its way out it is not the one to wait for, its replacement is.
        ([record("b", ready=False, deleting=True)], None),
        # The victim itself is read by the one that evicts it.
        ([record("a", ready=False)], None),
        # Another controller's.
        ([record("x", controller="other", ready=False)], None),
        # A replacement of this wave is about to be Ready.
        ([record("c", ready=False)], None),
    ],
)
def test_a_sibling_that_is_not_ready_is_named(feed, changes, sibling):
    for pod in changes:
        feed.take(MODIFIED, pod)
    assert feed.unready_sibling("uid-a") == sibling


def test_a_replacement_of_an_earlier_wave_is_a_sibling_like_others(feed):
    feed.take(ADDED, record("c", ready=False))
    feed.begin_wave()
    assert feed.unready_sibling("uid-a") == "c"


@pytest.mark.parametrize(
    ("changes", "sibling"),
    [
        ([], "b"),
        ([(MODIFIED, record("b", ready=False))], "b"),
        ([(MODIFIED, record("b"))], None),
        ([(DELETED, record("b", ready=False))], None),
    ],
)
def test_a_sibling_that_was_not_ready_when_the_plan_was_made_counts_until_it_changes(
    changes, sibling
):
    feed = PodFeed(
        controllers={"uid-a": "rs", "uid-x": "other"},
        known=frozenset({"uid-a", "uid-b", "uid-x"}),
        unready={"uid-a": ("rs", "a"), "uid-b": ("rs", "b")},
    )
    for change in changes:
        feed.take(*change)
    assert feed.unready_sibling("uid-a") == sibling
    assert feed.unready_sibling("uid-x") is None


def test_waiting_ends_with_a_change(feed):
    timer = threading.Timer(0.05, lambda: feed.take(ADDED, record("c")))
    timer.start()
    began = time.monotonic()
    feed.wait(600.0)
    assert time.monotonic() - began < 300
    timer.join()
    # A change that came during no wait is not waited for.
    feed.take(MODIFIED, record("c"))
    feed.wait(600.0)
    assert names(feed) == ["c"]


def test_waiting_ends_with_its_time(feed):
    feed.wait(0.01)
    assert names(feed) == []


def test_a_watch_that_ended_for_good_is_an_error_from_then_on(feed):
    feed.fail(ClusterReadError("gone"))
    for _ in range(2):
        with pytest.raises(ClusterReadError, match="gone"):
            feed.wait(0.0)


@pytest.mark.parametrize(("complete", "left"), [(True, ["d"]), (False, ["c", "d"])])
def test_a_list_says_what_a_silent_watch_did_not(feed, complete, left):
    feed.take(ADDED, record("c"))

    def read_all():
        if complete:
            feed.take(MODIFIED, record("b"))
        feed.take(MODIFIED, record("d"))
        return complete

    feed.read_all = read_all
    feed.list_again()
    assert names(feed) == left


def test_the_pod_of_a_restart_is_of_a_controller_that_is_known_only_later():
    feed = PodFeed(
        controllers={"uid-a": "rs"}, known=frozenset({"uid-a"}), restarted_in=frozenset({"default"})
    )
    feed.take(ADDED, record("c", controller="new-rs"))
    feed.take(ADDED, record("foreign", controller="another"))
    assert feed.newcomers() == []
    feed.succeed("uid-a", "new-rs")
    assert feed.controller_of("uid-a") == "new-rs"
    assert names(feed) == ["c"]
    feed.take(MODIFIED, record("a", deleting=True))
    assert not feed.is_gone("uid-a")
    feed.take(DELETED, record("a"))
    assert feed.is_gone("uid-a")


@pytest.mark.parametrize("complete", [True, False])
def test_a_victim_that_a_whole_list_does_not_have_is_gone(feed, complete):
    feed.read_all = lambda: complete
    feed.list_again()
    assert feed.is_gone("uid-a") is complete


@pytest.mark.parametrize("known", [True, False])
def test_a_controller_that_is_made_again_under_its_name_is_the_same_for_a_gang(known):
    """As the StatefulSet of a LeaderWorkerSet's workers, which goes with the leader."""
    named = {("default", "ReplicaSet", "apps", "web"): "rs"} if known else {}
    feed = PodFeed(controllers={"uid-a": "rs"}, known=frozenset({"uid-a"}), named=named)
    feed.take(ADDED, record("c", controller="rs-made-again"))
    assert [(new.name, new.controller) for new in feed.newcomers()] == [("c", "rs")] * known
    feed.take(DELETED, record("c", controller="rs-made-again"))
    assert feed.newcomers() == []


def test_a_feed_says_for_how_long_a_controller_pauses():
    feed = PodFeed(controllers={"uid-a": "job"}, known=frozenset(), pauses={"uid-a": 40.0})
    assert (feed.pause_of("uid-a"), feed.pause_of("uid-b")) == (40.0, 0.0)
