import json

import pytest

from tests.audit.__main__ import SHIPPED, VEX
from tests.audit.judge import judge

FOUND = {
    "dependencies": [
        {"name": "clean", "version": "1", "vulns": []},
        {"name": "unknown", "version": "2", "skip_reason": "not found"},
        {
            "name": "broken",
            "version": "3",
            "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["4"]}],
        },
    ]
}


def vex(status: str, name: str = "CVE-1", product: str = "pkg:pypi/broken"):
    statement = {"vulnerability": {"name": name}, "products": [{"@id": product}], "status": status}
    return {"statements": [statement]}


def test_what_could_not_be_judged_is_said_and_never_counts_as_clean():
    verdict = judge(FOUND, {"statements": []})
    assert verdict.unjudged == ("unknown",)
    assert verdict.judged == 2
    assert "audit: NOT JUDGED: 1 of 3 packages" in "\n".join(verdict.lines())


def test_a_vulnerability_is_open_until_a_statement_answers_it():
    assert judge(FOUND, {"statements": []}).open == ("broken 3: PYSEC-1: fixed in 4",)


@pytest.mark.parametrize("name", ["CVE-1", "PYSEC-1"])
@pytest.mark.parametrize("status", ["not_affected", "fixed"])
def test_a_statement_answers_by_any_name_of_a_vulnerability(status, name):
    verdict = judge(FOUND, vex(status, name))
    assert verdict.open == ()
    assert verdict.answered == (f"broken 3: PYSEC-1: {status}, says the VEX file",)


@pytest.mark.parametrize(
    "said",
    [
        vex("under_investigation"),
        vex("affected"),
        vex("not_affected", "CVE-2"),
        vex("not_affected", product="pkg:pypi/other"),
    ],
)
def test_no_other_statement_does(said):
    assert judge(FOUND, said).open


def test_without_a_vex_file_all_are_open_and_one_without_statements_is_none():
    assert judge(FOUND, None).open == judge(FOUND, {"statements": []}).open
    assert not VEX.exists() or json.loads(VEX.read_text(encoding="utf-8"))["statements"]


@pytest.mark.skipif(not VEX.exists(), reason="nothing to say yet")
def test_the_vex_file_speaks_of_what_is_shipped():
    shipped = SHIPPED.read_text(encoding="utf-8")
    document = json.loads(VEX.read_text(encoding="utf-8"))
    assert document["@context"].startswith("https://openvex.dev/ns/")
    for statement in document["statements"]:
        for product in statement["products"]:
            name = product["@id"].removeprefix("pkg:pypi/")
            assert f"\n{name}==" in f"\n{shipped}"
        assert statement["status"] != "not_affected" or statement["justification"]
