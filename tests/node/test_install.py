"""``make install`` from its image on: the node pulls what this machine serves, and the first run's report is printed."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.controlplane import wait_until
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
    command = [sys.executable, "-m", "image.install", str(ground.archive), "--address=127.0.0.1:0"]
    done = subprocess.run(
        [*command, f"--helm-flags=--values={values}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "KUBECONFIG": str(ground.plane.kubeconfig),
        },
    )
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        assert "1 eviction" in done.stdout
        assert "moves nothing" in done.stdout
    finally:
        where = ["--kubeconfig", str(ground.plane.kubeconfig), "--namespace", NAMESPACE]
        helm = [str(programs / "helm"), "uninstall", "kube-rebalancer", *where]
        subprocess.run(helm, check=False, timeout=120, capture_output=True)
        ground.clear()
    wait_until(lambda: not ground.run_pods(), 60, "no pod left")
