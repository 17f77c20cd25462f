"""The go.mod of a control plane of any Kubernetes version.

k8s.io/kubernetes is not made to be required by others: its staging modules stand in its go.mod at
v0.0.0 with a replacement by a folder. A module that requires it replaces each by the published module.

Where the module proxy lacks a module that was split off in that version, its packages are made from where they
stood before (:data:`_SPLIT`), in a folder beside go.mod. What that changes is returned in words.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

Go = Callable[[Sequence[str], Path], str]


class _Split(NamedTuple):
    """Where the packages of a module stood before it was split off."""

    origin: str
    version: str
    folders: Sequence[str]
    what: str
    """That the programs have of that version."""


_SPLIT = {
    "k8s.io/apiextensions-api": _Split(
        "k8s.io/apiextensions-apiserver",
        "0.37.2",
        ("pkg/client", "pkg/apis/apiextensions/v1", "pkg/apis/apiextensions/v1beta1"),
        "the types of CustomResourceDefinitions",
    )
}
"""Conversions stayed behind, in packages of the same name; texts that they share with the types did not."""
_ONLY_IN_TESTS = {"k8s.io/ktesting": ("", "format", "initoption")}
"""Modules that no program needs, with their packages: `go mod tidy` wants them to exist."""
_LACKED = re.compile(r"/@v/\S+: (404|410) |unknown revision |This module version is not available")
"""In what Go says of a version that the module proxy does not have; proxies that forbid some versions answer the last."""
_DIFFING = "sigs.k8s.io/structured-merge-diff"


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


def write(folder: Path, version: str, go: Go) -> Sequence[str]:
    """Write go.mod and go.sum for a Kubernetes version into a folder that holds main.go; return what differs from it.

    Raises:
        RuntimeError: the module proxy lacks more than what can be made here, or could not be asked.
        ValueError: the go.mod of that version has another form.
    """
    upstream = Path(download(f"k8s.io/kubernetes@v{version}", folder, go)["GoMod"]).read_text()
    replaced, differs = dict[str, str](), []
    for module, place, what in _stand_in(folder, upstream, _staging(version), go):
        replaced[module] = place
        differs += [what] if what else []
    (folder / "go.mod").write_text(render(upstream, version, replaced))
    go(["mod", "tidy"], folder)
    return differs


def _stand_in(folder: Path, upstream: str, version: str, go: Go) -> Iterator[tuple[str, str, str]]:
    """Yield modules that the proxy lacks, what to use in their place, and what of the programs that changes."""
    own = [module for module in _find_staging(upstream) if module in (*_SPLIT, *_ONLY_IN_TESTS)]
    for module in own:
        if _is_served(f"{module}@{version}", folder, go):
            continue
        made = folder / module.rpartition("/")[2]
        if module in _SPLIT:
            of = _SPLIT[module]
            origin = download(f"{of.origin}@v{of.version}", folder, go)["Dir"]
            _move(Path(origin), made, module, upstream)
            yield module, f"./{made.name}", f"{of.what} are those of 1{of.version[1:]}"
        else:
            for package in _ONLY_IN_TESTS[module]:
                name = package or made.name
                _write(made / package / "doc.go", f"package {name}\n")
            yield module, f"./{made.name}", ""
        _write(made / "go.mod", f"module {module}\n\ngo {_one(_GO, upstream)}\n")
    path = _one(_DIFFING_PATH, upstream)
    wanted = _one(rf"^\s+{path} (\S+)", upstream)
    if own and not _is_served(f"{path}@{wanted}", folder, go):
        patch = f"{wanted.rpartition('.')[0]}.0"
        yield path, f"{path} {patch}", f"{path} is {patch}"


def _move(origin: Path, made: Path, module: str, upstream: str) -> None:
    """Copy packages to a module of their own: what they import of each other, and of newer modules, is renamed."""
    of = _SPLIT[module]
    diffing = _one(_DIFFING_PATH, upstream)
    for folder in of.folders:
        for file in sorted((origin / folder).rglob("*.go")):
            code = file.read_text().replace(f'"{of.origin}/', f'"{module}/')
            code = re.sub(rf'"{_DIFFING}/v\d+/', f'"{diffing}/', code)
            if file.name == "conversion.go":
                code = "\n".join((_one(_PACKAGE, code), *re.findall(_LITERAL, code), ""))
            if not file.name.endswith(("_test.go", "generated.conversion.go")):
                _write(made / file.relative_to(origin), code)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def _is_served(module: str, folder: Path, go: Go) -> bool:
    """Return whether the module proxy has a module; what else may fail, such as the network or a checksum, is raised."""
    try:
        download(module, folder, go)
    except RuntimeError as error:
        text = str(error)
        if "verifying " in text or _LACKED.search(text) is None:
            raise
        return False
    return True


def render(upstream: str, version: str, replaced: Mapping[str, str]) -> str:
    """Derive our go.mod from that of k8s.io/kubernetes: its Go, its etcd, its staging modules or what is ``replaced``."""
    staging_version = _staging(version)
    go = _one(_GO, upstream)
    godebug = _one(r"^godebug (\S+)$", upstream)
    etcd = _one(r"^\s+go\.etcd\.io/etcd/server/v3 (\S+)", upstream)
    staging = {one: f"{one} {staging_version}" for one in _find_staging(upstream)}
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
        *(f"\t{module} => {place}" for module, place in {**staging, **replaced}.items()),
        ")",
        "",
    ]
    return "\n".join(lines)


def _staging(version: str) -> str:
    return "v0." + version.split(".", 1)[1]


def _find_staging(upstream: str) -> Sequence[str]:
    return re.findall(r"^\s+(\S+) => \./staging/", upstream, re.MULTILINE)


_GO = r"^go (\S+)$"
_DIFFING_PATH = rf"^\s+({_DIFFING}/v\d+) "
_PACKAGE = r"^(package \w+)$"
_LITERAL = re.compile(r"^var \w+ = \[\]byte\(.*\)$", re.MULTILINE)


def _one(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise ValueError(f"the go.mod of Kubernetes has no line like {pattern}")
    return match.group(1)
