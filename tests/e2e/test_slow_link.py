"""A server ends what takes longer than its request timeout; over a slow line a long list is such a thing."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from tests.controlplane import ControlPlane, Options, objects
from tests.e2e.product import Product
from tests.e2e.slow_link import slow_link

PODS = 2000
_KILOBYTES = 10


@pytest.fixture(scope="module")
def hasty():
    """An API server that ends every request after eight seconds instead of sixty, with many large pods."""
    options = Options(
        components=("etcd", "kube-apiserver"),
        extra_args={
            "kube-apiserver": ["--request-timeout=8s", "--disable-admission-plugins=ServiceAccount"]
        },
    )
    with ControlPlane(options) as plane, ThreadPoolExecutor(8) as pool:
        plane.api.apply(objects.node("here", zone="a", pods=PODS))
        much = {"much": "x" * (_KILOBYTES << 10)}
        list(
            pool.map(
                lambda i: plane.api.post(
                    "/api/v1/namespaces/default/pods",
                    objects.pod(f"pod-{i}", annotations=much, nodeName="here"),
                ),
                range(PODS),
            )
        )
        yield plane


def test_a_list_that_the_server_ends_is_read_on_in_pages(hasty, tmp_path):
    product = Product(hasty, tmp_path)
    port = int(hasty.url.rsplit(":", 1)[1])
    # All pods take ten seconds, whatever the machine does, and a page of them two and a half.
    with slow_link(port, bytes_per_second=2 << 20) as slow:
        config = yaml.safe_load(product.kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{slow}"
        product.kubeconfig.write_text(yaml.safe_dump(config))
        ran = product.run("--dry-run")
    assert ran.code == 0, ran.err
    assert ran.report["funnel"]["pods"] == PODS
    (note,) = ran.report["warnings"]
    assert note.startswith("the list of pods was read in pages, as one answer failed: ")
    assert note.endswith("broke: the connection ended before the answer was complete")
