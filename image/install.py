"""Installs the chart of this checkout on a cluster, with an image that this machine serves while a first run pulls it.

``python -m image.install [ARCHIVE] [--context NAME] [--address HOST:PORT] [--helm-flags=FLAGS]``. Without ARCHIVE it only checks the programs,
the context and the right to install: ``make install`` does so before it builds the archive. A new release only reports; one that is there keeps
its values but for the image. The report of a dry run is printed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from image.registry import ADDRESS, Archive, serving

ROOT = Path(__file__).resolve().parents[1]
RELEASE = "kube-rebalancer"


def main() -> int:
    """Install, wait for a first dry run, and print what it says."""
    parser = argparse.ArgumentParser(prog="python -m image.install", description=__doc__)
    parser.add_argument("archive", type=Path, nargs="?")
    parser.add_argument("--context", default="")
    parser.add_argument("--namespace", default="rebalancing")
    parser.add_argument("--address", default=ADDRESS)
    parser.add_argument("--helm-flags", default="", help="further flags, in one word")
    given = parser.parse_args()
    programs = {name: shutil.which(name) or "" for name in ("helm", "kubectl")}
    if missing := [name for name, path in programs.items() if not path]:
        return _fail(f"not on the PATH: {', '.join(missing)}")
    context = [given.context] if given.context else []
    where = f"--namespace={given.namespace}"
    kubectl = [programs["kubectl"], *(f"--context={one}" for one in context), where]
    flags = [*(f"--kube-context={one}" for one in context), where]
    allowed = _ask([*kubectl, "auth", "can-i", "create", "clusterroles", "--all-namespaces"])
    if allowed.returncode != 0:
        refused = "this account may not create ClusterRoles, and so not install the chart"
        return _fail(refused if allowed.stdout.strip() == "no" else allowed.stderr.strip())
    if given.archive is None:
        return 0
    there = _ask(
        [
            programs["helm"],
            "list",
            "--deployed",
            "--failed",
            "--pending",
            "--short",
            f"--filter=^{RELEASE}$",
            *flags,
        ]
    )
    if there.returncode != 0:
        return _fail(there.stderr.strip())
    is_new = not there.stdout.split()
    try:
        with serving(archive := Archive.read(given.archive), given.address) as repository:
            _say(f"installing {repository}@{archive.digest}")
            image = [f"image.repository={repository}", f"image.digest={archive.digest}"]
            values = [f"--set={one}" for one in [*(["mode=observe"] if is_new else []), *image]]
            how = ["--create-namespace", "--reset-then-reuse-values", *flags, *values]
            command = ["upgrade", "--install", RELEASE, str(ROOT / "chart"), *how]
            if _call([programs["helm"], *command, *shlex.split(given.helm_flags)]) != 0:
                return _fail("Helm has failed, so that nothing was run")
            code = _look(kubectl)
    except (OSError, ValueError) as error:
        return _fail(f"{given.archive}, {given.address}: {error}")
    if code != 0:
        return _fail(
            "the first run has not ended well; kubectl describe pods says whether its node could pull"
            f" from {given.address}. A node elsewhere needs a registry that it reaches: push the archive there"
        )
    kept = "The release has kept its values, mode too, but for the image; this run was a dry run."
    news = "It reports every two minutes, and moves nothing." if is_new else kept
    _say(f"\n{news} The registry has ended: only nodes that have run it have the image.")
    return 0


def _look(kubectl: list[str]) -> int:
    """Print the report of a dry run that the CronJob's own template makes, or the log of a Deployment; return whether it failed."""
    by_hand = ["create", "job", "now", f"--from=cronjob/{RELEASE}", "--dry-run=client"]
    template = _ask([*kubectl, *by_hand, "--output=json"])
    if template.returncode != 0:
        served = f"deployment/{RELEASE}"
        return _call([*kubectl, "rollout", "status", served]) or _call([*kubectl, "logs", served])
    job = json.loads(template.stdout)
    job["metadata"] |= {"name": None, "generateName": f"{RELEASE}-now-"}
    args = job["spec"]["template"]["spec"]["containers"][0]["args"]
    # Runs of a fleet move nothing anyway.
    args += ["--dry-run"] if args[0] == "run" else []
    made = _ask([*kubectl, "create", "--filename=-", "--output=name"], json.dumps(job))
    if made.returncode != 0:
        return _fail(made.stderr.strip())
    name = made.stdout.strip()
    ended: set[str] = set()
    # It always ends: its Job has a deadline.
    while not ended:
        time.sleep(1)
        conditions = _ask([*kubectl, "get", name, "--output=jsonpath={.status.conditions[*].type}"])
        ended = {"Complete", "Failed"}.intersection(conditions.stdout.split())
    return _call([*kubectl, "logs", name]) or int("Failed" in ended)


def _ask(command: list[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - programs of the PATH
        command, input=stdin, capture_output=True, text=True, check=False
    )


def _call(command: list[str]) -> int:
    return subprocess.run(command, check=False).returncode  # noqa: S603 - programs of the PATH


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _fail(text: str) -> int:
    sys.stderr.write(f"install: {text}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
