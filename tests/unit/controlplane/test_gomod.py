"""The modules of a control plane of a new Kubernetes, by a `go` that answers from a table."""

import json

import pytest

from tests.controlplane import build, gomod
from tests.controlplane.__main__ import main
from tests.controlplane.build import GroundError

_UPSTREAM = """\
go 1.26.0

godebug default=go1.26

require (
	go.etcd.io/etcd/server/v3 v3.6.0
	sigs.k8s.io/structured-merge-diff/v7 v7.0.1
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/apiextensions-api => ./staging/src/k8s.io/apiextensions-api
	k8s.io/ktesting => ./staging/src/k8s.io/ktesting
)
"""
_LACKING = "reading https://proxy.test/k8s.io/x/@v/v1.info: "
_HELD_BACK = "403 Forbidden\n\tserver response: This module version is not available."


class Go:
    """Downloads what there is: a module with an error in ``fails`` is none, and ``upstream`` is Kubernetes' go.mod."""

    def __init__(self, folder, fails, upstream):
        self._folder, self._fails = folder, fails
        self._upstream = {"v9.9.9": _UPSTREAM, **upstream}

    def __call__(self, arguments, folder):
        if arguments[0] == "list":
            return " ".join(("k8s.io/kubernetes", *self._upstream))
        if arguments[:2] == ["mod", "tidy"]:
            return ""
        path, _, version = arguments[-1].partition("@")
        if path in self._fails:
            raise GroundError(f"`go mod` failed:\n{path}@{version}: {self._fails[path]}")
        place = self._folder / version
        place.mkdir(exist_ok=True)
        if path == "k8s.io/kubernetes":
            (place / "go.mod").write_text(self._upstream[version])
        return json.dumps({"GoMod": str(place / "go.mod"), "Dir": str(place)})


@pytest.fixture
def go(tmp_path):
    def make(fails=None, **upstream):
        (tmp_path / "cache").mkdir()
        (tmp_path / "module").mkdir()
        return Go(tmp_path / "cache", fails or {}, upstream)

    return make


@pytest.mark.parametrize("module", ["apiextensions-api", "ktesting"])
@pytest.mark.parametrize(
    "answer",
    [
        _LACKING + "404 Not Found\n\tserver response: not found: k8s.io/x@v1",
        _LACKING + "410 Gone",
        _LACKING + _HELD_BACK,
        # As Go writes it into JSON.
        json.dumps(_LACKING + _HELD_BACK),
        "invalid version: unknown revision v0.9.9",
    ],
)
def test_what_the_proxy_lacks_is_made(answer, module, go, tmp_path):
    folder = tmp_path / "module"
    gomod.write(folder, "9.9.9", go({f"k8s.io/{module}": answer}))
    written = (folder / "go.mod").read_text()
    assert f"k8s.io/{module} => ./{module}\n" in written
    assert "k8s.io/api => k8s.io/api v0.9.9\n" in written
    assert (folder / module / "go.mod").exists()


@pytest.mark.parametrize(
    "module",
    ["k8s.io/apiextensions-api", "k8s.io/ktesting", "sigs.k8s.io/structured-merge-diff/v7"],
)
@pytest.mark.parametrize(
    "answer",
    [
        "verifying module: checksum mismatch\n\nSECURITY ERROR",
        "verifying module: reading https://sum.test/lookup/k8s.io/x@v1: 404 Not Found: unknown revision v1",
        _LACKING + "502 Bad Gateway",
        _LACKING + "403 Forbidden\n\tserver response: log in first",
        'Get "https://proxy.test/k8s.io/x/@v/v1.info": dial tcp: i/o timeout',
        "",
    ],
)
def test_what_fails_otherwise_is_no_reason_to_make_a_module(answer, module, go, tmp_path):
    with pytest.raises(GroundError, match=f"{module}@"):
        gomod.write(tmp_path / "module", "9.9.9", go({module: answer}))


def test_what_the_proxy_serves_is_taken(go, tmp_path):
    assert gomod.write(tmp_path / "module", "9.9.9", go()) == []
    written = (tmp_path / "module" / "go.mod").read_text()
    assert "./" not in written


@pytest.mark.parametrize(
    "missing", ["go 1.26.0", "sigs.k8s.io/structured-merge-diff/v7 v7.0.1", "godebug"]
)
def test_a_version_whose_go_mod_has_another_form_is_said_and_passed_over(
    missing, go, monkeypatch, capsys
):
    new = _UPSTREAM.replace(missing, "// ")
    monkeypatch.setattr(build, "go", go(**{"v9.10.0": new}))
    assert build.find_newest() == "9.9.9"
    assert "Kubernetes 9.10.0 cannot be built: the go.mod of Kubernetes" in capsys.readouterr().err


@pytest.mark.parametrize(("newest", "is_said"), [(build.VERSIONS[-1], False), ("9.9.9", True)])
def test_another_version_than_the_docs_name_is_said(newest, is_said, monkeypatch, capsys):
    monkeypatch.setattr(build, "find_newest", lambda: newest)
    assert main(["newest"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{newest}\n"
    assert (f"docs/project/kubernetes.md says {build.VERSIONS[-1]}" in printed.err) is is_said
