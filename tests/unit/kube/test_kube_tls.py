"""Whom the client trusts."""

import base64
import contextlib
import socket
import threading

import pytest

from rebalancer.base.errors import ClusterReadError
from tests.controlplane import pki
from tests.unit.kube.scripted import Say, ScriptedServer, client_of


@pytest.fixture
def keys(tmp_path):
    return pki.create(tmp_path / "pki", ["127.0.0.1"])


@pytest.fixture
def secure(keys):
    with ScriptedServer((keys.server_cert, keys.server_key)) as server:
        server.on("GET", "/x", Say({"ok": True}))
        yield server


def test_a_server_with_a_certificate_of_the_known_authority_is_trusted(secure, keys, tmp_path):
    cluster = {"certificate-authority": str(keys.ca_cert)}
    assert client_of(secure.url, tmp_path, cluster=cluster).get("/x").ok


def test_a_server_of_another_authority_is_not_trusted_nor_asked_again(secure, tmp_path, sleeps):
    other = pki.create(tmp_path / "other", ["127.0.0.1"])
    cluster = {"certificate-authority": str(other.ca_cert)}
    with pytest.raises(ClusterReadError, match=r"is not trusted .*check certificate-authority"):
        client_of(secure.url, tmp_path, sleeps, cluster=cluster).get("/x")
    assert secure.asked == []
    assert sleeps.waits == []


@pytest.mark.parametrize(
    "authority", [b"hello", b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_an_authority_that_is_no_certificate_is_named(secure, tmp_path, authority):
    file = tmp_path / "ca.pem"
    file.write_bytes(authority)
    data = base64.b64encode(authority).decode() or "!!!"
    for cluster in ({"certificate-authority-data": data}, {"certificate-authority": str(file)}):
        with pytest.raises(
            ClusterReadError, match=r"certificate-authority.* is no certificate in PEM"
        ):
            client_of(secure.url, tmp_path, cluster=cluster).get("/x")
    assert secure.asked == []


def test_a_certificate_for_another_address_is_not_trusted(tmp_path, sleeps):
    wrong = pki.create(tmp_path / "wrong", ["192.0.2.1"])
    cluster = {"certificate-authority": str(wrong.ca_cert)}
    with (
        ScriptedServer((wrong.server_cert, wrong.server_key)) as server,
        pytest.raises(ClusterReadError, match=r"is not trusted .*tls-server-name"),
    ):
        client_of(server.url, tmp_path, sleeps, cluster=cluster).get("/x")


def test_the_user_may_choose_not_to_verify(secure, tmp_path):
    cluster = {"insecure-skip-tls-verify": True}
    assert client_of(secure.url, tmp_path, cluster=cluster).get("/x").ok


def test_a_connection_that_is_closed_in_the_handshake_is_no_fault_of_keys(tmp_path, sleeps):
    """As a load balancer does while the API server behind it starts."""

    def close_each(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1 << 16)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=close_each, args=(listener,), daemon=True).start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(
            ClusterReadError, match="closed the connection during the TLS"
        ) as raised:
            client_of(url, tmp_path, sleeps).get("/x")
        listener.shutdown(socket.SHUT_RDWR)
    assert "key" not in str(raised.value)
    # It is tried again, as an outage is.
    assert sleeps.waits
