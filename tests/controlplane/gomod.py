"""The go.mod of a control plane of any Kubernetes version.

k8s.io/kubernetes is not made to be required by others: its staging modules stand in its go.mod at
v0.0.0 with a replacement by a folder. A module that requires it replaces each by the published module.
"""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

Go = Callable[[Sequence[str], Path], str]


def version_flags(version: str) -> str:
    """Linker flags by which the programs know their version; without them they say v0.0.0."""
    package = "k8s.io/component-base/version"
    major, minor, _ = version.split(".", 2)
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    return " ".join(f"-X {package}.{name}={value}" for name, value in values.items())


def download(module: str, folder: Path, go: Go) -> dict[str, str]:
    """Download a module, ``path@version`` or one that the go.mod of ``folder`` requires; return where its parts are."""
    parts: dict[str, str] = json.loads(go(["mod", "download", "-json", module], folder))
    return parts


def write(folder: Path, version: str, go: Go) -> None:
    """Write go.mod and go.sum for a Kubernetes version into a folder that holds main.go."""
    upstream = Path(download(f"k8s.io/kubernetes@v{version}", folder, go)["GoMod"]).read_text()
    (folder / "go.mod").write_text(render(upstream, version))
    go(["mod", "tidy"], folder)


def render(upstream: str, version: str) -> str:
    """Derive our go.mod from that of k8s.io/kubernetes: its Go, its etcd, its staging modules."""
    staging_version = "v0." + version.split(".", 1)[1]
    go = _one(r"^go (\S+)$", upstream)
    godebug = _one(r"^godebug (\S+)$", upstream)
    etcd = _one(r"^\s+go\.etcd\.io/etcd/server/v3 (\S+)", upstream)
    staging = re.findall(r"^\s+(\S+) => \./staging/", upstream, re.MULTILINE)
    lines = [
        "module rebalancer.test/controlplane",
        "",
        f"go {go}",
        "",
        f"godebug {godebug}",
        "",
        "require (",
        f"\tgo.etcd.io/etcd/server/v3 {etcd}",
        f"\tk8s.io/component-base {staging_version}",
        f"\tk8s.io/kubernetes v{version}",
        ")",
        "",
        "replace (",
        *(f"\t{module} => {module} {staging_version}" for module in staging),
        ")",
        "",
    ]
    return "\n".join(lines)


def _one(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise ValueError(f"the go.mod of Kubernetes has no line like {pattern}")
    return match.group(1)
