"""CapacityBuffers: what is asked for, and what becomes of answers."""

from dataclasses import replace

import pytest

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.seldom_read import read_buffers
from rebalancer.snapshot.buffers import explain_left_out
from rebalancer.testing.snapshots import node, snapshot_of
from tests.unit.kube.scripted import Say, client_of, status_body

NEW, OLD = (
    f"/apis/autoscaling.x-k8s.io/{version}/capacitybuffers" for version in ("v1beta1", "v1alpha1")
)
TEMPLATE = "/api/v1/namespaces/shop/podtemplates/chunk"
NONE = Say(status_body(404, "no"), 404)
REQUESTS = {"resources": {"requests": {"cpu": "1"}}}
POD = Say(
    {
        "metadata": {"namespace": "shop", "name": "chunk"},
        "template": {"spec": {"containers": [{"name": "c", **REQUESTS}]}},
    }
)


def _listed(*names, ref="chunk"):
    spec = {"podTemplateRef": {"name": ref}, "replicas": 2}
    meta = [{"namespace": "shop", "name": name, "uid": f"uid-{name}"} for name in names]
    return Say({"items": [{"metadata": one, "spec": spec} for one in meta]})


def _read(server, folder):
    return read_buffers(client_of(server.url, folder), snapshot_of([node("a")]))


@pytest.mark.parametrize(
    ("answers", "names"),
    [
        ({NEW: _listed("b", "a")}, ["a", "b"]),
        ({NEW: NONE, OLD: _listed("a")}, ["a"]),
        ({NEW: NONE, OLD: NONE}, []),
    ],
)
def test_buffers_are_read_in_the_version_that_is_served(answers, names, server, tmp_path):
    for path, answer in {**answers, TEMPLATE: POD}.items():
        server.on("GET", path, answer)
    buffers = _read(server, tmp_path)
    assert [(one.name, one.chunks) for one in buffers] == [(name, 2) for name in names]
    assert not any(one.problem for one in buffers)


def test_a_buffer_whose_template_is_not_there_is_named(server, tmp_path):
    server.on("GET", NEW, _listed("a"))
    server.on("GET", TEMPLATE, NONE)
    buffers = _read(server, tmp_path)
    assert [one.chunks for one in buffers] == [0]
    (note,) = explain_left_out(replace(snapshot_of([]), buffers=buffers))
    assert note == "the CapacityBuffer shop/a does not count: there is no PodTemplate chunk"


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({NEW: Say(status_body(403, "no"), 403)}, "may not list capacitybuffers"),
        ({NEW: Say([])}, "CapacityBuffers could not be read"),
        (
            {NEW: _listed("a"), TEMPLATE: Say(status_body(403, "no"), 403)},
            "may not get podtemplates",
        ),
        ({NEW: _listed("a"), TEMPLATE: Say([])}, "a PodTemplate could not be read"),
    ],
)
def test_what_may_not_or_cannot_be_read_ends_the_run(answers, said, server, tmp_path):
    for path, answer in answers.items():
        server.on("GET", path, answer)
    with pytest.raises(ClusterReadError, match=said):
        _read(server, tmp_path)
