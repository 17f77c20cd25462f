"""As whom requests are sent: what of a kubeconfig and of kubectl's flags becomes headers, and what is refused."""

import json
from pathlib import Path
from typing import Any

import click
import pytest

import rebalancer
from rebalancer.base.errors import ClusterReadError
from rebalancer.cli import command, main
from rebalancer.kube.client import connect
from rebalancer.kube.credentials import in_cluster
from rebalancer.kube.failures import ForbiddenError
from rebalancer.kube.impersonation import Impersonation
from rebalancer.kube.resources import AccessRule
from tests.unit.kube.scripted import Say, kubeconfig, status_body
from tests.unit.kube.test_kube_credentials import call, service_account

NOBODY = Impersonation()


def with_user(folder: Path, server: str, **user: Any) -> Path:
    path = kubeconfig(folder, server)
    whole = json.loads(path.read_text())
    whole["users"][0]["user"] |= user
    path.write_text(json.dumps(whole))
    return path


def impersonated(asked):
    return [(key, value) for key, value in asked.pairs if key.startswith("Impersonate-")]


@pytest.mark.parametrize(
    ("user", "flags", "headers"),
    [
        ({}, NOBODY, []),
        ({"as": "anna"}, NOBODY, [("User", "anna")]),
        ({"as": "anna", "as-uid": "7"}, NOBODY, [("User", "anna"), ("Uid", "7")]),
        (
            {"as": "anna", "as-groups": ["devs", "a, b"]},
            NOBODY,
            [("User", "anna"), ("Group", "devs"), ("Group", "a, b")],
        ),
        (
            {"as": "anna", "as-user-extra": {"example.com/a b%": ["1", "2"], "scopes": ["x"]}},
            NOBODY,
            [
                ("User", "anna"),
                ("Extra-example.com%2Fa%20b%25", "1"),
                ("Extra-example.com%2Fa%20b%25", "2"),
                ("Extra-scopes", "x"),
            ],
        ),
        ({"as": "Zoë"}, NOBODY, [("User", "Zoë".encode().decode("latin-1"))]),
        ({}, Impersonation("bert"), [("User", "bert")]),
        ({"as": ""}, Impersonation("bert"), [("User", "bert")]),
        # Field by field, as kubectl merges its flags into the user of a kubeconfig.
        (
            {"as": "anna", "as-uid": "7", "as-groups": ["devs"]},
            Impersonation("bert"),
            [("User", "bert"), ("Uid", "7"), ("Group", "devs")],
        ),
        (
            {"as": "anna", "as-uid": "7", "as-groups": ["devs", "ops"]},
            Impersonation("", "8", ("team",)),
            [("User", "anna"), ("Uid", "8"), ("Group", "team")],
        ),
    ],
    ids=str,
)
def test_what_a_kubeconfig_and_the_flags_say_is_sent(server, tmp_path, user, flags, headers):
    server.on("GET", "/api", Say())
    path = with_user(tmp_path, server.url, **user)
    connect(kubeconfig=path, environ={}, impersonate=flags).get("/api")
    (asked,) = server.asked
    assert impersonated(asked) == [(f"Impersonate-{name}", value) for name, value in headers]
    # Who impersonates is said as well.
    assert asked.headers["Authorization"].startswith("Bearer ")


def test_every_kind_of_request_has_the_headers(server, tmp_path):
    path = with_user(tmp_path, server.url, **{"as": "anna", "as-groups": ["devs", "ops"]})
    client = connect(kubeconfig=path, environ={})
    client.get("/get")
    client.post("/post", b"{}")
    client.put("/put", b"{}")
    client.patch("/patch", b"{}")
    client.delete("/delete", b"{}")
    client.stream("/stream", silence=9.0, stop=client.stop).close()
    client.open_list("/list", accept="application/json").close()
    client.last_words.get("/last")
    client.finishing.get("/finishing")
    client.until(client.stop).get("/until")
    assert len(server.asked) == 10
    for asked in server.asked:
        assert impersonated(asked) == [
            ("Impersonate-User", "anna"),
            ("Impersonate-Group", "devs"),
            ("Impersonate-Group", "ops"),
        ], asked.path


def test_a_proxy_for_plain_http_does_not_join_groups(server, tmp_path):
    path = with_user(tmp_path, "http://127.0.0.1:9", **{"as": "anna", "as-groups": ["a", "b"]})
    connect(kubeconfig=path, environ={"http_proxy": server.url}).get("/api")
    (asked,) = server.asked
    assert [value for key, value in impersonated(asked) if key.endswith("Group")] == ["a", "b"]
    assert asked.headers["Host"] == "127.0.0.1:9"


def test_one_file_alone_sends_requests_to_the_api_server():
    """So that what it sends with each request is sent with all of them."""
    package = Path(rebalancer.__file__).parent
    makes = [
        str(path.relative_to(package))
        for path in sorted(package.rglob("*.py"))
        if "ApiClient" in (text := path.read_text()) or "import urllib3" in text
    ]
    assert makes == ["kube/transport.py"]


@pytest.mark.parametrize(
    ("user", "flags", "said"),
    [
        ({"as-groups": ["devs"]}, NOBODY, "only with a user: add --as"),
        ({"as-uid": "7"}, NOBODY, "only with a user"),
        ({"as-user-extra": {"a": ["b"]}}, NOBODY, "only with a user"),
        ({}, Impersonation(groups=("devs",)), "only with a user"),
        ({}, Impersonation(uid="7"), "only with a user"),
        ({"as": 7}, NOBODY, r"Expected `str \| null`, got `int` - at `\$.as`"),
        ({"as": "anna", "as-groups": "devs"}, NOBODY, "as-groups"),
        ({"as": "anna", "as-user-extra": {"a": "b"}}, NOBODY, "as-user-extra"),
        ({"as": "anna\r\nImpersonate-Group: system:masters"}, NOBODY, "a control character"),
        ({"as": "anna", "as-groups": ["a\nb"]}, NOBODY, "a control character"),
    ],
    ids=str,
)
def test_what_client_go_refuses_or_cannot_send_is_refused(tmp_path, user, flags, said):
    path = with_user(tmp_path, "https://api.example", **user)
    with pytest.raises(ClusterReadError, match=f"{path}, context test: .*{said}"):
        connect(kubeconfig=path, environ={}, impersonate=flags)


def test_flags_hold_for_the_account_of_a_pod(tmp_path):
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    folder = service_account(tmp_path)
    flags = Impersonation("anna", groups=("devs",))
    assert in_cluster(environ, folder, call(), flags).impersonated == flags
    assert in_cluster(environ, folder, call()).impersonated.headers() == ()
    with pytest.raises(ClusterReadError, match=r"service account: .*only with a user"):
        in_cluster(environ, folder, call(), Impersonation(groups=("devs",)))


@pytest.mark.parametrize(
    "what",
    [
        'impersonate resource "users" in API group "" at the cluster scope',
        # From Kubernetes 1.36 on, of a caller who has no right to impersonate at all.
        'impersonate-on:user-info:get path "/version"',
    ],
)
def test_who_may_not_impersonate_sees_that_and_no_right_of_the_request(server, tmp_path, what):
    said = f'users "anna" is forbidden: User "bert" cannot {what}'
    server.on("GET", "/api/v1/nodes", Say(status_body(403, said, reason="Forbidden"), 403))
    client = connect(kubeconfig=with_user(tmp_path, server.url, **{"as": "anna"}), environ={})
    with pytest.raises(ClusterReadError, match="bert may not act as another one") as caught:
        client.expect(client.get("/api/v1/nodes"), AccessRule("list", "", "nodes"))
    assert not isinstance(caught.value, ForbiddenError)
    assert said in str(caught.value)
    assert str(caught.value).endswith('"serviceaccounts"], verbs: ["impersonate"]}')


def every_command(group=main, path=()):
    context = click.Context(group)
    for name in group.list_commands(context):
        one = group.get_command(context, name)
        if isinstance(one, click.Group):
            yield from every_command(one, (*path, name))
        else:
            yield " ".join((*path, name)), {flag.name for flag in one.params}


def test_each_command_that_takes_a_kubeconfig_takes_the_flags():
    of_access = {"as_user", "as_groups", "as_uid"}
    taken = {path: flags for path, flags in every_command() if "kubeconfig" in flags}
    assert {"run", "plan", "serve", "doctor", "fleet observe", "drain", "replace"} <= taken.keys()
    assert [path for path, flags in taken.items() if not of_access <= flags] == []


def test_the_flags_are_kubectl_s(server, tmp_path, capsys):
    server.on("GET", "/version", Say({"gitVersion": "v1.36.0", "major": "1", "minor": "36"}))
    path = with_user(tmp_path, server.url)
    flags = ["--as=anna", "--as-group=devs", "--as-group", "ops", "--as-uid=7"]
    assert command(["plan", f"--kubeconfig={path}", *flags]) == 3
    expected = Impersonation("anna", "7", ("devs", "ops")).headers()
    assert server.asked
    assert all(tuple(impersonated(asked)) == expected for asked in server.asked)
    assert command(["plan", "--snapshot=docs/examples/zone-back.zip", *flags]) == 2
    said = "--as, --as-group, --as-uid are of the cluster; leave them out with a snapshot file"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("whom", "text"),
    [
        (Impersonation("anna"), "anna"),
        (Impersonation("anna", "7", ("devs", "ops")), "anna (uid 7; groups devs, ops)"),
        (Impersonation("anna", groups=("devs",)), "anna (groups devs)"),
    ],
)
def test_it_is_named_in_one_line(whom, text):
    assert str(whom) == text
