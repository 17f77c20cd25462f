"""``make install`` from its image on: the node pulls what this machine serves, and the first report is printed; the second keeps all values."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.controlplane import operations, wait_until
from tests.controlplane.build import binary
from tests.node.ground import NAMESPACE

ROOT = Path(__file__).resolve().parents[2]


def test_a_checkout_is_installed_by_one_command(ground, tmp_path):
    ground.drift()
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("helm", "kubectl"):
        (programs / name).symlink_to(binary(name))
    needed = ground.necessities()
    del needed["image"]
    impatient = {"protect": {"minPodAge": "0s"}}
    values = tmp_path / "values.json"
    values.write_text(json.dumps({**needed, "schedule": "0 0 29 2 *", "policy": impatient}))
    env = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "KUBECONFIG": str(ground.plane.kubeconfig),
    }

    def call(*command):
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300, env=env
        )

    def install(*flags):
        module = (sys.executable, "-m", "image.install", str(ground.archive))
        done = call(*module, "--address=127.0.0.1:0", *flags)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "1 eviction" in done.stdout
        return done.stdout

    def pods():
        return {pod["metadata"]["uid"] for pod in operations.pods(ground.plane.api, "default")}

    where = ("kube-rebalancer", f"--namespace={NAMESPACE}")
    try:
        before = pods()
        assert "moves nothing" in install(f"--helm-flags=--values={values}")
        # What people stop, or let move pods, starts nothing by itself, and the next install leaves it so.
        more = ("--reuse-values", "--set=suspend=true,mode=enforce")
        stopped = call("helm", "upgrade", where[0], "chart", *where[1:], *more)
        assert stopped.returncode == 0, stopped.stderr
        assert "It is suspended" in stopped.stdout
        assert "has kept its values" in install()
        kept = json.loads(call("helm", "get", "values", *where, "--output=json").stdout)
        assert (kept["mode"], kept["suspend"], kept["policy"]) == ("enforce", True, impatient)
        assert "runNow" not in kept
        assert pods() == before
    finally:
        call("helm", "uninstall", *where)
        ground.clear()
    wait_until(lambda: not ground.run_pods(), 60, "no pod left")
