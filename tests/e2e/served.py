"""`rebalancer serve` as a process, with a log of what it says."""

import os
import subprocess
import sys

from tests.controlplane import wait_until

PATIENT = 300
"""Seconds that something may take on a machine that does much else."""


def leaving(method):
    """Return a policy that empties nodes whose machines go; what ``method`` is about is restarted."""
    return f"""
apiVersion: rebalancer/v1
kind: Policy
method: {{{method}: restart}}
protect: {{minPodAge: 0s}}
strategies: {{leaving: {{}}}}
signals: {{kubernetes: {{}}}}
budgets: {{perNode: 1000, perRun: 1000, perHour: 1000, inFlight: 100}}
"""


class Server:
    """One process that serves."""

    def __init__(self, product, folder, name, *options):
        self.name, self.log = name, folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "rebalancer", "serve", "--yes", *options),
                    *(f"--policy={product.policy}", f"--kubeconfig={product.kubeconfig}"),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "POD_NAME": name},
            )

    def said(self, text):
        return self.log.read_text().count(text)

    def await_words(self, text, times=1):
        wait_until(lambda: self.said(text) >= times, PATIENT, f"{self.name} said {text!r}")

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(PATIENT)
