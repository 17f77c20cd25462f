"""What removes a machine: a command without a shell, or an address; how it failed is said."""

import os
import sys

import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.machines.drain.replacing import ReplaceHook
from tests.unit.kube.scripted import Say, ScriptedServer


def python(script: str) -> ReplaceHook:
    return ReplaceHook((sys.executable, "-c", script))


def test_a_command_gets_the_node_as_its_last_argument_and_no_shell_reads_it(tmp_path):
    out = tmp_path / "out"
    script = f"import os, sys; open({str(out)!r}, 'w').write(repr(sys.argv[1:]) + os.environ['PROVIDER_ID'])"
    assert python(script).call("n1; rm -rf $HOME", "aws:///a/i-1", os.environ) is None
    assert out.read_text() == "['n1; rm -rf $HOME']aws:///a/i-1"


def test_a_command_that_fails_is_named_with_its_last_words():
    why = python("import sys; sys.exit('no such instance')").call("n1", "", os.environ)
    assert why == f"{sys.executable} exited with 1: no such instance"
    assert "No such file" in (ReplaceHook(("/no/such",)).call("n1", "", {}) or "")


@pytest.mark.parametrize(
    ("text", "hook"),
    [
        ("terminate --region 'x y'", ReplaceHook(("terminate", "--region", "x y"))),
        ("https://h.test/remove?a=b", ReplaceHook(url="https://h.test/remove?a=b")),
        ("http:remove", ReplaceHook(("http:remove",))),
    ],
)
def test_an_address_is_distinguished_from_a_command(text, hook):
    assert ReplaceHook.parse(text) == hook


@pytest.mark.parametrize("text", ["", "  ", "a 'b", "http://", "https://h:port/"])
def test_what_is_neither_is_refused(text):
    with pytest.raises(PolicyError, match="--then"):
        ReplaceHook.parse(text)


def test_an_address_gets_a_post_with_the_node():
    with ScriptedServer() as server:
        server.on("POST", "/remove", Say({}, 202), Say({}, 500))
        hook = ReplaceHook.parse(f"{server.url}/remove")
        assert hook.call("n1", "aws:///a/i-1", {}) is None
        (asked,) = server.to("/remove", "POST")
        assert asked.body == {"node": "n1", "providerID": "aws:///a/i-1"}
        assert (hook.call("n1", "", {}) or "").endswith("answered 500 Internal Server Error")


def test_a_redirection_is_an_answer_like_others_and_is_not_followed():
    with ScriptedServer() as server:
        server.on("POST", "/remove", Say({}, 307, {"Location": f"{server.url}/elsewhere"}))
        why = ReplaceHook.parse(f"{server.url}/remove").call("n1", "", {})
        assert why == f"{server.url} answered 307 Temporary Redirect"
        assert server.to("/elsewhere", "POST") == []


def test_an_address_that_nothing_listens_on_is_named_without_its_path():
    assert "127.0.0.1" in (ReplaceHook(url="http://127.0.0.1:1/x").call("n1", "", {}) or "")
