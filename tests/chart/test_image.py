"""What is in the image and what is taken out of it, its licences, and that equal builds are equal."""

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from image import contents, index, libraries, licences, oci, root, unused


def installed(packages, *names):
    """Pretend that pip has installed distributions of one module each, and the client."""
    (packages / "kubernetes" / "aio").mkdir(parents=True)
    for name in names:
        (packages / name).mkdir()
        (packages / name / "__init__.py").touch()
        described = packages / f"{name}-1.0.dist-info"
        described.mkdir()
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        files = [f"{name}/__init__.py", f"{described.name}/METADATA", f"{described.name}/RECORD"]
        (described / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def test_the_asynchronous_client_and_what_only_it_needs_are_taken_out(tmp_path):
    installed(tmp_path, *unused._DISTRIBUTIONS, "requests")
    unused.remove(tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["requests", "requests-1.0.dist-info"]


def test_a_list_that_is_out_of_date_is_an_error(tmp_path):
    installed(tmp_path, *(unused._DISTRIBUTIONS - {"yarl"}))
    with pytest.raises(FileNotFoundError, match="yarl"):
        unused.remove(tmp_path)


def test_what_cannot_be_imported_ends_the_build(tmp_path):
    with pytest.raises(Exception, match="exit status 1"):
        unused.check(tmp_path)


def test_equal_directories_are_equal_archives(tmp_path):
    digests = set()
    for number, (mode, time) in enumerate([(0o600, 1), (0o644, 2_000_000_000)]):
        folder = tmp_path / str(number)
        (folder / "b").mkdir(parents=True)
        for name in ("b/x", "a") if number else ("a", "b/x"):
            (folder / name).write_text(name)
            (folder / name).chmod(mode)
            os.utime(folder / name, (time, time))
        (folder / "c").symlink_to("a")
        digests.add(oci.write(folder, tmp_path / f"{number}.tar", "x:y", entrypoint=["/a"]))
    assert len(digests) == 1
    assert (tmp_path / "0.tar").read_bytes() == (tmp_path / "1.tar").read_bytes()


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """An image for each of two architectures, with one file that tells them apart."""
    made = {}
    for machine, architecture in (("x86_64", "amd64"), ("aarch64", "arm64")):
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        folder = tmp_path / machine
        folder.mkdir()
        (folder / "a").write_text(machine)
        made[architecture] = tmp_path / f"{architecture}.tar"
        oci.write(folder, made[architecture], "x:y", entrypoint=["/a"])
    return made


def test_images_of_several_architectures_are_one_index(tmp_path, parts):
    digest = index.join([*parts.values()], tmp_path / "all.tar", "registry.example/x:1")
    assert digest == index.join(
        [*reversed(parts.values())], tmp_path / "again.tar", "registry.example/x:1"
    )
    assert (tmp_path / "all.tar").read_bytes() == (tmp_path / "again.tar").read_bytes()
    with tarfile.open(tmp_path / "all.tar") as layout:
        names = layout.getnames()
        content = {name: layout.extractfile(name).read() for name in names}  # type: ignore[union-attr]
    assert len(content) == len(names)
    for path, stored in content.items():
        if path.startswith("blobs/"):
            assert path == f"blobs/sha256/{hashlib.sha256(stored).hexdigest()}"
    (top,) = json.loads(content["index.json"])["manifests"]
    assert (top["digest"], top["mediaType"]) == (digest, "application/vnd.oci.image.index.v1+json")
    assert top["annotations"]["io.containerd.image.name"] == "registry.example/x:1"
    listed = json.loads(content[oci.path_of(digest)])["manifests"]
    assert [one["platform"] for one in listed] == [
        {"architecture": "amd64", "os": "linux"},
        {"architecture": "arm64", "os": "linux"},
    ]
    for one in listed:
        manifest = json.loads(content[oci.path_of(one["digest"])])
        config = json.loads(content[oci.path_of(manifest["config"]["digest"])])
        assert config["architecture"] == one["platform"]["architecture"]
        assert all(oci.path_of(layer["digest"]) in content for layer in manifest["layers"])


def test_two_images_of_one_architecture_are_no_index(tmp_path, parts):
    with pytest.raises(ValueError, match="there is an image for arm64 already"):
        index.join([parts["arm64"]] * 2, tmp_path / "all.tar", "x:1")


def test_where_the_wheel_came_from_is_forgotten(tmp_path):
    described = tmp_path / "ours-1.0.dist-info"
    described.mkdir()
    (described / "direct_url.json").write_text('{"url": "file:///tmp/wheel-abc/ours.whl"}')
    (described / "RECORD").write_text(
        "ours.py,,\nours-1.0.dist-info/direct_url.json,sha256=x,9\nours-1.0.dist-info/RECORD,,\n"
    )
    root.forget_origin(tmp_path)
    assert [path.name for path in described.iterdir()] == ["RECORD"]
    assert (described / "RECORD").read_text() == "ours.py,,\nours-1.0.dist-info/RECORD,,\n"


def test_scripts_are_forgotten_with_their_sums(tmp_path):
    described = tmp_path / "ours-1.0.dist-info"
    described.mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ours").write_text("#!/tmp/build-abc/bin/python\n")
    (described / "RECORD").write_text("../../bin/ours,sha256=x,9\nours.py,,\n")
    root.forget_scripts(tmp_path)
    assert not (tmp_path / "bin").exists()
    assert (described / "RECORD").read_text() == "ours.py,,\n"


@pytest.mark.node
def test_the_image_built_twice_has_one_digest_and_every_part_a_licence(tmp_path, monkeypatch):
    # Compilers are compared at a release, which makes everything twice.
    monkeypatch.setenv("REBALANCER_COMPILE", "0")
    digests = set()
    for number in (1, 2):
        folder, archive = tmp_path / f"somewhere-{number}", tmp_path / f"{number}.tar"
        subprocess.run([sys.executable, "-m", "image.root", str(folder)], check=True)
        done = subprocess.run(
            [sys.executable, "-m", "image.oci", str(folder), str(archive), "kube-rebalancer:dev"],
            check=True,
            capture_output=True,
            text=True,
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1
    listed = json.loads((folder / contents.FILE).read_text())["components"]
    assert all(one["licenses"][0]["expression"] for one in listed)
    assert {"platform", "library", "file"} == {one["type"] for one in listed}
    # What a scanner needs to know the interpreter and the libraries of the system by.
    assert listed[0]["cpe"].startswith("cpe:2.3:a:python:python:3.")
    (libc,) = (one for one in listed if one["name"] == "libc.so.6")
    assert libc["purl"].startswith("pkg:deb/")
    assert (folder / "usr/share/doc/libc6/copyright").is_file()


def test_the_licence_of_every_dependency_is_known_and_allowed():
    text = (root.SOURCE / "image" / "requirements.txt").read_text()
    names = re.findall(r"^(\S+)==\S+ \\$", text, re.MULTILINE)
    in_the_image = [name for name in names if name not in unused._DISTRIBUTIONS]
    named = {
        name: licences.of_distribution(importlib.metadata.distribution(name))
        for name in in_the_image
    }
    assert len(named) > 20
    assert named["certifi"] == "MPL-2.0"


def described(folder, **fields):
    """An installed distribution that says no more than these fields of itself."""
    info = folder / "other-1.0.dist-info"
    info.mkdir()
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.4", "Name: other", *lines]))
    return importlib.metadata.Distribution.at(info)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"License_Expression": "AGPL-3.0-only"}, "other: its licence is AGPL-3.0-only"),
        ({"License_Expression": "MIT AND SSPL-1.0"}, "other: its licence is MIT AND SSPL-1.0"),
        ({"License": "see LICENSE"}, "other: its licence is see LICENSE"),
        ({}, "other: its licence is not known"),
    ],
)
def test_an_unknown_licence_ends_the_build(tmp_path, fields, said):
    with pytest.raises(licences.UnknownLicenceError, match=said):
        licences.of_distribution(described(tmp_path, Version="1.0", **fields))


@pytest.mark.parametrize(
    ("name", "licence"),
    [
        ("libc.so.6", "LGPL-2.1-or-later"),
        ("libcrypto.so.3", "Apache-2.0"),
        ("libstdc++.so.6", "GPL-3.0-or-later WITH GCC-exception-3.1"),
        ("libpython3.13.so.1.0", "PSF-2.0"),
        ("libgfortran-040039e1-0352e75f.so.5.0.0", "GPL-3.0-or-later WITH GCC-exception-3.1"),
        ("libscipy_openblas64_-32a4b2a6.so", "BSD-3-Clause"),
        ("libgssapi_krb5.so.2", "MIT"),
    ],
)
def test_shared_libraries_have_the_licence_of_their_source(name, licence):
    assert licences.of_library(name) == licence


def test_a_library_that_is_not_listed_ends_the_build():
    with pytest.raises(
        licences.UnknownLicenceError, match=r"libnew\.so\.1: its licence is not known"
    ):
        licences.of_library("libnew.so.1")


def test_a_package_is_named_as_scanners_know_it(monkeypatch, tmp_path):
    monkeypatch.setattr(
        "platform.freedesktop_os_release", lambda: {"ID": "debian", "VERSION_ID": "12"}
    )
    package = libraries.Package("libstdc++6", "1:12.2.0-14+deb12u1", "arm64", "gcc-12")
    assert package.purl == (
        "pkg:deb/debian/libstdc++6@1%3A12.2.0-14%2Bdeb12u1?arch=arm64&distro=debian-12&upstream=gcc-12"
    )
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert libraries.find_package(tmp_path) is None


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="no machine with dpkg")
def test_a_file_is_found_in_its_package_by_whichever_path(tmp_path):
    found = libraries.find_package(Path("/usr/bin/dpkg-query"))
    assert found is not None
    assert (found.name, found.source) == ("dpkg", "dpkg")
    (tmp_path / "lib").symlink_to("/usr/bin")
    assert libraries.find_package(tmp_path / "lib" / "dpkg-query") == found
    assert libraries.find_package(tmp_path / "nobody-s") is None
    libraries.copy_licences(tmp_path, [found, found])
    assert (tmp_path / "usr/share/doc/dpkg/copyright").is_file()


def test_the_libraries_of_this_interpreter_are_known(tmp_path):
    (tmp_path / "bin").mkdir()
    executable = Path(sys.executable).resolve()
    shutil.copy2(executable, tmp_path / "bin" / "python")
    for name in libraries.copy(tmp_path):
        assert licences.of_library(name)
