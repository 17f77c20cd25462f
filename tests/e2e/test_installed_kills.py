"""A run is killed at fifty points of its life: what it did was planned, budgets are whole, the next run goes on."""

import random
import signal
import subprocess
import time
from collections import Counter

from tests.e2e import crowd
from tests.e2e.installed import Installed

APPS = 3
KILLS = 50


def test_killed_at_any_point_it_leaves_nothing_that_the_next_run_does_not_mend(cluster, tmp_path):
    crowd.gather(cluster, APPS, ready_after="200ms")
    installed = Installed(cluster, tmp_path, policy=crowd.SLOWLY)
    lasts = whole_run(installed)
    points = random.Random(0)
    cut = []
    with crowd.BudgetWatcher(cluster) as watcher:
        for _ in range(KILLS):
            crowd.crowd_again(cluster, APPS)
            cut.append(killed_run(installed, points.uniform(0, lasts)))
            crowd.renew_budgets(cluster, APPS)
            crowd.settle(cluster, APPS)
            installed.free_lease()
            installed.forget()
    assert watcher.samples > KILLS
    assert not watcher.broken
    # The points are spread over the whole run: before the first eviction, amid them, after the last.
    assert {0, APPS} & set(cut)
    assert any(0 < done < APPS for done in cut)

    last = installed.run()
    assert last.code == 0, last.err
    assert crowd.moved(cluster) == APPS
    assert installed.run().report["moves"] == []


def whole_run(installed):
    """How long a run lasts from its start to its end."""
    started = time.monotonic()
    done = installed.run()
    assert done.code == 0, done.err
    assert len(done.evicted) == APPS == crowd.moved(installed.plane)
    return time.monotonic() - started


def killed_run(installed, after):
    """Kill a run after so many seconds; check that it evicted planned pods only; return how many."""
    plane = installed.plane
    before = crowd.pods(plane)
    pairs = crowded(before)
    run = installed.start()
    try:
        run.popen.wait(after)
    except subprocess.TimeoutExpired:
        run.popen.send_signal(signal.SIGKILL)
    run.popen.communicate(timeout=30)
    gone = before.keys() - crowd.pods(plane).keys()
    # Each app wants one move: of one of the two pods that stand together.
    assert gone <= pairs.keys()
    assert max(Counter(pairs[uid] for uid in gone).values(), default=0) <= 1
    return len(gone)


def crowded(pods):
    """The pods that stand beside another one of their app, with their app."""
    places = {
        uid: (pod["metadata"]["labels"]["app"], pod["spec"]["nodeName"])
        for uid, pod in pods.items()
    }
    together = Counter(places.values())
    return {uid: place[0] for uid, place in places.items() if together[place] == 2}
