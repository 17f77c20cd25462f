"""Snapshots in a bucket, on moto: the same as in a folder."""

import json
from http.client import HTTPConnection

import boto3
import pytest
from moto.server import ThreadedMotoServer

from rebalancer.base.errors import PolicyError
from rebalancer.cli import command
from rebalancer.fleet import stores
from rebalancer.fleet.record import Retention, list_files, prune
from rebalancer.fleet.stores import Bucket, Folder, digest, list_snapshots, load
from tests.aws.cloud import CREDENTIALS, REGION
from tests.unit.fleet.test_record import TICK, pods_at
from tests.unit.fleet.worlds import skewed, write_policies
from tests.unit.kube.scripted import kubeconfig
from tests.unit.kube.test_capture import TEN

WHERE = "s3://snapshots/prod/a"


@pytest.fixture
def bucket(monkeypatch):
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    url = f"http://{host}:{port}"
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": url}.items():
        monkeypatch.setenv(name, value)
    stores._client.cache_clear()
    client = boto3.client("s3", endpoint_url=url, region_name=REGION)
    client.create_bucket(
        Bucket="snapshots", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
    )
    yield client
    client.close()
    connection = HTTPConnection(host, port)
    connection.request("POST", "/moto-api/reset")
    connection.getresponse().read()
    connection.close()
    stores._client.cache_clear()
    moto.stop()


@pytest.fixture
def recorded(bucket, server, tmp_path, monkeypatch, capsys):
    """Five ticks, recorded into a folder and into the bucket by the command."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, server.url)))
    for tick in range(5):
        pods_at(server, tick)
        server.date = TEN + tick * TICK
        for where in (str(tmp_path / "recorded"), WHERE):
            assert command(["record", "--to", where, "--deltas", "2"]) == 0
    return tmp_path / "recorded", capsys.readouterr().out.split()


def test_a_bucket_holds_what_a_folder_holds(recorded):
    folder, urls = recorded
    assert urls[1::2] == list_snapshots([WHERE])
    files = list_snapshots([str(folder)])
    for file, url in zip(files, urls[1::2], strict=True):
        # Equal content, equal seeds: a comparison is the same from either place.
        assert digest(url) == digest(file)
        there, here = load(url, frozenset()), load(file, frozenset())
        assert list(there.pods.node) == list(here.pods.node)
        assert there.captured_at == here.captured_at


def test_retention_and_what_it_leaves(recorded, monkeypatch):
    folder, _ = recorded
    for store in (Bucket(WHERE), Folder(str(folder))):
        # All were written within a second by the store's clock: none is old yet, whatever their names say.
        assert prune(store, Retention(age=TICK)) == 0
        listed = store.files
        monkeypatch.setattr(
            store,
            "files",
            lambda listed=listed: {
                name: of._replace(written=86400 * float(name[9:13] or 0))
                for name, of in listed().items()
            },
        )
        # Two of five, not more in one go; then the third.
        assert [prune(store, Retention(age=TICK)) for _ in range(3)] == [2, 1, 0]
        assert [file.name for file in list_files(store)] == [
            "20261120T103000Z.full.zip",
            "20261120T104000Z.delta.zip",
        ]


def test_an_object_is_never_overwritten(bucket, tmp_path):
    store = Bucket(WHERE)
    for text in ("first", "second"):
        (tmp_path / "file").write_text(text)
        if text == "first":
            store.add(tmp_path / "file", "x.full.zip")
    with pytest.raises(OSError, match="PreconditionFailed"):
        store.add(tmp_path / "file", "x.full.zip")
    assert store.open("x.full.zip").read() == b"first"


def test_a_torn_object_is_never_read(recorded, bucket):
    _, urls = recorded
    delta = urls[3].removeprefix("s3://snapshots/")
    whole = bucket.get_object(Bucket="snapshots", Key=delta)["Body"].read()
    for kept in (len(whole) // 3, len(whole) - 1):
        bucket.put_object(Bucket="snapshots", Key=delta, Body=whole[:kept])
        with pytest.raises(PolicyError, match="delta"):
            load(urls[3], frozenset())
    bucket.delete_object(Bucket="snapshots", Key=urls[1].removeprefix("s3://snapshots/"))
    bucket.put_object(Bucket="snapshots", Key=delta, Body=whole)
    with pytest.raises(PolicyError, match="NoSuchKey"):
        load(urls[3], frozenset())


def test_processes_compare_what_is_in_a_bucket(bucket, tmp_path, capsys):
    policies = write_policies(tmp_path)
    for number in range(3):
        file = skewed(tmp_path / f"{number}.json")
        bucket.put_object(Bucket="snapshots", Key=f"prod/a/{number}.json", Body=file.read_bytes())
    args = ["compare", "--policies", *policies, "--draws", "1", "-o", "json", "--snapshots"]
    assert command([*args, WHERE, "--jobs", "2"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["snapshots"] == [f"{WHERE}/{number}.json" for number in range(3)]
    assert command([*args, *(str(tmp_path / f"{number}.json") for number in range(3))]) == 0
    here = json.loads(capsys.readouterr().out)
    assert [row["measures"] for row in data["rows"]] == [row["measures"] for row in here["rows"]]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("s3://nowhere/x", "NoSuchBucket"),
        ("s3://snapshots/empty", "holds no snapshot"),
        ("s3://S/x", "write s3://BUCKET/PREFIX"),
    ],
)
def test_what_is_wrong_with_a_bucket_is_said(where, message, bucket, capsys):
    assert command(["compare", "--policies", "default", "--snapshots", where]) == 2
    assert message in capsys.readouterr().err


def test_one_file_counts_once_and_hidden_folders_do_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.json", "kept/b.json", ".snapshot/hourly/a.json", "kept/.trash/b.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        skewed(tmp_path / name)
    (tmp_path / "same.json").symlink_to("a.json")
    assert list_snapshots([".", "./a.json", str(tmp_path / "kept/../a.json"), "kept"]) == [
        "a.json",
        "kept/b.json",
    ]
    # A hidden folder that is named itself counts.
    assert list_snapshots([".snapshot"]) == [".snapshot/hourly/a.json"]
