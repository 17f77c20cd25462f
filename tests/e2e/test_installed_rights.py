"""What one run is allowed is exactly what it uses, as the API server's own audit log has it.

That no run of the whole suite has asked for more is checked as each control plane of the suite ends: see conftest.py.
"""

import pytest

from tests.controlplane import audit
from tests.e2e import crowd
from tests.e2e.installed import Installed
from tests.e2e.rights import asked, granted, missing, unused

APPS = 2


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_one_run_uses_all_that_its_mode_is_allowed_and_nothing_else(cluster, tmp_path, mode):
    crowd.gather(cluster, APPS)
    policy = {**crowd.SLOWLY, "protect": {"minPodAge": "0s", "afterScaling": "10m"}}
    installed = Installed(cluster, tmp_path, mode=mode, policy=policy)
    rules = granted(installed, acting=mode == "enforce")
    log = audit.AuditLog(cluster.audit_log)

    done = installed.run()
    assert done.code == 0, done.err
    assert crowd.moved(cluster) == (APPS if mode == "enforce" else 0)
    assert missing(rules, asked(log)) == []
    assert unused(rules, asked(log, answered_well=True)) == []
