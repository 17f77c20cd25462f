"""Pages that a review of security reads: what they name is there."""

import json
import re
from pathlib import PurePath

import pytest

from tests.docs.pages import DOCS, ROOT
from tests.support.named_tests import missing_tests, named_tests

MODEL = (DOCS / "threat-model.md").read_text(encoding="utf-8")
ROWS = [
    line
    for section in MODEL.split("\n## ")
    if "tests/" in section
    for table in re.findall(r"\n\|[^\n]*\btest \|\n\|[-|]+\|\n((?:\|.*\|\n)+)", f"{section}\n")
    for line in table.splitlines()
]
PAGES = (
    "SECURITY.md",
    "RELEASE.md",
    "docs/threat-model.md",
    "docs/project/governance.md",
    "docs/project/kubernetes.md",
)


def test_the_threat_model_has_its_tables():
    assert len(ROWS) > 30


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_each_line_of_the_threat_model_names_a_test(row):
    assert named_tests(row)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_only_tests_and_files_that_are_there(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert missing_tests(text) == []
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    assert [one for one in links if not (ROOT / page).parent.joinpath(one).exists()] == []


def test_owners_of_files_are_roles_and_their_paths_are_there():
    roles = (DOCS / "project" / "governance.md").read_text(encoding="utf-8")
    lines = [line for line in (DOCS / "CODEOWNERS").read_text().splitlines() if line[0] != "#"]
    for line in lines:
        path, *teams = line.split()
        assert path == "*" or list(ROOT.glob(path.strip("/"))), path
        for team in teams:
            name = team.removeprefix("@ORGANISATION/").rstrip("s")
            assert name in roles, team


@pytest.mark.parametrize(
    "path",
    [
        "docs/CODEOWNERS",
        "docs/project/governance.md",
        "chart/templates/_pod.tpl",
        "chart/templates/rbac.yaml",
        "chart/values.yaml",
        "image/requirements.txt",
        "requirements-dev.txt",
        "setup.py",
        "tests/release/make.py",
        "rebalancer/kube/credentials.py",
        "rebalancer/snapshot/redact.py",
    ],
)
def test_what_decides_over_rights_secrets_and_releases_is_owned_by_security(path):
    lines = [line.split() for line in (DOCS / "CODEOWNERS").read_text().splitlines()]
    matching = [
        teams
        for pattern, *teams in lines
        if pattern != "#"
        and (
            PurePath(path).match(pattern.strip("/"))
            or (pattern.startswith("/") and f"/{path}".startswith(pattern))
        )
    ]
    assert "@ORGANISATION/security" in matching[-1]


def test_what_renews_dependencies_reads_the_files_that_pin_them():
    renovate = json.loads((ROOT / "renovate.json").read_text(encoding="utf-8"))
    # Not pip-compile: it needs headers, which these files do not have.
    assert set(renovate["enabledManagers"]) >= {"pip_requirements", "gomod", "dockerfile"}
    (pattern, build) = renovate["pip_requirements"]["managerFilePatterns"]
    pinned = [
        str(path.relative_to(ROOT))
        for folder in ("image", "tests", "benchmarks")
        for path in (ROOT / folder).rglob("*requirements.txt")
    ]
    for path in [*pinned, "requirements-dev.txt"]:
        assert any(re.search(one.strip("/"), path) for one in (pattern, build)), path
    (own,) = renovate["customManagers"]
    found = re.findall(own["matchStrings"][0].replace("?<", "?P<"), (ROOT / "Makefile").read_text())
    assert found, "what writes the files is pinned, too"


def test_the_compiler_of_an_sdist_is_the_one_of_releases():
    (pinned,) = re.findall(r'"(ziglang==[0-9.]+)"', (ROOT / "setup.py").read_text())
    assert f"\n{pinned} \\\n" in (ROOT / "image" / "build-requirements.txt").read_text()
