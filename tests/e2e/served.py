"""`rebalancer serve` as a process, with a log of what it says."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

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


class Runs:
    """`rebalancer serve`, which runs again and again; a call waits for one whole run, and returns the reports since the last call."""

    def __init__(self, *flags, kills=None, stops=False):
        """``kills``: at whose points the process is killed; another one takes its place then. ``stops``: it stands still between two calls."""
        self._flags, self._kills, self._stops = flags, kills, stops
        self._out, self._err = "", ""
        self._lock = threading.Lock()
        self._process = self._start()

    def _start(self):
        command = [sys.executable, "-m", "rebalancer", "serve", "--yes", "--every=1s"]
        process = subprocess.Popen(
            [*command, "--output=json", *self._flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        streams = (("_out", process.stdout), ("_err", process.stderr))
        self._readers = [
            threading.Thread(target=self._read, args=of, daemon=True) for of in streams
        ]
        for reader in self._readers:
            reader.start()
        if self._kills is not None:
            self._kills.aim(process)
        return process

    def _read(self, name, stream):
        with stream:
            for line in stream:
                with self._lock:
                    setattr(self, name, getattr(self, name) + line)

    def _take(self):
        """The reports that are there, and how many runs had nothing to do."""
        with self._lock:
            out, idle = self._out.lstrip(), self._err.count("nothing to do on")
            taken = []
            while out:
                try:
                    report, end = json.JSONDecoder().raw_decode(out)
                except ValueError:
                    break  # it is being written
                taken.append(report)
                out = out[end:].lstrip()
            self._out, self._err = out, self._err.replace("nothing to do on", "idle on")
            return taken, idle

    def __call__(self):
        reports, ended = [], 0
        self._process.send_signal(signal.SIGCONT)

        def passed():
            nonlocal ended
            if self._process.poll() is not None:
                assert self._process.returncode == -signal.SIGKILL, self._err
                with self._lock:
                    self._out = ""  # what it had not written to its end
                self._process = self._start()
            taken, idle = self._take()
            reports.extend(taken)
            ended += len(taken) + idle
            return ended >= 2  # the first one may have begun before

        wait_until(passed, PATIENT, "a run")
        if self._stops:
            self._process.send_signal(signal.SIGSTOP)
        return reports

    def acts(self):
        """What the runs since the last call have done with machines: (code, node, status)."""
        made = [act for report in self() for act in report["machines"]]
        assert [act for act in made if act["status"] == "failed"] == []
        return [(act["code"], act["node"], act["status"]) for act in made]

    def end(self):
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        code = self._process.wait(PATIENT)
        for reader in self._readers:
            reader.join()
        return code


@contextmanager
def runs(*flags, kills=None, stops=False):
    made = Runs(*flags, kills=kills, stops=stops)
    try:
        yield made
    finally:
        if kills is not None:
            kills.aim(None)
        assert made.end() in (0, -signal.SIGKILL)
