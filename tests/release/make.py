"""Makes the files of a release; equal sources give equal bytes, wherever and whenever they are made."""

import gzip
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from image import contents, oci, root
from tests.chart.helm import helm
from tests.node import containerfile
from tests.release import provenance
from tests.release.source import Source

MACHINES = ("x86_64", "aarch64")
"""The processors that wheels are compiled for, on any machine."""
SUMS = "SHA256SUMS"
SIGNATURE = "SHA256SUMS.sig"
"""Ed25519, of the sums: 64 bytes, as openssl reads them."""
PUBLIC_KEY = "release.pub"
NOTES = "RELEASE-NOTES.md"


@dataclass(frozen=True)
class Files:
    """Where the files of a version are, below ``folder``."""

    folder: Path
    version: str

    def wheel(self, machine: str = platform.machine()) -> Path:
        """The distribution, compiled for a kind of processor."""
        name = f"kube_rebalancer-{self.version}-cp311-abi3-{root.GLIBC}_{machine}.whl"
        return self.folder / name

    @property
    def sdist(self) -> Path:
        """The distribution's sources."""
        return self.folder / f"kube_rebalancer-{self.version}.tar.gz"

    @property
    def chart(self) -> Path:
        """The chart's package."""
        return self.folder / f"kube-rebalancer-{self.version}.tgz"

    @property
    def image(self) -> Path:
        """The image as an OCI archive, for the machine's architecture."""
        return self.folder / f"kube-rebalancer-{self.version}-{oci.architecture()}.oci.tar"

    @property
    def image_name(self) -> str:
        """The name of the image in its archive: that of no registry."""
        return f"localhost/kube-rebalancer:{self.version}"

    @property
    def provenance(self) -> Path:
        """The in-toto statement of where the files come from."""
        return self.folder / f"kube-rebalancer-{self.version}.provenance.json"

    @property
    def envelope(self) -> Path:
        """The same, signed."""
        return self.folder / f"kube-rebalancer-{self.version}.intoto.jsonl"

    def sbom(self, of: str) -> Path:
        """The list of what is in the ``python`` installation or in the ``image``."""
        return self.folder / f"kube-rebalancer-{self.version}-{of}.cdx.json"


def make(source: Source, to: Path, scratch: Path, key: Ed25519PrivateKey | None = None) -> Files:
    """Make all files of a release in ``to``, an empty folder; needs the network.

    With ``key`` they are signed.

    Raises:
        ReleaseError: the changelog says nothing.
        subprocess.CalledProcessError: a step failed; standard error says more.
    """
    files = Files(to, source.version)
    write_sdist(source, files)
    for machine in MACHINES:
        write_wheel(source, files, f"{root.GLIBC}_{machine}")
    write_chart(source, files)
    rootfs = containerfile.build(scratch, source.folder)
    oci.write(rootfs, files.image, files.image_name, entrypoint=root.ENTRYPOINT)
    shutil.copyfile(rootfs / contents.FILE, files.sbom("image"))
    _write_python_sbom(source, files, scratch / "installed")
    write_notes(source, files)
    write_provenance(source, files, key)
    write_sums(to)
    if key is not None:
        sign_sums(to, key)
    return files


# What is pinned in requirements builds, not what an index has today.
_BUILD = (sys.executable, "-m", "build", "--no-isolation")


def write_sdist(source: Source, files: Files) -> None:
    """Write the sources as a distribution."""
    _run([*_BUILD, "--sdist", f"--outdir={files.folder}", str(source.folder)], source.epoch)
    pack_again(files.sdist, source.epoch)


def write_wheel(source: Source, files: Files, target: str = "") -> None:
    """Write the wheel for a platform, by its name in wheels; empty: for this machine, by its own compiler."""
    command = [*_BUILD, "--wheel", f"--outdir={files.folder}", str(source.folder)]
    # Nothing that is compiled for one platform may be taken for another.
    shutil.rmtree(source.folder / "build", ignore_errors=True)
    _run(command, source.epoch, REBALANCER_WHEEL=target)


def write_chart(source: Source, files: Files) -> None:
    """Write the chart's package."""
    to = f"--destination={files.folder}"
    helm("package", str(source.folder / "chart"), to, epoch=source.epoch)


def write_notes(source: Source, files: Files) -> None:
    """Write what has changed, and which file is for what."""
    lines = [
        f"# kube-rebalancer {files.version}",
        "",
        source.changes(),
        "",
        "## Files",
        "",
        *(
            f"- `{files.wheel(machine).name}`: the command, for `pip install`"
            for machine in MACHINES
        ),
        f"- `{files.sdist.name}`: its sources; pip compiles them, with a compiler from the index where none is",
        f"- `{files.image.name}`: the image `{files.image_name}`, an OCI archive",
        f"- `{files.chart.name}`: the chart, for `helm install`",
        f"- `{files.sbom('python').name}`, `{files.sbom('image').name}`: what is in them, in CycloneDX",
        f"- `{files.provenance.name}`: from which commit and pins they are made, as SLSA provenance of in-toto",
        f"- `{SUMS}`: for `sha256sum --check {SUMS}`",
        f"- `{SIGNATURE}`, `{PUBLIC_KEY}`, `{files.envelope.name}`: of a release that is signed; RELEASE.md says how to verify it",
    ]
    (files.folder / NOTES).write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_sums(folder: Path) -> None:
    """Write the SHA-256 of every file in ``folder``, as sha256sum does."""
    lines = [f"{digest(path)}  {path.name}\n" for path in sorted(folder.iterdir())]
    (folder / SUMS).write_text("".join(lines))


def write_provenance(source: Source, files: Files, key: Ed25519PrivateKey | None) -> None:
    """Write where all files that are there come from, and with ``key`` the same signed."""
    subjects = {path.name: digest(path) for path in files.folder.iterdir()}
    pins = {name: digest(path) for name, path in provenance.pinned(source.folder).items()}
    if files.sbom("image").exists():
        pins |= provenance.of_machine(files.sbom("image").read_bytes())
    text = provenance.statement(source, subjects, pins)
    files.provenance.write_bytes(text)
    if key is not None:
        files.envelope.write_bytes(provenance.envelope(text, key))
        (files.folder / PUBLIC_KEY).write_bytes(provenance.public_key(key))


def sign_sums(folder: Path, key: Ed25519PrivateKey) -> None:
    """Sign the sums, and with them every file."""
    (folder / SIGNATURE).write_bytes(key.sign((folder / SUMS).read_bytes()))


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def pack_again(archive: Path, epoch: int) -> None:
    """Pack a ``.tar.gz`` again without what differs between two builds: times, owners, order, gzip's header."""
    packed = archive.with_suffix(".again")
    with (
        tarfile.open(archive) as before,
        packed.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=epoch) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as after,
    ):
        for entry in _sorted(before):
            content = before.extractfile(entry)
            mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            plain = entry.replace(mtime=epoch, mode=mode, uid=0, gid=0, uname="", gname="")
            plain.pax_headers = {}
            after.addfile(plain, content)
    packed.replace(archive)


def _sorted(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    yield from sorted(archive.getmembers(), key=lambda entry: entry.name)


def _write_python_sbom(source: Source, files: Files, environment: Path) -> None:
    """Write what an installation of the wheel has, with the dependencies that the image pins."""
    venv.create(environment, with_pip=False)
    python = str(environment / "bin" / "python")
    pip = [sys.executable, "-m", "pip", f"--python={python}", "--quiet", "install"]
    pinned = ["--require-hashes", f"--requirement={source.folder}/image/requirements.txt"]
    _run([*pip, "--disable-pip-version-check", *pinned], source.epoch)
    _run([*pip, "--disable-pip-version-check", "--no-deps", str(files.wheel())], source.epoch)
    (packages,) = environment.glob("lib/python*/site-packages")
    root.forget_origin(packages)
    project = f"--pyproject={source.folder}/pyproject.toml"
    lists = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", project]
    _run([*lists, f"--output-file={files.sbom('python')}", python], source.epoch)


def _run(command: Sequence[str], epoch: int, **variables: str) -> None:
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), **variables}
    subprocess.run(
        command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environ
    )
