"""What the CronJob's pod leaves to Prometheus: pushed by the real image to Debian's Pushgateway, scraped from there."""

import pytest

from tests.controlplane import wait_until
from tests.prometheus.programs import prometheus, pushgateway, query

_SECONDS = 120.0


@pytest.fixture
def drifted(ground):
    ground.drift()
    yield ground
    ground.clear()


def test_the_cron_job_s_pod_pushes_and_prometheus_has_it(drifted, tmp_path):
    with pushgateway() as gateway, prometheus(tmp_path, gateway) as server:

        def value(metric: str) -> float | None:
            samples = query(server, metric)
            return float(samples[0]["value"][1]) if samples else None

        drifted.release().install(drifted.values(metrics={"push": {"url": gateway}}))
        first = wait_until(drifted.finished, _SECONDS, "the first run ended")[0]
        log = drifted.log(first)
        assert first["status"]["phase"] == "Succeeded", log
        moved = 'rebalancer_moves{outcome="evicted"}'
        wait_until(lambda: value(moved) == 1, _SECONDS, "the first run's move at Prometheus")
        assert value('rebalancer_landings{result="as-predicted"}') == 1
        assert value("rebalancer_last_run_exit_code") == 0
        assert (value("rebalancer_build_info"), log.count("could not be pushed")) == (1, 0)

        # The next run takes the place of the first: it has nothing to do.
        wait_until(lambda: drifted.finished()[1:], _SECONDS, "the second run ended")
        wait_until(lambda: value(moved) in (0, None), _SECONDS, "the second run at Prometheus")
        assert value("rebalancer_last_run_exit_code") == 0
