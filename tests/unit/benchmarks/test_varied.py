"""Copied objects get names of many lengths, and keep their meaning."""

import json

from benchmarks.scale.varied import varied


def pod(app: int, replica: int) -> bytes:
    name = f"ap{app:06d}-h{app:08d}-p{replica:04d}"
    meta = {
        "name": name,
        "namespace": f"ns{app:05d}",
        "labels": {"pod-template-hash": f"h{app:08d}"},
    }
    status = {"podIP": "10.1.0.1", "hostIP": "10.0.0.1"}
    whole = {"metadata": meta, "spec": {"nodeName": f"no{replica:05d}"}, "status": status}
    return json.dumps(whole, separators=(",", ":")).encode()


def test_names_differ_in_length_keep_their_order_and_name_the_same_everywhere():
    pods = [json.loads(varied(pod(app, replica))) for app in range(40) for replica in range(3)]
    names = [(p["metadata"]["namespace"], p["metadata"]["name"]) for p in pods]
    assert names == sorted(set(names))
    assert len({len(name) for _, name in names}) > 5
    for each in pods:
        assert f"-{each['metadata']['labels']['pod-template-hash']}-" in each["metadata"]["name"]
        assert each["status"]["hostIP"].replace(".", "-") in each["spec"]["nodeName"]
