"""The registry of ``make install``: what a container runtime asks for, and nothing else."""

import hashlib
import json
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from image import oci
from image.registry import Archive, serving

INDEX = "application/vnd.oci.image.manifest.v1+json"


@pytest.fixture
def served(tmp_path):
    (tmp_path / "root" / "usr").mkdir(parents=True)
    (tmp_path / "root" / "usr" / "file").write_text("content")
    archive = tmp_path / "image.tar"
    digest = oci.write(tmp_path / "root", archive, "localhost/x:1", entrypoint=["/x"])
    with serving(Archive.read(archive), "127.0.0.1:0") as repository:
        host, _, name = repository.partition("/")
        yield f"http://{host}/v2/", name, digest


def get(url: str, method: str = "GET") -> tuple[bytes, dict[str, str]]:
    with urlopen(Request(url, method=method), timeout=30) as answer:  # noqa: S310
        return answer.read(), dict(answer.headers)


def test_an_image_is_pulled_by_tag_and_by_digest_and_each_blob_is_what_its_digest_says(served):
    base, name, digest = served
    assert get(base)[1]["Docker-Distribution-API-Version"] == "registry/2.0"
    for reference in ("dev", digest):
        text, headers = get(f"{base}{name}/manifests/{reference}")
        assert headers["Docker-Content-Digest"] == digest
        assert headers["Content-Type"] == INDEX
        assert f"sha256:{hashlib.sha256(text).hexdigest()}" == digest
    manifest = json.loads(text)
    for one in (manifest["config"], *manifest["layers"]):
        blob, headers = get(f"{base}{name}/blobs/{one['digest']}")
        assert f"sha256:{hashlib.sha256(blob).hexdigest()}" == one["digest"]
        assert len(blob) == one["size"]
        nothing, said = get(f"{base}{name}/blobs/{one['digest']}", "HEAD")
        assert nothing == b""
        assert int(said["Content-Length"]) == one["size"]


@pytest.mark.parametrize(
    "path",
    [
        "",
        "_catalog",
        "{name}/tags/list",
        "other/manifests/dev",
        "{name}/blobs/dev",
        "{name}/manifests/sha256:0",
        "{name}/blobs/../../etc/passwd",
    ],
)
def test_nothing_else_is_there(served, path):
    base, name, _ = served
    with pytest.raises(HTTPError, match="404"):
        get(base.rstrip("/") + "/x/" + path if not path else base + path.format(name=name))


def test_nothing_can_be_written(served):
    base, name, _ = served
    with pytest.raises(HTTPError, match="501"):
        get(f"{base}{name}/blobs/uploads/", "POST")
