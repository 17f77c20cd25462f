"""The parts of a release that need no network; ``make release`` does the rest, and installs what it makes."""

import base64
import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from image import oci
from tests.docs.pages import ROOT
from tests.release import archive, make, prove, provenance
from tests.release.make import Files
from tests.release.source import ReleaseError, Source, checked_out

_EPOCH = 1_790_000_000
_GIT = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org"]


def packed(path, names, mode=0o644, mtime=1):
    """A .tar.gz of files whose content is their name, packed by any user at any time."""
    with tarfile.open(path, "w:gz") as out:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime, entry.uname = len(name), mode, mtime, "me"
            out.addfile(entry, io.BytesIO(name.encode()))


def sources(to: Path, mode: int, mtime: int) -> Source:
    """What a wheel is made from, with modes and times of a checkout."""
    to.mkdir()
    for name in (
        "pyproject.toml",
        "setup.py",
        "README.md",
        "LICENSE",
        "NOTICE",
        "CHANGELOG.md",
        "rebalancer",
        "strategies",
    ):
        of = ROOT / name
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(of, to / name, ignore=ignored) if of.is_dir() else shutil.copy(of, to)
    for path in to.rglob("*"):
        path.chmod(0o755 if path.is_dir() else mode)
        os.utime(path, (mtime, mtime))
    return Source(to, _EPOCH)


def test_wheel_and_sdist_made_twice_are_the_same_and_can_be_run(tmp_path, monkeypatch):
    # Compilers are compared at a release, which makes everything twice.
    monkeypatch.setenv("REBALANCER_COMPILE", "0")
    made = []
    for number, mtime in enumerate((1_700_000_000, 1_800_000_000)):
        source = sources(tmp_path / f"source-{number}", 0o644, mtime)
        files = Files(tmp_path / f"made-{number}", source.version)
        files.folder.mkdir()
        make.write_sdist(source, files)
        make.write_wheel(source, files)
        make.write_notes(source, files)
        make.write_sums(files.folder)
        made.append(files)
    prove.same(*made)
    prove.sums(made[0])
    (local,) = made[0].folder.glob("*.whl")
    with zipfile.ZipFile(local) as wheel:
        assert {each.date_time[0] for each in wheel.infolist()} == {2026}
        (about,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        described = str(message_from_bytes(wheel.read(about)).get_payload())
        assert described.strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()
        points = wheel.read(about.replace("METADATA", "entry_points.txt")).decode()
        assert "rebalancer = " in points
        assert "kubectl-rebalancer = " in points
        wheel.extractall(tmp_path / "site")  # noqa: S202
    done = subprocess.run(
        [sys.executable, "-P", "-m", "rebalancer", "--version"],
        env={"PYTHONPATH": str(tmp_path / "site")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[2] == made[0].version
    with tarfile.open(made[0].sdist) as sdist:
        assert {entry.mtime for entry in sdist} == {_EPOCH}
        assert f"kube_rebalancer-{made[0].version}/LICENSE" in sdist.getnames()


def test_what_was_made_twice_and_differs_is_named(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "wheel").write_text(name)
    with pytest.raises(ReleaseError, match="these have other bytes: wheel"):
        prove.same(Files(tmp_path / "one", "1"), Files(tmp_path / "two", "1"))
    (tmp_path / "two" / "more").touch()
    with pytest.raises(ReleaseError, match="other names"):
        prove.same(Files(tmp_path / "one", "1"), Files(tmp_path / "two", "1"))


def test_an_archive_packed_again_depends_on_its_files_only(tmp_path):
    packed(tmp_path / "a.tar.gz", ["x/b", "x/a"], mode=0o664, mtime=5)
    packed(tmp_path / "b.tar.gz", ["x/a", "x/b"], mode=0o600, mtime=9)
    for name in ("a", "b"):
        make.pack_again(tmp_path / f"{name}.tar.gz", _EPOCH)
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "a.tar.gz") as again:
        assert [(e.name, e.mode, e.mtime, e.uname) for e in again] == [
            ("x/a", 0o644, _EPOCH, ""),
            ("x/b", 0o644, _EPOCH, ""),
        ]
    assert gzip.decompress((tmp_path / "a.tar.gz").read_bytes())


def test_sums_are_those_of_sha256sum(tmp_path):
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    make.write_sums(tmp_path)
    subprocess.run(
        ["sha256sum", "--check", make.SUMS],  # noqa: S607
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    prove.sums(Files(tmp_path, "1"))
    (tmp_path / "two").write_text("3")
    with pytest.raises(ReleaseError, match="two has another sum"):
        prove.sums(Files(tmp_path, "1"))
    (tmp_path / "three").touch()
    with pytest.raises(ReleaseError, match="exactly the files"):
        prove.sums(Files(tmp_path, "1"))


def changelog(folder: Path, text: str) -> Source:
    (folder / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    (folder / "CHANGELOG.md").write_text(text)
    return Source(folder, _EPOCH)


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        (
            "# C\n\n## [Unreleased]\n\n- new\n\n## [1.2.0] - 2026-01-01\n\n- a\n\n## [1.1.0]\n\n- b\n",
            "- a",
        ),
        (
            "# C\n\n## [Unreleased]\n\n### Added\n\n- new\n\n## [1.1.0]\n\n- b\n",
            "### Added\n\n- new",
        ),
    ],
)
def test_notes_are_the_section_of_the_version_or_what_is_not_released(tmp_path, text, notes):
    assert changelog(tmp_path, text).changes() == notes


@pytest.mark.parametrize("text", ["", "## [Unreleased]\n\n## [1.1.0]\n\n- b\n"])
def test_a_release_without_changes_is_refused(tmp_path, text):
    with pytest.raises(ReleaseError, match=r"no changes under \[1\.2\.0\] or \[Unreleased\]"):
        changelog(tmp_path, text).changes()


def test_notes_name_every_file(tmp_path):
    source = changelog(tmp_path, "## [1.2.0]\n\n- a\n")
    (tmp_path / "out").mkdir()
    files = Files(tmp_path / "out", source.version)
    make.write_notes(source, files)
    text = (files.folder / make.NOTES).read_text()
    assert text.startswith("# kube-rebalancer 1.2.0\n\n- a\n")
    all_files = (
        *map(files.wheel, make.MACHINES),
        files.sdist,
        files.chart,
        files.image,
        files.sbom("image"),
    )
    assert all(path.name in text for path in all_files)


def test_what_is_made_is_the_commit_and_nothing_beside_it(tmp_path):
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "script").write_text("x")
    (checkout / "script").chmod(0o775)
    (checkout / ".gitignore").write_text("ignored\n")
    (checkout / "ignored").touch()
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        environ = {**os.environ, "GIT_COMMITTER_DATE": f"{_EPOCH} +0000"}
        subprocess.run([*_GIT, *command], cwd=checkout, check=True, env=environ)
    source = checked_out(tmp_path / "source", checkout)
    assert source.epoch == _EPOCH
    assert sorted(path.name for path in source.folder.iterdir()) == [".gitignore", "script"]
    modes = {path.name: path.stat().st_mode & 0o777 for path in source.folder.iterdir()}
    assert modes == {".gitignore": 0o644, "script": 0o755}
    (checkout / "new").touch()
    with pytest.raises(ReleaseError, match="commit or stash new"):
        checked_out(tmp_path / "again", checkout)


def test_without_a_repository_there_is_no_release(tmp_path):
    with pytest.raises(ReleaseError, match=r"git status: .*not a git repository"):
        checked_out(tmp_path / "source", tmp_path)


@pytest.fixture
def image(tmp_path):
    (tmp_path / "root" / "usr").mkdir(parents=True)
    (tmp_path / "root" / "usr" / "file").write_text("content")
    oci.write(tmp_path / "root", tmp_path / "image.tar", "localhost/x:1", entrypoint=["/x"])
    return tmp_path / "image.tar"


def changed(image, change):
    """The archive with some entries' contents changed."""
    to = image.with_name("changed.tar")
    with tarfile.open(image) as before, tarfile.open(to, "w") as after:
        for entry in before:
            stored = before.extractfile(entry)
            assert stored is not None
            content = change(entry.name, stored.read())
            if content is not None:
                entry.size = len(content)
                after.addfile(entry, io.BytesIO(content))
    return to


def test_an_archive_of_an_image_is_read_back(image, tmp_path):
    archive.unpack(image, tmp_path / "out", "localhost/x:1")
    assert (tmp_path / "out" / "usr" / "file").read_text() == "content"
    with pytest.raises(ReleaseError, match="not called localhost/x:2"):
        archive.unpack(image, tmp_path / "out", "localhost/x:2")


def smaller(name, content):
    if name == "index.json":
        index = json.loads(content)
        index["manifests"][0]["size"] -= 1
        content = json.dumps(index).encode()
    return content


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda _, content: content.replace(b"content", b"changed"), "another digest"),
        (lambda name, content: None if name == "oci-layout" else content, "oci-layout is missing"),
        (smaller, "another size"),
    ],
    ids=["blob", "layout", "size"],
)
def test_an_archive_that_is_not_what_it_says_is_refused(image, tmp_path, change, said):
    with pytest.raises(ReleaseError, match=said):
        archive.unpack(changed(image, change), tmp_path / "out", "localhost/x:1")


@pytest.mark.e2e  # Helm is built from Go modules
def test_the_packaged_chart_made_twice_is_the_same_and_renders_as_the_chart(tmp_path):
    made = []
    for number, mtime in enumerate((1_700_000_000, 1_800_000_000)):
        source = sources(tmp_path / f"source-{number}", 0o644, mtime)
        shutil.copytree(ROOT / "chart", source.folder / "chart")
        files = Files(tmp_path / f"made-{number}", source.version)
        make.write_chart(source, files)
        made.append(files)
        prove.chart(files, source)
    prove.same(*made)


# -- provenance and signatures ---------------------------------------------------------------------

_KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
_PEM = _KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


_LISTED = [
    {"name": "CPython", "hashes": [{"alg": "SHA-256", "content": "a" * 64}]},
    {"name": "jinja2", "version": "3"},
    {"name": "libc.so.6", "hashes": [{"alg": "SHA-256", "content": "b" * 64}]},
]
"""Of what is in an image."""


def released(folder: Path, key: Ed25519PrivateKey | None) -> Files:
    """A release of two files, made from sources with the pins only."""
    source = folder / "source"
    for path in provenance.pinned(source).values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)
    (source / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    files = Files(folder / "made", "1.2.0")
    files.folder.mkdir()
    for name in ("one.whl", "two.tgz"):
        (files.folder / name).write_text(name)
    files.sbom("image").write_text(json.dumps({"components": _LISTED}))
    make.write_provenance(Source(source, _EPOCH, "c" * 40), files, key)
    make.write_sums(files.folder)
    if key is not None:
        make.sign_sums(files.folder, key)
    prove.sums(files)
    return files


def test_the_provenance_names_each_file_the_commit_and_the_pins(tmp_path):
    files = released(tmp_path, None)
    said = json.loads(files.provenance.read_bytes())
    assert [one["name"] for one in said["subject"]] == [
        "kube-rebalancer-1.2.0-image.cdx.json",
        "one.whl",
        "two.tgz",
    ]
    assert said["subject"][1]["digest"]["sha256"] == make.digest(files.folder / "one.whl")
    commit, *pins = said["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert commit["digest"] == {"gitCommit": "c" * 40}
    names = [*provenance.pinned(tmp_path), "image/CPython", "image/libc.so.6"]
    assert [pin["uri"] for pin in pins] == sorted(f"file:{name}" for name in names)
    assert {"uri": "file:image/libc.so.6", "digest": {"sha256": "b" * 64}} in pins


def test_signed_twice_the_bytes_are_the_same_and_each_signature_is_of_what_it_says(tmp_path):
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        made.append(released(tmp_path / name, _KEY))
    prove.same(*made)
    files = made[0]
    public = _KEY.public_key()
    public.verify(
        (files.folder / make.SIGNATURE).read_bytes(), (files.folder / make.SUMS).read_bytes()
    )
    envelope = json.loads(files.envelope.read_bytes())
    payload = base64.b64decode(envelope["payload"])
    assert payload == files.provenance.read_bytes()
    kind = envelope["payloadType"]
    signed = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload
    (signature,) = envelope["signatures"]
    public.verify(base64.b64decode(signature["sig"]), signed)


def test_without_a_key_nothing_is_signed_and_that_is_said(tmp_path):
    files = released(tmp_path, None)
    assert prove.signatures(files) == "not signed: RELEASE_SIGNING_KEY is not set"
    (files.folder / make.SIGNATURE).touch()
    with pytest.raises(ReleaseError, match="only SHA256SUMS"):
        prove.signatures(files)


def test_the_key_comes_from_the_environment_and_is_in_no_message():
    assert provenance.signing_key({}) is None
    assert provenance.signing_key({"RELEASE_SIGNING_KEY": _PEM}) is not None
    with pytest.raises(ReleaseError, match="no Ed25519 key in PEM") as it:
        provenance.signing_key({"RELEASE_SIGNING_KEY": "tell-nobody"})
    assert "tell-nobody" not in str(it.value)


def test_the_page_says_how_a_release_is_verified():
    by_openssl, by_sums, by_program = prove.verification((ROOT / "RELEASE.md").read_text())
    assert by_openssl[:3] == ["openssl", "pkeyutl", "-verify"]
    assert by_sums[0] == "sha256sum"
    compile(by_program[-1], "RELEASE.md", "exec")
