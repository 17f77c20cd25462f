"""Installs every file of a release on a clean environment, and runs what was installed."""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from image import root
from tests.chart.helm import helm
from tests.controlplane import GroundError
from tests.controlplane.process import ProcessGroup
from tests.docs.pages import ROOT, commands
from tests.node import node
from tests.node.containerd import Containerd
from tests.release import archive
from tests.release.make import PUBLIC_KEY, SIGNATURE, SUMS, Files, digest
from tests.release.provenance import KEY_VARIABLE
from tests.release.source import ReleaseError, Source

_SECONDS = 300.0
_EXAMPLE = "docs/examples/zone-back.zip"


def same(first: Files, second: Files) -> None:
    """Compare what was made twice.

    Raises:
        ReleaseError: the files have other names, or one has other bytes.
    """
    names = sorted(path.name for path in first.folder.iterdir())
    if names != sorted(path.name for path in second.folder.iterdir()):
        raise ReleaseError("made twice, the files have other names")
    differing = [
        name for name in names if digest(first.folder / name) != digest(second.folder / name)
    ]
    if differing:
        raise ReleaseError(f"made twice, these have other bytes: {', '.join(differing)}")


def sums(files: Files) -> None:
    """Check the sums, as ``sha256sum --check`` does, and that no file is without one.

    Raises:
        ReleaseError: one is wrong or missing.
    """
    lines = (files.folder / SUMS).read_text().splitlines()
    listed = {name: value for value, name in (line.split("  ", 1) for line in lines)}
    there = {path.name for path in files.folder.iterdir()} - {SUMS, SIGNATURE}
    if listed.keys() != there:
        raise ReleaseError(f"{SUMS} has not exactly the files that there are")
    for name, value in listed.items():
        if digest(files.folder / name) != value:
            raise ReleaseError(f"{SUMS}: {name} has another sum")


def signatures(files: Files) -> str:
    """Verify the signatures as people do, by the commands of RELEASE.md; return what was done.

    Raises:
        ReleaseError: a signature is wrong, or only some of its files are there.
    """
    parts = [files.folder / SIGNATURE, files.folder / PUBLIC_KEY, files.envelope]
    there = [path.name for path in parts if path.exists()]
    if not there:
        return f"not signed: {KEY_VARIABLE} is not set"
    if len(there) < len(parts):
        raise ReleaseError(f"of the signatures there is only {', '.join(there)}")
    for command in verification((ROOT / "RELEASE.md").read_text(encoding="utf-8")):
        done = subprocess.run(
            command, cwd=files.folder, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            said = done.stderr.strip() or done.stdout.strip()
            raise ReleaseError(f"{' '.join(command[:2])}: {said}")
    return "the signatures were verified"


_VERIFY = re.compile(r"## Verify a release\n(.*?)(?=\n## |\Z)", re.DOTALL)
_PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def verification(page: str) -> list[list[str]]:
    """Return the commands by which RELEASE.md lets people verify a release, and its program."""
    section = _VERIFY.search(page)
    text = "" if section is None else section[1]
    (program,) = _PYTHON.findall(text)
    return [*(shlex.split(one) for one in commands(text)), [sys.executable, "-c", program]]


def distribution(file: Path, source: Source, folder: Path) -> None:
    """Install the wheel or the sdist in a fresh environment as people do, and run it; needs the network.

    Raises:
        ReleaseError: a command of ours failed, or says another version.
        subprocess.CalledProcessError: pip failed; standard error says more.
    """
    venv.create(folder, with_pip=True)
    pip = [f"{folder}/bin/pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, str(file)], check=True, stdin=subprocess.DEVNULL)
    ours = f"{folder}/bin/rebalancer"
    _version([ours], source)
    _version([f"{folder}/bin/kubectl-rebalancer"], source)
    _printed([ours, "run", "--snapshot", str(source.folder / _EXAMPLE)])
    _printed([ours, "demo", "--speed", "20"])


def chart(files: Files, source: Source) -> None:
    """Render the packaged chart: with its defaults it is what the chart's folder is, with the release's image.

    Raises:
        ReleaseError: it is not.
    """
    rendered = [
        helm("template", "rebalancer", str(path), "--namespace=rebalancing")
        for path in (files.chart, source.folder / "chart")
    ]
    if rendered[0] != rendered[1] or f"kube-rebalancer:{source.version}" not in rendered[0]:
        raise ReleaseError(f"{files.chart.name} does not render as the chart's folder does")


def image(files: Files, source: Source, folder: Path) -> str:
    """Check the image's archive, and run it in a containerd of its own if that is here; return what was done.

    Raises:
        ReleaseError: a digest is wrong, or what runs says another version.
    """
    rootfs = folder / "rootfs"
    archive.unpack(files.image, rootfs, files.image_name)
    try:
        programs = node.programs()
    except GroundError as error:
        return f"its digests were checked; it was not run: {error}"
    with contextlib.ExitStack() as stack:
        scratch = Path(tempfile.mkdtemp(prefix="release-containerd-"))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        processes = ProcessGroup(scratch)
        stack.callback(processes.close)
        containerd = Containerd(scratch, programs)
        containerd.start(processes)
        containerd.load(files.image)
        name = f"release-{os.getpid()}"
        flags = ["--rm", "--read-only", files.image_name, name]
        said = containerd.ctr("run", *flags, *root.ENTRYPOINT, "--version")
    if said.split()[-1:] != [source.version]:
        raise ReleaseError(f"{files.image.name} says {said.strip()!r}, not {source.version}")
    return "its digests were checked, and it was run in containerd"


def _version(command: Sequence[str], source: Source) -> None:
    said = _printed([*command, "--version"])
    if said.split()[-1:] != [source.version]:
        raise ReleaseError(f"{' '.join(command)} says {said.strip()!r}, not {source.version}")


def _printed(command: Sequence[str]) -> str:
    """Run a command of ours with nothing of this environment but PATH; return what it printed."""
    with tempfile.TemporaryDirectory(prefix="home-") as home:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=home,
            timeout=_SECONDS,
            stdin=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "HOME": home},
        )
    if done.returncode != 0:
        sys.stderr.write(done.stdout + done.stderr)
        raise ReleaseError(f"{' '.join(command)} ended with exit code {done.returncode}")
    return done.stdout
