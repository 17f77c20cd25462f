"""The real Helm on our chart: rendering without a cluster, and releases on one."""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane import build

CHART = Path(__file__).resolve().parents[2] / "chart"
FIRST = Path(__file__).resolve().parent / "first"
"""The chart as it first was in this repository (commit 4de4f14), whose users are to be able to upgrade.

A copy, but for what Helm ignores: a shallow clone has no history. It is never changed.
"""
RELEASE = "rebalancer"

Manifest = dict[str, Any]


class HelmError(Exception):
    """Helm refused; the message is its own."""


def helm(
    *arguments: str,
    stdin: str = "",
    timeout: float = 300.0,
    epoch: int | None = None,
    program: str = "helm",
) -> str:
    """Run Helm with nothing of this machine's settings and return what it printed.

    ``program``: ``helm`` is version 4, ``helm3`` the one before. ``epoch``: the time that files in a package have, in seconds since 1970; without it, their own.
    """
    with tempfile.TemporaryDirectory(prefix="helm-") as home:
        own = {f"HELM_{kind}_HOME": f"{home}/{kind}" for kind in ("CACHE", "CONFIG", "DATA")}
        if epoch is not None:
            own["SOURCE_DATE_EPOCH"] = str(epoch)
        done = subprocess.run(
            [str(build.binary(program)), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            env={"PATH": os.environ.get("PATH", ""), "HOME": home, **own},
        )
    if done.returncode != 0:
        raise HelmError(done.stderr.strip() or done.stdout.strip())
    return done.stdout


def render(
    values: Mapping[str, Any] | None = None, *more: str, namespace: str = "rebalancing"
) -> list[Manifest]:
    """Return the manifests of the chart with ``values`` (and ``more`` flags of Helm), hooks included."""
    text = _rendered(json.dumps(values or {}), more, namespace)
    return [manifest for manifest in yaml.load_all(text, yaml.CSafeLoader) if manifest]


@cache
def _rendered(values: str, more: tuple[str, ...], namespace: str) -> str:
    """Return what Helm prints, which many tests ask of the same values."""
    flags = (f"--namespace={namespace}", "--values=-", *more)
    return helm("template", RELEASE, str(CHART), *flags, stdin=values)


def one(manifests: list[Manifest], kind: str, name: str | None = None) -> Manifest:
    """Return the only manifest of a kind (and a name)."""
    (only,) = (
        manifest
        for manifest in manifests
        if manifest["kind"] == kind and name in (None, manifest["metadata"]["name"])
    )
    return only


def compared_fields(policy: Manifest, of: str) -> set[str]:
    """Return the fields of the object's part ``of`` that an admission policy compares with the former object's."""
    same = re.compile(rf"dyn\(object\.{re.escape(of)}\)\.\?(\w+) == ")
    rules = (rule["expression"] for rule in policy["spec"]["validations"])
    return {name for rule in rules for name in same.findall(rule)}


def pod_spec(cron_job: Manifest) -> Manifest:
    """Return the pod's spec of a CronJob."""
    spec: Manifest = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return spec


class Release:
    """The chart as a release on a cluster."""

    def __init__(
        self, kubeconfig: Path, namespace: str, name: str = RELEASE, program: str = "helm"
    ) -> None:
        self.name = name
        self._program = program
        self.namespace = namespace
        self._where = (f"--kubeconfig={kubeconfig}", f"--namespace={namespace}")

    def install(
        self, values: Mapping[str, Any] | None = None, *more: str, chart: Path = CHART
    ) -> str:
        """Install it; return the notes."""
        return self._with_values("install", values, "--create-namespace", *more, chart=chart)

    def upgrade(
        self, values: Mapping[str, Any] | None = None, *more: str, chart: Path = CHART
    ) -> str:
        """Upgrade it; return the notes."""
        return self._with_values("upgrade", values, *more, chart=chart)

    def test(self) -> str:
        """Run ``helm test``."""
        return helm("test", self.name, *self._where, "--timeout=280s")

    def rollback(self, revision: int) -> None:
        """Go back to an earlier revision."""
        helm("rollback", self.name, str(revision), *self._where, program=self._program)

    def uninstall(self) -> None:
        """Uninstall it and wait until it is gone."""
        helm(
            "uninstall", self.name, *self._where, "--wait", "--timeout=280s", program=self._program
        )

    def _with_values(
        self, verb: str, values: Mapping[str, Any] | None, *more: str, chart: Path
    ) -> str:
        given = json.dumps(values or {})
        arguments = [verb, self.name, str(chart), *self._where, "--values=-", *more]
        return helm(*arguments, stdin=given, program=self._program)
