"""Which cluster is meant, and what is said when that is not clear."""

import base64
import io
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rebalancer.base.environment import SystemClock
from rebalancer.base.errors import ClusterReadError
from rebalancer.base.stop import Stop
from rebalancer.kube.calls import Call
from rebalancer.kube.client import connect
from rebalancer.kube.credentials import find_credentials, in_cluster
from tests.controlplane import pki
from tests.unit.kube.scripted import HANGS, SECRET, kubeconfig


def call(stop: Stop | None = None) -> Call:
    return Call(stop or Stop(SystemClock()), math.inf)


CA = "-----BEGIN CERTIFICATE-----\nnot one, but it is not read\n-----END CERTIFICATE-----\n"


def service_account(folder: Path, token: str = SECRET) -> Path:
    (folder / "token").write_text(token)
    (folder / "ca.crt").write_text(CA)
    return folder


def config(path: Path, **changes: Any) -> Path:
    kubeconfig(path.parent, "https://one.example:6443").rename(path)
    text = json.loads(path.read_text())
    path.write_text(json.dumps(text | changes))
    return path


def authorization(environ: Mapping[str, str], **chosen: Any) -> tuple[str, str | None]:
    credentials = find_credentials(
        file=chosen.get("file"), context=chosen.get("context"), environ=environ, call=call()
    )
    return credentials.server, credentials.authorization(call())


def test_the_flag_wins_over_the_environment_over_the_home_directory(tmp_path):
    (tmp_path / ".kube").mkdir()
    for name, host in (("flag", "a"), ("variable", "b"), (".kube/config", "c")):
        kubeconfig(tmp_path, f"https://{host}.example").rename(tmp_path / name)
    environ = {"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "variable")}
    assert authorization(environ, file=tmp_path / "flag")[0] == "https://a.example"
    assert authorization(environ)[0] == "https://b.example"
    assert authorization({"HOME": str(tmp_path)})[0] == "https://c.example"


def test_several_files_are_merged_as_kubectl_does(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    config(one, contexts=[], clusters=[])
    config(two, users=[], **{"current-context": "other"})
    environ = {"KUBECONFIG": f"{tmp_path / 'missing'}:{one}:{two}"}
    assert authorization(environ) == ("https://one.example:6443", f"Bearer {SECRET}")


@pytest.mark.parametrize(
    ("server", "sent"),
    [
        ("http://api.example:8080", False),
        ("http://localhost.example", False),
        ("http://10.0.0.1:8080", False),
        ("http://[2001:db8::1]:8080", False),
        ("https://api.example", True),
        ("http://127.0.0.1:8001", True),
        ("http://[::1]:8001", True),
        ("http://localhost:8001", True),
    ],
)
@pytest.mark.parametrize("plugin", [False, True])
def test_no_token_leaves_the_machine_in_clear(tmp_path, server, sent, plugin):
    path = kubeconfig(tmp_path, server)
    if plugin:
        said = {
            "kind": "ExecCredential",
            "apiVersion": "client.authentication.k8s.io/v1",
            "status": {"token": SECRET},
        }
        script = tmp_path / "plugin"
        script.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(said)}\nEND\n")
        script.chmod(0o755)
        runs = {
            "apiVersion": said["apiVersion"],
            "command": str(script),
            "interactiveMode": "Never",
        }
        text = json.loads(path.read_text())
        path.write_text(json.dumps(text | {"users": [{"name": "u", "user": {"exec": runs}}]}))
    credentials = find_credentials(file=path, context=None, environ={}, call=call())
    for _ in range(2):
        assert credentials.authorization(call()) == (f"Bearer {SECRET}" if sent else None)
        credentials.renew(call())


def test_inside_a_pod_the_service_account_is_used_and_read_again(tmp_path):
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    credentials = in_cluster(environ, service_account(tmp_path), call())
    assert credentials.server == "https://10.0.0.1:443"
    assert credentials.authorization(call()) == f"bearer {SECRET}"
    (tmp_path / "token").write_text("rotated\n")
    assert credentials.renew(call())
    assert credentials.authorization(call()) == "bearer rotated"
    assert not credentials.renew(call())


def test_a_pod_without_a_token_names_the_file_that_is_missing(tmp_path):
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(ClusterReadError, match="token file does not exist"):
        in_cluster(environ, tmp_path, call())


def test_structs_are_prepared_before_threads_decode_answers(tmp_path, monkeypatch):
    prepared: list[None] = []
    monkeypatch.setattr("rebalancer.kube.client.prepare_structs", lambda: prepared.append(None))
    config(tmp_path / "one")
    connect(kubeconfig=tmp_path / "one", environ={}).close()
    assert prepared


def test_without_any_cluster_all_places_that_were_tried_are_named(tmp_path):
    with pytest.raises(ClusterReadError, match=r"--kubeconfig.*KUBECONFIG.*~/\.kube/config"):
        connect(environ={"HOME": str(tmp_path)})


CONTEXT = "current-context: t\ncontexts: [{name: t, context: {cluster: c}}]\n"
WITH_USER = CONTEXT.replace("cluster: c", "cluster: c, user: u")
WITH_CA = "{server: 'https://x', certificate-authority: /no/ca}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("clusters: [\n  {name: a", "line 3, column 1: not YAML"),
        ("", "is empty"),
        ("just a line", "not a kubeconfig"),
        ("clusters: []\n---\nclusters: []", "not a kubeconfig"),
        ("clusters: " + 600 * "[", "line 1, column .*: not YAML: nested more than"),
        ("clusters: {a: 1}", "clusters is not a list"),
        ("clusters: [{cluster: {server: x}}]", r"clusters\[0\] has no name"),
        ("contexts: [{name: a}]", r"contexts\[0\] \(a\) has no context"),
        ("clusters: []", "names no current-context: choose one with --context .it has none"),
        ("current-context: tset\ncontexts: [{name: test, context: {}}]", "did you mean test"),
        (CONTEXT, "refers to cluster 'c'"),
        (WITH_USER + "clusters: [{name: c, cluster: {}}]", "refers to user 'u', which is not"),
        (CONTEXT + "clusters: [{name: c, cluster: {}}]", "has no server address"),
        (CONTEXT + f"clusters: [{{name: c, cluster: {WITH_CA}}}]", "does not exist: /no/ca"),
    ],
)
def test_what_is_wrong_with_a_kubeconfig_is_said(tmp_path, text, said):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ClusterReadError, match=f"(?s){path}.*{said}"):
        connect(kubeconfig=path, environ={})


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ClusterReadError, match="/none does not exist"):
        connect(kubeconfig=tmp_path / "none", environ={})
    with pytest.raises(
        ClusterReadError, match=r"KUBECONFIG names no existing file.*--snapshot FILE"
    ):
        connect(environ={"KUBECONFIG": "/none"})


@pytest.mark.parametrize(
    "user",
    [
        {"token": SECRET, "client-certificate-data": "a"},
        {"auth-provider": {"name": "oidc", "config": {"token": SECRET}}},
        {"exec": {"args": [SECRET]}},
    ],
)
def test_no_message_about_a_malformed_user_holds_the_secret(tmp_path, user):
    path = config(tmp_path / "kubeconfig", users=[{"name": "u", "user": user}])
    with pytest.raises(ClusterReadError) as caught:
        connect(kubeconfig=path, environ={})
    assert SECRET not in str(caught.value)
    assert str(path) in str(caught.value) or "user u" in str(caught.value)


PLUGIN = """
import json, os, sys
token = open(sys.argv[1]).read()
if not token:
    sys.exit("log in first")
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                  "status": {"token": token}}))
"""


def with_plugin(folder: Path, token: str) -> Path:
    (folder / "plugin.py").write_text(PLUGIN)
    (folder / "token").write_text(token)
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(folder / "plugin.py"), str(folder / "token")],
    }
    return config(folder / "kubeconfig", users=[{"name": "u", "user": {"exec": plugin}}])


def test_a_credential_plugin_is_run(tmp_path):
    assert authorization({}, file=with_plugin(tmp_path, SECRET))[1] == f"Bearer {SECRET}"


def test_a_credential_plugin_that_fails_is_named_with_what_it_says(tmp_path):
    path = with_plugin(tmp_path, "")
    with pytest.raises(ClusterReadError, match=r"credential plugin .* of user u failed: .*log in"):
        authorization({}, file=path)
    (tmp_path / "plugin.py").write_text("import sys; sys.exit('\\x1b[2Jlog in')")
    with pytest.raises(ClusterReadError, match=r"failed: .*\\x1b\[2Jlog in"):
        authorization({}, file=path)
    (tmp_path / "plugin.py").write_text("print('hello')")
    with pytest.raises(ClusterReadError, match=r"failed: .*decode process output"):
        authorization({}, file=path)


def test_a_credential_plugin_that_is_not_there_is_named(tmp_path):
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/no/such/program"}
    path = config(tmp_path / "kubeconfig", users=[{"name": "u", "user": {"exec": plugin}}])
    with pytest.raises(
        ClusterReadError, match=r"plugin /no/such/program of user u failed: there is no program /no"
    ):
        authorization({}, file=path)


def test_a_credential_plugin_that_hangs_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("rebalancer.kube.credentials._PLUGIN_SECONDS", 0.2)
    path = with_plugin(tmp_path, SECRET)
    (tmp_path / "plugin.py").write_text(HANGS)
    with pytest.raises(ClusterReadError, match=r"gave no answer: it answers too slowly"):
        authorization({}, file=path)
    (tmp_path / "over").touch()


def test_a_token_that_expires_is_asked_for_again_and_that_is_bounded_too(tmp_path, monkeypatch):
    path = with_plugin(tmp_path, SECRET)
    plugin = tmp_path / "plugin.py"
    expiry = '{"expirationTimestamp": "2020-01-01T00:00:00Z", "token"'
    plugin.write_text(PLUGIN.replace('{"token"', expiry))
    credentials = find_credentials(file=path, context=None, environ={}, call=call())
    (tmp_path / "token").write_text("second")
    assert credentials.authorization(call()) == "Bearer second"
    monkeypatch.setattr("rebalancer.kube.credentials._PLUGIN_SECONDS", 0.2)
    plugin.write_text(HANGS)
    with pytest.raises(
        ClusterReadError, match=r"credential plugin .* gave no answer: it answers too slowly"
    ):
        credentials.authorization(call())
    (tmp_path / "over").touch()


def test_the_proxy_comes_from_the_cluster_or_the_given_environment(tmp_path):
    path = kubeconfig(tmp_path, "https://api.example")
    environ = {"https_proxy": "http://p:1", "http_proxy": "http://q:1", "NO_PROXY": "x"}
    configuration = find_credentials(
        file=path, context=None, environ=environ, call=call()
    ).configuration
    assert (configuration.proxy, configuration.no_proxy) == ("http://p:1", "x")
    path = kubeconfig(tmp_path, "https://api.example", **{"proxy-url": "http://own:1"})
    assert find_credentials(
        file=path, context=None, environ=environ, call=call()
    ).configuration.proxy == ("http://own:1")
    assert (
        find_credentials(file=path, context=None, environ={}, call=call()).configuration.no_proxy
        is None
    )


@pytest.mark.parametrize("proxy", ["socks5://u:pa55@h:1", "u:pa55@h:1", "http://u:pa55@h:x", 1080])
def test_a_proxy_that_cannot_be_used_is_said_without_its_password(tmp_path, proxy):
    path = kubeconfig(tmp_path, "https://api.example", **{"proxy-url": proxy})
    with pytest.raises(ClusterReadError, match="proxy on the way to https") as caught:
        connect(kubeconfig=path, environ={})
    assert "pa55" not in str(caught.value)


def test_an_address_with_a_password_is_refused_without_it(tmp_path):
    path = kubeconfig(tmp_path, "https://u:pa55@api.example")
    with pytest.raises(ClusterReadError, match="put them into its user") as caught:
        connect(kubeconfig=path, environ={})
    assert "pa55" not in str(caught.value)


def test_certificates_inside_the_kubeconfig_are_used(tmp_path):
    authority = pki.create(tmp_path / "pki", ["127.0.0.1"]).ca_cert.read_bytes()
    data = base64.b64encode(authority).decode()
    path = kubeconfig(tmp_path, "https://a.example", **{"certificate-authority-data": data})
    credentials = find_credentials(file=path, context=None, environ={}, call=call())
    assert Path(credentials.configuration.ssl_ca_cert).read_bytes() == authority
    assert credentials.configuration.verify_ssl


# -- what client-go reads of a kubeconfig, each honoured or refused ----------------------------------------

DATA = base64.b64encode(CA.encode()).decode()
PEM = {"client-certificate-data": DATA, "client-key-data": DATA}


@pytest.fixture
def written(tmp_path):
    """Return a function that writes a kubeconfig in ``folder``, and returns it."""

    def write(user=(), cluster=(), folder=tmp_path):
        folder.mkdir(exist_ok=True)
        path = kubeconfig(folder, "https://api.example")
        whole = json.loads(path.read_text())
        whole["users"][0]["user"] = dict(user)
        whole["clusters"][0]["cluster"] |= dict(cluster)
        path.write_text(json.dumps(whole))
        return path

    return write


@pytest.mark.parametrize(
    ("user", "sent"),
    [
        ({"token": "a"}, "Bearer a"),
        ({"tokenFile": "token"}, "Bearer of-the-file"),
        # The file is read again and again, so client-go has it first.
        ({"token": "a", "tokenFile": "token"}, "Bearer of-the-file"),
        ({"token": "a", "tokenFile": "none"}, "Bearer a"),
        ({"token": "", "tokenFile": "token"}, "Bearer of-the-file"),
        ({"username": "u", "password": "p"}, f"Basic {base64.b64encode(b'u:p').decode()}"),
        ({"username": "u"}, f"Basic {base64.b64encode(b'u:').decode()}"),
        ({"token": "a", "username": ""}, "Bearer a"),
        ({"token": "a", "exec": {"command": "/none", "apiVersion": "v1"}}, "Bearer a"),
        ({}, None),
    ],
    ids=str,
)
def test_who_we_are_is_read_as_client_go_does(written, tmp_path, user, sent):
    (tmp_path / "token").write_text("of-the-file\n")
    assert authorization({}, file=written(user))[1] == sent


@pytest.mark.parametrize(
    ("cluster", "set_to"),
    [
        ({"tls-server-name": "other.example"}, {"tls_server_name": "other.example"}),
        ({"tls-server-name": ""}, {"tls_server_name": None}),
        ({"insecure-skip-tls-verify": True}, {"verify_ssl": False}),
        ({"insecure-skip-tls-verify": False}, {"verify_ssl": True}),
        ({"proxy-url": "http://p:1"}, {"proxy": "http://p:1"}),
        # Nothing is asked to be compressed without --compress.
        ({"disable-compression": True}, {"host": "https://api.example"}),
        ({"extensions": [{"name": "a", "extension": {}}]}, {"host": "https://api.example"}),
    ],
    ids=str,
)
def test_how_the_server_is_reached_is_read_as_client_go_does(written, cluster, set_to):
    path = written({"token": "a"}, cluster)
    found = find_credentials(file=path, context=None, environ={}, call=call()).configuration
    assert {key: getattr(found, key) for key in set_to} == set_to


@pytest.mark.parametrize(
    ("user", "cluster", "said"),
    [
        ({}, {"certificate-authority": "a", "certificate-authority-data": DATA}, "both there"),
        ({}, {"insecure-skip-tls-verify": True, "certificate-authority": "a"}, "both there"),
        ({}, {"insecure-skip-tls-verify": True, "certificate-authority-data": DATA}, "both there"),
        ({**PEM, "client-certificate": "a"}, {}, "client-certificate-data are both there"),
        ({**PEM, "client-key": "a"}, {}, "client-key and client-key-data are both there"),
        ({"client-certificate-data": DATA}, {}, "client-certificate has no client-key beside it"),
        ({"token": "a", "username": "u"}, {}, "token and username are both there"),
        ({"token": "a", "password": "p"}, {}, "token and password are both there"),
        ({"exec": {"command": "a"}, "auth-provider": {"name": "b"}}, {}, "both there"),
        ({"auth-provider": {"name": "azure"}}, {}, "auth provider azure .* no credentials"),
        ({"tokenFile": "none"}, {}, "none: No such file"),
        ({"client-certificate": "no", "client-key": "ne"}, {}, "does not exist: .*/no"),
        ({}, {"certificate-authority": "none"}, "does not exist: .*/none"),
    ],
    ids=str,
)
def test_what_client_go_refuses_is_refused(written, user, cluster, said):
    with pytest.raises(ClusterReadError, match=said):
        connect(kubeconfig=written(user, cluster), environ={})


def test_paths_are_relative_to_the_file_that_has_them(written, tmp_path):
    """Also where the cluster of the context is in another file of KUBECONFIG."""
    people, clusters = tmp_path / "people", tmp_path / "clusters"
    of_people = written({"tokenFile": "token"}, folder=people)
    (people / "token").write_text("of-the-person")
    whole = json.loads(of_people.read_text())
    of_people.write_text(json.dumps({"users": whole["users"]}))
    of_clusters = written({}, {"certificate-authority": "ca.crt"}, folder=clusters)
    whole = json.loads(of_clusters.read_text())
    of_clusters.write_text(json.dumps({**whole, "users": []}))
    authority = pki.create(tmp_path / "pki", ["127.0.0.1"]).ca_cert.read_bytes()
    (clusters / "ca.crt").write_bytes(authority)
    environ = {"KUBECONFIG": f"{of_clusters}:{of_people}"}
    found = find_credentials(file=None, context=None, environ=environ, call=call())
    assert found.authorization(call()) == "Bearer of-the-person"
    assert found.configuration.ssl_ca_cert == str(clusters / "ca.crt")


def test_the_first_file_that_names_a_context_or_an_entry_decides(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    config(one, **{"current-context": ""}, users=[{"name": "u", "user": {"token": "first"}}])
    config(two)
    assert authorization({"KUBECONFIG": f"{one}:{two}"})[1] == "Bearer first"


def test_the_plugin_runs_where_we_do_and_its_path_is_relative_to_its_file(written, tmp_path):
    said = {"kind": "ExecCredential", "apiVersion": "a/v1", "status": {"token": "t"}}
    script = tmp_path / "bin" / "plugin"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\npwd > {tmp_path}/where\necho '{json.dumps(said)}'\n")
    script.chmod(0o755)
    path = written({"exec": {"apiVersion": "a/v1", "command": "bin/plugin"}})
    assert authorization({}, file=path)[1] == "Bearer t"
    assert (tmp_path / "where").read_text().strip() == str(Path.cwd())


def test_a_plugin_sees_the_cluster_with_its_authority_as_data(written, tmp_path):
    script = tmp_path / "plugin.py"
    script.write_text(
        "import json, os\n"
        "cluster = json.loads(os.environ['KUBERNETES_EXEC_INFO'])['spec']['cluster']\n"
        "shown = cluster['server'] + ' ' + cluster['certificate-authority-data'][:4] + cluster['config']['audience']\n"
        "print(json.dumps({'kind': 'ExecCredential', 'apiVersion': 'a/v1', 'status': {'token': shown}}))\n"
    )
    authority = pki.create(tmp_path / "pki", ["127.0.0.1"]).ca_cert
    named = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    runs = {
        "apiVersion": "a/v1",
        "command": sys.executable,
        "args": [str(script)],
        "provideClusterInfo": True,
    }
    path = written({"exec": runs}, {"certificate-authority": str(authority), "extensions": [named]})
    assert authorization({}, file=path)[1] == "Bearer https://api.example LS0tx"


def test_how_to_install_a_missing_plugin_is_said(written):
    runs = {"apiVersion": "a/v1", "command": "no-such-program", "installHint": "apt install it"}
    with pytest.raises(ClusterReadError, match=r"is it on the PATH\? apt install it"):
        authorization({}, file=written({"exec": runs}))


def test_a_plugin_that_needs_a_terminal_is_refused_without_one(written, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    runs = {"apiVersion": "a/v1", "command": "no-such-program", "interactiveMode": "Always"}
    with pytest.raises(ClusterReadError, match="interactiveMode: Always"):
        authorization({}, file=written({"exec": runs}))
