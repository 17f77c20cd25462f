"""Where the programs of the ground come from: a directory of ready ones, or a Go build, once.

The control plane is one binary under several names; KWOK, Helm, kubectl and the peer
descheduler are built from a small module each, and only when they are needed.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.controlplane import gomod

DEFAULT_VERSION = "1.36.3"
"""The Kubernetes version whose go.mod and go.sum are committed; others are derived from it."""
VERSIONS = (DEFAULT_VERSION, "1.37.2", "1.38.0-beta.0")
"""The Kubernetes versions that the tests run on; :func:`find_newest` may name one that is newer than the last."""

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
"""The names under which the one binary can be called; the kubelet only in the default version."""

_HERE = Path(__file__).resolve().parent
_CACHE = _HERE.parents[1] / ".cache" / "controlplane"
_BUILD_SECONDS = 3600.0
_MAX_LINES = 200
"""Of what Go says when it fails."""


class GroundError(RuntimeError):
    """The programs do not exist and cannot be built; the message says what to install."""


@dataclass(frozen=True)
class Tool:
    """A program built from a little module of its own, or of several programs."""

    folder: str
    package: str


TOOLS = {
    "kwok": Tool("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    "helm": Tool("helm", "helm.sh/helm/v4/cmd/helm"),
    "helm3": Tool("helm3", "helm.sh/helm/v3/cmd/helm"),
    "descheduler": Tool("peer", "sigs.k8s.io/descheduler/cmd/descheduler"),
    "ec2-metadata-mock": Tool(
        "metadata", "github.com/aws/amazon-ec2-metadata-mock/cmd/ec2-metadata-mock"
    ),
    "kubectl": Tool("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    "karpenter": Tool("karpenter", "sigs.k8s.io/karpenter/kwok"),
    "cluster-api": Tool("capi", "sigs.k8s.io/cluster-api/core"),
    "eviction-requests": Tool("requests", "rebalancer.test/controlplane/requests"),
    "jobset": Tool("gangs", "sigs.k8s.io/jobset"),
    "lws": Tool("gangs", "sigs.k8s.io/lws/cmd"),
}


def binary(name: str, version: str = DEFAULT_VERSION) -> Path:
    """Return the path of a program, building it first if need be.

    A program in the directory KUBEBUILDER_ASSETS wins, except where another version is asked for:
    what stands there has one version only.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and version == DEFAULT_VERSION:
        ready = Path(assets) / name
        if ready.is_file():
            return ready
    if name in _programs(version):
        return _control_plane(version) / name
    if name in TOOLS:
        return _tools(TOOLS[name].folder) / name
    known = ", ".join((*_programs(version), *TOOLS))
    raise ValueError(f"no program called {name!r} of Kubernetes {version}: there are {known}")


def find_newest() -> str:
    """Return the newest Kubernetes, alphas aside, that can be built; what it and newer ones lack is said.

    Raises:
        GroundError: there is no such version.
    """
    with tempfile.TemporaryDirectory(prefix="controlplane-go-") as scratch:
        folder = Path(scratch)
        shutil.copy(_HERE / "main.go", folder)
        listed = go(["list", "-m", "-versions", "k8s.io/kubernetes"], folder).split()[1:]
        for tag in reversed([one for one in listed if "-alpha" not in one]):
            version = tag.removeprefix("v")
            try:
                _write_module(folder, version)
            except (GroundError, ValueError) as error:
                lacking = "; ".join(sorted(set(_LACKING.findall(str(error)))))
                why = f"no {lacking}" if lacking else str(error)
                sys.stderr.write(f"Kubernetes {version} cannot be built: {why}\n")
            else:
                return version
    raise GroundError("no version of Kubernetes can be built from what the module proxy has")


def _write_module(folder: Path, version: str) -> None:
    for what in gomod.write(folder, version, go):
        sys.stderr.write(f"Kubernetes {version}: {what}, since the module proxy lacks newer ones\n")


_LACKING = re.compile(r"""([^\s"]+@v\S+): reading """)
"""A module that the proxy does not have, in what Go says."""


def openapi(version: str) -> Any:
    """Return the OpenAPI document of the core API, as the source of a version has it."""
    with tempfile.TemporaryDirectory(prefix="controlplane-go-") as scratch:
        parts = gomod.download(f"k8s.io/kubernetes@v{version}", Path(scratch), go)
    file = Path(parts["Dir"]) / "api" / "openapi-spec" / "v3" / "api__v1_openapi.json"
    return json.loads(file.read_text())


def _programs(version: str) -> tuple[str, ...]:
    """Return what is built of a version: a kubelet is a third of the build, and only one version's is tested."""
    if version == DEFAULT_VERSION:
        return CONTROL_PLANE
    return tuple(name for name in CONTROL_PLANE if name != "kubelet")


def _control_plane(version: str) -> Path:
    code = [_HERE / "main.go"]
    if "kubelet" in _programs(version):
        code.append(_HERE / "kubelet.go")
    committed = [_HERE / "go.mod", _HERE / "go.sum"] if version == DEFAULT_VERSION else []
    target = _CACHE / version / _digest([*code, *(committed or [Path(gomod.__file__)])])

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="controlplane-go-") as scratch:
            module = Path(scratch)
            for path in (*code, *committed):
                shutil.copy(path, module)
            if not committed:
                _write_module(module, version)
            flags = f"-s -w {gomod.version_flags(version)}"
            go(["build", "-trimpath", "-ldflags", flags, "-o", f"{folder}/controlplane"], module)
        for name in _programs(version):
            (folder / name).symlink_to("controlplane")

    make_once(target, what=f"Kubernetes {version} from Go modules", build=build)
    return target


def _tools(module_folder: str) -> Path:
    """Return the folder with all programs of a module."""
    module = _HERE / module_folder
    code = sorted(module.glob("*.go"))
    target = _CACHE / module_folder / _digest([*code, module / "go.mod", module / "go.sum"])
    tools = {name: tool for name, tool in TOOLS.items() if tool.folder == module_folder}

    def build(folder: Path) -> None:
        for name, tool in tools.items():
            go(
                ["build", "-trimpath", "-ldflags", "-s -w", "-o", f"{folder}/{name}", tool.package],
                module,
            )

    make_once(target, what=f"{' and '.join(tools)} from Go modules", build=build)
    return target


def module_files(tool: str, module: str) -> Path:
    """Return the folder with the sources of a module that a tool is built from."""
    return Path(gomod.download(module, _HERE / TOOLS[tool].folder, go)["Dir"])


def _digest(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def make_once(target: Path, *, what: str, build: Callable[[Path], None]) -> None:
    """Make `target` with `build` unless it exists; only one process builds it, and it appears when complete."""
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.parent / ".lock"):
        if target.is_dir():
            return
        sys.stderr.write(f"building {what}, once (some minutes)\n")
        # With the lock held, these are remains of a builder that was killed.
        for stale in target.parent.glob(".building-*"):
            shutil.rmtree(stale, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix=".building-", dir=target.parent))
        try:
            build(scratch)
            scratch.chmod(0o755)
            scratch.rename(target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; wait for another builder as long as a build may take."""
    deadline = time.monotonic() + _BUILD_SECONDS
    with path.open("w") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise GroundError(f"{path} stayed locked for an hour") from None
                time.sleep(0.5)
        yield


def go(arguments: Sequence[str], folder: Path) -> str:
    """Run the go command in a folder and return what it printed."""
    program = shutil.which("go")
    if program is None:
        raise GroundError(
            "the real control plane needs Go 1.26 or newer to be built: install Go, or set "
            "KUBEBUILDER_ASSETS to a directory that holds "
            f"{', '.join(CONTROL_PLANE[:4])} and kwok"
        )
    done = subprocess.run(
        [program, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_BUILD_SECONDS,
        check=False,
        # A version that needs a newer Go takes it from the module proxy.
        env={"GOTOOLCHAIN": "auto", **os.environ, "CGO_ENABLED": "0", "GOWORK": "off"},
    )
    if done.returncode != 0:
        # With -json it says on standard output what failed.
        said = done.stderr.strip() or done.stdout.strip()
        tail = "\n".join(said.splitlines()[-_MAX_LINES:])
        raise GroundError(
            f"`go {arguments[0]}` failed (Go 1.26 or newer is needed, and a module proxy):\n{tail}"
        )
    return done.stdout
