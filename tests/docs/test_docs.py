"""README and docs are what the code says: tables, outputs, links, and the pages that there must be."""

import re
from pathlib import Path

import pytest

from rebalancer.kube import access
from rebalancer.plan.plan import Code
from rebalancer.registry import Registry
from tests.docs import example, strategy_pictures
from tests.docs.pages import DOCS, ROOT, pages, rewritten, strategy_pages
from tests.docs.pictures import SEEN, html_report, seen, terminal
from tests.docs.rights import ROWS
from tests.docs.write import write

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def of_page(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", pages(), ids=of_page)
def test_written_parts_are_what_the_code_writes(page):
    text = page.read_text(encoding="utf-8")
    assert rewritten(text, write) == text, "out of date: make docs"


def test_a_stale_part_is_seen():
    stale = "<!-- written: codes -->\n\n| `Protected` | forbidden |\n\n<!-- end -->"
    assert rewritten(stale, write) != stale
    with pytest.raises(ValueError, match="no end"):
        rewritten("<!-- written: codes -->\n", write)
    with pytest.raises(ValueError, match="no part"):
        write("nonsense")
    with pytest.raises(ValueError, match="exit code 2"):
        write("output rebalancer run --snapshot nowhere.zip")


def test_examples_are_what_the_code_makes():
    stale = [file for file, content in example.files() if (ROOT / file).read_bytes() != content]
    assert stale == [], "out of date: make docs"


def test_pictures_of_strategies_are_what_the_report_shows():
    pictures = dict(strategy_pictures.files())
    stale = [file for file, content in pictures.items() if (ROOT / file).read_bytes() != content]
    assert stale == [], "out of date: make docs"
    assert {str(path.relative_to(ROOT)) for path in strategy_pictures.FOLDER.iterdir()} == set(
        pictures
    )
    assert sum(map(len, pictures.values())) < 200_000
    texts = [content.decode() for content in pictures.values()]
    assert all("leaves" in text and "its replacement" in text for text in texts)
    assert not any(re.search(r"(?:href|src|url)\W+https?:", text) for text in texts)


@pytest.mark.parametrize(
    "page", [*pages(), ROOT / "CONTRIBUTING.md", ROOT / "chart" / "README.md"], ids=of_page
)
def test_links_lead_somewhere(page):
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page if not path else (page.parent / path).resolve()
        assert target.exists(), link
        if anchor:
            assert anchor in _anchors(target), link


def _anchors(page: Path) -> set[str]:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(text)
    }


def test_every_page_can_be_reached_from_readme():
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in reached:
            continue
        reached.add(page)
        links = _LINK.findall(page.read_text(encoding="utf-8"))
        paths = [(page.parent / link.partition("#")[0]).resolve() for link in links]
        todo += [path for path in paths if path.suffix == ".md" and path.is_file()]
    assert set(pages()) - reached - {DOCS / "README.md"} == set()


def scales(name: str) -> bool:
    """Whether a strategy is about machines, of which no picture of pods on nodes is drawn."""
    return Registry.installed()[name].scales is not None


def test_troubleshooting_leads_to_every_code_of_a_pod_that_stays_and_to_no_other():
    text = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    codes = [row.split("|")[2] for row in text.splitlines() if row.count("|") == 4]
    named = {code for cell in codes for code in re.findall(r"`([A-Z][A-Za-z]+)`", cell)}
    assert named == {code.value for code in Code}


def test_every_strategy_has_a_page_and_no_other_has():
    pages_of = strategy_pages()
    installed = {
        one.name
        for one in Registry.installed().list_metadata()
        if one.distribution == "kube-rebalancer"
    }
    assert set(pages_of) == installed
    for name, (_, text) in pages_of.items():
        assert f"<!-- written: options {name} -->" in text
        assert "<!-- written: output " in text
        assert f"](../images/strategies/{name}.svg)" in text or scales(name)


def test_the_table_of_rights_has_every_rule_that_the_code_knows():
    known = {
        rule for name, rules in vars(access).items() if name.endswith("_RULES") for rule in rules
    }
    assert known - {rule for _, rules, _ in ROWS for rule in rules} == set()


def test_readme_is_short_and_begins_with_a_picture():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 149
    images = [link for link in _LINK.findall(text) if "/images/" in link]
    assert text.index(images[0]) < text.index("## ")
    assert sum(path.stat().st_size for path in (DOCS / "images").iterdir()) < 220_000
    assert text.index("make demo") < text.index("## What it will never do")


def test_the_pictures_of_readme_show_what_the_report_says():
    stale = "`make pictures` draws them again"
    assert SEEN.read_text(encoding="utf-8") == seen(html_report()), stale
    assert (DOCS / "images" / "terminal.svg").read_text(encoding="utf-8") == terminal(), stale
    assert "unmet rules" in SEEN.read_text(encoding="utf-8").splitlines()[0]


def test_pictures_load_nothing_from_elsewhere():
    text = (DOCS / "images" / "terminal.svg").read_text(encoding="utf-8")
    assert re.findall(r"(?:href|src|url)\W+https?:[^\"']*", text) == []
    assert "7 evictions" in text.replace("&#160;", " ")
