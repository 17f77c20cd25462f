"""Pages that are walks: commands that were run one after the other on a real control plane and moto, with what each printed.

A step stands between two comments; the first has its command::

    <!-- ran: kubectl get nodes -->
    ...
    <!-- end -->

``<!-- ran at "waiting  for": COMMAND -->`` is a command for another terminal: it is run once the one before it has said that.
``make docs-walk`` goes through the pages on a control plane of its own, and writes them again.
"""

import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.aws.workers import workers
from tests.controlplane import ControlPlane, Options
from tests.controlplane.build import binary
from tests.docs.pages import DOCS, ROOT

WALKS = (DOCS / "replace.md",)
_STEP = re.compile(r'(<!-- ran(?: at "([^"\n]+)")?: ([^\n]+?) -->\n)(.*?)(<!-- end -->)', re.DOTALL)
_PATIENCE = 300.0
"""Seconds for one command: on a machine that does much else, many times what it needs."""
_PASSING = re.compile(
    r"waiting  for (\d+ replacement|new machines|the new machine|.* finished, not read yet)"
)
"""What is said only where a pod or a machine is not Ready at once, or a controller not done."""
_MASKS = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
    (r"127\.0\.0\.1:\d+", "SERVER"),
    (r"(?<![\w.-])(?:\d+(?:\.\d+)?[dhms])+(?![\w.-])", "DURATION"),
    (r"\d+\.\d s ", "DURATION"),
    (r"\b(agent|report|web)-[0-9a-z]+(?:-[0-9a-z]{5})?\b", r"\1-NAME"),
    (r"\bi-[0-9a-f]{17}\b", "MACHINE"),
    (r"\b(eu-west-1)[abc]\b", r"\1"),
    (r"\s+", " "),
)
"""What differs between two walks."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a walk."""

    command: str
    at: str = ""
    """What the command before it has said when this one is run, which is then still under way; empty: it has ended."""
    shown: str = ""
    """What the page says that it prints."""


def steps_of(text: str) -> list[Step]:
    """Return the steps of a page."""
    return [
        Step(command, at or "", _shown(block)) for _, at, command, block, _ in _STEP.findall(text)
    ]


def _shown(block: str) -> str:
    """Return the lines of a step's block below its command."""
    _, _, printed = block.partition("$ ")
    return printed.partition("\n")[2].rpartition("```")[0]


def rewrite(text: str, printed: Sequence[str]) -> str:
    """Return a page with what its steps have ``printed``."""
    outputs = iter(printed)

    def block(step: re.Match[str]) -> str:
        return f"{step[1]}\n```\n$ {step[3]}\n{next(outputs).rstrip()}\n```\n\n{step[5]}"

    return _STEP.sub(block, text)


def walk(steps: Sequence[Step], environ: Mapping[str, str]) -> Iterator[str]:
    """Run the steps as a shell does, in the folder of this repository; yield what each printed, in order.

    Raises:
        ValueError: a command failed, or never said at what the next one is to be run.
    """
    left = list(steps)
    while left:
        step = left.pop(0)
        meanwhile = []
        while left and left[0].at:
            meanwhile.append(left.pop(0))
        yield from _run(step, meanwhile, environ)


def _run(step: Step, meanwhile: Sequence[Step], environ: Mapping[str, str]) -> list[str]:
    """Run a step, and those that are run while it is under way; return what each printed."""
    shell = ["/bin/bash", "-c", step.command]
    said: list[str] = []
    others: list[str] = []
    with subprocess.Popen(
        shell, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        end = threading.Timer(_PATIENCE, process.kill)
        end.start()
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if len(others) < len(meanwhile) and meanwhile[len(others)].at in line:
                others += _run(meanwhile[len(others)], (), environ)
        end.cancel()
    if process.returncode != 0 or len(others) < len(meanwhile):
        raise ValueError(f"{step.command}: exit code {process.returncode}: {''.join(said)}")
    return ["".join(said), *others]


def mask(step: Step, printed: str) -> list[str]:
    """Return the lines that a step printed, without what differs between two walks."""
    lines = [line for line in printed.splitlines() if not _PASSING.search(line)]
    for pattern, word in _MASKS:
        lines = [re.sub(pattern, word, line).strip() for line in lines]
    lines = [line for line in lines if line]
    # Pods of one workload are named, and so sorted, at random.
    return sorted(lines) if step.command.startswith("kubectl get") else lines


@contextmanager
def terminal(plane: ControlPlane, folder: Path) -> Iterator[Mapping[str, str]]:
    """Yield the environment of a reader's terminal: kubectl, aws and ours on the PATH, the cluster of ``plane`` and a cloud."""
    tools = folder / "bin"
    tools.mkdir()
    (tools / "kubectl").symlink_to(binary("kubectl"))
    path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    with workers(plane) as of_cloud:
        home = {"PATH": path, "HOME": str(folder), "KUBECONFIG": str(plane.kubeconfig)}
        yield {**home, **of_cloud}


def main(folder: Path) -> None:
    """Write the pages again, each on an empty cluster; ``folder``: for what the walks leave."""
    with ControlPlane(Options()) as plane:
        for page in WALKS:
            plane.reset()
            text = page.read_text(encoding="utf-8")
            with terminal(plane, folder) as environ:
                printed = list(walk(steps_of(text), environ))
            page.write_text(rewrite(text, printed), encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
